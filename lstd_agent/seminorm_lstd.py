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
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

DEFAULT_RCOND = 1e-10

# How many distributions are decomposed at once: their matrices stay in cache.
_CHUNK_SIZE = 64


@dataclass(frozen=True)
class Moments:
    """X, Z and y of n state distributions, each the mean over ``n_samples`` transitions.

    Attributes
    ----------
    X, Z : ndarray, shape (n, d, d)
    y : ndarray, shape (n, d)
    n_samples : ndarray of int, shape (n,)
        Zero where the moments are exact.
    """

    X: FloatArray
    Z: FloatArray
    y: FloatArray
    n_samples: IntArray


@dataclass(frozen=True)
class Minimizer:
    """Minimizing weights and how well they are determined.

    Attributes
    ----------
    weights : ndarray, shape (n, d)
    rank : ndarray of int, shape (n,)
        Numerical rank of Z^{†/2} X: how many directions of w the data determine.
    condition : ndarray, shape (n,)
        Ratio of the largest to the smallest singular value kept (1 where the rank is 0).
    """

    weights: FloatArray
    rank: IntArray
    condition: FloatArray

    @classmethod
    def concatenate(cls, parts: Sequence[Minimizer]) -> Minimizer:
        """Join the minimizers of several runs of distributions."""
        return cls(
            np.concatenate([part.weights for part in parts]),
            np.concatenate([part.rank for part in parts]),
            np.concatenate([part.condition for part in parts]),
        )


def inverse_square_root(Z: FloatArray, rcond: float = DEFAULT_RCOND) -> FloatArray:
    """Return the factors M of Z† = M^T M, shape (n, d, d), for symmetric PSD Z (n, d, d).

    M = diag(μ)^{†/2} U^T from the eigendecomposition Z = U diag(μ) U^T (Lemma
    ``z_zpinv_psd``); eigenvalues up to ``rcond`` times the largest count as zero.
    """
    root, U = _inverse_roots(Z, rcond)
    return np.asarray(root[:, :, None] * U.transpose(0, 2, 1))


def _inverse_roots(Z: FloatArray, rcond: float) -> tuple[FloatArray, FloatArray]:
    """Return diag(μ)^{†/2}, shape (n, d), ascending in μ, and the eigenvectors U (n, d, d)."""
    eigenvalue, U = np.linalg.eigh(Z)
    keep = eigenvalue > rcond * eigenvalue[:, -1:]
    root = np.zeros_like(eigenvalue)
    root[keep] = eigenvalue[keep] ** -0.5
    return root, U


def minimize(moments: Moments, rcond: float = DEFAULT_RCOND) -> Minimizer:
    """Return the minimizer of the projected Bellman error of each distribution.

    Parameters
    ----------
    moments : Moments
        Of n distributions.
    rcond : float
        Relative cutoff of both pseudoinverses.

    Returns
    -------
    Minimizer

    Notes
    -----
    Source: Thm ``epb_minimizer``. Directions that the data leave open get weight zero.
    """
    n, d = moments.y.shape
    solution = Minimizer(np.zeros((n, d)), np.zeros(n, dtype=np.int64), np.ones(n))
    for start in range(0, n, _CHUNK_SIZE):
        chunk = slice(start, start + _CHUNK_SIZE)
        X, y = moments.X[chunk], moments.y[chunk, :, None]
        root, U = _inverse_roots(moments.Z[chunk], rcond)
        n_kept = np.count_nonzero(root, axis=1)
        # Where few states were visited, Z^{†/2} has few rows that are not zero. Distributions
        # with equally many are solved together, without the others.
        for k in np.unique(n_kept[n_kept > 0]):
            chosen = np.flatnonzero(n_kept == k)
            M = (root[chosen, None, d - k :] * U[chosen, :, d - k :]).transpose(0, 2, 1)
            solved = _least_squares(M @ X[chosen], M @ y[chosen], rcond)
            solution.weights[start + chosen] = solved.weights
            solution.rank[start + chosen] = solved.rank
            solution.condition[start + chosen] = solved.condition
    return solution


def _least_squares(A: FloatArray, b: FloatArray, rcond: float) -> Minimizer:
    """Return A† b for A (n, k, d) and b (n, k, 1), with ranks and conditions."""
    U, singular, Vt = np.linalg.svd(A, full_matrices=False)
    keep = singular > rcond * singular[:, :1]
    inverse = np.zeros_like(singular)
    inverse[keep] = 1.0 / singular[keep]
    target = (b.transpose(0, 2, 1) @ U)[:, 0]
    weights = ((target * inverse)[:, None, :] @ Vt)[:, 0]
    smallest = np.where(keep, singular, np.inf).min(axis=1)
    determined = keep.any(axis=1)
    condition = np.where(determined, singular[:, 0] / np.where(determined, smallest, 1.0), 1.0)
    return Minimizer(weights, keep.sum(axis=1), condition)


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
