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

**Time.** Where steps take time, r(s, a) - g(s) τ(s, a) + Σ_s' p(s'|s, a) y_0(s') is compared, and
only the gain is a criterion (Denardo & Fox, 1968, SIAM J. Appl. Math. 16; Puterman, chapter 11).

**Start.** Value iteration, and policy iteration for a discount near 1, need neither structure nor
bounds. What they find is mostly optimal and then only has to be evaluated once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from unichain_gym.arrays import BoolArray, FloatArray, IntArray
from unichain_gym.linear import find_proposer
from unichain_gym.pairs import Pairs
from unichain_gym.poisson import Equations, Term
from unichain_gym.structure import row_sums

BLACKWELL = 2**62
"""The n of Blackwell optimality: more terms than are ever compared."""
# In doubles the errors of later terms outgrow what is new in them.
MAX_TERMS = 40
NEAR_ONE = 1.0 - 1e-5
SWEEPS, SETTLED, MAX_ROUGH = 12, 0.02, 40


class Evaluation(NamedTuple):
    """A policy, by rows (S,) of pairs, and how the other actions of every state compare with it.

    ``improved`` is the next policy, the same if no action is better. ``best`` has, after each term
    that was compared, the pairs (n,) that are not worse in all terms so far. ``bound`` (n,) says of
    pairs that could not be told apart at some term by how much they differ at most at the first
    such term; it is 0 for all others. ``ground`` has a frequent state of each recurrent class.
    """

    rows: IntArray
    improved: IntArray
    best: list[BoolArray]
    bound: FloatArray
    ground: IntArray


def iterate_policies(
    pairs: Pairs, start: IntArray, n: int, discount: float | None, tie_tolerance: float = 0.0
) -> list[Evaluation]:
    """Improve a policy, rows (S,), until nothing is better for certain; return every step.

    The criterion is optimality to n: -1 for the gain, 0 for the bias, `BLACKWELL`; or the
    discounted value, with a discount. Differences up to the tie_tolerance, relative to the size of
    what is compared, are ties by request.
    """
    rows, ground, seen = start, np.zeros(0, dtype=np.int64), set()
    found: list[Evaluation] = []
    # A policy may come back only by a tie of gains that was none, and is then listed as open.
    while rows.tobytes() not in seen:
        seen.add(rows.tobytes())
        found.append(_evaluate(pairs, rows, n, discount, tie_tolerance, ground))
        rows, ground = found[-1].improved, found[-1].ground
    return found


@np.errstate(over="ignore", invalid="ignore")
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
            y = np.abs(term.y).astype(float)
            size = np.abs(score).astype(float) + pairs.Q @ y + y[pairs.state]
            size += term.has_reward * pairs.reward_size
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
    term = equations.solve_reward()
    if discount is not None:
        yield False, term
        return
    yield True, equations.gain(term)
    limit = min(n, pairs.first.size if equations.is_exact else MAX_TERMS)
    for k in range(-1, limit + 1):
        if k == limit and equations.is_unichain:
            yield False, term
        else:
            following = equations.following(term)
            yield False, equations.centered(term, following)
            term = following.scaled()


def _are_alike(pairs: Pairs, rows: IntArray, others: IntArray) -> BoolArray:
    """Whether rows have the rewards and the transitions of others, pair by pair."""
    same = np.asarray(pairs.reward[rows] == pairs.reward[others], dtype=bool)
    if pairs.duration is not None:
        same &= np.asarray(pairs.duration[rows] == pairs.duration[others], dtype=bool)
    if same.any():
        difference = pairs.Q[rows[same]] - pairs.Q[others[same]]
        same[same] = row_sums(abs(difference)) == 0.0
    return same


@np.errstate(over="ignore", invalid="ignore")
def rough_policy(pairs: Pairs, discount: float | None) -> tuple[IntArray, int]:
    """Return a policy that is nearly optimal by the discount, or one near 1; and the iterations.

    By value iteration where values settle at once; else by policy iteration in plain doubles.
    """
    discount = NEAR_ONE if discount is None else discount
    r, Q = pairs.reward, pairs.matrix
    v, first_range = np.zeros(pairs.first.size), 0.0
    for _ in range(SWEEPS):
        score = r + discount * (Q @ v)
        update = np.maximum.reduceat(score, pairs.first)
        change = np.ptp(update - v)
        v = update - update[0]
        first_range = first_range or change
        if change <= SETTLED * first_range:
            return pairs.leaders(score), 0
    rows = pairs.leaders(score)
    propose = find_proposer(pairs.Q[rows])
    for n_iterations in range(1, MAX_ROUGH + 1):  # noqa: B007  (the last one is returned)
        v = propose(pairs.Q[rows], discount, r[rows] - r[rows].mean())
        score = r + discount * (Q @ v)
        better = np.maximum.reduceat(score, pairs.first) > score[rows] + 1e-12 * np.abs(v).max()
        if not better.any():
            break
        rows = np.where(better, pairs.leaders(score), rows)
    return rows, n_iterations
