"""The account of a chain's solvers: methods, residuals and bounds of the errors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unichain_gym.elimination import SMALLEST
from unichain_gym.interface import FloatArray
from unichain_gym.limits import Limits
from unichain_gym.outcomes import EPSILON
from unichain_gym.summary import format_table


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
