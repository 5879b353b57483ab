r"""Many dense features that are alike, in the few coordinates that samples have of them.

Random Fourier features, a grid of bumps or the last layer of a network may be thousands, and those
of all observations seen lie in a space of a hundred dimensions. With x = f / scale and an
eigendecomposition :math:`\sum x x^T = U \mathrm{diag}(\mu) U^T`, directions with μ = 0 left out,
:math:`x = U U^T x` for all of them, and the system is solved in coordinates :math:`U^T x` for
weights w; those of the features are U w / scale. U is orthonormal, so that the smallest weights
stay the smallest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from lstd_agent.arrays import FloatArray
from lstd_agent.features.rows import Rows, dense
from lstd_agent.statistics.christoffel import Christoffel

FEWEST_REDUCED = 500
"""Of fewer features coordinates are not looked for."""

# Eigenvalues that are smaller beside the largest are rounding errors.
_ROUNDING = 1e-14

# Coordinates that are hardly fewer than features do not pay.
_LARGEST_SHARE = 0.7


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Orthonormal coordinates of features.

    Attributes
    ----------
    basis : ndarray, shape (d, r)
        U.
    scale : ndarray, shape (d,)
        Sizes of the features.
    """

    basis: FloatArray
    scale: FloatArray

    @classmethod
    def of(cls, products: FloatArray, scale: FloatArray) -> Coordinates | None:
        """Return those of scaled features, whose sum of products is (d, d), or None: too many."""
        eigenvalues, basis = np.linalg.eigh(products)
        kept = eigenvalues > _ROUNDING * eigenvalues[-1]
        if not 0 < kept.sum() <= _LARGEST_SHARE * len(kept):
            return None
        return cls(np.ascontiguousarray(basis[:, kept]), scale)

    def __call__(self, features: Rows) -> FloatArray:
        """Return the coordinates (n, r) of features (n, d)."""
        return np.asarray(dense(features) @ (self.basis / self.scale[:, None]))

    def weights(self, of_coordinates: FloatArray) -> FloatArray:
        """Return the weights (n, d) of features from those of coordinates (n, r)."""
        return np.asarray(of_coordinates @ self.basis.T / self.scale)

    @property
    def with_one(self) -> FloatArray:
        """The basis of scaled features (f, 1), shape (d + 1, r + 1)."""
        d, r = self.basis.shape
        whole = np.zeros((d + 1, r + 1))
        whole[:d, :r], whole[d, r] = self.basis, 1.0
        return whole

    def christoffel(self, of_coordinates: Christoffel) -> Christoffel:
        """Return the Christoffel function of features (f, 1) from that of coordinates."""
        basis = self.with_one @ of_coordinates.basis
        return replace(of_coordinates, scale=np.append(self.scale, 1.0), basis=basis)


class Reduction(NamedTuple):
    """Statistics of coordinates in place of features, and what the coordinates are."""

    statistics: Any
    coordinates: Coordinates
