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

import numbers
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.errors import InvalidInputError

DEFAULT_RCOND = 1e-10

_ROUNDING = 1e-14


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


def check_rcond(rcond: float) -> float:
    """Validate a relative cutoff: above 0, since rounding errors are no rank, and below 1."""
    if isinstance(rcond, numbers.Real) and 0.0 < rcond < 1.0:
        return float(rcond)
    raise InvalidInputError(f"rcond must be above 0 and below 1; got {rcond!r}")


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


def minimize(moments: Moments, rcond: float = DEFAULT_RCOND) -> Minimizer:
    """Return the minimizer of the projected Bellman error of each distribution.

    Parameters
    ----------
    moments : Moments
        Of n distributions.
    rcond : float
        Relative cutoff of both pseudoinverses. Z holds squares, so that 1e-10 forgets
        directions of features that are 1e-5 times as large as the largest, or states with
        1e-10 times its visits, and rounding errors take over below about 1e-14. Raise it if
        the reported condition comes near its inverse; rescale features before lowering it.

    Returns
    -------
    Minimizer

    Notes
    -----
    Source: Thm ``epb_minimizer``. Directions that the data leave open get weight zero.
    """
    M = inverse_square_root(moments.Z, rcond)
    U, singular, Vt = np.linalg.svd(M @ moments.X, full_matrices=False)
    # X is a difference from Z: what is smaller than the rounding errors of that is nothing, even
    # if it is all there is, as with features that are constant.
    rounding = _ROUNDING * np.sqrt(np.abs(moments.Z).max(axis=(1, 2)))
    keep = singular > np.maximum(rcond * singular[:, 0], rounding)[:, None]
    target = (M @ moments.y[:, :, None]).transpose(0, 2, 1) @ U
    coordinates = target[:, 0] * inverse_where(keep, singular)
    weights = (coordinates[:, None, :] @ Vt)[:, 0]
    return Minimizer(weights, keep.sum(axis=1), condition_number(keep, singular))


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
