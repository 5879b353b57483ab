"""Statistics of observations that can be counted, from transition counts.

Counts do not depend on the features, so that one collection serves every feature set, every
number of anchors and every gain. Equations are returned as their square roots, `Factors`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.features.kernels import Kernel
from lstd_agent.features.rows import Rows, dense, is_sparse
from lstd_agent.statistics.backups import DECAYS, Backup, LambdaReturn, Step, counted_step
from lstd_agent.statistics.blocks import Block
from lstd_agent.statistics.equations import (
    Factors,
    FeatureBasis,
    Moments,
    window_chunks,
    window_sums,
)
from lstd_agent.statistics.holdouts import CountHoldout, count_holdouts
from lstd_agent.statistics.interface import SquaredDistance
from lstd_agent.statistics.pairs import (
    check_pairs,
    cut_pairs_discrepancy,
    paired_feature_discrepancy,
    paired_mean_discrepancy,
)
from lstd_agent.statistics.pooled import PooledModel, pooled_counts
from lstd_agent.statistics.sparse_counts import SparseCounts, sparse_features
from lstd_agent.statistics.start_groups import StartGroups, ValuesOf, group_counts
from lstd_agent.statistics.stored_trials import MOST_STORED
from lstd_agent.statistics.structure import RecurrentClass, recurrent_classes
from lstd_agent.statistics.walks import StateWalk
from lstd_agent.trials.counting import TransitionCounts

# A table of the kernel between more states than this is larger than what it saves.
_MOST_OF_GRAM = 4000


@dataclass(frozen=True, eq=False)
class _Sums:
    """Sums over the samples of n windows, by the k states that any of them visits.

    Attributes
    ----------
    visited : ndarray of int, shape (k,)
    visits : ndarray of int, shape (n, k)
    rewards : ndarray, shape (n, k)
    """

    visited: IntArray
    visits: IntArray
    rewards: FloatArray


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

    def __init__(
        self,
        counts: TransitionCounts,
        features: Rows,
        trials: NDArray[np.integer] | None = None,
        terminal: int | None = None,
    ) -> None:
        self.counts = counts
        self.trials = trials
        # A task that was never seen to end is like any other.
        self.terminal = terminal if terminal is not None and self._seen[terminal] else None
        self._main: int | None = None
        many = sparse_features(features) if self.terminal is None else None
        self.features: Rows = dense(features) if many is None else many

    @property
    def t_max(self) -> int:
        """The last timestep."""
        return self.counts.t_max

    @property
    def n_trials(self) -> int:
        """Number of trials."""
        return self.counts.n_trials

    @property
    def trials_at(self) -> IntArray:
        """Number of trials that have each timestep, shape (t_max + 1,)."""
        return self.counts.trials_at

    @property
    def candidate_features(self) -> Rows:
        """The feature table: every state is a candidate reference state."""
        return self.features

    @property
    def intercept(self) -> float:
        """1, or 0 in tasks that end."""
        return float(self.terminal is None)

    @cached_property
    def feature_scale(self) -> FloatArray:
        """Root mean squares of the features (f, 1) over all states seen, none 0, shape (d + 1,).

        All alike: what a rarely visited state's value does to others does not hang on visits.
        """
        seen = self._seen.astype(np.float64)
        view = self.sparse_view
        squares = self.features**2 if view is None else view.sparse_features.power(2)
        scale = np.sqrt(seen @ squares / seen.sum())
        return np.append(np.where(scale > 0.0, scale, 1.0), 1.0)

    candidates_are = "state"

    @property
    def default_kernel(self) -> Kernel:
        """The paper's: a Gaussian of width 1."""
        return Kernel()

    @property
    def sparse_trials(self) -> None:
        """None: states are counted."""
        return None

    @cached_property
    def sparse_view(self) -> SparseCounts | None:
        """These statistics where their features are many and sparse, else None."""
        return SparseCounts(self, self.features) if is_sparse(self.features) else None

    def portions(
        self, batches: Sequence[TransitionCounts], *, one_step: bool = True
    ) -> Sequence[TransitionCounts]:
        """Return batches as what adds up fastest: themselves."""
        return batches

    @property
    def backups(self) -> tuple[Backup, ...]:
        """The model, or else single steps and, where features are dense, λ-returns."""
        steps: tuple[Backup, ...] = ("model", "one_step")
        return steps if self.sparse_view is not None else (*steps, *map(LambdaReturn, DECAYS))

    def holdouts(self, batches: Sequence[TransitionCounts]) -> list[CountHoldout[CountStatistics]]:
        """Return the halves of the counts, each with the other."""
        return count_holdouts(self.of, batches, self.features, self.terminal)

    def of(self, sums: TransitionCounts, main: int | None = None) -> CountStatistics:
        """Return the statistics of other sums, with the same features and stored trials."""
        other = CountStatistics(sums, self.features, self.trials, self.terminal)
        other._main = main
        return other

    def numbers_per_window(self, rcond: float) -> int:
        """How many numbers a window's factors hold."""
        return int(self._basis(rcond).U.size)

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

    def distinct(self, windows: IntArray) -> tuple[IntArray, IntArray]:
        """All windows, in their places: samples differ from one timestep to the next."""
        return windows, np.arange(len(windows))

    def moments(self, windows: IntArray, gain: float) -> Moments:
        """X, Z, y of each window: sample means over its timesteps and all trials."""
        n, d = len(windows), self.features.shape[1]
        moments = Moments(
            np.empty((n, d, d)), np.empty((n, d, d)), np.empty((n, d)), np.empty(n, dtype=np.int64)
        )
        for chunk in window_chunks(n, math.prod(self.features.shape)):
            sums = self._sums(windows[chunk])
            n_samples = sums.visits.sum(axis=1)
            F = dense(self.features[sums.visited])
            scale = 1.0 / n_samples[:, None, None]
            weighted = sums.visits[:, :, None] * F
            successors = self._successors(windows[chunk], sums, dense(self.features))
            moments.X[chunk] = scale * (F.T @ (weighted - successors))
            moments.Z[chunk] = scale * (F.T @ weighted)
            excess = sums.rewards - gain * sums.visits
            moments.y[chunk] = (excess @ F) / n_samples[:, None]
            moments.n_samples[chunk] = n_samples
        return moments

    def equations(self, windows: IntArray, gain: float | None, rcond: float) -> Factors:
        """Factors of windows by themselves; two right-hand sides where the gain is unknown."""
        basis = self._basis(rcond)
        sums = self._sums(windows)
        n_samples = sums.visits.sum(axis=1)
        A, scale = _roots(sums, n_samples, basis.U)
        B = A - scale[:, :, None] * self._successors(windows, sums, basis.U)
        if gain is not None:
            c = scale * (sums.rewards - gain * sums.visits)
        else:
            c = scale[:, :, None] * np.stack((sums.rewards, sums.visits), axis=2)
        return Factors(A, B, c, basis, n_samples)

    def linked_equations(self, windows: IntArray, rcond: float) -> Factors:
        """Factors with open ends; see `Statistics.linked_equations`."""
        basis, features = self._linked_basis(rcond)
        sums = self._sums(windows)
        n_samples = sums.visits.sum(axis=1)
        A, scale = _roots(sums, n_samples, basis.U)
        last = windows[:, 1] - 1
        inside = np.stack((windows[:, 0], last), axis=1)
        outside = np.stack((last, windows[:, 1]), axis=1)
        B = A - scale[:, :, None] * self._successors(inside, sums, basis.U)
        numbers = np.stack((sums.rewards, sums.visits), axis=2)
        leaving = self._successors(outside, sums, features)
        c = scale[:, :, None] * np.concatenate((numbers, leaving), axis=2)
        return Factors(A, B, c, basis, n_samples)

    def basis(self, rcond: float, *, intercept: bool) -> FeatureBasis:
        """Return an orthonormal basis of the features f or (f, 1)."""
        return self._linked_basis(rcond)[0] if intercept else self._basis(rcond)

    def step(self, t: int) -> Step | None:
        """Frequencies and mean rewards of a timestep; None beyond ``t_max``."""
        if t > self.t_max:
            return None
        return counted_step(self.counts, t, self.terminal)

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

    @cached_property
    def _pooled(self) -> dict[tuple[float, int], PooledModel]:
        return {}

    def _basis(self, rcond: float) -> FeatureBasis:
        # States that no trial saw play no part, and large features of theirs must not either.
        return self._cached_basis(dense(self.features), rcond)

    def _linked_basis(self, rcond: float) -> tuple[FeatureBasis, FloatArray]:
        table = dense(self.features)
        features = np.hstack((table, np.full((len(table), 1), self.intercept)))
        return self._cached_basis(features, rcond), features

    @cached_property
    def _bases(self) -> dict[tuple[int, float], FeatureBasis]:
        return {}

    def _cached_basis(self, features: FloatArray, rcond: float) -> FeatureBasis:
        key = (features.shape[1], rcond)
        if key not in self._bases:
            self._bases[key] = FeatureBasis.of(features * self._seen[:, None], rcond)
        return self._bases[key]

    def _sums(self, windows: IntArray) -> _Sums:
        """Add up what was seen in each window on leaving each state."""
        select = window_sums(windows, self.t_max)
        visits = (select @ self.visits).toarray()
        rewards = (select @ self.counts.reward_sums).toarray()
        # Late windows visit few states: the others are left out of everything that follows.
        visited = np.flatnonzero(visits.any(axis=0))
        return _Sums(visited, visits[:, visited], rewards[:, visited])

    def _successors(self, windows: IntArray, sums: _Sums, features: FloatArray) -> FloatArray:
        """Return Σ f(s') over the next states s' of each visited state, shape (n, k, d)."""
        window, count, state, next_state = self.transitions(windows)
        n, S, k = len(windows), self.counts.n_states, len(sums.visited)
        row = window * k + np.searchsorted(sums.visited, state)
        # One sparse product gives Σ_s' N(s, s') f(s') for every window and state.
        by_state = sparse.csr_array((count, (row, next_state)), shape=(n * k, S))
        return np.asarray(by_state @ features).reshape(n, k, -1)

    def transitions(self, windows: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """Return the window, number, state and next state of all transitions in windows.

        A window's are those of rows that follow each other: there is no need for a product,
        which would hold an array of all pairs of states.
        """
        N = self.counts.transition_counts
        first, last = N.indptr[windows[:, 0]], N.indptr[windows[:, 1]]
        window = np.repeat(np.arange(len(windows)), last - first)
        place = np.concatenate([np.arange(a, b) for a, b in zip(first, last, strict=True)])
        state, next_state = np.divmod(N.indices[place].astype(np.int64), self.counts.n_states)
        return window, N.data[place], state, next_state

    def occupancy(self, windows: IntArray) -> FloatArray:
        """Visiting frequency of each state in each window, shape (n, S)."""
        visits = (window_sums(windows, self.t_max) @ self.visits).toarray()
        return np.asarray(visits / visits.sum(axis=1, keepdims=True))

    def occupancy_of(self, windows: IntArray) -> Callable[[IntArray], FloatArray]:
        """Visiting frequency of some states (m,) in each window, (n, m), as a function of them."""
        visits = sparse.csc_array(window_sums(windows, self.t_max) @ self.visits)
        total = visits.sum(axis=1)[:, None]
        return lambda states: np.asarray(visits[:, states].toarray() / total)

    def independent_samples(self, windows: IntArray) -> Callable[[IntArray], FloatArray]:
        """Visits of some states (m,) in each window that were not stays, or else all, (n, m)."""
        visits = sparse.csc_array(window_sums(windows, self.t_max) @ self.visits)
        window, count, state, next_state = self.transitions(windows)
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
        _, count, _, following = self.transitions(np.array([[t, t + 1]]))
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
        check_pairs("linear", 0 if self.trials is None else len(self.trials))
        assert self.trials is not None
        kernel = kernel.fit_width(self.features[: max(_MOST_OF_GRAM, 2)])
        lengths = (self.trials >= 0).sum(axis=1)
        if (lengths <= self.t_max).any():
            F = self.features
            return cut_pairs_discrepancy(
                self.trials, lengths, lambda x, y: kernel.paired(F[x], F[y])
            )
        if self.features.shape[0] <= _MOST_OF_GRAM:
            return paired_mean_discrepancy(self.trials, kernel(self.features, self.features))
        return paired_feature_discrepancy(self.trials, self.features, kernel)

    def total_variation(self) -> SquaredDistance:
        """Squared total variation between timesteps, without a dense distribution.

        ½ Σ |p - q| = 1 - Σ min(p, q), of which only states that both visit are part.
        """
        visits, n_at = self.visits, self.counts.trials_at
        anchor_share = np.zeros(self.counts.n_states)

        def squared(anchor: int, start: int, stop: int) -> FloatArray:
            here, there = visits[[anchor]], visits[start:stop]
            # As many trials there as here, where some were cut short in between.
            scale = n_at[anchor] / n_at[start:stop]
            anchor_share[here.indices] = here.data
            seen = there.data * np.repeat(scale, np.diff(there.indptr))
            common = np.minimum(seen, anchor_share[there.indices])
            anchor_share[here.indices] = 0.0
            shared = sparse.csr_array((common, there.indices, there.indptr), shape=there.shape)
            return np.asarray(np.square(1.0 - shared.sum(axis=1) / n_at[anchor]))

        return squared


def _roots(sums: _Sums, n_samples: IntArray, U: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return A = D^{1/2} U, and what turns sums over a state's samples into rows of B and c."""
    # The root of p, and of n p by which sums over samples become means times that.
    root = np.sqrt(sums.visits / n_samples[:, None])
    scale = 1.0 / (np.sqrt(np.maximum(sums.visits, 1)) * np.sqrt(n_samples)[:, None])
    return root[:, :, None] * U[sums.visited], scale
