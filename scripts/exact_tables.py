"""Reproduce the paper's six tables: ten schemes, six regimes, ten environments, exact statistics.

Rows are kept as they are computed: run the same command again after an interrupt, and it does
what is missing. Writes raw rows, a CSV, the tables in Markdown and LaTeX, the comparison with the
published figures, a heat map of it, and the claims of the paper's results section.
"""

from __future__ import annotations

import os

# The work is spread over processes; more threads inside them would only compete.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse

from lstd_agent.study import claims, tables
from lstd_agent.study.exact_study import ExactSettings, run_exact_study
from lstd_agent.study.figures import ratio_heat_map, save
from lstd_agent.study.running import (
    add_reference_argument,
    add_run_arguments,
    add_subset_argument,
    parse_arguments,
)
from lstd_agent.study.schemes import ENVIRONMENTS, RHOS, SCHEMES
from lstd_agent.trials.parallel import open_executor


def main() -> None:
    """Run the study and write its results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add_subset_argument(parser, "env", ENVIRONMENTS)
    add_subset_argument(parser, "rho", RHOS, "features per state, ")
    add_subset_argument(parser, "scheme", SCHEMES)
    parser.add_argument(
        "--tail",
        choices=("window", "settled", "stationary"),
        default="window",
        help="what the last neighbourhood averages (default: window, as in the paper's tables)",
    )
    add_reference_argument(parser)
    add_run_arguments(parser, default_out="results/exact")
    args = parse_arguments(parser)

    settings = ExactSettings(tail=args.tail, reference=args.reference)
    with open_executor(args.dask) as executor:
        rows = run_exact_study(
            args.out,
            settings,
            environments=args.envs,
            rhos=args.rhos,
            schemes=args.schemes,
            n_seeds=args.seeds,
            workers=args.workers,
            executor=executor,
        )
    cells = tables.mean_cells(rows)
    ratios = tables.log_ratios(cells, tables.paper_cells())
    comparison = tables.markdown_agreement(tables.agreement(ratios))
    report = claims.markdown(claims.exact_claims(rows))
    tables.write_csv(args.out / "exact_rows.csv", rows)
    for name, text in (
        ("tables.md", tables.markdown_tables(cells)),
        ("tables.tex", tables.latex_tables(cells)),
        ("comparison.md", comparison),
        ("claims.md", report),
    ):
        (args.out / name).write_text(text)
    save(ratio_heat_map(ratios), args.out / "comparison.png")
    print(comparison)
    print(report)
    print(f"Tables, comparison, claims and raw rows are in {args.out}/")


if __name__ == "__main__":
    main()
