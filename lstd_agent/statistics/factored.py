"""Sums Z of products of many sparse features in factors: range, null space and leverages.

Z is singular: of the tiles that a sample is in, some always come together. So Z + εI takes its
place, which tells f in the range of Z from others, and a step of refinement takes out what ε
changes for the former.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy import sparse

from lstd_agent.arrays import BoolArray, FloatArray, IntArray

# Beside the diagonal of scaled Z.
_SHIFT = 1e-10

# What is outside the range of Z by a smaller share is inside.
_IN_RANGE = 1e-6

# So many vectors of the null space of Z tell what is in its range.
_N_PROBES = 8

# Right-hand sides of about so many numbers are solved for at a time.
_CHUNK_SIZE = 2**22


class Factored:
    """Z + εI of sums Z (d, d), both scaled, in factors.

    Parameters
    ----------
    whole : csr_array, shape (d, d)
        Positive semidefinite.

    Attributes
    ----------
    seen : ndarray of int, shape (k,)
        The features that samples have.
    scale : dia_array, shape (k, k)
        What they are multiplied by.
    Z : csc_array, shape (k, k)
        With ones in its diagonal.
    """

    def __init__(self, whole: sparse.csr_array) -> None:
        from scipy.sparse.linalg import splu  # takes long to import

        diagonal = whole.diagonal()
        self.seen = np.flatnonzero(diagonal > 0.0)
        self.scale = sparse.diags_array(1.0 / np.sqrt(diagonal[self.seen]))
        self.Z = sparse.csc_array(self.scale @ whole[self.seen][:, self.seen] @ self.scale)
        shifted = sparse.csc_array(self.Z + _SHIFT * sparse.eye_array(self.seen.size))
        # Positive definite: any order is stable, and this one leaves few numbers to fill in.
        self._factors = splu(
            shifted, "MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
        )

    @classmethod
    def of(cls, f: sparse.csr_array) -> Factored:
        """Return F^T F of features (n, d) in factors."""
        return cls(sparse.csr_array(f.T @ f))

    def scaled(self, f: sparse.csr_array) -> sparse.csr_array:
        """Return features (n, d) as (n, k): those that samples have, scaled."""
        return sparse.csr_array(f[:, self.seen] @ self.scale)

    def solve(self, right: FloatArray) -> FloatArray:
        """Return Z† times right-hand sides (k,) or (k, m) in the range of Z."""
        solved: FloatArray = self._factors.solve(right)
        return solved

    def in_range(self, right: FloatArray) -> FloatArray:
        """Return the part of right-hand sides in the range of Z."""
        # Twice, since once takes away as well of directions that are nearly outside.
        return np.asarray(right - _SHIFT**2 * self.solve(self.solve(right)))

    def size(self, right: FloatArray) -> float:
        """Return the Z†-seminorm of a right-hand side (k,)."""
        solved = self.solve(right)
        return float(np.sqrt(max(float(solved @ (self.Z @ solved)), 0.0)))

    def are_outside(self, x: sparse.csr_array) -> BoolArray:
        """Tell which features (m, d) are not in the range of Z.

        They are those that are not orthogonal to its null space, that is, by any chance, to some
        random vectors of it.
        """
        null = _SHIFT * self.solve(
            np.random.default_rng(0).standard_normal((self.seen.size, _N_PROBES))
        )
        known = self.scaled(x)
        size = np.sqrt(known.power(2).sum(axis=1))
        share = np.linalg.norm(known @ null, axis=1) / np.sqrt(_N_PROBES)
        unseen = np.ones(x.shape[1])
        unseen[self.seen] = 0.0
        return np.asarray((abs(x) @ unseen > 0.0) | (share > _IN_RANGE * size))

    def are_alone(self, f: sparse.csr_array) -> BoolArray:
        """Tell which of the features (n, d) that Z is made of the others do not span.

        Projected onto the range of F, what stands in their places stays as it is.
        """
        F = self.scaled(f)
        probes = np.random.default_rng(1).standard_normal((f.shape[0], _N_PROBES))
        moved = np.abs(F @ self.solve(F.T @ probes) - probes).max(axis=1)
        return np.asarray(moved <= _IN_RANGE)

    def leverages(self, right: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the share (m,) of columns q (k, m) outside the range of Z, and q^T Z† q."""
        x = self.solve(right)
        size = np.maximum(np.linalg.norm(right, axis=0), 1e-300)
        length = np.linalg.norm(x, axis=0)
        # Once refined: q - Z x = ε x, which (Z + εI)^{-1} makes ε x^T x of.
        return _SHIFT * length / size, np.einsum("km,km->m", right, x) + _SHIFT * length**2

    def scaled_columns(self, x: sparse.csr_array) -> Iterator[tuple[IntArray, FloatArray]]:
        """Yield places of features (m, d) with nothing but what samples have, and them (k, m)."""
        unseen = np.ones(x.shape[1])
        unseen[self.seen] = 0.0
        known = np.flatnonzero(abs(x) @ unseen == 0.0)
        size = max(1, _CHUNK_SIZE // max(1, self.seen.size))
        for first in range(0, known.size, size):
            rows = known[first : first + size]
            yield rows, (x[rows][:, self.seen] @ self.scale).toarray().T
