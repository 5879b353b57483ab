"""Readable summaries of a chain: its classes, and how its equations were solved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from unichain_gym.arrays import FloatArray, IntArray

_SHOWN = 20


@dataclass(frozen=True, eq=False)
class Classification:
    """The classes of a chain; `print` shows a table.

    Parameters
    ----------
    classes : list of ndarray of int
        The states of each recurrent class.
    transient : ndarray of int
        The transient states.
    period, gain, probability : ndarray, shape (n_classes,)
        Of each class: its period, its gain, and the probability of ending in it from the
        initial distribution.

    Examples
    --------
    >>> from unichain_gym import make_mdp
    >>> print(make_mdp("h6").induce([1, 1, 1, 0, 0, 0]).classify())
    class      states  period  gain  reached with  which
    0          3       1       9.2   1             3, 4, 5
    transient  3                                   0, 1, 2
    """

    classes: list[IntArray]
    transient: IntArray
    period: IntArray
    gain: FloatArray
    probability: FloatArray

    def __str__(self) -> str:
        rows = [("class", "states", "period", "gain", "reached with", "which")]
        for k, states in enumerate(self.classes[:_SHOWN]):
            figures = (f"{self.period[k]}", f"{self.gain[k]:.6g}", f"{self.probability[k]:.4g}")
            rows.append((f"{k}", f"{states.size}", *figures, abbreviate(states)))
        if len(self.classes) > _SHOWN:
            rows.append(("…", "", "", "", "", f"{len(self.classes) - _SHOWN} more classes"))
        if self.transient.size:
            n = f"{self.transient.size}"
            rows.append(("transient", n, "", "", "", abbreviate(self.transient)))
        return format_table(rows)


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


def abbreviate(states: IntArray) -> str:
    """Write a list of states, its middle left out if it is long."""
    if states.size <= 8:
        return ", ".join(str(s) for s in states)
    return f"{', '.join(str(s) for s in states[:5])}, …, {states[-1]}"


def format_table(rows: Sequence[Sequence[str]]) -> str:
    """Align the columns of a table."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = ("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)
