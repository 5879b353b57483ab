"""The command `unichain score`: anybody's methods on problems with exact answers.

A method is a function method(env, policy, budget, seed) of a module, written module:function; it
returns values of states, or values and the gain. Modules are looked for here first. Rows are kept
as they are computed: the same command, given again after an interrupt, does what is missing.

Five seeds of ten environments, with one method and all of ours, take about a quarter of an hour on
two cores. --seeds 20, as many as the studies of the paper have, takes an hour and keeps those five.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from lstd_agent.commands.arguments import (
    add_run_arguments,
    new_parser,
    read_arguments,
    subset,
)
from lstd_agent.commands.running import MOST_TRIALS, at_least, import_here, run
from lstd_agent.commands.study import one_thread_each, put_results, rows_kept
from lstd_agent.errors import InvalidInputError
from lstd_agent.study.methods import BUILT_IN, Method
from lstd_agent.study.schemes import ENVIRONMENTS, RHOS
from lstd_agent.study.scoring import N_SEEDS, score
from lstd_agent.trials.workers import open_executor

_EXAMPLE = """example:
  unichain score my_package:my_method --envs h6 c10 --seeds 5"""


def main(argv: Sequence[str] | None = None, prog: str | None = None) -> int:
    """Score the methods that the arguments name; return the exit status."""
    parser = new_parser(prog, __doc__, _EXAMPLE)
    parser.add_argument("methods", nargs="*", metavar="MODULE:FUNCTION", help="none: ours only")
    parser.add_argument("--envs", **subset("ENV", ENVIRONMENTS))
    parser.add_argument(
        "--rhos", nargs="+", type=float, choices=RHOS, default=[0.19], metavar="RHO",
        help=f"features per state, among {', '.join(map(str, RHOS))} (0.19)",
    )  # fmt: skip
    parser.add_argument(
        "--trials",
        type=at_least(1, MOST_TRIALS),
        default=10_000,
        help="budget of each problem (10,000)",
    )
    parser.add_argument(
        "--against", nargs="*", choices=BUILT_IN, default=list(BUILT_IN), metavar="NAME",
        help=f"score these of ours as well, among {', '.join(BUILT_IN)} (all)",
    )  # fmt: skip
    add_run_arguments(parser, "results/score", N_SEEDS)
    args = read_arguments(parser, argv, prog or "score")
    return run(lambda: conduct(args))


def conduct(args: argparse.Namespace) -> int:
    """Score, write tables and rows, and print the tables."""
    one_thread_each()
    methods = dict(map(_named, args.methods))
    with rows_kept(args.out / "score_rows.jsonl"), open_executor(args.dask) as executor:
        scores = score(
            methods,
            environments=args.envs,
            rhos=args.rhos,
            seeds=args.seeds,
            n_trials=args.trials,
            against=args.against,
            out=args.out,
            workers=args.workers,
            executor=executor,
            progress=not args.quiet,
        )
        put_results(args, {"scores.md": str(scores)}, str(scores), "score_rows", scores.rows)
    print(f"Tables and raw rows are in {args.out}{os.sep}")
    return 0


def _named(text: str) -> tuple[str, Method]:
    """Import a method; it is called by what follows the colon."""
    module, _, name = text.partition(":")
    method = getattr(import_here(module, text), name, None)
    if not callable(method):
        raise InvalidInputError(
            f"{text!r} is no method: write module:function, such as my_package:my_method"
        )
    return name, method
