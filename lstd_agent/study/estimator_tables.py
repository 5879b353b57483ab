"""What the comparison of estimators says: multiples of the projection limit in Markdown."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from lstd_agent.study.estimator_study import CERTAINTY, DEFAULTS, ESTIMATORS, OURS
from lstd_agent.study.rows import Row

Line = tuple[str, str, float]
"""Scheme, environment and ρ."""

# Medians over seeds that are closer than this are called equal.
_EQUAL = 1.05

ORACLE = "the best of ours in each row"


def multiples(rows: Sequence[Row]) -> dict[Line, dict[str, list[float]]]:
    """Return total rems over the limit, by line and estimator, one for each seed."""
    found: dict[Line, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        line = (row["scheme"], row["env"], row["rho"])
        found[line][row["estimator"]].append(row["total_rems"] / row["limit"])
    return {line: dict(by_estimator) for line, by_estimator in found.items()}


def medians(rows: Sequence[Row]) -> dict[Line, dict[str, float]]:
    """Return the medians over seeds, by line and estimator."""
    return {
        line: {name: float(np.median(values)) for name, values in by_estimator.items()}
        for line, by_estimator in multiples(rows).items()
    }


def summary_table(rows: Sequence[Row]) -> str:
    """Write a line for each estimator: medians, quartiles, and rows won and lost."""
    by_line = medians(rows)
    n = len(by_line)
    lines = [
        "| estimator | median | quartiles | worst row | better than the defaults in | worse in |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name in ESTIMATORS:
        values = [row[name] for row in by_line.values()]
        won = sum(_EQUAL * row[name] < row[DEFAULTS] for row in by_line.values())
        lost = sum(row[name] > _EQUAL * row[DEFAULTS] for row in by_line.values())
        against = "| |" if name == DEFAULTS else f"{won} of {n} | {lost} of {n} |"
        lines.append(f"| {name} | {_statistics(values)} | {against}")
    lines.append(f"| *{ORACLE}* | {_statistics(oracle(by_line))} | | |")
    return "\n".join(lines)


def oracle(by_line: Mapping[Line, Mapping[str, float]]) -> list[float]:
    """Return the lowest of our medians in each line: what a perfect choice would come to."""
    return [min(row[name] for name in OURS) for row in by_line.values()]


def _statistics(values: Sequence[float]) -> str:
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75))
    return f"{middle:.3g} | {low:.3g} to {high:.3g} | {max(values):.3g}"


def markdown_estimators(rows: Sequence[Row]) -> str:
    """Write the whole comparison: the summary, where the defaults lose, and every row."""
    by_line = medians(rows)
    parts = [
        "Total rems as multiples of the projection limit, medians over seeds; median, quartiles "
        f"and worst over {len(by_line)} rows (a scheme, an environment and a ρ). Better and worse "
        "are by more than 5 %.",
        "",
        summary_table(rows),
        "",
        *_beaten(by_line),
        "",
        "Medians (lower to upper quartile) over seeds:",
        "",
        "| scheme | env | ρ | " + " | ".join(ESTIMATORS) + " |",
        "|---|---|---|" + "---:|" * len(ESTIMATORS),
    ]
    for (scheme, env, rho), values in sorted(multiples(rows).items()):
        cells = []
        for name in ESTIMATORS:
            low, middle, high = np.quantile(values[name], (0.25, 0.5, 0.75))
            cells.append(f"{middle:.3g} ({low:.3g} to {high:.3g})")
        parts.append(f"| {scheme} | {env} | {rho} | " + " | ".join(cells) + " |")
    return "\n".join(parts) + "\n"


def _beaten(by_line: Mapping[Line, Mapping[str, float]]) -> list[str]:
    """Tell where something else than the defaults is best, by more than 5 %."""
    others = [name for name in ESTIMATORS if name not in (DEFAULTS, CERTAINTY)]
    won_by: dict[str, list[str]] = defaultdict(list)
    for (scheme, env, rho), row in sorted(by_line.items()):
        best = min(others, key=lambda name: row[name])
        if _EQUAL * row[best] < row[DEFAULTS]:
            won_by[best].append(f"{scheme} {env} ρ={rho}")
    if not won_by:
        return ["Nothing but tabular certainty equivalence beats the defaults in any row."]
    return [
        "Where something else than the defaults and tabular certainty equivalence is best:",
        "",
        *(f"- {name}, in {len(lines)}: {'; '.join(lines)}" for name, lines in won_by.items()),
    ]
