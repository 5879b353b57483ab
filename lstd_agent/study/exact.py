"""Exact statistics of a Markov chain: the non-sampling twin of `SampledStatistics`."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.statistics.counts import window_chunks
from lstd_agent.system.minimizer import Minimizer, Moments, minimize
from lstd_agent.system.neighborhoods import SquaredDistance
from unichain_gym import MarkovChain


class ExactStatistics:
    """Statistics from the chain's own distributions p^t instead of samples.

    Parameters
    ----------
    chain : MarkovChain
    features : ndarray, shape (S, d)
    distributions : ndarray, shape (t_max + 1, S)
        p^t. The stationary distribution p* stands for timestep t_max + 1, which
        ``tail="stationary"`` asks for.
    """

    support_threshold = 1e-8

    def __init__(self, chain: MarkovChain, features: FloatArray, distributions: FloatArray) -> None:
        self.chain = chain
        self.features = features
        self.distributions = distributions
        self._increments: FloatArray = features - chain.transition_matrix @ features

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
        n, d = len(distributions), F.shape[1]
        X, Z = np.empty((n, d, d)), np.empty((n, d, d))
        for chunk in window_chunks(n, F.size):
            weight = distributions[chunk, :, None]
            X[chunk] = F.T @ (weight * self._increments)
            Z[chunk] = F.T @ (weight * F)
        y = (distributions * (self.chain.reward - gain)) @ F
        return Moments(X, Z, y, np.zeros(n, dtype=np.int64))

    def minimize(self, windows: IntArray, gain: float, rcond: float) -> tuple[Minimizer, IntArray]:
        """Return the minimizers of windows; their numbers of samples are zero."""
        # Windows within the settled timesteps are one and the same.
        first = self.settled
        is_settled = (windows[:, 0] >= first) & (windows[:, 0] <= self.t_max)
        windows = np.where(is_settled[:, None], (first, first + 1), windows)
        distinct, place = np.unique(windows, axis=0, return_inverse=True)
        solution = minimize(self.moments(distinct, gain), rcond)
        place = place.reshape(-1)
        spread = Minimizer(solution.weights[place], solution.rank[place], solution.condition[place])
        return spread, np.zeros(len(windows), dtype=np.int64)

    @cached_property
    def settled(self) -> int:
        """The first timestep from which p^t moves by rounding alone."""
        return settled_time(self.chain, self.distributions)

    def occupancy(self, windows: IntArray) -> FloatArray:
        """Mean distribution of each window, shape (n, S)."""
        return np.stack([self._average(int(start), int(stop)) for start, stop in windows])

    def _average(self, start: int, stop: int) -> FloatArray:
        if start > self.t_max:
            return self.chain.stationary_distribution
        return np.asarray(self.distributions[start:stop].mean(axis=0))


def full_distributions(chain: MarkovChain, t_max: int) -> FloatArray:
    """Return p^t for t = 0 … t_max, never cut short, shape (t_max + 1, S).

    Root errors weight states by √p^t(s): a transient mass of 1e-16 that is repeated to the end
    instead of dying out would show.
    """
    return chain.stepwise_distributions(t_max, tol=0.0)


def settled_time(chain: MarkovChain, distributions: FloatArray) -> int:
    """Return the first timestep from which p^t moves by rounding alone, at most t_max.

    The transient mass must have died out to 1e-24, since errors are roots of it. Neither that
    nor the total variation to p* ever grows, so the last timestep above a threshold decides.
    """
    distance = 0.5 * np.abs(distributions - chain.stationary_distribution).sum(axis=1)
    transient_mass = distributions[:, chain.transient_states].sum(axis=1)
    moving = np.flatnonzero((distance > 1e-14) | (transient_mass > 1e-24))
    first = int(moving[-1]) + 1 if moving.size else 0
    return min(first, len(distributions) - 1)


def until_settled(squared_distance: SquaredDistance, settled: int) -> SquaredDistance:
    """Return the same distances, computed only up to the settled timestep.

    From there on the distributions are equal, and so are their distances to any other.
    """

    def squared(anchor: int, start: int, stop: int) -> FloatArray:
        anchor, last = min(anchor, settled), min(stop, settled + 1)
        first = min(start, settled)
        distances = squared_distance(anchor, first, max(last, first + 1))
        repeated = stop - start - len(distances)
        return np.concatenate((distances, np.full(repeated, distances[-1])))

    return squared
