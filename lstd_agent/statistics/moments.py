"""Statistics of vector observations: moments of the features.

Where states cannot be counted, the sums that X, Z and y are made of are kept for every timestep,
over all trials (`lstd_agent.statistics.moment_sums`), or the trials are, which sums over windows
are made of when they are asked for (`lstd_agent.statistics.trial_moments`).

The occupancy of a window at any observation is the empirical Christoffel function of its features
and a constant, which bounds it by 1; see `lstd_agent.statistics.christoffel`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Any

import numpy as np

from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.features.kernels import Kernel
from lstd_agent.features.rows import Rows, RowsOf, chunk_rows, dense
from lstd_agent.statistics.backups import DECAYS, Backup, LambdaReturn, why_single_steps
from lstd_agent.statistics.christoffel import MIN_SAMPLES, RANGE_TOLERANCE, Christoffel
from lstd_agent.statistics.coordinates import FEWEST_REDUCED, Coordinates, Reduction, reduced
from lstd_agent.statistics.equations import Moments
from lstd_agent.statistics.holdouts import Holdout, trial_holdouts
from lstd_agent.statistics.interface import NOT_COUNTED, CountedStatistics, SquaredDistance
from lstd_agent.statistics.moment_equations import (
    check_dense,
    open_moments,
    samples_in,
    second_moments,
    window_moments,
)
from lstd_agent.statistics.moment_sums import MomentSums
from lstd_agent.statistics.pairs import UNCOUNTED, vector_pairs_discrepancy
from lstd_agent.statistics.sparse_trials import SparseTrials, are_sparse
from lstd_agent.statistics.start_groups import (
    StartGroups,
    ValuesOf,
    group_moments,
    group_trials,
)
from lstd_agent.statistics.stored_vectors import N_CANDIDATES, are_at_edge, choose_candidates
from lstd_agent.statistics.trial_moments import TrialMoments
from lstd_agent.statistics.walks import TrialWalk
from lstd_agent.trials.kept import KeptTrials

_SINGLE_STEPS = (
    "sums over vector observations hold single steps only, and the trials were condensed into "
    "sums: use backup='one_step', or keep the trials with a larger max_bytes"
)

# Features whose root mean square is smaller, as that of bumps far from all that was seen, are 0:
# divided by it, what they are elsewhere would exceed the range of doubles.
_UNSEEN = 1e-100

# Sparse factors of so many windows are kept.
_N_FACTORS = 4

# Of so many dense features each fit takes long.
_FEWEST_MANY = 1000

# Decompositions of windows are kept up to so many bytes.
_MAX_DECOMPOSED_BYTES = 2**30


class MomentStatistics:
    """Statistics of vector observations, from moments and a sample of trials.

    In the stored trials the terminal state of a task that ends is a row of NaN.

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
    sparse_counts = None
    forever = None
    candidates_are = "index of a stored observation"
    default_kernel = Kernel(width="median")  # the distance between candidates
    recurrent_classes = ()  # vectors are not counted
    _room = _MAX_DECOMPOSED_BYTES
    _are_scaled = False  # as the coordinates of scaled features are

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
        self._rows = rows
        self._are_kept = sums.kept is not None
        self._take(sums if sums.kept is None else TrialMoments.of(sums.kept, rows))
        self.trials = trials
        # A task that was never seen to end is like any other.
        self.ends = ends and bool(np.isnan(trials).any())
        self.intercept = float(not self.ends)
        self.candidates = choose_candidates(trials)
        # The terminal state is one if a stored trial reached it.
        self.terminal = 0 if np.isnan(self.candidates[0]).any() else None
        self.candidate_features = self.features(self.candidates)
        self._is_sparse = self._trials is not None and are_sparse(rows(self.candidates))

    def _take(self, sums: Any) -> None:
        self.sums: MomentSums | TrialMoments = sums
        self._trials: TrialMoments | None = sums if self._are_kept else None
        self._walked = self._trials
        self.t_max, self.n_trials = self.sums.t_max, self.sums.n_trials
        self.trials_at = self.sums.trials_at
        self.settled = self.t_max + 1

    @cached_property
    def sparse_trials(self) -> SparseTrials | None:
        """The same trials where they are kept and their features many and sparse, else None."""
        sparse = self._trials if self._is_sparse else None
        return None if sparse is None else SparseTrials(sparse, self.intercept)

    @cached_property
    def _coordinates(self) -> Coordinates | None:
        """Coordinates of dense features that are many and alike, where trials are kept."""
        d = self.candidate_features.shape[1]
        if self._trials is None or self._is_sparse or d < FEWEST_REDUCED:
            return None
        return Coordinates.of(self._trials.observed(), self.feature_scale[:-1])

    @cached_property
    def reduction(self) -> Reduction | None:
        """The same statistics in coordinates, where there are any."""
        coordinates = self._coordinates
        if coordinates is None or self._trials is None:
            return None
        other, trials = copy.copy(self), self._trials.in_coordinates(coordinates)
        other.candidate_features = coordinates(self.candidate_features)
        other._take(trials)
        other._rows = trials.features
        other._are_scaled = True
        vars(other).pop("feature_scale", None)
        vars(other).update(_coordinates=None, reduction=None)
        return Reduction(other, coordinates)

    def features(self, states: FloatArray) -> FloatArray:
        """Features (n, d) of encoded observations (n, k)."""
        return np.concatenate([dense(self._rows(some)) for some in chunk_rows(states)])

    @property
    def single_steps(self) -> str:
        """Why single steps alone are to choose from, where they are."""
        return why_single_steps(self._dense_trials is not None, self.candidate_features.shape[1])

    @property
    def backups(self) -> tuple[Backup, ...]:
        """Single steps and, where trials are kept and features not too many, λ-returns."""
        return ("one_step",) if self.single_steps else ("one_step", *map(LambdaReturn, DECAYS))

    @property
    def _dense_trials(self) -> TrialMoments | None:
        return None if self._is_sparse else self._trials

    def holdouts(self, batches: Sequence[MomentSums | KeptTrials]) -> list[Holdout]:
        """Return the halves of trials that were kept, each with the other."""
        decays = () if self.single_steps else DECAYS
        found = trial_holdouts(self.of, self._dense_trials, decays)
        if found:
            # What is summed along the halves' trials serves all of them.
            self._walked = found[0].fitted.sums + found[1].fitted.sums
        return found

    def of(self, sums: MomentSums | TrialMoments, main: int | None = None) -> MomentStatistics:
        """Return the statistics of other portions, with the same features and stored trials.

        Given the main reference state, as by refits, iterations begin at what all trials led to.
        Values are relative to the mean of the tail, not to that state.
        """
        other = copy.copy(self)
        for name in ("feature_scale", "sparse_trials", "reduction"):
            other.__dict__.pop(name, None)
        vars(other)["_coordinates"] = self._coordinates  # those of all trials
        other._take(sums)
        other._room = _MAX_DECOMPOSED_BYTES // 2**4  # there may be many batches
        if main is not None and self.sparse_trials is not None and other._trials is not None:
            other.sparse_trials = SparseTrials(other._trials, self.intercept, self.sparse_trials)
        return other

    def portions(self, batches: Sequence[Any]) -> Sequence[Any]:
        """Return batches as what adds up fastest: kept trials as moments of windows."""
        if not self._are_kept:
            return batches
        first = accumulate((batch.n_trials for batch in batches), initial=0)
        return [
            TrialMoments.of(batch, self._rows, len(batches), n)
            for batch, n in zip(batches, first, strict=False)
        ]

    def without_each(self, batches: Sequence[Any]) -> list[MomentStatistics] | None:
        """Return the statistics without each of the batches, if dense features are many."""
        trials, few = self._dense_trials, reduced(self)
        if trials is None or few.candidate_features.shape[1] < _FEWEST_MANY:
            return None
        return [self.of(trials - portion) for portion in self.portions(batches)]

    def numbers_per_window(self, rcond: float) -> int:
        """How many numbers the moments of a window hold."""
        return int(self.candidate_features.shape[1]) ** 2

    def moments(self, windows: IntArray, gain: float | None) -> Moments:
        """X, Z, y of each window: sample means over its timesteps and all trials."""
        check_dense(self.candidate_features.shape[1])
        return window_moments(self.sums, windows, gain)

    def equations(self, windows: IntArray, gain: float | None, rcond: float) -> Moments:
        """Moments of windows by themselves; two right-hand sides where the gain is unknown."""
        moments = self.moments(windows, gain)
        return moments if gain is not None else replace(moments, scale=self.feature_scale[:-1])

    def linked_equations(self, windows: IntArray, rcond: float) -> Moments:
        """Moments with open ends; see `Statistics.linked_equations`."""
        check_dense(self.candidate_features.shape[1])
        moments = open_moments(self.sums, windows, self.intercept)
        return replace(moments, scale=self.feature_scale)

    def counted(self, refusal: str = NOT_COUNTED) -> CountedStatistics:
        """Raise: vectors are not counted."""
        raise InvalidInputError(refusal)

    @property
    def distributions(self) -> FloatArray:
        """Raise: vectors have no visiting frequencies."""
        raise InvalidInputError(UNCOUNTED)

    def walk(self, rcond: float) -> TrialWalk:
        """Return the walk along trials, which must have been kept."""
        if self._walked is None:
            raise InvalidInputError(_SINGLE_STEPS)
        check_dense(self.candidate_features.shape[1])
        return TrialWalk(self._walked, self.feature_scale, self.intercept)

    def occupancy(self, windows: IntArray) -> FloatArray:
        """Christoffel function of each window at each candidate, shape (n, M)."""
        return self._christoffel(windows)(self.candidate_features)

    def occupancy_of(self, windows: IntArray) -> Callable[[FloatArray], FloatArray]:
        """Christoffel function of each window at observations (m, k), as a function of them."""
        christoffel = self._christoffel(windows)
        features = self.features if self.sparse_trials is None else self._rows
        return lambda states: christoffel(features(states))

    def _christoffel(self, windows: IntArray) -> Callable[[Rows], FloatArray]:
        """Return the function (n, m) of features (m, d).

        Decompositions are large: they are kept as far as there is room.
        """
        trials, scale = self.sparse_trials, self.feature_scale
        if trials is not None:
            room = _N_FACTORS if self._room == _MAX_DECOMPOSED_BYTES else 0

            def of_window(k: int) -> Callable[[Rows], FloatArray]:
                return trials.christoffel(windows[k], RANGE_TOLERANCE, MIN_SAMPLES)
        else:
            room = max(1, self._room // (8 * scale.size**2))
            n_samples = samples_in(windows, self.trials_at)

            def of_window(k: int) -> Callable[[Rows], FloatArray]:
                christoffel = self._christoffel_of(windows[k])
                return lambda rows: christoffel.occupancy(rows, n_samples[k])

        kept = lru_cache(room)(of_window)
        return lambda rows: np.stack([kept(k)(rows) for k in range(len(windows))])

    def _christoffel_of(self, window: IntArray) -> Christoffel:
        if self.reduction is None:
            return Christoffel.of(second_moments(self.sums, window), self.feature_scale)
        other, coordinates = self.reduction
        Z = second_moments(other.sums, window)
        return coordinates.christoffel(Christoffel.of(Z, other.feature_scale))

    def independent_samples(self, windows: IntArray) -> Callable[[FloatArray], FloatArray]:
        """Occupancy times the number of samples of each window, (n, m)."""
        occupancy = self.occupancy_of(windows)
        n_samples = samples_in(windows, self.trials_at)
        return lambda states: occupancy(states) * n_samples[:, None]

    @cached_property
    def starts(self) -> FloatArray:
        """Observations in which stored trials start."""
        return np.unique(self.trials[:N_CANDIDATES, 0].astype(np.float64), axis=0)

    def start_groups(
        self,
        batches: Sequence[Any],
        values_of: ValuesOf,
        gain: float,
        matters: Callable[[StartGroups], bool],
    ) -> StartGroups:
        """Return what trials from like starts earn; see `lstd_agent.statistics.start_groups`."""
        if not self._are_kept:
            return group_moments(batches, values_of, gain)
        return group_trials(batches, lambda states, t: values_of(self.features(states), t), gain)

    def tolerable(self, undetermined: BoolArray) -> BoolArray:
        """Return which undetermined starts are none to warn of, at the edge of all."""
        return are_at_edge(self.starts, undetermined)

    @cached_property
    def feature_scale(self) -> FloatArray:
        """Root mean squares of the features (f, 1) over all timesteps, shape (d + 1,)."""
        if self._are_scaled:
            return np.ones(self.candidate_features.shape[1] + 1)
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

    def paired_discrepancy(self, kernel: Kernel) -> SquaredDistance:
        """Linear-time squared MMD between timesteps, from the stored trials."""
        kernel = kernel.fit_width(self.candidate_features)
        d = self.candidate_features.shape[1]
        return vector_pairs_discrepancy(self.trials, self.features, d, kernel)
