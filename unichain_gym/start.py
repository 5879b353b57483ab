"""Where a run starts or goes on: options of `reset` and snapshots, for one environment or many."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from unichain_gym.arrays import BoolArray, FloatArray, IntArray
from unichain_gym.errors import InvalidArgumentError
from unichain_gym.mdp import TabularMDP
from unichain_gym.outcomes import check_distribution, draw_thresholds, read_reals


def read_options(options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the options of a reset as a dict of one's own, or raise `InvalidArgumentError`."""
    if not isinstance(options, Mapping | None):
        raise InvalidArgumentError(
            f"options of reset() are a dict such as {{'state': 3}}; got {options!r}"
        )
    return dict(options or {})


def read_mask(mask: ArrayLike, n: int) -> BoolArray:
    """Return which of n environments to reset, or raise `InvalidArgumentError`."""
    array = np.asarray(mask)
    if array.dtype != np.bool_ or array.shape != (n,):
        raise InvalidArgumentError(
            f"options['reset_mask'] must be bool of shape ({n},); got "
            f"{array.dtype} of shape {array.shape}"
        )
    if not array.any():
        raise InvalidArgumentError(
            "options['reset_mask'] names no environment; leave reset() out then"
        )
    return array


def draw_start(
    mdp: TabularMDP,
    thresholds: FloatArray,
    options: Mapping[str, Any],
    n: int,
    rng: np.random.Generator,
) -> IntArray:
    """Return ``n`` start states: as ``options`` say, else drawn by ``thresholds``."""
    unknown = [name for name in options if name not in ("state", "distribution")]
    if unknown or len(options) > 1:
        raise InvalidArgumentError(
            "reset takes one option, 'state' or 'distribution' (a vector environment "
            f"'reset_mask' too); got {', '.join(map(repr, options))}"
        )
    if "state" in options:
        return check_states(mdp, options["state"], n, "options['state']")
    if "distribution" in options:
        p = read_reals(options["distribution"], "options['distribution']", InvalidArgumentError)
        if p.shape != (mdp.n_states,):
            raise InvalidArgumentError(
                f"options['distribution'] must have shape ({mdp.n_states},); got {p.shape}"
            )
        check_distribution(p, "options['distribution']")
        thresholds = draw_thresholds(p)
    return np.searchsorted(thresholds, rng.random(n), side="right")


def check_states(mdp: TabularMDP, states: ArrayLike, n: int, what: str) -> IntArray:
    """Return one or ``n`` states as an array of shape (n,), or raise `InvalidArgumentError`."""
    array = np.asarray(states)
    if array.shape not in ((), (n,)) or not np.issubdtype(array.dtype, np.integer):
        raise InvalidArgumentError(f"{what} must be one integer or {n} of them; got {states!r}")
    wrong = array[(array < 0) | (array >= mdp.n_states)]
    if wrong.size:
        raise InvalidArgumentError(
            f"{what} must be from 0 to {mdp.n_states - 1}; got {int(wrong.flat[0])}"
        )
    return np.broadcast_to(array.astype(np.int64), (n,))


def check_snapshot(snapshot: Mapping[str, Any], *further: str) -> None:
    """Raise `InvalidArgumentError` if a snapshot lacks an entry."""
    missing = [k for k in ("state", "timestep", "generator", *further) if k not in snapshot]
    if missing:
        raise InvalidArgumentError(
            f"a snapshot is what get_state() returns; this one lacks {', '.join(missing)}"
        )


def check_timesteps(timesteps: ArrayLike, shape: tuple[int, ...]) -> IntArray:
    """Return a snapshot's timesteps as an array, or raise `InvalidArgumentError`."""
    array = np.asarray(timesteps)
    if shape and array.ndim == 1 and array.shape != shape:
        raise InvalidArgumentError(
            f"the snapshot is of {array.size} environments; these are {shape[0]}"
        )
    if array.shape != shape or array.dtype.kind not in "iu" or (array < 0).any():
        wanted = f"{shape[0]} integers" if shape else "one integer"
        raise InvalidArgumentError(
            f"the snapshot's timestep must be {wanted}, not negative; got {timesteps!r}"
        )
    return array.astype(np.int64)


def restore_generator(rng: np.random.Generator, state: Mapping[str, Any]) -> None:
    """Set the state of a generator, or raise `InvalidArgumentError`."""
    try:
        rng.bit_generator.state = state
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"the snapshot's generator is not one of {type(rng.bit_generator).__name__}: {error}"
        ) from error
