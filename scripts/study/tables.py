"""Tables of the studies: rows are gathered by pandas, and written in Markdown or LaTeX."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lstd_agent.problems import ENVIRONMENTS, RHOS
from lstd_agent.results import Row
from lstd_agent.summary import markdown
from study.control import CONTROL_ENVIRONMENTS, EQUAL, METHODS
from study.exact import SCHEMES
from study.sampled import CERTAINTY, COMBINATIONS, DEFAULTS, ESTIMATORS, OURS

METRICS = {"total_repb": "ε_PB (total repb)", "total_rems": "ε_MS (total rems)"}
LINE = ["scheme", "env", "rho"]
ORACLE = "the best of ours in each row"

PAPER = Path(__file__).resolve().parents[2] / "tests" / "reference" / "paper_tables.json"

# Of a cell without a figure.
_NONE = "\N{EN DASH}"

# Errors this close count as equal.
_CLOSE = 1.05

# Before and after the lowest, second and third lowest of a row.
_MARKS = {
    "markdown": [("**", "**"), ("*", "*"), ("<u>", "</u>")],
    "latex": [(rf"\textcolor{{{c}}}{{", "}") for c in ("red", "darkgreen", "blue")],
}


def mean_cells(rows: Sequence[Row]) -> pd.DataFrame:
    """Return the mean over seeds by environment, ρ and metric (rows) and by scheme (columns)."""
    long = pd.DataFrame(rows).melt(["env", "rho", "scheme"], list(METRICS), var_name="metric")
    return long.pivot_table("value", ["env", "rho", "metric"], "scheme")


def paper_cells() -> pd.DataFrame:
    """Return the paper's tables (arXiv:2204.04324) likewise; NaN where it has no figure."""
    rows = json.loads(PAPER.read_text("utf-8"))["rows"]
    cells = {(r["env"], r["rho"], metric): r[metric] for r in rows for metric in METRICS}
    found = pd.DataFrame.from_dict(cells, orient="index", dtype=float)
    found.index = pd.MultiIndex.from_tuples(cells, names=["env", "rho", "metric"])
    return found.dropna(how="all")


def log_ratios(ours: pd.DataFrame, paper: pd.DataFrame) -> pd.DataFrame:
    """Return log10(ours / paper) of all cells that both have and that are positive."""
    ours, paper = ours.align(paper, join="inner")
    return np.log10((ours / paper).where((ours > 0.0) & (paper > 0.0))).dropna(how="all")


def two_digits(value: float) -> str:
    """Write a number with two significant digits, as the paper does."""
    if value == 0.0:
        return "0"
    exponent = math.floor(math.log10(abs(float(f"{value:.1e}"))))
    if -4 <= exponent <= 4:
        return f"{round(value, 1 - exponent):.{max(0, 1 - exponent)}f}"
    return f"{value:.1e}".replace("e+0", "e").replace("e-0", "e-")


def marked(values: pd.Series[float], style: str, missing: str) -> list[str]:
    """Return a row's cells as text, the three lowest between their marks; equals share a rank."""
    place = values.rank(method="dense")
    texts = []
    for value, rank in zip(values, place, strict=True):
        before, after = _MARKS[style][int(rank) - 1] if rank <= 3 else ("", "")
        texts.append(missing if np.isnan(value) else before + two_digits(value) + after)
    return texts


def one_table(cells: pd.DataFrame, rho: float, metric: str) -> pd.DataFrame:
    """Return one table: environments by schemes, in the paper's order."""
    found = cells[cells.index.isin([(e, rho, metric) for e in ENVIRONMENTS])]
    found = found.droplevel(["rho", "metric"])
    return found.reindex(
        index=[e for e in ENVIRONMENTS if e in found.index],
        columns=[s for s in SCHEMES if s in found.columns],
    )


def markdown_tables(cells: pd.DataFrame) -> str:
    """Write all tables in Markdown; the lowest is bold, the second italic, the third underlined."""
    parts = []
    for rho in RHOS:
        for metric, title in METRICS.items():
            table = one_table(cells, rho, metric).dropna(axis="columns", how="all")
            if len(table):
                rows = [[env, *marked(row, "markdown", "")] for env, row in table.iterrows()]
                shown = markdown(["env", *table.columns], rows)
                parts.append(f"### ρ = {rho}: {title}\n\n{shown}\n")
    return "\n".join(parts)


def latex_tables(cells: pd.DataFrame) -> str:
    """Write all tables in LaTeX, in the paper's layout and colours."""
    parts = ["% Needs booktabs and xcolor with \\colorlet{darkgreen}{green!50!black}."]
    width = len(SCHEMES)
    for rho in RHOS:
        tables = [one_table(cells, rho, metric).reindex(columns=SCHEMES) for metric in METRICS]
        environments = [e for e in ENVIRONMENTS if any(e in table.index for table in tables)]
        if not environments:
            continue
        tables = [table.reindex(environments) for table in tables]
        lines = [
            f"% rho = {rho}",
            r"\begin{tabular}{l" + "r" * (2 * width) + "}",
            r"\toprule",
            rf"& \multicolumn{{{width}}}{{c}}{{$\varepsilon_{{\mathbb{{PB}}}}$ (total repb)}}"
            rf" & \multicolumn{{{width}}}{{c}}{{$\varepsilon_{{\mathrm{{MS}}}}$ (total rems)}} \\",
            "env & " + " & ".join(SCHEMES * 2) + r" \\ \midrule",
        ]
        for env in environments:
            texts = [text for table in tables for text in marked(table.loc[env], "latex", "NaN")]
            lines.append(f"{env} & " + " & ".join(texts) + r" \\")
        parts.append("\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""]))
    return "\n".join(parts)


def markdown_agreement(ratios: pd.DataFrame) -> str:
    """Write how far each column is from the paper's, by log10(ours / paper)."""
    rows = []
    for metric in METRICS:
        of_metric = ratios[ratios.index.get_level_values("metric") == metric]
        for scheme in (s for s in SCHEMES if s in ratios.columns):
            found = of_metric[scheme].dropna()
            if len(found):
                signed = found.median(), found[found.abs().idxmax()]
                figures = f"{found.abs().mean():.2f}", *(f"{value:+.2f}" for value in signed)
                rows.append([f"{metric} {scheme}", len(found), *figures])
    heads = ["metric, scheme", "cells", "mean abs log10 ratio", "median", "worst"]
    return markdown(heads, rows) + "\n"


# Multiples of the projection limit


def multiples(rows: Sequence[Row]) -> pd.DataFrame:
    """Return total rems over the limit, by line and seed (rows) and by what is compared."""
    found = pd.DataFrame(rows)
    if "estimator" not in found:
        combinations = zip(found["calibration"], found["reference"], found["backup"], strict=True)
        found["estimator"] = [COMBINATIONS[each] for each in combinations]
    found["multiple"] = found["total_rems"] / found["limit"]
    return found.pivot_table("multiple", [*LINE, "seed"], "estimator")


def medians(found: pd.DataFrame) -> pd.DataFrame:
    """Return the medians over seeds of multiples, by line."""
    return found.groupby(level=LINE).median()


def line_name(line: tuple[str, str, float]) -> str:
    """Return the name of a line in texts."""
    scheme, env, rho = line
    return f"{scheme} {env} ρ={rho}"


def _multiples_table(found: pd.DataFrame, columns: Iterable[str]) -> str:
    """Write medians and quartiles over seeds: a row for each line."""
    columns = list(columns)
    quartiles = found[columns].groupby(level=LINE).quantile([0.25, 0.5, 0.75]).unstack()
    shape, order = "{:.3g} ({:.3g} to {:.3g})", [0.5, 0.25, 0.75]
    rows = [
        [line_name(line), *(shape.format(*row[c][order]) for c in columns)]
        for line, row in quartiles.iterrows()
    ]
    return markdown(["row", *columns], rows)


def _listed(lines: pd.Index[Any]) -> str:
    return f": {'; '.join(map(line_name, sorted(lines)))}" if len(lines) else ""


def markdown_references(rows: Sequence[Row]) -> str:
    """Write the comparison of combinations: every line, and where the default loses."""
    found = multiples(rows)
    by_line, (default, *_, paper) = medians(found), list(COMBINATIONS.values())
    lost = by_line.index[by_line[default] > by_line[paper]]
    beaten = by_line.index[by_line[default] > _CLOSE * by_line.min(axis=1)]
    overall = "; ".join(f"{name} {by_line[name].median():.3g}" for name in COMBINATIONS.values())
    n = len(by_line)
    parts = (
        "Total rems as a multiple of the projection limit: median (lower to upper quartile) over "
        "seeds, on the same samples.",
        _multiples_table(found, COMBINATIONS.values()),
        f"Median over the {n} rows: {overall}.",
        f"The default ({default}) has the larger median than the paper's ({paper}) in {len(lost)} "
        f"of {n} rows{_listed(lost)}.",
        f"Another combination is better than the default by more than 5 % in {len(beaten)} rows"
        f"{_listed(beaten)}.",
    )
    return "\n\n".join(parts) + "\n"


def reference_table(by_line: pd.DataFrame) -> str:
    """Write how often each combination is the best of its row."""
    best = by_line.eq(by_line.min(axis=1), axis=0)
    alone = best[best.sum(axis=1) == 1].sum()
    n, rows = len(by_line), []
    for name in COMBINATIONS.values():
        counts = alone[name], int(best[name].sum() - alone[name])
        shares = [f"{count} of {n} rows" for count in counts]
        rows.append([name, f"{by_line[name].median():.3g}", *shares])
    heads = ["median total rems / projection limit", "best alone in", "tied for best in"]
    return markdown(["calibration", *heads], rows)


def oracle(by_line: pd.DataFrame) -> pd.Series[float]:
    """Return the lowest of our medians in each line: the result of a perfect choice."""
    return by_line[list(OURS)].min(axis=1)


def estimator_table(rows: Sequence[Row]) -> str:
    """Write a line for each estimator: medians, quartiles, and rows won and lost."""
    by_line = medians(multiples(rows))
    n, ours = len(by_line), by_line[DEFAULTS]
    cells = []
    for name, values in [*((e, by_line[e]) for e in ESTIMATORS), (f"*{ORACLE}*", oracle(by_line))]:
        low, middle, high = values.quantile([0.25, 0.5, 0.75])
        won, lost = (_CLOSE * values < ours).sum(), (values > _CLOSE * ours).sum()
        against = [f"{won} of {n}", f"{lost} of {n}"]
        if name in (DEFAULTS, f"*{ORACLE}*"):
            against = ["", ""]
        figures = [f"{middle:.3g}", f"{low:.3g} to {high:.3g}", f"{values.max():.3g}"]
        cells.append([name, *figures, *against])
    heads = ["median", "quartiles", "worst row", "better than the defaults in", "worse in"]
    return markdown(["estimator", *heads], cells)


def markdown_estimators(rows: Sequence[Row]) -> str:
    """Write the whole comparison: the summary, where the defaults lose, and every row."""
    found = multiples(rows)
    by_line = medians(found)
    others = by_line.drop(columns=[DEFAULTS, CERTAINTY])
    best = others.idxmin(axis=1)[_CLOSE * others.min(axis=1) < by_line[DEFAULTS]]
    beaten = [
        f"- {name}, in {len(lines)}{_listed(lines.index)}" for name, lines in best.groupby(best)
    ]
    parts = (
        "Total rems as multiples of the projection limit, medians over seeds; median, quartiles "
        f"and worst over {len(by_line)} rows (a scheme, an environment and a ρ). Better and worse "
        "are by more than 5 %.",
        estimator_table(rows),
        "Where another estimator than the defaults and tabular certainty equivalence is best:",
        "\n".join(beaten) or "nowhere.",
        "Medians (lower to upper quartile) over seeds:",
        _multiples_table(found, ESTIMATORS),
    )
    return "\n\n".join(parts) + "\n"


# Control


def control_summary(rows: Sequence[Row]) -> pd.DataFrame:
    """Return what `markdown_control` says by method, environment (or "all") and transitions."""
    found = pd.DataFrame(rows).astype({"start_shortfall": float, "transient_right": float})
    both = pd.concat([found, found.assign(env="all")])
    return both.groupby(["method", "env", "n_samples"]).agg(
        gain_optimal=("is_gain_optimal", "mean"),
        shortfall=("start_shortfall", "median"),
        right=("transient_right", "mean"),
    )


def markdown_control(rows: Sequence[Row]) -> str:
    """Write results with most samples by environment, and averages by number of samples."""
    summary = control_summary(rows)
    marks = sorted({row["n_samples"] for row in rows})
    environments = [env for env in CONTROL_ENVIRONMENTS if any(row["env"] == env for row in rows)]

    def cell(method: str, env: str, n: int) -> str:
        if (method, env, n) not in summary.index:
            return _NONE
        gain, shortfall, right = summary.loc[(method, env, n)]
        lost = _NONE if np.isnan(shortfall) else f"{100 * shortfall:.2g} %"
        return f"{gain:.2f}; {lost}; " + (_NONE if np.isnan(right) else f"{right:.2f}")

    parts = (
        f"Greedy policies after {marks[-1]:,} transitions: share of runs with the optimal gain, "
        f"within {100 * EQUAL:g} %; of those, median shortfall of the start's value against the "
        "bias optimum, in % of the span; share of transient states with a bias-optimal action.",
        markdown(
            ["method", *environments],
            [[m, *(cell(m, env, marks[-1]) for env in environments)] for m in METHODS],
        ),
        "Over all environments and runs, by number of transitions:",
        markdown(
            ["method", *(f"{n:,}" for n in marks)],
            [[m, *(cell(m, "all", n) for n in marks)] for m in METHODS],
        ),
    )
    return "\n\n".join(parts) + "\n"
