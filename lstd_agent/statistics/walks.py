"""What targets of several steps walk over: all timesteps, backwards, row by row.

A row is a state where states can be counted, and a single trial where they cannot. Targets of a
timestep follow from those of the next by the rows' transitions (`lstd_agent.statistics.backups`):
from state to state by their frequencies, from each trial to itself. A window's equations are sums
over its timesteps either way.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from scipy import sparse

from lstd_agent.arrays import BoolArray, FloatArray
from lstd_agent.features.rows import dense
from lstd_agent.statistics.blocks import Block
from lstd_agent.statistics.equations import Factors, FeatureBasis, Moments
from lstd_agent.statistics.interface import CountedStatistics
from lstd_agent.statistics.return_moments import ReturnMoments
from lstd_agent.statistics.trial_moments import TrialMoments
from lstd_agent.trials.kept import KeptTrials


class StateWalk:
    """The walk over states that can be counted.

    Parameters
    ----------
    statistics : CountedStatistics
    rcond : float
        Of the basis.
    """

    returns = None

    def __init__(self, statistics: CountedStatistics, rcond: float) -> None:
        self._statistics = statistics
        self._rcond = rcond
        self._basis: FeatureBasis | None = None
        self._unknown: FloatArray = np.zeros((0, 0))

    def block(self, start: int, stop: int) -> Block:
        """Frequencies of transitions and mean rewards."""
        return self._statistics.block(start, stop)

    def features(self, t: int) -> FloatArray:
        """Features (S, d), whatever the timestep."""
        return dense(self._statistics.candidate_features)

    def basis(self, *, intercept: bool) -> FeatureBasis:
        """Return an orthonormal basis of the features of all states."""
        return self._statistics.basis(self._rcond, intercept=intercept)

    def unknown(self, t: int, basis: FeatureBasis, n_columns: int) -> FloatArray:
        """Values (S, r + n_columns) by unknown weights, whatever the timestep."""
        if self._basis is not basis or self._unknown.shape[1] != basis.U.shape[1] + n_columns:
            self._basis = basis
            self._unknown = np.hstack((basis.U, np.zeros((len(basis.U), n_columns))))
        return self._unknown

    def sums(self, basis: FeatureBasis, n_columns: int) -> StateSums:
        """Begin sums by state, of which equations are made in square-root form."""
        return StateSums(basis, n_columns)


class StateSums:
    """Visits and targets of each state over a window; see `Factors`."""

    def __init__(self, basis: FeatureBasis, n_columns: int) -> None:
        self._basis = basis
        self._visits = np.zeros(len(basis.U))
        self._targets = np.zeros((len(basis.U), n_columns))
        self._n_samples = 0

    def add(self, block: Block, targets: FloatArray) -> None:
        """Add targets as often as their rows were visited."""
        self._n_samples += block.n_samples
        if block.is_single:
            self._visits[block.state] += block.visits
            self._targets[block.state] += block.visits[:, None] * targets
            return
        S, k = len(self._visits), block.state.size
        by_state = sparse.csr_array((block.visits, (block.state, np.arange(k))), shape=(S, k))
        self._visits += np.bincount(block.state, weights=block.visits, minlength=S)
        self._targets += np.asarray(by_state @ targets)

    def equations(self) -> Factors:
        """Return A, B and c of the states visited."""
        basis = self._basis
        visited = np.flatnonzero(self._visits)
        root = np.sqrt(self._visits[visited] / self._visits.sum())[:, None]
        mean = self._targets[visited] / self._visits[visited, None]
        U, r = basis.U[visited], basis.U.shape[1]
        A, B, c = root * U, root * (U - mean[:, :r]), root * mean[:, r:]
        return Factors(A[None], B[None], c[None], basis, np.array([self._n_samples]))


class TrialWalk:
    """The walk along kept trials of vectors.

    Parameters
    ----------
    moments : TrialMoments
        Of the trials.
    scale : ndarray, shape (d + 1,)
        Sizes of the features (f, 1), for rank decisions.
    intercept : float
        The 1 of (f, 1), or 0 in tasks that end.
    """

    def __init__(self, moments: TrialMoments, scale: FloatArray, intercept: float) -> None:
        self._moments = moments
        self._scale = scale
        self._intercept = intercept
        self._held: dict[int, FloatArray] = {}

    @cached_property
    def _trials(self) -> KeptTrials:
        return self._moments.kept

    @cached_property
    def _own(self) -> BoolArray | None:
        return self._trials.own

    @property
    def returns(self) -> list[ReturnMoments]:
        """The sums of each batch of trials for λ-returns."""
        return [part.returns for part in self._moments.parts]

    def block(self, start: int, stop: int) -> Block:
        """Each trial's transition and reward, if it has one by the policy and has not ended."""
        trials, own, t = self._trials, self._own, stop - 1
        has = np.ones(trials.n_trials, dtype=bool) if own is None else own[:, t]
        living = np.flatnonzero(has & ~np.isnan(trials.observations[:, t]).any(axis=1))
        one = np.ones(living.size)
        itself = sparse.csr_array(
            (one, living, np.arange(living.size + 1)), shape=(living.size, trials.n_trials)
        )
        return Block.single(t, living, one, trials.rewards[living, t], itself, int(has.sum()))

    def features(self, t: int) -> FloatArray:
        """Features (m, d) of the trials' observations."""
        if t not in self._held:
            # A timestep is asked for once more as the one that comes after the one before it.
            self._held = {u: f for u, f in self._held.items() if u == t + 1}
            self._held[t] = dense(self._moments.features(self._trials.observations[:, t]))
        return self._held[t]

    def basis(self, *, intercept: bool) -> FeatureBasis:
        """Return the features themselves: there are no states to find other coordinates by."""
        d = len(self._scale) - (not intercept)
        return FeatureBasis(np.zeros((0, d)), np.ones(d), np.eye(d))

    def unknown(self, t: int, basis: FeatureBasis, n_columns: int) -> FloatArray:
        """Values (m, r + n_columns) of the trials' observations by unknown weights."""
        f, r = self.features(t), basis.U.shape[1]
        values = np.zeros((len(f), r + n_columns))
        values[:, : f.shape[1]] = f
        values[:, f.shape[1] : r] = self._intercept
        return values

    def sums(self, basis: FeatureBasis, n_columns: int) -> TrialSums:
        """Begin sums of products of features and targets."""
        return TrialSums(self, basis, n_columns, self._scale[: basis.U.shape[1]])


class TrialSums:
    """Products of features and targets, summed over a window; see `Moments`."""

    def __init__(
        self, walk: TrialWalk, basis: FeatureBasis, n_columns: int, scale: FloatArray
    ) -> None:
        r = basis.U.shape[1]
        self._walk, self._basis, self._scale = walk, basis, scale
        self._second_moments = np.zeros((r, r))
        self._targets = np.zeros((r, n_columns))
        self._n_samples = 0
        self._waiting: list[tuple[FloatArray, FloatArray]] = []

    def add(self, block: Block, targets: FloatArray) -> None:
        """Add the targets of a timestep, trial by trial."""
        f = self._walk.unknown(block.start, self._basis, 0)[block.state]
        self._waiting.append((f, targets))
        self._n_samples += block.n_samples
        # Adding up a product takes as long as making one of few rows.
        if sum(len(rows) for rows, _ in self._waiting) >= f.shape[1]:
            self._multiply()

    def _multiply(self) -> None:
        """Add the products of all timesteps that wait for it."""
        if self._waiting:
            f, targets = map(np.concatenate, zip(*self._waiting, strict=True))
            self._second_moments += f.T @ f
            self._targets += f.T @ targets
            self._waiting = []

    def equations(self) -> Moments:
        """Return the moments X, Z and y of all timesteps so far."""
        self._multiply()
        r, n = len(self._second_moments), self._n_samples
        Z, means = self._second_moments / n, self._targets / n
        X, y = Z - means[:, :r], means[:, r:]
        return Moments(X[None], Z[None], y[None], np.array([n]), self._scale)
