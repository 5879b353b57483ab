"""Sufficient statistics per timestep: the seam between samples and algorithms.

Everything after collection asks a statistics object only for the moments X, Z, y of windows
of timesteps, for the occupancy of states in them, for the mean reward, and for what distances
between timesteps need. Here are the interface and its sampled implementation for discrete
observations. Its sufficient statistic is *counts*: N_t(s, s') transitions and the sum of
rewards per state and timestep. Counts do not depend on the features, so one collection serves
every feature set, every number of anchors and every gain; they add up across batches,
processes and machines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd_agent.errors import InvalidInputError
from lstd_agent.factored_lstd import Factors, FeatureBasis, minimize_factored
from lstd_agent.seminorm_lstd import FloatArray, IntArray, Minimizer, Moments

# Working arrays of batched moments hold about this many numbers, so that they stay in cache.
_CHUNK_SIZE = 2**18


class Statistics(Protocol):
    """What the pipeline asks of its data.

    Windows are an int array of shape (n, 2): timesteps ``start`` up to, not including, ``stop``.
    """

    @property
    def t_max(self) -> int:
        """The last timestep."""

    @property
    def candidate_features(self) -> FloatArray:
        """Features (M, d) of the M candidate reference states."""

    @property
    def support_threshold(self) -> float:
        """Candidates with occupancy above this are in a window's support."""

    def moments(self, windows: IntArray, gain: float) -> Moments:
        """X, Z, y of each window."""

    def occupancy(self, windows: IntArray) -> FloatArray:
        """Mean probability (n, M) of each candidate state in each window (Def ``pbar``)."""

    def minimize(self, windows: IntArray, gain: float, rcond: float) -> tuple[Minimizer, IntArray]:
        """Minimizers of the projected Bellman errors of windows, and their sample numbers."""

    def mean_reward(self, start: int, stop: int) -> float:
        """Mean reward over the timesteps from start up to stop."""


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


@dataclass(frozen=True, eq=False)
class _Sums:
    """Sums over the samples of n windows, by the k states that any of them visits.

    Attributes
    ----------
    visited : ndarray of int, shape (k,)
    visits : ndarray of int, shape (n, k)
    successors : ndarray, shape (n, k, d)
        Σ f(s') of the next states s'.
    excess : ndarray, shape (n, k)
        Σ (r - g) of the rewards r.
    """

    visited: IntArray
    visits: IntArray
    successors: FloatArray
    excess: FloatArray


class SampledStatistics:
    """Statistics of discrete observations, from counts and a feature table.

    Parameters
    ----------
    counts : TransitionCounts
    features : ndarray, shape (S, d)
        Row s holds f(s).
    trials : ndarray of int, shape (m, t_max + 1), optional
        The states of a sample of whole trials, for distances that pair trials.
    terminal : int, optional
        The terminal state of a task that ends.
    """

    support_threshold = 0.0

    def __init__(
        self,
        counts: TransitionCounts,
        features: FloatArray,
        trials: NDArray[np.unsignedinteger] | None = None,
        terminal: int | None = None,
    ) -> None:
        self.counts = counts
        self.features = features
        self.trials = trials
        self.terminal = terminal

    @property
    def t_max(self) -> int:
        """The last timestep."""
        return self.counts.t_max

    @property
    def candidate_features(self) -> FloatArray:
        """The feature table: every state is a candidate reference state."""
        return self.features

    @cached_property
    def visits(self) -> sparse.csr_array:
        """Number of visits of each state at each timestep, CSR (t_max + 1, S)."""
        N = self.counts.transition_counts
        S = self.counts.n_states
        # Merging duplicates works in place, so the counts are copied first.
        entries = (N.data.copy(), N.indices // S, N.indptr.copy())
        visits = sparse.csr_array(entries, shape=(N.shape[0], S))
        visits.sum_duplicates()
        return visits

    @cached_property
    def _seen(self) -> NDArray[np.bool_]:
        """Which states some trial was in, the last transitions' ends included."""
        S = self.counts.n_states
        state, next_state = np.divmod(self.counts.transition_counts.indices, S)
        seen = np.zeros(S, dtype=bool)
        seen[state] = seen[next_state] = True
        return seen

    @cached_property
    def distributions(self) -> FloatArray:
        """Visiting frequencies at each timestep, shape (t_max + 1, S)."""
        visits = self.visits.toarray()
        return np.asarray(visits / visits.sum(axis=1, keepdims=True))

    def moments(self, windows: IntArray, gain: float) -> Moments:
        """X, Z, y of each window: sample means over its timesteps and all trials."""
        n, d = len(windows), self.features.shape[1]
        moments = Moments(
            np.empty((n, d, d)), np.empty((n, d, d)), np.empty((n, d)), np.empty(n, dtype=np.int64)
        )
        for chunk in window_chunks(n, self.features.size):
            arrays = (moments.X, moments.Z, moments.y, moments.n_samples)
            for array, part in zip(arrays, self._moments(windows[chunk], gain), strict=True):
                array[chunk] = part
        return moments

    def _moments(
        self, windows: IntArray, gain: float
    ) -> tuple[FloatArray, FloatArray, FloatArray, IntArray]:
        sums = self._sums(windows, gain, self.features)
        n_samples = sums.visits.sum(axis=1)
        F = self.features[sums.visited]
        scale = 1.0 / n_samples[:, None, None]
        weighted = sums.visits[:, :, None] * F
        X = scale * (F.T @ (weighted - sums.successors))
        Z = scale * (F.T @ weighted)
        y = (sums.excess @ F) / n_samples[:, None]
        return X, Z, y, n_samples

    def minimize(self, windows: IntArray, gain: float, rcond: float) -> tuple[Minimizer, IntArray]:
        """Return the minimizers of windows, and their numbers of samples."""
        # States that no trial saw play no part, and large features of theirs must not either.
        basis = FeatureBasis.of(self.features * self._seen[:, None], rcond)
        parts, n_samples = [], []
        for chunk in window_chunks(len(windows), basis.U.size):
            sums = self._sums(windows[chunk], gain, basis.U)
            samples = sums.visits.sum(axis=1)
            # The root of p, and of n p by which sums over samples become means times that.
            root = np.sqrt(sums.visits / samples[:, None])
            scale = 1.0 / (np.sqrt(np.maximum(sums.visits, 1)) * np.sqrt(samples)[:, None])
            A = root[:, :, None] * basis.U[sums.visited]
            factors = Factors(A, A - scale[:, :, None] * sums.successors, scale * sums.excess)
            parts.append(minimize_factored(factors, basis, rcond))
            n_samples.append(samples)
        return Minimizer.concatenate(parts), np.concatenate(n_samples)

    def _sums(self, windows: IntArray, gain: float, features: FloatArray) -> _Sums:
        """Add up what was seen in each window on leaving each state."""
        select = window_sums(windows, self.t_max)
        pairs = (select @ self.counts.transition_counts).tocoo()
        visits = (select @ self.visits).toarray()
        rewards = (select @ self.counts.reward_sums).toarray()

        # Late windows visit few states: the others are left out of everything that follows.
        visited = np.flatnonzero(visits.any(axis=0))
        n, S, k = len(windows), self.counts.n_states, len(visited)
        state, next_state = np.divmod(pairs.col, S)
        row = pairs.row.astype(np.int64) * k + np.searchsorted(visited, state)
        # One sparse product gives Σ_s' N(s, s') f(s') for every window and state.
        by_state = sparse.csr_array((pairs.data, (row, next_state)), shape=(n * k, S))
        successors = (by_state @ features).reshape(n, k, -1)
        visits = visits[:, visited]
        return _Sums(visited, visits, successors, rewards[:, visited] - gain * visits)

    def occupancy(self, windows: IntArray) -> FloatArray:
        """Visiting frequency of each state in each window, shape (n, S)."""
        visits = (window_sums(windows, self.t_max) @ self.visits).toarray()
        return np.asarray(visits / visits.sum(axis=1, keepdims=True))

    def occupancy_at(self, windows: IntArray, states: IntArray) -> FloatArray:
        """Visiting frequency of some states (m,) in each window, shape (n, m)."""
        return self.occupancy(windows)[:, states]

    def mean_reward(self, start: int, stop: int) -> float:
        """Mean reward over the timesteps from start up to stop."""
        return float(self.counts.reward_sums[start:stop].sum() / self.visits[start:stop].sum())


def window_sums(windows: IntArray, t_max: int) -> sparse.csr_array:
    """Return the 0-1 matrix (n, t_max + 1) that sums timesteps over each window."""
    length = windows[:, 1] - windows[:, 0]
    indptr = np.concatenate(([0], np.cumsum(length)))
    timestep = np.arange(indptr[-1]) - np.repeat(indptr[:-1] - windows[:, 0], length)
    return sparse.csr_array(
        (np.ones(timestep.size, dtype=np.int64), timestep, indptr), shape=(len(windows), t_max + 1)
    )


def window_chunks(n_windows: int, numbers_per_window: int) -> Iterator[slice]:
    """Yield slices of windows whose working arrays fit in a bounded memory."""
    size = max(1, _CHUNK_SIZE // max(1, numbers_per_window))
    for start in range(0, n_windows, size):
        yield slice(start, start + size)
