r"""Sparse features of samples, without those samples that have a feature of their own.

Such a sample takes any value by its own feature, so that it tells nothing of the other features.
Without it others are left with features of their own. What is left in the end is the *core*. With
the samples p that went, their own features p and the core c, in the order in which they went,

.. math:: F = \begin{pmatrix} F_c & 0 & 0 \\ B & T & O \end{pmatrix},

T is triangular, and only the core's sums of products take a factorization. Features o that go
without a sample of their own may have any weights.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.errors import EvaluationError

# Beside the diagonal of scaled Z.
SHIFT = 1e-10

# What is outside the range of Z by a smaller share is inside.
_IN_RANGE = 1e-6

# So many vectors of the null space of Z tell what is in its range.
_N_PROBES = 8


# Where fewer samples have features of their own, none go, and the core is all of Z.
_FEWEST = 0.1

# Features of their own are looked for as long as more samples than this find one at a time.
_SMALLEST_ROUND = 1e-3


class Shifted:
    """Z + εI in factors, of sums Z (k, k) of products of scaled features.

    Z is singular: of the tiles that a sample is in, some always come together. Z + εI tells what is
    in the range of Z from what is not, and nearly solves for the former.

    Raises
    ------
    EvaluationError
        If the factors do not fit into memory.
    """

    def __init__(self, Z: sparse.csc_array) -> None:
        from scipy.sparse.linalg import splu  # takes long to import

        shifted = sparse.csc_array(Z + SHIFT * sparse.eye_array(Z.shape[0]))
        # Positive definite: any order is stable, and this one leaves few numbers to fill in.
        mode = {"SymmetricMode": True}
        try:
            self._factors = splu(shifted, "MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=mode)
        except MemoryError:
            raise EvaluationError(
                f"the factors of {Z.shape[0]} sparse features that samples share do not fit into "
                f"memory ({Z.nnz} pairs of them come together in samples): use fewer or coarser "
                "features, those of fewer dimensions at a time, or fewer trials"
            ) from None

    def solve(self, right: FloatArray) -> FloatArray:
        """Return Z† times right-hand sides (k,) or (k, m) in the range of Z."""
        solved: FloatArray = self._factors.solve(right)
        return solved

    def in_range(self, right: FloatArray) -> FloatArray:
        """Return the part of right-hand sides in the range of Z."""
        # Twice, since once takes away as well of directions that are nearly outside.
        return np.asarray(right - SHIFT**2 * self.solve(self.solve(right)))

    def outside(self, right: FloatArray) -> FloatArray:
        """Return the part of right-hand sides in the null space of Z."""
        return SHIFT * self.solve(right)


class Peeled:
    """Features F of samples: what their values leave open, and weights of values.

    Parameters
    ----------
    F : csr_array, shape (n, k)
        Each feature is one that a sample has.
    """

    def __init__(self, F: sparse.csr_array) -> None:
        from scipy.sparse.linalg import splu  # takes long to import

        self.F = F
        self._rows, self._own = with_features_of_their_own(F)
        if len(self._rows) < _FEWEST * F.shape[0]:
            self._rows, self._own = self._rows[:0], self._own[:0]
        self._left = np.setdiff1d(np.arange(F.shape[0]), self._rows)
        core = F[self._left]
        size = np.sqrt(core.power(2).sum(axis=0))
        self._core = np.flatnonzero(size)
        self._scale = sparse.diags_array(1.0 / size[self._core])
        self._F = sparse.csr_array(core[:, self._core] @ self._scale)
        peeled = F[self._rows]
        self._B = sparse.csr_array(peeled[:, self._core] @ self._scale)
        self._T: Any = splu(
            sparse.csc_array(peeled[:, self._own]), "NATURAL", diag_pivot_thresh=0.0
        )
        self._other = np.setdiff1d(np.arange(F.shape[1]), np.append(self._core, self._own))
        self._O = peeled[:, self._other]

    @cached_property
    def _Z(self) -> Shifted:
        return Shifted(sparse.csc_array(self._F.T @ self._F))

    @property
    def factors(self) -> Shifted | None:
        """Those of all of Z, if no samples went."""
        return None if len(self._rows) else self._Z

    def solve(self, right: FloatArray) -> FloatArray:
        """Return some w (k,) or (k, m) with F^T F w = right, in its range."""
        if self.factors is not None:
            return self.factors.solve(right)
        values = self._T.solve(right[self._own], "T")
        weights = self._Z.solve(self._scale @ right[self._core] - self._B.T @ values)
        return self._joined(weights, values)

    def in_range(self, right: FloatArray) -> FloatArray:
        """Return the part of right-hand sides (k,) in the range of F^T, or one like it."""
        values = self._T.solve(right[self._own], "T")
        of_peeled = self._B.T @ values
        inside = self._Z.in_range(self._scale @ right[self._core] - of_peeled) + of_peeled
        found = np.array(right)
        found[self._core] = inside * np.reciprocal(self._scale.diagonal())
        found[self._other] = self._O.T @ values
        return found

    def _joined(
        self, core: FloatArray, values: FloatArray, other: FloatArray | None = None
    ) -> FloatArray:
        """Return weights of all features, with which the samples that went have these values."""
        found = np.zeros((self.F.shape[1], *core.shape[1:]))
        found[self._core] = self._scale @ core
        if other is not None:
            found[self._other] = other
            values = values - self._O @ other
        found[self._own] = self._T.solve(values - self._B @ core)
        return found

    @cached_property
    def null(self) -> FloatArray:
        """Random weights (k, m) that make all values 0."""
        rng = np.random.default_rng(0)
        core = self._Z.outside(rng.standard_normal((len(self._core), _N_PROBES)))
        other = rng.standard_normal((len(self._other), _N_PROBES))
        return self._joined(core, np.zeros((len(self._rows), _N_PROBES)), other)

    @cached_property
    def are_alone(self) -> BoolArray:
        """Which samples (n,) the others do not span.

        Projected onto the range of F, what stands in their places stays as it is.
        """
        alone = np.ones(self.F.shape[0], dtype=bool)
        probes = np.random.default_rng(1).standard_normal((len(self._left), _N_PROBES))
        moved = np.abs(self._F @ self._Z.solve(self._F.T @ probes) - probes).max(axis=1)
        alone[self._left] = moved <= _IN_RANGE
        return alone


def are_open(x: sparse.csr_array, null: FloatArray) -> BoolArray:
    """Tell which features (m, k) some random weights (k, j), that make all values 0, tell of.

    They are those that are not orthogonal to all such weights, by any chance.
    """
    size = np.sqrt(x.power(2).sum(axis=1))[:, None] + abs(x) @ np.abs(null)
    return np.asarray((np.abs(x @ null) > _IN_RANGE * size).any(axis=1))


def with_features_of_their_own(F: sparse.csr_array) -> tuple[IntArray, IntArray]:
    """Return samples with a feature that no other has, once those before went, and that feature.

    Not all of them are found where there are few at a time.
    """
    n = F.shape[0]
    has = sparse.csr_array((np.where(F.data != 0.0, 1.0, 0.0), F.indices, F.indptr), shape=F.shape)
    of_feature = sparse.csr_array(has.T)
    left = np.ones(n)
    rows, own = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    while True:
        single = np.flatnonzero(of_feature @ left == 1.0)
        if single.size <= _SMALLEST_ROUND * n:
            return np.concatenate(rows), np.concatenate(own)
        place = (of_feature[single] @ (left * np.arange(n))).astype(np.int64)
        found, first = np.unique(place, return_index=True)
        rows.append(found)
        own.append(single[first])
        left[found] = 0.0
