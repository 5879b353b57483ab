r"""The seminorm LSTD minimizer (Thm ``epb_minimizer``).

For a state distribution p that may be zero somewhere, and features f(s), let

.. math::

    X = E[f(S) (f(S) - f(S'))^T], \quad Z = E[f(S) f(S)^T], \quad y = E[(r(S) - g) f(S)],

with S drawn from p. The mean squared projected Bellman error is the seminorm
:math:`e_{PB}(w) = \|X w - y\|^2_{Z^\dagger}`, and one minimizer is

.. math:: w = (Z^{\dagger/2} X)^\dagger \, Z^{\dagger/2} y .

Z is singular whenever fewer states are visited than there are features, and X is singular whenever
the features can represent a constant. Both are the normal case, so both pseudoinverses cut off at
*relative* tolerances, and the ranks are reported.

With square roots Z = AᵀA, X = AᵀB and y = Aᵀc, Z is never formed: if L is an orthonormal basis of
the range of A, then up to a rotation :math:`Z^{\dagger/2} A^T = L^T`, and

.. math:: w = (L^T B)^\dagger L^T c .
"""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import Any

import numpy as np

from lstd_agent.arrays import FloatArray
from lstd_agent.decompositions import svd
from lstd_agent.errors import InvalidInputError
from lstd_agent.rows.factors import Reduced

DEFAULT_RCOND = 1e-10

# B is a difference from A: what is smaller beside the size of A is rounding.
_ROUNDING = 1e-14

# Singular values of B that are smaller beside the largest count as 0. What changes slowly is small
# there and is no rounding, so that this is not the cutoff of A.
_DIFFERENCES = 1e-10


@dataclass(frozen=True, eq=False)
class Minimizer:
    """Minimizing weights and how well they are determined.

    Attributes
    ----------
    weights : ndarray, shape (d, q)
        One column for each right-hand side.
    rank : int
        Numerical rank of Lᵀ B: how many directions of w the data determine.
    condition : float
        Ratio of the largest to the smallest singular value kept (1 where the rank is 0).
    null : ndarray, shape (d, d - rank)
        An orthonormal basis of the directions that the equations leave open.
    spread : ndarray, shape (d,)
        The norm of each weight as a function of the numbers, root-weighted.
    """

    weights: FloatArray
    rank: int
    condition: float
    null: FloatArray
    spread: FloatArray


def check_rcond(rcond: float) -> float:
    """Validate a relative cutoff: above 0, since rounding errors are no rank, and below 1."""
    if isinstance(rcond, numbers.Real) and 0.0 < rcond < 1.0:
        return float(rcond)
    raise InvalidInputError(f"rcond must be above 0 and below 1; got {rcond!r}")


def basis_of_range(A: FloatArray, rcond: float) -> tuple[FloatArray, float]:
    """Return an orthonormal basis of the range of A, and the largest singular value."""
    U, size, _ = svd(A)
    largest = float(size.max(initial=0.0))
    return np.asarray(U[:, size > rcond * largest]), largest


def minimize(
    equations: Reduced,
    rcond: float = DEFAULT_RCOND,
    metric: FloatArray | None = None,
    *,
    directions: bool = True,
) -> Minimizer:
    """Return the minimizer of the projected Bellman error.

    Parameters
    ----------
    equations : Reduced
        Root-weighted rows in an orthonormal basis of the range of A.
    rcond : float
        The relative cutoff of the size of A; of B it is that or 1e-10, whichever is smaller.
    metric : ndarray, shape (k, r), optional
        Of all minimizers, the smallest w is returned, or that of the smallest ``metric @ w``. The
        metric is of the first r weights.
    directions : bool
        Whether to tell the directions that the equations leave open, and the spread.

    Returns
    -------
    Minimizer

    Notes
    -----
    Source: Thm ``epb_minimizer``.
    """
    B, c, d = equations.B, equations.c, equations.B.shape[1]
    cutoff = min(rcond, _DIFFERENCES)
    if not directions and metric is None and B.size and B.any():
        solution: Any = np.linalg.lstsq(B, c, rcond=cutoff)
        found, _, n_kept, sizes = solution
        if sizes[n_kept - 1] > _ROUNDING * equations.largest:
            condition = float(sizes[0] / sizes[n_kept - 1])
            return Minimizer(found, int(n_kept), condition, np.zeros((d, 0)), np.zeros(0))
    U, singular, Vt = svd(B, full_matrices=True)
    largest = float(singular.max(initial=0.0))
    rank = int((singular > max(cutoff * largest, _ROUNDING * equations.largest)).sum())
    kept = Vt[:rank].T / singular[:rank]
    weights = kept @ (U[:, :rank].T @ c)
    null = Vt[rank:].T
    if metric is not None and null.size:
        r = metric.shape[1]
        turned, own = (np.vstack((metric @ each[:r], each[r:])) for each in (null, weights))
        weights = weights - null @ np.linalg.lstsq(turned, own, rcond=None)[0]
    return Minimizer(
        weights,
        rank,
        float(singular[0] / singular[rank - 1]) if rank else 1.0,
        null,
        np.linalg.norm(kept, axis=1),
    )


def reduced(A: FloatArray, B: FloatArray, c: FloatArray, rcond: float = DEFAULT_RCOND) -> Reduced:
    """Return root-weighted rows A, B (m, d) and c (m, q) in an orthonormal basis of A's range."""
    L, largest = basis_of_range(A, rcond)
    return Reduced(L.T @ A, L.T @ B, L.T @ c, largest)


def projected_bellman_error(
    A: FloatArray, B: FloatArray, c: FloatArray, w: FloatArray, rcond: float = DEFAULT_RCOND
) -> float:
    """Return e_PB(w) = ‖B w - c‖² projected on the range of A (eq. ``epb``), a sum over rows.

    Parameters
    ----------
    A, B : ndarray, shape (m, d)
    c : ndarray, shape (m,)
    w : ndarray, shape (d,)
    rcond : float
        Relative cutoff of the size of A.
    """
    L, _ = basis_of_range(A, rcond)
    return float(np.sum((L.T @ (B @ w - c)) ** 2))


def projector(
    features: FloatArray, distribution: FloatArray, rcond: float = DEFAULT_RCOND
) -> FloatArray:
    """Return the projection F Z† Fᵀ D_p, shape (S, S) (Lemma ``projector``).

    Parameters
    ----------
    features : ndarray, shape (S, d)
    distribution : ndarray, shape (S,)
    rcond : float
        Relative cutoff of the size of √p F.
    """
    root = np.sqrt(distribution)[:, None]
    U, size, Vt = svd(root * features)
    keep = size > rcond * size[0]
    # F Z† Fᵀ D = F V σ⁻¹ Uᵀ √D.
    return np.asarray(features @ (Vt[keep].T / size[keep]) @ (U[:, keep] * root).T)
