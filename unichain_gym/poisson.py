"""The equations of one policy's values, solved with a bound of the error.

With one *ground* state of each recurrent class, and the values w = 0 there,

    w = f - a + γ P w

has one solution, a constant on each class: for γ = 1 the class's average of f, and the average of
the classes ahead on transient states. If all states but the grounds are U, with
A = I - γ P_UU, z = A^{-1} 1 the time to a ground, and u = A^{-1} f_U, then

    a = (f + γ P u)/(1 + γ P z) on the ground,    w_U = A^{-1} (f - a)_U.

(For γ < 1 and several classes there is no ground and a = 0.) Where steps take time, a τ takes
the place of a, τ that of the 1 in the denominator, and z = A^{-1} τ.

**The bound.** Whatever w and a are, let ε bound what they miss of the equations: the residual in
differences w(s') - w(s), its rounding, and what half an ulp of each probability and of each
number f changes in it. A^{-1} is nonnegative, so that the a of the right-hand side ε, called η,
bounds the error of a, and e = A^{-1}(ε + η) bounds that of w. One step of refinement, kept apart
as digits that w has no room for, leaves in ε hardly more than the inputs' own rounding.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from unichain_gym.arrays import FloatArray, IntArray
from unichain_gym.elimination import ObjectFactors, finite
from unichain_gym.linear import find_solver
from unichain_gym.pairs import Pairs, read_fractions
from unichain_gym.rounding import EPSILON
from unichain_gym.structure import find_structure, first_of_each, keep_edges

ROUGH_STEPS, FULL_STEPS = 16, 2  # the latter where every state leads to many others
RARE = 0.05
SAFETY = 1.0 + 1e-3  # for the rounding of the bounds themselves


@dataclass(frozen=True, eq=False)
class Term:
    """A term y + rest of a policy's value, each (S,), and what the terms after it follow from.

    ``error`` bounds the error of y + rest, except for a constant that no comparison sees. ``a`` is
    the average of the term before, up to the sign, and ``a_error`` bounds its error. Rewards are
    compared together with the term if it ``has_reward``.
    """

    y: Any
    rest: Any
    error: FloatArray
    a: Any
    a_error: FloatArray
    has_reward: bool

    def scaled(self) -> Term:
        """Return a positive multiple of the term, near 1 in size."""
        if self.y.dtype == object or not self.y.any():
            return self
        scale = np.ldexp(1.0, int(np.clip(-np.frexp(np.abs(self.y).max())[1], -1_000, 1_000)))
        return replace(self, y=scale * self.y, rest=scale * self.rest, error=scale * self.error)


class Equations:
    """The equations of a policy, rows (S,) of pairs, factorized once.

    ``discount`` is γ, 1 for the average; ``ground`` states that were frequent under a similar
    policy.
    """

    def __init__(self, pairs: Pairs, rows: IntArray, discount: float, ground: IntArray) -> None:
        self.pairs, self.own, self.discount = pairs, pairs.of(rows), discount
        self.is_exact = pairs.p.dtype == object
        structure = find_structure(self.own.Q)
        self.label, self.n_classes = structure.class_label, structure.n_classes
        self.is_unichain = self.n_classes == 1
        self.ground = self._choose_ground(ground)
        if discount < 1.0 and not self.is_unichain:
            self.ground = ground[:0]
        self._factorize()
        if self.ground.size and not self.is_exact:
            size = np.bincount(self.label[self.label >= 0])
            if (self.return_time > size / RARE).any():
                self._choose_better_ground()

    def _choose_ground(self, known: IntArray) -> IntArray:
        """Take what is known of each class, or else a frequent state after a few steps."""
        ground = np.full(self.n_classes, -1)
        known = known[self.label[known] >= 0]
        ground[self.label[known]] = known
        if (ground < 0).any():
            p = np.full(self.label.size, 1.0 / self.label.size)
            backward = self.own.Q.T
            for _ in range(FULL_STEPS if self.own.is_full else ROUGH_STEPS):
                p = 0.5 * (p + backward @ p)
            new = self._most_frequent(p)
            ground = np.where(ground < 0, new, ground)
        return ground

    def _most_frequent(self, p: FloatArray) -> IntArray:
        if self.n_classes == 1:
            return np.array([np.where(self.label == 0, p, -1.0).argmax()])
        return first_of_each(self.label, (-p,), self.n_classes)

    def _choose_better_ground(self) -> None:
        inflow = self.own.Q.T @ self.is_ground.astype(float)
        inflow[self.ground] = 0.0
        p = self._solver.solve(inflow, transposed=True)
        p[self.ground] = 1.0
        self.ground = self._most_frequent(p)
        self._factorize()

    def _factorize(self) -> None:
        self.is_ground = np.zeros(self.label.size, dtype=bool)
        self.is_ground[self.ground] = True
        own, gamma = self.own, self.gamma
        inside = ~(self.is_ground[own.Q.indices] | self.is_ground[own.source])
        one = own.reward * 0 + 1
        leave = gamma * own.ahead(self.is_ground * one) + (1 - gamma)
        leave[self.ground] = one[self.ground]  # whole numbers would divide to floats
        N = keep_edges(own.Q, inside)
        if self.is_exact:
            self._solver: Any = ObjectFactors(N, gamma * own.p[inside], leave)
        else:
            self._solver = find_solver(N if gamma == 1.0 else N * gamma, leave)
        self.time = self._inside(one) if self.ground.size else one
        self.steps = one, self.time
        self.clock = self.steps
        if own.duration is not None:
            self.clock = own.duration, self._inside(own.duration)

    @cached_property
    def gamma(self) -> Any:
        """The discount, in the numbers of the equations."""
        if self.is_exact:
            return read_fractions(np.array([self.discount]))[0][0]
        return self.discount

    @property
    def return_time(self) -> Any:
        """The mean (discounted) time between two visits of each ground."""
        return 1 + self.gamma * self.own.ahead(self.time)[self.ground]

    def _inside(self, c: Any) -> Any:
        """Solve A x = c on U; 0 on the grounds."""
        c = c.copy()
        c[self.ground] *= 0
        return self._solver.solve(c)

    def _averages(self, f: Any, u: Any, clock: Any) -> Any:
        """Return a on the grounds, of which u = A^{-1} f."""
        G, (tau, time) = self.ground, clock
        length = tau[G] + self.gamma * self.own.ahead(time)[G]
        return (f[G] + self.gamma * self.own.ahead(u)[G]) / length

    def _harmonic(self, on_ground: Any) -> Any:
        """Carry a number of each class to all states: the average over the classes ahead."""
        if self.is_unichain:
            return np.repeat(on_ground, self.label.size)
        values = np.zeros(self.label.size, dtype=on_ground.dtype)
        values[self.ground] = on_ground
        values = self._inside(self.own.ahead(values))
        recurrent = self.label >= 0
        values[recurrent] = on_ground[self.label[recurrent]]
        return values

    def _solve(self, f: Any, clock: Any) -> tuple[Any, Any]:
        """Return a, on all states, and w."""
        u = self._inside(f) if self.ground.size else self._solver.solve(f)
        if not self.ground.size:
            return u * 0, u
        a = self._harmonic(self._averages(f, u, clock))
        return a, u - a * clock[1] if self.is_unichain else u - self._inside(a * clock[0])

    def _term(self, f: Any, f_error: FloatArray, has_reward: bool) -> Term:
        """Solve the equations of f, (S,), that may be off by some error."""
        clock = self.clock if has_reward else self.steps
        tau = clock[0]
        a, w = self._solve(f, clock)
        zeros = np.zeros(f.size)
        if self.is_exact:
            return Term(w, w * 0, zeros, a, zeros, has_reward)
        gamma, stay = self.gamma, 1.0 - self.gamma
        drift, doubt = self.own.drift(w)
        charge = a * tau
        residual = (f - charge) + gamma * drift - stay * w
        more_a, rest = self._solve(residual, clock)
        left = residual - more_a * tau + gamma * self.own.drift(rest)[0] - stay * rest
        epsilon = np.abs(left) + gamma * doubt + f_error
        epsilon += EPSILON * (np.abs(f - charge) + stay * np.abs(w))
        if has_reward and self.own.duration is not None:
            epsilon += np.abs(a) * self.own.duration_error
        if not self.ground.size:
            return Term(w, rest, SAFETY * self._solver.solve(epsilon), a, zeros, has_reward)
        of_class = self._averages(epsilon, self._inside(epsilon), clock)
        eta = np.zeros(f.size)
        recurrent = self.label >= 0
        eta[recurrent] = of_class[self.label[recurrent]]
        if not recurrent.all():
            eta[~recurrent] = of_class.max()
        error = SAFETY * self._inside(epsilon + eta * tau)
        a = a + more_a
        a_error = SAFETY * eta + EPSILON * np.abs(a)
        if not self.is_unichain:
            off, a_doubt = self.own.drift(a)
            off = np.where(recurrent, 0.0, np.abs(off) + a_doubt)
            a_error = SAFETY * (self._harmonic(of_class) + self._inside(off)) + EPSILON * np.abs(a)
            a_error[recurrent & (eta == 0.0)] = 0.0
            error += SAFETY * self._inside(np.where(recurrent, 0.0, a_error * tau))
        return Term(w, rest, error, a, a_error, has_reward)

    def solve_reward(self) -> Term:
        """Return the bias relative to the grounds, with the gain; or the discounted value."""
        return self._term(self.own.reward, self.own.reward_error, has_reward=True)

    def gain(self, bias: Term) -> Term:
        """Return the gain as a term, from the equations of the bias."""
        zeros = np.zeros(self.label.size)
        if self.is_unichain:  # all states have the same
            return Term(zeros, zeros, zeros, zeros, zeros, False)
        return Term(bias.a, zeros, bias.a_error, zeros, zeros, False)

    def following(self, term: Term) -> Term:
        """Return the term after this, both relative to the grounds."""
        return self._term(-term.y, term.error + np.abs(term.rest).astype(float), has_reward=False)

    def centered(self, term: Term, following: Term) -> Term:
        """Return a term with P* y = 0, which decides between classes."""
        if self.is_unichain:
            return term
        return replace(term, y=term.y + following.a, error=term.error + following.a_error)

    def scores(self, term: Term) -> tuple[Any, FloatArray]:
        """Return what the term says of each pair, and a bound of the error."""
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
