"""Actions of logged trials, as numbers from 0 where they are Discrete."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from lstd_agent.arrays import IntArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.trials.exploration import discrete_actions
from lstd_agent.trials.logged import LoggedTrials
from lstd_agent.trials.policies import Policy


def action_numbers(
    trials: LoggedTrials, known: tuple[int, int] | None, policy: Policy | None
) -> tuple[int, int] | None:
    """Return how many Discrete actions there are, and the first of them; None if that is not told.

    Parameters
    ----------
    trials : LoggedTrials
        Whose space of actions tells. Without one, integers are actions from 0 to the largest.
    known : (int, int) or None
        Of the trials so far.
    policy : policy, optional
        Probabilities (S, A) tell how many actions there are.

    Raises
    ------
    InvalidInputError
        If a space of actions is not that of the trials so far.
    """
    if trials.actions is None:
        return known
    told = known
    if isinstance(trials.action_space, spaces.Discrete):
        told = discrete_actions(trials.action_space)
        if known not in (None, told):
            raise InvalidInputError(
                f"actions of the trials so far are {_in_words(known)}; the log has "
                f"{trials.action_space}"
            )
    elif trials.action_space is None and known is None:
        table: Any = np.zeros(1, dtype=np.int64) if policy is None or callable(policy) else policy
        if np.ndim(table) == 2:
            return np.shape(table)[1], 0
        if all(each.ndim == 1 and each.dtype.kind in "iu" for each in trials.actions):
            low = min(int(each.min()) for each in trials.actions)
            high = max(np.max(table), *(int(each.max()) for each in trials.actions))
            return (int(high) + 1, 0) if low >= 0 else None
    return told


def as_numbers(trials: LoggedTrials, numbers: tuple[int, int]) -> list[IntArray]:
    """Return the actions of each trial (n,), from 0.

    Raises
    ------
    InvalidInputError
        If one is none of the actions.
    """
    assert trials.actions is not None
    n, first = numbers
    return [_number(actions, i, n, first) for i, actions in enumerate(trials.actions)]


def _number(actions: NDArray[Any], trial: int, n: int, first: int) -> IntArray:
    if actions.ndim == 1 and actions.dtype.kind in "iuf":
        wrong = ~((actions % 1 == 0) & (actions >= first) & (actions < first + n))
        if not wrong.any():
            return actions.astype(np.int64) - first
        actions = actions[wrong]
    raise InvalidInputError(
        f"actions are {_in_words((n, first))}; trial {trial} has {actions[0]!r}: name all of them "
        "with action_space= when the first trials are added"
    )


def _in_words(numbers: tuple[int, int] | None) -> str:
    assert numbers is not None
    return f"{numbers[1]} to {numbers[1] + numbers[0] - 1}"
