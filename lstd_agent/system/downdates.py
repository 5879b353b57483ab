r"""Linked systems of many dense features without each batch of trials, for the price of a few fits.

A window is decomposed once, for all trials. With :math:`K = Z^{\dagger/2} X = U \Sigma V^T`, as of
Thm ``epb_minimizer``, that gives L and R with :math:`L X R = I`, and N that makes nothing of X:

.. math:: L = U^T Z^{\dagger/2}, \quad R = V \Sigma^{-1}, \quad N X = 0 .

Without a batch the sums are X', Z' and y', a little less of each, and the system is solved for the
same directions, w' = R z, by elimination, which takes a small part of the time:

.. math:: L X' R z = L y' .

The matrix is near the identity. Where N is not empty, as in windows whose successors are all
their own unknowns, :math:`u = N^T + L^T a` makes nothing of X' if
:math:`(L X' R)^T a = -(N X' R)^T`. Least squares leave the residual
:math:`Z' u (u^T Z' u)^{-1} u^T y'`, which is taken away from y' first; the gain is that for which
there is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.decompositions import svd
from lstd_agent.statistics.coordinates import reduced
from lstd_agent.statistics.equations import Equations, Moments
from lstd_agent.statistics.interface import SampledStatistics
from lstd_agent.system.approximators import System
from lstd_agent.system.gain import mean_tail_reward
from lstd_agent.system.minimizer import above_rounding, inverse_square_root

# Beside 1: what of the samples that tell of a residual are not those of the batch.
_LEAST = 1e-6

# A matrix that should be near the identity, and is worse conditioned than this, is singular.
_SINGULAR = 1e-8


class _NotNearError(Exception):
    """What a batch alone determines is to be fitted afresh without it."""


@dataclass(frozen=True, eq=False)
class _Directions:
    """L (ρ, d), R (d, ρ) and N (q, d) of the sums of a window."""

    L: FloatArray
    R: FloatArray
    N: FloatArray

    @classmethod
    def of(cls, sums: Moments, size: FloatArray, rcond: float) -> _Directions:
        """Decompose sums of features of these sizes (d,)."""
        sizes = np.outer(size, size)
        Z = sums.Z / sizes
        M = inverse_square_root(Z, rcond)[0]
        M = M[M.any(axis=1)]
        U, singular, Vt = svd(M @ (sums.X[0] / sizes))
        keep = above_rounding(singular[None], Z, rcond)[0]
        left = M.T @ U / size[:, None]
        return cls(left[:, keep].T, (Vt[keep] / singular[keep, None] / size).T, left[:, ~keep].T)

    def of_others(self, sums: Moments) -> _Others:
        """Return what sums without a batch make of the directions."""
        from scipy.linalg import lapack  # takes long to import

        X = sums.X[0]
        LX, NX = self.L @ X, self.N @ X
        K = LX @ self.R
        factor, pivots, failed = lapack.dgetrf(K)
        inverse_condition, _ = lapack.dgecon(factor, np.linalg.norm(K, 1))
        if failed or not inverse_condition > _SINGULAR:
            raise _NotNearError
        a, _ = lapack.dgetrs(factor, pivots, (NX @ self.R).T, trans=1)
        u = self.N.T - self.L.T @ a
        Zu = sums.Z[0] @ u
        eigenvalues, Q = np.linalg.eigh(u.T @ Zu)  # the identity, of all trials
        if (eigenvalues < _LEAST).any():
            raise _NotNearError
        return _Others(self, factor, pivots, u, Zu @ (Q / eigenvalues) @ Q.T)


class _Others(NamedTuple):
    """Factors of L X' R, columns u (d, q) that make nothing of X', and Z' u (u^T Z' u)^{-1}."""

    directions: _Directions
    factor: FloatArray
    pivots: IntArray
    u: FloatArray
    residuals: FloatArray

    def minimizer(self, y: FloatArray) -> FloatArray:
        """Return w (d,)."""
        from scipy.linalg import lapack

        y = y - self.residuals @ (self.u.T @ y)
        z, _ = lapack.dgetrs(self.factor, self.pivots, self.directions.L @ y)
        return np.asarray(self.directions.R @ z)


def systems_without_each(
    system: System,
    whole: SampledStatistics,
    others: Sequence[SampledStatistics],
    rcond: float,
    *,
    gain_is_given: bool,
) -> list[System | None]:
    """Return a linked system of single steps, fitted to all trials, without each batch of them.

    Parameters
    ----------
    system : System
    whole : SampledStatistics
        Of all trials.
    others : sequence of SampledStatistics
        Of all trials but each batch.
    rcond : float
        Relative cutoff of the pseudoinverses.
    gain_is_given : bool
        Whether the gain is not to be estimated.

    Returns
    -------
    list of System or None
        None without a batch that alone determines something.
    """
    reduction = whole.reduction
    whole, others = reduced(whole), [reduced(other) for other in others]
    windows, d = system.windows, len(whole.feature_scale) - 1
    n = len(windows)
    gains = np.full(len(others), system.gain)
    if not gain_is_given:
        gains = _gains(system, whole, others, rcond)
    is_near = np.isfinite(gains)
    weights, offsets = np.zeros((len(others), n, d)), np.zeros((len(others), n))
    for k in reversed(range(n)):
        is_last = k == n - 1
        sums_of = partial(_closed if is_last else _open, window=windows[k : k + 1], rcond=rcond)
        size = whole.feature_scale[: d + (not is_last)]
        directions = _Directions.of(sums_of(whole), size, rcond)
        for b in np.flatnonzero(is_near).tolist():
            other, sums = others[b], sums_of(others[b])
            y = sums.y[0, :, :2] @ [1.0, -gains[b]]
            if not is_last:
                y = y + sums.y[0, :, 2:] @ np.append(weights[b, k + 1], offsets[b, k + 1])
            try:
                w = directions.of_others(sums).minimizer(y)
            except _NotNearError:
                is_near[b] = False
                continue
            weights[b, k] = w[:d]
            offsets[b, k] = -other.zero(windows[-1])[1] @ w if is_last else w[d]
    if reduction is not None:
        weights = reduction.coordinates.weights(weights)
    nothing = np.zeros((0, 0, 0))
    return [
        replace(system, weights=w, offsets=o, gain=float(g), open_directions=nothing)
        if near
        else None
        for w, o, g, near in zip(weights, offsets, gains, is_near, strict=True)
    ]


def _gains(
    system: System, whole: SampledStatistics, others: Sequence[SampledStatistics], rcond: float
) -> FloatArray:
    """Return the gain without each batch, estimated as of all trials; NaN where it is not near."""
    if system.gain == mean_tail_reward(whole):
        return np.array([mean_tail_reward(other) for other in others])
    last = whole.t_max
    tail = np.array([[(last + 1) // 2, last]])

    def gain(sums: Moments) -> float:
        try:
            u = directions.of_others(sums).u
        except _NotNearError:
            return np.nan
        rewards, ones = (u.T @ sums.y[0])[0, :2] if u.shape[1] == 1 else (np.nan, 1.0)
        return float(rewards / ones)

    sums = _closed_with_one(whole, tail, rcond)
    directions = _Directions.of(sums, whole.feature_scale, rcond)
    found = [gain(_closed_with_one(other, tail, rcond)) for other in others]
    return np.asarray(system.gain + np.array(found) - gain(sums))


def _closed(statistics: SampledStatistics, window: IntArray, rcond: float) -> Moments:
    return _sums(statistics.equations(window, None, rcond))


def _open(statistics: SampledStatistics, window: IntArray, rcond: float) -> Moments:
    return _sums(statistics.linked_equations(window, rcond))


def _closed_with_one(statistics: SampledStatistics, window: IntArray, rcond: float) -> Moments:
    sums = _open(statistics, window, rcond)
    return replace(sums, X=sums.X - sums.y[:, :, 2:])


def _sums(means: Equations) -> Moments:
    assert isinstance(means, Moments)
    n = float(means.n_samples[0])
    return replace(means, X=n * means.X, Z=n * means.Z, y=n * means.y)
