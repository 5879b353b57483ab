"""Compare linked calibration and the rules for reference states, on the same samples.

Every total rems is also given as a multiple of the projection limit, the error of the best weights
and offsets of the same neighbourhoods. Writes raw rows, a CSV, one table and one picture.
"""

from __future__ import annotations

import os

# The work is spread over processes; more threads inside them would only compete.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse

from lstd_agent.study import tables
from lstd_agent.study.figures import reference_multiples, save
from lstd_agent.study.reference_study import (
    ReferenceSettings,
    markdown_comparison,
    run_reference_study,
)
from lstd_agent.study.running import (
    add_run_arguments,
    add_subset_argument,
    at_least,
    parse_arguments,
)
from lstd_agent.study.schemes import ENVIRONMENTS
from lstd_agent.trials.parallel import open_executor


def main() -> None:
    """Run the comparison and write its results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add_subset_argument(parser, "env", ENVIRONMENTS)
    parser.add_argument(
        "--trials", type=at_least(2), default=10_000, help="number of trials (10,000)"
    )
    add_run_arguments(parser, default_out="results/references")
    args = parse_arguments(parser)

    with open_executor(args.dask) as executor:
        rows = run_reference_study(
            args.out,
            ReferenceSettings(n_trials=args.trials),
            environments=args.envs,
            n_seeds=args.seeds,
            workers=args.workers,
            executor=executor,
        )
    report = markdown_comparison(rows)
    tables.write_csv(args.out / "reference_rows.csv", rows)
    (args.out / "comparison.md").write_text(report)
    save(reference_multiples(rows), args.out / "comparison.png")
    print(report)
    print(f"Table, picture and raw rows are in {args.out}/")


if __name__ == "__main__":
    main()
