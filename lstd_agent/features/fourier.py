"""Cosine features of vector observations: the Fourier basis of a box, and random frequencies.

Each is a function of observations (n, k), or (n,) for one dimension, that returns (n, d).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lstd_agent.arrays import FloatArray
from lstd_agent.errors import InvalidInputError, check_integer
from lstd_agent.features.parameters import as_vectors, box_bounds, frozen_array


@dataclass(frozen=True, eq=False)
class FourierBasis:
    """Cosines cos(π c·u) of the place u in [0, 1]^k within a box, for all c in {0 … order}^k.

    Parameters
    ----------
    low, high : array_like, shape (k,)
        The box. Outside of it the cosines go on.
    order : int
        At least 0; there are (order + 1)**k features, the constant first.

    Notes
    -----
    Source: Konidaris, Osentoski & Thomas (2011), "Value function approximation in reinforcement
    learning using the Fourier basis".

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
        low, high = box_bounds(self.low, self.high)
        n = check_integer("order", self.order, 0) + 1
        if n**low.size >= 2**31:
            raise InvalidInputError(
                f"order {self.order} in {low.size} dimensions gives too many features"
            )
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    def __call__(self, observations: NDArray[np.generic]) -> FloatArray:
        """Return the features (n, d) of observations (n, k)."""
        low, high = np.asarray(self.low), np.asarray(self.high)
        place = (as_vectors(observations, low.size) - low) / (high - low)
        axes = np.meshgrid(*[np.arange(self.order + 1)] * low.size, indexing="ij")
        frequency = np.stack(axes, axis=-1).reshape(-1, low.size)
        return np.asarray(np.cos(np.pi * place @ frequency.T))


@dataclass(frozen=True, eq=False)
class RandomFourier:
    """Cosines √(2/d) cos(ω·(s / width) + φ) of random frequencies ω and phases φ.

    Their inner products approximate the Gaussian kernel exp(-‖s - s'‖² / (2 width²)).

    Parameters
    ----------
    d : int
        Number of features.
    width : float or array_like, shape (k,)
        One for each dimension, or the same for all.
    seed : int
        The same seed gives the same frequencies.

    Notes
    -----
    Source: Rahimi & Recht (2007), "Random features for large-scale kernel machines".

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
        width = frozen_array("width", self.width)
        if width.ndim > 1 or not width.size or not (width > 0.0).all():
            raise InvalidInputError(
                f"width must be positive, one number or one a dimension; got {self.width!r}"
            )
        object.__setattr__(self, "width", width)

    def __call__(self, observations: NDArray[np.generic]) -> FloatArray:
        """Return the features (n, d) of observations (n, k)."""
        width = np.asarray(self.width)
        x = as_vectors(observations, width.size if width.ndim else None) / width
        rng = np.random.default_rng(self.seed)
        phase = rng.uniform(0.0, 2.0 * np.pi, self.d)
        frequency = rng.standard_normal((x.shape[1], self.d))
        return np.asarray(np.sqrt(2.0 / self.d) * np.cos(x @ frequency + phase))
