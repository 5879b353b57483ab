"""Recorders: what adds up trials timestep by timestep, or whole, into sums of one kind.

An environment may write its next observations and rewards into the same arrays, so that what is
kept of them is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd_agent.arrays import BoolArray, FloatArray, IntArray, States
from lstd_agent.features.rows import Rows, RowsOf
from lstd_agent.trials.action_counts import ActionCounts, Taken, together
from lstd_agent.trials.counting import TransitionCounts
from lstd_agent.trials.kept_trials import KeptTrials
from lstd_agent.trials.moment_sums import MomentSums, parts_of

Sums: TypeAlias = TransitionCounts | MomentSums | KeptTrials
"""What a portion of trials leaves behind; two of the same kind add up.

``counts`` and ``kept`` are the transition counts and the trials as they came, None where the sums
are of another kind."""


@dataclass(frozen=True, eq=False)
class Round:
    """What a round of trials leaves behind.

    Attributes
    ----------
    sums : TransitionCounts, MomentSums or KeptTrials
    stored : ndarray, shape (n_stored, t_max + 1) or (n_stored, t_max + 1, k)
        The states of its first trials, kept beside sums that do not tell them.
    taken : ActionCounts, optional
        What the actions led to, where that was asked for; kept trials have the actions themselves.
    """

    sums: Sums
    stored: States
    taken: ActionCounts | None = None

    def __add__(self, other: Round) -> Round:
        pair: Any = self.sums, other.sums  # of one kind
        stored = [each.stored for each in (self, other) if len(each.stored)]
        kept = np.concatenate(stored) if stored else self.stored
        return Round(pair[0] + pair[1], kept, together(self.taken, other.taken))


class Recorder(Protocol):
    """Adds up trials of one kind."""

    def record(
        self, state: Any, reward: FloatArray, next_state: Any, taken: Taken | None = None
    ) -> None:
        """Record the next timestep of all trials; what was explored is none of the policy's."""

    def sums(self, n_trials: int) -> Sums:
        """Return what has been recorded of complete trials."""

    def of_whole(self, states: Any, rewards: FloatArray, taken: Taken | None = None) -> Sums:
        """Return the sums of whole trials: states (t_max + 2, n, ...), rewards (t_max + 1, n)."""


RecorderMaker: TypeAlias = Callable[[], Recorder]


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
        self._n_at: list[int] = []

    def record(
        self, state: IntArray, reward: FloatArray, next_state: IntArray, taken: Taken | None = None
    ) -> None:
        """Count the next timestep's transitions, arrays (n,), but for those that were explored."""
        if taken is not None and taken.explored.any():
            own = ~taken.explored
            state, reward, next_state = state[own], reward[own], next_state[own]
        self._n_at.append(state.size)
        S = self.n_states
        present, count = _count(state * S + next_state, S * S)
        self._pairs.append((present, count))
        # Pairs ascend, so those of one state are neighbors.
        origin = present // S
        visited = origin[np.append(True, origin[1:] != origin[:-1])[: origin.size]]
        sums = np.bincount(state, weights=reward, minlength=S)[visited]
        self._rewards.append((visited, sums))

    def sums(self, n_trials: int) -> TransitionCounts:
        """Return what has been recorded of ``n_trials`` complete trials."""
        S, n_at = self.n_states, np.array(self._n_at)
        return TransitionCounts(
            S,
            n_trials,
            _stack_rows(self._pairs, S * S),
            _stack_rows(self._rewards, S),
            None if (n_at == n_trials).all() else n_at,
        )

    def of_whole(
        self,
        states: IntArray,
        rewards: FloatArray,
        taken: Taken | None = None,
        own: BoolArray | None = None,
    ) -> TransitionCounts:
        """Return the counts of whole trials, as `Recorder` says: of their ``own`` transitions.

        Those are given (t_max + 1, n), or else what was not explored.
        """
        S, (T, n) = self.n_states, rewards.shape
        timestep = np.arange(T)[:, None]
        if taken is not None and taken.explored.any():
            own = ~taken.explored
        n_at = None if own is None else own.sum(axis=1)
        if T * S * S >= 2**62:
            for t in range(T):
                at = slice(None) if own is None else own[t]
                self.record(states[t][at], rewards[t][at], states[t + 1][at])
            return replace(self.sums(n), n_at=n_at)
        left = timestep * S + states[:-1]
        pairs = left * S + states[1:]
        here = slice(None) if own is None else own
        present, count = np.unique(pairs[here].ravel(), return_counts=True)
        visited, place = np.unique(left[here].ravel(), return_inverse=True)
        sums = np.bincount(place, weights=rewards[here].ravel())
        return TransitionCounts(
            S,
            n,
            _rows_of_keys(present, count, T, S * S),
            _rows_of_keys(visited, sums, T, S),
            n_at,
        )


class MomentRecorder:
    """Sums the moments of trials that run in lockstep, timestep by timestep.

    Parameters
    ----------
    features : callable
        Encoded observations (n, k) to features (n, d), dense or CSR.
    """

    def __init__(self, features: RowsOf) -> None:
        self._features = features
        self._sums: list[list[Any]] = []
        self._following: tuple[NDArray[Any], Rows] | None = None
        self._cut: list[tuple[FloatArray, int]] = []

    def record(
        self, state: States, reward: FloatArray, next_state: States, taken: Taken | None = None
    ) -> None:
        """Add the next timestep's transitions, n rows each, but for those that were explored."""
        # The state is nearly always the very array that came next a timestep ago.
        if self._following is not None and state is self._following[0]:
            f = self._following[1]
        else:
            f = self._features(state)
        successor = self._features(next_state)
        self._following = (next_state, successor)
        if taken is not None:
            own = ~taken.explored
            f, successor, reward = f[own], successor[own], reward[own]
            self._cut.append((successor.T @ np.ones(len(reward)), len(reward)))
        self._sums.append(list(parts_of(f, successor, reward)))

    def sums(self, n_trials: int) -> MomentSums:
        """Return what has been recorded of ``n_trials`` complete trials."""
        parts: list[Any] = [np.array(sums) for sums in zip(*self._sums, strict=True)]
        if any(n != n_trials for _, n in self._cut):
            parts += [np.array(cut) for cut in zip(*self._cut, strict=True)]
        return MomentSums(n_trials, *parts)

    def of_whole(
        self, states: States, rewards: FloatArray, taken: Taken | None = None
    ) -> MomentSums:
        """Return the moments of whole trials: states (t_max + 2, n, k), rewards (t_max + 1, n)."""
        by_timestep = list(states)
        for t, reward in enumerate(rewards):
            at = None if taken is None else Taken(taken.action[t], taken.explored[t])
            self.record(by_timestep[t], reward, by_timestep[t + 1], at)
        return self.sums(rewards.shape[1])


class TrialRecorder:
    """Keeps trials that run in lockstep, timestep by timestep."""

    def __init__(self) -> None:
        self._states: list[NDArray[Any]] = []
        self._rewards: list[FloatArray] = []
        self._taken: list[Taken] = []

    def record(
        self, state: States, reward: FloatArray, next_state: States, taken: Taken | None = None
    ) -> None:
        """Keep the next timestep's transitions of all trials, arrays of n rows."""
        if not self._states:
            self._states.append(state)
        self._states.append(next_state)
        # A copy, as encoded states are: an environment may write into the same array again.
        self._rewards.append(reward.copy())
        if taken is not None:
            self._taken.append(taken)

    def sums(self, n_trials: int) -> KeptTrials:
        """Return the trials."""
        kept = KeptTrials(np.stack(self._states, axis=1), np.stack(self._rewards, axis=1))
        taken = [np.stack(parts) for parts in zip(*self._taken, strict=True)]
        return kept if not taken else _with_actions(kept, Taken(*taken))

    @staticmethod
    def of_whole(states: States, rewards: FloatArray, taken: Taken | None = None) -> KeptTrials:
        """Return whole trials: states (t_max + 2, n, k) and rewards (t_max + 1, n)."""
        kept = KeptTrials(
            np.ascontiguousarray(states.swapaxes(0, 1)), np.ascontiguousarray(rewards.T)
        )
        return kept if taken is None else _with_actions(kept, taken)


def _rows_of_keys(
    key: IntArray, values: NDArray[Any], n_rows: int, n_columns: int
) -> sparse.csr_array:
    """Make a CSR matrix of values by ascending keys row * n_columns + column."""
    row, column = np.divmod(key, n_columns)
    indptr = np.searchsorted(row, np.arange(n_rows + 1))
    return sparse.csr_array((values, column, indptr), shape=(n_rows, n_columns))


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


def _with_actions(kept: KeptTrials, taken: Taken) -> KeptTrials:
    """Return trials with the actions that they took, arrays (t_max + 1, n), in little memory."""
    dtype = np.min_scalar_type(int(taken.action.max()))
    actions = np.ascontiguousarray(taken.action.T, dtype=dtype)
    explored = np.ascontiguousarray(taken.explored.T) if taken.explored.any() else None
    return replace(kept, actions=actions, explored=explored)
