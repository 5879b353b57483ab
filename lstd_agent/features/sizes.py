"""Sizes of features, and how far features vary.

A pseudoinverse treats small numbers beside large ones as zero. So a feature that hardly varies
beside its size acts as a constant, and no residual shows it. Features that are constant, zero or of
other sizes than the rest do no harm; they are reported only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.features.rows import Rows, is_sparse

# A smaller variation beside the size is rounding.
_CONSTANT = 1e-13

_N_NAMED = 8


@dataclass(frozen=True, eq=False)
class FeatureSizes:
    """Sizes of features over states that were seen.

    ``size`` (d,) is the largest absolute value and ``spread`` (d,) the largest minus the smallest.
    ``lost`` lists the features that vary too little beside their size for the fit to see it.

    Examples
    --------
    >>> from lstd_agent.features.sizes import FeatureSizes
    >>> print(FeatureSizes.of(np.array([[1.0, 5e8], [1.0, 5e8 + 1.0]]), 1e-5))
    2, sizes 1 to 5e+08, 1 constant, 1 that hardly varies
    """

    size: FloatArray
    spread: FloatArray
    lost: IntArray

    @classmethod
    def of(cls, features: Rows, least: float) -> FeatureSizes:
        """Return the sizes of features (M, d), M >= 1; the fit misses variations below ``least``.

        ``least`` is a share of the feature's size.
        """
        highest, lowest = features.max(axis=0), features.min(axis=0)
        if is_sparse(features):
            highest, lowest = highest.toarray().ravel(), lowest.toarray().ravel()
        size, spread = np.maximum(highest, -lowest), highest - lowest
        varies = spread > _CONSTANT * size
        return cls(size, spread, np.flatnonzero(varies & (spread < least * size)))

    @property
    def warning(self) -> str:
        """The problem with its remedy; empty if there is none."""
        if not self.lost.size:
            return ""
        names, more = ", ".join(map(str, self.lost[:_N_NAMED])), self.lost.size - _N_NAMED
        least = float((self.spread[self.lost] / self.size[self.lost]).min())
        return (
            f"features {names}{f' and {more} more' if more > 0 else ''} vary too little beside "
            f"their size (by {least:.1e} of it) to distinguish states: subtract their means, "
            "or use standardize=True"
        )

    def __str__(self) -> str:
        some = self.size[self.size > 0.0]
        sizes = f", sizes {some.min():.3g} to {some.max():.3g}" if some.size else ""
        is_zero = self.size == 0.0
        kinds = {
            "constant": int(((self.spread <= _CONSTANT * self.size) & ~is_zero).sum()),
            "always 0": int(is_zero.sum()),
            f"that hardly {'varies' if self.lost.size == 1 else 'vary'}": self.lost.size,
        }
        return f"{self.size.size}{sizes}" + "".join(f", {n} {k}" for k, n in kinds.items() if n)
