"""Kernels on state features: similarity of states, for the maximum mean discrepancy."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import Literal

import numpy as np

from lstd_agent.arrays import FloatArray
from lstd_agent.errors import InvalidInputError, check_choice
from lstd_agent.features.rows import Rows, is_sparse, squared_distances


@dataclass(frozen=True)
class Kernel:
    """A kernel k(s, s') on state features.

    Parameters
    ----------
    name : {"gaussian", "dirac"}
        Gaussian RBF exp(-‖f(s) - f(s')‖² / (2 width²)) (eq. ``gauss_kernel``), or 1 where the
        features are equal and 0 elsewhere.
    width : float or "median"
        Of the Gaussian; ``"median"`` is the median distance between distinct states.

    Examples
    --------
    >>> from lstd_agent import Kernel
    >>> Kernel(width=2.0)(np.array([[0.0]]), np.array([[0.0], [2.0]])).round(4).tolist()
    [[1.0, 0.6065]]
    """

    name: Literal["gaussian", "dirac"] = "gaussian"
    width: float | Literal["median"] = 1.0

    def __post_init__(self) -> None:
        check_choice("kernel", self.name, ("gaussian", "dirac"))
        if self.width == "median":
            return
        if not (isinstance(self.width, numbers.Real) and 0.0 < self.width < np.inf):
            raise InvalidInputError(
                f"kernel width must be a positive number or 'median'; got {self.width!r}"
            )
        object.__setattr__(self, "width", float(self.width))

    def __call__(self, x: Rows, y: Rows) -> FloatArray:
        """Return k between every row of x (n, d) and every row of y (m, d), shape (n, m)."""
        return self._of_squared_distance(_exact_squared_distances(x, y))

    def paired(self, x: Rows, y: Rows) -> FloatArray:
        """Return k between rows of ``x`` and the same rows of ``y`` (..., d), shape (...)."""
        difference = x - y
        return self._of_squared_distance((difference * difference).sum(axis=-1))

    def _of_squared_distance(self, squared: FloatArray) -> FloatArray:
        """Return k, overwriting the squared distances to save memory."""
        if self.name == "dirac":
            return np.asarray(squared == 0.0, dtype=np.float64)
        squared /= -2.0 * float(self.width) ** 2
        return np.exp(squared, out=squared)

    def fit_width(self, features: Rows) -> Kernel:
        """Return this kernel with a number for its width, measured on ``features`` (m, d)."""
        if self.width != "median":
            return self
        squared = _exact_squared_distances(features, features)
        distance = np.sqrt(squared[np.triu_indices(len(squared), 1)])
        positive = distance[distance > 0.0]
        return Kernel(self.name, float(np.median(positive)) if positive.size else 1.0)


def _exact_squared_distances(x: Rows, y: Rows) -> FloatArray:
    """Return squared distances (n, m), between dense rows without cancellation."""
    if is_sparse(x):
        return squared_distances(x, y)
    from scipy.spatial.distance import cdist  # takes long to import

    return np.asarray(cdist(x, y, "sqeuclidean"))
