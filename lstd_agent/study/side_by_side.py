"""The page that puts each table and figure of the paper beside ours.

Written by `scripts/update_results.py` from the rows of the studies, so that no number on it is
typed by hand; the paper's own are those of ``paper_tables.json``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from lstd_agent.study import claims, tables
from lstd_agent.study.exact_claims import exact_claims
from lstd_agent.study.headlines import JUDGING, glossary
from lstd_agent.study.markdown import table
from lstd_agent.study.rows import Row
from lstd_agent.study.sampled_claims import sampled_claims
from lstd_agent.study.schemes import RHOS, SCHEMES
from lstd_agent.study.tables import METRICS, Cell, two_digits

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


def side_by_side(exact: Sequence[Row], sampled: Sequence[Row], origin: str) -> str:
    """Return the page, in Markdown, with the origin of the two studies' rows at its head."""
    judged = [*exact_claims(exact), *sampled_claims(sampled)]
    parts = (
        f"<!-- written by scripts/update_results.py; {origin} -->\n\n",
        f"{_HEAD}\n{glossary()}\n",
        _TABLES,
        paired_tables(tables.mean_cells(exact), tables.paper_cells()),
        _FIGURES,
        f"{JUDGING}\n\n{claims.markdown_table(judged)}",
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
