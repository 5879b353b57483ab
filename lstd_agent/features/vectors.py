"""Features of vector observations: radial basis functions, polynomials, tile coding.

Each is a function of observations (n, k), or (n,) for one dimension, that returns (n, d).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.errors import InvalidInputError


def _as_vectors(observations: NDArray[np.generic], k: int | None = None) -> FloatArray:
    """Return observations as (n, k) numbers, or raise if they have another k."""
    x = np.asarray(observations, dtype=np.float64).reshape(len(observations), -1)
    if k is not None and x.shape[1] != k:
        raise InvalidInputError(f"these features are of {k} dimensions; got {x.shape[1]}")
    return x


def _as_box(low: ArrayLike, high: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return the bounds of a box as two vectors, or raise if they do not make one."""
    lower, upper = (np.atleast_1d(np.asarray(b, dtype=np.float64)) for b in (low, high))
    if lower.shape != upper.shape or lower.ndim != 1 or not (lower < upper).all():
        raise InvalidInputError(
            f"low and high must be equally long, and low below high; got {low!r} and {high!r}"
        )
    if not np.isfinite([lower, upper]).all():
        raise InvalidInputError(
            f"low and high must be finite; got {low!r} and {high!r}: give the range that the "
            "observations really cover"
        )
    return lower, upper


@dataclass(frozen=True, eq=False)
class RadialBasis:
    """Gaussian bumps exp(-½ Σ_i ((s_i - c_i) / width_i)²), one a center.

    Parameters
    ----------
    centers : array_like, shape (d, k)
    width : float or array_like, shape (k,)
        One for each dimension, or the same for all.
    """

    centers: ArrayLike
    width: ArrayLike

    def __post_init__(self) -> None:
        if self._centers.ndim != 2 or self._centers.size == 0:
            raise InvalidInputError(
                f"centers must have shape (d, k), one row a feature; got {self._centers.shape}"
            )
        width = self._width
        if width.shape not in ((), self._centers.shape[1:]) or not (width > 0.0).all():
            raise InvalidInputError(
                f"width must be positive, one number or {self._centers.shape[1]}; got "
                f"{self.width!r}"
            )

    @classmethod
    def grid(cls, low: ArrayLike, high: ArrayLike, n: int) -> RadialBasis:
        """Place n centers a dimension evenly from ``low`` to ``high``, as wide as they are apart.

        Parameters
        ----------
        low, high : array_like, shape (k,)
        n : int
            At least 2; there are n**k features.
        """
        lower, upper = _as_box(low, high)
        if n < 2:
            raise InvalidInputError(f"a grid needs at least 2 centers a dimension; got {n}")
        axes = np.meshgrid(*np.linspace(lower, upper, n).T, indexing="ij")
        return cls(np.stack(axes, axis=-1).reshape(-1, lower.size), (upper - lower) / (n - 1))

    @cached_property
    def _centers(self) -> FloatArray:
        return np.asarray(self.centers, dtype=np.float64)

    @cached_property
    def _width(self) -> FloatArray:
        return np.asarray(self.width, dtype=np.float64)

    def __call__(self, observations: NDArray[np.generic]) -> FloatArray:
        """Return the features (n, d) of observations (n, k)."""
        centers = self._centers / self._width
        x = _as_vectors(observations, centers.shape[1]) / self._width
        # ‖x - c‖² by one matrix product; rounding may leave a tiny negative number.
        squared = (x**2).sum(axis=1)[:, None] - 2.0 * x @ centers.T + (centers**2).sum(axis=1)
        return np.asarray(np.exp(-0.5 * np.maximum(squared, 0.0)))


@dataclass(frozen=True)
class Polynomial:
    """All monomials up to a total degree, the constant first.

    Parameters
    ----------
    degree : int
        At least 0. Of k dimensions there are (k + degree choose degree) features.
    scale : float
        Observations are divided by it first; about the largest of them keeps powers in range.
    """

    degree: int
    scale: float = 1.0

    def __post_init__(self) -> None:
        if self.degree < 0 or not 0.0 < self.scale < np.inf:
            raise InvalidInputError(
                f"Polynomial needs a degree of at least 0 and a positive scale; got {self}"
            )

    def __call__(self, observations: NDArray[np.generic]) -> FloatArray:
        """Return the features (n, d) of observations (n, k)."""
        x = _as_vectors(observations) / self.scale
        factors = [
            list(chosen)
            for degree in range(self.degree + 1)
            for chosen in combinations_with_replacement(range(x.shape[1]), degree)
        ]
        return np.stack([x[:, chosen].prod(axis=1) for chosen in factors], axis=1)


@dataclass(frozen=True, eq=False)
class TileCoding:
    """Several grids of tiles over a box, shifted against each other.

    Exactly one feature of each tiling is 1, that of the tile the observation is in.
    Observations outside the box belong to the outermost tiles.

    Parameters
    ----------
    low, high : array_like, shape (k,)
        The box.
    n_tiles : int
        Tiles a dimension that cover the box; each tiling has one more, for its shift.
    n_tilings : int
        There are n_tilings * (n_tiles + 1)**k features.

    Notes
    -----
    Tiling j is shifted by j (1, 3, 5, ...) / n_tilings tile widths in the dimensions, as in
    Sutton & Barto (2018), section 9.5.4.
    """

    low: ArrayLike
    high: ArrayLike
    n_tiles: int = 8
    n_tilings: int = 8

    def __post_init__(self) -> None:
        _as_box(self.low, self.high)
        if self.n_tiles < 1 or self.n_tilings < 1:
            raise InvalidInputError(
                "TileCoding needs at least 1 tile and 1 tiling; got "
                f"n_tiles={self.n_tiles} and n_tilings={self.n_tilings}"
            )

    def __call__(self, observations: NDArray[np.generic]) -> FloatArray:
        """Return the features (n, d) of observations (n, k)."""
        low, high = _as_box(self.low, self.high)
        k, side = low.size, self.n_tiles + 1
        position = np.clip((_as_vectors(observations, k) - low) / (high - low), 0.0, 1.0)
        tiling = np.arange(self.n_tilings)
        shift = (tiling[:, None] * (2 * np.arange(k) + 1) / self.n_tilings) % 1.0
        tile: IntArray = np.floor(position[:, None] * self.n_tiles + shift).astype(np.int64)
        tile = np.minimum(tile, self.n_tiles)
        index = tiling * side**k + tile @ side ** np.arange(k)
        features = np.zeros((len(position), self.n_tilings * side**k))
        np.put_along_axis(features, index, 1.0, axis=1)
        return features
