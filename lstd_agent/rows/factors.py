r"""Factors of runs of timesteps: the few rows that stand for all others.

With A the root-weighted features of all rows of a run and L an orthonormal basis of A's range, a
seminorm minimizer (Thm ``epb_minimizer``) sees nothing but

.. math:: R = L^T [\,A \;|\; B \;|\; c\,].

B is A less the features that are expected next, or less the unknown part of a target, subtracted
before anything else is done. c holds numbers: of single steps, rewards and durations. R has no more
than p rows, p being the number of features. Factors of runs and of groups of trials stack: windows,
the gain, mean features, and all of these without a group of trials follow from small factors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.rows.layers import Layer, Samples

# Of so many features, products of columns take the place of QR where rows are many more.
_SQUARES_FROM = 32
_MANY_ROWS = 8

# Eigenvalues of such products that are smaller beside the largest are rounding.
_ROUNDING = 1e-14

# Rows are factored when so many wait.
_WAITING = 4096


@dataclass(frozen=True, eq=False)
class Factor:
    """The rows R (at most p of them, 2 p + q columns) of a run.

    Attributes
    ----------
    R : ndarray, shape (r, 2 p + q)
    p : int
        Number of features.
    sums : ndarray, shape (2 p + q,)
        Weighted sums of the run's rows.
    n : float
        Their weight.
    """

    R: FloatArray
    p: int
    sums: FloatArray
    n: float

    @property
    def own(self) -> FloatArray:
        """A (r, p)."""
        return self.R[:, : self.p]

    @property
    def less(self) -> FloatArray:
        """B (r, p)."""
        return self.R[:, self.p : 2 * self.p]

    @property
    def numbers(self) -> FloatArray:
        """c (r, q)."""
        return self.R[:, 2 * self.p :]


def total(factors: Sequence[Factor]) -> Factor:
    """Return the factor of all rows of at least one factor."""
    if len(factors) == 1:
        return factors[0]
    p = factors[0].p
    sums, n = sum(each.sums for each in factors), sum(each.n for each in factors)
    return Factor(_reduced(np.vstack([each.R for each in factors]), p), p, np.asarray(sums), n)


def without_each(factors: Sequence[Factor]) -> list[Factor]:
    """Return the factors of all but each, of at least 2, by about three additions for each."""
    before, after = [factors[0]], [factors[-1]]
    for first, last in zip(factors[1:-1], factors[-2:0:-1], strict=True):
        before.append(total((before[-1], first)))
        after.append(total((after[-1], last)))
    after.reverse()
    inner = [total(pair) for pair in zip(before[:-1], after[1:], strict=True)]
    return [after[0], *inner, before[-1]]


def _reduced(rows: FloatArray, p: int) -> FloatArray:
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
    """

    def __init__(self, p: int, q: int) -> None:
        self.p = p
        self._n, self._sums = 0.0, np.zeros(2 * p + q)
        self._waiting: list[FloatArray] = [np.zeros((0, 2 * p + q))]
        self._products: Any = None

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
        if self.p >= _SQUARES_FROM and len(rows) >= _MANY_ROWS * self.p:
            products = rows[:, : self.p].T @ rows
            self._products = products if self._products is None else self._products + products
            return
        self._waiting.append(rows)
        if sum(map(len, self._waiting)) > max(4 * self.p, _WAITING):
            self._waiting = [_reduced(np.vstack(self._waiting), self.p)]

    def factor(self) -> Factor:
        """Return the factor of all rows so far."""
        if self._products is not None:
            size, V = np.linalg.eigh(self._products[:, : self.p])
            keep = size > _ROUNDING * size[-1]
            self._waiting.append((V[:, keep].T @ self._products) / np.sqrt(size[keep])[:, None])
            self._products = None
        rows = _reduced(np.vstack(self._waiting), self.p)
        self._waiting = [rows]
        return Factor(rows, self.p, self._sums.copy(), self._n)


def factor_of(layers: Iterable[Layer], p: int) -> Factor:
    """Return the factor of single steps; numbers are rewards and durations."""
    gathering = Gathering(p, 2)
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

        Time is cut where neighbourhoods begin, before their last timesteps, and around the start and
        the tail, the second half of all timesteps.
        """
        T = source.t_max
        inner = [edge for a in anchors[1:].tolist() for edge in (a - 1, a)]
        edges = np.unique([*anchors.tolist(), *inner, 0, 1, (T + 1) // 2, T, T + 1])
        runs = zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
        groups = source.groups(n_groups) if n_groups > 1 else [None]
        return cls(
            edges,
            [[factor_of(source.merged(a, b, g), source.p) for g in groups] for a, b in runs],
        )

    def whole(self) -> Segments:
        """Return the factors of all trials."""
        return Segments(self.edges, [[total(groups)] for groups in self.factors])

    def each(self) -> list[Segments]:
        """Return the factors of each group."""
        return [Segments(self.edges, [[f] for f in run]) for run in zip(*self.factors, strict=True)]

    def without_each(self) -> list[Segments]:
        """Return the factors of all groups but each."""
        others = [without_each(groups) for groups in self.factors]
        return [Segments(self.edges, [[f] for f in run]) for run in zip(*others, strict=True)]

    def between(self, start: int, stop: int) -> list[Factor]:
        """Return the factors of all runs from start up to stop."""
        i, j = np.searchsorted(self.edges, (start, stop))
        return [each for run in self.factors[i:j] for each in run]

    def window(self, start: int, stop: int) -> Factor:
        """Return the equations of a window with an open end.

        Its numbers are rewards, durations, and the features that come after its last timestep.
        """
        inside, leaving = self.between(start, stop - 1), self.between(stop - 1, stop)
        p = leaving[0].p
        rows = [np.hstack((each.R, np.zeros((len(each.R), p)))) for each in inside]
        rows += [
            np.hstack((each.own, each.own, each.numbers, each.own - each.less)) for each in leaving
        ]
        both = total(inside + leaving)
        return Factor(_reduced(np.vstack(rows), p), p, both.sums, both.n)
