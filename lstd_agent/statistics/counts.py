"""Statistics of observations that can be counted, from transition counts.

Counts do not depend on the features, so that one collection serves every feature set, every
number of anchors and every gain. Equations are returned as their square roots, `Factors`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.features.kernels import Kernel
from lstd_agent.features.rows import Rows, dense, is_sparse
from lstd_agent.statistics.backups import DECAYS, Backup, LambdaReturn
from lstd_agent.statistics.blocks import Block
from lstd_agent.statistics.count_equations import WindowCounts, counted_moments, transitions
from lstd_agent.statistics.counted_starts import MOST_STORED, group_counts
from lstd_agent.statistics.equations import Factors, FeatureBasis, Moments, window_sums
from lstd_agent.statistics.holdouts import Holdout, count_holdouts
from lstd_agent.statistics.interface import SquaredDistance
from lstd_agent.statistics.pairs import state_pairs_discrepancy
from lstd_agent.statistics.pooled import PooledModel, pooled_counts
from lstd_agent.statistics.sparse_counts import SparseCounts, sparse_features
from lstd_agent.statistics.start_groups import StartGroups, ValuesOf
from lstd_agent.statistics.structure import RecurrentClass, recurrent_classes
from lstd_agent.statistics.walks import StateWalk
from lstd_agent.trials.counts import TransitionCounts


class CountStatistics:
    """Statistics of discrete observations, from transition counts and a feature table.

    Every state is a candidate reference state.

    Parameters
    ----------
    counts : TransitionCounts
    features : ndarray or csr_array, shape (S, d)
        Many and sparse ones are held as such.
    trials : ndarray of int, shape (m, t_max + 1), optional
        The states of a sample of whole trials, for the distance that pairs them; -1 at timesteps
        that a trial does not have.
    terminal : int, optional
        The terminal state of a task that ends; it counts if a trial was in it.
    """

    support_threshold = 0.0
    sparse_trials = reduction = None
    forever = None
    single_steps = ""
    candidates_are = "state"
    default_kernel = Kernel()  # the paper's: a Gaussian of width 1

    def __init__(
        self,
        counts: TransitionCounts,
        features: Rows,
        trials: NDArray[np.integer] | None = None,
        terminal: int | None = None,
    ) -> None:
        self.counts = counts
        self.t_max, self.n_trials, self.trials_at = counts.t_max, counts.n_trials, counts.trials_at
        self.settled = self.t_max + 1
        self.trials = trials
        # A task that was never seen to end is like any other.
        self.terminal = terminal if terminal is not None and self._seen[terminal] else None
        self.intercept = float(self.terminal is None)
        self._main: int | None = None
        many = sparse_features(features) if self.terminal is None else None
        self.features: Rows = dense(features) if many is None else many
        self.candidate_features = self.features
        self._bases: dict[tuple[bool, float], FeatureBasis] = {}
        self._pooled: dict[tuple[float, int], PooledModel] = {}

    def counted(self, refusal: str = "") -> CountStatistics:
        """Return these: states are counted."""
        return self

    @cached_property
    def feature_scale(self) -> FloatArray:
        """Root mean squares of the features (f, 1) over all states seen, none 0, shape (d + 1,).

        All alike: what a rarely visited state's value does to others does not hang on visits.
        """
        seen = self._seen.astype(np.float64)
        view = self.sparse_counts
        squares = self.features**2 if view is None else view.sparse_features.power(2)
        scale = np.sqrt(seen @ squares / seen.sum())
        return np.append(np.where(scale > 0.0, scale, 1.0), 1.0)

    @cached_property
    def sparse_counts(self) -> SparseCounts | None:
        """These statistics where their features are many and sparse, else None."""
        F = self.features
        return SparseCounts(self.counts, self.visits, F) if is_sparse(F) else None

    def portions(self, batches: Sequence[TransitionCounts]) -> Sequence[TransitionCounts]:
        """Return batches as what adds up fastest: themselves."""
        return batches

    def without_each(self, batches: Sequence[TransitionCounts]) -> None:
        """Return nothing: fits take no time."""

    @property
    def backups(self) -> tuple[Backup, ...]:
        """The model, or else single steps and, where features are dense, λ-returns."""
        steps: tuple[Backup, ...] = ("model", "one_step")
        return steps if self.sparse_counts is not None else (*steps, *map(LambdaReturn, DECAYS))

    def holdouts(self, batches: Sequence[TransitionCounts]) -> list[Holdout]:
        """Return the halves of the counts, each with the other."""
        return count_holdouts(self.of, batches, self.features, self.terminal)

    def of(self, sums: TransitionCounts, main: int | None = None) -> CountStatistics:
        """Return the statistics of other sums, with the same features and stored trials."""
        other = CountStatistics(sums, self.features, self.trials, self.terminal)
        other._main = main
        return other

    def numbers_per_window(self, rcond: float) -> int:
        """How many numbers a window's factors hold."""
        return int(self.basis(rcond, intercept=False).U.size)

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
        return counted_moments(self.counts, self.visits, self.features, windows, gain)

    def equations(self, windows: IntArray, gain: float | None, rcond: float) -> Factors:
        """Factors of windows by themselves; two right-hand sides where the gain is unknown."""
        sums = WindowCounts.of(self.counts, self.visits, windows)
        return sums.factors(self.basis(rcond, intercept=False), gain)

    def linked_equations(self, windows: IntArray, rcond: float) -> Factors:
        """Factors with open ends; see `Statistics.linked_equations`."""
        sums = WindowCounts.of(self.counts, self.visits, windows)
        return sums.open_factors(self.basis(rcond, intercept=True), self._linked_features)

    def basis(self, rcond: float, *, intercept: bool) -> FeatureBasis:
        """Return an orthonormal basis of the features f or (f, 1).

        States that no trial saw play no part, and large features of theirs must not either.
        """
        if (intercept, rcond) not in self._bases:
            features = self._linked_features if intercept else dense(self.features)
            found = FeatureBasis.of(features * self._seen[:, None], rcond)
            self._bases[intercept, rcond] = found
        return self._bases[intercept, rcond]

    @property
    def _linked_features(self) -> FloatArray:
        """Features (f, 1) of all states."""
        table = dense(self.features)
        return np.hstack((table, np.full((len(table), 1), self.intercept)))

    def block(self, start: int, stop: int) -> Block:
        """Frequencies and mean rewards of several timesteps."""
        return Block.of(self.counts, start, stop, self.terminal)

    def walk(self, rcond: float) -> StateWalk:
        """Return the walk over states."""
        return StateWalk(self, rcond)

    def pooled(self, gain: float, main: int) -> PooledModel:
        """Return values by the counts of all timesteps, 0 at the main reference state."""
        if (gain, main) not in self._pooled:
            self._pooled[gain, main] = pooled_counts(self.counts, gain, main)
        return self._pooled[gain, main]

    def occupancy(self, windows: IntArray) -> FloatArray:
        """Visiting frequency of each state in each window, shape (n, S)."""
        visits = (window_sums(windows, self.t_max) @ self.visits).toarray()
        return np.asarray(visits / visits.sum(axis=1, keepdims=True))

    def occupancy_of(self, windows: IntArray) -> Callable[[IntArray], FloatArray]:
        """Visiting frequency of some states (m,) in each window, (n, m), as a function of them."""
        visits = self._visits_in(windows)
        total = visits.sum(axis=1)[:, None]
        return lambda states: np.asarray(visits[:, states].toarray() / total)

    def _visits_in(self, windows: IntArray) -> sparse.csc_array:
        return sparse.csc_array(window_sums(windows, self.t_max) @ self.visits)

    def independent_samples(self, windows: IntArray) -> Callable[[IntArray], FloatArray]:
        """Visits of some states (m,) in each window that were not stays, or else all, (n, m)."""
        visits = self._visits_in(windows)
        window, count, state, next_state = transitions(self.counts, windows)
        stay = state == next_state
        stays = sparse.csc_array((count[stay], (window[stay], state[stay])), shape=visits.shape)

        def samples(states: IntArray) -> FloatArray:
            all_visits = visits[:, states].toarray()
            moves = all_visits - stays[:, states].toarray()
            return np.where(moves > 0, moves, all_visits).astype(np.float64)

        return samples

    @cached_property
    def starts(self) -> IntArray:
        """States in which trials start, the terminal one left out."""
        start = self.visits[[0]].indices
        return np.sort(start[start != self.terminal])

    def start_groups(
        self,
        batches: Sequence[TransitionCounts],
        values_of: ValuesOf,
        gain: float,
        matters: Callable[[StartGroups], bool],
    ) -> StartGroups:
        """Return what trials from each start earn; see `lstd_agent.statistics.start_groups`."""

        def value_of(states: IntArray, t: IntArray) -> FloatArray:
            return values_of(self.features[states], t)

        stored = None if self.trials is None else self.trials[:MOST_STORED].astype(np.int64)
        return group_counts(batches, self.counts, stored, value_of, gain, self.terminal, matters)

    def tolerable(self, undetermined: BoolArray) -> BoolArray:
        """Return which undetermined starts are none to warn of: none."""
        return np.zeros(len(undetermined), dtype=bool)

    @cached_property
    def recurrent_classes(self) -> list[RecurrentClass]:
        """The recurrent classes that the second half of all timesteps shows."""
        S = self.counts.n_states
        tail = self.counts.transition_counts[(self.t_max + 1) // 2 :]
        edges = sparse.csr_array((tail.data, np.divmod(tail.indices, S)), shape=(S, S))
        return recurrent_classes(edges)

    def zero(self, window: IntArray) -> tuple[int, FloatArray]:
        """Return the terminal state, or else the state that the window visits most."""
        state = self._main if self.terminal is None else self.terminal
        if state is None:
            state = int(np.argmax(self.occupancy(window[None])[0]))
        return state, dense(self.features[[state]])[0]

    def candidate(self, index: int) -> Any:
        """Return a candidate reference state as it is encoded."""
        return index

    def mean_features(self, t: int) -> FloatArray:
        """Mean features (d,) at a timestep."""
        visits = self.visits[[t]]
        return np.asarray(dense(visits @ self.features)[0] / visits.sum())

    def mean_following_features(self, t: int) -> FloatArray:
        """Mean features (d,) of what followed a timestep, of the trials that have it."""
        _, count, _, following = transitions(self.counts, np.array([[t, t + 1]]))
        return np.asarray(count @ self.features[following] / count.sum())

    def mean_reward(self, start: int, stop: int) -> float:
        """Mean reward over the timesteps from start up to stop."""
        return float(self.counts.reward_sums[start:stop].sum() / self.visits[start:stop].sum())

    @property
    def mean_rewards(self) -> FloatArray:
        """Mean reward of each timestep, shape (t_max + 1,)."""
        return np.asarray(self.counts.reward_sums.sum(axis=1) / np.maximum(self.trials_at, 1))

    def paired_discrepancy(self, kernel: Kernel) -> SquaredDistance:
        """Linear-time squared MMD between timesteps, from the stored trials."""
        return state_pairs_discrepancy(self.trials, self.features, kernel)
