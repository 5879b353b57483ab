r"""Statistics of vector observations: moments of the features, per timestep.

Where states cannot be counted, the sums that X, Z and y are made of are kept instead, one of
each for every timestep t, over all trials:

    Σ f(s_t) f(s_t)^T,  Σ f(s_t) f(s_{t+1})^T,  Σ r_t f(s_t),  Σ f(s_t),  Σ r_t.

They take (t_max + 1) (2 d² + 2 d + 1) numbers, however many trials there are, and they add up.

The occupancy of a window at any observation x is the empirical *Christoffel function*,

.. math:: \frac{1}{\tilde f(x)^T \tilde Z^\dagger \tilde f(x)}, \quad \tilde f = (f, 1),

the smallest mean square over the window of any combination of the features that is 1 at x. With
one-hot features it is the visiting frequency, so that counts and vectors mean the same; the 1
bounds it by 1. It is 0 where f(x) is not in the range of Z, that is, no sample of the window is
like x, and where it amounts to too few samples (`lstd_agent.statistics.christoffel`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.features.kernels import Kernel
from lstd_agent.features.rows import Rows, RowsOf, chunk_rows, dense
from lstd_agent.statistics.backups import DECAYS, Backup, LambdaReturn, Step
from lstd_agent.statistics.blocks import Block
from lstd_agent.statistics.christoffel import MIN_SAMPLES, RANGE_TOLERANCE, Christoffel
from lstd_agent.statistics.equations import FeatureBasis, Moments
from lstd_agent.statistics.holdouts import TrialHoldout, trial_holdouts
from lstd_agent.statistics.interface import SquaredDistance
from lstd_agent.statistics.pairs import (
    check_pairs,
    cut_pairs_discrepancy,
    paired_vector_discrepancy,
)
from lstd_agent.statistics.pooled import PooledModel
from lstd_agent.statistics.sparse_trials import SparseTrials, are_sparse
from lstd_agent.statistics.start_groups import (
    StartGroups,
    ValuesOf,
    group_moments,
    group_trials,
)
from lstd_agent.statistics.structure import RecurrentClass
from lstd_agent.statistics.trial_moments import TrialMoments
from lstd_agent.statistics.walks import TrialWalk
from lstd_agent.trials.kept_trials import KeptTrials
from lstd_agent.trials.moment_sums import MomentSums

N_CANDIDATES = 200
"""How many stored observations are candidate reference states."""

_COUNTABLE = (
    "this distance compares distributions over countable states; vector observations have "
    "distance='mmd' or MMD(estimator='linear')"
)

_NOT_COUNTED = (
    "backup='model' pools the transitions of states that can be counted: for vector observations "
    "use 'one_step', LambdaReturn(decay) or MultiStep(steps)"
)

_SINGLE_STEPS = (
    "sums over vector observations hold single steps only, and the trials were condensed into "
    "sums: use backup='one_step', or keep the trials with a larger max_bytes"
)

# Distances are averages over so many stored observations that there are this many numbers.
_N_DISTANCE_NUMBERS = 2**24

# The share of starts that may be undetermined, and what is close beside the usual distance from one
# start to the nearest.
_TOLERATED = 0.1
_REACH = 12.0

# Features whose root mean square is smaller, as that of bumps far from all that was seen, are 0:
# divided by it, what they are elsewhere would exceed the range of doubles.
_UNSEEN = 1e-100

# Of fewer trials none are held out.
_FEWEST_HELD_OUT = 8

# Moments of a window that take more than this are refused.
_MAX_WINDOW_BYTES = 2**33

# Sparse factors of so many windows are kept.
_N_FACTORS = 4

# Decompositions of windows are kept up to so many bytes.
_MAX_DECOMPOSED_BYTES = 2**30


class MomentStatistics:
    """Statistics of vector observations, from moments and a sample of trials.

    The candidate reference states are up to ``N_CANDIDATES`` stored observations, half of them
    at evenly spaced timesteps and half at logarithmically spaced ones, since transients are
    short. In the stored trials the terminal state of a task that ends is a row of NaN.

    Parameters
    ----------
    sums : MomentSums or KeptTrials
        Trials are summed here, per timestep.
    rows : callable
        Features of observations, (n, k) to (n, d), dense or CSR.
    trials : ndarray, shape (m, t_max + 1, k)
        The observations of a sample of whole trials, at least one.
    ends : bool
        Whether there is a terminal state.
    """

    support_threshold = 0.0
    _room = _MAX_DECOMPOSED_BYTES

    def __init__(
        self,
        sums: MomentSums | KeptTrials,
        rows: RowsOf,
        trials: FloatArray | None,
        ends: bool = False,
    ) -> None:
        if trials is None:
            raise InvalidInputError(
                "reference states of vector observations are stored ones, and no trial is "
                "stored: n_stored_trials must be at least 1"
            )
        self.sums: MomentSums | TrialMoments = _windowed(sums, rows)
        self._rows = rows
        self.trials = trials
        # A task that was never seen to end is like any other.
        self.ends = ends and bool(np.isnan(trials).any())
        self.candidates = _candidates(trials)
        self.candidate_features = self.features(self.candidates)
        self._is_sparse = isinstance(self.sums, TrialMoments) and are_sparse(rows(self.candidates))

    @property
    def t_max(self) -> int:
        """The last timestep."""
        return self.sums.t_max

    @property
    def n_trials(self) -> int:
        """Number of trials."""
        return self.sums.n_trials

    @property
    def trials_at(self) -> IntArray:
        """Number of trials that have each timestep, shape (t_max + 1,)."""
        return self.sums.trials_at

    def _n_samples(self, windows: IntArray) -> IntArray:
        before = np.append(0, np.cumsum(self.trials_at))
        return np.asarray(before[windows[:, 1]] - before[windows[:, 0]])

    @property
    def terminal(self) -> int | None:
        """Index of the terminal state among the candidates, if a stored trial reached it."""
        return 0 if np.isnan(self.candidates[0]).any() else None

    candidates_are = "index of a stored observation"

    @property
    def default_kernel(self) -> Kernel:
        """A Gaussian as wide as the median distance between candidates."""
        return Kernel(width="median")

    @property
    def distributions(self) -> FloatArray:
        """Raise: vectors have no visiting frequencies."""
        raise InvalidInputError(_COUNTABLE)

    @property
    def visits(self) -> csr_array:
        """There are none."""
        raise InvalidInputError(_NOT_COUNTED)

    @property
    def sparse_view(self) -> None:
        """None: moments are not sparse."""
        return None

    @cached_property
    def sparse_trials(self) -> SparseTrials | None:
        """The same trials where they are kept and their features many and sparse, else None."""
        if not self._is_sparse or not isinstance(self.sums, TrialMoments):
            return None
        return SparseTrials(self.sums, self.intercept)

    def features(self, states: FloatArray) -> FloatArray:
        """Features (n, d) of encoded observations (n, k)."""
        return np.concatenate([dense(self._rows(some)) for some in chunk_rows(states)])

    @property
    def _kept(self) -> KeptTrials | None:
        """The trials themselves, where they are kept."""
        return self.sums.kept if isinstance(self.sums, TrialMoments) else None

    @property
    def backups(self) -> tuple[Backup, ...]:
        """Single steps and, where the trials are kept, λ-returns."""
        kept = isinstance(self.sums, TrialMoments) and not self._is_sparse
        return ("one_step", *map(LambdaReturn, DECAYS)) if kept else ("one_step",)

    def holdouts(
        self, batches: Sequence[MomentSums | KeptTrials]
    ) -> list[TrialHoldout[MomentStatistics]]:
        """Return the halves of trials that were kept, each with the other."""
        kept = self._kept
        if kept is None or self.n_trials < _FEWEST_HELD_OUT:
            return []
        return trial_holdouts(self.of, kept, self._rows)

    def of(
        self, sums: MomentSums | KeptTrials | TrialMoments, main: int | None = None
    ) -> MomentStatistics:
        """Return the statistics of other sums, with the same features and stored trials.

        Values are relative to the mean of the tail, not to a main reference state.
        """
        other = copy.copy(self)
        for name in ("feature_scale", "sparse_trials"):
            other.__dict__.pop(name, None)
        other.sums = _windowed(sums, self._rows)
        other._room = _MAX_DECOMPOSED_BYTES // 2**4  # there may be many batches
        return other

    def portions(
        self, batches: Sequence[MomentSums | KeptTrials], *, one_step: bool = True
    ) -> Sequence[Any]:
        """Return batches as what adds up fastest: kept trials as moments of windows."""
        return [_windowed(batch, self._rows, len(batches)) for batch in batches]

    def numbers_per_window(self, rcond: float) -> int:
        """How many numbers the moments of a window hold."""
        return int(self.candidate_features.shape[1]) ** 2

    def distinct(self, windows: IntArray) -> tuple[IntArray, IntArray]:
        """All windows, in their places: samples differ from one timestep to the next."""
        return windows, np.arange(len(windows))

    def moments(self, windows: IntArray, gain: float | None) -> Moments:
        """X, Z, y of each window: sample means over its timesteps and all trials."""
        check_dense(self.candidate_features.shape[1])
        sums = self.sums.over(windows)
        X = sums.second_moments - sums.successor_moments
        if gain is not None:
            y = sums.reward_moments - gain * sums.feature_sums
        else:
            y = np.stack((sums.reward_moments, sums.feature_sums), axis=2)
        return _means(X, sums.second_moments, y, self._n_samples(windows))

    def equations(self, windows: IntArray, gain: float | None, rcond: float) -> Moments:
        """Moments of windows by themselves; two right-hand sides where the gain is unknown."""
        moments = self.moments(windows, gain)
        return moments if gain is not None else replace(moments, scale=self.feature_scale[:-1])

    def linked_equations(self, windows: IntArray, rcond: float) -> Moments:
        """Moments with open ends; see `Statistics.linked_equations`."""
        check_dense(self.candidate_features.shape[1])
        one, last = self.intercept, windows[:, 1] - 1
        inside = self.sums.over(np.stack((windows[:, 0], last), axis=1))
        end = self.sums.over(np.stack((last, last + 1), axis=1))
        n_samples, n_leaving = self._n_samples(windows), self.trials_at[last].astype(np.float64)
        after = self.sums.following
        following = np.stack([after[a : b - 1].sum(axis=0) for a, b in windows.tolist()])
        f = inside.feature_sums + end.feature_sums
        number = n_samples.astype(np.float64)
        Z = _border(inside.second_moments + end.second_moments, f, f, number, one)
        S = _border(
            inside.successor_moments, inside.feature_sums, following, number - n_leaving, one
        )
        leaving = _border(end.successor_moments, end.feature_sums, after[last], n_leaving, one)
        y = np.empty((len(windows), f.shape[1] + 1, 2))
        y[:, :-1, 0] = inside.reward_moments + end.reward_moments
        y[:, -1, 0] = one * (inside.reward_sums + end.reward_sums)
        y[:, :-1, 1] = f
        y[:, -1, 1] = one * number
        moments = _means(Z - S, Z, np.concatenate((y, leaving), axis=2), n_samples)
        return replace(moments, scale=self.feature_scale)

    def basis(self, rcond: float, *, intercept: bool) -> FeatureBasis:
        """Raise: only a table of states has an orthonormal basis of its features."""
        raise InvalidInputError(_NOT_COUNTED)

    def step(self, t: int) -> Step | None:
        """Raise: moments do not keep which vector follows which."""
        raise InvalidInputError(_NOT_COUNTED)

    def pooled(self, gain: float, main: int) -> PooledModel:
        """Raise: a model needs states that can be counted."""
        raise InvalidInputError(_NOT_COUNTED)

    def block(self, start: int, stop: int) -> Block | None:
        """Raise: moments do not keep which vector follows which."""
        raise InvalidInputError(_NOT_COUNTED)

    def walk(self, rcond: float) -> TrialWalk:
        """Return the walk along trials, which must have been kept."""
        kept = self._kept
        if kept is None:
            raise InvalidInputError(_SINGLE_STEPS)
        check_dense(self.candidate_features.shape[1])
        return TrialWalk(kept, self._rows, self.feature_scale, self.intercept)

    def occupancy(self, windows: IntArray) -> FloatArray:
        """Christoffel function of each window at each candidate, shape (n, M)."""
        return self._christoffel(windows)(self.candidate_features)

    def occupancy_of(self, windows: IntArray) -> Callable[[FloatArray], FloatArray]:
        """Christoffel function of each window at observations (m, k), as a function of them."""
        christoffel = self._christoffel(windows)
        if self.sparse_trials is not None:
            return lambda states: christoffel(self._rows(states))
        return lambda states: christoffel(self.features(states))

    def _christoffel(self, windows: IntArray) -> Callable[[FloatArray], FloatArray]:
        """Return the function of features (m, d)."""
        if self.sparse_trials is not None:
            return self._sparse_christoffel(self.sparse_trials, windows)
        n_samples, decomposed = self._n_samples(windows), self._decomposed(windows)

        def occupancy(features: FloatArray) -> FloatArray:
            x = np.hstack((features, np.ones((len(features), 1))))
            shares = np.empty((len(windows), len(features)))
            for k in range(len(windows)):
                share = decomposed(k)(x)
                shares[k] = np.where(share * n_samples[k] >= MIN_SAMPLES, share, 0.0)
            return shares

        return occupancy

    def _sparse_christoffel(
        self, trials: SparseTrials, windows: IntArray
    ) -> Callable[[Rows], FloatArray]:
        def of_window(k: int) -> Callable[[Rows], FloatArray]:
            return trials.christoffel(windows[k], RANGE_TOLERANCE, MIN_SAMPLES)

        # Factors are large: those of the statistics that a system was fitted to are kept.
        kept = lru_cache(_N_FACTORS if self._room == _MAX_DECOMPOSED_BYTES else 0)(of_window)
        return lambda rows: np.stack([kept(k)(rows) for k in range(len(windows))])

    def _decomposed(self, windows: IntArray) -> Callable[[int], Christoffel]:
        """Return Christoffel functions by window, kept as far as there is room."""
        scale, n_samples = self.feature_scale, self._n_samples(windows)

        def decompose(k: int) -> Christoffel:
            start, stop = windows[k]
            # In two parts, which linked equations have asked for already.
            parts = self.sums.over(np.array([[start, stop - 1], [stop - 1, stop]]))
            f, number = parts.feature_sums.sum(axis=0)[None], np.array([float(n_samples[k])])
            Z = _border(parts.second_moments.sum(axis=0)[None], f, f, number, 1.0)[0] / number
            return Christoffel.of(Z, scale)

        return lru_cache(max(1, self._room // (8 * scale.size**2)))(decompose)

    def independent_samples(self, windows: IntArray) -> Callable[[FloatArray], FloatArray]:
        """Occupancy times the number of samples of each window, (n, m)."""
        occupancy = self.occupancy_of(windows)
        n_samples = self._n_samples(windows)
        return lambda states: occupancy(states) * n_samples[:, None]

    @cached_property
    def starts(self) -> FloatArray:
        """Observations in which stored trials start."""
        return np.unique(self.trials[:N_CANDIDATES, 0].astype(np.float64), axis=0)

    def start_groups(
        self,
        batches: Sequence[MomentSums | KeptTrials],
        values_of: ValuesOf,
        gain: float,
        matters: Callable[[StartGroups], bool],
    ) -> StartGroups:
        """Return what trials from like starts earn; see `lstd_agent.statistics.start_groups`."""
        kept = [batch for batch in batches if isinstance(batch, KeptTrials)]
        if len(kept) == len(batches):
            return group_trials(kept, lambda states, t: values_of(self.features(states), t), gain)
        sums = [batch for batch in batches if isinstance(batch, MomentSums)]
        return group_moments(sums, values_of, gain)

    def tolerable(self, undetermined: BoolArray) -> BoolArray:
        """Return which undetermined starts are none to warn of.

        No two starts need be alike, so the edge of where they are is always thin: a tenth may be
        undetermined, if each is linked to one that is not by starts close together.
        """
        if np.mean(undetermined) > _TOLERATED:
            return np.zeros(len(undetermined), dtype=bool)
        group = _groups(self.starts)
        return np.asarray(undetermined & np.isin(group, group[~undetermined]))

    @property
    def recurrent_classes(self) -> list[RecurrentClass]:
        """None: where states cannot be counted, their classes do not show."""
        return []

    @property
    def intercept(self) -> float:
        """1, or 0 in tasks that end."""
        return float(not self.ends)

    @cached_property
    def feature_scale(self) -> FloatArray:
        """Root mean squares of the features (f, 1) over all timesteps, shape (d + 1,)."""
        trials = self.sparse_trials
        squares = self.sums.squares if trials is None else trials.squares
        scale = np.sqrt(squares / self.trials_at.sum())
        return np.append(np.where(scale > _UNSEEN, scale, 1.0), 1.0)

    def zero(self, window: IntArray) -> tuple[int, FloatArray]:
        """Return the terminal state of a task that ends, or else the mean of the settled tail."""
        if self.ends:
            index = -1 if self.terminal is None else self.terminal
            return index, np.zeros(self.candidate_features.shape[1])
        start = (self.t_max + 1) // 2
        if self.sparse_trials is not None:
            return -1, self.sparse_trials.mean_features(start, self.t_max + 1)
        return -1, self.sums.feature_sums[start:].mean(axis=0) / self.trials_at[start:].mean()

    def candidate(self, index: int) -> Any:
        """Return a candidate reference state as it is encoded."""
        return self.candidates[index]

    def mean_features(self, t: int) -> FloatArray:
        """Mean features (d,) at a timestep."""
        if self.sparse_trials is not None:
            return self.sparse_trials.mean_features(t, t + 1)
        return np.asarray(self.sums.feature_sums[t] / self.trials_at[t])

    def mean_following_features(self, t: int) -> FloatArray:
        """Mean features (d,) of what followed a timestep, of the trials that have it."""
        if self.sparse_trials is not None:
            return self.sparse_trials.mean_following_features(t)
        return np.asarray(self.sums.following[t] / self.trials_at[t])

    def mean_reward(self, start: int, stop: int) -> float:
        """Mean reward over the timesteps from start up to stop."""
        return float(self.sums.reward_sums[start:stop].mean() / self.trials_at[start:stop].mean())

    @property
    def mean_rewards(self) -> FloatArray:
        """Mean reward of each timestep, shape (t_max + 1,)."""
        return np.asarray(self.sums.reward_sums / np.maximum(self.trials_at, 1))

    def total_variation(self) -> SquaredDistance:
        """Raise: total variation needs states that can be counted."""
        raise InvalidInputError(_COUNTABLE)

    def paired_discrepancy(self, kernel: Kernel) -> SquaredDistance:
        """Linear-time squared MMD between timesteps, from the stored trials."""
        check_pairs("linear", len(self.trials))
        lengths = (~np.isinf(self.trials[:, :, 0])).sum(axis=1)
        if (lengths <= self.t_max).any():
            features = self._distance_features.swapaxes(0, 1)
            kernel = kernel.fit_width(self.candidate_features)
            return cut_pairs_discrepancy(features, lengths[: len(features)], kernel.paired)
        return paired_vector_discrepancy(
            self._distance_features, kernel.fit_width(self.candidate_features)
        )

    @cached_property
    def _distance_features(self) -> FloatArray:
        """Features of as many stored trials as a distance works on, shape (t_max + 1, m, d)."""
        d = self.candidate_features.shape[1]
        m = max(2, _N_DISTANCE_NUMBERS // (d * (self.t_max + 1)))
        states = self.trials[:m]
        # Where a trial was cut short its start stands in; it is not looked at.
        states = np.where(np.isinf(states), states[:, :1], states).swapaxes(0, 1)
        n_timesteps, m, k = states.shape
        return self.features(states.reshape(-1, k)).reshape(n_timesteps, m, -1)


def check_dense(d: int) -> None:
    """Raise `InvalidInputError` unless the moments of d features have room."""
    size = 16 * d**2
    if size > _MAX_WINDOW_BYTES:
        raise InvalidInputError(
            f"the moments of {d} features over a single window take {size / 1e9:.3g} GB: features "
            "that are sparse (CSR, such as those of TileCoding) of trials that are kept (within "
            "max_bytes) need none with calibration='linked' and backup='one_step'; or give fewer"
        )


def _windowed(
    sums: MomentSums | KeptTrials | TrialMoments, rows: RowsOf, n_batches: int = 1
) -> MomentSums | TrialMoments:
    """Return what sums over windows: moments themselves, or kept trials with their features."""
    return TrialMoments.of(sums, rows, n_batches) if isinstance(sums, KeptTrials) else sums


def _groups(vectors: FloatArray) -> IntArray:
    """Return the number of the group of each vector; groups are far from each other."""
    from scipy.sparse.csgraph import connected_components  # takes long to import
    from scipy.spatial.distance import cdist

    deviation = vectors.std(axis=0)
    scaled = vectors / np.where(deviation > 0.0, deviation, 1.0)
    distance = cdist(scaled, scaled)
    nearest = np.partition(distance, 1, axis=1)[:, 1] if len(vectors) > 1 else np.zeros(1)
    return np.asarray(connected_components(distance <= _REACH * np.median(nearest))[1])


def _means(X: FloatArray, Z: FloatArray, y: FloatArray, n_samples: IntArray) -> Moments:
    """Return sums over samples as moments."""
    scale = (1.0 / n_samples)[:, None]
    return Moments(
        X * scale[:, :, None],
        Z * scale[:, :, None],
        y * scale.reshape(scale.shape + (1,) * (y.ndim - 2)),
        n_samples,
    )


def _border(
    products: FloatArray, f: FloatArray, following: FloatArray, number: FloatArray, one: float
) -> FloatArray:
    """Return sums of (f, 1) (f', 1)^T from Σ f f'^T, Σ f, Σ f' and their number."""
    n, d, _ = products.shape
    bordered = np.empty((n, d + 1, d + 1))
    bordered[:, :d, :d] = products
    bordered[:, :d, d] = one * f
    bordered[:, d, :d] = one * following
    bordered[:, d, d] = one * number
    return bordered


def _candidates(trials: FloatArray) -> FloatArray:
    """Choose stored observations at spread timesteps, each from another trial in turn."""
    m, n_timesteps, _ = trials.shape
    n = min(N_CANDIDATES, m * n_timesteps)
    even = np.linspace(0, n_timesteps - 1, n - n // 2)
    early = np.geomspace(1, n_timesteps, n // 2) - 1
    timestep = np.concatenate((even, early)).astype(np.int64)
    # Observations that occur twice are kept once; the terminal state (NaN), if any, comes first.
    chosen = trials[np.arange(n) % m, timestep]
    # What is infinite is of timesteps that a trial does not have.
    living = np.unique(chosen[np.isfinite(chosen).all(axis=1)], axis=0)
    ended = trials[np.isnan(trials).any(axis=2)]
    return np.concatenate((ended[:1], living))
