"""Exact statistics of a Markov chain: the non-sampling twin of `SampledStatistics`."""

from __future__ import annotations

import numpy as np

from lstd_agent.seminorm_lstd import FloatArray, IntArray, Moments
from lstd_agent.statistics import window_chunks
from unichain_gym import MarkovChain


class ExactStatistics:
    """Statistics from the chain's own distributions p^t instead of samples.

    Parameters
    ----------
    chain : MarkovChain
    features : ndarray, shape (S, d)
    distributions : ndarray, shape (t_max + 1, S)
        p^t; the stationary distribution is kept after them, as timestep t_max + 1, for
        ``tail="stationary"``.
    """

    support_threshold = 1e-8

    def __init__(self, chain: MarkovChain, features: FloatArray, distributions: FloatArray) -> None:
        self.features = features
        self.distributions = distributions
        self.reward = chain.reward
        self.increments: FloatArray = features - chain.transition_matrix @ features
        self._stationary = chain.stationary_distribution

    @property
    def t_max(self) -> int:
        """The last timestep."""
        return len(self.distributions) - 1

    @property
    def candidate_features(self) -> FloatArray:
        """The feature table: every state is a candidate reference state."""
        return self.features

    def moments(self, windows: IntArray, gain: float) -> Moments:
        """X, Z, y of the mean distribution of each window."""
        return self.moments_of(self.occupancy(windows), gain)

    def moments_of(self, distributions: FloatArray, gain: float) -> Moments:
        """X, Z, y of each state distribution (n, S)."""
        F = self.features
        d = F.shape[1]
        n = len(distributions)
        X, Z = np.empty((n, d, d)), np.empty((n, d, d))
        for chunk in window_chunks(n, F.size):
            weight = distributions[chunk, :, None]
            X[chunk] = F.T @ (weight * self.increments)
            Z[chunk] = F.T @ (weight * F)
        y = (distributions * (self.reward - gain)) @ F
        return Moments(X, Z, y, np.zeros(n, dtype=np.int64))

    def occupancy(self, windows: IntArray) -> FloatArray:
        """Mean distribution of each window, shape (n, S)."""
        return np.stack([self._average(int(start), int(stop)) for start, stop in windows])

    def _average(self, start: int, stop: int) -> FloatArray:
        if start > self.t_max:
            return self._stationary
        return np.asarray(self.distributions[start:stop].mean(axis=0))

    def mean_reward(self, start: int, stop: int) -> float:
        """Mean expected reward over the timesteps from start up to stop."""
        return float(self._average(start, stop) @ self.reward)
