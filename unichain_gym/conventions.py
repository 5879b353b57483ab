"""Checks that both environment classes share: modes, actions, reset options, snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unichain_gym.errors import InvalidArgumentError, UnichainError, brief
from unichain_gym.interface import BoolArray, FloatArray, IntArray
from unichain_gym.labels import look_up
from unichain_gym.mdp import TabularMDP
from unichain_gym.models import check_distribution
from unichain_gym.outcomes import (
    check_choice,
    draw_thresholds,
    nearest_name,
    read_array,
    read_reals,
    require_integers,
)
from unichain_gym.summary import abbreviate

InfoLevel = Literal["minimal", "full"]
RenderMode = Literal["rgb_array", "ansi"]
RENDER_METADATA: dict[str, Any] = {"render_modes": list(get_args(RenderMode)), "render_fps": 4}


def read_settings(mdp: Any, render_mode: Any, info_level: Any) -> NDArray[np.int8] | None:
    """Check an environment's arguments; return action masks (S, A), None if all are ones."""
    check_mdp(mdp)
    if render_mode is not None:
        check_choice("render_mode", render_mode, get_args(RenderMode))
    check_choice("info_level", info_level, get_args(InfoLevel))
    return None if mdp.allowed_actions.all() else mdp.allowed_actions.astype(np.int8)


def check_allowed(mdp: TabularMDP, state: int, action: int, whose: str = "") -> None:
    """Raise `InvalidArgumentError` if a state lacks an action."""
    if not mdp.allowed_actions[state, action]:
        has = abbreviate(np.flatnonzero(mdp.allowed_actions[state]))
        raise InvalidArgumentError(
            f"{whose}state {state} lacks action {action}; it has: {has} (see info['action_mask'])"
        )


def read_actions(
    mdp: TabularMDP,
    masks: NDArray[np.int8] | None,
    states: IntArray,
    actions: ArrayLike,
    ignored: BoolArray | None,
) -> IntArray:
    """Return the checked actions of n environments; an ``ignored`` one may be replaced."""
    given, shape = read_array(actions, "actions", InvalidArgumentError), states.shape
    if given.shape != shape or given.dtype.kind not in "iu":
        got = f"{given.dtype} of shape {given.shape}"
        raise InvalidArgumentError(f"actions must be integers of shape {shape}; got {got}")
    chosen: IntArray = given.astype(np.int64, copy=False)
    if ignored is not None:
        chosen = np.where(ignored, 0 if masks is None else masks[states].argmax(axis=1), chosen)
    # As unsigned numbers, negative actions are huge, so one comparison finds both errors.
    if chosen.view(np.uint64).max() >= mdp.n_actions:
        i = int(np.argmax((chosen < 0) | (chosen >= mdp.n_actions)))
        raise InvalidArgumentError(
            f"an action is an integer from 0 to {mdp.n_actions - 1}; environment {i} got {given[i]}"
        )
    if masks is not None and not masks[states, chosen].all():
        i = int(np.argmin(masks[states, chosen]))
        check_allowed(mdp, int(states[i]), int(chosen[i]), f"environment {i}: ")
    return chosen


def refuse_unknown(
    error: type[UnichainError], owner: str, kind: str, given: Iterable[str], known: Sequence[str]
) -> None:
    """Raise ``error`` for the first given argument name that is not known."""
    for name in given:
        if name not in known:
            listed = ", ".join(known) or "none"
            raise error(
                f"{owner} has no {kind} {name!r}{nearest_name(name, known)}; it has: {listed}"
            )


def check_mdp(mdp: TabularMDP) -> TabularMDP:
    """Return the MDP, or raise `InvalidArgumentError` if it is no `TabularMDP`."""
    if not isinstance(mdp, TabularMDP):
        raise InvalidArgumentError(
            f"needs a TabularMDP, such as make_mdp('h36c'); got {brief(mdp)}"
        )
    return mdp


def read_reset(seed: Any, options: Any) -> tuple[int | None, dict[str, Any]]:
    """Return a reset's seed and a copy of its options, or raise `InvalidArgumentError`."""
    if seed is not None:
        require_integers(InvalidArgumentError, low=0, seed=seed)
        seed = int(seed)
    if not isinstance(options, Mapping | None):
        example = "{'state': 3}"
        raise InvalidArgumentError(
            f"options of reset() are a dict such as {example}; got {brief(options)}"
        )
    return seed, dict(options or {})


def draw_start(
    mdp: TabularMDP,
    thresholds: FloatArray,
    options: Mapping[str, Any],
    n: int,
    rng: np.random.Generator,
) -> IntArray:
    """Return ``n`` start states, from ``options`` or else drawn by ``thresholds``."""
    if not {*options} <= {"state", "distribution"} or len(options) > 1:
        got = ", ".join(map(repr, options))
        raise InvalidArgumentError(
            "reset takes one option, 'state' or 'distribution' (and 'reset_mask' of many); got "
            f"{got}"
        )
    if "state" in options:
        return check_states(mdp, options["state"], n, "options['state']")
    if "distribution" in options:
        what = "options['distribution']"
        p = read_reals(options["distribution"], what, InvalidArgumentError)
        if p.shape != (mdp.n_states,):
            raise InvalidArgumentError(f"{what} must have shape ({mdp.n_states},); got {p.shape}")
        check_distribution(p, what)
        thresholds = draw_thresholds(p)
    return np.searchsorted(thresholds, rng.random(n), side="right")


def check_states(mdp: TabularMDP, states: ArrayLike, n: int, what: str) -> IntArray:
    """Return one or ``n`` states as an array of shape (n,), or raise `InvalidArgumentError`."""
    array = read_array(states, what, InvalidArgumentError)
    array = look_up(array, mdp.state_names, "state", InvalidArgumentError)
    if array.shape not in ((), (n,)) or not np.issubdtype(array.dtype, np.integer):
        raise InvalidArgumentError(
            f"{what} must be one integer or {n} of them; got {brief(states)}"
        )
    wrong, last = array[(array < 0) | (array >= mdp.n_states)], mdp.n_states - 1
    if wrong.size:
        raise InvalidArgumentError(f"{what} must be from 0 to {last}; got {int(wrong.flat[0])}")
    return np.broadcast_to(array.astype(np.int64), (n,))


def read_snapshot(
    mdp: TabularMDP, snapshot: Mapping[str, Any], shape: tuple[int, ...], *further: str
) -> tuple[IntArray | None, IntArray]:
    """Return states and timesteps of a snapshot, or raise `InvalidArgumentError`.

    ``shape`` is () for one environment, or (n,); ``further`` names other required entries.
    """
    is_one = "a snapshot is what get_state() returns"
    if not isinstance(snapshot, Mapping):
        raise InvalidArgumentError(f"{is_one}; got {brief(snapshot)}")
    missing = [k for k in ("state", "timestep", "generator", *further) if k not in snapshot]
    if missing:
        raise InvalidArgumentError(f"{is_one}; this one lacks {', '.join(missing)}")
    states, what = snapshot["state"], "the snapshot's timestep"
    if states is not None:
        n = shape[0] if shape else 1
        states = check_states(mdp, states, n, "the snapshot's state").copy()
    array = read_array(snapshot["timestep"], what, InvalidArgumentError)
    if shape and array.ndim == 1 and array.shape != shape:
        raise InvalidArgumentError(
            f"the snapshot is of {array.size} environments; these are {shape[0]}"
        )
    if array.shape != shape or array.dtype.kind not in "iu" or (array < 0).any():
        wanted = f"{shape[0]} integers" if shape else "one integer"
        got = snapshot["timestep"]
        raise InvalidArgumentError(f"{what} must be {wanted}, not negative; got {brief(got)}")
    return states, array.astype(np.int64)


def restore_generator(rng: np.random.Generator, state: Mapping[str, Any]) -> None:
    """Set the state of a generator, or raise `InvalidArgumentError`."""
    try:
        rng.bit_generator.state = state
    except (KeyError, TypeError, ValueError) as error:
        kind = type(rng.bit_generator).__name__
        message = f"the snapshot's generator is not one of {kind}: {error}"
        raise InvalidArgumentError(message) from error
