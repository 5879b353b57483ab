"""Feature rows: dense, or sparse in CSR form where most features are zero."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd_agent.arrays import FloatArray
from lstd_agent.errors import InvalidInputError

Rows: TypeAlias = Any
"""Features (n, d), one row an observation: an ndarray or a `scipy.sparse.csr_array` of float64."""

RowsOf = Callable[[NDArray[Any]], Rows]
"""Features (n, d), dense or CSR, of encoded observations (n, k)."""


def as_rows(features: Any, n: int) -> Rows:
    """Return features of n observations, or raise unless they are (n, d) finite real numbers.

    Parameters
    ----------
    features : array_like or sparse matrix
        Sparse ones stay sparse.
    n : int

    Returns
    -------
    ndarray or csr_array of float64, shape (n, d)
        A copy: what gave them may write its next features into the same array.

    Raises
    ------
    InvalidInputError
        If they are not real numbers, not finite, or of another shape.
    """
    if is_sparse(features):
        if features.ndim != 2:
            raise _misshapen(features.shape, n)
        rows: Any = sparse.csr_array(features)
        values = rows.data
    else:
        if type(features).__module__.startswith("torch"):
            features = features.detach().cpu().numpy()
        try:
            rows = np.asarray(features)
        except (TypeError, ValueError):
            raise _unreal(features) from None
        values = rows
    if np.iscomplexobj(values) or values.dtype.kind not in "fiubO":
        raise _unreal(features)
    try:
        rows = rows.astype(np.float64)
    except (TypeError, ValueError):
        raise _unreal(features) from None
    if rows.ndim != 2 or rows.shape[0] != n or rows.shape[1] == 0:
        raise _misshapen(rows.shape, n)
    if not np.isfinite(rows.data if is_sparse(rows) else rows).all():
        row, column = np.argwhere(~np.isfinite(dense(rows)))[0]
        raise InvalidInputError(
            f"features must be finite; feature {column} of observation {row} is {rows[row, column]}"
        )
    return rows


def is_sparse(features: Any) -> bool:
    """Tell sparse matrices of any format from everything else."""
    return bool(sparse.issparse(features))


def dense(rows: Rows) -> FloatArray:
    """Return feature rows as an ndarray (n, d)."""
    array: FloatArray = rows.toarray() if is_sparse(rows) else rows
    return array


def with_ones(features: FloatArray) -> FloatArray:
    """Return features (f, 1), shape (n, d + 1)."""
    return np.column_stack((features, np.ones(len(features))))


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


def _misshapen(shape: tuple[int, ...], n: int) -> InvalidInputError:
    return InvalidInputError(
        f"features must have shape ({n}, d), one row an observation; got {shape}"
    )


def _unreal(features: Any) -> InvalidInputError:
    return InvalidInputError(f"features must be an array of real numbers; got {features!r}")
