"""The array types of annotations, and singular value decompositions; docstrings give the shapes."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

States: TypeAlias = NDArray[Any]
"""Encoded observations: (n,) state numbers, or (n, k) vectors."""


class Singular(NamedTuple):
    """Matrices A = U diag(σ) V^T, shapes (..., m, r), (..., r) and (..., r, n)."""

    U: FloatArray
    values: FloatArray
    Vt: FloatArray


def svd(matrices: FloatArray, *, full_matrices: bool = False) -> Singular:
    """Return the singular value decomposition of finite matrices (..., m, n).

    LAPACK's divide and conquer fails for some matrices with many columns close to 0. Its slower
    iteration does not fail.
    """
    try:
        return Singular(*np.linalg.svd(matrices, full_matrices=full_matrices))
    except np.linalg.LinAlgError:
        from scipy.linalg import svd as svd_of_one  # takes long to import

    each = matrices.reshape(-1, *matrices.shape[-2:])
    found = [svd_of_one(one, full_matrices=full_matrices, lapack_driver="gesvd") for one in each]
    parts = [np.stack(part) for part in zip(*found, strict=True)]
    return Singular(*(part.reshape(*matrices.shape[:-2], *part.shape[1:]) for part in parts))
