r"""Many dense features that are alike, in the few coordinates that samples have of them.

Random Fourier features, a grid of bumps or the last layer of a network may be thousands, and those
of all observations seen lie in a space of a hundred dimensions. With U an orthonormal basis of it
and x = f / scale, :math:`x = U U^T x` for all of them, and the system is solved in coordinates
:math:`U^T x` for weights w; those of the features are U w / scale. Since U is orthonormal the
smallest weights stay the smallest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from lstd_agent.arrays import FloatArray
from lstd_agent.decompositions import svd
from lstd_agent.features.rows import Rows, dense
from lstd_agent.statistics.christoffel import Christoffel

FEWEST_REDUCED = 500
"""Of fewer features coordinates are not looked for."""

# What is left of features outside the space is rounding if it is a smaller share of them.
_ROUNDING = 1e-7

# So many features span more of the space at a time.
_BLOCK = 500

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
    def of(cls, blocks: Iterable[FloatArray], scale: FloatArray) -> Coordinates | None:
        """Return those of features, block by block (n, d), or None if they are hardly fewer."""
        d = len(scale)
        basis: FloatArray = np.zeros((d, 0))
        for features in blocks:
            x = features / scale
            x /= np.maximum(np.linalg.norm(x, axis=1), np.finfo(float).tiny)[:, None]
            outside = _outside(x, basis)
            while outside.size:
                _, size, Vt = svd(outside[:_BLOCK])
                more = _outside_of(Vt[size > _ROUNDING / 2.0], basis)
                basis = np.hstack((basis, np.linalg.qr(more.T)[0]))
                if basis.shape[1] > _LARGEST_SHARE * d:
                    return None
                outside = _outside(outside, basis)
        return cls(basis, scale)

    def __call__(self, features: Rows) -> FloatArray:
        """Return the coordinates (n, r) of features (n, d)."""
        return np.asarray(dense(features) @ self._of_features)

    @cached_property
    def _of_features(self) -> FloatArray:
        return np.asarray(self.basis / self.scale[:, None])

    def weights(self, of_coordinates: FloatArray) -> FloatArray:
        """Return the weights (n, d) of features from those of coordinates (n, r)."""
        return np.asarray(of_coordinates @ self.basis.T / self.scale)

    def directions(self, of_coordinates: FloatArray) -> FloatArray:
        """Return columns (..., d + 1, q) of scaled (f, 1) from those of coordinates and 1."""
        inside, one = of_coordinates[..., :-1, :], of_coordinates[..., -1:, :]
        return np.concatenate((self.basis @ inside, one), axis=-2)

    def christoffel(self, of_coordinates: Christoffel) -> Christoffel:
        """Return the Christoffel function of features (f, 1) from that of coordinates."""
        basis = self.directions(of_coordinates.basis)
        return replace(of_coordinates, scale=np.append(self.scale, 1.0), basis=basis)


def _outside_of(x: FloatArray, basis: FloatArray) -> FloatArray:
    """Return what is left of rows (n, d) outside a space."""
    return np.asarray(x - (x @ basis) @ basis.T)


def _outside(x: FloatArray, basis: FloatArray) -> FloatArray:
    """Return the same, of the rows of which it is more than rounding."""
    left = _outside_of(x, basis)
    return np.asarray(left[np.linalg.norm(left, axis=1) > _ROUNDING])


class Reduction(NamedTuple):
    """Statistics of coordinates in place of features, and what the coordinates are."""

    statistics: Any
    coordinates: Coordinates


def reduced(statistics: Any) -> Any:
    """Return statistics of coordinates, or themselves where features are none too many."""
    return statistics if statistics.reduction is None else statistics.reduction.statistics
