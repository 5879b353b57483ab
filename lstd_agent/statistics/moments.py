"""Sufficient statistics of vector observations: moments of the features, per timestep.

Where states cannot be counted, the sums that X, Z and y are made of are kept instead, one of
each for every timestep t, over all trials:

    Σ f(s_t) f(s_t)^T,  Σ f(s_t) f(s_{t+1})^T,  Σ r_t f(s_t),  Σ f(s_t),  Σ r_t.

They take (t_max + 1) (2 d² + 2 d + 1) numbers, however many trials there are, and they add up.
What cannot be had from them, distances and occupancies, comes from a bounded sample of whole
trials. In that sample the terminal state of a task that ends is a row of NaN.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.features.kernels import Kernel
from lstd_agent.statistics.counts import window_chunks, window_sums
from lstd_agent.system.minimizer import Minimizer, Moments, minimize
from lstd_agent.trials.moment_sums import MomentSums, VectorFeatures

N_CANDIDATES = 200
"""How many stored observations are candidate reference states."""

# Occupancies are averages over this many stored observations, distances over this many numbers.
_N_EMBEDDED = 20_000
_N_DISTANCE_NUMBERS = 2**24


class BoxStatistics:
    """Statistics of vector observations, from moments and a sample of trials.

    The candidate reference states are up to ``N_CANDIDATES`` stored observations, half of them
    at evenly spaced timesteps and half at logarithmically spaced ones, since transients are
    short. The occupancy of a window at any observation s is its kernel mean embedding there,
    the mean of k(s, s_t) over the stored observations of the window (at most 20 000 over all
    timesteps): for the Dirac kernel the visiting frequency, for the Gaussian that of
    everything about as near as its width.

    Parameters
    ----------
    counts : MomentSums
    features : callable
        (n, k) to (n, d).
    trials : ndarray, shape (m, t_max + 1, k)
        The observations of a sample of whole trials, at least one.
    kernel : Kernel
        On features. A width of ``"median"`` is measured on the candidates.

    Notes
    -----
    ``support_threshold``: an occupancy of 0.01, as though one visit in a hundred had been at
    the observation itself. A Gaussian is never zero: an observation that is 3 widths away from
    all those of a window is just at the threshold.
    """

    support_threshold = 0.01

    def __init__(
        self,
        counts: MomentSums,
        features: VectorFeatures,
        trials: FloatArray | None,
        kernel: Kernel,
    ) -> None:
        if trials is None:
            raise InvalidInputError(
                "reference states of vector observations are stored ones, and no trial is "
                "stored: n_stored_trials must be at least 1"
            )
        self.counts = counts
        self.features = features
        self.trials = trials
        self.candidates = _candidates(trials)
        self.candidate_features = features(self.candidates)
        self.kernel = kernel.fit_width(self.candidate_features)

    @property
    def t_max(self) -> int:
        """The last timestep."""
        return self.counts.t_max

    @property
    def terminal(self) -> int | None:
        """Index of the terminal state among the candidates, if a stored trial reached it."""
        return 0 if np.isnan(self.candidates[0]).any() else None

    def moments(self, windows: IntArray, gain: float) -> Moments:
        """X, Z, y of each window: sample means over its timesteps and all trials."""
        counts = self.counts
        n_samples = (windows[:, 1] - windows[:, 0]) * counts.n_trials
        Z = self._window_sums(windows, counts.second_moments)
        X = Z - self._window_sums(windows, counts.successor_moments)
        y = self._window_sums(windows, counts.reward_moments - gain * counts.feature_sums)
        scale = 1.0 / n_samples
        return Moments(
            X * scale[:, None, None], Z * scale[:, None, None], y * scale[:, None], n_samples
        )

    def minimize(self, windows: IntArray, gain: float, rcond: float) -> tuple[Minimizer, IntArray]:
        """Return the minimizers of windows, and their numbers of samples."""
        moments = self.moments(windows, gain)
        return minimize(moments, rcond), moments.n_samples

    def occupancy(self, windows: IntArray) -> FloatArray:
        """Kernel mean embedding of each window at each candidate, shape (n, M)."""
        return self._window_means(windows, self._candidate_embedding)

    def occupancy_at(self, windows: IntArray, states: FloatArray) -> FloatArray:
        """Kernel mean embedding of each window at observations (m, k), shape (n, m)."""
        return self._window_means(windows, self._embedding(self.features(states)))

    def mean_reward(self, start: int, stop: int) -> float:
        """Mean reward over the timesteps from start up to stop."""
        return float(self.counts.reward_sums[start:stop].mean() / self.counts.n_trials)

    @cached_property
    def distance_features(self) -> FloatArray:
        """Features of as many stored trials as a distance works on, shape (t_max + 1, m, d)."""
        d = self.candidate_features.shape[1]
        m = max(2, _N_DISTANCE_NUMBERS // (d * (self.t_max + 1)))
        return self._features_by_time(m)

    @cached_property
    def _embedded_features(self) -> FloatArray:
        return self._features_by_time(max(1, _N_EMBEDDED // (self.t_max + 1)))

    @cached_property
    def _candidate_embedding(self) -> FloatArray:
        return self._embedding(self.candidate_features)

    def _features_by_time(self, n_trials: int) -> FloatArray:
        states = self.trials[:n_trials].swapaxes(0, 1)
        n_timesteps, m, k = states.shape
        return self.features(states.reshape(-1, k)).reshape(n_timesteps, m, -1)

    def _embedding(self, features: FloatArray) -> FloatArray:
        """Mean kernel between the observations of each timestep and features (m, d)."""
        points = self._embedded_features
        n_timesteps, n, d = points.shape
        embedding = np.empty((n_timesteps, len(features)))
        for chunk in window_chunks(len(features), n_timesteps * n):
            kernel = self.kernel(points.reshape(-1, d), features[chunk])
            embedding[:, chunk] = kernel.reshape(n_timesteps, n, -1).mean(axis=1)
        return embedding

    def _window_means(self, windows: IntArray, by_timestep: FloatArray) -> FloatArray:
        length = windows[:, 1] - windows[:, 0]
        return self._window_sums(windows, by_timestep) / length[:, None]

    def _window_sums(self, windows: IntArray, by_timestep: FloatArray) -> FloatArray:
        """Sum an array (t_max + 1, ...) over each window."""
        sums = window_sums(windows, self.t_max) @ by_timestep.reshape(len(by_timestep), -1)
        return np.asarray(sums.reshape(len(windows), *by_timestep.shape[1:]))


def _candidates(trials: FloatArray) -> FloatArray:
    """Choose stored observations at spread timesteps, each from another trial in turn."""
    m, n_timesteps, _ = trials.shape
    n = min(N_CANDIDATES, m * n_timesteps)
    even = np.linspace(0, n_timesteps - 1, n - n // 2)
    early = np.geomspace(1, n_timesteps, n // 2) - 1
    timestep = np.concatenate((even, early)).astype(np.int64)
    # Observations that occur twice are kept once; the terminal state (NaN), if any, comes first.
    chosen = trials[np.arange(n) % m, timestep]
    living = np.unique(chosen[~np.isnan(chosen).any(axis=1)], axis=0)
    ended = trials[np.isnan(trials).any(axis=2)]
    return np.concatenate((ended[:1], living))
