"""Score methods of your own, and ours beside them, on problems with exact answers.

A method is a function method(env, policy, budget, seed) of a module, written module:function; it
returns values of states, or values and the gain. Modules in the current folder are found. Rows are
kept as they are computed: the same command, given again after an interrupt, computes the rest.

Five seeds of ten environments, with one method and all of ours, take about a quarter of an hour on
two cores. --seeds 20, as many as the studies of the paper have, takes an hour and keeps those five.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from lstd_agent.commands import running
from lstd_agent.environments import import_here
from lstd_agent.errors import InvalidInputError
from lstd_agent.problems import ENVIRONMENTS, RHOS
from lstd_agent.results import open_executor, provenance
from lstd_agent.scoring import BUILT_IN, MEASURES, REFERENCE, Method, ScoringError, score

_EXAMPLE = """examples:
  unichain score my_package:my_method --envs h6 c10 --seeds 5
  unichain score my_package:my_method --envs r20b FrozenLake-v1 my_package:MyEnv-v0 --json"""


def conduct(args: argparse.Namespace) -> int:
    """Score, write tables and rows, and print the tables."""
    methods = dict(map(_named, args.methods))
    every, n = {*methods, REFERENCE, *args.against}, len(args.envs) * args.seeds
    if not args.quiet:
        of = f"of {', '.join(sorted(every))} on {', '.join(args.envs)} with {args.seeds} seeds each"
        running.say(f"{len(every) * n} tasks {of}; rows are kept in {args.out}{os.sep}")
    with running.rows_kept(args.out / "score_rows.jsonl"), open_executor(args.dask) as executor:
        try:
            names = "rhos", "seeds", "against", "out", "workers"
            how: dict[str, Any] = {name: getattr(args, name) for name in names}
            how |= {"environments": args.envs, "n_trials": args.trials, "executor": executor}
            scores = score(methods, progress=not args.quiet, **how)
        except ScoringError as error:
            if error.traceback and sys.stderr is not None:
                print(error.traceback, file=sys.stderr)
            raise
        medians = {
            method: {m: np.median(scores.measures(method, m) or [np.nan]) for m in MEASURES}
            for method in scores.methods
        }
        facts = provenance(args.argv, seeds=f"0 to {args.seeds - 1}")
        document = {"medians": medians, "rows": list(scores.rows), "provenance": facts}
        shown = running.as_json(document) if args.json else str(scores)
        running.put_results(args, {"scores.md": str(scores)}, shown, "score_rows", scores.rows)
    if not args.json:
        print(f"Tables and raw rows are in {args.out}{os.sep}")
    return 0


def _named(text: str) -> tuple[str, Method]:
    """Import a method; its name is what follows the colon."""
    module, _, name = text.partition(":")
    imported = import_here(module.removesuffix(".py"), text)
    method = getattr(imported, name, None)
    if name and not hasattr(imported, name):
        raise InvalidInputError(f"{text!r}: the module {imported.__name__} has no {name!r}")
    if not callable(method):
        told = f"{text!r} is no method: write module:function, such as my_package:my_method"
        raise InvalidInputError(told)
    return name, method


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command line."""
    add = parser.add_argument
    add("methods", nargs="*", metavar="MODULE:FUNCTION", help="none: ours only")
    told = "mnemonics, or ids of environments with an exact model; episodes of FrozenLake and "
    told += "its like start again (the paper's ten)"
    add("--envs", nargs="+", default=list(ENVIRONMENTS), metavar="ENV", help=told)
    told = f"features per state, among {', '.join(map(str, RHOS))} (0.19)"
    add("--rhos", **running.subset("RHO", RHOS) | {"default": [0.19], "help": told})
    number = running.at_least(1, running.MOST_TRIALS)
    add("--trials", type=number, default=10_000, help="budget of each problem (10,000)")
    ours = running.subset("NAME", list(BUILT_IN), "score these of ours as well, ")
    add("--against", **ours | {"nargs": "*"})
    running.add_arguments(parser, "--json", *running.RUN, out=Path("results/score"), seeds=5)


main = running.command(conduct, __doc__, _EXAMPLE, add_arguments)
