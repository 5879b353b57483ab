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

A factor keeps at most p rows with the same products, p being the number of features; for many
features of trials the products :math:`A^T [\,A \;|\; B \;|\; c\,]`, which are faster to sum.
Factors of runs and of groups of trials stack, so that data are read once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import accumulate, pairwise
from operator import add
from typing import Any, NamedTuple

import numpy as np

from lstd_agent.arrays import BoolArray, FloatArray, IntArray, svd

# Smallest number of features of trials for which products are kept, whose smaller eigenvalues,
# relative to the largest, are rounding; number of rows that are taken together.
_PRODUCTS_FROM, _ROUNDING, _WAITING = 32, 1e-14, 4096

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
        """Return the mean (m, ...) of values (l, ...) of the rows that come next."""
        if self.P is None:
            return values
        mean = self.P @ values.reshape(len(values), -1)
        return mean.reshape(-1, *values.shape[1:])


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
        turned = features * self.turn if self.turn.ndim == 1 else features @ self.turn
        return np.concatenate((turned, np.full((*turned.shape[:-1], 1), constant)), axis=-1)

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

    ``groups(n)`` deals trials into n groups. ``merged(start, stop, group)`` yields layers of all
    rows of these timesteps, of one group or of all. ``layers(start, stop, groups)`` yields
    timesteps backwards: every place, for each given group, or every trial is a row.
    ``zero(anchor)`` are the features (p,) of value 0; None is the mean of the tail.
    ``sums_at(name)`` are sums of ``"rewards"`` or ``"durations"``; None if all are 1.
    """

    t_max: int
    rcond: float
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
        sums = self.sums_at("durations")
        n = np.maximum(self.trials_at, 1)
        return np.ones(len(n)) if sums is None else np.asarray(sums / n)


class Reduced(NamedTuple):
    """L^T A, whose rows are orthogonal, L^T B and L^T c, and the largest singular value of A."""

    A: FloatArray
    B: FloatArray
    c: FloatArray
    largest: float


def basis_of_range(A: FloatArray, rcond: float) -> tuple[FloatArray, float]:
    """Return an orthonormal basis of the range of A, and the largest singular value."""
    U, size, _ = svd(A)
    largest = float(size.max(initial=0.0))
    return np.asarray(U[:, size > rcond * largest]), largest


def reduced(A: FloatArray, B: FloatArray, c: FloatArray, rcond: float = 1e-10) -> Reduced:
    """Return root-weighted rows A, B (m, d) and c (m, q) in an orthonormal basis of A's range."""
    L, largest = basis_of_range(A, rcond)
    return Reduced(L.T @ A, L.T @ B, L.T @ c, largest)


@dataclass(frozen=True, eq=False)
class Factor:
    """The factor of a run's rows, with p features and q columns of numbers."""

    held: FloatArray  # (r, 2 p + q): at most p rows, or the products of A with all columns
    are_products: bool
    p: int
    sums: FloatArray  # (2 p + q,): weighted sums of the run's rows
    n: float  # their weight

    def reduced(self, size: int, rcond: float) -> Reduced:
        """Return the equations of the first ``size`` features."""
        A, B, c = self.held[:, :size], self.held[:, self.p : self.p + size], self.numbers
        if not self.are_products:
            return reduced(A, B, c, rcond)
        squares, V = np.linalg.eigh(A[:size])
        largest = float(max(squares.max(initial=0.0), 0.0))
        keep = squares > max(rcond**2, _ROUNDING) * largest
        V, sizes = V[:, keep], np.sqrt(squares[keep])
        L = (V / sizes).T
        return Reduced((V * sizes).T, L @ B[:size], L @ c[:size], float(np.sqrt(largest)))

    @property
    def numbers(self) -> FloatArray:
        """The columns of c."""
        return self.held[:, 2 * self.p :]

    def above(
        self, gain: float, following: FloatArray | None = None, exits: bool = False
    ) -> Factor:
        """Return the factor of single steps with rewards above the gain as numbers.

        Weights (p, q) of the ``following`` window give the values after ``exits``.
        """
        own, less, numbers = self.held[:, : self.p], self.held[:, self.p : -2], self.numbers
        c = np.zeros((len(own), 1 if following is None else following.shape[1]))
        c[:, 0] = numbers[:, 0] - gain * numbers[:, 1]
        if exits and following is not None:
            c, less = c + (own - less) @ following, own
        return replace(self, held=np.hstack((own, less, c)))

    @property
    def mean(self) -> FloatArray:
        """Mean features (p,) of the run's rows."""
        return np.asarray(self.sums[: self.p] / max(self.n, 1.0))

    def __add__(self, other: Factor) -> Factor:
        return total((self, other))


def total(factors: Sequence[Factor]) -> Factor:
    """Return the factor of all rows of at least one factor."""
    first, every = factors[0], [each.held for each in factors]
    if len(factors) == 1:
        return first
    held = reduce(add, every) if first.are_products else _fewer(np.vstack(every), first.p)
    sums, n = np.sum([each.sums for each in factors], axis=0), sum(each.n for each in factors)
    return replace(first, held=held, sums=sums, n=n)


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
    """Return at most p rows with the same products."""
    return rows if len(rows) <= p else np.asarray(np.linalg.qr(rows[:, :p])[0].T @ rows)


class Gathering:
    """Rows of p features and q numbers that come chunk by chunk, and their factor."""

    def __init__(self, p: int, q: int, are_trials: bool) -> None:
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
            self.factor()

    def factor(self) -> Factor:
        """Return the factor of all rows so far."""
        rows, self._waiting = self._waiting, []
        if rows and self._are_products:
            joined = rows[0] if len(rows) == 1 else np.vstack(rows)
            self._held = self._held + joined[:, : self.p].T @ joined
        elif rows:
            self._held = _fewer(np.vstack([self._held, *rows]), self.p)
        return Factor(self._held, self._are_products, self.p, self._sums.copy(), self._n)


def sums_of(layers: Iterable[Layer]) -> Factor:
    """Return weighted sums of many sparse features, a constant and numbers, without equations."""
    sums: Any = 0.0
    for each in layers:
        numbers = np.stack((np.ones(len(each.weights)), each.rewards, each.durations))
        sums = sums + np.append(each.features.T @ each.weights, numbers @ each.weights)
    return Factor(np.zeros((0, 2)), False, len(sums) - 2, sums, float(sums[-3]))


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
    """Factors of runs of timesteps between edges (n + 1,), of each run and group of trials."""

    edges: IntArray
    factors: list[list[Factor]]

    @classmethod
    def of(cls, source: Any, anchors: IntArray, groups: Sequence[Any] = (None,)) -> Segments:
        """Return the factors of groups of trials, between windows, the start and the tail."""
        T = source.t_max
        inner = [edge for a in anchors[1:].tolist() for edge in (a - 1, a)]
        edges = np.unique([*anchors.tolist(), *inner, 0, 1, (T + 1) // 2, T, T + 1])

        def factor(x: Iterator[Layer]) -> Factor:
            return sums_of(x) if source.is_sparse else factor_of(x, source.p, not source.are_places)

        runs = pairwise(edges.tolist())
        return cls(edges, [[factor(source.merged(a, b, g)) for g in groups] for a, b in runs])

    def between(self, start: int, stop: int) -> list[Factor]:
        """Return the factors of all runs from start up to stop."""
        i, j = np.searchsorted(self.edges, (start, stop))
        return [each for run in self.factors[i:j] for each in run]

    @property
    def tail(self) -> Factor:
        """The factor of the second half of all timesteps."""
        T = int(self.edges[-1]) - 1
        return total(self.between((T + 1) // 2, T + 1))

    def window(
        self, start: int, stop: int, gain: float, following: FloatArray | None = None
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
