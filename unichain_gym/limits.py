"""Long-run quantities of a chain: limits, potentials and sums up to absorption.

The chain is split into its recurrent states R, on which the transition matrix is block-diagonal
by class, and its transient states T:

    P = [ P_TT  P_TR ]
        [  0    P_RR ]

Every quantity is found on R first and then carried to T by one system in I - P_TT. On R, one
state of each class is the *ground*: with it removed, I - P becomes nonsingular, and the
stationary distribution, the bias and so on are solutions up to a constant per class that their
normalization fixes.

All limits are in the Cesàro sense, lim (1/n) Σ_{t<n} P^t, so periods make no difference.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from unichain_gym.arrays import BoolArray, FloatArray, IntArray
from unichain_gym.elimination import SMALLEST, finite
from unichain_gym.errors import ConvergenceError, ModelTooLargeError
from unichain_gym.linear import Solver, find_solver
from unichain_gym.outcomes import MAX_DENSE_STATES, read_only
from unichain_gym.rounding import EPSILON
from unichain_gym.structure import Structure, edges, group_sums, keep_states, row_sums
from unichain_gym.summary import format_table

ROUGH_STEPS, ROUGH_WORK = 16, 30_000_000
POLISHING_STEPS = 30


class Limits:
    """The split of a chain and the factorizations behind its long-run quantities.

    P is without stored zeros.
    """

    def __init__(self, P: sparse.csr_array, structure: Structure) -> None:
        self.P, self.structure = P, structure
        self.n_states = int(P.shape[0])
        self.n_classes = structure.n_classes
        self.recurrent = structure.recurrent
        self.transient = structure.transient
        self.label: IntArray = structure.class_label[self.recurrent]
        self.P_RR = keep_states(P, self.recurrent)
        self.P_TT = keep_states(P, self.transient)
        self.P_TR = P[self.transient][:, self.recurrent]
        # By which method each quantity was computed, and in how many iterations.
        self.methods: dict[str, tuple[str, int]] = {}

    @cached_property
    def ground(self) -> IntArray:
        """One state of each class (an index into R): a frequent one that most transitions enter.

        Removing a state that everything returns to leaves less to eliminate. But it must not be
        rare: the systems hold the times until it is hit, and what differs by less than rounding
        of the largest of them is lost. `stationary` chooses again if it was.
        """
        return self._choose_ground(self._after(ROUGH_STEPS))

    def _after(self, n_steps: int) -> FloatArray:
        n = self.recurrent.size
        return self._follow(np.full(n, 1.0 / n), n_steps)

    def _choose_ground(self, frequency: FloatArray) -> IntArray:
        entering = np.bincount(edges(self.P_RR)[1], minlength=self.recurrent.size)
        entering[self._is_rare(frequency)] = 0
        order = np.lexsort((-frequency, -entering, self.label))
        ground: IntArray = order[np.searchsorted(self.label[order], np.arange(self.n_classes))]
        return ground

    def _is_rare(self, frequency: FloatArray) -> BoolArray:
        return np.asarray(frequency < 1e-3 * self.class_maximum(frequency)[self.label])

    def class_maximum(self, values: FloatArray) -> FloatArray:
        """Return the largest of values on R, (n_R,), in each class, (n_classes,); at least 0."""
        highest = np.zeros(self.n_classes)
        np.maximum.at(highest, self.label, values)
        return highest

    def _follow(self, p: FloatArray, n_steps: int) -> FloatArray:
        """Follow the chain on R, by half steps; none lengthens an error, and most shorten it."""
        backward = self.P_RR.T
        for _ in range(n_steps):
            p = 0.5 * (p + backward @ p)
        return p

    @cached_property
    def ungrounded(self) -> IntArray:
        """The indices into R of all other states."""
        return np.setdiff1d(np.arange(self.recurrent.size), self.ground, assume_unique=True)

    @cached_property
    def recurrent_solver(self) -> Solver:
        """Solves systems in I - P on the states that are not grounded."""
        return find_solver(keep_states(self.P_RR, self.ungrounded), self._to_ground)

    @cached_property
    def _to_ground(self) -> FloatArray:
        """The probability of going to a ground, from the other recurrent states."""
        is_ground = np.isin(np.arange(self.recurrent.size), self.ground)
        return np.asarray(self.P_RR @ is_ground.astype(float))[self.ungrounded]

    @cached_property
    def transient_solver(self) -> Solver:
        """Solves systems in I - P_TT."""
        return find_solver(self.P_TT, row_sums(self.P_TR))

    @cached_property
    def _from_ground(self) -> sparse.csr_array:
        """The transitions from the grounds to the other recurrent states."""
        return self.P_RR[self.ground][:, self.ungrounded]

    @property
    def inflow(self) -> FloatArray:
        """The transitions to each other recurrent state from its ground."""
        return np.asarray(np.ones(self.n_classes) @ self._from_ground)

    @cached_property
    def stationary(self) -> FloatArray:
        """The stationary distributions of all classes, side by side, shape (n_R,)."""
        try:
            p = self._occupancy()
        except ConvergenceError:  # the ground may be all but never hit
            n = self.recurrent.size
            p = self._after(min(4 * n, ROUGH_WORK // self.P_RR.data.size + 1))
            self._ground_anew(p)
            p = self._occupancy()
        if self._is_rare(p)[self.ground].any():
            # The rough occupancy misled, on a slow chain: factorize again for what follows.
            self._ground_anew(p)
        return p

    def _occupancy(self) -> FloatArray:
        p: FloatArray = np.ones(self.recurrent.size)
        if self.ungrounded.size:
            # A negative entry is one within the error of 0, and p is not negative.
            entered = self.recurrent_solver.solve(self.inflow, transposed=True)
            p[self.ungrounded] = np.maximum(entered, 0.0)
            self._note("stationary distribution", self.recurrent_solver)
            if self.recurrent_solver.n_iterations:
                p = self._follow(p, POLISHING_STEPS)
        # Twice: sums of 1e308 and more are out of range.
        p = p / self.class_maximum(p)[self.label]
        return p / group_sums(self.label, p, self.n_classes)[self.label]

    def _ground_anew(self, frequency: FloatArray) -> None:
        self.ground = self._choose_ground(frequency)
        for name in ("ungrounded", "recurrent_solver", "_from_ground", "_to_ground"):
            self.__dict__.pop(name, None)

    def class_mean(self, values: FloatArray) -> FloatArray:
        """Average values on R, (n_R,) or (n_R, m), over each class: (n_classes,) or (…, m)."""
        return np.asarray(self._weights @ values)

    @cached_property
    def _weights(self) -> sparse.csr_array:
        """The stationary distribution of each class as a row, shape (n_classes, n_R)."""
        place = self.label, np.arange(self.label.size)
        return sparse.csr_array((self.stationary, place), shape=(self.n_classes, self.label.size))

    @property
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
        return self.ahead(self.class_mean(values[self.recurrent]))

    def class_rate(self, values: FloatArray, durations: FloatArray | None) -> FloatArray:
        """Average values (S,) over each class, per unit of time: (n_classes,)."""
        mean = self.class_mean(values[self.recurrent])
        return mean if durations is None else mean / self.class_mean(durations[self.recurrent])

    def ahead(self, of_class: FloatArray) -> FloatArray:
        """Average what each class has, (n_classes,) or (…, m), over the classes ahead."""
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
        if n_classes == 1:
            return np.ones((n, 1))
        return self.carry(np.eye(self.n_classes)[self.label])

    def distribution(self, start: FloatArray) -> FloatArray:
        """Return start P*, the long-run distribution from a start (S,)."""
        if self.n_classes == 1:
            weight: FloatArray = np.ones(1)
        else:
            inflow: FloatArray = start[self.recurrent]
            if self.transient.size:
                inflow = inflow + self.visits(start) @ self.P_TR
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

    def potential(
        self,
        values: FloatArray,
        quantity: str = "potential",
        durations: FloatArray | None = None,
    ) -> FloatArray:
        """Return D values, where D = Σ_t (P^t - P*), a Cesàro sum, is the deviation matrix.

        It is the solution b of (I - P) b = (I - P*) values with P* b = 0. Values are (S,) or
        (S, m). The method and its iterations are kept under the name of the quantity. With
        durations (S,), the values (S,) have mean 0, up to a multiple of the durations.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            # D 1 = 0: without a constant that they have in common, values round less.
            excess = values
            if durations is None:
                values = values - values[self.recurrent[self.ground[0]]]
                excess = values - self.limit(values)
            b, off = self._excess_sum(excess[self.recurrent], 1.0, durations)
            if self.ungrounded.size:
                self._note(quantity, self.recurrent_solver)
            if self.transient.size:
                off = self.ahead(off) if durations is None else self.ahead(off) * durations
                b = self.carry(b, (excess - off)[self.transient])
                self._note(f"{quantity}, transient", self.transient_solver)
            else:
                b = self.carry(b)
        return finite(b)

    @cached_property
    def deviation(self) -> FloatArray:
        """The deviation matrix D, shape (S, S), read-only."""
        return read_only(self.potential(np.eye(self.n_states)))

    def _excess_sum(
        self, c: FloatArray, discount: float, durations: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Sum Σ_t γ^t P^t c on R, for a c, (n_R,) or (n_R, m), of which P* c is 0 up to rounding.

        With u and z the discounted sums of c and of 1 until the ground is entered, u - a z solves
        the equations of all states but the ground, whatever the a of each class, and with

            a = (c + γ P u) / (1 + γ P z)    on the ground

        all of them up to a constant per class: a is (1 - γ) times the value of the ground, and what
        was left of P* c. The constant makes P* times the sum 0. Durations τ (S,) take the place of
        the 1. Returned with the sum is ``off``, (n_classes,) or (…, m): P* c, to all digits of c,
        for γ = 1.
        """
        x = np.zeros_like(c)
        U, G = self.ungrounded, self.ground
        off = c[G] * (1.0 - discount)
        if not U.size:
            return x, off
        step: FloatArray | float = 1.0
        if durations is not None:
            tau = durations[self.recurrent]
            solver, step = self.recurrent_solver, tau[G]
            z = solver.solve(tau[U])
        elif discount == 1.0:
            solver, z = self.recurrent_solver, self._time_to_ground
        else:
            exit_rate = (1.0 - discount) + discount * self._to_ground
            solver = find_solver(discount * keep_states(self.P_RR, U), exit_rate)
            z = solver.solve(np.ones(U.size))
        u = solver.solve(c[U])
        from_ground = discount * self._from_ground
        off = ((c[G] + from_ground @ u).T / (step + from_ground @ z)).T
        x[U] = u - (off[self.label[U]].T * z).T
        return x - self.class_mean(x)[self.label], off

    @cached_property
    def _time_to_ground(self) -> FloatArray:
        """Expected steps until the ground is entered, from the other recurrent states."""
        return self.recurrent_solver.solve(np.ones(self.ungrounded.size))

    def left_potential(self, start: FloatArray) -> FloatArray:
        """Return start D, shape (S,): the y with y (I - P) = start (I - P*) and y P* = 0."""
        y = np.zeros(self.n_states)
        y[self.transient] = on_transient = self.visits(start)
        on_recurrent = np.zeros(self.recurrent.size)
        c = start[self.recurrent] - self.distribution(start)[self.recurrent]
        c = c + on_transient @ self.P_TR
        if self.ungrounded.size:
            on_others = self.recurrent_solver.solve(c[self.ungrounded], transposed=True)
            on_recurrent[self.ungrounded] = on_others
        carried = on_recurrent
        if self.transient.size:
            carried = carried + self.visits(y) @ self.P_TR
        surplus = group_sums(self.label, carried, self.n_classes)
        y[self.recurrent] = on_recurrent - surplus[self.label] * self.stationary
        return y

    def discounted(self, values: FloatArray, discount: float) -> FloatArray:
        """Return Σ_t γ^t P^t values, shape (S,).

        As the sum of P* values/(1 - γ) and of the discounted excess x, which stays bounded as γ
        tends to 1: on R it has P* x = 0, and is found up to that from x = 0 on the grounds.
        """
        R, T = self.recurrent, self.transient
        with np.errstate(over="ignore", invalid="ignore"):
            mean = self.limit(values)
            excess = values - mean
            x = np.empty(self.n_states)
            x[R], _ = self._excess_sum(excess[R], discount)
            if T.size:
                exit_rate = (1.0 - discount) + discount * row_sums(self.P_TR)
                solver = find_solver(discount * self.P_TT, exit_rate)
                x[T] = solver.solve(excess[T] + discount * (self.P_TR @ x[R]))
            return finite(mean / (1.0 - discount) + x)

    def _note(self, quantity: str, solver: Solver) -> None:
        self.methods[quantity] = solver.method, solver.n_iterations


@dataclass(frozen=True)
class SolverEntry:
    """How one quantity was computed.

    Parameters
    ----------
    quantity : str
    n_states : int
        Number of states it was solved for together.
    method : str
        One of those of `unichain_gym.linear`.
    n_iterations : int
        0 for direct methods.
    residual : float
        Largest residual of the equations relative to the largest entry of the solution.
    error_bound : float
        Bound of the error: of the distribution, the sum over states; of the bias, the largest
        relative to the largest bias, with the rounding of the rewards in it.
    """

    quantity: str
    n_states: int
    method: str
    n_iterations: int
    residual: float
    error_bound: float


@dataclass(frozen=True)
class SolverReport:
    """How stationary distribution and bias were computed; `print` shows a table.

    Attributes
    ----------
    entries : tuple of SolverEntry
        One a quantity and group of states: method, iterations, residual and a bound of the error.

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

    ``size`` (S,) is what the values were rounded from, if they are differences of mean 0.
    """
    p = limits.stationary
    b_R, b_T = potential[limits.recurrent], potential[limits.transient]
    excess = values - limits.limit(values) - potential
    p_residual = float(np.abs(p @ limits.P_RR - p).max() / p.max())
    largest = max(float(np.abs(potential).max()), SMALLEST)
    b_residual = float(np.abs(excess[limits.recurrent] + limits.P_RR @ b_R).max()) / largest
    p_error, b_error, T_error = _error_bounds(limits, values, potential, size)
    figures = [
        ("stationary distribution", b_R.size, p_residual, p_error),
        ("bias", b_R.size, b_residual, b_error),
    ]
    if b_T.size:
        rest = excess[limits.transient] + limits.P_TR @ b_R + limits.P_TT @ b_T
        residual = float(np.abs(rest).max()) / largest
        figures.append(("bias, transient", b_T.size, residual, T_error))
    direct = limits.recurrent_solver.method, 0  # of classes of one state
    entries = [
        SolverEntry(what, n, *limits.methods.get(what, direct), residual, error)
        for what, n, residual, error in figures
    ]
    return SolverReport(tuple(entries))


def _error_bounds(
    limits: Limits, values: FloatArray, potential: FloatArray, rounded: FloatArray | None
) -> tuple[float, float, float]:
    """Bound the relative errors of `stationary`, and of the potential on R and on T.

    The potential's bound has the rounding of values and gain in it, a source of errors of
    their own that elimination cannot undo.
    """
    size = float(np.abs(potential).max())
    mean = np.zeros_like(values)
    if rounded is None:
        values = values - values[limits.recurrent[limits.ground[0]]]
        mean = limits.limit(values)
        rounded = np.abs(values) + np.abs(mean)
    rounding = 2.0 * EPSILON * rounded
    p_error = on_R = 0.0
    U = limits.ungrounded
    if U.size:
        solver = limits.recurrent_solver
        p = limits.stationary / limits.stationary[limits.ground][limits.label]
        p_error = solver.error_bound(limits.inflow, p[U], transposed=True)
        c = (values - mean)[limits.recurrent][U]
        x = solver.solve(c)
        largest = float(np.abs(x).max())
        source = float(solver.solve(rounding[limits.recurrent][U]).max())
        # Twice, since x is centred; the centre itself is off by the error of p.
        on_R = 2.0 * (solver.error_bound(c, x) * largest + source) + p_error * largest
    on_T = on_R
    if limits.transient.size:
        T = limits.transient
        b_T = potential[T]
        c = (values - mean)[T] + limits.P_TR @ potential[limits.recurrent]
        solver = limits.transient_solver
        on_T += solver.error_bound(c, b_T) * float(np.abs(b_T).max())
        on_T += float(solver.solve(rounding[T]).max())
    return p_error, on_R / size if size else 0.0, on_T / size if size else 0.0
