"""Parameters of features: checked, copied, and comparable by value."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lstd_agent.arrays import FloatArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.features.rows import is_sparse


def frozen_array(name: str, values: ArrayLike) -> FloatArray:
    """Return finite numbers as a read-only array of their own, or raise `InvalidInputError`."""
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInputError(f"{name} must be numbers; got {values!r}") from None
    if not np.isfinite(array).all():
        raise InvalidInputError(f"{name} must be finite; got {values!r}")
    array.setflags(write=False)
    return array


def box_bounds(low: ArrayLike, high: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return the bounds of a box as two vectors, or raise if they do not make one."""
    try:
        finite = np.isfinite(np.asarray(low, float)).all() and np.isfinite(high).all()
    except (TypeError, ValueError):
        finite = True  # the error below says what they are
    if not finite:
        raise InvalidInputError(
            f"low and high must be finite; got {low!r} and {high!r}: give the range that the "
            "observations really cover"
        )
    lower, upper = (np.atleast_1d(frozen_array("low and high", b)) for b in (low, high))
    if lower.shape != upper.shape or lower.ndim != 1 or not (lower < upper).all():
        raise InvalidInputError(
            f"low and high must be equally long, and low below high; got {low!r} and {high!r}"
        )
    return lower, upper


def as_vectors(observations: NDArray[np.generic], k: int | None = None) -> FloatArray:
    """Return observations (n, k), or (n,) of one dimension, as (n, k) numbers.

    Raises
    ------
    InvalidInputError
        If they have another k.
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


def same_features(a: Any, b: Any) -> bool:
    """Tell whether features are the same by what they are; False where that cannot be told."""
    if a is b:
        return True
    if dataclasses.is_dataclass(a) and type(a) is type(b):
        fields = [field.name for field in dataclasses.fields(a)]
        return all(same_features(getattr(a, name), getattr(b, name)) for name in fields)
    if is_sparse(a) or is_sparse(b):
        both = is_sparse(a) and is_sparse(b) and a.shape == b.shape
        return both and (a != b).nnz == 0
    if isinstance(a, np.ndarray | list | tuple | float | int) and not callable(b):
        return np.array_equal(np.asarray(a), np.asarray(b))
    if type(a) is not type(b):
        return False
    try:
        return pickle.dumps(a) == pickle.dumps(b)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False
