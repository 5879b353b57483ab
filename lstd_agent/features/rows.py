"""Feature rows, dense or sparse (CSR), their sizes, and the numbers they are computed from.

A pseudoinverse treats small numbers beside large ones as zero. So a feature that hardly varies
beside its size acts as a constant, and no residual shows it. Features that are constant, zero or of
other sizes than the rest do no harm; they are reported only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.errors import InvalidInputError

Rows: TypeAlias = Any
"""Features (n, d), one row an observation: an ndarray or a `scipy.sparse.csr_array` of float64."""

RowsOf = Callable[[NDArray[Any]], Rows]
"""Features (n, d), dense or CSR, of encoded observations (n, k)."""

# A smaller variation beside the size is rounding; number of features that a warning names.
_CONSTANT, _N_NAMED = 1e-13, 8


def as_rows(features: Any, n: int) -> Rows:
    """Return features of n observations as float64 (n, d), or raise `InvalidInputError`.

    They must be real and finite. The result is a copy: a function may write its next features
    into the same array. Sparse features become CSR.
    """
    if type(features).__module__.startswith("torch"):
        features = features.detach().cpu().numpy()
    try:
        rows: Any = sparse.csr_array(features) if is_sparse(features) else np.asarray(features)
        if rows.dtype.kind not in "fiubO":
            raise TypeError(rows.dtype)
        rows = rows.astype(np.float64)
    except (TypeError, ValueError):
        raise InvalidInputError(
            f"features must be an array of real numbers; got {features!r}"
        ) from None
    if rows.ndim != 2 or rows.shape[0] != n or rows.shape[1] == 0:
        raise InvalidInputError(
            f"features must have shape ({n}, d), one row an observation; got {rows.shape}"
        )
    if not np.isfinite(rows.data if is_sparse(rows) else rows).all():
        row, column = np.argwhere(~np.isfinite(dense(rows)))[0]
        raise InvalidInputError(
            f"features must be finite; feature {column} of observation {row} is {rows[row, column]}"
        )
    return rows


def is_sparse(features: Any) -> bool:
    """Whether features are a sparse matrix, of any format."""
    return bool(sparse.issparse(features))


def dense(rows: Rows) -> FloatArray:
    """Return feature rows as an ndarray (n, d)."""
    array: FloatArray = rows.toarray() if is_sparse(rows) else rows
    return array


def squared_distances(x: Rows, y: Rows) -> FloatArray:
    """Return squared distances (n, m) between rows of x (n, d) and y (m, d), dense or CSR."""
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
    """Return observations (n, k), or (n,) of one dimension, as (n, k) numbers.

    Raises `InvalidInputError` if they have another k.
    """
    x = np.asarray(observations, dtype=np.float64)
    if x.ndim == 0:
        raise InvalidInputError(
            f"features are of observations (n, k), one a row; got the number {x[()]}"
        )
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
        """Return the sizes of features (M, d), M >= 1; the fit misses variations below ``least``.

        ``least`` is a share of the feature's size.
        """
        highest, lowest = features.max(axis=0), features.min(axis=0)
        if is_sparse(features):
            highest, lowest = highest.toarray().ravel(), lowest.toarray().ravel()
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
        return (
            f"features {names}{f' and {more} more' if more > 0 else ''} vary too little beside "
            f"their size (by {least:.1e} of it) to distinguish states: subtract their means, "
            "or use standardize=True"
        )

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
