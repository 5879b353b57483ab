"""Advantages: by how much actions are better than those of a policy, and how sure that is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from lstd_agent.arrays import BoolArray, FloatArray, IntArray, States

UNKNOWN = -1
"""The action of a state for which the policy has none."""

TOLD = 3.0
"""By so many standard errors an action must be worse to be told from the best."""

# So many undecided pairs are shown in an account.
_SHOWN = 5


def better_actions(
    q: FloatArray,
    actions: IntArray,
    n_errors: float,
    error: Callable[[IntArray, IntArray], FloatArray],
    rounding: float = 0.0,
) -> IntArray:
    """Return an action for each row: a better one where there is one, or else the same.

    Parameters
    ----------
    q : ndarray, shape (n, A)
        Action values, NaN where they are not known.
    actions : ndarray of int, shape (n,)
        The policy's, `UNKNOWN` where it has none.
    n_errors : float
        By how many standard errors an action has to be better.
    error : callable
        Of rows (m,) and actions (m,) to standard errors (m,) of their advantages.
    rounding : float
        Advantages of this size are rounding.
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
    """An action that samples do not tell from the policy's.

    Attributes
    ----------
    observation : observation
    action : int
        The task's number of the action.
    instead_of : int
        The policy's action.
    difference : float
        What the action is worth less what the policy's is, with the policy ever after. NaN where
        the samples do not tell it.
    standard_error : float
        Of the difference; infinite where the samples do not tell it.

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


@dataclass(frozen=True, eq=False)
class Advantages:
    """What all actions are worth beside those of a policy, in states that were met.

    Attributes
    ----------
    states : ndarray, shape (n,) or (n, k)
    taken : ndarray of int, shape (n,)
        The policy's actions.
    differences, errors : ndarray, shape (n, A)
        q(s, a) - q(s, π(s)), NaN where that is not known, with standard errors; both are 0 where
        actions are alike but for rounding.
    tried : ndarray of bool, shape (n, A)
        Which actions were taken at all.
    """

    states: States
    taken: IntArray
    differences: FloatArray
    errors: FloatArray
    tried: BoolArray

    @property
    def _others(self) -> BoolArray:
        return np.asarray(np.arange(self.tried.shape[1]) != self.taken[:, None])

    @cached_property
    def _worse_by(self) -> FloatArray:
        """By how many standard errors actions are worse than the policy's, (n, A)."""
        is_exact = self.errors == 0.0
        ratio = -self.differences / np.where(is_exact, 1.0, self.errors)
        exact = np.where(self.differences <= 0.0, np.inf, -np.inf)
        return np.nan_to_num(np.where(is_exact, exact, ratio), nan=0.0, posinf=np.inf)

    @property
    def told_by(self) -> FloatArray:
        """By how many standard errors every other action that was tried is worse, (n,)."""
        others = self._others & self.tried
        return np.asarray(np.where(others, self._worse_by, np.inf).min(axis=1, initial=np.inf))

    @property
    def n_untried(self) -> int:
        """How many pairs of these states and actions were never tried."""
        return int(np.count_nonzero(~self.tried))

    def undecided(self, decode: Callable[[Any], Any], first_action: int) -> list[Undecided]:
        """Return the pairs that are not told from the policy's."""
        open_pairs = self._others & ((self._worse_by < TOLD) | ~self.tried)
        return [
            Undecided(
                decode(self.states[i]),
                first_action + a,
                first_action + int(self.taken[i]),
                float(self.differences[i, a]),
                float(self.errors[i, a]),
            )
            for i, a in np.argwhere(open_pairs).tolist()
        ]

    def account(self, undecided: list[Undecided]) -> list[str]:
        """Return how sure the policy's actions are, as lines of text."""
        told_by = self.told_by
        told = told_by[told_by >= TOLD]
        lines = [f"best actions told in {len(told)} of {len(told_by)} states that were met"]
        finite = told[np.isfinite(told)]
        if len(finite):
            lines[0] += f", by {finite.min():.1f} standard errors or more (half of them by "
            lines[0] += f"{np.median(finite):.1f})"
        pairs = [each for each in undecided if np.isfinite(each.standard_error)]
        if pairs:
            lines.append(f"undecided pairs, by {TOLD:g} standard errors: {len(pairs)}")
            pairs.sort(key=lambda each: -each.difference / each.standard_error)
            lines += [f"  {each}" for each in pairs[:_SHOWN]]
            lines += ["  ..."] if len(pairs) > _SHOWN else []
        if self.n_untried:
            lines.append(f"pairs that were never tried, or do not exist: {self.n_untried}")
        return lines
