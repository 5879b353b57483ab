"""The array types of annotations, whose shapes docstrings give; singular values, sums."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

States: TypeAlias = NDArray[Any]
"""Encoded observations: (n,) state numbers, or (n, k) vectors."""


def svd(matrix: FloatArray, *, full_matrices: bool = False) -> tuple[FloatArray, ...]:
    """Return U (..., m, r), σ (..., r) and V^T (..., r, n) of finite matrices U diag(σ) V^T.

    LAPACK's divide and conquer fails for some matrices with many columns close to 0. Its slower
    iteration does not fail.
    """
    try:
        return np.linalg.svd(matrix, full_matrices=full_matrices)
    except np.linalg.LinAlgError:
        from scipy.linalg import svd as slower  # takes long to import

    how: Any = {"full_matrices": full_matrices, "lapack_driver": "gesvd"}
    each = [slower(one, **how) for one in matrix.reshape(-1, *matrix.shape[-2:])]
    several = matrix.shape[:-2]
    return tuple(np.reshape(x, (*several, *x[0].shape)) for x in zip(*each, strict=True))


def partial_sums(x: FloatArray) -> FloatArray:
    """Return sums over timesteps, the second axis, from 0 on."""
    sums = np.zeros((x.shape[1] + 1, len(x), *x.shape[2:]))
    for t in range(x.shape[1]):  # rows of a timestep lie together, which NumPy's own sums ignore
        np.add(sums[t], x[:, t], out=sums[t + 1])
    return sums.swapaxes(0, 1)
