"""Sums Z of products of many sparse features in factors: solutions, range and leverages."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from scipy import sparse

from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.statistics.peeled import SHIFT, Peeled, Shifted, are_open

# Right-hand sides of about so many numbers are solved for at a time.
_CHUNK_SIZE = 2**22


class Factored:
    """Features F of samples, scaled, and Z = F^T F.

    Factorizations are made when they are asked for: that of all of Z takes the longest.

    Parameters
    ----------
    features : csr_array, shape (n, d)

    Attributes
    ----------
    seen : ndarray of int, shape (k,)
        The features that samples have.
    scale : dia_array, shape (k, k)
        What they are multiplied by.
    F : csr_array, shape (n, k)
    Z : csc_array, shape (k, k)
        With ones in its diagonal.
    """

    def __init__(self, features: sparse.csr_array) -> None:
        squares = features.power(2).sum(axis=0)
        self.seen = np.flatnonzero(squares > 0.0)
        self.scale = sparse.diags_array(1.0 / np.sqrt(squares[self.seen]))
        self.F = self.scaled(features)

    @cached_property
    def Z(self) -> sparse.csc_array:
        """F^T F."""
        return sparse.csc_array(self.F.T @ self.F)

    @cached_property
    def peeled(self) -> Peeled:
        """The same without samples that have features of their own, in factors."""
        return Peeled(self.F)

    @cached_property
    def _shifted(self) -> Shifted:
        return self.peeled.factors or Shifted(self.Z)

    def scaled(self, f: sparse.csr_array) -> sparse.csr_array:
        """Return features (n, d) as (n, k): those that samples have, scaled."""
        return sparse.csr_array(f[:, self.seen] @ self.scale)

    def least(self, w: FloatArray) -> FloatArray:
        """Return the least of all weights that make the values that w (k,) makes of samples."""
        return self._shifted.in_range(w)

    def size(self, right: FloatArray) -> float:
        """Return the Z†-seminorm of a right-hand side (k,)."""
        solved = self.peeled.solve(right)
        return float(np.sqrt(max(float(solved @ (self.Z @ solved)), 0.0)))

    def are_outside(self, x: sparse.csr_array) -> BoolArray:
        """Tell which features (m, d) are not in the range of Z."""
        return self._have_unseen(x) | are_open(self.scaled(x), self.peeled.null)

    def _have_unseen(self, x: sparse.csr_array) -> BoolArray:
        """Tell which features (m, d) have what no sample has."""
        unseen = np.ones(x.shape[1])
        unseen[self.seen] = 0.0
        return np.asarray(abs(x) @ unseen > 0.0)

    def leverages(self, right: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the share (m,) of columns q (k, m) outside the range of Z, and q^T Z† q."""
        x = self._shifted.solve(right)
        size = np.maximum(np.linalg.norm(right, axis=0), 1e-300)
        length = np.linalg.norm(x, axis=0)
        # Once refined: q - Z x = ε x, which (Z + εI)^{-1} makes ε x^T x of.
        return SHIFT * length / size, np.einsum("km,km->m", right, x) + SHIFT * length**2

    def scaled_columns(self, x: sparse.csr_array) -> Iterator[tuple[IntArray, FloatArray]]:
        """Yield places of features (m, d) with nothing but what samples have, and them (k, m)."""
        known = np.flatnonzero(~self._have_unseen(x))
        size = max(1, _CHUNK_SIZE // max(1, self.seen.size))
        for first in range(0, known.size, size):
            rows = known[first : first + size]
            yield rows, self.scaled(x[rows]).toarray().T
