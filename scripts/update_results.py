"""Regenerate the pictures in docs/ and the results section of README.md.

Runs the three studies of `exact_tables.py`, `sampling_curves.py` and `compare_references.py` with
their defaults (their rows are kept under results/, so that a second run is quick), and writes what
they say between the two markers in README.md.
"""

from __future__ import annotations

import os

# The work is spread over processes; more threads inside them would only compete.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
from pathlib import Path
from statistics import mean

from lstd_agent.study import claims, figures, tables
from lstd_agent.study.exact_study import ExactSettings, run_exact_study
from lstd_agent.study.reference_study import (
    COMBINATIONS,
    ReferenceSettings,
    median_multiples,
    run_reference_study,
)
from lstd_agent.study.rows import Row
from lstd_agent.study.running import at_least, parse_arguments
from lstd_agent.study.sampling_study import SamplingSettings, run_sampling_study
from lstd_agent.study.schemes import SCHEMES
from unichain_gym import make_mdp

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- results: scripts/update_results.py -->\n", "<!-- end of results -->\n"


def main() -> None:
    """Run the studies, draw the pictures and fill in the README."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--workers", type=at_least(1), default=2, help="processes (2)")
    parser.add_argument("--out", type=Path, default=ROOT / "results", help="folder of raw rows")
    args = parse_arguments(parser)

    exact = run_exact_study(args.out / "exact", ExactSettings(), workers=args.workers)
    sampled = run_sampling_study(args.out / "sampling", SamplingSettings(), workers=args.workers)
    references = run_reference_study(
        args.out / "references", ReferenceSettings(), workers=args.workers
    )
    docs = ROOT / "docs"
    make_mdp("h36c").plot(docs / "h36c.png")
    figures.save(figures.ratio_heat_map(_ratios(exact)), docs / "comparison.png")
    figures.save(figures.sampling_curves(sampled), docs / "sampling.png")
    figures.save(figures.reference_multiples(references), docs / "references.png")

    readme = ROOT / "README.md"
    before, _, rest = readme.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    section = headlines(exact, sampled, references)
    readme.write_text(before + BEGIN + "\n" + section + "\n" + END + after)


def headlines(exact: list[Row], sampled: list[Row], references: list[Row]) -> str:
    """Return the headline numbers in Markdown."""
    ratios = _ratios(exact)
    lines = ["| exact study, 20 seeds | mean abs log10(ours / paper) | cells |", "|---|---:|---:|"]
    for name, schemes in (
        ("p01 and p02am, both errors", ("p01", "p02am")),
        ("all schemes but pinf, both errors", tuple(s for s in SCHEMES if s != "pinf")),
    ):
        chosen = [abs(ratio) for cell, ratio in ratios.items() if cell[3] in schemes]
        lines.append(f"| {name} | {mean(chosen):.2f} | {len(chosen)} |")
    lines += ["", "| the paper's claim | verdict | rows that agree |", "|---|---|---:|"]
    for claim in (*claims.exact_claims(exact), *claims.sampled_claims(sampled)):
        verdict = "confirmed" if claim.confirmed else "not confirmed"
        lines.append(
            f"| ({claim.label}) {claim.text} | {verdict} | {claim.n_agree} of {claim.n_rows} |"
        )
    medians = median_multiples(references)
    lines += [
        "",
        "| calibration, reference rule | median total rems / projection limit | best in |",
        "|---|---:|---:|",
    ]
    for combination in COMBINATIONS:
        multiples = sorted(row[combination] for row in medians.values())
        n_best = sum(row[combination] <= min(row.values()) for row in medians.values())
        lines.append(
            f"| {', '.join(combination)} | {multiples[len(multiples) // 2]:.3g} | "
            f"{n_best} of {len(medians)} rows |"
        )
    return "\n".join(lines) + "\n"


def _ratios(exact: list[Row]) -> dict[tables.Cell, float]:
    return tables.log_ratios(tables.mean_cells(exact), tables.paper_cells())


if __name__ == "__main__":
    main()
