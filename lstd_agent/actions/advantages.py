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
    row, known = np.arange(len(q)), actions != UNKNOWN
    has_value = ~np.isnan(q)
    advantage = q - q[row, np.maximum(actions, 0)][:, None]
    here, other = np.nonzero(known[:, None] & (advantage > rounding))
    enough = np.zeros(q.shape, dtype=bool)
    enough[here, other] = advantage[here, other] > n_errors * error(here, other) + rounding
    better, improves = actions.copy(), enough.any(axis=1)
    better[improves] = np.argmax(np.where(enough, advantage, -np.inf)[improves], axis=1)
    new = ~known & has_value.any(axis=1)
    better[new] = np.argmax(np.where(has_value, q, -np.inf)[new], axis=1)
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


class Advantages:
    """Advantages over the actions (n,) that a policy takes in visited states.

    Made of action values (n, A), NaN if not known, the standard errors of the differences, and the
    tried actions. Differences and errors up to ``rounding`` count as 0.
    """

    def __init__(
        self,
        states: States,
        taken: IntArray,
        q: FloatArray,
        errors: Any,
        tried: Any,
        rounding: float,
    ) -> None:
        self._states, self._taken, self._n_untried = states, taken, np.count_nonzero(~tried)
        difference = q - q[np.arange(len(q)), taken][:, None]
        difference[np.abs(difference) <= rounding] = 0.0
        errors = np.where(np.isnan(difference), np.inf, errors)
        errors[errors <= rounding] = 0.0
        self._differences, self._errors = difference, errors
        is_exact, others = errors == 0.0, np.arange(q.shape[1]) != taken[:, None]
        worse_by = -difference / np.where(is_exact, 1.0, errors)
        worse_by[is_exact] = np.where(difference <= 0.0, np.inf, -np.inf)[is_exact]
        worse_by = np.nan_to_num(worse_by, nan=0.0, posinf=np.inf)
        self._open = others & ((worse_by < _TOLD) | ~tried)
        self._told_by = np.where(others & tried, worse_by, np.inf).min(axis=1, initial=np.inf)

    def undecided(self, decode: Callable[[Any], Any], first_action: int) -> list[Undecided]:
        """Return the undecided pairs."""
        return [
            Undecided(
                decode(self._states[i]),
                first_action + a,
                first_action + int(self._taken[i]),
                float(self._differences[i, a]),
                float(self._errors[i, a]),
            )
            for i, a in np.argwhere(self._open).tolist()
        ]

    def account(self, undecided: list[Undecided]) -> list[str]:
        """Return how sure the policy's actions are, as lines of text."""
        told = self._told_by[self._told_by >= _TOLD]
        lines = [f"best actions decided in {len(told)} of {len(self._taken)} states that were met"]
        finite = told[np.isfinite(told)]
        if len(finite):
            lines[0] += f", by {finite.min():.1f} standard errors or more (half of them by "
            lines[0] += f"{np.median(finite):.1f})"
        pairs = [each for each in undecided if np.isfinite(each.standard_error)]
        if pairs:
            lines.append(f"undecided pairs, by {_TOLD:g} standard errors: {len(pairs)}")
            pairs.sort(key=lambda each: -each.difference / each.standard_error)
            lines += [f"  {each}" for each in pairs[:_SHOWN]]
            lines += ["  ..."] if len(pairs) > _SHOWN else []
        if self._n_untried:
            lines.append(f"pairs that were never tried, or do not exist: {self._n_untried}")
        return lines
