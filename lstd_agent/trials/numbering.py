"""Numbers for the elements of a finite space, and back.

An observation of a finite space is a few integers, its *parts*, side by side: the value of a
Discrete space, the entries of a MultiDiscrete, MultiBinary or bounded integer Box space, and
those of the members of a Dict or Tuple. With n_i values of part i, the parts are the digits of
the observation's number in mixed radix, the last part's the lowest:

    number = (... (p_1 - low_1) n_2 + (p_2 - low_2)) n_3 + ...
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from lstd_agent.arrays import IntArray
from lstd_agent.errors import InvalidInputError

# A space of more elements than numbers have bits for is not finite for our purposes.
_MAX_PARTS = 63


@dataclass(frozen=True, eq=False)
class Numbering:
    """Numbers 0 to n - 1 of the elements of a finite space.

    Attributes
    ----------
    space : Space
    low : ndarray of int, shape (k,)
        Smallest value of each part.
    sizes : ndarray of int, shape (k,)
        Number of values of each part.
    """

    space: Space[Any]
    low: IntArray
    sizes: IntArray

    @classmethod
    def of(cls, space: Space[Any]) -> Numbering | None:
        """Return the numbering of a space, or None if it is not finite (or beyond numbers)."""
        ranges = _ranges(space)
        if ranges is None or not 0 < len(ranges) <= _MAX_PARTS:
            return None
        if math.prod(size for _, size in ranges) >= 2**62:
            return None
        low, sizes = np.array(ranges, dtype=np.int64).T
        return cls(space, low, sizes)

    @cached_property
    def n(self) -> int:
        """Number of elements."""
        return math.prod(self.sizes.tolist())

    def numbers(self, batch: Any) -> IntArray:
        """Return the numbers (m,) of a batch of m observations, checked."""
        try:
            parts: IntArray = np.concatenate(_columns(self.space, batch), axis=1)
        except (TypeError, ValueError, LookupError) as error:
            raise InvalidInputError(
                f"{batch!r} is not made of observations of {self.space}: {error}"
            ) from error
        return self.numbers_of_parts(parts)

    def numbers_of_parts(self, parts: IntArray) -> IntArray:
        """Return the numbers (m,) of observations by their parts (m, k), checked."""
        if parts.shape[1] != len(self.low):
            raise InvalidInputError(
                f"observations of {self.space} have {len(self.low)} parts; got {parts.shape[1]}"
            )
        wrong = (parts < self.low) | (parts >= self.low + self.sizes)
        if wrong.any():
            row = int(np.argmax(wrong.any(axis=1)))
            raise InvalidInputError(
                f"an observation has parts {parts[row].tolist()}, which {self.space} does not hold"
            )
        digits = parts - self.low
        number: IntArray = digits[:, 0].copy()
        for digit, size in zip(digits.T[1:], self.sizes[1:].tolist(), strict=True):
            number *= size
            number += digit
        return number

    def parts_of(self, number: IntArray) -> IntArray:
        """Return the parts (m, k) of observations by their numbers (m,)."""
        digits: list[IntArray] = []
        rest = np.asarray(number, dtype=np.int64)
        for size in reversed(self.sizes.tolist()):
            rest, digit = np.divmod(rest, size)
            digits.append(digit)
        return np.stack(digits[::-1], axis=1) + self.low


def _ranges(space: Space[Any]) -> list[tuple[int, int]] | None:
    """Return smallest value and number of values of each part; None if there is no end of them."""
    if isinstance(space, spaces.Discrete):
        return [(int(space.start), int(space.n))]
    if isinstance(space, spaces.MultiDiscrete):
        return list(zip(space.start.ravel().tolist(), space.nvec.ravel().tolist(), strict=True))
    if isinstance(space, spaces.MultiBinary):
        return [(0, 2)] * math.prod(space.shape)
    if isinstance(space, spaces.Box) and space.dtype is not None and space.dtype.kind in "iu":
        if math.prod(space.shape) > _MAX_PARTS:
            return None
        bounds = zip(space.low.ravel().tolist(), space.high.ravel().tolist(), strict=True)
        return [(low, high - low + 1) for low, high in bounds]
    if isinstance(space, spaces.Dict | spaces.Tuple):
        members = list(space.values()) if isinstance(space, spaces.Dict) else space.spaces
        ranges: list[tuple[int, int]] = []
        for member in members:
            inner = _ranges(member)
            if inner is None:
                return None
            ranges += inner
        return ranges
    return None


def _columns(space: Space[Any], batch: Any) -> list[NDArray[Any]]:
    """Return a batch's parts as a list of arrays (m, k_i)."""
    if isinstance(space, spaces.Dict):
        return [c for key, part in space.items() for c in _columns(part, batch[key])]
    if isinstance(space, spaces.Tuple):
        pairs = zip(space.spaces, batch, strict=True)
        return [c for part, b in pairs for c in _columns(part, b)]
    array = np.asarray(batch)
    if array.dtype.kind not in "iub":
        raise TypeError("its values must be integers")
    shape = tuple(space.shape or ())
    if array.shape[1:] != shape:
        raise ValueError(f"a batch of {space} has shape (n, *{shape}), not {array.shape}")
    return [array.reshape(len(array), -1).astype(np.int64)]
