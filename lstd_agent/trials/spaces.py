"""Observations of Gymnasium spaces: in batches, as flat vectors, and by numbers.

A *batch* holds n observations in a vector environment's form: an array, or a dict or tuple of
arrays. The *parts* of an observation of a finite space are the values of Discrete spaces and the
entries of MultiDiscrete, MultiBinary and bounded integer Box spaces. With n_i values of part i, the
parts are digits in mixed radix, the last one the lowest:

    number = (... (p_1 - low_1) n_2 + (p_2 - low_2)) n_3 + ...
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from numbers import Number
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.errors import InvalidInputError

MAX_REWARD = 1e100
"""Rewards beyond this size are refused: their squares and sums would not be finite."""

_MAX_PARTS = 63  # a space whose elements an int64 cannot number counts as infinite


def plain_array(value: Any, what: str) -> NDArray[Any]:
    """Return a value as an array, or raise `InvalidInputError` for ragged lists or masks."""
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        told = f"got {what} with masked entries, which stand for no number: fill them in, by "
        told += "values.filled(...), or leave them out"
        raise InvalidInputError(told)
    try:
        array: NDArray[Any] = np.asarray(value)
    except (TypeError, ValueError):
        told = f"{what} must be an array, all rows of one length; got {value!r}"
        raise InvalidInputError(told) from None
    return array


def real_array(value: Any, what: str) -> FloatArray:
    """Return real numbers as an array of doubles, or raise `InvalidInputError`; text is none."""
    array = plain_array(value, what)
    is_object = array.dtype.kind == "O" and all(isinstance(x, Number) for x in array.flat)
    if array.dtype.kind in "fiub" or is_object:
        try:
            return array.astype(np.float64, copy=False)
        except (TypeError, ValueError):
            pass
    raise InvalidInputError(f"{what} must be real numbers; got {value!r}")


def each_array(function: Callable[..., Any], batch: Any, *others: Any) -> Any:
    """Apply a function to each array of a batch, and to the same arrays of similar batches."""
    if isinstance(batch, dict):
        return {k: each_array(function, p, *(o[k] for o in others)) for k, p in batch.items()}
    if isinstance(batch, tuple):
        return tuple(each_array(function, *parts) for parts in zip(batch, *others, strict=True))
    return function(batch, *others)


def as_batch(observation: Any) -> Any:
    """Return a single observation as a batch of one."""
    return each_array(lambda part: plain_array(part, "an observation")[None], observation)


def take(batch: Any, index: IntArray | slice | int) -> Any:
    """Return one observation of a batch, or a batch of some."""
    return each_array(lambda part: part[index], batch)


def batch_size(batch: Any) -> int:
    """Return the number of observations in a batch."""
    while isinstance(batch, dict | tuple):
        batch = next(iter(batch.values() if isinstance(batch, dict) else batch))
    return len(batch) if np.ndim(batch) else 0


def part_sizes(batch: Any) -> set[int]:
    """Return the lengths of all axes of an observation, and its numbers of members."""
    if isinstance(batch, dict | tuple):
        parts = batch.values() if isinstance(batch, dict) else batch
        return {len(batch)}.union(*map(part_sizes, parts))
    return set(np.shape(batch)[1:])


def is_batch(space: Space[Any], observation: Any) -> bool:
    """Return whether this is a batch of observations of ``space``, not a single one."""
    try:
        leaf, part = leaves(space, observation)[0]
        return np.ndim(part) > len(leaf.shape or ())
    except (TypeError, ValueError, LookupError):
        return False  # the encoding raises the error


def members(space: Space[Any]) -> list[tuple[Any, Space[Any]]] | None:
    """Return the members of a Dict or Tuple space by their keys; None of any other space."""
    if isinstance(space, spaces.Dict):
        return list(space.items())
    return list(enumerate(space.spaces)) if isinstance(space, spaces.Tuple) else None


def leaves(space: Space[Any], batch: Any) -> list[tuple[Space[Any], Any]]:
    """Return the innermost spaces of a space, each with its part of a batch."""
    inner = members(space)
    if inner is None:
        return [(space, batch)]
    if isinstance(space, spaces.Tuple) and len(batch) != len(inner):
        raise ValueError(f"it does not have {len(inner)} members")
    if isinstance(space, spaces.Dict) and not {*space} <= {*getattr(batch, "keys", tuple)()}:
        raise ValueError(f"it is no dict of {', '.join(map(repr, space))}")
    return [leaf for key, member in inner for leaf in leaves(member, batch[key])]


def flatten_batch(space: Space[Any], batch: Any) -> NDArray[Any]:
    """Return a batch as vectors (n, k), a new array; bytes stay bytes, choices are one-hot."""
    return _columns(space, batch, _flatten)


def _columns(space: Space[Any], batch: Any, convert: Any) -> NDArray[Any]:
    """Return the arrays (n, k_i) of all innermost spaces side by side, as a new array."""
    try:
        given = [(leaf, plain_array(part, "observations")) for leaf, part in leaves(space, batch)]
        parts = [convert(leaf, np.array(part)) for leaf, part in given]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
    except InvalidInputError:
        raise
    except (TypeError, ValueError, LookupError) as error:
        told = f"{batch!r} is not made of observations of {space}: {error}"
        raise InvalidInputError(told) from error


def _flatten(space: Space[Any], array: NDArray[Any]) -> NDArray[Any]:
    """Return observations (n, ...) of a space without members as vectors (n, k)."""
    flat_size(space)
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        sizes = np.ravel(space.nvec if isinstance(space, spaces.MultiDiscrete) else space.n)
        choices = (array - space.start).reshape(len(array), -1)
        columns = zip(choices.T, sizes.tolist(), strict=True)
        one_hot = np.concatenate([choice[:, None] == np.arange(n) for choice, n in columns], axis=1)
        if np.count_nonzero(one_hot) != choices.size:
            raise InvalidInputError(f"an observation has a choice that {space} does not hold")
        return one_hot.astype(np.uint8)
    if array.ndim == 0:
        raise TypeError("a batch has one observation a row")
    flat = array.reshape(len(array), -1)
    if flat.dtype.kind not in "fiub":
        raise TypeError("observations must be real numbers")
    return flat.astype(np.uint8) if flat.dtype.kind == "b" else flat


def flat_size(space: Space[Any]) -> int:
    """Return the number of components of a flattened observation, or raise if there is none."""
    flat = spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary | spaces.Box
    parts = [leaf for leaf, _ in leaves(space, space)]
    if wrong := [leaf for leaf in parts if not isinstance(leaf, flat)]:
        raise InvalidInputError(
            f"observations of {wrong[0]} have no flat form of fixed length; wrap the environment "
            "so that it observes a Discrete, Box, MultiDiscrete, MultiBinary, Dict or Tuple space"
        )
    if not (size := sum(int(spaces.flatdim(leaf)) for leaf in parts)):
        raise InvalidInputError(f"observations of {space} have no components")
    return size


@dataclass(frozen=True, eq=False)
class Numbering:
    """Numbers 0 to n - 1 of a finite space; part i has ``sizes[i]`` values from ``low[i]`` on."""

    space: Space[Any]
    low: IntArray
    sizes: IntArray
    n: int

    @classmethod
    def of(cls, space: Space[Any]) -> Numbering | None:
        """Return the numbering of a space, or None if it has more elements than int64 numbers."""
        found = [_ranges(leaf) for leaf, _ in leaves(space, space)]
        if None in found:
            return None
        ranges = [part for each in found for part in each or ()]
        n = math.prod(size for _, size in ranges)
        if not 0 < len(ranges) <= _MAX_PARTS or n >= 2**62:
            return None
        low, sizes = np.array(ranges, dtype=np.int64).T
        return cls(space, low, sizes, n)

    @cached_property
    def _units(self) -> IntArray:  # of each digit, shape (k,)
        return np.append(np.cumprod(self.sizes[:0:-1])[::-1], 1)

    def numbers(self, batch: Any) -> IntArray:
        """Return the numbers (m,) of a batch of m observations, checked."""
        return self.numbers_of_parts(_columns(self.space, batch, _parts))

    def numbers_of_parts(self, parts: IntArray) -> IntArray:
        """Return the numbers (m,) of observations by their parts (m, k), checked."""
        if parts.shape[1] != len(self.low):
            told = f"observations of {self.space} have {len(self.low)} parts; got {parts.shape[1]}"
            raise InvalidInputError(told)
        wrong = (parts < self.low) | (parts >= self.low + self.sizes)
        if wrong.any():
            row = int(np.argmax(wrong.any(axis=1)))
            raise InvalidInputError(
                f"an observation has parts {parts[row].tolist()}, which {self.space} does not hold"
            )
        return np.asarray((parts - self.low) @ self._units)

    def parts_of(self, number: IntArray) -> IntArray:
        """Return the parts (m, k) of observations by their numbers (m,)."""
        digits = np.asarray(number, dtype=np.int64)[:, None] // self._units % self.sizes
        return np.asarray(digits + self.low)


def _ranges(space: Space[Any]) -> list[tuple[int, int]] | None:
    """Return smallest value and number of values of each part; None if they cannot be numbered."""
    n_parts = math.prod(space.shape or ())
    if n_parts > _MAX_PARTS:
        return None
    if isinstance(space, spaces.Discrete):
        return [(int(space.start), int(space.n))]
    if isinstance(space, spaces.MultiDiscrete):
        return list(zip(space.start.ravel().tolist(), space.nvec.ravel().tolist(), strict=True))
    if isinstance(space, spaces.MultiBinary):
        return [(0, 2)] * n_parts
    if isinstance(space, spaces.Box) and space.dtype is not None and space.dtype.kind in "iu":
        bounds = zip(space.low.ravel().tolist(), space.high.ravel().tolist(), strict=True)
        return [(low, high - low + 1) for low, high in bounds]
    return None


def _parts(space: Space[Any], array: NDArray[Any]) -> IntArray:
    """Return the parts (m, k_i) of observations (m, ...) of a space without members."""
    if array.dtype.kind not in "iub":
        raise TypeError("its values must be integers")
    shape = tuple(space.shape or ())
    if array.shape[1:] != shape or not array.ndim:
        raise ValueError(f"a batch of {space} has shape (n, *{shape}), not {array.shape}")
    return array.reshape(len(array), -1).astype(np.int64)
