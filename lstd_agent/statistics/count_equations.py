r"""Equations of windows from transition counts.

With n(s) visits of a window to state s, n in all, and N(s, s') transitions, p and P of
`lstd_agent.statistics.equations` are frequencies,

.. math:: A = (n(s) / n)^{1/2} f(s), \quad
          B = A - \sum_{s'} N(s, s') f(s') / (n(s)\, n)^{1/2} .
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.features.rows import Rows, dense
from lstd_agent.statistics.equations import (
    Factors,
    FeatureBasis,
    Moments,
    window_chunks,
    window_sums,
)
from lstd_agent.trials.counts import TransitionCounts


@dataclass(frozen=True, eq=False)
class WindowCounts:
    """Sums over the samples of n windows, by the k states that any of them visits.

    Attributes
    ----------
    counts : TransitionCounts
    windows : ndarray of int, shape (n, 2)
    visited : ndarray of int, shape (k,)
    visits : ndarray of int, shape (n, k)
    rewards : ndarray, shape (n, k)
    """

    counts: TransitionCounts
    windows: IntArray
    visited: IntArray
    visits: IntArray
    rewards: FloatArray

    @classmethod
    def of(
        cls, counts: TransitionCounts, all_visits: sparse.csr_array, windows: IntArray
    ) -> WindowCounts:
        """Add up what was seen in each window, by visits (t_max + 1, S)."""
        select = window_sums(windows, counts.t_max)
        visits = (select @ all_visits).toarray()
        rewards = (select @ counts.reward_sums).toarray()
        # Late windows visit few states: the others are left out of everything that follows.
        visited = np.flatnonzero(visits.any(axis=0))
        return cls(counts, windows, visited, visits[:, visited], rewards[:, visited])

    def successors(self, windows: IntArray, features: FloatArray) -> FloatArray:
        """Return Σ f(s') over next states of each visited state in parts of windows, (n, k, d)."""
        window, count, state, next_state = transitions(self.counts, windows)
        n, S, k = len(windows), self.counts.n_states, len(self.visited)
        row = window * k + np.searchsorted(self.visited, state)
        # One sparse product gives Σ_s' N(s, s') f(s') for every window and state.
        by_state = sparse.csr_array((count, (row, next_state)), shape=(n * k, S))
        return np.asarray(by_state @ features).reshape(n, k, -1)

    def factors(self, basis: FeatureBasis, gain: float | None) -> Factors:
        """Return the factors; two right-hand sides where the gain is unknown."""
        following = self.successors(self.windows, basis.U)
        if gain is not None:
            return self._factors(basis, following, self.rewards - gain * self.visits)
        return self._factors(basis, following, np.stack((self.rewards, self.visits), axis=2))

    def open_factors(self, basis: FeatureBasis, features: FloatArray) -> Factors:
        """Return factors with open ends, and right-hand sides of leaving features (S, d + 1)."""
        start, stop = self.windows.T
        inside = np.stack((start, stop - 1), axis=1)
        outside = np.stack((stop - 1, stop), axis=1)
        numbers = np.stack((self.rewards, self.visits), axis=2)
        sides = np.concatenate((numbers, self.successors(outside, features)), axis=2)
        return self._factors(basis, self.successors(inside, basis.U), sides)

    def _factors(self, basis: FeatureBasis, following: FloatArray, sides: NDArray[Any]) -> Factors:
        """Return the factors of sums over next states and of right-hand sides, by state."""
        n_samples = self.visits.sum(axis=1)
        # The root of p, and of n p by which sums over samples become means times that.
        root = np.sqrt(self.visits / n_samples[:, None])[:, :, None]
        scale = 1.0 / (np.sqrt(np.maximum(self.visits, 1)) * np.sqrt(n_samples)[:, None])
        A = root * basis.U[self.visited]
        B = A - scale[:, :, None] * following
        c = scale.reshape(scale.shape + (1,) * (sides.ndim - 2)) * sides
        return Factors(A, B, c, basis, n_samples)


def transitions(
    counts: TransitionCounts, windows: IntArray
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Return the window, number, state and next state of all transitions in windows.

    A window's are those of rows that follow each other: there is no need for a product, which
    would hold an array of all pairs of states.
    """
    N = counts.transition_counts
    first, last = N.indptr[windows[:, 0]], N.indptr[windows[:, 1]]
    window = np.repeat(np.arange(len(windows)), last - first)
    place = np.concatenate([np.arange(a, b) for a, b in zip(first, last, strict=True)])
    state, next_state = np.divmod(N.indices[place].astype(np.int64), counts.n_states)
    return window, N.data[place], state, next_state


def counted_moments(
    counts: TransitionCounts,
    visits: sparse.csr_array,
    features: Rows,
    windows: IntArray,
    gain: float,
) -> Moments:
    """Return X, Z and y of each window: sample means over its timesteps and all trials."""
    n, (S, d) = len(windows), features.shape
    moments = Moments(
        np.empty((n, d, d)), np.empty((n, d, d)), np.empty((n, d)), np.empty(n, dtype=np.int64)
    )
    for chunk in window_chunks(n, S * d):
        sums = WindowCounts.of(counts, visits, windows[chunk])
        n_samples = sums.visits.sum(axis=1)
        F = dense(features[sums.visited])
        scale = 1.0 / n_samples[:, None, None]
        weighted = sums.visits[:, :, None] * F
        successors = sums.successors(windows[chunk], dense(features))
        moments.X[chunk] = scale * (F.T @ (weighted - successors))
        moments.Z[chunk] = scale * (F.T @ weighted)
        moments.y[chunk] = ((sums.rewards - gain * sums.visits) @ F) / n_samples[:, None]
        moments.n_samples[chunk] = n_samples
    return moments
