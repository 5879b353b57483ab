"""Errors as multiples of the projection limit, by row of the tables and by what is compared."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from lstd_agent.study.markdown import quartiles, table
from lstd_agent.study.rows import Row

Line = tuple[str, str, float]
"""Scheme, environment and ρ."""

Compared = TypeVar("Compared")


def multiples(
    rows: Iterable[Row], compared: Callable[[Row], Compared]
) -> dict[Line, dict[Compared, list[float]]]:
    """Return total rems over the limit, one for each seed, by line and by what is compared."""
    found: dict[Line, dict[Compared, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        line = (row["scheme"], row["env"], row["rho"])
        found[line][compared(row)].append(row["total_rems"] / row["limit"])
    return found


def medians(
    found: Mapping[Line, Mapping[Compared, Sequence[float]]],
) -> dict[Line, dict[Compared, float]]:
    """Return the medians over seeds."""
    return {
        line: {name: float(np.median(values)) for name, values in by_name.items()}
        for line, by_name in found.items()
    }


def line_name(line: Line) -> str:
    """Return how texts call a line."""
    scheme, env, rho = line
    return f"{scheme} {env} ρ={rho}"


def multiples_table(
    found: Mapping[Line, Mapping[Compared, Sequence[float]]],
    heads: Mapping[Compared, str],
    alignment: str,
) -> str:
    """Write medians and quartiles in Markdown, a row for each line, a column for each head."""
    rows = [
        [*line, *(quartiles(by_name[name]) for name in heads)]
        for line, by_name in sorted(found.items())
    ]
    return table(["scheme", "env", "ρ", *heads.values()], rows, alignment)
