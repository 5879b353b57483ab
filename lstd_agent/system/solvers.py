r"""Other ways to the seminorm minimizer than singular values: ``solver="qr"`` and ``"lsmr"``.

The projected Bellman error of Thm ``epb_minimizer`` is a sum of squares, ‖K w - c‖², with
K = LᵀB and c = Lᵀc of factors (L an orthonormal basis of the range of A), and of moments with

.. math:: K = R^{-T} X_p, \quad c = R^{-T} y_p,

where :math:`Z_{pp} = R^T R` is a Cholesky decomposition of the rows p that its pivots single out:
X and y are in the range of Z, and there :math:`\|v\|_{Z^\dagger} = \|R^{-T} v_p\|`.

- ``"qr"``: K is decomposed with column pivots; columns beyond its rank get weight zero. This is a
  (1,3)-inverse: it makes the error as small as the pseudoinverse does, but not the weights.
- ``"lsmr"``: conjugate steps on the normal equations (Fong & Saunders 2011), from zero weights, so
  that they come to the smallest minimizer. There are no factors of K to tell a rank or what is
  left open: the rank is that of Z, all of which counts as determined.

Weights differ where the samples leave them open; values that samples determine do not.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from lstd_agent.arrays import FloatArray
from lstd_agent.errors import EvaluationError
from lstd_agent.statistics.equations import Factors, Moments

SolverName = Literal["svd", "qr", "lsmr"]
SOLVERS: tuple[SolverName, ...] = ("svd", "qr", "lsmr")

_ROUNDING = 1e-14
_LSMR_TOLERANCE = 1e-14
_ITERATIONS_PER_UNKNOWN = 50


class Solved(NamedTuple):
    """Weights (d, q) of one distribution, rank, condition, and rows (rank, d) determined."""

    weights: FloatArray
    rank: int
    condition: float
    rows: FloatArray


class _LeastSquares(NamedTuple):
    """K w = c, to be solved up to singular values of this size."""

    K: FloatArray
    c: FloatArray
    cutoff: float


def solve_moments(moments: Moments, i: int, rcond: float, solver: SolverName) -> Solved:
    """Solve distribution i; y is (n, d, q)."""
    from scipy.linalg import lapack, solve_triangular  # takes long to import

    Z = moments.Z[i]
    largest = float(np.abs(Z).max())
    factor, pivots, rank, _ = lapack.dpstrf(Z, tol=rcond * largest)
    p = pivots[:rank] - 1
    R = np.triu(factor[:rank, :rank])
    right = np.hstack((moments.X[i][p], moments.y[i][p]))
    reduced = solve_triangular(R, right, trans="T") if rank else right
    d = len(Z)
    K, c = reduced[:, :d], reduced[:, d:]
    size = float(np.linalg.norm(K, axis=0).max(initial=0.0))
    cutoff = max(rcond * size, _ROUNDING * np.sqrt(largest))
    return _solve(_LeastSquares(K, c, cutoff), solver)


def solve_factors(factors: Factors, i: int, rcond: float, solver: SolverName) -> Solved:
    """Solve distribution i; c is (n, k, q)."""
    from scipy.linalg import qr  # takes long to import

    L, R, _ = qr(factors.A[i], mode="economic", pivoting=True)
    size = np.abs(np.diagonal(R))
    largest = float(size.max(initial=0.0))
    L = L[:, size > rcond * largest]
    reduced = _LeastSquares(L.T @ factors.B[i], L.T @ factors.c[i], rcond * largest)
    found = _solve(reduced, solver)
    basis = factors.basis
    weights = basis.V @ (found.weights / basis.singular[:, None])
    return found._replace(weights=weights, rows=(found.rows * basis.singular) @ basis.V.T)


def _solve(problem: _LeastSquares, solver: SolverName) -> Solved:
    return _by_lsmr(problem) if solver == "lsmr" else _by_qr(problem)


def _by_qr(problem: _LeastSquares) -> Solved:
    from scipy.linalg import qr, solve_triangular

    K, c, cutoff = problem
    d = K.shape[1]
    if K.shape[0] == 0:
        return Solved(np.zeros((d, c.shape[1])), 0, 1.0, np.zeros((0, d)))
    Q, R, pivots = qr(K, mode="economic", pivoting=True)
    size = np.abs(np.diagonal(R))
    rank = int((size > cutoff).sum())
    w = np.zeros((d, c.shape[1]))
    rows = np.zeros((rank, d))
    rows[:, pivots] = R[:rank]
    if rank:
        w[pivots[:rank]] = solve_triangular(R[:rank, :rank], Q[:, :rank].T @ c)
    condition = float(size[0] / size[rank - 1]) if rank else 1.0
    return Solved(w, rank, condition, rows)


def _by_lsmr(problem: _LeastSquares) -> Solved:
    from scipy.sparse.linalg import lsmr

    K, c, cutoff = problem
    r, d = K.shape
    w = np.zeros((d, c.shape[1]))
    condition = 1.0
    largest = float(np.linalg.norm(K)) if K.size else 0.0
    if largest > cutoff:
        for j in range(c.shape[1]):
            found = lsmr(
                K,
                c[:, j],
                atol=_LSMR_TOLERANCE,
                btol=_LSMR_TOLERANCE,
                conlim=0.0,
                maxiter=max(1, _ITERATIONS_PER_UNKNOWN * min(r, d)),
            )
            w[:, j], why, condition = found[0], found[1], max(condition, float(found[6]))
            if why == 7:
                raise EvaluationError(
                    f"LSMR has not converged in {found[2]} iterations (condition about "
                    f"{found[6]:.1e}): use solver='svd' or 'qr', or fewer features"
                )
    return Solved(w, r, condition, np.eye(d))
