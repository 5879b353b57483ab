"""Transition counts: the sufficient statistic of discrete observations.

N_t(s, s') transitions and the sum of rewards per state and timestep. Counts do not depend on the
features, so one collection serves every feature set, every number of anchors and every gain;
they add up across batches, processes and machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.errors import InvalidInputError


@dataclass(frozen=True, eq=False)
class TransitionCounts:
    """Transition counts and reward sums of independent trials, per timestep.

    Attributes
    ----------
    n_states : int
        Number of states S.
    n_trials : int
        Number of trials counted.
    transition_counts : csr_array of int, shape (t_max + 1, S * S)
        N_t(s, s') in column s * S + s'.
    reward_sums : csr_array of float, shape (t_max + 1, S)
        Sum of the rewards on leaving s at t.
    """

    n_states: int
    n_trials: int
    transition_counts: sparse.csr_array
    reward_sums: sparse.csr_array

    def check_adds(self, other: TransitionCounts) -> None:
        """Raise `InvalidInputError` unless the other has as many states and timesteps."""
        if other.n_states != self.n_states or other.t_max != self.t_max:
            raise InvalidInputError(
                f"counts of {self.n_states} states and t_max {self.t_max} do not add to counts "
                f"of {other.n_states} states and t_max {other.t_max}"
            )

    def __add__(self, other: TransitionCounts) -> TransitionCounts:
        self.check_adds(other)
        return TransitionCounts(
            self.n_states,
            self.n_trials + other.n_trials,
            self.transition_counts + other.transition_counts,
            self.reward_sums + other.reward_sums,
        )

    @property
    def t_max(self) -> int:
        """The last timestep."""
        return int(self.transition_counts.shape[0]) - 1


class CountRecorder:
    """Counts the transitions of trials that run in lockstep, timestep by timestep.

    Parameters
    ----------
    n_states : int
    """

    def __init__(self, n_states: int) -> None:
        self.n_states = n_states
        self._pairs: list[tuple[IntArray, IntArray]] = []
        self._rewards: list[tuple[IntArray, FloatArray]] = []

    def record(self, state: IntArray, reward: FloatArray, next_state: IntArray) -> None:
        """Count the next timestep's transitions of all trials, each array of shape (n,)."""
        S = self.n_states
        present, count = _count(state * S + next_state, S * S)
        self._pairs.append((present, count))
        # Pairs ascend, so those of one state are neighbors.
        origin = present // S
        visited = origin[np.append(True, origin[1:] != origin[:-1])]
        sums = np.bincount(state, weights=reward, minlength=S)[visited]
        self._rewards.append((visited, sums))

    def counts(self, n_trials: int) -> TransitionCounts:
        """Return what has been recorded of ``n_trials`` complete trials."""
        S = self.n_states
        return TransitionCounts(
            S,
            n_trials,
            _stack_rows(self._pairs, S * S),
            _stack_rows(self._rewards, S),
        )


def _count(key: IntArray, n_keys: int) -> tuple[IntArray, IntArray]:
    """Return the distinct keys, ascending, and how often each occurs."""
    # Counting by table touches every possible key, sorting only those that occur.
    if n_keys <= 4 * key.size + 4096:
        table = np.bincount(key, minlength=n_keys)
        present = np.flatnonzero(table)
        return present, table[present]
    # Narrow numbers sort faster.
    narrow = key.astype(np.min_scalar_type(n_keys - 1))
    present, count = np.unique(narrow, return_counts=True)
    return present.astype(np.int64), count


def _stack_rows(rows: Sequence[tuple[IntArray, NDArray[Any]]], n_columns: int) -> sparse.csr_array:
    """Make a CSR matrix of rows given as (columns, values)."""
    indptr = np.cumsum([0, *(columns.size for columns, _ in rows)])
    columns = np.concatenate([columns for columns, _ in rows])
    values = np.concatenate([values for _, values in rows])
    return sparse.csr_array((values, columns, indptr), shape=(len(rows), n_columns))
