"""Scores as tables: each method's errors as multiples of what can be had."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lstd_agent.study.markdown import quartiles, table
from lstd_agent.study.rows import Row

REFERENCE = "certainty_equivalence"
"""The method of which scores are multiples, besides the projection limit."""

Measure = Callable[[Row, Row], float | None]


def _over_limit(name: str, limit: str) -> Measure:
    return lambda row, _: _ratio(row[name], row[limit])


def _over_reference(name: str) -> Measure:
    return lambda row, reference: _ratio(row[name], reference[name])


def _ratio(value: float | None, one: float | None) -> float | None:
    """Return a multiple; None where there is nothing to divide, or to divide by."""
    return value / one if value is not None and one else None


MEASURES: dict[str, tuple[str, Measure]] = {
    "total_to_limit": ("total rems / limit", _over_limit("total_rems", "limit_total")),
    "total_to_reference": ("total rems / CE", _over_reference("total_rems")),
    "start_to_limit": ("start / limit", _over_limit("start_rems", "limit_start")),
    "start_to_reference": ("start / CE", _over_reference("start_rems")),
    "gain_to_reference": ("gain error / CE", _over_reference("gain_error")),
    "seconds": ("seconds", lambda row, _: row["seconds"]),
    "seconds_to_reference": ("seconds / CE", _over_reference("seconds")),
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
        return self._measures([row for row in self.rows if row["method"] == method], measure)

    def _measures(self, rows: Iterable[Row], measure: str) -> list[float]:
        _, of = MEASURES[measure]
        found = (of(row, self._reference[_problem(row)]) for row in rows)
        return [value for value in found if value is not None]

    def summary(self) -> str:
        """Return a table in Markdown with medians over all problems, a row for each method.

        Returns
        -------
        str
        """
        rows = [
            [method, *(_cell(self.measures(method, measure)) for measure in MEASURES)]
            for method in self.methods
        ]
        text = (
            f"Medians over {len(self._reference)} problems. *limit*: the projection limit of the "
            f"problem's features with two neighborhoods; *CE*: {REFERENCE} with the same trials; "
            "*start*: rems at the start."
        )
        heads = [head for head, _ in MEASURES.values()]
        return f"{text}\n\n{table(['method', *heads], rows, 'lr')}\n"

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
        rows_of = defaultdict(list)
        for row in self.rows:
            rows_of[row["env"], row["rho"], row["method"]].append(row)
        rows = [
            [
                env,
                rho,
                *(
                    _cell(self._measures(rows_of[env, rho, method], measure), quartiles)
                    for method in self.methods
                ),
            ]
            for env, rho in dict.fromkeys((row["env"], row["rho"]) for row in self.rows)
        ]
        text = f"{MEASURES[measure][0]}: median (lower to upper quartile) over seeds."
        return f"{text}\n\n{table(['env', 'ρ', *self.methods], rows, 'lr')}\n"

    def __str__(self) -> str:
        return f"{self.summary()}\n{self.by_environment()}"

    @cached_property
    def _reference(self) -> dict[tuple[object, ...], Row]:
        return {_problem(row): row for row in self.rows if row["method"] == REFERENCE}


def _problem(row: Row) -> tuple[object, ...]:
    return (row["env"], row["model"], row["rho"], row["seed"])


def _cell(
    values: Sequence[float],
    shown: Callable[[Sequence[float]], str] = lambda v: f"{np.median(v):.3g}",
) -> str:
    return shown(values) if values else "none"
