"""Long-run quantities of a chain: limits, potentials and sums up to absorption.

The chain is split into its recurrent states R, on which the transition matrix is block-diagonal
by class, and its transient states T:

    P = [ P_TT  P_TR ]
        [  0    P_RR ]

Every quantity is computed on R first, and one system in I - P_TT extends it to T. One state of each
class in R is the *ground* (`unichain_gym.grounds`): without it, I - P is nonsingular. Its solutions
are the stationary distribution, the bias and so on, up to a constant per class that normalization
fixes.

All limits are in the Cesàro sense, lim (1/n) Σ_{t<n} P^t, so periods make no difference.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from unichain_gym.elimination import SMALLEST, finite
from unichain_gym.errors import ConvergenceError, ModelTooLargeError
from unichain_gym.grounds import Grounded, follow
from unichain_gym.interface import BoolArray, FloatArray, IntArray
from unichain_gym.linear import Solver, find_solver
from unichain_gym.outcomes import EPSILON, MAX_DENSE_STATES, read_only
from unichain_gym.pairs import Pairs
from unichain_gym.structure import (
    Structure,
    first_of_each,
    group_sums,
    keep_states,
    row_sums,
)
from unichain_gym.summary import format_table

ROUGH_STEPS, ROUGH_WORK = 16, 30_000_000
POLISHING_STEPS = 30


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

    @cached_property
    def deviation(self) -> FloatArray:
        """The deviation matrix D, shape (S, S), read-only."""
        return read_only(self.potential(np.eye(self.n_states)))

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
            x = self._excess_sum(excess, self.system.discounted(discount))[0]
            if T.size:
                exit_rate = (1.0 - discount) + discount * row_sums(self.P_TR)
                solver = find_solver(discount * self.P_TT, exit_rate)
                x[T] = solver.solve(excess[T] + discount * (self.P_TR @ x[R]))
            return finite(mean / (1.0 - discount) + x)

    def _note(self, quantity: str, solver: Solver) -> None:
        self.methods[quantity] = solver.method, solver.n_iterations


@dataclass(frozen=True)
class SolverEntry:
    """The method and the accuracy of one quantity, of so many states; 0 iterations if direct.

    The residual is relative to the largest entry of the solution. The error bound is of the sum of
    errors of a distribution, or of the largest error of the bias relative to the largest bias,
    including rounding of rewards.
    """

    quantity: str
    n_states: int
    method: str
    n_iterations: int
    residual: float
    error_bound: float


@dataclass(frozen=True)
class SolverReport:
    """The methods and error bounds of stationary distribution and bias; `print` shows a table.

    Attributes
    ----------
    entries : tuple of SolverEntry
        One entry for each quantity and group of states.

    Examples
    --------
    >>> from unichain_gym import make_mdp
    >>> report = make_mdp("h6").induce([1, 1, 1, 0, 0, 0]).solver_report
    >>> [(entry.quantity, entry.method) for entry in report.entries]
    [('stationary distribution', 'GTH'), ('bias', 'GTH'), ('bias, transient', 'triangular')]
    """

    entries: tuple[SolverEntry, ...]

    def __str__(self) -> str:
        rows = [("quantity", "states", "method", "iterations", "residual", "error at most")]
        for e in self.entries:
            figures = (f"{e.residual:.1e}", f"{e.error_bound:.1e}")
            rows.append((e.quantity, f"{e.n_states}", e.method, f"{e.n_iterations}", *figures))
        return format_table(rows)


def report_solution(
    limits: Limits, values: FloatArray, potential: FloatArray, size: FloatArray | None = None
) -> SolverReport:
    """Report methods, residuals and error bounds of `stationary` and of `potential(values)`.

    ``size`` (S,) is the magnitude before centering, if the values are differences of mean 0. The
    error bounds of the potential include the rounding of values and gain.
    """
    R, T, system = limits.recurrent, limits.transient, limits.system
    p, largest = limits.stationary, float(np.abs(potential).max())
    excess, relative = values - limits.limit(values), max(largest, SMALLEST)
    missed = np.abs(excess - potential + limits.P @ potential) / relative
    if size is None:
        values = values - values[R[system.ground[0]]]
        mean = limits.limit(values)
        size, values = np.abs(values) + np.abs(mean), values - mean
    rounding = 2.0 * EPSILON * size
    solver, ratio = system.solver, (p / p[system.ground][limits.label]) * ~system.is_ground
    p_error = solver.error_bound(system.inflow, ratio, transposed=True)
    c = values[R] * ~system.is_ground
    x = solver.solve(c)
    source = float(system.inside(rounding[R]).max())
    # Twice, since x is centered; the center has the error of p.
    reach = float(np.abs(x).max())
    b_error = 2.0 * (solver.error_bound(c, x) * reach + source) + p_error * reach
    p_missed = float(np.abs(p @ limits.P_RR - p).max() / p.max())
    figures = [("stationary distribution", R, p_missed, p_error)]
    figures.append(("bias", R, float(missed[R].max()), b_error / relative))
    if T.size:
        c, solver = values[T] + limits.P_TR @ potential[R], limits.transient_solver
        b_error += solver.error_bound(c, potential[T]) * float(np.abs(potential[T]).max())
        b_error += float(solver.solve(rounding[T]).max())
        figures.append(("bias, transient", T, float(missed[T].max()), b_error / relative))
    return SolverReport(
        tuple(
            SolverEntry(what, of.size, *limits.methods[what], residual, error)
            for what, of, residual, error in figures
        )
    )
