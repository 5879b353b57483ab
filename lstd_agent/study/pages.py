"""The results section of the README, and the page that puts the paper's tables beside ours.

Both are written by `scripts/update_results.py` from the rows of the studies, so that no number in
them is typed by hand; the paper's own are those of ``paper_tables.json``.
"""

from __future__ import annotations

import math
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
from lstd_agent.study.schemes import RHOS, SCHEMES
from lstd_agent.study.tables import METRICS, Cell, two_digits

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

FAR = 2.0
"""Ours is set in bold where it is further from the paper's than by this factor."""

_HEAD = """# The paper, side by side

Each table and figure of [Dewanto & Gallagher](https://arxiv.org/abs/2204.04324), beside what the
code here gives. [Item by item](paper.md) says which function is which item.

| In the paper | Here |
|---|---|
| Table 1: special cases | `SeminormLSTDAgent.average_reward`, `transient` and `stepwise` |
| Tables 2 to 7: exact errors | [below](#tables-2-to-7), by `unichain study exact` |
| Figure 1: four systems | a diagram; `agent.plot()` draws a system that was fitted |
| Figure 2: a unichain MDP | [below](#figure-2) |
| Figure 3: errors against trials | [below](#figure-3), by `unichain study sampling` |
| what the text says of them | [below](#what-the-text-says), claim by claim |

The schemes' names:
"""

_TABLES = """
## Tables 2 to 7

Means over seeds, as in the paper. Policies and features are drawn anew, and errors span orders of
magnitude, so that single seeds decide many means. The picture shows every cell, the tables the
numbers; ours is in bold where it is further than a factor of two from the paper's.

To compute one of them again, with the extra `plot` installed; Table 7 takes a minute or two:

```bash
unichain study exact --rhos 0.03 --out results/table7
```

`results/table7/tables.md` is the table then, in LaTeX beside it, and `comparison.md` how far it is
from the paper's. Without `--rhos` it is all six, and `--envs`, `--schemes` and `--seeds` choose
further.

![log10 of ours over the paper's, for every cell](comparison.png)

"""

_FIGURES = """
## Figure 2

The paper draws an instance x9d: an absorbing state that four streams of two states lead into. Here
is `unichain_gym.make_mdp("x9d").plot()`:

![x9d: four streams of two transient states around an absorbing one](x9d.png)

## Figure 3

The paper has a panel for each column here, with ε_PB on a left and ε_MS on a right axis; here each
has a row. The shape to look for: pinf, one approximator for each timestep, has few samples for
each, so that it starts high in ε_PB and falls as trials come in, where the others are flat.

![errors against the number of trials on h6 and c10](sampling.png)

## What the text says

"""


def headlines(
    exact: Sequence[Row],
    sampled: Sequence[Row],
    references: Sequence[Row],
    estimators: Sequence[Row],
    complexity: Sequence[Row],
) -> str:
    """Return the results section of the README, from the rows of five studies."""
    ratios = tables.log_ratios(tables.mean_cells(exact), tables.paper_cells())
    parts = (
        glossary(),
        _agreement(ratios, len({row["seed"] for row in exact})),
        JUDGING,
        claims_table(exact, sampled),
        reference_table(median_multiples(references)),
        COMPARING,
        summary_table(estimators),
        FEEDING,
        rule_table(curves(complexity)),
    )
    return "\n\n".join(parts) + "\n"


def glossary() -> str:
    """Return what the names mean, as a table."""
    return table(["", ""], GLOSSARY.items(), "l")


def claims_table(exact: Sequence[Row], sampled: Sequence[Row]) -> str:
    """Return the claims about both studies, as a table."""
    return claims.markdown_table([*exact_claims(exact), *sampled_claims(sampled)]).strip()


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


def reference_table(medians: Mapping[Line, Mapping[Combination, float]]) -> str:
    """Return how often each combination is the best of its row, as a table."""
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


def side_by_side(exact: Sequence[Row], sampled: Sequence[Row], origin: str) -> str:
    """Return the page, in Markdown, with the origin of the two studies' rows at its head."""
    parts = (
        f"<!-- written by scripts/update_results.py; {origin} -->\n\n",
        f"{_HEAD}\n{glossary()}\n",
        _TABLES,
        paired_tables(tables.mean_cells(exact), tables.paper_cells()),
        _FIGURES,
        f"{JUDGING}\n\n{claims_table(exact, sampled)}\n",
    )
    return "".join(parts)


def paired_tables(ours: Mapping[Cell, float], paper: Mapping[Cell, float]) -> str:
    """Write all tables in Markdown, a row of the paper's below each of ours."""
    parts = []
    for number, rho in enumerate(RHOS, 2):
        for metric, title in METRICS.items():
            theirs = dict(tables.table_rows(paper, rho, metric))
            rows = []
            for env, values in tables.table_rows(ours, rho, metric):
                other = theirs.get(env, {})
                rows += [
                    [env, "ours", *(_cell(values.get(s), other.get(s)) for s in SCHEMES)],
                    ["", "paper", *(two_digits(other[s]) if s in other else "" for s in SCHEMES)],
                ]
            if rows:
                shown = table(["env", "", *SCHEMES], rows, "llr")
                parts.append(f"**Table {number}, ρ = {rho}: {title}**\n\n{shown}\n")
    return "\n".join(parts)


def _cell(ours: float | None, paper: float | None) -> str:
    """Write our value, in bold where the paper has another."""
    if ours is None:
        return ""
    text = two_digits(ours)
    if paper is None or (ours > 0.0 and abs(math.log(ours / paper)) <= math.log(FAR)):
        return text
    return f"**{text}**"
