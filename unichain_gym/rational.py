"""Numbers as fractions, and the tables of MDPs in them.

A table with .4 and 1/3 holds doubles near 2/5 and 1/3. `read_fractions` reads a double as the
simplest fraction within two ulps, if that is too simple to be a coincidence, and otherwise as
what it is. (Among random numbers, a fraction with denominator q is that near with a chance of
about q² times the width of two ulps.)
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from unichain_gym.arrays import BoolArray, FloatArray
from unichain_gym.rounding import EPSILON

ObjectArray = NDArray[np.object_]
COINCIDENCE = 1e-3


def read_fractions(values: FloatArray) -> tuple[ObjectArray, bool]:
    """Return the fractions that doubles (n,) stand for, and whether all of them were recognized."""
    different, place = np.unique(values, return_inverse=True)
    read = [_read_fraction(x) for x in different.tolist()]
    fractions = np.empty(different.size, dtype=object)
    fractions[:] = [fraction for fraction, _ in read]
    return fractions[place.reshape(-1)], all(is_sure for _, is_sure in read)


def _read_fraction(x: float) -> tuple[Fraction, bool]:
    exact = Fraction(x)
    reach = 2 * Fraction(EPSILON) * abs(exact)
    size = _simplest(abs(exact) - reach, abs(exact) + reach) if x else exact
    if size.denominator**2 * 2 * reach > COINCIDENCE:
        return exact, False
    return (size if x > 0.0 else -size), True


def _simplest(low: Fraction, high: Fraction) -> Fraction:
    """Return the fraction of the smallest denominator between two positive ones."""
    whole = -(-low.numerator // low.denominator)
    if whole <= high:
        return Fraction(whole)
    return whole - 1 + 1 / _simplest(1 / (high - (whole - 1)), 1 / (low - (whole - 1)))


def is_short(values: FloatArray) -> BoolArray:
    """Whether a double's last 16 bits are zero: then it is taken for exact, not for rounded."""
    mantissa: FloatArray = np.ldexp(np.frexp(values)[0], 37)
    return np.asarray(mantissa == np.rint(mantissa))
