"""Long-run quantities of a chain: limits, potentials and sums up to absorption.

**Equations.** With one *ground* state of each recurrent class, and the values w = 0 there,

    w = f - a + γ P w

has one solution with a constant on each class. For γ = 1, a is the class average of f, and on
transient states the average by absorption probabilities. With U all states but the grounds, A = I -
γ P_UU, z = A^{-1} 1 the time to a ground, and u = A^{-1} f_U, then

    a = (f + γ P u)/(1 + γ P z) on the ground,    w_U = A^{-1} (f - a)_U.

If steps take time, a τ replaces a, τ replaces the 1 in the denominator, and z = A^{-1} τ. Without
grounds, for γ < 1, a = 0. A ground must not be rare: solutions contain the times until it is
entered, and large times lose small differences by rounding.

**Limits.** The chain is split into its recurrent states R, on which the transition matrix is
block-diagonal by class, and its transient states T:

    P = [ P_TT  P_TR ]
        [  0    P_RR ]

Every quantity is computed on R first, where the equations give the stationary distribution, the
bias and so on, up to a constant per class that normalization fixes. One system in I - P_TT extends
it to T. All limits are in the Cesàro sense, lim (1/n) Σ_{t<n} P^t, so periods make no difference.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from unichain_gym.elimination import ObjectFactors, finite
from unichain_gym.errors import ConvergenceError, ModelTooLargeError
from unichain_gym.interface import BoolArray, FloatArray, IntArray
from unichain_gym.linear import SMALL_STATES, Solver, find_solver
from unichain_gym.outcomes import MAX_DENSE_STATES
from unichain_gym.pairs import Pairs, read_fractions
from unichain_gym.structure import (
    Structure,
    first_of_each,
    group_sums,
    keep_edges,
    keep_states,
    row_sums,
)

ROUGH_STEPS, ROUGH_WORK = 16, 30_000_000
POLISHING_STEPS = 30

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
        p: FloatArray = np.maximum(self.solver.solve(self.inflow, transposed=True), 0.0)
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


class Limits:
    """The split of a chain P without stored zeros, and factorizations for its limits."""

    def __init__(self, P: sparse.csr_array, structure: Structure) -> None:
        self.P, self.structure = P, structure
        self.n_states, self.n_classes = int(P.shape[0]), structure.n_classes
        self.recurrent, self.transient = structure.recurrent, structure.transient
        self.label: IntArray = structure.class_label[self.recurrent]
        self.P_RR = keep_states(P, self.recurrent)
        self.methods: dict[str, tuple[str, int]] = {}

    @cached_property
    def P_TT(self) -> sparse.csr_array:
        """The transitions between transient states."""
        return keep_states(self.P, self.transient)

    @cached_property
    def P_TR(self) -> sparse.csr_array:
        """The transitions from transient to recurrent states."""
        return self.P[self.transient][:, self.recurrent]

    @cached_property
    def transient_solver(self) -> Solver:
        """Solves systems in I - P_TT."""
        return find_solver(self.P_TT, row_sums(self.P_TR))

    @property
    def system(self) -> Grounded:
        """The equations on R, with frequent grounds."""
        return self._occupancy[0]

    @property
    def stationary(self) -> FloatArray:
        """The stationary distributions of all classes, side by side, shape (n_R,)."""
        return self._occupancy[1]

    @cached_property
    def _occupancy(self) -> tuple[Grounded, FloatArray]:
        n = self.recurrent.size
        rough = follow(self.P_RR, np.full(n, 1.0 / n), ROUGH_STEPS)
        try:
            system, p = self._solve_for_frequencies(rough)
        except ConvergenceError:  # the ground may be very rare
            n_steps = min(4 * n, ROUGH_WORK // self.P_RR.data.size + 1)
            system, p = self._solve_for_frequencies(follow(self.P_RR, rough, n_steps))
        if self._is_rare(p)[system.ground].any():
            # On a slow chain the rough occupancy was wrong: factorize again.
            system = self._ground(p)
        return system, p

    def _solve_for_frequencies(self, rough: FloatArray) -> tuple[Grounded, FloatArray]:
        system = self._ground(rough)
        p = system.frequencies()
        self._note("stationary distribution", system.solver)
        if system.solver.n_iterations:
            p = follow(self.P_RR, p, POLISHING_STEPS)
        p = p / self._class_maximum(p)  # avoids overflow of the sum
        return system, p / group_sums(self.label, p, self.n_classes)[self.label]

    def _ground(self, frequency: FloatArray) -> Grounded:
        """Ground a frequent state of each class with many entering transitions.

        Its removal leaves less to eliminate.
        """
        entering = np.bincount(self.P_RR.indices, minlength=self.recurrent.size)
        entering[self._is_rare(frequency)] = 0
        ground = first_of_each(self.label, (-frequency, -entering), self.n_classes)
        rows, structure = Pairs.of_chain(self.P_RR), Structure(self.label, self.n_classes)
        return Grounded(rows, structure, ground)

    def _is_rare(self, frequency: FloatArray) -> BoolArray:
        return np.asarray(frequency < 1e-3 * self._class_maximum(frequency))

    def _class_maximum(self, values: FloatArray) -> FloatArray:
        """Return the largest of values on R in each state's class, at least 0; both (n_R,)."""
        highest = np.zeros(self.n_classes)
        np.maximum.at(highest, self.label, values)
        return highest[self.label]

    @cached_property
    def class_distributions(self) -> sparse.csr_array:
        """The stationary distribution of each class, shape (n_classes, S)."""
        place = self.label, self.recurrent
        return sparse.csr_array((self.stationary, place), shape=(self.n_classes, self.n_states))

    def carry(self, on_recurrent: FloatArray, source: FloatArray | None = None) -> FloatArray:
        """Solve v_T = source + P_TT v_T + P_TR v_R, and return v on all states; (n,) or (n, m)."""
        v = np.empty((self.n_states, *on_recurrent.shape[1:]))
        v[self.recurrent] = on_recurrent
        if self.transient.size:
            c = self.P_TR @ on_recurrent
            v[self.transient] = self.transient_solver.solve(c if source is None else c + source)
        return v

    def limit(self, values: FloatArray) -> FloatArray:
        """Return P* values, where P* = lim (1/n) Σ_{t<n} P^t; values are (S,) or (S, m)."""
        return self.ahead(self.class_distributions @ values)

    def class_rate(self, values: FloatArray, durations: FloatArray | None) -> FloatArray:
        """Average values (S,) over each class, per unit of time; shape (n_classes,)."""
        mean = self.class_distributions @ values
        return mean if durations is None else mean / (self.class_distributions @ durations)

    def ahead(self, of_class: FloatArray) -> FloatArray:
        """Average numbers of classes, (n_classes,) or (…, m), by absorption probabilities."""
        if self.n_classes == 1:
            return np.repeat(of_class, self.n_states, axis=0)
        return self.carry(of_class[self.label])

    def absorption(self) -> FloatArray:
        """Return the probability of ending in each class, shape (S, n_classes)."""
        n, n_classes = self.n_states, self.n_classes
        if n * n_classes > MAX_DENSE_STATES**2:
            raise ModelTooLargeError(
                f"absorption_probabilities of {n} states into {n_classes} classes would take "
                f"{n * n_classes * 8 / 1e9:.1f} GB"
            )
        return self.ahead(np.eye(n_classes))

    def distribution(self, start: FloatArray) -> FloatArray:
        """Return start P*, the long-run distribution from a start (S,)."""
        weight: FloatArray = np.ones(1)
        if self.n_classes > 1:
            inflow = start[self.recurrent] + self.visits(start) @ self.P_TR
            weight = group_sums(self.label, inflow, self.n_classes)
            weight = weight / weight.sum()
        p = np.zeros(self.n_states)
        p[self.recurrent] = weight[self.label] * self.stationary
        return p

    def visits(self, start: FloatArray) -> FloatArray:
        """Return the expected number of visits of each transient state, shape (n_T,)."""
        if not self.transient.size:
            return np.zeros(0)
        return self.transient_solver.solve(start[self.transient], transposed=True)

    @np.errstate(over="ignore", invalid="ignore")  # `finite` finds it
    def potential(
        self, values: FloatArray, quantity: str = "potential", durations: FloatArray | None = None
    ) -> FloatArray:
        """Return D values, where D = Σ_t (P^t - P*), a Cesàro sum, is the deviation matrix.

        It is the solution b of (I - P) b = (I - P*) values with P* b = 0. Values are (S,) or (S,
        m). ``methods`` records the method under the name of the quantity. With durations (S,), the
        values (S,) have mean 0 after subtracting a multiple of the durations.
        """
        if durations is None:
            # D 1 = 0: subtracting a common constant reduces rounding.
            values = values - values[self.recurrent[self.system.ground[0]]]
            values = values - self.limit(values)
        tau = 1.0 if durations is None else durations
        b, off = self._excess_sum(values, self.system, durations)
        self._note(quantity, self.system.solver)
        if not self.transient.size:
            return finite(b)
        b = self.carry(b[self.recurrent], (values - self.ahead(off) * tau)[self.transient])
        self._note(f"{quantity}, transient", self.transient_solver)
        return finite(b)

    def _excess_sum(
        self, values: FloatArray, system: Grounded, durations: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Sum Σ_t γ^t P^t c on R, for values c, (S,) or (S, m), with P* c = 0 up to rounding.

        A solution of the system, up to a constant per class that makes P* times the sum 0. Returns
        it, with 0 on T, and a, (n_classes,) or (…, m).
        """
        x, R = np.zeros_like(values), self.recurrent
        clock = system.clock(system.one if durations is None else durations[R])
        a, x[R] = system.solve(values[R], clock)
        x[R] -= (self.class_distributions @ x)[self.label]
        return x, a[system.ground]

    def left_potential(self, start: FloatArray) -> FloatArray:
        """Return start D, shape (S,): the y with y (I - P) = start (I - P*) and y P* = 0."""
        y = np.zeros(self.n_states)
        y[self.transient] = on_transient = self.visits(start)
        c = start[self.recurrent] - self.distribution(start)[self.recurrent]
        c = c + on_transient @ self.P_TR
        c[self.system.ground] = 0.0
        on_recurrent = self.system.solver.solve(c, transposed=True)
        carried = on_recurrent + self.visits(y) @ self.P_TR
        surplus = group_sums(self.label, carried, self.n_classes)
        y[self.recurrent] = on_recurrent - surplus[self.label] * self.stationary
        return y

    def discounted(self, values: FloatArray, discount: float) -> FloatArray:
        """Return Σ_t γ^t P^t values, shape (S,).

        This is P* values/(1 - γ) plus the discounted excess x, which stays bounded as γ tends to 1.
        On R, x is solved with x = 0 on the grounds and then shifted to P* x = 0.
        """
        R, T = self.recurrent, self.transient
        with np.errstate(over="ignore", invalid="ignore"):
            mean = self.limit(values)
            excess = values - mean
            of = self.system.own, self.system.structure, self.system.ground
            x = self._excess_sum(excess, Grounded(*of, discount))[0]
            if T.size:
                exit_rate = (1.0 - discount) + discount * row_sums(self.P_TR)
                solver = find_solver(discount * self.P_TT, exit_rate)
                x[T] = solver.solve(excess[T] + discount * (self.P_TR @ x[R]))
            return finite(mean / (1.0 - discount) + x)

    def _note(self, quantity: str, solver: Solver) -> None:
        self.methods[quantity] = solver.method, solver.n_iterations
