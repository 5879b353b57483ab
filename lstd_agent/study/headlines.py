"""The results section of the README: glossary, headline numbers and claims in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean, median

from lstd_agent.study import claims, tables
from lstd_agent.study.complexity_tables import curves, rule_table
from lstd_agent.study.estimator_tables import summary_table
from lstd_agent.study.exact_claims import exact_claims
from lstd_agent.study.markdown import table
from lstd_agent.study.multiples import Line
from lstd_agent.study.reference_study import (
    COMBINATIONS,
    Combination,
    combination_name,
    median_multiples,
)
from lstd_agent.study.rows import Row
from lstd_agent.study.sampled_claims import sampled_claims
from lstd_agent.study.schemes import SCHEMES

# What the tables need to be read, a name and its meaning each.
GLOSSARY = {
    "`buw`": "the baseline: one approximator, all states weighted alike",
    "`p01`": "one neighbourhood, of all timesteps",
    "`p02··`": "two neighbourhoods. The second begins at the maximum absorption time (`am`), or "
    "where the distance of state distributions says: total variation (TV, `tv`), optimal "
    "transport (OT, `ot`) or maximum mean discrepancy (MMD, `md`)",
    "`pax··`": "likewise, as many neighbourhoods as features allow, ⌊1/ρ⌋",
    "`pinf`": "one neighbourhood for each timestep",
    "ρ": "features per state: there are ⌊ρS⌋ features of S states",
    "ε_PB": "total repb: the root of the projected Bellman error, summed over a trial's timesteps",
    "ε_MS": "total rems: the root of the mean squared error of the values, summed likewise",
}

JUDGING = (
    "A claim of the paper is tested on our means over seeds, item by item (a row is an "
    "environment and a ρ, a panel is one of the figure's four), and on the means in the paper's "
    "own tables likewise. It is *confirmed* if it holds in at least "
    f"{100 * claims.CONFIDENCE:.0f} % of {claims.N_RESAMPLES:,} bootstrap resamples of the seeds, "
    f"*not confirmed* if in at most {100 - 100 * claims.CONFIDENCE:.0f} %, and otherwise "
    "*undecided with these seeds*."
)

COMPARING = (
    "Beside other estimators, on the same samples: total rems over the projection limit, medians "
    "over seeds; median, quartiles and worst over the rows (a scheme, an environment and a ρ). "
    "Better and worse are by more than 5 %. Tabular certainty equivalence has no features to be "
    "limited by."
)

FEEDING = (
    "How many neighbourhoods n trials can feed, with d features: errors over that of the best "
    "number tried, from 100 to 1,000,000 trials; geometric mean and worst. The rule was found in "
    "the first group of environments, and is checked in the second."
)


def headlines(
    exact: Sequence[Row],
    sampled: Sequence[Row],
    references: Sequence[Row],
    estimators: Sequence[Row],
    complexity: Sequence[Row],
) -> str:
    """Return the results section of the README, from the rows of five studies."""
    ratios = tables.log_ratios(tables.mean_cells(exact), tables.paper_cells())
    judged = [*exact_claims(exact), *sampled_claims(sampled)]
    parts = (
        glossary(),
        _agreement(ratios, len({row["seed"] for row in exact})),
        JUDGING,
        claims.markdown_table(judged).strip(),
        _references(median_multiples(references)),
        COMPARING,
        summary_table(estimators),
        FEEDING,
        rule_table(curves(complexity)),
    )
    return "\n\n".join(parts) + "\n"


def glossary() -> str:
    """Return what the names mean, as a table."""
    return table(["", ""], GLOSSARY.items(), "l")


def _agreement(ratios: Mapping[tables.Cell, float], n_seeds: int) -> str:
    heads = (f"exact study, {n_seeds} seeds", "mean abs log10(ours / paper)", "cells")
    rows = []
    for name, schemes in (
        ("p01 and p02am, both errors", ("p01", "p02am")),
        ("all schemes but pinf, both errors", tuple(s for s in SCHEMES if s != "pinf")),
    ):
        chosen = [abs(ratio) for cell, ratio in ratios.items() if cell[3] in schemes]
        rows.append([name, f"{mean(chosen):.2f}", len(chosen)])
    return table(heads, rows, "lr")


def _references(medians: Mapping[Line, Mapping[Combination, float]]) -> str:
    best = [[c for c in row if row[c] == min(row.values())] for row in medians.values()]
    n, rows = len(medians), []
    for combination in COMBINATIONS:
        middle = median(row[combination] for row in medians.values())
        alone = sum(winners == [combination] for winners in best)
        tied = sum(combination in winners and len(winners) > 1 for winners in best)
        name = combination_name(combination)
        rows.append([name, f"{middle:.3g}", f"{alone} of {n} rows", f"{tied} of {n} rows"])
    heads = ("calibration", "median total rems / projection limit", "best alone in")
    return table([*heads, "tied for best in"], rows, "lr")
