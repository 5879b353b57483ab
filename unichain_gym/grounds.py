"""The equations of a chain without its ground states: sums over the steps until one is entered.

With one *ground* state of each recurrent class, and the values w = 0 there,

    w = f - a + γ P w

has one solution with a constant on each class. For γ = 1, a is the class average of f, and on
transient states the average by absorption probabilities. With U all states but the grounds, A = I -
γ P_UU, z = A^{-1} 1 the time to a ground, and u = A^{-1} f_U, then

    a = (f + γ P u)/(1 + γ P z) on the ground,    w_U = A^{-1} (f - a)_U.

If steps take time, a τ replaces a, τ replaces the 1 in the denominator, and z = A^{-1} τ. Without
grounds, for γ < 1, a = 0. A ground must not be rare: solutions contain the times until it is
entered, and large times lose small differences by rounding.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unichain_gym.elimination import ObjectFactors
from unichain_gym.interface import FloatArray, IntArray
from unichain_gym.linear import SMALL_STATES, find_solver
from unichain_gym.pairs import Pairs, read_fractions
from unichain_gym.structure import Structure, first_of_each, keep_edges

Clock = tuple[Any, Any, Any]
"""The time of a step and the time until a ground, each (S,), and the time of a return to it."""


def follow(matrix: Any, p: FloatArray, n_steps: int) -> FloatArray:
    """Follow a chain from p by lazy steps, which never lengthen an error."""
    backward = matrix.T
    for _ in range(n_steps):
        p = 0.5 * (p + backward @ p)
    return p


def most_frequent(structure: Structure, p: FloatArray) -> IntArray:
    """Return the state of each class with the largest p."""
    if structure.n_classes == 1:  # faster
        return np.array([np.where(structure.class_label < 0, -1.0, p).argmax()])
    return first_of_each(structure.class_label, (-p,), structure.n_classes)


class Grounded:
    """The equations of a chain, one row a state, in floats or in fractions.

    ``ground`` is a state of each class, in the order of the classes, or empty. `solver` has the
    matrix A, with rows of the identity for the grounds.
    """

    def __init__(
        self, own: Pairs, structure: Structure, ground: IntArray, discount: float = 1.0
    ) -> None:
        self.own, self.discount, self.ground = own, discount, ground
        self.structure = structure
        self.label, self.n_classes = structure.class_label, structure.n_classes
        self.is_unichain = self.n_classes == 1
        self.is_exact = own.p.dtype == object
        one, self.gamma = 1.0, discount  # in the numbers of the equations
        if self.is_exact:
            one, self.gamma = read_fractions(np.array([1.0, discount]))[0]
        self.one: Any = np.full(self.label.size, one)
        self.factorize()

    def discounted(self, discount: float) -> Grounded:
        """Return the equations with a discount and the same grounds."""
        return Grounded(self.own, self.structure, self.ground, discount)

    def factorize(self) -> None:
        """Make the solver, for the present grounds."""
        self.is_ground = np.zeros(self.label.size, dtype=bool)
        self.is_ground[self.ground] = True
        own, gamma = self.own, self.gamma
        leave = gamma * own.ahead(self.is_ground * self.one) + (1 - gamma)
        leave[self.ground] = self.one[self.ground]  # whole numbers would divide to floats
        if own.is_dense and not self.is_exact and leave.size > SMALL_STATES:
            N = gamma * own.matrix
            N[self.ground] = N[:, self.ground] = 0.0
            self.solver: Any = find_solver(N, leave, gamma * own.weight.min())
        else:
            inside = ~(self.is_ground[own.Q.indices] | self.is_ground[own.source])
            N = keep_edges(own.Q, inside)
            if self.is_exact:
                self.solver = ObjectFactors(N, gamma * own.p[inside], leave)
            else:
                self.solver = find_solver(N if gamma == 1.0 else N * gamma, leave)
        self.solution = self.solver.solve

    @property
    def inflow(self) -> FloatArray:
        """The transitions from the grounds to all other states."""
        entered = np.asarray(self.own.matrix.T @ self.is_ground.astype(float))
        entered[self.ground] = 0.0
        return entered

    def frequencies(self) -> FloatArray:
        """Return the visits of each state between visits of the ground of its class."""
        # A negative entry is within its error of 0.
        p = np.maximum(self.solver.solve(self.inflow, transposed=True), 0.0)
        p[self.ground] = 1.0
        return p

    def clock(self, tau: Any, time: Any = None) -> Clock:
        """Return the clock of steps that take the times tau; ``time`` until a ground if known."""
        if not self.ground.size:
            return tau, tau, tau[:0]
        time = self.inside(tau) if time is None else np.where(self.is_ground, 0.0, time)
        return tau, time, (tau + self.gamma * self.own.ahead(time))[self.ground]

    def inside(self, c: Any) -> Any:
        """Solve A x = c on U; 0 on the grounds."""
        c = c.copy()
        c[self.ground] *= 0
        return self.solution(c)

    def averages(self, f: Any, u: Any, clock: Clock) -> Any:
        """Return a on the grounds, with u = A^{-1} f."""
        return ((f + self.gamma * self.own.ahead(u))[self.ground].T / clock[2]).T

    def harmonic(self, on_ground: Any) -> Any:
        """Average a number of each class by the absorption probabilities of all states."""
        if self.is_unichain:
            return np.repeat(on_ground, self.label.size, axis=0)
        recurrent, values = self.label >= 0, on_ground[self.label]
        if not recurrent.all():
            values[~self.is_ground] *= 0
            values = self.inside(self.own.ahead(values))
            values[recurrent] = on_ground[self.label[recurrent]]
        return values

    def solve(self, f: Any, clock: Clock) -> tuple[Any, Any]:
        """Return a, on all states, and w; f is (S,) or (S, m)."""
        u = self.inside(f)
        if not self.ground.size:
            return u * 0, u
        a = self.harmonic(self.averages(f, u, clock))
        if self.is_unichain or self.label.min() >= 0:  # a is constant wherever a path leads
            return a, u - (a.T * clock[1]).T
        return a, u - self.inside(a * clock[0])
