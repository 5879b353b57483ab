"""How many trials count at each timestep: all, unless some were cut short or explored there.

A transition by an exploratory action is none of the policy's, and is left out of its sums: the
trial is missing at that timestep, and is there again at the next.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lstd_agent.arrays import IntArray
from lstd_agent.errors import InvalidInputError


def has_gaps(n_at: IntArray | None) -> bool:
    """Return whether trials are missing at a timestep that are there at a later one."""
    return n_at is not None and bool((np.diff(n_at) > 0).any())


def check_lengths(n_at: IntArray, n_trials: int, t_max: int) -> None:
    """Raise `InvalidInputError` unless trials may be as long as ``n_at`` says."""
    if (
        np.shape(n_at) != (t_max + 1,)
        or np.asarray(n_at).dtype.kind not in "iu"
        or np.max(n_at) > n_trials
        or np.min(n_at) < 0
        or (n_at[0] != n_trials and not has_gaps(n_at))
    ):
        raise InvalidInputError(
            f"n_at holds how many of {n_trials} trials have each of {t_max + 1} timesteps: all "
            f"the first one, unless they are explored there; got {n_at!r}"
        )


def checked_by_timestep(
    name: str, given: ArrayLike | None, kinds: str, shape: tuple[int, ...]
) -> Any:
    """Return an optional array of a number a timestep, or raise unless it is one."""
    if given is None:
        return None
    checked = np.asarray(given)
    if checked.shape != shape or checked.dtype.kind not in kinds:
        raise InvalidInputError(
            f"{name} of these trials have shape {shape}; got {checked.shape}, {checked.dtype}"
        )
    return checked


def checked_lengths(lengths: ArrayLike | None, m: int, n: int) -> IntArray | None:
    """Return how many of n timesteps m trials have, None if all have all."""
    if lengths is None:
        return None
    checked = np.asarray(lengths)
    are_numbers = checked.shape == (m,) and checked.dtype.kind in "iu"
    if not are_numbers or checked.min() < 1 or checked.max() > n:
        raise InvalidInputError(
            f"the lengths of {m} trials are {m} integers from 1 to {n}; got {lengths!r}"
        )
    return None if (checked == n).all() else checked.astype(np.int64)
