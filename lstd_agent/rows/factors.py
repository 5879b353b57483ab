r"""Rows of timesteps, the interface of samples, and the factors that stand for many rows.

A *layer* has one row for each counted state, trial, or state of an exact chain. A row has features
(f, 1), a weight n, a mean reward r, a mean duration τ, and a row-stochastic map P to the rows of
the next timestep. Every sum of this package is a weighted sum over rows: equations of windows,
targets of several steps, mean rewards, occupancies.

A terminal state is a row of zeros. A transition that was not recorded, or of an exploratory action,
has weight 0 and does not go on: its target is its own value.

**Factors** are small sufficient statistics of the rows of a run of timesteps. With A the
root-weighted features of all rows and L an orthonormal basis of A's range, a seminorm minimizer
(Thm ``epb_minimizer``) needs only :math:`L^T [\,A \;|\; B \;|\; c\,]`. B is A minus the expected
next features, or minus the unknown part of a target; the rows are subtracted before they are
summed. c holds numbers: for single steps, rewards and durations.

A factor of p features keeps at most p rows with the same products; of trials, whose features have
a larger cutoff, the products :math:`A^T [\,A \;|\; B \;|\; c\,]`, which are faster to sum. Data
are read once: factors of runs stack, and those of groups of trials are one array, so that all
batches are solved at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import accumulate, pairwise
from operator import add
from typing import Any, NamedTuple

import numpy as np

from lstd_agent.arrays import BoolArray, FloatArray, IntArray, svd

# Smaller eigenvalues of products, relative to the largest, are rounding.
_ROUNDING = 1e-14

# An observation was not seen if it has fewer samples (10 less rounding), or if a larger part of its
# features is outside the range, where smaller singular values, relative to the largest, count as 0.
MIN_SAMPLES, _OUTSIDE, _RANGE = 10.0 - 1e-6, 1e-3, 1e-5


@dataclass(frozen=True, eq=False)
class Layer:
    """Rows of one timestep, or of several."""

    features: Any  # (m, p) coordinates, the constant last, or sparse features without a constant
    weights: FloatArray
    rewards: FloatArray
    durations: FloatArray
    goes_on: BoolArray  # (m,) which rows have a known successor
    following: Any  # (l, p) the next rows
    P: Any  # (m, l) transition probabilities; None is the identity

    def ahead(self, values: Any) -> Any:
        """Return the means of values (l,) or (..., l, q) of the rows that come next."""
        if self.P is None:
            return values
        return self.P @ values if values.ndim < 3 else np.stack([self.ahead(x) for x in values])


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Coordinates f @ turn, or f * turn, of features f (d,), in which equations are solved."""

    turn: FloatArray
    sizes: FloatArray  # root mean squares of features: open shares refer to features of size 1
    metric: FloatArray | None = None  # open weights are the smallest by it, or in coordinates

    @classmethod
    def of_places(cls, features: FloatArray, rcond: float) -> Coordinates:
        """Return coordinates that make columns of features (n, d) orthonormal."""
        _, singular, Vt = svd(features)
        keep = singular > rcond * singular[0]
        turn = np.asarray(Vt[keep].T / singular[keep])
        sizes = np.sqrt((features**2).sum(axis=0) / max(len(features), 1))
        # Tiny features, such as bumps far from all samples, count as 0.
        return cls(turn, np.where(sizes > 1e-100, sizes, 1.0), turn)

    def of(self, features: FloatArray, constant: float) -> FloatArray:
        """Return coordinates and a constant (..., r + 1) of features (..., d)."""
        rows = np.full((*features.shape[:-1], self.turn.shape[-1] + 1), constant)
        turned = np.multiply if self.turn.ndim == 1 else np.matmul
        turned(features, self.turn, out=rows[..., :-1])
        return rows

    def of_features(self, weights: FloatArray) -> FloatArray:
        """Return weights of features and offset (d + 1, q), given those of coordinates."""
        turn, inner = self.turn, weights[:-1]
        return np.vstack((turn[:, None] * inner if turn.ndim == 1 else turn @ inner, weights[-1:]))

    def scaled(self, weights: FloatArray) -> FloatArray:
        """Return the weights for features of size 1."""
        return np.asarray(self.of_features(weights) * np.append(self.sizes, 1.0)[:, None])


class Samples:
    """A source of layers of ``p`` `coordinates`, the constant included, for timesteps 0 to t_max.

    ``constant`` is the 1 of (f, 1), or 0 in tasks that end. ``rcond`` is the relative cutoff of the
    size of features. If ``are_places``, the rows of each timestep stand for the same states, else
    for trials. ``n_trials`` is 0 where all is exact; ``trials_at`` (t_max + 1,) have each timestep.
    If ``is_sparse``, features are many and sparse: see `lstd_agent.system.sparse`. Candidate
    reference states of an occupancy above ``support_threshold`` are in a window's support.

    ``groups(n)`` deals trials into n groups. ``merged(start, stop, group)`` is the layer of all
    rows of these timesteps, of one group or of all. ``layers(start, stop, groups)`` yields
    timesteps backwards: every place, for each given group, or every trial is a row.
    ``zero(anchor)`` are the features (p,) of value 0; None is the mean of the tail.
    ``sums_at(name)`` are sums of ``"rewards"`` or ``"durations"``; None if all are 1.
    """

    sums_at: Any
    trials_at: IntArray
    support_threshold: float = 0.0

    @cached_property
    def mean_rewards(self) -> FloatArray:
        """Mean reward of each timestep, shape (t_max + 1,)."""
        return np.asarray(self.sums_at("rewards") / np.maximum(self.trials_at, 1))

    @cached_property
    def mean_durations(self) -> FloatArray:
        """Mean duration of each timestep, shape (t_max + 1,)."""
        n, sums = np.maximum(self.trials_at, 1), self.sums_at("durations")
        return np.asarray((n if sums is None else sums) / n)


class Reduced(NamedTuple):
    """L^T A, whose rows are orthogonal, L^T B and L^T c, and the largest singular value of A."""

    A: FloatArray
    B: FloatArray
    c: FloatArray
    largest: Any


def basis_of_range(A: FloatArray, rcond: float) -> tuple[FloatArray, Any]:
    """Return an orthonormal basis (..., m, r) of the range of A, and the largest singular value.

    Columns beyond the rank of one of several matrices are 0.
    """
    U, size, _ = svd(A)
    largest = size.max(axis=-1, initial=0.0)
    keep = size > rcond * largest[..., None]
    return (U * keep[..., None, :])[..., : keep.sum(axis=-1).max()], largest


def reduced(A: FloatArray, B: FloatArray, c: FloatArray, rcond: float = 1e-10) -> Reduced:
    """Return root-weighted rows A, B (m, d) and c (m, q) in an orthonormal basis of A's range."""
    basis, largest = basis_of_range(A, rcond)
    L = basis.swapaxes(-1, -2)
    return Reduced(L @ A, L @ B, L @ c, largest)


@dataclass(frozen=True, eq=False)
class Factor:
    """The factor of a run's rows, with p features and q columns of numbers, or several (...)."""

    held: FloatArray  # (..., r, 2 p + q): at most p rows, or the products of A with all columns
    are_products: bool
    p: int
    sums: FloatArray  # (..., 2 p + q): weighted sums of the run's rows
    n: Any  # (...) their weight

    def __getitem__(self, index: Any) -> Factor:
        """Return some of several factors."""
        return replace(self, held=self.held[index], sums=self.sums[index], n=self.n[index])

    def reduced(self, size: int, rcond: float) -> Reduced:
        """Return the equations of the first ``size`` features."""
        A, B, c = self.held[..., :size], self.held[..., self.p : self.p + size], self.numbers
        if not self.are_products:
            return reduced(A, B, c, rcond)
        squares, V = (x[..., ::-1] for x in np.linalg.eigh(A[..., :size, :]))
        largest = np.maximum(squares.max(axis=-1, initial=0.0), 0.0)
        keep = squares > max(rcond**2, _ROUNDING) * largest[..., None]
        r, sizes = keep.sum(axis=-1).max(), np.sqrt(np.where(keep, squares, 1.0))[..., None, :]
        V, sizes = (V * keep[..., None, :])[..., :r], sizes[..., :r]
        L, rows = (x.swapaxes(-1, -2) for x in (V / sizes, V * sizes))
        return Reduced(rows, L @ B[..., :size, :], L @ c[..., :size, :], np.sqrt(largest))

    @property
    def numbers(self) -> FloatArray:
        """The columns of c."""
        return self.held[..., 2 * self.p :]

    def above(self, gain: Any, following: FloatArray | None = None, exits: bool = False) -> Factor:
        """Return the factor of single steps with rewards above the gain (...) as numbers.

        Weights (..., p, q) of the ``following`` window give the values after ``exits``.
        """
        own, less, numbers = self.held[..., : self.p], self.held[..., self.p : -2], self.numbers
        c = np.zeros((*own.shape[:-1], 1 if following is None else following.shape[-1]))
        c[..., 0] = numbers[..., 0] - np.asarray(gain)[..., None] * numbers[..., 1]
        if exits and following is not None:
            c, less = c + (own - less) @ following, own
        return replace(self, held=np.concatenate((own, less, c), axis=-1))

    def combined(self, members: FloatArray) -> Factor:
        """Return sums of products of several factors (n, ...), by numbers of each (R, n)."""
        held, sums, n = (np.tensordot(members, x, 1) for x in (self.held, self.sums, self.n))
        return replace(self, held=held, sums=sums, n=n)

    def __add__(self, other: Factor) -> Factor:
        return total((self, other))


def total(factors: Sequence[Factor]) -> Factor:
    """Return the factor of all rows of at least one factor."""
    first, every = factors[0], [each.held for each in factors]
    held = reduce(add, every) if first.are_products else _fewer(np.concatenate(every, -2), first.p)
    sums: Any = sum(each.sums for each in factors)
    return replace(first, held=held, sums=sums, n=sum(each.n for each in factors))


def stacked(factors: Sequence[Factor]) -> Factor:
    """Return factors as one: rows of zeros fill up."""
    sums, n = np.stack([each.sums for each in factors]), np.array([each.n for each in factors])
    shape = max(each.held.shape[-2] for each in factors), factors[0].held.shape[-1]
    held = np.zeros((*n.shape, *shape))
    for place, each in zip(held, factors, strict=True):
        place[..., : each.held.shape[-2], :] = each.held
    return replace(factors[0], held=held, sums=sums, n=n)


def without_each(parts: Sequence[Any]) -> Iterator[Any]:
    """Yield the sum of at least 2 parts without each, by about three additions for each."""
    after = list(accumulate(reversed(parts[1:]), add))
    yield after.pop()
    before = parts[0]
    for part in parts[1:-1]:
        yield before + after.pop()
        before = before + part
    yield before


def _fewer(rows: FloatArray, p: int) -> FloatArray:
    """Return at most p rows (..., p, w) with the same products of the first p columns with all."""
    R: Any = rows if rows.shape[-2] <= p else np.linalg.qr(rows, mode="r")
    return np.asarray(R[..., :p, :])


def factor_of_rows(
    features: FloatArray, others: FloatArray, weights: FloatArray, are_products: bool = False
) -> Factor:
    """Return the factor of rows (m, p) and (..., m, p + q), or several, of weights (m,)."""
    p, several = features.shape[1], others.shape[:-2]

    def summed(left: FloatArray) -> FloatArray:
        own = np.broadcast_to(left @ features, (*several, *left.shape[:-1], p))
        return np.concatenate((own, left @ others), axis=-1)

    if are_products:
        held = summed((weights[:, None] * features).T)
    else:
        both = np.broadcast_to(features, (*several, *features.shape)), others
        rows = np.sqrt(weights)[:, None] * np.concatenate(both, axis=-1)
        held = _fewer(rows[..., weights > 0.0, :], p)
    return Factor(held, are_products, p, summed(weights), np.full(several, weights.sum()))


def sums_of(layer: Layer) -> Factor:
    """Return weighted sums of many sparse features, a constant and numbers, without equations."""
    numbers = np.stack((np.ones(len(layer.weights)), layer.rewards, layer.durations))
    sums = np.append(layer.features.T @ layer.weights, numbers @ layer.weights)
    return Factor(np.zeros((0, 2)), False, len(sums) - 2, sums, float(sums[-3]))


def factor_of(layer: Layer) -> Factor:
    """Return the factor of single steps; numbers are rewards and durations."""
    less = layer.features - layer.ahead(layer.following)
    others = np.column_stack((less, layer.rewards, layer.durations))
    return factor_of_rows(layer.features, others, layer.weights)


@dataclass(frozen=True, eq=False)
class Segments:
    """Factors of runs of timesteps between edges (n + 1,), each of several groups of trials."""

    edges: IntArray
    factors: list[Factor]

    def __getitem__(self, group: Any) -> Segments:
        """Return the factors of one of several groups."""
        return Segments(self.edges, [each[group] for each in self.factors])

    @classmethod
    def of(cls, source: Any, anchors: IntArray, groups: Sequence[Any] = (None,)) -> Segments:
        """Return the factors of groups of trials, between windows, the start and the tail."""
        T = source.t_max
        inner = [edge for a in anchors[1:].tolist() for edge in (a - 1, a)]
        edges = np.unique([*anchors.tolist(), *inner, 0, 1, (T + 1) // 2, T, T + 1])
        if not (source.is_sparse or source.are_places):
            runs = zip(*source.products(edges, groups), strict=True)
            return cls(edges, [Factor(x, True, source.p, *more) for x, *more in runs])
        of: Any = sums_of if source.is_sparse else factor_of
        spans = pairwise(edges.tolist())
        return cls(edges, [stacked([of(source.merged(*ab, g)) for g in groups]) for ab in spans])

    def between(self, start: int, stop: int) -> list[Factor]:
        """Return the factors of all runs from start up to stop."""
        i, j = np.searchsorted(self.edges, (start, stop))
        return self.factors[i:j]

    @property
    def tail(self) -> slice:
        """The runs of the second half of all timesteps."""
        return slice(int(np.searchsorted(self.edges, self.edges[-1] // 2)), None)

    @property
    def mean_of_tail(self) -> FloatArray:
        """Mean row (..., 2 p + q) of the tail."""
        runs = self.factors[self.tail]
        n = np.maximum(sum(each.n for each in runs), 1.0)
        return np.asarray(sum(each.sums for each in runs) / n[..., None])

    def window(
        self, start: int, stop: int, gain: Any, following: FloatArray | None = None
    ) -> Factor:
        """Return the factor of a window; weights of the next one give the values after it."""
        last = stop if following is None else stop - 1
        inside = [each.above(gain, following) for each in self.between(start, last)]
        exits = [each.above(gain, following, True) for each in self.between(last, stop)]
        return total(inside + exits)


class Christoffel:
    r"""The empirical Christoffel function, n(x) = 1 / (f(x)^T (A^T A)^† f(x)): a number of samples.

    A (m, p) are root-weighted features of the samples, reduced to orthogonal rows (`Reduced`). n(x)
    is the smallest sum of squares over samples of a combination of features that is 1 at x; it is 0
    if f(x) is not in the range of A^T. With one-hot features it is the number of visits. Source:
    Lasserre & Pauwels (2019), "The empirical Christoffel function with applications in data
    analysis".
    """

    def __init__(self, A: FloatArray) -> None:
        size = np.linalg.norm(A, axis=1)
        keep = size > _RANGE * size.max(initial=0.0)
        self._basis = A[keep].T / size[keep]
        self._inverse = self._basis / size[keep]

    def samples(self, features: FloatArray) -> FloatArray:
        """Return n (...,) at features (..., p)."""
        size = np.linalg.norm(features, axis=-1)
        inside = (features @ self._basis) @ self._basis.T
        leverage = np.square(features @ self._inverse).sum(axis=-1)
        seen = (np.linalg.norm(features - inside, axis=-1) <= _OUTSIDE * size) & (leverage > 0.0)
        return np.asarray(np.where(seen, 1.0 / np.where(seen, leverage, 1.0), 0.0))
