"""How stationary distribution and bias were computed, and how far off they may be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unichain_gym.arrays import FloatArray
from unichain_gym.elimination import SMALLEST
from unichain_gym.limits import Limits
from unichain_gym.rounding import EPSILON
from unichain_gym.summary import format_table


@dataclass(frozen=True)
class SolverEntry:
    """How one quantity was computed.

    Parameters
    ----------
    quantity : str
    n_states : int
        Number of states it was solved for together.
    method : str
        ``triangular``, ``GTH``, ``ranged GTH``, ``sparse GTH``, ``sparse LU`` or ``BiCGStab``;
        see `unichain_gym.linear`.
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


def report_solution(limits: Limits, values: FloatArray, potential: FloatArray) -> SolverReport:
    """Report methods, residuals and error bounds of `stationary` and of `potential(values)`."""
    p = limits.stationary
    b_R, b_T = potential[limits.recurrent], potential[limits.transient]
    excess = values - limits.limit(values) - potential
    p_residual = float(np.abs(p @ limits.P_RR - p).max() / p.max())
    size = max(float(np.abs(potential).max()), SMALLEST)
    b_residual = float(np.abs(excess[limits.recurrent] + limits.P_RR @ b_R).max()) / size
    p_error, b_error, T_error = _error_bounds(limits, values, potential)
    figures = [
        ("stationary distribution", b_R.size, p_residual, p_error),
        ("bias", b_R.size, b_residual, b_error),
    ]
    if b_T.size:
        rest = excess[limits.transient] + limits.P_TR @ b_R + limits.P_TT @ b_T
        residual = float(np.abs(rest).max()) / size
        figures.append(("bias, transient", b_T.size, residual, T_error))
    direct = limits.recurrent_solver.method, 0  # of classes of one state
    entries = [
        SolverEntry(what, n, *limits.methods.get(what, direct), residual, error)
        for what, n, residual, error in figures
    ]
    return SolverReport(tuple(entries))


def _error_bounds(
    limits: Limits, values: FloatArray, potential: FloatArray
) -> tuple[float, float, float]:
    """Bound the relative errors of `stationary`, and of the potential on R and on T.

    The potential's bound has the rounding of values and gain in it, a source of errors of
    their own that elimination cannot undo.
    """
    size = float(np.abs(potential).max())
    values = values - values[limits.recurrent[limits.ground[0]]]
    mean = limits.limit(values)
    rounding = 2.0 * EPSILON * (np.abs(values) + np.abs(mean))
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
