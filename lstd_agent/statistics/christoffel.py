r"""The empirical Christoffel function: what share of samples tells of an observation.

.. math:: \frac{1}{f(x)^T Z^\dagger f(x)}

is the smallest mean square over samples, whose second moments are Z, of any combination of the
features that is 1 at x. It is 0 where f(x) is not in the range of Z: no sample is like x. With
one-hot features it is the visiting frequency, so that counts and vectors mean the same, and the
number of visits if Z is a sum.

Source: Lasserre & Pauwels (2019), "The empirical Christoffel function with applications in data
analysis".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lstd_agent.arrays import FloatArray
from lstd_agent.features.rows import Rows

MIN_SAMPLES = 10.0
"""What amounts to fewer samples was not seen."""

RANGE_TOLERANCE = 1e-3
"""Scaled features of which a larger part than this is not in the range of Z are none of its."""

# Smaller eigenvalues of scaled Z, relative to the largest, are rounding errors.
_RANGE_RCOND = 1e-10


@dataclass(frozen=True, eq=False)
class Christoffel:
    """The Christoffel function of Z, decomposed once.

    Attributes
    ----------
    scale : ndarray, shape (D,)
        Sizes of the features.
    eigenvalues, basis : ndarray, shape (r,), (D, r)
        Of Z in features of size 1, without the null space.
    """

    scale: FloatArray
    eigenvalues: FloatArray
    basis: FloatArray

    @classmethod
    def of(cls, Z: FloatArray, scale: FloatArray) -> Christoffel:
        """Return the Christoffel function of second moments Z (D, D)."""
        eigenvalues, basis = np.linalg.eigh(Z / np.outer(scale, scale))
        keep = eigenvalues > _RANGE_RCOND * eigenvalues[-1]
        return cls(scale, eigenvalues[keep], basis[:, keep])

    def __call__(self, features: FloatArray) -> FloatArray:
        """Return its values (...,) at features (..., D)."""
        x = features / self.scale
        along = x @ self.basis
        size = np.linalg.norm(x, axis=-1)
        outside = np.linalg.norm(x - along @ self.basis.T, axis=-1)
        leverage = (along**2 / self.eigenvalues).sum(axis=-1)
        inside = (outside <= RANGE_TOLERANCE * size) & (leverage > 0.0)
        return np.asarray(np.where(inside, 1.0 / np.where(inside, leverage, 1.0), 0.0))

    def occupancy(self, features: Rows, n_samples: int) -> FloatArray:
        """Return its values (m,) at features (m, d) and a constant, 0 of what was not seen."""
        share = self(np.hstack((features, np.ones((features.shape[0], 1)))))
        return np.where(share * n_samples >= MIN_SAMPLES, share, 0.0)
