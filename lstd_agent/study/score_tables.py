"""Scores as tables: each method's errors as multiples of what can be had."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from lstd_agent.study.rows import Row

REFERENCE = "certainty_equivalence"
"""The method of which scores are multiples, besides the projection limit."""

MEASURES: dict[str, tuple[str, Callable[[Row, Row], float | None]]] = {
    "total_to_limit": (
        "total rems / limit",
        lambda row, _: _ratio(row["total_rems"], row["limit_total"]),
    ),
    "total_to_reference": (
        "total rems / CE",
        lambda row, reference: _ratio(row["total_rems"], reference["total_rems"]),
    ),
    "start_to_limit": (
        "start / limit",
        lambda row, _: _ratio(row["start_rems"], row["limit_start"]),
    ),
    "start_to_reference": (
        "start / CE",
        lambda row, reference: _ratio(row["start_rems"], reference["start_rems"]),
    ),
    "gain_to_reference": (
        "gain error / CE",
        lambda row, reference: _ratio(row["gain_error"], reference["gain_error"]),
    ),
    "seconds": ("seconds", lambda row, _: row["seconds"]),
    "seconds_to_reference": (
        "seconds / CE",
        lambda row, reference: _ratio(row["seconds"], reference["seconds"]),
    ),
}
"""Heading of each measure, and how it follows from a row and the reference's on that problem."""


@dataclass(frozen=True)
class Scores:
    """What methods scored; ``print`` shows both tables.

    Attributes
    ----------
    rows : tuple of dict
        One for each method and problem, with the errors themselves.
    methods : tuple of str
        In the order of the tables.
    """

    rows: tuple[Row, ...]
    methods: tuple[str, ...]

    def measures(self, method: str, measure: str) -> list[float]:
        """Return a measure on each problem on which there is one.

        Parameters
        ----------
        method : str
        measure : str
            A key of `MEASURES`.

        Returns
        -------
        list of float
        """
        _, of = MEASURES[measure]
        found = (of(row, self._reference[_problem(row)]) for row in self._of(method))
        return [value for value in found if value is not None]

    def summary(self) -> str:
        """Return a table in Markdown with medians over all problems, a row for each method.

        Returns
        -------
        str
        """
        heads = [head for head, _ in MEASURES.values()]
        lines = [
            f"Medians over {len(self._reference)} problems. *limit*: the projection limit of the "
            f"problem's features with two neighborhoods; *CE*: {REFERENCE} with the same trials; "
            "*start*: rems at the start.",
            "",
            "| method | " + " | ".join(heads) + " |",
            "|---|" + "---:|" * len(heads),
        ]
        for method in self.methods:
            cells = [_cell(self.measures(method, measure)) for measure in MEASURES]
            lines.append(f"| {method} | " + " | ".join(cells) + " |")
        return "\n".join(lines) + "\n"

    def by_environment(self, measure: str = "total_to_limit") -> str:
        """Return a table in Markdown of one measure: median, and quartiles over seeds.

        Parameters
        ----------
        measure : str
            A key of `MEASURES`.

        Returns
        -------
        str
        """
        head, of = MEASURES[measure]
        lines = [
            f"{head}: median (lower to upper quartile) over seeds.",
            "",
            "| env | ρ | " + " | ".join(self.methods) + " |",
            "|---|---:|" + "---:|" * len(self.methods),
        ]
        for env, rho in dict.fromkeys((row["env"], row["rho"]) for row in self.rows):
            cells = []
            for method in self.methods:
                rows = (r for r in self._of(method) if (r["env"], r["rho"]) == (env, rho))
                found = (of(row, self._reference[_problem(row)]) for row in rows)
                cells.append(_cell([v for v in found if v is not None], quartiles=True))
            lines.append(f"| {env} | {rho} | " + " | ".join(cells) + " |")
        return "\n".join(lines) + "\n"

    def __str__(self) -> str:
        return f"{self.summary()}\n{self.by_environment()}"

    def _of(self, method: str) -> list[Row]:
        return [row for row in self.rows if row["method"] == method]

    @property
    def _reference(self) -> dict[tuple[object, ...], Row]:
        return {_problem(row): row for row in self._of(REFERENCE)}


def _problem(row: Row) -> tuple[object, ...]:
    return (row["env"], row["model"], row["rho"], row["seed"])


def _ratio(value: float | None, one: float | None) -> float | None:
    """Return a multiple; None where there is nothing to divide, or to divide by."""
    return value / one if value is not None and one else None


def _cell(values: Sequence[float], *, quartiles: bool = False) -> str:
    if not values:
        return "none"
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75))
    return f"{middle:.3g} ({low:.3g} to {high:.3g})" if quartiles else f"{middle:.3g}"
