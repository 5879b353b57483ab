r"""The seminorm LSTD: minimizer, projector and error (Thm ``epb_minimizer``).

For a state distribution p that may be zero somewhere, and features f(s), let

.. math::

    X = E[f(S) (f(S) - f(S'))^T], \quad Z = E[f(S) f(S)^T], \quad y = E[(r(S) - g) f(S)],

with S drawn from p. The mean squared projected Bellman error is the seminorm
:math:`e_{PB}(w) = \|X w - y\|^2_{Z^\dagger}`, and one minimizer is

.. math:: w = (Z^{\dagger/2} X)^\dagger \, Z^{\dagger/2} y .

Z is singular whenever fewer states are visited than there are features, and X is singular
whenever the features can represent a constant. Both are the normal case, so both
pseudoinverses cut off at a *relative* tolerance ``rcond``, and the ranks are reported.

From square roots, Z = A^T A, X = A^T B and y = A^T c, it follows without forming Z: if L is an
orthonormal basis of the range of A, then up to a rotation :math:`Z^{\dagger/2} A^T = L^T`, and

.. math:: w = (L^T B)^\dagger L^T c .
"""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.statistics.equations import Equations, Factors, Moments, thin_svd
from lstd_agent.system.solvers import SolverName, solve_factors, solve_moments

DEFAULT_RCOND = 1e-10

_ROUNDING = 1e-14


@dataclass(frozen=True)
class Minimizer:
    """Minimizing weights and how well they are determined.

    Attributes
    ----------
    weights : ndarray, shape (n, d) or (n, d, m)
        As the equations have one right-hand side, or m.
    rank : ndarray of int, shape (n,)
        Numerical rank of Z^{†/2} X: how many directions of w the data determine.
    condition : ndarray, shape (n,)
        Ratio of the largest to the smallest singular value kept (1 where the rank is 0).
    determined : ndarray, shape (n, d, r), optional
        If asked for: columns that span the directions of w that the data determine; the others
        are zero.
    """

    weights: FloatArray
    rank: IntArray
    condition: FloatArray
    determined: FloatArray | None = None

    @classmethod
    def concatenate(cls, parts: Sequence[Minimizer]) -> Minimizer:
        """Join the minimizers of several runs of distributions, without `determined`."""
        return cls(
            np.concatenate([part.weights for part in parts]),
            np.concatenate([part.rank for part in parts]),
            np.concatenate([part.condition for part in parts]),
        )

    def take(self, place: IntArray) -> Minimizer:
        """Return the minimizers at some places (n,)."""
        determined = None if self.determined is None else self.determined[place]
        return Minimizer(self.weights[place], self.rank[place], self.condition[place], determined)


def check_rcond(rcond: float) -> float:
    """Validate a relative cutoff: above 0, since rounding errors are no rank, and below 1."""
    if isinstance(rcond, numbers.Real) and 0.0 < rcond < 1.0:
        return float(rcond)
    raise InvalidInputError(f"rcond must be above 0 and below 1; got {rcond!r}")


def minimize(
    equations: Equations,
    rcond: float = DEFAULT_RCOND,
    *,
    directions: bool = False,
    solver: SolverName = "svd",
) -> Minimizer:
    """Return the minimizer of the projected Bellman error of each distribution.

    Parameters
    ----------
    equations : Moments or Factors
        Of n distributions.
    rcond : float
        Relative cutoff of both pseudoinverses. Z holds squares, so that from moments 1e-10
        forgets directions of features that are 1e-5 times as large as the largest, or states
        with 1e-10 times its visits, and rounding errors take over below about 1e-14. Raise it
        if the reported condition comes near its inverse; rescale features before lowering it.
    directions : bool
        Whether to tell the directions of w that the data determine.
    solver : {"svd", "qr", "lsmr"}
        By singular values, or as in `lstd_agent.system.solvers`.

    Returns
    -------
    Minimizer
        ``condition`` is that of Z^{†/2} X; of factors, of the fit in their orthonormal basis.

    Notes
    -----
    Source: Thm ``epb_minimizer``. Of all minimizers, the smallest: directions that the data
    leave open get weight zero.
    """
    if isinstance(equations, Factors):
        if solver == "svd":
            return _minimize_factors(equations, rcond, directions)
        return _minimize_each(equations, rcond, directions, solver)
    scale = equations.scale
    if scale is not None:
        sizes = np.outer(scale, scale)
        of_sides = scale if equations.y.ndim == 2 else scale[:, None]
        X, Z, y = equations.X / sizes, equations.Z / sizes, equations.y / of_sides
        equations = Moments(X, Z, y, equations.n_samples)
    if solver == "svd":
        found = _minimize_moments(equations, rcond, directions)
    else:
        found = _minimize_each(equations, rcond, directions, solver)
    if scale is None:
        return found
    # The functional q·(scale w) of scaled weights is (scale q)·w.
    determined = None if found.determined is None else found.determined * scale[:, None]
    return replace(found, weights=found.weights / of_sides, determined=determined)


def inverse_square_root(Z: FloatArray, rcond: float = DEFAULT_RCOND) -> FloatArray:
    """Return the factors M of Z† = M^T M, shape (n, d, d), for symmetric PSD Z (n, d, d).

    M = diag(μ)^{†/2} U^T from the eigendecomposition Z = U diag(μ) U^T (Lemma
    ``z_zpinv_psd``); eigenvalues up to ``rcond`` times the largest count as zero.
    """
    eigenvalue, U = np.linalg.eigh(Z)
    keep = eigenvalue > rcond * eigenvalue[:, -1:]
    root = np.zeros_like(eigenvalue)
    root[keep] = eigenvalue[keep] ** -0.5
    return np.asarray(root[:, :, None] * U.transpose(0, 2, 1))


def _minimize_moments(moments: Moments, rcond: float, directions: bool) -> Minimizer:
    M = inverse_square_root(moments.Z, rcond)
    U, singular, Vt = thin_svd(M @ moments.X)
    # X is a difference from Z: what is smaller than the rounding errors of that is nothing, even
    # if it is all there is, as with features that are constant.
    rounding = _ROUNDING * np.sqrt(np.abs(moments.Z).max(axis=(1, 2)))
    keep = singular > np.maximum(rcond * singular[:, 0], rounding)[:, None]
    y = _columns(moments.y, moments.X)
    target = (M @ y).transpose(0, 2, 1) @ U
    coordinates = target * inverse_where(keep, singular)[:, None]
    weights = (coordinates @ Vt).transpose(0, 2, 1)
    return Minimizer(
        weights.reshape(moments.y.shape),
        keep.sum(axis=1),
        condition_number(keep, singular),
        np.where(keep[:, :, None], Vt, 0.0).transpose(0, 2, 1) if directions else None,
    )


def _minimize_factors(factors: Factors, rcond: float, directions: bool) -> Minimizer:
    basis = factors.basis
    L, size, _ = thin_svd(factors.A)
    L *= (size > rcond * size[:, :1])[:, None, :]
    Lt = L.transpose(0, 2, 1)
    U, singular, Vt = thin_svd(Lt @ factors.B)
    # B is a difference from A, so the size of A is what its rounding errors are relative to.
    keep = singular > rcond * size[:, :1]
    target = (Lt @ _columns(factors.c, factors.A)).transpose(0, 2, 1) @ U
    coordinates = target * inverse_where(keep, singular)[:, None]

    # In the basis, w has these coordinates along the directions that the data determine. The
    # smallest such w is Q R^{-T} coordinates, where Q R are those directions times σ.
    scaled = np.where(keep[:, :, None], Vt * basis.singular, 0.0)
    Q, R = np.linalg.qr(scaled.transpose(0, 2, 1))
    R += np.eye(R.shape[1]) * ~keep[:, None, :]
    w = Q @ np.linalg.solve(R.transpose(0, 2, 1), coordinates.transpose(0, 2, 1))
    n, r, m = w.shape
    weights = w.transpose(0, 2, 1).reshape(n * m, r) @ basis.V.T
    return Minimizer(
        weights if factors.c.ndim == 2 else weights.reshape(n, m, -1).transpose(0, 2, 1),
        keep.sum(axis=1),
        condition_number(keep, singular),
        basis.V @ np.where(keep[:, None, :], Q, 0.0) if directions else None,
    )


def _minimize_each(
    equations: Equations, rcond: float, directions: bool, solver: SolverName
) -> Minimizer:
    """Minimize one distribution after the other, by another solver."""
    y = equations.c if isinstance(equations, Factors) else equations.y
    if isinstance(equations, Factors):
        several = replace(equations, c=_columns(y, equations.A))
        found = [solve_factors(several, i, rcond, solver) for i in range(len(y))]
    else:
        sides = replace(equations, y=_columns(y, equations.X))
        found = [solve_moments(sides, i, rcond, solver) for i in range(len(y))]
    weights = np.stack([each.weights for each in found])
    d = weights.shape[1]
    determined = np.zeros((len(found), d, d))
    for columns, each in zip(determined, found, strict=True):
        columns[:, : len(each.rows)] = each.rows.T
    return Minimizer(
        weights[:, :, 0] if y.ndim == 2 else weights,
        np.array([each.rank for each in found]),
        np.array([each.condition for each in found]),
        determined if directions else None,
    )


def _columns(y: FloatArray, matrix: FloatArray) -> FloatArray:
    """Return right-hand sides as columns, of which a single one may have no axis."""
    return y if y.ndim == matrix.ndim else y[:, :, None]


def inverse_where(keep: BoolArray, singular: FloatArray) -> FloatArray:
    """Return 1/σ of the singular values (n, r) to keep, and 0 of all others."""
    inverse = np.zeros_like(singular)
    inverse[keep] = 1.0 / singular[keep]
    return inverse


def condition_number(keep: BoolArray, singular: FloatArray) -> FloatArray:
    """Return the largest of descending singular values (n, r) over the smallest to keep, or 1."""
    smallest = np.where(keep, singular, np.inf).min(axis=1)
    determined = keep.any(axis=1)
    return np.where(determined, singular[:, 0] / np.where(determined, smallest, 1.0), 1.0)


def projected_bellman_error(
    weights: FloatArray, moments: Moments, rcond: float = DEFAULT_RCOND
) -> FloatArray:
    """Return e_PB(w) = ‖X w - y‖² in the Z†-seminorm, shape (n,) (eq. ``epb``).

    Parameters
    ----------
    weights : ndarray, shape (n, d)
    moments : Moments
        Of n distributions.
    rcond : float
        Relative cutoff of the pseudoinverse of Z.
    """
    M = inverse_square_root(moments.Z, rcond)
    residual = moments.X @ weights[:, :, None] - moments.y[:, :, None]
    return np.asarray(np.square(M @ residual).sum(axis=(1, 2)))


def projector(
    features: FloatArray, distribution: FloatArray, rcond: float = DEFAULT_RCOND
) -> FloatArray:
    """Return the projection F Z† F^T D_p, shape (S, S) (Lemma ``projector``).

    Parameters
    ----------
    features : ndarray, shape (S, d)
    distribution : ndarray, shape (S,)
    rcond : float
        Relative cutoff of the pseudoinverse of Z.
    """
    Z = features.T @ (distribution[:, None] * features)
    MF = inverse_square_root(Z[None], rcond)[0] @ features.T
    return np.asarray(MF.T @ (MF * distribution))
