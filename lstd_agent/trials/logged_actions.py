"""Actions of logged trials, as numbers from 0 where they are Discrete."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from lstd_agent.arrays import IntArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.trials.exploration import are_none, discrete_actions, in_words
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
                f"actions of the trials so far are {in_words(known)}; the log has "
                f"{trials.action_space}"
            )
    elif trials.action_space is None and known is None:
        table: Any = np.zeros(1, dtype=np.int64) if policy is None or callable(policy) else policy
        if np.ndim(table) == 2:
            return np.shape(table)[1], 0
        if all(each.ndim == 1 and each.dtype.kind in "biu" for each in trials.actions):
            low = min(int(each.min()) for each in trials.actions)
            high = max(np.max(table), *(int(each.max()) for each in trials.actions))
            return (int(high) + 1, 0) if low >= 0 else None
    return told


def as_numbers(trials: LoggedTrials, numbers: tuple[int, int]) -> IntArray:
    """Return the actions of all trials, one trial after the other, from 0.

    Raises
    ------
    InvalidInputError
        If one is none of the actions.
    """
    assert trials.actions is not None
    for i, actions in enumerate(trials.actions):
        if actions.ndim != 1 or actions.dtype.kind not in "biuf":
            raise _misfit(numbers, i, actions[0])
    number = np.concatenate(trials.actions)
    wrong = are_none(number, numbers)
    if wrong.any():
        place = int(np.argmax(wrong))
        trial = int(np.searchsorted(np.cumsum(trials.lengths), place, side="right"))
        raise _misfit(numbers, trial, number[place])
    found: IntArray = number.astype(np.int64) - numbers[1]
    return found


def _misfit(numbers: tuple[int, int], trial: int, action: Any) -> InvalidInputError:
    return InvalidInputError(
        f"actions are {in_words(numbers)}; trial {trial} has {action}: name all of them with "
        "action_space= when the first trials are added"
    )
