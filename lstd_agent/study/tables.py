"""The six tables of the exact study, ours and the paper's, and how far apart they are."""

from __future__ import annotations

import csv
import io
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from statistics import mean, median
from typing import NamedTuple

from lstd_agent.study.markdown import table
from lstd_agent.study.rows import Row
from lstd_agent.study.schemes import ENVIRONMENTS, RHOS, SCHEMES

METRICS = {"total_repb": "ε_PB (total repb)", "total_rems": "ε_MS (total rems)"}

Cell = tuple[str, float, str, str]
"""Environment, ρ, metric, scheme."""

# What stands before and after the lowest, second and third lowest of a row.
_MARKDOWN_MARKS = (("**", "**"), ("*", "*"), ("<u>", "</u>"))
_LATEX_MARKS = tuple((rf"\textcolor{{{c}}}{{", "}") for c in ("red", "darkgreen", "blue"))


def mean_cells(rows: Iterable[Row]) -> dict[Cell, float]:
    """Return the mean over seeds of each cell, as the paper's tables do."""
    values = defaultdict(list)
    for row in rows:
        for metric in METRICS:
            values[row["env"], row["rho"], metric, row["scheme"]].append(row[metric])
    return {cell: mean(numbers) for cell, numbers in values.items()}


def paper_cells() -> dict[Cell, float]:
    """Return the cells of the paper's tables (arXiv:2204.04324), those it has."""
    text = files("lstd_agent.study").joinpath("paper_tables.json").read_text("utf-8")
    return {
        (row["env"], row["rho"], metric, scheme): value
        for row in json.loads(text)["rows"]
        for metric in METRICS
        for scheme, value in row[metric].items()
        if value is not None
    }


def ranks(values: Mapping[str, float]) -> dict[str, int]:
    """Return 0, 1 and 2 for the lowest, second and third lowest of a row; equals share a rank."""
    place = {value: rank for rank, value in enumerate(sorted(set(values.values()))[:3])}
    return {scheme: place[value] for scheme, value in values.items() if value in place}


def two_digits(value: float) -> str:
    """Write a number with two significant digits, as the paper does."""
    if value == 0.0:
        return "0"
    exponent = math.floor(math.log10(abs(float(f"{value:.1e}"))))
    if -4 <= exponent <= 4:
        return f"{round(value, 1 - exponent):.{max(0, 1 - exponent)}f}"
    return f"{value:.1e}".replace("e+0", "e").replace("e-0", "e-")


def table_rows(
    cells: Mapping[Cell, float], rho: float, metric: str
) -> list[tuple[str, dict[str, float]]]:
    """Return the rows of one ρ: environments with their schemes' values."""
    present = [
        (env, {s: cells[env, rho, metric, s] for s in SCHEMES if (env, rho, metric, s) in cells})
        for env in ENVIRONMENTS
    ]
    return [(env, values) for env, values in present if values]


def markdown_tables(cells: Mapping[Cell, float]) -> str:
    """Write all tables in Markdown; lowest bold, second italic, third underlined."""
    parts = []
    for rho in RHOS:
        for metric, title in METRICS.items():
            rows = table_rows(cells, rho, metric)
            if not rows:
                continue
            schemes = [s for s in SCHEMES if any(s in values for _, values in rows)]
            texts = [
                [env, *_marked(values, schemes, _MARKDOWN_MARKS, missing="")]
                for env, values in rows
            ]
            shown = table(["env", *schemes], texts, "lr")
            parts.append(f"### ρ = {rho}: {title}\n\n{shown}\n")
    return "\n".join(parts)


def _marked(
    values: Mapping[str, float],
    schemes: Sequence[str],
    marks: Sequence[tuple[str, str]],
    missing: str,
) -> list[str]:
    """Return a row's values as text, the three lowest between their marks."""
    place = ranks(values)
    texts = []
    for scheme in schemes:
        before, after = marks[place[scheme]] if scheme in place else ("", "")
        text = two_digits(values[scheme]) if scheme in values else missing
        texts.append(before + text + after)
    return texts


def latex_tables(cells: Mapping[Cell, float]) -> str:
    """Write all tables in LaTeX, in the paper's layout and colours."""
    parts = ["% Needs booktabs and xcolor with \\colorlet{darkgreen}{green!50!black}."]
    width = len(SCHEMES)
    for rho in RHOS:
        by_env = {metric: dict(table_rows(cells, rho, metric)) for metric in METRICS}
        environments = [e for e in ENVIRONMENTS if any(e in by_env[m] for m in METRICS)]
        if not environments:
            continue
        lines = [
            f"% rho = {rho}",
            r"\begin{tabular}{l" + "r" * (2 * width) + "}",
            r"\toprule",
            rf"& \multicolumn{{{width}}}{{c}}{{$\varepsilon_{{\mathbb{{PB}}}}$ (total repb)}}"
            rf" & \multicolumn{{{width}}}{{c}}{{$\varepsilon_{{\mathrm{{MS}}}}$ (total rems)}} \\",
            "env & " + " & ".join(SCHEMES * 2) + r" \\ \midrule",
        ]
        for env in environments:
            texts = []
            for metric in METRICS:
                texts += _marked(by_env[metric].get(env, {}), SCHEMES, _LATEX_MARKS, missing="NaN")
            lines.append(f"{env} & " + " & ".join(texts) + r" \\")
        lines += [r"\bottomrule", r"\end{tabular}", ""]
        parts.append("\n".join(lines))
    return "\n".join(parts)


class Agreement(NamedTuple):
    """How far our cells of one column are from the paper's, as log10(ours / paper)."""

    metric: str
    scheme: str
    n_cells: int
    mean_abs: float
    median: float
    worst: float  # of largest size


def log_ratios(ours: Mapping[Cell, float], paper: Mapping[Cell, float]) -> dict[Cell, float]:
    """Return log10(ours / paper) of every cell that both have and where both are positive."""
    return {
        cell: math.log10(ours[cell] / value)
        for cell, value in paper.items()
        if value > 0.0 and ours.get(cell, 0.0) > 0.0
    }


def agreement(ratios: Mapping[Cell, float]) -> list[Agreement]:
    """Summarize log ratios by column."""
    columns = []
    for metric in METRICS:
        for scheme in SCHEMES:
            of = [r for (_, _, m, s), r in ratios.items() if (m, s) == (metric, scheme)]
            if of:
                middle, worst = median(of), max(of, key=abs)
                columns.append(
                    Agreement(metric, scheme, len(of), mean(map(abs, of)), middle, worst)
                )
    return columns


def markdown_agreement(columns: Iterable[Agreement]) -> str:
    """Write the comparison with the paper in Markdown."""
    heads = ("metric", "scheme", "cells", "mean abs log10 ratio", "median", "worst")
    rows = [[*c[:3], f"{c.mean_abs:.2f}", f"{c.median:+.2f}", f"{c.worst:+.2f}"] for c in columns]
    return table(heads, rows, "llr") + "\n"


def csv_text(rows: Sequence[Row]) -> str:
    """Write all rows as CSV."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, fieldnames=list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
