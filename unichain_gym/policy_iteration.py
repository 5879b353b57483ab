"""Policy iteration for the gain, the bias and every finer criterion, and for discounted values.

For discounts near 1, with ρ = (1 - γ)/γ, the value of a policy d is a series,

    γ v = Σ_{n ≥ -1} ρ^n y_n,    y_-1 = g = P* r,    y_0 = b = D r,    y_n = -D y_{n-1}

(Puterman, 1994, theorem 8.2.3). A policy is *n-discount optimal* if no other has larger terms up
to y_n, compared in turn in every state: gain-optimal for n = -1, bias-optimal for n = 0, and
Blackwell-optimal, that is optimal for all discounts near enough to 1, for all n (theorem 10.1.5).
Taking action a once and then following d changes the value in state s by terms of which

    Σ_s' p(s'|s, a) y_-1(s'),    r(s, a) + Σ_s' p(s'|s, a) y_0(s'),    Σ_s' p(s'|s, a) y_n(s')

depend on a. Each iteration compares every action with that of d by these in turn, and takes the
best of those that are better. The value near γ = 1 then rises and no policy comes back; where
nothing is better in the terms up to n + 1, d is n-discount optimal (Veinott, 1969, Ann. Math.
Stat. 40; Howard, 1960, for the gain).

**Ties.** A difference counts if it exceeds a bound of its error (`Equations`), in which every
probability and reward may be off by half an ulp. So a change is an improvement for certain, and
rounding cannot make policies cycle. What is within the bound is open: `Evaluation.undecided`. In
fractions the bound is 0.

**Start.** Value iteration, and policy iteration for a discount near 1, need neither structure nor
bounds. What they find is mostly optimal and then only has to be evaluated once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from unichain_gym.arrays import BoolArray, FloatArray, IntArray
from unichain_gym.interface import OutcomeModel
from unichain_gym.linear import find_solver
from unichain_gym.poisson import Equations, Term
from unichain_gym.rational import is_short, read_fractions
from unichain_gym.rounding import EPSILON
from unichain_gym.structure import find_structure, keep_edges, row_sums

BLACKWELL = 2**62
"""The n of Blackwell optimality: more terms than are ever compared."""
# In doubles the errors of later terms outgrow what is new in them.
MAX_TERMS = 40
NEAR_ONE = 1.0 - 1e-5
SWEEPS = 50


@dataclass(frozen=True, eq=False)
class Pairs:
    """The actions that states have, as rows: state by state, each with its transitions.

    Parameters
    ----------
    state, action : ndarray of int, shape (n,)
    first : ndarray of int, shape (S,)
        The first row of each state.
    Q : csr_array, shape (n, S)
        Transition probabilities.
    p, reward : ndarray, shapes (nnz,) and (n,), of float or of fractions
        The entries of Q, and the expected rewards, less a number that all have in common.
    p_error, reward_error : ndarray of float, shapes (nnz,) and (n,)
        How far these may be from what is meant.
    """

    state: IntArray
    action: IntArray
    first: IntArray
    Q: sparse.csr_array
    p: Any
    reward: Any
    p_error: FloatArray
    reward_error: FloatArray

    @cached_property
    def source(self) -> IntArray:
        """The state from which each entry of Q leads."""
        return np.repeat(self.state, np.diff(self.Q.indptr))

    def sums(self, entries: Any) -> Any:
        """Add up entries of the shape of p, row by row."""
        return np.add.reduceat(entries, self.Q.indptr[:-1])

    def of(self, rows: IntArray) -> Pairs:
        """Return some of the rows, one of each state in turn."""
        start, count = self.Q.indptr[rows], np.diff(self.Q.indptr)[rows]
        indptr = np.concatenate(([0], np.cumsum(count)))
        entries = np.arange(indptr[-1]) + np.repeat(start - indptr[:-1], count)
        data, indices, every = self.Q.data[entries], self.Q.indices[entries], np.arange(rows.size)
        Q = sparse.csr_array((data, indices, indptr), shape=(rows.size, rows.size))
        errors = self.p_error[entries], self.reward_error[rows]
        return Pairs(every, self.action[rows], every, Q, self.p[entries], self.reward[rows], *errors)

    def ahead(self, y: Any) -> Any:
        """Return Σ_s' p(s'|row) y(s')."""
        return self.Q @ y if y.dtype != object else self.sums(self.p * y[self.Q.indices])

    def drift(self, y: Any) -> tuple[Any, FloatArray]:
        """Return Σ_s' p(s'|row) (y(s') - y(s)), and how far rounding, also of p, may put it off."""
        change = y[self.Q.indices] - y[self.source]
        terms = self.p * change
        if terms.dtype == object:
            return self.sums(terms), np.zeros(self.state.size)
        change, n_terms = np.abs(change), np.diff(self.Q.indptr)
        rounding = 0.5 * EPSILON * (4.0 + np.sqrt(n_terms)) * self.sums(np.abs(terms))
        return self.sums(terms), rounding + self.sums(self.p_error * change)

    def row_of(self, policy: IntArray) -> IntArray:
        """Return the row of each state's action."""
        rank = np.full((self.first.size, int(self.action.max()) + 1), -1)
        rank[self.state, self.action] = np.arange(self.state.size)
        return np.asarray(rank[np.arange(policy.size), policy])

    def leaders(self, score: FloatArray) -> IntArray:
        """Return the first row of the largest score in each state."""
        top = np.maximum.reduceat(score, self.first)
        rows = np.flatnonzero(score == top[self.state])
        leader = np.empty_like(self.first)
        leader[self.state[rows[::-1]]] = rows[::-1]
        return leader

    def table(self, rows: BoolArray, n_actions: int) -> BoolArray:
        """Return a mask of rows as a mask of shape (S, A)."""
        mask = np.zeros((self.first.size, n_actions), dtype=bool)
        mask[self.state[rows], self.action[rows]] = True
        return mask


def list_pairs(mdp: OutcomeModel) -> Pairs:
    """Return the rows of an MDP in doubles.

    Rewards enter less one of them, if all are of one sign and within a factor of 2 of each other:
    then no digit is lost, and how far they are from 0 does not matter.
    """
    state, action = np.nonzero(mdp.allowed_actions)
    probability = mdp.probability[state, action]
    row, k = np.nonzero(probability)
    indptr = np.concatenate(([0], np.cumsum(np.count_nonzero(probability, axis=1))))
    p = probability[row, k]
    reward = mdp.reward[state, action][row, k]
    low, high = float(reward.min()), float(reward.max())
    offset = low if 0.0 < low <= high <= 2.0 * low or 2.0 * high <= low <= high < 0.0 else 0.0
    Q = sparse.csr_array((p, mdp.next_state[state, action][row, k], indptr), shape=(len(state), mdp.n_states))
    weighted = p * (reward - offset)
    error = np.where(is_short(reward), 0.0, 0.5 * EPSILON * p * np.abs(reward))
    error += np.where(is_short(p), 0.0, 0.5 * EPSILON * np.abs(weighted))
    starts = indptr[:-1]
    n_terms = np.diff(indptr)
    is_sum = (n_terms > 1) | (p[starts] != 1.0)
    size = np.add.reduceat(np.abs(weighted), starts)
    reward_error = np.add.reduceat(error, starts) + is_sum * EPSILON * np.sqrt(n_terms) * size
    first = np.searchsorted(state, np.arange(mdp.n_states))
    Q.sum_duplicates()
    p_error = np.where(is_short(Q.data), 0.0, 0.5 * EPSILON * Q.data)
    return Pairs(state, action, first, Q, Q.data, np.add.reduceat(weighted, starts), p_error, reward_error)


def in_fractions(mdp: OutcomeModel, pairs: Pairs) -> tuple[Pairs, bool]:
    """Return the rows in fractions, and whether every number was recognized as one."""
    state, action = pairs.state, pairs.action
    probability = mdp.probability[state, action]
    row, k = np.nonzero(probability)
    p, p_sure = read_fractions(probability[row, k])
    reward, r_sure = read_fractions(mdp.reward[state, action][row, k])
    starts = np.searchsorted(row, np.arange(state.size))
    p = p / np.add.reduceat(p, starts)[row]
    # As Q has them: the outcomes that lead to one state together, in the order of the states.
    key = row * mdp.n_states + mdp.next_state[state, action][row, k]
    order = np.argsort(key, kind="stable")
    merged = np.add.reduceat(p[order], np.flatnonzero(np.diff(key[order], prepend=-1)))
    expected = np.add.reduceat(p * reward, starts)
    return Pairs(state, action, pairs.first, pairs.Q, merged, expected,
                 np.zeros(merged.size), np.zeros(state.size)), p_sure and r_sure  # fmt: skip


@dataclass(frozen=True)
class Evaluation:
    """A policy and how the other actions of every state compare with its own.

    Parameters
    ----------
    rows : ndarray of int, shape (S,)
        The policy, by rows of pairs.
    improved : ndarray of int, shape (S,)
        The next one; the same if no action is better.
    best : list of ndarray of bool, shape (n,)
        The pairs that are not worse in all terms so far, after each term that was compared.
    bound : ndarray, shape (n,)
        Of pairs that differed by less than could be told at some term: by how much at most at the
        first; 0 for the others.
    ground : ndarray of int
        A frequent state of each recurrent class.
    """

    rows: IntArray
    improved: IntArray
    best: list[BoolArray]
    bound: FloatArray
    ground: IntArray


def iterate_policies(
    pairs: Pairs, start: IntArray, n: int, discount: float | None, tie_tolerance: float = 0.0
) -> Iterator[Evaluation]:
    """Improve a policy until nothing is better for certain; yield every one, that one last.

    Parameters
    ----------
    pairs : Pairs
    start : ndarray of int, shape (S,)
        The first policy, by rows.
    n : int
        -1 for the gain, 0 for the bias, `BLACKWELL`.
    discount : float or None
        If given, the discounted value is the criterion instead.
    tie_tolerance : float
        Differences up to this, relative to the size of what is compared, are ties by request.
    """
    rows, ground, seen = start, np.zeros(0, dtype=np.int64), set()
    while True:
        seen.add(rows.tobytes())
        evaluation = _evaluate(pairs, rows, n, discount, tie_tolerance, ground)
        yield evaluation
        # A policy may come back only by a tie of gains that was none, and is then listed as open.
        if evaluation.improved.tobytes() in seen:
            return
        rows, ground = evaluation.improved, evaluation.ground


def _evaluate(
    pairs: Pairs,
    rows: IntArray,
    n: int,
    discount: float | None,
    tie_tolerance: float,
    ground: IntArray,
) -> Evaluation:
    equations = Equations(pairs, rows, 1.0 if discount is None else discount, ground)
    own = rows[pairs.state]
    is_own = own == np.arange(own.size)
    remaining, is_alike = np.ones(own.size, dtype=bool), is_own.copy()
    bound = np.zeros(own.size)
    best: list[BoolArray] = []
    improved = rows
    for is_first, term in _terms(pairs, equations, n, discount):
        score, error = equations.scores(term)
        gap = score - score[own]
        doubt = error + error[own]
        is_open = np.abs(gap) <= doubt
        if tie_tolerance:
            size = np.abs(score) + pairs.ahead(np.abs(term.y)) + np.abs(term.y)[pairs.state]
            asked = tie_tolerance * np.maximum(size, size[own])
            is_open &= asked < doubt
            doubt = np.maximum(doubt, asked)
        ties = np.flatnonzero(remaining & ~is_alike & (np.abs(gap) <= doubt))
        if not is_first or not equations.is_unichain:
            is_alike[ties] = _are_alike(pairs, ties, own[ties])
        newly = ties[is_open[ties] & (doubt[ties] > 0.0) & (bound[ties] == 0.0) & ~is_alike[ties]]
        bound[newly] = doubt[newly]
        # The bias is at hand with the gain: both improve at once, each where it counts.
        better = np.flatnonzero(remaining & (gap > doubt) & (improved == rows)[pairs.state])
        if better.size:
            leader = pairs.leaders(np.where(remaining & (gap > doubt), gap, -np.inf))
            changed = pairs.state[better]
            improved = improved.copy()
            improved[changed] = leader[changed]
        remaining = remaining & (gap >= -doubt)
        best.append(remaining)
        if not is_first and (improved != rows).any():
            break
        if n == BLACKWELL and not is_first and not (remaining & ~is_alike).any():
            break
    return Evaluation(rows, improved, best, bound, equations.ground)


def _terms(
    pairs: Pairs, equations: Equations, n: int, discount: float | None
) -> Iterator[tuple[bool, Term]]:
    """Yield the terms from the gain to y_{n+1}, and whether it is the first."""
    bias = equations.solve_reward()
    if discount is not None:
        yield False, bias
        return
    yield True, equations.gain(bias)
    term, count = bias, -1
    limit = min(n, pairs.first.size if equations.is_exact else MAX_TERMS)
    while True:
        following = equations.following(term) if count < limit or not equations.is_unichain else None
        yield False, term if following is None else equations.centered(term, following)
        if count >= limit or following is None:
            return
        term, count = following.scaled(), count + 1


def _are_alike(pairs: Pairs, rows: IntArray, others: IntArray) -> BoolArray:
    """Whether rows have the rewards and the transitions of others, pair by pair."""
    same = np.asarray(pairs.reward[rows] == pairs.reward[others], dtype=bool)
    if same.any():
        difference = pairs.Q[rows[same]] - pairs.Q[others[same]]
        same[same] = row_sums(abs(difference)) == 0.0
    return same


def rough_policy(pairs: Pairs, discount: float | None) -> tuple[IntArray, int]:
    """Return a policy that is nearly optimal by the discount, or one near 1; and the iterations.

    By value iteration where values settle at once; else by policy iteration in plain doubles.
    """
    discount = NEAR_ONE if discount is None else discount
    r, Q = pairs.reward, pairs.Q
    v = np.zeros(pairs.first.size)
    for _ in range(SWEEPS):
        score = r + discount * (Q @ v)
        update = np.maximum.reduceat(score, pairs.first)
        change = update - v
        v = update - 0.5 * (update.max() + update.min())
        if np.ptp(change) <= 1e-7 * np.abs(v).max():
            return pairs.leaders(score), 0
    rows = pairs.leaders(score)
    for count in range(SWEEPS):
        exit_rate = np.full(rows.size, 1.0 - discount)
        v = find_solver(discount * Q[rows], exit_rate).solve(r[rows] - r[rows].mean())
        score = r + discount * (Q @ v)
        better = np.maximum.reduceat(score, pairs.first) > score[rows] + 1e-12 * np.abs(v).max()
        if not better.any():
            break
        rows = np.where(better, pairs.leaders(score), rows)
    return rows, count + 1
