"""The command `unichain score`: anybody's methods on problems with exact answers.

A method is a function method(env, policy, budget, seed) of a module, written module:function; it
returns values of states, or values and the gain. Modules are looked for here first. Rows are kept
as they are computed: the same command, given again after an interrupt, does what is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from lstd_agent.commands.arguments import (
    add_run_arguments,
    new_parser,
    read_arguments,
    subset,
)
from lstd_agent.commands.outputs import put_out
from lstd_agent.commands.running import MOST_TRIALS, at_least, run
from lstd_agent.commands.study import as_bytes, one_thread_each, rows_kept
from lstd_agent.errors import InvalidInputError
from lstd_agent.study.methods import BUILT_IN, Method
from lstd_agent.study.provenance import provenance
from lstd_agent.study.schemes import ENVIRONMENTS, RHOS
from lstd_agent.study.scoring import score
from lstd_agent.study.tables import csv_text
from lstd_agent.trials.parallel import open_executor

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
    add_run_arguments(parser, default_out="results/score")
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
        facts = provenance(args.argv, seeds=f"0 to {args.seeds - 1}")
        contents = {
            "scores.md": as_bytes("scores.md", str(scores), facts),
            "score_rows.csv": csv_text(scores.rows).encode(),
            "provenance.json": (json.dumps(facts, indent=1) + "\n").encode(),
        }
        put_out(str(scores), {args.out / name: content for name, content in contents.items()})
    print(f"Tables and raw rows are in {args.out}{os.sep}")
    return 0


def _named(text: str) -> tuple[str, Method]:
    """Import a method; it is called by what follows the colon."""
    module, _, name = text.partition(":")
    # As for `python -m`: the module may be in the folder where the command was given.
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = import_module(module)
    except Exception as error:
        raise InvalidInputError(
            f"cannot import {module} of {text!r}: {type(error).__name__}: {error}"
        ) from error
    method = getattr(found, name, None)
    if not callable(method):
        raise InvalidInputError(
            f"{text!r} is no method: write module:function, such as my_package:my_method"
        )
    return name, method
