"""The section of results, and the page that shows the paper's tables beside ours.

Both are written by `scripts/update_results.py` from the rows of the studies, so that no number in
them is typed by hand. The paper's own numbers are in ``tests/reference/paper_tables.json``.
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from lstd_agent.commands import running
from lstd_agent.errors import InvalidInputError
from lstd_agent.figure_style import new_figure, picture
from lstd_agent.packing import write_files
from lstd_agent.problems import RHOS
from lstd_agent.results import Row, one_line, provenance
from lstd_agent.summary import markdown
from study import figures, tables
from study.claims import CONFIDENCE, N_RESAMPLES, claims_table, exact_claims, sampled_claims
from study.complexity import Curves, rule_table
from study.exact import SCHEMES
from study.studies import STUDIES
from study.tables import METRICS, two_digits
from unichain_gym import make_mdp

BEGIN, END = "<!-- results: scripts/update_results.py -->\n", "<!-- end of results -->\n"

# The names in the tables, and their meanings.
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
    f"{100 * CONFIDENCE:.0f} % of {N_RESAMPLES:,} bootstrap resamples of the seeds, "
    f"*not confirmed* if in at most {100 - 100 * CONFIDENCE:.0f} %, and otherwise "
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
| Tables 2 to 7: exact errors | [below](#tables-2-to-7), by `scripts/exact_tables.py` |
| Figure 1: four systems | a diagram; `agent.plot()` draws a system that was fitted |
| Figure 2: a unichain MDP | [below](#figure-2) |
| Figure 3: errors against trials | [below](#figure-3), by `scripts/sampling_curves.py` |
| what the text says of them | [below](#what-the-text-says), claim by claim |

The schemes' names:
"""

_TABLES = """
## Tables 2 to 7

Means over seeds, as in the paper. Policies and features are drawn anew, and errors span orders of
magnitude, so that single seeds decide many means. The picture shows every cell, the tables the
numbers; ours is in bold where it is further than a factor of two from the paper's.

To compute one of them again, from a checkout with the extra `study` installed; Table 7 takes a
minute or two:

```bash
python scripts/exact_tables.py --rhos 0.03 --out results/table7
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


def section(rows: Mapping[str, Sequence[Row]]) -> str:
    """Return the section of results, from the rows of all studies by name."""
    exact = rows["exact"]
    ratios = tables.log_ratios(tables.mean_cells(exact), tables.paper_cells())
    parts = (
        glossary(),
        _agreement(ratios, len({row["seed"] for row in exact})),
        JUDGING,
        claims_table([*exact_claims(exact), *sampled_claims(rows["sampling"])]),
        tables.reference_table(tables.medians(tables.multiples(rows["references"]))),
        COMPARING,
        tables.estimator_table(rows["estimators"]),
        FEEDING,
        rule_table(Curves.of(rows["complexity"])),
        "**Policies.** Learners of control on the same numbers of samples "
        "(`scripts/compare_control.py`).",
        f"{tables.markdown_control(rows['control'])}\n![Learners of control](control.png)",
    )
    return "\n\n".join(parts) + "\n"


def glossary() -> str:
    """Return what the names mean, as a table."""
    return markdown(["", ""], [*GLOSSARY.items()], left=(0, 1))


def _agreement(ratios: pd.DataFrame, n_seeds: int) -> str:
    rows = []
    for name, schemes in (
        ("p01 and p02am, both errors", ["p01", "p02am"]),
        ("all schemes but pinf, both errors", [s for s in SCHEMES if s != "pinf"]),
    ):
        found = ratios.reindex(columns=schemes).abs().stack().dropna()
        rows.append([name, f"{found.mean():.2f}", len(found)])
    return markdown(
        [f"exact study, {n_seeds} seeds", "mean abs log10(ours / paper)", "cells"], rows
    )


def side_by_side(exact: Sequence[Row], sampled: Sequence[Row], origin: str) -> str:
    """Return the page, in Markdown, with the origin of the two studies' rows at its head."""
    claims = claims_table([*exact_claims(exact), *sampled_claims(sampled)])
    parts = (
        f"<!-- written by scripts/update_results.py; {origin} -->\n\n",
        f"{_HEAD}\n{glossary()}\n",
        _TABLES,
        paired_tables(tables.mean_cells(exact), tables.paper_cells()),
        _FIGURES,
        f"{JUDGING}\n\n{claims}\n",
    )
    return "".join(parts)


def paired_tables(ours: pd.DataFrame, paper: pd.DataFrame) -> str:
    """Write all tables in Markdown, a row of the paper's below each of ours."""
    parts = []
    for number, rho in enumerate(RHOS, 2):
        for metric, title in METRICS.items():
            own = tables.one_table(ours, rho, metric).reindex(columns=list(SCHEMES))
            theirs = tables.one_table(paper, rho, metric).reindex(own.index, columns=own.columns)
            rows = []
            for env in own.index:
                pairs = [*zip(own.loc[env], theirs.loc[env], strict=True)]
                rows.append([env, "ours", *(_cell(*pair) for pair in pairs)])
                rows.append(
                    ["", "paper", *("" if np.isnan(p) else two_digits(p) for _, p in pairs)]
                )
            if rows:
                shown = markdown(["env", "", *SCHEMES], rows, left=(0, 1))
                parts.append(f"**Table {number}, ρ = {rho}: {title}**\n\n{shown}\n")
    return "\n".join(parts)


def _cell(ours: float, paper: float) -> str:
    """Write our value, in bold if it is far from the paper's."""
    text = "" if np.isnan(ours) else two_digits(ours)
    is_far = bool(text) and not (np.isnan(paper) or paper / FAR <= ours <= FAR * paper)
    return f"**{text}**" if is_far else text


def main(root: Path, argv: Sequence[str] | None = None) -> int:
    """Run the studies, draw the pictures and write the pages; return the exit status."""
    parser = running.new_parser(None, inspect.getdoc(update))
    running.add_arguments(parser, "--seeds", "--workers", "--quiet", "--out", out=root / "results")
    args = parser.parse_args(argv)
    return running.run(lambda: update(root, args))


def update(root: Path, args: argparse.Namespace) -> int:
    """Regenerate docs/results.md, docs/side_by_side.md and the pictures in docs/.

    Runs all studies with their defaults (the last, of sample complexity, with a quarter of the
    seeds). Rows are kept under results/, so that a second run is quick. All files are written, or
    none if anything goes wrong.
    """
    docs = root / "docs"
    page = docs / "results.md"
    new_figure(1.0, 1.0)  # without matplotlib, refuse before hours of work
    replace_section(page.read_text(encoding="utf-8"), "")
    running.check_destinations(None, page, docs / "side_by_side.md", docs / "h36c.png")
    rows = {}
    for name, command in STUDIES.items():
        study = command.study
        with running.rows_kept(args.out / name / f"{study.name}_rows.jsonl"):
            rows[name] = study.run(
                args.out / name,
                n_seeds=-(-args.seeds * command.n_seeds // 20),
                workers=args.workers,
                progress=not args.quiet,
            )
    # Without --workers and --out: results do not depend on them.
    line = ["scripts/update_results.py", "--seeds", str(args.seeds)]
    code = rows["exact"][0]["code"]
    origin = one_line(provenance(line, seeds=f"0 to {args.seeds - 1}", code=code))
    ratios = tables.log_ratios(tables.mean_cells(rows["exact"]), tables.paper_cells())
    drawn = {
        "h36c": make_mdp("h36c").plot(),
        "x9d": make_mdp("x9d").plot(),
        "comparison": figures.ratio_heat_map(ratios),
        "sampling": figures.sampling_curves(rows["sampling"]),
        "references": figures.reference_multiples(rows["references"]),
        "control": figures.control_curves(rows["control"]),
        "estimators": figures.estimator_multiples(rows["estimators"]),
        "complexity": figures.sample_complexity(rows["complexity"]),
    }
    contents = {docs / f"{name}.png": picture(f, ".png", origin) for name, f in drawn.items()}
    # Read again: somebody may have edited it while the studies ran.
    text = replace_section(
        page.read_text(encoding="utf-8"), f"\n<!-- {origin} -->\n\n{section(rows)}\n"
    )
    beside = side_by_side(rows["exact"], rows["sampling"], origin)
    write_files({page: text.encode(), docs / "side_by_side.md": beside.encode(), **contents})
    return 0


def replace_section(text: str, section: str) -> str:
    """Return a text with a section between its markers, each of which must be there once."""
    if (text.count(BEGIN), text.count(END)) != (1, 1) or text.index(BEGIN) > text.index(END):
        raise InvalidInputError(
            f"docs/results.md must have the line {BEGIN.strip()} once and {END.strip()} once after "
            f"it; it has {text.count(BEGIN)} and {text.count(END)}, so nothing is written"
        )
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + section + END + after
