"""An MDP as rows, one for each action of each state, in doubles or in fractions.

A table with .4 and 1/3 holds doubles near 2/5 and 1/3. `read_fractions` reads a double as the
simplest fraction within two ulps, if that fraction is too simple for a coincidence, and otherwise
as its exact value. (A random number is this close to a fraction with denominator up to q with a
probability of about q² times two ulps.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from unichain_gym.interface import BoolArray, FloatArray, IntArray, OutcomeModel
from unichain_gym.outcomes import EPSILON

# With more entries per row, single differences cost too much.
FULL = 50
COINCIDENCE = 1e-3


@dataclass(frozen=True, eq=False)
class Pairs:
    """The actions that states have, as n rows: state by state, each with its transitions.

    ``first`` is the first row of each state. The transition probabilities Q, (n, S), in CSR form,
    have the entries ``weight`` in floats, and p in floats or in fractions. ``totals`` are the sums
    of the rows, 1 up to rounding. ``rounding`` is that of Σ p (y(s') - y(s)), relative to its
    terms: of p, of k products and sums. A common number is subtracted from the expected ``reward``.
    ``reward_error`` bounds its error, and ``reward_size`` is its size before the subtraction.
    ``duration`` is the time of a step and ``duration_error`` bounds its error; both are None if all
    steps take 1. The rows of a chain (`Pairs.of_chain`) have transitions alone.
    """

    state: IntArray
    action: IntArray
    first: IntArray
    indptr: Any
    to: Any
    weight: FloatArray
    p: Any
    totals: Any = None
    rounding: Any = None
    reward: Any = None
    reward_error: Any = None
    reward_size: Any = None
    duration: Any = None
    duration_error: Any = None

    @staticmethod
    def of_chain(P: sparse.csr_array) -> Pairs:
        """Return the rows of a transition matrix (S, S)."""
        every = np.arange(P.shape[0])
        return Pairs(every, every, every, P.indptr, P.indices, P.data, P.data)

    @cached_property
    def Q(self) -> sparse.csr_array:
        """The transition probabilities in floats, (n, S)."""
        shape = self.state.size, self.first.size
        return sparse.csr_array((self.weight, self.to, self.indptr), shape=shape)

    @property
    def is_dense(self) -> Any:
        """Whether Q has no zero."""
        return self.to.size == self.state.size * self.first.size

    @cached_property
    def matrix(self) -> Any:
        """Q, dense if it has no zero, which makes products faster."""
        return self.weight.reshape(-1, self.first.size) if self.is_dense else self.Q

    @cached_property
    def is_regular(self) -> bool:
        """Whether all states have equally many actions."""
        n_actions = np.diff(self.first, append=self.state.size)
        return bool((n_actions == n_actions[0]).all())

    @cached_property
    def source(self) -> IntArray:
        """The state from which each entry of Q leads."""
        return np.repeat(self.state, np.diff(self.indptr))

    def sums(self, entries: Any) -> Any:
        """Add up entries of the shape of p, row by row."""
        return np.add.reduceat(entries, self.indptr[:-1])

    def of(self, rows: IntArray) -> Pairs:
        """Return some of the rows, one of each state in order."""
        S, every, indptr = rows.size, np.arange(rows.size), self.indptr[: rows.size + 1]
        to, entries = self.to[: S * S], [self.weight, self.p][: 1 + (self.p is not self.weight)]
        if self.is_dense:
            entries = [x.reshape(-1, S)[rows].ravel() for x in entries]
        else:
            start, count = self.indptr[rows], np.diff(self.indptr)[rows]
            indptr = np.concatenate(([0], np.cumsum(count)))
            place = np.arange(indptr[-1]) + np.repeat(start - indptr[:-1], count)
            to, *entries = (x[place] for x in (self.to, *entries))
        columns: Any = (self.totals, self.rounding, self.reward, self.reward_error,
                        self.reward_size, self.duration, self.duration_error)  # fmt: skip
        columns = [None if x is None else x[rows] for x in columns]
        return Pairs(every, self.action[rows], every, indptr, to, entries[0], entries[-1], *columns)

    @cached_property
    def is_full(self) -> bool:
        """Whether rows have so many entries that single differences cost too much."""
        return bool(self.to.size > FULL * self.state.size)

    def ahead(self, y: Any) -> Any:
        """Return Σ_s' p(s'|row) y(s')."""
        return self.matrix @ y if y.dtype != object else self.sums(self.p * y[self.to])

    def ahead_bound(self, y: FloatArray) -> Any:
        """Return a bound of `ahead` of a nonnegative y, for each row or for all."""
        return y.max() if self.is_full else self.matrix @ y

    def drift(self, y: Any) -> tuple[Any, FloatArray]:
        """Return Σ_s' p(s'|row) (y(s') - y(s)), and a bound of its rounding, including p's."""
        if y.dtype != object and self.is_full:
            y = y - 0.5 * (y.max() + y.min())
            size = 3.0 * self.rounding * np.abs(y).max()
            return self.matrix @ y - self.totals * y[self.state], size
        terms = self.p * (y[self.to] - y[self.source])
        if terms.dtype == object:
            return self.sums(terms), np.zeros(self.state.size)
        return self.sums(terms), self.rounding * self.sums(np.abs(terms))

    def leaders(self, score: FloatArray) -> IntArray:
        """Return the first row of the largest score in each state."""
        if self.is_regular:  # many times as fast
            best = score.reshape(self.first.size, -1).argmax(axis=1)
            return np.asarray(self.first + best)
        top = np.maximum.reduceat(score, self.first)
        rows = np.flatnonzero(score == top[self.state])
        leader = self.first.copy()
        leader[self.state[rows[::-1]]] = rows[::-1]
        return leader

    def table(self, rows: BoolArray, n_actions: int) -> BoolArray:
        """Return a mask of rows as a mask of shape (S, A)."""
        if rows.size == self.first.size * n_actions:
            return rows.reshape(-1, n_actions).copy()
        mask = np.zeros((self.first.size, n_actions), dtype=bool)
        mask[self.state, self.action] = rows
        return mask


def list_pairs(mdp: OutcomeModel) -> Pairs:
    """Return the rows of an MDP in doubles.

    If all rewards have one sign and are within a factor of 2, one of them is subtracted, which
    loses no digit. (Not with durations.)
    """
    state, action = np.nonzero(mdp.allowed_actions)
    S, A, K = mdp.next_state.shape
    every = slice(None) if state.size == S * A else state * A + action
    p, reward = mdp.probability.reshape(S * A, K)[every], mdp.reward.reshape(S * A, K)[every]
    to = mdp.next_state.reshape(S * A, K)[every]
    expected = mdp.expected_reward.ravel()[every]
    low, high, size = float(expected.min()), float(expected.max()), np.abs(expected)
    rounded, error = size, np.zeros(1)
    if (
        mdp.durations is None
        and low != high
        and (0.0 < high <= 2.0 * low or 2.0 * high <= low < 0.0)
    ):
        rest = p * (reward - low)
        expected, rounded = rest.sum(axis=1), np.abs(rest).sum(axis=1)
        # A double whose last 16 bits are zero counts as exact.
        mantissa = np.ldexp(np.frexp(reward)[0], 37)
        inexact = np.where(mantissa == np.rint(mantissa), 0.0, np.abs(reward))
        error = 0.5 * EPSILON * (p * inexact).sum(axis=1)
    elif reward.min() < 0.0 < reward.max():
        rounded = np.einsum("rk,rk->r", p, np.abs(reward))
    error = error + EPSILON * (2.0 + np.sqrt(K)) * rounded
    if p.all():
        indptr, p, to = np.arange(0, p.size + 1, K), p.ravel(), to.ravel()
    else:
        is_possible = p > 0.0
        indptr = np.concatenate(([0], np.cumsum(np.count_nonzero(is_possible, axis=1))))
        p, to = p[is_possible], to[is_possible]
    Q = sparse.csr_array((p, to, indptr), shape=(state.size, S))
    if not Q.has_canonical_format:
        Q = Q.copy()
        Q.sum_duplicates()
    times = doubt = None
    if mdp.durations is not None:
        times = mdp.expected_duration.ravel()[every]
        doubt = EPSILON * (2.0 + np.sqrt(K)) * times
    data: Any = Q.data
    totals = np.asarray((data.reshape(-1, S) if Q.nnz == state.size * S else Q).sum(axis=1))
    rounding = 0.5 * EPSILON * (5.0 + np.sqrt(np.diff(Q.indptr)))
    return Pairs(state, action, np.searchsorted(state, np.arange(S)), Q.indptr, Q.indices, data,
                 data, totals, rounding, expected, error, size, times, doubt)  # fmt: skip


def in_fractions(mdp: OutcomeModel, pairs: Pairs) -> tuple[Pairs, bool]:
    """Return the rows in fractions, and whether every number was a simple fraction."""
    state, action = pairs.state, pairs.action
    probability = mdp.probability[state, action]
    row, k = np.nonzero(probability)
    p, p_sure = read_fractions(probability[row, k])
    reward, r_sure = read_fractions(mdp.reward[state, action][row, k])
    starts = np.searchsorted(row, np.arange(state.size))
    p = p / np.add.reduceat(p, starts)[row]
    # In the order of Q: outcomes with the same next state together, in the order of states.
    key = row * mdp.n_states + mdp.next_state[state, action][row, k]
    order = np.argsort(key, kind="stable")
    merged = np.add.reduceat(p[order], np.flatnonzero(np.diff(key[order], prepend=-1)))
    expected = np.add.reduceat(p * reward, starts)
    rest: dict[str, Any] = {"reward_error": np.zeros(state.size)}
    if mdp.durations is not None:
        duration, t_sure = read_fractions(mdp.durations[state, action][row, k])
        p_sure = p_sure and t_sure
        rest["duration"] = np.add.reduceat(p * duration, starts)
        rest["duration_error"] = np.zeros(state.size)
    exact = replace(pairs, p=merged, reward=expected, **rest)
    return exact, p_sure and r_sure


def read_fractions(values: FloatArray) -> tuple[Any, bool]:
    """Return the fractions of doubles (n,), and whether all were simple."""
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
