"""How large features are, and how far they vary: what of them a fit cannot see.

A pseudoinverse takes for zero what is small beside the rest. So a feature that hardly varies
beside its size counts as a constant, and no residual tells. Features that are constant, zero, or
of other sizes than the rest do no harm, but are said as well.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.features.rows import Rows, is_sparse

# What varies less, beside its size, is a constant up to rounding.
_CONSTANT = 1e-13

_N_NAMED = 8


@dataclass(frozen=True, eq=False)
class FeatureSizes:
    """Sizes of features over states that were seen.

    Attributes
    ----------
    size, spread : ndarray, shape (d,)
        Largest absolute value, and largest less smallest value.
    lost : ndarray of int
        Features whose variation is too small, beside their size, to be seen by the fit.

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
        """Return those of features (M, d).

        Parameters
        ----------
        features : ndarray or csr_array, shape (M, d)
            Of at least one state.
        least : float
            A smaller variation, beside the feature's size, is not seen.
        """
        highest, lowest = features.max(axis=0), features.min(axis=0)
        if is_sparse(features):
            highest, lowest = highest.toarray().ravel(), lowest.toarray().ravel()
        size, spread = np.maximum(highest, -lowest), highest - lowest
        varies = spread > _CONSTANT * size
        return cls(size, spread, np.flatnonzero(varies & (spread < least * size)))

    @property
    def warning(self) -> str:
        """What is wrong, with what to do; empty where nothing is."""
        if not self.lost.size:
            return ""
        names = ", ".join(str(i) for i in self.lost[:_N_NAMED])
        more = self.lost.size - _N_NAMED
        least = float((self.spread[self.lost] / self.size[self.lost]).min())
        return (
            f"features {names}{f' and {more} more' if more > 0 else ''} vary too little beside "
            f"their size (by {least:.1e} of it) to tell states apart: take their means off them, "
            "or use standardize=True"
        )

    def __str__(self) -> str:
        some = self.size[self.size > 0.0]
        parts = [f"{self.size.size}"]
        if some.size:
            parts.append(f"sizes {some.min():.3g} to {some.max():.3g}")
        constant = (self.spread <= _CONSTANT * self.size) & (self.size > 0.0)
        for n, what in (
            (int(constant.sum()), "constant"),
            (int((self.size == 0.0).sum()), "always 0"),
            (self.lost.size, "that hardly varies" if self.lost.size == 1 else "that hardly vary"),
        ):
            if n:
                parts.append(f"{n} {what}")
        return ", ".join(parts)
