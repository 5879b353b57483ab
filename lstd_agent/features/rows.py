"""Feature rows, dense or sparse (CSR): their sizes, kernels, and what they are computed from.

A pseudoinverse treats small numbers beside large ones as zero. So a feature that hardly varies
beside its size acts as a constant, and no residual shows it. Features that are constant, zero or of
other sizes than the rest do no harm; they are reported only.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.errors import InvalidInputError, check_choice

Rows: TypeAlias = Any
"""Features (n, d), one row an observation: an ndarray or a `scipy.sparse.csr_array` of float64."""

RowsOf = Callable[[NDArray[Any]], Rows]
"""Features (n, d), dense or CSR, of encoded observations (n, k)."""

# A smaller variation beside the size is rounding; number of features that a warning names; products
# of larger features would not be finite.
MANY_SPARSE = 500, 0.02  # smallest number, and largest density, of many sparse features
_CONSTANT, _N_NAMED, _LARGEST = 1e-13, 8, 1e100


def as_rows(features: Any, n: int, hint: str = "") -> Rows:
    """Return a copy of n observations' features as float64 (n, d), dense or CSR, or raise.

    They must be real and finite. A function may write its next features into the same array.
    """
    if type(features).__module__.startswith("torch"):
        features = features.detach().cpu().numpy()
    try:
        rows: Any = sparse.csr_array(features) if is_sparse(features) else np.asarray(features)
        if rows.dtype.kind not in "fiubO" or np.ma.is_masked(features):
            raise TypeError(rows.dtype)
        rows = rows.astype(np.float64)
    except (TypeError, ValueError):
        told = f"features must be an array of real numbers; got {features!r}{hint}"
        raise InvalidInputError(told) from None
    if rows.ndim != 2 or rows.shape[0] != n or rows.shape[1] == 0:
        told = f"features must have shape ({n}, d), one row an observation; got {rows.shape}{hint}"
        raise InvalidInputError(told)
    values = rows.data if is_sparse(rows) else rows
    if not -_LARGEST <= values.min(initial=0.0) <= values.max(initial=0.0) <= _LARGEST:
        row, column = np.argwhere(~(np.abs(dense(rows)) <= _LARGEST))[0]
        told = f"finite, at most {_LARGEST:g} in size; feature {column} of observation {row} is "
        raise InvalidInputError(f"features must be {told}{rows[row, column]}")
    return rows


def is_sparse(features: Any) -> bool:
    """Whether features are a sparse matrix, of any format."""
    return bool(sparse.issparse(features))


def dense(rows: Rows) -> FloatArray:
    """Return feature rows as an ndarray (n, d)."""
    array: FloatArray = rows.toarray() if is_sparse(rows) else rows
    return array


def are_few(table: Rows) -> bool:
    """Return whether few of many features are not 0, as of tiles."""
    number = table.nnz if is_sparse(table) else np.count_nonzero(table)
    (n, d), (fewest, density) = table.shape, MANY_SPARSE
    return bool(d >= fewest and number <= density * n * d)


def have_one_sum(table: Rows) -> bool:
    """Return whether features have the same sum everywhere, as tiles: they represent constants."""
    sums = np.asarray(table.sum(axis=1))
    return bool(sums.size and sums[0] != 0.0 and np.allclose(sums, sums[0], rtol=1e-12))


def squared_distances(x: Rows, y: Rows) -> FloatArray:
    """Return squared distances (n, m) between rows of x (n, d) and y (m, d), dense or CSR."""
    if not is_sparse(x):
        from scipy.spatial.distance import cdist  # takes long to import

        return np.asarray(cdist(x, y, "sqeuclidean"))
    # ‖x - y‖² by one matrix product; rounding may leave a tiny negative number.
    squared: FloatArray = dense(x @ y.T)
    squared *= -2.0
    squared += (x * x).sum(axis=1)[:, None]
    squared += (y * y).sum(axis=1)
    return np.maximum(squared, 0.0, out=squared)


def pad_rows(rows: Rows, n: int) -> Rows:
    """Return feature rows with n rows of zeros after them."""
    if n == 0:
        return rows
    shape = (n, rows.shape[1])
    if is_sparse(rows):
        return sparse.vstack((rows, sparse.csr_array(shape)), format="csr")
    return np.concatenate((rows, np.zeros(shape)))


def frozen_array(name: str, values: ArrayLike, hint: str = "") -> FloatArray:
    """Return finite numbers as a read-only array of their own, or raise `InvalidInputError`."""
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInputError(f"{name} must be numbers; got {values!r}") from None
    if not np.isfinite(array).all():
        raise InvalidInputError(f"{name} must be finite; got {values!r}{hint}")
    array.setflags(write=False)
    return array


def as_vectors(observations: NDArray[np.generic], k: int | None = None) -> FloatArray:
    """Return observations (n, k), or (n,) of one dimension, as (n, k) numbers."""
    x = np.asarray(observations, dtype=np.float64)
    if x.ndim == 0:
        told = f"features are of observations (n, k), one a row; got the number {x[()]}"
        raise InvalidInputError(told)
    x = x.reshape(len(x), -1) if len(x) else x.reshape(0, k or 1)
    if k is not None and x.shape[1] != k:
        raise InvalidInputError(f"these features are of {k} dimensions; got {x.shape[1]}")
    return x


@dataclass(frozen=True, eq=False)
class FeatureSizes:
    """Sizes of features over states that were seen.

    ``size`` (d,) is the largest absolute value and ``spread`` (d,) the largest minus the smallest.
    ``lost`` lists the features that vary too little beside their size for the fit to see it.
    """

    size: FloatArray
    spread: FloatArray
    lost: IntArray

    @classmethod
    def of(cls, features: Rows, least: float) -> FeatureSizes:
        """Return sizes of features (M, d); the fit misses variations below ``least`` * size."""
        highest, lowest = (dense(f).ravel() for f in (features.max(axis=0), features.min(axis=0)))
        size, spread = np.maximum(highest, -lowest), highest - lowest
        varies = spread > _CONSTANT * size
        return cls(size, spread, np.flatnonzero(varies & (spread < least * size)))

    @property
    def warning(self) -> str:
        """The problem with its remedy; empty if there is none."""
        if not self.lost.size:
            return ""
        names, more = ", ".join(map(str, self.lost[:_N_NAMED])), self.lost.size - _N_NAMED
        least = float((self.spread[self.lost] / self.size[self.lost]).min())
        told = f"features {names}{f' and {more} more' if more > 0 else ''} vary too little beside "
        told += f"their size (by {least:.1e} of it) to distinguish states: subtract their means, "
        return f"{told}or use standardize=True"

    def __str__(self) -> str:
        some = self.size[self.size > 0.0]
        sizes = f", sizes {some.min():.3g} to {some.max():.3g}" if some.size else ""
        is_zero = self.size == 0.0
        kinds = {
            "constant": int(((self.spread <= _CONSTANT * self.size) & ~is_zero).sum()),
            "always 0": int(is_zero.sum()),
            f"that hardly {'varies' if self.lost.size == 1 else 'vary'}": self.lost.size,
        }
        return f"{self.size.size}{sizes}" + "".join(f", {n} {k}" for k, n in kinds.items() if n)


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
            told = f"kernel width must be a positive number or 'median'; got {self.width!r}"
            raise InvalidInputError(told)
        object.__setattr__(self, "width", float(self.width))

    def __call__(self, x: Rows, y: Rows) -> FloatArray:
        """Return k between every row of x (n, d) and every row of y (m, d), shape (n, m)."""
        return self._of_squared_distance(squared_distances(x, y))

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
        squared = squared_distances(features, features)
        distance = np.sqrt(squared[np.triu_indices(len(squared), 1)])
        positive = distance[distance > 0.0]
        return Kernel(self.name, float(np.median(positive)) if positive.size else 1.0)
