"""Features of vector observations: bumps, polynomials, tiles, cosines.

Each is a function of observations (n, k), or (n,) for one dimension, that returns (n, d).
Parameters are copied: later changes of the given arrays have no effect.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.errors import InvalidInputError, check_integer
from lstd_agent.features.rows import as_vectors, frozen_array, squared_distances

if TYPE_CHECKING:
    from typing_extensions import Self

_KMEANS_ITERATIONS = 100


def _set(features: Any, **values: Any) -> None:
    """Set fields of a frozen dataclass."""
    for name, value in values.items():
        object.__setattr__(features, name, value)


def _width(width: ArrayLike, k: int | None = None) -> FloatArray:
    """Return a width, or one for each of k dimensions, or raise unless positive."""
    found = frozen_array("width", width)
    fits = found.shape in ((), (k or found.size,)) and found.size > 0
    if not fits or not (found > 0.0).all():
        told = f"width must be positive, one number or {k or 'one a dimension'}; got {width!r}"
        raise InvalidInputError(told)
    return found


def _over_box(features: Any, n_copies: int, side: int) -> None:
    """Set the box of features, side for each dimension, or raise if there are too many."""
    low, high = _box(features.low, features.high)
    if (n := n_copies * side**low.size) >= 2**31:  # more than an index can number
        told = f"{n:.1e} are too many features: use fewer dimensions, or a coarser basis"
        raise InvalidInputError(told)
    _set(features, low=low, high=high)


def _box(low: ArrayLike, high: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return the bounds of a box as two vectors (k,), or raise if they do not make one."""
    hint = ": give the range that the observations really cover"
    lower, upper = (np.atleast_1d(frozen_array("low and high", b, hint)) for b in (low, high))
    if lower.shape != upper.shape or lower.ndim != 1 or not (lower < upper).all():
        told = f"low and high must be equally long, and low below high; got {low!r} and {high!r}"
        raise InvalidInputError(told)
    return lower, upper


def _points(*axes: NDArray[Any]) -> NDArray[Any]:
    """Return the points (n, k) of a grid, the last coordinate changing fastest."""
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))


@dataclass(frozen=True, eq=False)
class RadialBasis:
    """Gaussian bumps exp(-½ Σ_i ((s_i - c_i) / width_i)²), one a center.

    Parameters
    ----------
    centers : array_like, shape (d, k)
    width : float or array_like, shape (k,)
        One for each dimension, or the same for all.

    Examples
    --------
    >>> from lstd_agent import RadialBasis
    >>> RadialBasis.grid([0.0], [4.0], 3)(np.array([[0.0], [2.0]])).round(3).tolist()
    [[1.0, 0.607, 0.135], [0.607, 1.0, 0.607]]
    """

    centers: ArrayLike
    width: ArrayLike

    def __post_init__(self) -> None:
        centers = frozen_array("centers", self.centers)
        if centers.ndim != 2 or centers.size == 0:
            told = f"centers must have shape (d, k), one row a feature; got {centers.shape}"
            raise InvalidInputError(told)
        width = np.broadcast_to(_width(self.width, centers.shape[1]), centers.shape[1:])
        _set(self, centers=centers, width=frozen_array("width", width))

    @classmethod
    def grid(cls, low: ArrayLike, high: ArrayLike, n: int) -> Self:
        """Place ``n`` centers, at least 2, a dimension evenly from ``low`` to ``high`` (k,).

        They are as wide as they are apart; there are n**k features.
        """
        lower, upper = _box(low, high)
        axes = np.linspace(lower, upper, check_integer("the number of centers n", n, 2)).T
        return cls(_points(*axes), (upper - lower) / (n - 1))

    @classmethod
    def kmeans(cls, samples: ArrayLike, n: int, seed: int = 0) -> Self:
        """Place ``n`` centers, at least 2, where ``samples`` (m, k) are, by k-means.

        Dimensions are measured in standard deviations of the samples. The width of all bumps is the
        median distance of a center to the nearest other. SciPy's Lloyd iteration begins with
        k-means++ (Arthur & Vassilvitskii 2007), by random numbers of the ``seed``.

        Raises
        ------
        InvalidInputError
            If fewer than n samples differ.
        """
        x, n = frozen_array("samples", samples), check_integer("the number of centers n", n, 2)
        x = as_vectors(x)
        if (n_points := len(np.unique(x, axis=0))) < n:
            told = f"kmeans needs as many different samples as centers, {n}; got {n_points}"
            raise InvalidInputError(told)
        scale = x.std(axis=0)
        scale[scale == 0.0] = 1.0
        from scipy.cluster.vq import kmeans2  # takes long to import

        seed = check_integer("seed", seed, 0)
        centers, _ = kmeans2(x / scale, n, _KMEANS_ITERATIONS, minit="++", rng=seed)
        apart = squared_distances(centers, centers)
        np.fill_diagonal(apart, np.inf)
        return cls(centers * scale, scale * np.sqrt(np.median(apart.min(axis=1))))

    def __call__(self, observations: NDArray[np.generic]) -> FloatArray:
        """Return the features (n, d) of observations (n, k)."""
        width, centers = np.asarray(self.width), np.asarray(self.centers)
        x = as_vectors(observations, centers.shape[1])
        return np.asarray(np.exp(-0.5 * squared_distances(x / width, centers / width)))


@dataclass(frozen=True)
class Polynomial:
    """All monomials up to a total degree, the constant first.

    Parameters
    ----------
    degree : int
        At least 0. Of k dimensions there are (k + degree choose degree) features.
    scale : float
        Divides observations first. The largest observation is a good scale.

    Examples
    --------
    >>> from lstd_agent import Polynomial
    >>> Polynomial(2)(np.array([[2.0, 3.0]])).tolist()  # 1, x, y, x², x y, y²
    [[1.0, 2.0, 3.0, 4.0, 6.0, 9.0]]
    """

    degree: int
    scale: float = 1.0

    def __post_init__(self) -> None:
        check_integer("the degree of a Polynomial", self.degree, 0)
        scale = frozen_array("the scale of a Polynomial", self.scale)
        if scale.ndim or not scale > 0.0:
            raise InvalidInputError(f"a Polynomial has a positive scale; got {self.scale!r}")

    def __call__(self, observations: NDArray[np.generic]) -> FloatArray:
        """Return the features (n, d) of observations (n, k)."""
        x = as_vectors(observations) / self.scale
        factors = (
            list(chosen)
            for degree in range(self.degree + 1)
            for chosen in combinations_with_replacement(range(x.shape[1]), degree)
        )
        return np.stack([x[:, chosen].prod(axis=1) for chosen in factors], axis=1)


@dataclass(frozen=True, eq=False)
class TileCoding:
    """Several grids of tiles over a box, shifted against each other.

    In each tiling exactly one feature is 1: the feature of the tile that holds the observation.
    Observations outside the box belong to the outermost tiles. Features are sparse (CSR).

    Tiling j is shifted by j (1, 3, 5, ...) / n_tilings tile widths in the dimensions, as in
    Sutton & Barto (2018), section 9.5.4.

    Parameters
    ----------
    low, high : array_like, shape (k,)
        The box.
    n_tiles : int
        Tiles a dimension that cover the box; each tiling has one more, for its shift.
    n_tilings : int
        There are n_tilings * (n_tiles + 1)**k features.

    Examples
    --------
    >>> from lstd_agent import TileCoding
    >>> tiles = TileCoding([0.0], [4.0], n_tiles=4, n_tilings=2)
    >>> tiles(np.array([[0.5], [1.5]])).nonzero()[1].tolist()  # a tile of each tiling
    [0, 6, 1, 7]
    """

    low: ArrayLike
    high: ArrayLike
    n_tiles: int = 8
    n_tilings: int = 8

    def __post_init__(self) -> None:
        side = check_integer("n_tiles", self.n_tiles, 1) + 1
        _over_box(self, check_integer("n_tilings", self.n_tilings, 1), side)

    def __call__(self, observations: NDArray[np.generic]) -> sparse.csr_array:
        """Return the features (n, d) of observations (n, k), in CSR form."""
        low, high = np.asarray(self.low), np.asarray(self.high)
        k, side = low.size, self.n_tiles + 1
        position = np.clip((as_vectors(observations, k) - low) / (high - low), 0.0, 1.0)
        tiling = np.arange(self.n_tilings)
        shift = (tiling[:, None] * (2 * np.arange(k) + 1) / self.n_tilings) % 1.0
        tile: IntArray = np.floor(position[:, None] * self.n_tiles + shift).astype(np.int64)
        index = tiling * side**k + np.minimum(tile, self.n_tiles) @ side ** np.arange(k)
        indptr = np.arange(len(position) + 1) * self.n_tilings
        shape = (len(position), self.n_tilings * side**k)
        return sparse.csr_array((np.ones(index.size), index.ravel(), indptr), shape=shape)


@dataclass(frozen=True, eq=False)
class FourierBasis:
    """Cosines cos(π c·u) of the place u in [0, 1]^k within a box, for all c in {0 … order}^k.

    Source: Konidaris, Osentoski & Thomas (2011), "Value function approximation in reinforcement
    learning using the Fourier basis".

    Parameters
    ----------
    low, high : array_like, shape (k,)
        The box. Outside of it the cosines go on.
    order : int
        At least 0; there are (order + 1)**k features, the constant first.

    Examples
    --------
    >>> from lstd_agent import FourierBasis
    >>> FourierBasis([0.0], [2.0], order=2)(np.array([[0.0], [1.0], [2.0]])).round(6).tolist()
    [[1.0, 1.0, 1.0], [1.0, 0.0, -1.0], [1.0, -1.0, 1.0]]
    """

    low: ArrayLike
    high: ArrayLike
    order: int = 3

    def __post_init__(self) -> None:
        _over_box(self, 1, check_integer("order", self.order, 0) + 1)

    def __call__(self, observations: NDArray[np.generic]) -> FloatArray:
        """Return the features (n, d) of observations (n, k)."""
        low, high = np.asarray(self.low), np.asarray(self.high)
        place = (as_vectors(observations, low.size) - low) / (high - low)
        frequency = _points(*[np.arange(self.order + 1)] * low.size)
        return np.asarray(np.cos(np.pi * place @ frequency.T))


@dataclass(frozen=True, eq=False)
class RandomFourier:
    """Cosines √(2/d) cos(ω·(s / width) + φ) of random frequencies ω and phases φ.

    Their inner products approximate the Gaussian kernel exp(-‖s - s'‖² / (2 width²)). Source:
    Rahimi & Recht (2007), "Random features for large-scale kernel machines".

    Parameters
    ----------
    d : int
        Number of features.
    width : float or array_like, shape (k,)
        One for each dimension, or the same for all.
    seed : int
        The same seed gives the same frequencies.

    Examples
    --------
    >>> from lstd_agent import RandomFourier
    >>> near = RandomFourier(5000)(np.array([[0.0], [0.5]]))
    >>> bool(abs(near[0] @ near[1] - np.exp(-0.125)) < 0.05)
    True
    """

    d: int
    width: ArrayLike = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_integer("the number of features d", self.d, 1)
        check_integer("seed", self.seed, 0)
        _set(self, width=_width(self.width))

    def __call__(self, observations: NDArray[np.generic]) -> FloatArray:
        """Return the features (n, d) of observations (n, k)."""
        width = np.asarray(self.width)
        x = as_vectors(observations, width.size if width.ndim else None) / width
        rng = np.random.default_rng(self.seed)
        phase = rng.uniform(0.0, 2.0 * np.pi, self.d)
        frequency = rng.standard_normal((x.shape[1], self.d))
        return np.asarray(np.sqrt(2.0 / self.d) * np.cos(x @ frequency + phase))
