"""Elimination without subtraction on numbers that no exponent can carry out of range.

The chance to go from one rare state to another by way of a third can be 1e-400, below every
double, and yet decide which of the two is more frequent. Here a number is m 2^k, with m a double
between ½ and 1 in size and k an integer of its own, so that nothing underflows or overflows
before the final answer is rounded to doubles. It takes a hundred times as long as
`unichain_gym.elimination`, and serves small chains where that may have underflowed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unichain_gym.arrays import FloatArray
from unichain_gym.elimination import finite

_ZERO_EXPONENT = -(2**30)  # of the number 0: below all others
_FAR = -2_000  # further apart than this, the smaller of two numbers does not count

Exponents = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Ranged:
    """An array of numbers mantissa 2^exponent."""

    mantissa: FloatArray
    exponent: Exponents

    @staticmethod
    def of(values: FloatArray, exponent: Exponents | int = 0) -> Ranged:
        """Return values 2^exponent with mantissas between ½ and 1 in size."""
        mantissa, shift = np.frexp(values)
        return Ranged(mantissa, np.where(mantissa == 0.0, _ZERO_EXPONENT, exponent + shift))

    def __getitem__(self, key: Any) -> Ranged:
        """Return part of the array."""
        return Ranged(self.mantissa[key], self.exponent[key])

    def __setitem__(self, key: Any, values: Ranged) -> None:
        """Overwrite part of the array."""
        self.mantissa[key], self.exponent[key] = values.mantissa, values.exponent

    def __add__(self, other: Ranged) -> Ranged:
        """Add number by number."""
        top = np.maximum(self.exponent, other.exponent)
        return Ranged.of(self._at(top) + other._at(top), top)

    def __mul__(self, other: Ranged) -> Ranged:
        """Multiply number by number."""
        return Ranged.of(self.mantissa * other.mantissa, self.exponent + other.exponent)

    def __truediv__(self, other: Ranged) -> Ranged:
        """Divide number by number; the divisor is not 0."""
        return Ranged.of(self.mantissa / other.mantissa, self.exponent - other.exponent)

    def sum(self) -> Ranged:
        """Add along the first axis."""
        top = self.exponent.max(axis=0, initial=_ZERO_EXPONENT)
        return Ranged.of(self._at(top).sum(axis=0), top)

    def rounded(self) -> FloatArray:
        """Return the nearest doubles: infinite or 0 where they are out of range."""
        with np.errstate(over="ignore", under="ignore"):
            return np.ldexp(self.mantissa, np.clip(self.exponent, -2_000, 2_000))

    def _at(self, exponent: Exponents) -> FloatArray:
        return np.asarray(np.ldexp(self.mantissa, np.maximum(self.exponent - exponent, _FAR)))


class RangedGthFactors:
    """Factors of A = diag(N 1 + e) - N, with the arguments of `GthFactors`; N is kept."""

    name = "ranged GTH"

    def __init__(self, N: FloatArray, exit_rate: FloatArray) -> None:
        n = self.n_operations = exit_rate.size
        a = Ranged.of(np.column_stack((N, exit_rate)))
        a[np.arange(n), np.arange(n)] = Ranged.of(np.zeros(n))
        pivot = Ranged.of(np.zeros(n))
        for k in range(n):
            pivot[k] = a[k, k + 1 :].sum()
            below = slice(k + 1, None)
            a[below, k] = a[below, k] / pivot[k]
            a[below, below] = a[below, below] + a[below, k, None] * a[None, k, below]
        self._a, self._pivot = a, pivot

    def solve(self, c: FloatArray, transposed: bool = False) -> FloatArray:
        """Return the solution of A x = c, c being (n,) or (n, m), or of x A = c, c being (n,)."""
        if transposed:
            return self._solve_transposed(c)
        a, x = self._a, Ranged.of(c.reshape(len(c), -1))
        n = len(c)
        for k in range(n):
            x[k + 1 :] = x[k + 1 :] + a[k + 1 :, k, None] * x[None, k]
        for k in reversed(range(n)):
            carried = (a[k, k + 1 : n, None] * x[k + 1 :]).sum()
            x[k] = (x[k] + carried) / self._pivot[k]
        return finite(x.rounded().reshape(c.shape))

    def _solve_transposed(self, c: FloatArray) -> FloatArray:
        a, x = self._a, Ranged.of(c)
        n = len(c)
        for k in range(n):
            x[k] = x[k] / self._pivot[k]
            x[k + 1 :] = x[k + 1 :] + a[k, k + 1 : n] * x[k]
        for k in reversed(range(n)):
            x[k] = x[k] + (a[k + 1 :, k] * x[k + 1 :]).sum()
        return finite(x.rounded())
