"""Reading and checking arguments: arrays, numbers, choices, names, seeds; rows of probabilities.

A residue is the rounding error of a difference that should be zero: ``1 - 0.7 - 0.1 - 0.1 - 0.1``
is 2.8e-17, ``1 - 0.9 - 0.1`` is -2.8e-17. As a probability it allows a transition once in 10^16
steps, which changes recurrent classes and gain. `drop_residues` finds such entries.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
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
    RoundingWarning,
    UnichainError,
    brief,
    warn_caller,
)
from unichain_gym.interface import FloatArray, IntArray

EPSILON = float(np.finfo(np.float64).eps)

RESIDUES = 1e-20, 1e-15
"""The range of possible residues, relative to a row's largest entry.

Differences of doubles near 1 are multiples of 1.1e-16, near 1e-4 of 1.4e-20; so an entry of 1e-40
is no residue.
"""

SAY_WHICH = " or pass drop_below=1e-15; drop_below=0 keeps everything as it is"

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
            raise TypeError(f"got {brief(values) if text else array.dtype}")
        is_mixed = array.dtype.kind == "O"
        if is_mixed and any(isinstance(v, str | bytes | None) for v in array.flat):
            raise TypeError(f"got {brief(values)}")
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
    raise InvalidArgumentError(f"{name} must be a number; got {brief(value)}")


def check_choice(
    name: str, value: Any, known: Sequence[str], error: type[UnichainError] = InvalidArgumentError
) -> Any:
    """Return one of the known values of an argument, or raise ``error``."""
    if not isinstance(value, str) or value not in known:
        quoted = [repr(each) for each in known]
        choice = " or ".join(quoted) if len(quoted) < 3 else f"one of {', '.join(quoted)}"
        hint = nearest_name(value, known)
        raise error(f"{name} must be {choice}; got {brief(value)}{hint}")
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


def require_integers(
    error: type[UnichainError], low: int | None = None, high: int | None = None, **values: Any
) -> None:
    """Raise ``error`` for the first value that is no integer, or is out of bounds."""
    for name, value in values.items():
        try:
            index(value)
        except TypeError:
            value = True
        if isinstance(value, bool):
            raise error(f"{name} must be an integer; got {brief(values[name])}")
        if (low is not None and value < low) or (high is not None and value > high):
            bounds = f"at least {low}" if high is None else f"from {low} to {high}"
            raise error(f"{name} must be {bounds}; got {brief(value)}")


def read_count(name: str, value: int) -> int:
    """Return an integer of at least 0, or raise `InvalidArgumentError`."""
    require_integers(InvalidArgumentError, **{name: value})
    if not 0 <= value < 2**63:
        wrong = "not be negative" if value < 0 else "be below 2^63"
        raise InvalidArgumentError(f"{name} must {wrong}; got {brief(value)}")
    return int(value)


def check_discount(discount: float, instead: str) -> None:
    """Raise `InvalidArgumentError` unless a discount is in [0, 1)."""
    if not 0.0 <= read_number("discount", discount) < 1.0:
        raise InvalidArgumentError(
            f"discount must be at least 0 and below 1; got {brief(discount)}. For the undiscounted "
            f"case use {instead}"
        )


def require_room(what: str, *sizes: int) -> None:
    """Raise `ModelTooLargeError` if an array of these sizes would have more than 10^9 entries."""
    if math.prod(sizes) > MAX_ENTRIES:
        raise ModelTooLargeError(
            f"{what} would be an array of {' x '.join(map(str, sizes))} entries; the limit is "
            f"{MAX_ENTRIES} in all"
        )


def require_dense(what: str, n: int, kind: str = "states", instead: str = "") -> None:
    """Raise `ModelTooLargeError` if a dense matrix over n states would be too large."""
    if n > MAX_DENSE_STATES:
        raise ModelTooLargeError(
            f"{what} of {n} {kind} is a dense array of {n * n * 8 / 1e9:.1f} GB; the limit is "
            f"{MAX_DENSE_STATES} states{instead}"
        )


def read_generator(rng: np.random.Generator | int, what: str = "rng") -> np.random.Generator:
    """Return a generator, or one of a seed, or raise `InvalidArgumentError`."""
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError):
        raise InvalidArgumentError(
            f"{what} must be a generator, such as numpy.random.default_rng(0), or a seed of at "
            f"least 0; got {brief(rng)}"
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


def sum_tolerance(n_terms: int) -> float:
    """Return how far from 1 rounding may move a sum of ``n_terms`` probabilities.

    Rounding grows with the number of terms; the factor 1e4 accepts probabilities written with
    twelve digits.
    """
    return 1e4 * EPSILON * max(1, n_terms)


def sums_to_one(totals: FloatArray, n_terms: int) -> bool:
    """Whether all sums of ``n_terms`` probabilities miss 1 by no more than single precision."""
    epsilon = float(np.finfo(np.float32).eps)
    return bool((np.abs(totals - 1.0) <= epsilon * max(4, n_terms)).all())


def in_double(
    p: NDArray[np.floating[Any]], row: IntArray, n_rows: int, place: Callable[[int], str]
) -> FloatArray:
    """Return probabilities in double precision, rows of lower precision normalized.

    A row of lower precision is divided by its sum if that misses 1 by no more than its dtype's
    epsilon for each term that is not 0 (at least four). Negative entries of the dtype's rounding
    size become 0, with a `RoundingWarning`; ``place`` names the entry of a flat index for it.
    ``row``, of the shape of p, has the row number of each entry.
    """
    if p.dtype == np.float64:
        return p.astype(np.float64, copy=False)
    epsilon = float(np.finfo(p.dtype).eps)
    doubles = p.astype(np.float64)
    negative = (doubles < 0.0) & (doubles > -4.0 * epsilon)
    if negative.any():
        _warn(doubles, np.flatnonzero(negative), place, "")
        doubles[negative] = 0.0
    label = row.ravel()
    total = np.bincount(label, doubles.ravel(), n_rows)
    n_terms = np.bincount(label, doubles.ravel() != 0.0, n_rows)
    total[~(np.abs(total - 1.0) <= epsilon * np.maximum(4, n_terms))] = 1.0
    doubles /= total[row]
    return doubles


def drop_residues(
    p: NDArray[np.floating[Any]],
    row: IntArray,
    n_rows: int,
    place: Callable[[int], str],
    drop_below: float | None,
    *,
    small_is_meant: bool = False,
) -> FloatArray:
    """Return probabilities `in_double`, with residues set to 0.

    Entries smaller in size than the share ``drop_below`` (0 to 1) of their row's largest become 0,
    and the row's other entries grow to keep its sum; with 0, all stay. By default negative entries
    below 1e-15 of the largest become 0, positive ones stay, and a `RoundingWarning` names both, or
    the negative ones alone if ``small_is_meant``.
    """
    low, high = RESIDUES
    limit = high if drop_below is None else drop_below
    if not 0.0 <= read_number("drop_below", limit) < 1.0:
        raise InvalidArgumentError(
            "drop_below is a share of a row's largest probability, from 0 to 1; got "
            f"{brief(drop_below)}"
        )
    p = in_double(p, row, n_rows, place)
    is_small = p < 2.0 * limit
    if not limit or np.count_nonzero(is_small) == np.count_nonzero(p == 0.0):
        return p
    is_small &= p != 0.0
    largest = np.zeros(n_rows)
    np.maximum.at(largest, row, p)
    is_small &= np.abs(p) < limit * largest[row]
    if drop_below is None:
        negative = is_small & (p < 0.0)
        if not small_is_meant:
            is_small &= negative | (p >= low * largest[row])
        named = np.flatnonzero(negative if small_is_meant else is_small)
        if named.size:
            _warn(p, named, place, "" if small_is_meant else SAY_WHICH)
        return np.where(negative, 0.0, p)
    label = row.ravel()
    kept: FloatArray = np.where(is_small, 0.0, p)
    before = np.bincount(label, p.ravel(), n_rows)
    after = np.bincount(label, kept.ravel(), n_rows)
    kept *= np.divide(before, after, out=np.ones(n_rows), where=after > 0.0)[row]
    return kept


def _warn(p: FloatArray, entries: IntArray, place: Callable[[int], str], remedy: str) -> None:
    """Name up to three entries of rounding size, and the remedy."""
    named = []
    for i in entries[:3].tolist():
        taken = ", taken as 0" if p.flat[i] < 0.0 else ""
        named.append(f"{place(i)} ({float(p.flat[i])!r}{taken})")
    more = f" and {entries.size - 3} more" if entries.size > 3 else ""
    warn_caller(
        f"probabilities of the size of rounding errors: {'; '.join(named)}{more}. Where 0 is "
        f"meant, as by 1 - 0.7 - 0.3, write 0{remedy}",
        RoundingWarning,
    )
