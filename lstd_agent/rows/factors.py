r"""Factors of runs of timesteps: the little that stands for all of their rows.

With A the root-weighted features of all rows of a run and L an orthonormal basis of A's range, a
seminorm minimizer (Thm ``epb_minimizer``) sees nothing but :math:`L^T [\,A \;|\; B \;|\; c\,]`. B
is A less the features that are expected next, or less the unknown part of a target, subtracted
before anything else is done. c holds numbers: of single steps, rewards and durations.

A factor keeps at most p rows with the same products, p being the number of features. Factors of
runs and of groups of trials stack: windows, the gain, mean features, and all of these without a
group of trials follow from small factors. Of many features of trials it keeps the products
:math:`A^T [\,A \;|\; B \;|\; c\,]` themselves, which are several times as fast to sum, and whose
cutoff is that of squares.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import add
from typing import Any, NamedTuple

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.decompositions import svd
from lstd_agent.rows.layers import Layer, Samples

# Of so many features of trials, products are kept.
_PRODUCTS_FROM = 32

# Eigenvalues of products that are smaller beside the largest are rounding.
_ROUNDING = 1e-14

# Rows are factored, or multiplied, when so many wait.
_WAITING = 4096


class Reduced(NamedTuple):
    """L^T B and L^T c, with the largest singular value of A and what A is in that basis."""

    A: FloatArray
    B: FloatArray
    c: FloatArray
    largest: float


@dataclass(frozen=True, eq=False)
class Factor:
    """What stands for the rows of a run.

    Attributes
    ----------
    held : ndarray, shape (r, 2 p + q)
        At most p rows, or the products of A with all columns, (p, 2 p + q).
    are_products : bool
    p : int
        Number of features.
    sums : ndarray, shape (2 p + q,)
        Weighted sums of the run's rows.
    n : float
        Their weight.
    """

    held: FloatArray
    are_products: bool
    p: int
    sums: FloatArray
    n: float

    def reduced(self, size: int, rcond: float) -> Reduced:
        """Return the equations in an orthonormal basis of the range of the first features of A."""
        p = self.p
        if self.are_products:
            squares, V = np.linalg.eigh(self.held[:size, :size])
            largest = float(max(squares.max(initial=0.0), 0.0))
            keep = squares > max(rcond**2, _ROUNDING) * largest
            root = np.sqrt(squares[keep])
            rows = (V[:, keep].T @ self.held[:size]) / root[:, None]
            largest = float(np.sqrt(largest))
        else:
            U, sizes, _ = svd(self.held[:, :size])
            largest = float(sizes.max(initial=0.0))
            rows = U[:, sizes > rcond * largest].T @ self.held
        return Reduced(rows[:, :size], rows[:, p : p + size], rows[:, 2 * p :], largest)

    def __add__(self, other: Factor) -> Factor:
        return total((self, other))

    def turned(self, columns: FloatArray) -> Factor:
        """Return the factor with its columns, all but those of A, times a matrix."""
        held = np.hstack((self.held[:, : self.p], self.held[:, self.p :] @ columns))
        sums = np.concatenate((self.sums[: self.p], self.sums[self.p :] @ columns))
        return Factor(held, self.are_products, self.p, sums, self.n)


def total(factors: Sequence[Factor]) -> Factor:
    """Return the factor of all rows of at least one factor."""
    first = factors[0]
    if len(factors) == 1:
        return first
    sums = np.sum([each.sums for each in factors], axis=0)
    n = sum(each.n for each in factors)
    if first.are_products:
        held = np.sum([each.held for each in factors], axis=0)
    else:
        held = _fewer(np.vstack([each.held for each in factors]), first.p)
    return Factor(held, first.are_products, first.p, sums, n)


def without_each(parts: Sequence[Any]) -> Iterator[Any]:
    """Yield the sum of all parts but each, of at least 2, by about three additions for each."""
    after = list(accumulate(reversed(parts[1:]), add))
    yield after.pop()
    before = parts[0]
    for part in parts[1:-1]:
        yield before + after.pop()
        before = before + part
    yield before


def _fewer(rows: FloatArray, p: int) -> FloatArray:
    """Return at most p rows with the same products."""
    if len(rows) <= p:
        return rows
    return np.asarray(np.linalg.qr(rows[:, :p])[0].T @ rows)


class Gathering:
    """Rows that come chunk by chunk, and their factor.

    Parameters
    ----------
    p : int
        Number of features.
    q : int
        Number of columns of numbers.
    are_trials : bool
        Whether rows are of trials, of which products are kept where features are many.
    """

    def __init__(self, p: int, q: int, are_trials: bool = False) -> None:
        self.p, self._are_products = p, are_trials and p >= _PRODUCTS_FROM
        self._n, self._sums = 0.0, np.zeros(2 * p + q)
        self._held = np.zeros((p if self._are_products else 0, 2 * p + q))
        self._waiting: list[FloatArray] = []

    def add(self, rows: FloatArray, weights: FloatArray) -> None:
        """Add rows (m, 2 p + q) of weights (m,)."""
        if (weights != 1.0).any():
            some = weights > 0.0
            root = np.sqrt(weights[some])
            rows = root[:, None] * rows[some]
            self._sums += root @ rows
        else:
            self._sums += rows.sum(axis=0)
        self._n += float(weights.sum())
        self._waiting.append(rows)
        if sum(map(len, self._waiting)) > max(4 * self.p, _WAITING):
            self._take()

    def _take(self) -> None:
        """Take in the rows that wait."""
        if self._are_products:
            rows = self._waiting[0] if len(self._waiting) == 1 else np.vstack(self._waiting)
            self._held += rows[:, : self.p].T @ rows
        else:
            self._held = _fewer(np.vstack([self._held, *self._waiting]), self.p)
        self._waiting = []

    def factor(self) -> Factor:
        """Return the factor of all rows so far."""
        if self._waiting:
            self._take()
        return Factor(self._held.copy(), self._are_products, self.p, self._sums.copy(), self._n)


def factor_of(layers: Iterable[Layer], p: int, are_trials: bool) -> Factor:
    """Return the factor of single steps; numbers are rewards and durations."""
    gathering = Gathering(p, 2, are_trials)
    for each in layers:
        less = each.features - each.ahead(each.following)
        numbers = np.stack((each.rewards, each.durations), axis=1)
        gathering.add(np.hstack((each.features, less, numbers)), each.weights)
    return gathering.factor()


@dataclass(frozen=True, eq=False)
class Segments:
    """Factors of runs of timesteps between edges: all that a fit of single steps asks.

    Attributes
    ----------
    edges : ndarray of int, shape (n + 1,)
    factors : list of list of Factor
        Of each run, of each group of trials.
    """

    edges: IntArray
    factors: list[list[Factor]]

    @classmethod
    def of(cls, source: Samples, anchors: IntArray, n_groups: int = 1) -> Segments:
        """Return the factors of groups of trials.

        Time is cut where neighbourhoods begin, before their last timesteps, and around the start
        and the tail, the second half of all timesteps.
        """
        T = source.t_max
        inner = [edge for a in anchors[1:].tolist() for edge in (a - 1, a)]
        edges = np.unique([*anchors.tolist(), *inner, 0, 1, (T + 1) // 2, T, T + 1])
        groups = source.groups(n_groups) if n_groups > 1 else [None]
        factors = [
            [factor_of(source.merged(a, b, g), source.p, not source.are_places) for g in groups]
            for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
        ]
        return cls(edges, factors)

    def between(self, start: int, stop: int) -> list[Factor]:
        """Return the factors of all runs from start up to stop."""
        i, j = np.searchsorted(self.edges, (start, stop))
        return [each for run in self.factors[i:j] for each in run]

    def window(self, start: int, stop: int) -> Factor:
        """Return the equations of a window with an open end.

        Its numbers are rewards, durations, and the features that come after its last timestep.
        """
        leaving = self.between(stop - 1, stop)
        p = leaving[0].p
        none = np.eye(p + 2, 2 * p + 2)  # of a row's B, reward and duration: no features leave
        inside = [each.turned(none) for each in self.between(start, stop - 1)]
        # All next features leave: B is A itself, and what it was less than A comes next.
        for each in leaving:
            own, rest = each.held[:, :p], each.held[:, p:]
            held = np.hstack((own, own, rest[:, p:], own - rest[:, :p]))
            sums = each.sums
            sums = np.concatenate((sums[:p], sums[:p], sums[2 * p :], sums[:p] - sums[p : 2 * p]))
            inside.append(Factor(held, each.are_products, p, sums, each.n))
        return total(inside)
