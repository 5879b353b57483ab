"""Reading and checking arguments: arrays, numbers, choices, names, seeds."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from numbers import Real
from operator import index
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from unichain_gym.errors import (
    InvalidArgumentError,
    InvalidModelError,
    ModelTooLargeError,
    UnichainError,
)
from unichain_gym.interface import FloatArray, IntArray

MAX_ENTRIES = 10**9
MAX_DENSE_STATES = 5_000  # a dense matrix of this size takes 0.2 GB

Scalar = TypeVar("Scalar", bound=np.generic)


def read_reals(
    values: ArrayLike, what: str, error: type[UnichainError] = InvalidModelError
) -> FloatArray:
    """Return ``values`` as an array of float64, or raise ``error`` if they are no real numbers."""
    return np.asarray(read_floats(values, what, error), dtype=np.float64)


def read_floats(
    values: ArrayLike, what: str, error: type[UnichainError] = InvalidModelError
) -> NDArray[np.floating[Any]]:
    """Return ``values`` as `read_reals` does, but leave float16 and float32 as they are."""
    array = read_array(values, what, error)
    try:
        if array.dtype.kind not in "biufO":
            text = array.dtype.kind in "US"
            raise TypeError(f"got {reprlib.repr(values) if text else array.dtype}")
        is_mixed = array.dtype.kind == "O"
        if is_mixed and any(isinstance(v, str | bytes | None) for v in array.flat):
            raise TypeError(f"got {reprlib.repr(values)}")
        return (
            array
            if array.dtype in (np.float16, np.float32)
            else array.astype(np.float64, copy=False)
        )
    except (TypeError, ValueError, OverflowError) as problem:
        raise error(f"{what} must be an array of real numbers: {problem}") from problem


def read_array(
    values: ArrayLike, what: str, error: type[UnichainError] = InvalidModelError
) -> NDArray[Any]:
    """Return ``values`` as an array, or raise ``error`` if it is ragged, masked or sparse."""
    parts = values if isinstance(values, list | tuple) else (values,)
    if any(isinstance(part, np.ma.MaskedArray) and np.ma.is_masked(part) for part in parts):
        raise error(
            f"{what} has masked entries, which stand for no number: fill them in, by "
            "values.filled(...), or leave them out"
        )
    if sparse.issparse(values):
        raise error(f"{what} must be dense here: pass {what}.toarray()")
    try:
        return np.asarray(values)
    except (TypeError, ValueError) as problem:
        raise error(f"{what} must be an array of real numbers: {problem}") from problem


def read_number(name: str, value: Any) -> float:
    """Return a real number as a float, or raise `InvalidArgumentError`; text is no number."""
    try:
        if isinstance(value, Real) and not isinstance(value, bool):
            return float(value)
    except OverflowError:
        pass
    raise InvalidArgumentError(f"{name} must be a number; got {reprlib.repr(value)}")


def check_choice(
    name: str, value: Any, known: Sequence[str], error: type[UnichainError] = InvalidArgumentError
) -> Any:
    """Return one of the known values of an argument, or raise ``error``."""
    if not isinstance(value, str) or value not in known:
        quoted = [repr(each) for each in known]
        choice = " or ".join(quoted) if len(quoted) < 3 else f"one of {', '.join(quoted)}"
        hint = nearest_name(value, known)
        raise error(f"{name} must be {choice}; got {reprlib.repr(value)}{hint}")
    return value


def nearest_name(name: object, known: Iterable[str]) -> str:
    """Return the piece of a message that suggests the known name spelled most like ``name``."""
    folded = {k.lower().replace("_", ""): k for k in known}
    close = get_close_matches(str(name).lower().replace("_", ""), folded, n=1, cutoff=0.7)
    return f" (did you mean {folded[close[0]]!r}?)" if close else ""


def read_integers(values: ArrayLike, what: str) -> IntArray:
    """Return ``values`` as an array of int64, or raise `InvalidModelError` if one is not whole."""
    given = read_array(values, what)
    if np.issubdtype(given.dtype, np.integer):
        return given.astype(np.int64, copy=False)
    array = read_reals(given, what)
    wrong = ~((np.floor(array) == array) & (np.abs(array) < 2.0**53))
    if wrong.any():
        raise InvalidModelError(f"{what} must hold integers; got {float(array[wrong].flat[0])!r}")
    return array.astype(np.int64)


def read_only(array: NDArray[Scalar]) -> NDArray[Scalar]:
    """Return the array, made read-only."""
    array.flags.writeable = False
    return array


def require_integers(error: type[UnichainError], low: int | None = None, **values: Any) -> None:
    """Raise ``error`` for the first value that is no integer, or is below ``low``."""
    for name, value in values.items():
        try:
            index(value)
        except TypeError:
            value = True
        if isinstance(value, bool):
            raise error(f"{name} must be an integer; got {reprlib.repr(values[name])}")
        if low is not None and value < low:
            raise error(f"{name} must be at least {low}; got {value}")


def read_count(name: str, value: int) -> int:
    """Return an integer of at least 0, or raise `InvalidArgumentError`."""
    require_integers(InvalidArgumentError, **{name: value})
    if not 0 <= value < 2**63:
        wrong = "not be negative" if value < 0 else "be below 2^63"
        raise InvalidArgumentError(f"{name} must {wrong}; got {reprlib.repr(value)}")
    return int(value)


def check_discount(discount: float, instead: str) -> None:
    """Raise `InvalidArgumentError` unless a discount is in [0, 1)."""
    if not 0.0 <= read_number("discount", discount) < 1.0:
        raise InvalidArgumentError(
            f"discount must be at least 0 and below 1; got {discount!r}. For the undiscounted "
            f"case use {instead}"
        )


def require_room(what: str, *sizes: int) -> None:
    """Raise `ModelTooLargeError` if an array of these sizes would have more than 10^9 entries."""
    if math.prod(sizes) > MAX_ENTRIES:
        raise ModelTooLargeError(
            f"{what} would be an array of {' x '.join(map(str, sizes))} entries; the limit is "
            f"{MAX_ENTRIES} in all"
        )


def require_dense(what: str, n: int) -> None:
    """Raise `ModelTooLargeError` if a dense matrix over n states would be too large."""
    if n > MAX_DENSE_STATES:
        raise ModelTooLargeError(
            f"{what} of {n} states is a dense array of {n * n * 8 / 1e9:.1f} GB; the limit is "
            f"{MAX_DENSE_STATES} states"
        )


def read_generator(rng: np.random.Generator | int, what: str = "rng") -> np.random.Generator:
    """Return a generator, or one of a seed, or raise `InvalidArgumentError`."""
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError):
        raise InvalidArgumentError(
            f"{what} must be a generator, such as numpy.random.default_rng(0), or a seed of at "
            f"least 0; got {rng!r}"
        ) from None


def draw_thresholds(p: FloatArray) -> FloatArray:
    """Return cumulative sums of p (..., n) that turn a uniform draw u into an index drawn from p.

    Index ``k`` is drawn when ``thresholds[k - 1] <= u < thresholds[k]``. Thresholds are infinite
    from the last index with positive probability on. So a sum that rounding leaves below 1 never
    selects an index of probability zero.
    """
    thresholds = np.cumsum(p, axis=-1)
    later_mass = np.cumsum(p[..., ::-1], axis=-1)[..., ::-1]
    is_last = np.ones(p.shape, dtype=bool)
    is_last[..., :-1] = later_mass[..., 1:] == 0.0
    thresholds[is_last] = np.inf
    return thresholds
