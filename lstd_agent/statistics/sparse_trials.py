r"""Kept trials whose features are many and sparse, such as tiles: rows in place of moments.

Of 10⁵ tiles a sample is in 8, so that the features of all samples take less memory than a single
product of dense ones would. Equations of windows are products of those rows, in CSR form.

Constants must be among what features can represent, or they get one more for it: (f, 1).

The *occupancy* is the Christoffel function of `lstd_agent.statistics.moments`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from scipy import sparse

from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.errors import EvaluationError
from lstd_agent.features.rows import Rows, is_sparse
from lstd_agent.statistics.closing import LeftOut, ends_at_unseen, undetermined_ends
from lstd_agent.statistics.factored import Factored

if TYPE_CHECKING:
    from lstd_agent.statistics.trial_moments import TrialMoments

# Features are taken for sparse if there are at least so many, and so small a part is not zero.
_FEWEST_SPARSE = 1000
_LARGEST_DENSITY = 0.02

WindowKey: TypeAlias = tuple[int, int, bool]
"""Timesteps start and stop, and whether with the feature for constants."""


def window_key(window: IntArray, one: bool) -> WindowKey:
    """Return what tells a closed window from others."""
    return int(window[0]), int(window[1]), one


def are_sparse(rows: Rows) -> bool:
    """Tell whether features (n, d) are many and sparse."""
    n, d = rows.shape
    return bool(is_sparse(rows) and d >= _FEWEST_SPARSE and rows.nnz <= _LARGEST_DENSITY * n * d)


class Samples(NamedTuple):
    """Features (n, d) of samples and of what followed them, rewards (n,), and whose they are.

    Those of a trial are in order of time.
    """

    features: sparse.csr_array
    successors: sparse.csr_array
    rewards: FloatArray
    trial: IntArray


@dataclass(frozen=True, eq=False)
class RowEquations:
    """Equations of a window: X = F^T (F - F'), of features that samples have, scaled.

    Attributes
    ----------
    Z : Factored
        F^T F of the features of samples, those of a trial in order of time.
    steps : csr_array, shape (n, k)
        F - F', of successors within the window.
    trial : ndarray of int, shape (n,)
        Whose the samples are.
    y : ndarray, shape (d, 2)
        Of the rewards and of ones.
    constant : ndarray, shape (d,), optional
        Weights of the value 1, where features can represent it.
    """

    Z: Factored
    steps: sparse.csr_array
    trial: IntArray
    y: FloatArray
    constant: FloatArray | None

    @classmethod
    def of(cls, samples: Samples, Z: Factored, constant: FloatArray | None) -> RowEquations:
        """Return those of samples, with Z of theirs."""
        f, successors, rewards, trial = samples
        y = np.asarray(f.T @ np.stack((rewards, np.ones(len(rewards))), axis=1))
        return cls(Z, sparse.csr_array(Z.F - Z.scaled(successors)), trial, y, constant)

    @property
    def scaled_constant(self) -> FloatArray:
        """Weights of the value 1, scaled."""
        assert self.constant is not None
        return np.asarray(self.constant[self.Z.seen] / self.Z.scale.diagonal())


class SparseTrials:
    """Sparse features of kept trials, as the sums that linked systems are made of.

    Parameters
    ----------
    sums : TrialMoments
        With the rows of each batch.
    intercept : float
        1, or 0 in tasks that end.
    whole : SparseTrials, optional
        Of which these are a part: what is found of all trials is where to begin with some.

    Attributes
    ----------
    solved : dict
        What is found of closed windows, for parts to begin with.
    """

    def __init__(
        self, sums: TrialMoments, intercept: float, whole: SparseTrials | None = None
    ) -> None:
        self._sums = sums
        self._intercept = intercept
        self._whole = whole
        self._closed: dict[WindowKey, Samples] = {}
        self.solved: dict[WindowKey, dict[str, FloatArray]] = {}

    def solved_of_whole(self, key: WindowKey) -> dict[str, FloatArray]:
        """Return what is found of a window of all trials, of which these are a part."""
        return {} if self._whole is None else self._whole.solved.get(key, {})

    @cached_property
    def n_features(self) -> int:
        """Number of features d, without one for constants."""
        return int(self._sums.parts[0].rows.shape[1])

    @cached_property
    def _total(self) -> float | None:
        """What the features of each observation sum to, where that is the same for all."""
        if self._whole is not None:
            return self._whole._total
        totals = np.concatenate([part.rows.sum(axis=1) for part in self._sums.parts])
        same = totals[0] != 0.0 and np.allclose(totals, totals[0], rtol=1e-12)
        return float(totals[0]) if same else None

    @property
    def has_one(self) -> bool:
        """Whether a feature for constants comes after the others."""
        return bool(self._intercept) and self._total is None

    def samples(self, start: int, stop: int) -> Samples:
        """Return the samples of timesteps start to stop - 1, with a feature for constants."""
        parts = [part.between(start, stop) for part in self._sums.parts]
        f, successors, rewards, trial = zip(*parts, strict=True)
        before = np.cumsum([0] + [part.kept.n_trials for part in self._sums.parts[:-1]])
        return Samples(
            self._stacked(f),
            self._stacked(successors),
            np.concatenate(rewards),
            np.concatenate([own + n for own, n in zip(trial, before, strict=True)]),
        )

    def _stacked(self, parts: Any) -> sparse.csr_array:
        rows: sparse.csr_array = sparse.csr_array(sparse.vstack(parts, format="csr"))
        if not self.has_one:
            return rows
        one = sparse.csr_array(np.ones((rows.shape[0], 1)))
        return sparse.csr_array(sparse.hstack((rows, one), format="csr"))

    def n_samples(self, window: IntArray) -> int:
        """Return the number of samples of a window."""
        return int(self._sums.trials_at[window[0] : window[1]].sum())

    def open_equations(self, window: IntArray) -> tuple[RowEquations, Samples]:
        """Return the equations of a window with an open end, and the samples at that end."""
        start, stop = window.tolist()
        inside, end = self.samples(start, stop - 1), self.samples(stop - 1, stop)
        nothing = sparse.csr_array(end.features.shape)
        samples = Samples(
            sparse.csr_array(sparse.vstack((inside.features, end.features))),
            sparse.csr_array(sparse.vstack((inside.successors, nothing))),
            np.concatenate((inside.rewards, end.rewards)),
            np.concatenate((inside.trial, end.trial)),
        )
        return RowEquations.of(samples, Factored(samples.features), None), end

    def closed_equations(self, window: IntArray, *, one: bool) -> RowEquations:
        """Return the equations of a window whose successors are all its own unknowns.

        Samples that lead to what none of the window is like tell nothing of what that is worth,
        and are left out.

        Parameters
        ----------
        window : ndarray of int, shape (2,)
        one : bool
            Whether to take the feature for constants, if there is one.

        Raises
        ------
        EvaluationError
            If no sample is left.
        """
        samples = self._possibly_closed(window, one)
        constant = self._constant(samples.features.shape[1])
        Z, is_closed = Factored(samples.features), constant is None
        while not is_closed:
            unseen = ends_at_unseen(*samples[:2], samples.trial)
            samples = _at(samples, ~unseen)
            Z = Factored(samples.features)
            lost = undetermined_ends(Z, samples.successors, samples.trial)
            samples, is_closed = _at(samples, ~lost), not lost.any()
        if self._whole is None:
            self._closed[window_key(window, one)] = samples
        left_out = self._left_out(window, samples)
        if left_out.number == left_out.of:
            raise EvaluationError(str(left_out))
        return RowEquations.of(samples, Z, constant)

    def _left_out(self, window: IntArray, closed: Samples) -> LeftOut:
        n = self.n_samples(window)
        return LeftOut(int(window[0]), int(window[1]), n - len(closed.trial), n)

    @property
    def most_left_out(self) -> LeftOut | None:
        """Of the window of which the largest part tells nothing, once there is a fit."""
        found = [self._left_out(np.array(key[:2]), closed) for key, closed in self._closed.items()]
        return max(found, key=lambda window: window.share, default=None)

    def _possibly_closed(self, window: IntArray, one: bool) -> Samples:
        """Return the samples of a window, or what is left of them where all trials are known."""
        key = window_key(window, one)
        if self._whole is not None and key in self._whole._closed:
            samples = self._whole._closed[key]
            own = [part.first + np.arange(part.kept.n_trials) for part in self._sums.parts]
            return _at(samples, np.isin(samples.trial, np.concatenate(own)))
        samples = self.samples(*window.tolist())
        if one or not self.has_one:
            return samples
        f, successors = samples[:2]
        return samples._replace(features=f[:, :-1], successors=successors[:, :-1])

    def _constant(self, d: int) -> FloatArray | None:
        """Return weights (d,) of the value 1, or None where features cannot represent it."""
        if self._intercept and self._total is not None:
            return np.full(d, 1.0 / self._total)
        return np.append(np.zeros(d - 1), 1.0) if d > self.n_features else None

    def mean_features(self, start: int, stop: int) -> FloatArray:
        """Return the mean features (d,) over timesteps start to stop - 1."""
        parts = [part.between(start, stop) for part in self._sums.parts]
        n = sum(part[0].shape[0] for part in parts)
        return np.asarray(sum(part[0].sum(axis=0) for part in parts) / n)

    def mean_following_features(self, t: int) -> FloatArray:
        """Return the mean features (d,) of what followed a timestep."""
        parts = [part.between(t, t + 1) for part in self._sums.parts]
        n = sum(part[0].shape[0] for part in parts)
        return np.asarray(sum(part[1].sum(axis=0) for part in parts) / n)

    @cached_property
    def squares(self) -> FloatArray:
        """Σ f² over all timesteps, shape (d,)."""
        f = [part.between(0, self._sums.t_max + 1)[0] for part in self._sums.parts]
        return np.asarray(sum(rows.power(2).sum(axis=0) for rows in f))

    def christoffel(
        self, window: IntArray, tolerance: float, fewest: float
    ) -> Callable[[Rows], FloatArray]:
        """Return the Christoffel function (m,) of a window, of features (m, d).

        Parameters
        ----------
        window : ndarray of int, shape (2,)
        tolerance : float
            A larger part of scaled features than this is not outside the range of Z.
        fewest : float
            An occupancy of fewer samples is 0.
        """
        f = self.samples(*window.tolist()).features
        n, Z = f.shape[0], Factored(f)

        def occupancy(features: Rows) -> FloatArray:
            x = self._stacked([sparse.csr_array(features)])
            shares = np.zeros(x.shape[0])
            for rows, q in Z.scaled_columns(x):
                outside, leverage = Z.leverages(q)
                share = 1.0 / (n * np.maximum(leverage, 1e-300))
                inside = (outside <= tolerance) & (share * n >= fewest)
                shares[rows] = np.where(inside, share, 0.0)
            return shares

        return occupancy


def _at(samples: Samples, kept: IntArray | BoolArray) -> Samples:
    f, successors, rewards, trial = samples
    return Samples(f[kept], successors[kept], rewards[kept], trial[kept])
