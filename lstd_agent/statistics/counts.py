"""Statistics of windows of timesteps: the seam between samples and algorithms.

Fitting a system asks a statistics object only for the minimizers of windows of timesteps and for
the occupancy of candidate reference states in them. No algorithm knows whether they are sampled or
exact. Here are the interface and its implementation for discrete observations, from counts;
`lstd_agent.statistics.moments` has the one for vectors, `lstd_agent.study.exact` the exact one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.system.factored import Factors, FeatureBasis, minimize_factored
from lstd_agent.system.minimizer import Minimizer, Moments
from lstd_agent.trials.counting import TransitionCounts

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

    def occupancy(self, windows: IntArray) -> FloatArray:
        """Mean probability (n, M) of each candidate state in each window (Def ``pbar``)."""

    def minimize(self, windows: IntArray, gain: float, rcond: float) -> tuple[Minimizer, IntArray]:
        """Minimizers of the projected Bellman errors of windows, and their sample numbers."""


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
    def _seen(self) -> BoolArray:
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
