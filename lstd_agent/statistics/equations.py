r"""The equations of windows of timesteps: what statistics return and the system minimizes.

For samples (s, r, s') of a window, with features f and excess rewards r - g, they are

.. math:: X = E[f(S) (f(S) - f(S'))^T], \quad Z = E[f(S) f(S)^T], \quad y = E[f(S) (r - g)].

Two forms. `Moments` are X, Z and y themselves. `Factors` are their square roots, where states
can be counted: X, Z and y are products of matrices with one row a state,

.. math:: Z = A^T A, \quad X = A^T B, \quad y = A^T c, \quad
          A = D^{1/2} F, \; B = D^{1/2} (F - P F), \; c = D^{1/2} (r - g),

with D = diag(p). Forming Z squares numbers: a state that takes one sample in ten million and
features that are alike leave eigenvalues of Z below any cutoff that still catches its rounding
errors; the same two enter A with their square roots.

y and c may have a last axis of several right-hand sides. A window's equations *with open ends*
(`Statistics.linked_equations`) have them apart: rewards, ones (to be multiplied by the gain),
and the features of successors that leave the window, whose values are numbers there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from scipy import sparse

from lstd_agent.arrays import FloatArray, IntArray

# Working arrays of batched equations hold about this many numbers, so that they stay in cache.
_CHUNK_SIZE = 2**18


@dataclass(frozen=True)
class Moments:
    """X, Z and y of n state distributions, each the mean over ``n_samples`` transitions.

    Attributes
    ----------
    X, Z : ndarray, shape (n, d, d)
    y : ndarray, shape (n, d) or (n, d, m)
        Of one right-hand side, or of m.
    n_samples : ndarray of int, shape (n,)
        Zero where the moments are exact.
    scale : ndarray, shape (d,), optional
        Sizes of the features, which they are divided by for rank decisions.
    """

    X: FloatArray
    Z: FloatArray
    y: FloatArray
    n_samples: IntArray
    scale: FloatArray | None = None


@dataclass(frozen=True)
class FeatureBasis:
    """An orthonormal basis of features, F = U diag(σ) V^T, of rank r.

    Fits are computed in it, so that rank decisions depend on the chain and its visits, and not
    on how alike or how large the features are.

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
        U, singular, Vt = thin_svd(features)
        r = max(1, int((singular > rcond * singular[0]).sum()))
        if singular[0] == 0.0:  # there are no features: their basis is no state's either
            return cls(np.zeros((len(U), r)), np.ones(r), Vt[:r].T)
        return cls(U[:, :r], singular[:r], Vt[:r].T)


@dataclass(frozen=True)
class Factors:
    """Square roots of the moments of n state distributions, in a basis of r features.

    Attributes
    ----------
    A, B : ndarray, shape (n, k, r)
        One row for each of k states, all that are visited among them.
    c : ndarray, shape (n, k) or (n, k, m)
    basis : FeatureBasis
    n_samples : ndarray of int, shape (n,)
    """

    A: FloatArray
    B: FloatArray
    c: FloatArray
    basis: FeatureBasis
    n_samples: IntArray


@dataclass(frozen=True, eq=False)
class SparseEquations:
    """Sums over the samples of one window, of features that are sparse.

    Attributes
    ----------
    X, Z : csr_array, shape (d, d)
        X with the successors within the window alone.
    y : ndarray, shape (d, 2)
        Of the rewards and of ones.
    leaving : csr_array, shape (d, S)
        Σ f(s) e(s')^T over the samples whose successor leaves the window.
    n_samples : int
    """

    X: sparse.csr_array
    Z: sparse.csr_array
    y: FloatArray
    leaving: sparse.csr_array
    n_samples: int


Equations: TypeAlias = Moments | Factors


def thin_svd(matrices: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return U, σ and V^T of matrices (..., k, d), σ descending, without the rest of the bases."""
    try:
        U, singular, Vt = np.linalg.svd(matrices, full_matrices=False)
    except np.linalg.LinAlgError:
        # Divide and conquer does not converge for some in a million; QR iteration does.
        from scipy.linalg import svd  # takes long to import

        each = [
            svd(matrix, full_matrices=False, lapack_driver="gesvd")
            for matrix in matrices.reshape(-1, *matrices.shape[-2:])
        ]
        U, singular, Vt = (
            np.reshape(part, matrices.shape[:-2] + part[0].shape)
            for part in zip(*each, strict=True)
        )
    return U, singular, Vt


def window_sums(windows: IntArray, t_max: int) -> sparse.csr_array:
    """Return the 0-1 matrix (n, t_max + 1) that sums timesteps over each window."""
    length = windows[:, 1] - windows[:, 0]
    indptr = np.concatenate(([0], np.cumsum(length)))
    timestep = np.arange(indptr[-1]) - np.repeat(indptr[:-1] - windows[:, 0], length)
    return sparse.csr_array(
        (np.ones(timestep.size, dtype=np.int64), timestep, indptr), shape=(len(windows), t_max + 1)
    )


def window_chunks(n_windows: int, numbers_per_window: int) -> Iterator[slice]:
    """Yield slices of windows whose working arrays fit in a bounded memory."""
    size = max(1, _CHUNK_SIZE // max(1, numbers_per_window))
    for start in range(0, n_windows, size):
        yield slice(start, start + size)
