r"""The seminorm LSTD minimizer from square roots of the moments, where states can be counted.

X, Z and y are products of matrices with one row a state,

.. math:: Z = A^T A, \quad X = A^T B, \quad y = A^T c, \quad
          A = D^{1/2} F, \; B = D^{1/2} (F - P F), \; c = D^{1/2} (r - g),

with D = diag(p). If L is an orthonormal basis of the range of A, then up to a rotation
:math:`Z^{\dagger/2} A^T = L^T`, and the minimizer of Thm ``epb_minimizer`` is

.. math:: w = (L^T B)^\dagger L^T c .

Why not from X, Z and y, as `lstd_agent.system.minimizer` does it: forming Z squares numbers. A
state that takes one sample in ten million and features that are alike leave eigenvalues of Z
below any cutoff that still catches its rounding errors; the same two enter A with their square
roots. For the same reason features are first brought to an orthonormal basis of their columns,
F = U diag(σ) V^T, in which the fit is computed, so that rank decisions depend on the chain and
its visits, and not on how alike or how large the features are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lstd_agent.arrays import FloatArray
from lstd_agent.system.minimizer import Minimizer, condition_number, inverse_where


@dataclass(frozen=True)
class FeatureBasis:
    """An orthonormal basis of features: F = U diag(σ) V^T.

    Attributes
    ----------
    U : ndarray, shape (S, r)
        The values of the r basis features.
    singular : ndarray, shape (r,)
    V : ndarray, shape (d, r)
    """

    U: FloatArray
    singular: FloatArray
    V: FloatArray

    @classmethod
    def of(cls, features: FloatArray, rcond: float) -> FeatureBasis:
        """Decompose features (S, d); singular values up to rcond times the largest are zero."""
        U, singular, Vt = np.linalg.svd(features, full_matrices=False)
        r = max(1, int((singular > rcond * singular[0]).sum()))
        scale = singular[:r] if singular[0] > 0.0 else np.ones(r)
        return cls(U[:, :r], scale, Vt[:r].T)


@dataclass(frozen=True)
class Factors:
    """Square roots of the moments of n state distributions, in a basis of r features.

    Attributes
    ----------
    A, B : ndarray, shape (n, k, r)
        One row for each of k states, all that are visited among them.
    c : ndarray, shape (n, k)
    """

    A: FloatArray
    B: FloatArray
    c: FloatArray


def minimize_factored(factors: Factors, basis: FeatureBasis, rcond: float) -> Minimizer:
    """Return the minimizer of the projected Bellman error of each distribution.

    Parameters
    ----------
    factors : Factors
        Of n distributions.
    basis : FeatureBasis
        That they are in.
    rcond : float
        Cutoff of the singular values of A and of L^T B, relative to the largest of A.

    Returns
    -------
    Minimizer
        ``condition`` is that of L^T B: of the fit in the orthonormal basis.

    Notes
    -----
    Source: Thm ``epb_minimizer``. As there, of all minimizers w is the smallest.
    """
    L, size, _ = np.linalg.svd(factors.A, full_matrices=False)
    L *= (size > rcond * size[:, :1])[:, None, :]
    Lt = L.transpose(0, 2, 1)
    U, singular, Vt = np.linalg.svd(Lt @ factors.B, full_matrices=False)
    # B is a difference from A, so the size of A is what its rounding errors are relative to.
    keep = singular > rcond * size[:, :1]
    target = (Lt @ factors.c[:, :, None]).transpose(0, 2, 1) @ U
    coordinates = target[:, 0] * inverse_where(keep, singular)

    # In the basis, w has these coordinates along the directions that the data determine. The
    # smallest such w is Q R^{-T} coordinates, where Q R are those directions times σ.
    directions = np.where(keep[:, :, None], Vt * basis.singular, 0.0)
    Q, R = np.linalg.qr(directions.transpose(0, 2, 1))
    R += np.eye(R.shape[1]) * ~keep[:, None, :]
    w = (Q @ np.linalg.solve(R.transpose(0, 2, 1), coordinates[:, :, None]))[:, :, 0]
    return Minimizer(w @ basis.V.T, keep.sum(axis=1), condition_number(keep, singular))
