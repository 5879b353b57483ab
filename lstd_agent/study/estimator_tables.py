"""What the comparison of estimators says: multiples of the projection limit in Markdown."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from operator import itemgetter

import numpy as np

from lstd_agent.study.estimator_study import CERTAINTY, DEFAULTS, ESTIMATORS, OURS
from lstd_agent.study.markdown import table
from lstd_agent.study.multiples import Line, line_name, medians, multiples, multiples_table
from lstd_agent.study.rows import Row

# Medians over seeds that are closer than this are called equal.
_EQUAL = 1.05

ORACLE = "the best of ours in each row"

_estimator = itemgetter("estimator")


def median_multiples(rows: Sequence[Row]) -> dict[Line, dict[str, float]]:
    """Return the medians over seeds of total rems over the limit, by line and estimator."""
    return medians(multiples(rows, _estimator))


def summary_table(rows: Sequence[Row]) -> str:
    """Write a line for each estimator: medians, quartiles, and rows won and lost."""
    by_line = median_multiples(rows)
    n, cells = len(by_line), []
    for name in ESTIMATORS:
        values = [row[name] for row in by_line.values()]
        won = sum(_EQUAL * row[name] < row[DEFAULTS] for row in by_line.values())
        lost = sum(row[name] > _EQUAL * row[DEFAULTS] for row in by_line.values())
        against = ["", ""] if name == DEFAULTS else [f"{won} of {n}", f"{lost} of {n}"]
        cells.append([name, *_statistics(values), *against])
    cells.append([f"*{ORACLE}*", *_statistics(oracle(by_line)), "", ""])
    heads = ("estimator", "median", "quartiles", "worst row", "better than the defaults in")
    return table([*heads, "worse in"], cells, "lr")


def oracle(by_line: Mapping[Line, Mapping[str, float]]) -> list[float]:
    """Return the lowest of our medians in each line: what a perfect choice would come to."""
    return [min(row[name] for name in OURS) for row in by_line.values()]


def _statistics(values: Sequence[float]) -> list[str]:
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75))
    return [f"{middle:.3g}", f"{low:.3g} to {high:.3g}", f"{max(values):.3g}"]


def markdown_estimators(rows: Sequence[Row]) -> str:
    """Write the whole comparison: the summary, where the defaults lose, and every row."""
    by_line = median_multiples(rows)
    heads = {name: name for name in ESTIMATORS}
    parts = [
        "Total rems as multiples of the projection limit, medians over seeds; median, quartiles "
        f"and worst over {len(by_line)} rows (a scheme, an environment and a ρ). Better and worse "
        "are by more than 5 %.",
        summary_table(rows),
        _beaten(by_line),
        "Medians (lower to upper quartile) over seeds:",
        multiples_table(multiples(rows, _estimator), heads, "lllr"),
    ]
    return "\n\n".join(parts) + "\n"


def _beaten(by_line: Mapping[Line, Mapping[str, float]]) -> str:
    """Tell where something else than the defaults is best, by more than 5 %."""
    others = [name for name in ESTIMATORS if name not in (DEFAULTS, CERTAINTY)]
    won_by: dict[str, list[str]] = defaultdict(list)
    for line, row in sorted(by_line.items()):
        best = min(others, key=lambda name: row[name])
        if _EQUAL * row[best] < row[DEFAULTS]:
            won_by[best].append(line_name(line))
    if not won_by:
        return "Nothing but tabular certainty equivalence beats the defaults in any row."
    found = [f"- {name}, in {len(lines)}: {'; '.join(lines)}" for name, lines in won_by.items()]
    return "\n".join(
        [
            "Where something else than the defaults and tabular certainty equivalence is best:",
            "",
            *found,
        ]
    )
