r"""The empirical Christoffel function: the number of samples of an observation.

.. math:: n(x) = \frac{1}{f(x)^T (A^T A)^\dagger f(x)}

A holds the features of the samples. n(x) is the smallest sum of squares over samples of any
combination of the features that is 1 at x. It is 0 if f(x) is not in the range of Aᵀ: no sample is
like x. With one-hot features n(x) is the number of visits, as for counts.

Source: Lasserre & Pauwels (2019), "The empirical Christoffel function with applications in data
analysis".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lstd_agent.arrays import FloatArray
from lstd_agent.decompositions import svd

MIN_SAMPLES = 10.0
"""An observation was not seen if n is smaller."""

RANGE_TOLERANCE = 1e-3
"""Features were not seen if a larger part of them than this is outside the range."""

# Smaller singular values, relative to the largest, are rounding errors.
_RCOND = 1e-5


@dataclass(frozen=True, eq=False)
class Christoffel:
    """f(x) times ``inverse`` (p, r) has the squared norm 1/n; ``basis`` (p, r) spans the range."""

    inverse: FloatArray
    basis: FloatArray

    @classmethod
    def of(cls, rows: FloatArray) -> Christoffel:
        """Return the function of root-weighted rows (m, p), or of their factor."""
        _, size, Vt = svd(rows)
        keep = size > _RCOND * size.max(initial=0.0)
        basis = Vt[keep].T
        return cls(basis / size[keep], basis)

    def samples(self, features: FloatArray) -> FloatArray:
        """Return n (...,) at features (..., p)."""
        size = np.linalg.norm(features, axis=-1)
        outside = np.linalg.norm(features - (features @ self.basis) @ self.basis.T, axis=-1)
        leverage = np.square(features @ self.inverse).sum(axis=-1)
        inside = (outside <= RANGE_TOLERANCE * size) & (leverage > 0.0)
        return np.asarray(np.where(inside, 1.0 / np.where(inside, leverage, 1.0), 0.0))
