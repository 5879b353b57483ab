"""Policy iteration for the gain, the bias and every finer criterion, and for discounted values.

For discounts near 1, with ρ = (1 - γ)/γ, the value of a policy d is a series,

    γ v = Σ_{n ≥ -1} ρ^n y_n,    y_-1 = g = P* r,    y_0 = b = D r,    y_n = -D y_{n-1}

(Puterman, 1994, theorem 8.2.3). A policy is *n-discount optimal* if no other has larger terms up
to y_n, compared in turn in every state: gain-optimal for n = -1, bias-optimal for n = 0, and
Blackwell-optimal, that is optimal for all discounts near enough to 1, for all n (theorem 10.1.5).
Taking action a once and then following d changes the value in state s by terms of which

    Σ_s' p(s'|s, a) y_-1(s'),    r(s, a) + Σ_s' p(s'|s, a) y_0(s'),    Σ_s' p(s'|s, a) y_n(s')

depend on a. Each iteration compares every action with d's action by these terms in turn, and takes
the best action. The value near γ = 1 then rises, so no policy repeats. If no action is better in
the terms up to n + 1, d is n-discount optimal (Veinott, 1969, Ann. Math. Stat. 40; Howard, 1960,
for the gain).

**Ties.** A difference counts if it exceeds its error bound, which allows half an ulp for every
probability and reward. So every change is an improvement, and rounding cannot make policies cycle.
A difference within the bound is open: `Evaluation.bound`. In fractions the bound is 0.

**Time.** If steps take time, actions are compared by r(s, a) - g(s) τ(s, a) + Σ_s' p(s'|s, a)
y_0(s'), and the gain is the only criterion (Denardo & Fox, 1968, SIAM J. Appl. Math. 16; Puterman,
chapter 11).

**Equations.** Each term solves w = f - a + γ P w, with the grounds of `unichain_gym.limits`. (For
γ < 1 and several classes there is no ground and a = 0.)

**The bound.** For any w and a, let ε bound the residual of the equations in differences w(s') -
w(s), its rounding, and its change by half an ulp of each probability and each f. Since A^{-1} is
nonnegative, the a for the right-hand side ε, called η, bounds the error of a, and e = A^{-1}(ε + η)
bounds the error of w. One step of refinement, stored separately from w, reduces ε to little more
than the rounding of the inputs. Before it, η ≤ max ε and e ≤ 2 max ε max z often decide all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from unichain_gym.elimination import finite
from unichain_gym.interface import BoolArray, FloatArray, IntArray
from unichain_gym.limits import ROUGH_STEPS, Grounded, follow, most_frequent
from unichain_gym.linear import DENSE_STATES, find_method
from unichain_gym.outcomes import EPSILON
from unichain_gym.pairs import Pairs
from unichain_gym.structure import Structure, find_structure, row_sums

BLACKWELL = 2**62
"""The n of Blackwell optimality, larger than any number of compared terms."""
# In doubles the errors of later terms exceed their information.
MAX_TERMS = 40
NEAR_ONE = 1.0 - 1e-5
SWEEPS, SETTLED, MAX_ROUGH = 12, 0.02, 40
FULL_STEPS = 1  # instead of ROUGH_STEPS, for dense models
RARE = 0.05
SAFETY = 1.0 + 1e-3  # covers the rounding of the bounds
SMALL_ERROR = 1e-6  # of times by an LU, so that `SAFETY` covers their errors too


class Term(NamedTuple):
    """A term y + rest of a policy's value, each (S,), and the input of the next term.

    ``error`` bounds the error of y + rest up to a constant, which cancels in comparisons. ``a`` is
    the average of the previous term, up to the sign, and ``a_error`` bounds its error. If the term
    ``has_reward``, comparisons add the reward. A refined term follows one that ``is_rough``.
    """

    y: Any
    rest: Any
    error: FloatArray
    a: Any
    a_error: FloatArray
    has_reward: bool
    is_rough: bool = False


class Equations(Grounded):
    """The equations of a policy, rows (S,); ``known`` has states frequent for a similar one."""

    def __init__(self, pairs: Pairs, rows: IntArray, discount: float, known: IntArray) -> None:
        self.pairs, own = pairs, pairs.of(rows)
        structure = find_structure(own.Q) if not own.is_dense else Structure(0 * rows, 1)
        label = structure.class_label
        if discount < 1.0 and structure.n_classes > 1:
            ground = known[:0]
        else:  # a known ground of each class, or a frequent state after a few steps
            ground, known = np.full(structure.n_classes, -1), known[label[known] >= 0]
            ground[label[known]] = known
            if (ground < 0).any():
                n_steps = FULL_STEPS if own.is_full else ROUGH_STEPS
                p = follow(own.matrix, np.full(rows.size, 1.0 / rows.size), n_steps)
                ground = np.where(ground < 0, most_frequent(structure, p), ground)
        super().__init__(own, structure, ground, discount)

    def _has_lu(self) -> bool:
        return not self.is_exact and self.solver.method.endswith(" LU")

    def _set_clocks(self) -> None:
        """Compute the times until the grounds, and take others if these are rare."""
        self.solution = self.solver.solve
        time, longest = self.solver.times if self._has_lu() else (None, np.inf)
        self.steps = self.clock(self.one, time if EPSILON * longest < SMALL_ERROR else None)
        if self.ground.size and not self.is_exact:
            size = np.bincount(self.label + 1, minlength=self.n_classes + 1)[1:]
            if (self.steps[2] > size / RARE).any():
                self.ground = most_frequent(self.structure, self.frequencies())
                self.factorize()
                self.steps = self.clock(self.one)
        tau = self.own.duration
        self.timed = self.steps if tau is None else self.clock(tau)

    def _term(self, f: Any, f_error: Any, has_reward: bool, is_rough: bool = False) -> Term:
        """Solve for f, (S,); a rough term is not refined, and has the bound e ≤ 2 max ε max z."""
        clock = self.timed if has_reward else self.steps
        tau = clock[0]
        a, w = self.solve(f, clock)
        zeros = np.zeros(f.size)
        if self.is_exact:
            return Term(w, w * 0, zeros, a, zeros, has_reward)
        gamma, stay = self.gamma, 1.0 - self.gamma
        drift, doubt = self.own.drift(w)
        charge = a * tau
        left = (f - charge) + gamma * drift - stay * w
        if not is_rough:
            more_a, rest = self.solve(left, clock)
            left = left - more_a * tau + gamma * self.own.drift(rest)[0] - stay * rest
        epsilon = np.abs(left) + gamma * doubt + f_error
        epsilon += EPSILON * (np.abs(f - charge) + stay * np.abs(w))
        if is_rough:
            error = self.one * (2.0 * SAFETY * epsilon.max() * self.solver.times[1])
            return Term(w, zeros, error, a, error, has_reward, is_rough)
        if has_reward and self.own.duration is not None:
            epsilon += np.abs(a) * self.own.duration_error
        if not self.ground.size:
            return Term(w, rest, SAFETY * self.solver.solve(epsilon), a, zeros, has_reward)
        inside = self.inside(epsilon)
        of_class = self.averages(epsilon, inside, clock)
        a = a + more_a
        if self.is_unichain:
            error = SAFETY * (inside + of_class * clock[1])
            a_error = SAFETY * of_class + EPSILON * np.abs(a)
        else:
            recurrent = self.label >= 0
            eta = np.append(of_class, of_class.max())[self.label]
            error = SAFETY * self.inside(epsilon + eta * tau)
            off, a_doubt = self.own.drift(a)
            off = np.where(recurrent, 0.0, np.abs(off) + a_doubt)
            a_error = SAFETY * (self.harmonic(of_class) + self.inside(off)) + EPSILON * np.abs(a)
            a_error[recurrent & (eta == 0.0)] = 0.0
            error += SAFETY * self.inside(np.where(recurrent, 0.0, a_error * tau))
        return Term(w, rest, error, a, a_error, has_reward)

    def terms(self, n: int) -> Iterator[tuple[bool, Term]]:
        """Yield the terms up to y_{n+1}, or the discounted value; and whether it is the gain."""
        if n < 0 and self.is_unichain and self.own.duration is None and self._has_lu():
            self.solution = self.solver.rough_solution
            self.timed = self.steps = self.clock(self.one, self.solver.times[0])
            term = self._term(self.own.reward, self.own.reward_error, True, is_rough=True)
            if np.isfinite(term.error[0]):
                yield False, term
        self._set_clocks()
        term = self._term(self.own.reward, self.own.reward_error, has_reward=True)
        if self.discount < 1.0:
            yield False, term
            return
        zeros = np.zeros(self.label.size)
        if not self.is_unichain:
            yield True, Term(term.a, zeros, term.a_error, zeros, zeros, False)
        limit = min(n, self.label.size if self.is_exact else MAX_TERMS)
        for k in range(-1, limit + 1):
            if k == limit and self.is_unichain:
                yield False, term
                return
            doubt = term.error + np.abs(term.rest).astype(float)
            after = self._term(-term.y, doubt, has_reward=False)
            if not self.is_unichain:  # P* y = 0 decides between classes
                term = term._replace(y=term.y + after.a, error=term.error + after.a_error)
            yield False, term
            if not self.is_exact and after.y.any():  # a positive multiple, near 1 in size
                scale = np.clip(-np.frexp(np.abs(after.y).max())[1], -1_000, 1_000)
                y, rest, error = (np.ldexp(x, int(scale)) for x in after[:3])
                after = after._replace(y=y, rest=rest, error=error)
            term = after

    def scores(self, term: Term) -> tuple[Any, FloatArray]:
        """Return the score of each pair by the term, and an error bound."""
        pairs, gamma = self.pairs, self.gamma
        drift, doubt = pairs.drift(term.y)
        score = gamma * drift
        charge: Any = 0
        if term.has_reward and pairs.duration is not None:
            charge = term.a[pairs.state] * pairs.duration
        if self.is_exact:
            return (score + pairs.reward - charge if term.has_reward else score), doubt
        if term.rest.any():
            score = score + gamma * pairs.drift(term.rest)[0]
        error = self.discount * (doubt + pairs.ahead_bound(term.error))
        if term.has_reward:
            error += pairs.reward_error + EPSILON * (np.abs(score) + np.abs(pairs.reward))
            score = score + pairs.reward
            if pairs.duration is not None:
                error += term.a_error[pairs.state] * pairs.duration
                error += np.abs(term.a)[pairs.state] * pairs.duration_error
                score = score - charge
                error += EPSILON * (np.abs(score) + np.abs(charge))
        return finite(score), np.where(np.isnan(error), np.inf, error)


class Evaluation(NamedTuple):
    """A policy, by rows (S,) of pairs, and how the other actions of every state compare with it.

    ``improved`` is the next policy, the same if no action is better. ``best`` has, after each
    compared term, the pairs (n,) that are not worse in any term so far. ``bound`` (n,) bounds the
    difference of an undecided pair at its first undecided term, and is 0 for all other pairs.
    """

    rows: IntArray
    improved: IntArray
    best: list[BoolArray]
    bound: FloatArray


@np.errstate(over="ignore", invalid="ignore")
def iterate_policies(
    pairs: Pairs, start: IntArray, n: int, discount: float | None, tie_tolerance: float = 0.0
) -> list[Evaluation]:
    """Improve a policy, rows (S,), until no action is certainly better; return every step.

    The criterion is optimality to n: -1 for the gain, 0 for the bias, `BLACKWELL`; or the
    discounted value, with a discount. Differences up to the tie_tolerance, relative to the compared
    values, are ties.
    """
    rows, ground, seen = start, np.zeros(0, dtype=np.int64), set()
    found: list[Evaluation] = []
    # A policy repeats only after a false tie of gains; it is then listed as open.
    while rows.tobytes() not in seen:
        seen.add(rows.tobytes())
        equations = Equations(pairs, rows, 1.0 if discount is None else discount, ground)
        found.append(_evaluate(equations, rows, n, tie_tolerance))
        rows, ground = found[-1].improved, equations.ground
    return found


def _evaluate(equations: Equations, rows: IntArray, n: int, tie_tolerance: float) -> Evaluation:
    pairs, own = equations.pairs, rows[equations.pairs.state]
    is_own = own == np.arange(own.size)
    remaining, is_alike = np.ones(own.size, dtype=bool), is_own.copy()
    bound = np.zeros(own.size)
    # If all states have the same gain, all pairs conserve it.
    best = [remaining] if equations.is_unichain and equations.discount == 1.0 else []
    improved = rows
    for is_first, term in equations.terms(n):
        score, error = equations.scores(term)
        gap = score - score[own]
        doubt = error + error[own]
        is_tie = is_open = np.abs(gap) <= doubt
        if term.is_rough and (is_open & ~is_own).any():
            continue
        if tie_tolerance:
            y = np.abs(term.y).astype(float)
            size = np.abs(score).astype(float) + pairs.Q @ y + y[pairs.state]
            size += term.has_reward * pairs.reward_size
            asked = tie_tolerance * np.maximum(size, size[own])
            is_open = is_open & (asked < doubt)
            doubt = np.maximum(doubt, asked)
            is_tie = np.abs(gap) <= doubt
        ties = np.flatnonzero(remaining & is_tie & ~is_alike)
        if ties.size:
            is_alike[ties] = _are_alike(pairs, ties, own[ties])
            is_new = is_open[ties] & (doubt[ties] > 0.0) & (bound[ties] == 0.0) & ~is_alike[ties]
            bound[ties[is_new]] = doubt[ties[is_new]]
        # The bias is computed with the gain, so one step improves both.
        is_better = remaining & (gap > doubt)
        better = np.flatnonzero(is_better & (improved == rows)[pairs.state])
        if better.size:
            leader = pairs.leaders(np.where(is_better, gap, -np.inf))
            changed = pairs.state[better]
            improved = improved.copy()
            improved[changed] = leader[changed]
        remaining = remaining & (is_tie | is_better)
        best.append(remaining)
        if term.is_rough or (not is_first and (improved != rows).any()):
            break
        if n == BLACKWELL and not is_first and not (remaining & ~is_alike).any():
            break
    return Evaluation(rows, improved, best, bound)


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
    """Return a nearly optimal policy, for a discount near 1 by default; and the iterations."""
    discount = NEAR_ONE if discount is None else discount
    r, Q = pairs.reward, pairs.matrix
    if Q is pairs.Q and Q.shape[1] <= DENSE_STATES and Q.shape[0] <= 10 * DENSE_STATES:
        Q = Q.toarray()
    v, first_range = np.zeros(pairs.first.size), 0.0
    for _ in range(SWEEPS):
        score = r + discount * (Q @ v)
        rows = pairs.leaders(score)
        update = score[rows]
        step = update - v
        change = step.max() - step.min()
        v = update - update[0]
        first_range = first_range or change
        if change <= SETTLED * first_range:
            return rows, 0
    make, n = find_method(Q[rows]), rows.size
    eye: Any = np.eye(n) if isinstance(Q, np.ndarray) else sparse.eye_array(n, format="csr")
    A = eye[pairs.state] - discount * Q
    for n_iterations in range(1, MAX_ROUGH + 1):  # noqa: B007  (the last one is returned)
        v, _ = make(A[rows]).solve(r[rows] - r[rows].mean(), False)
        for sweep in range(SWEEPS):  # noqa: B007  (they cost less than another solution)
            score = r + discount * (Q @ v)
            best = pairs.leaders(score)
            better = score[best] > score[rows] + 1e-12 * np.abs(v).max()
            if not better.any():
                break
            rows = np.where(better, best, rows)
            v = score[rows]
        if sweep == 0:
            break
    return rows, n_iterations
