"""Reproduce the paper's sampling figure: errors against the number of trials on h6 and c10.

Rows are kept as they are computed: run the same command again after an interrupt, and it does
what is missing. Writes raw rows, a CSV, the four-panel figure (PNG and PDF), and the claims of
the paper's results section.
"""

from __future__ import annotations

import os

# The work is spread over processes; more threads inside them would only compete.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse

from lstd_agent.study import claims, tables
from lstd_agent.study.figures import sampling_curves, save
from lstd_agent.study.running import add_reference_argument, add_run_arguments, parse_arguments
from lstd_agent.study.sampling_study import SamplingSettings, run_sampling_study
from lstd_agent.trials.parallel import open_executor


def main() -> None:
    """Run the study and write its results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--engine",
        choices=("trials", "population"),
        default="trials",
        help="step environments, or draw the counts of all trials at once (default: trials)",
    )
    parser.add_argument(
        "--estimator",
        choices=("quadratic", "linear"),
        default="quadratic",
        help="MMD of all pairs of trials, or the paper's of disjoint pairs (default: quadratic)",
    )
    parser.add_argument(
        "--tail",
        choices=("window", "settled"),
        default="window",
        help="what the last neighbourhood averages (default: window, as in the paper)",
    )
    add_reference_argument(parser)
    add_run_arguments(parser, default_out="results/sampling")
    args = parse_arguments(parser)
    if args.engine == "population" and args.estimator == "linear":
        parser.error("the linear estimator pairs single trials: it needs --engine trials")

    settings = SamplingSettings(
        engine=args.engine, estimator=args.estimator, tail=args.tail, reference=args.reference
    )
    with open_executor(args.dask) as executor:
        rows = run_sampling_study(
            args.out, settings, n_seeds=args.seeds, workers=args.workers, executor=executor
        )
    report = claims.markdown(claims.sampled_claims(rows))
    tables.write_csv(args.out / "sampling_rows.csv", rows)
    (args.out / "claims.md").write_text(report)
    figure = sampling_curves(rows)
    save(figure, args.out / "curves.png", args.out / "curves.pdf")
    print(report)
    print(f"Figure, claims and raw rows are in {args.out}/")


if __name__ == "__main__":
    main()
