"""Advantages of actions over the policy's actions, with their standard errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray, States

UNKNOWN = -1
"""Stands for the action where the policy has none."""

# An action is decided if it is worse than the policy's by this many standard errors.
_TOLD = 3.0

# Number of undecided pairs that an account shows.
_SHOWN = 5


def better_actions(
    q: FloatArray,
    actions: IntArray,
    n_errors: float,
    error: Callable[[IntArray, IntArray], FloatArray],
    rounding: float = 0.0,
) -> IntArray:
    """Return an action for each row of action values (n, A): a better one, or the same.

    An action is better if its advantage exceeds ``rounding`` and ``n_errors`` standard errors,
    given by ``error`` for rows (m,) and actions (m,). If the policy has no action, it is the action
    with the largest known value.
    """
    known, enough = actions != UNKNOWN, np.zeros(q.shape, dtype=bool)
    advantage = q - q[np.arange(len(q)), np.maximum(actions, 0)][:, None]
    here, other = np.nonzero(known[:, None] & (advantage > rounding))
    enough[here, other] = advantage[here, other] > n_errors * error(here, other) + rounding
    better, improves = actions.copy(), enough.any(axis=1)
    better[improves] = np.argmax(np.where(enough, advantage, -np.inf)[improves], axis=1)
    new = ~known & ~np.isnan(q).all(axis=1)
    better[new] = np.nanargmax(q[new], axis=1)
    return better


@dataclass(frozen=True)
class Undecided:
    """An action that samples neither prefer to the policy's nor reject.

    Attributes
    ----------
    observation : observation
    action : int
        The task's number of the action.
    instead_of : int
        The policy's action.
    difference : float
        Action value minus the action value of the policy's action; NaN if not determined.
    standard_error : float
        Of the difference; infinite if not determined.

    Examples
    --------
    >>> from lstd_agent import Undecided
    >>> print(Undecided(3, action=1, instead_of=0, difference=-0.2, standard_error=0.1))
    3: action 1 instead of 0, -0.2 ± 0.1
    """

    observation: Any
    action: int
    instead_of: int
    difference: float
    standard_error: float

    def __str__(self) -> str:
        worth = f"{self.difference:.3g} ± {self.standard_error:.2g}"
        if np.isnan(self.difference):
            worth = "not tried enough"
        return f"{self.observation}: action {self.action} instead of {self.instead_of}, {worth}"


def judge(
    states: States,
    taken: IntArray,
    q: FloatArray,
    errors: Any,
    tried: Any,
    named: Callable[[Any, int, int, float, float], Undecided],
    rounding: float = 0.0,
) -> tuple[list[Undecided], list[str]]:
    """Return the undecided actions, and how sure a policy's actions (n,) are, as lines of text.

    Of visited states: action values (n, A), NaN if not known, the standard errors of their
    differences, and the tried actions. Differences and errors up to ``rounding`` count as 0.
    """
    difference = q - q[np.arange(len(q)), taken][:, None]
    difference[np.abs(difference) <= rounding] = 0.0
    errors = np.where(np.isnan(difference), np.inf, errors)
    errors[errors <= rounding] = 0.0
    is_exact, others = errors == 0.0, np.arange(q.shape[1]) != taken[:, None]
    worse_by = -difference / np.where(is_exact, 1.0, errors)
    worse_by[is_exact] = np.where(difference <= 0.0, np.inf, -np.inf)[is_exact]
    worse_by[np.isnan(worse_by)] = 0.0
    undecided = [
        named(states[i], a, int(taken[i]), float(difference[i, a]), float(errors[i, a]))
        for i, a in np.argwhere(others & ((worse_by < _TOLD) | ~tried)).tolist()
    ]
    told_by = np.where(others & tried, worse_by, np.inf).min(axis=1, initial=np.inf)
    told = told_by[told_by >= _TOLD]
    lines = [f"best actions decided in {len(told)} of {len(taken)} states that were met"]
    if len(finite := told[np.isfinite(told)]):
        half = f"(half of them by {np.median(finite):.1f})"
        lines[0] += f", by {finite.min():.1f} standard errors or more {half}"
    pairs = [each for each in undecided if np.isfinite(each.standard_error)]
    if pairs:
        lines.append(f"undecided pairs, by {_TOLD:g} standard errors: {len(pairs)}")
        pairs.sort(key=lambda each: -each.difference / each.standard_error)
        lines += [f"  {each}" for each in pairs[:_SHOWN]]
        lines += ["  ..."] if len(pairs) > _SHOWN else []
    if n_untried := np.count_nonzero(~tried):
        lines.append(f"pairs that were never tried, or do not exist: {n_untried}")
    return undecided, lines
