"""Command-line arguments that several commands have."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lstd_agent.commands.running import at_least


def new_parser(
    prog: str | None, description: str | None, epilog: str | None = None
) -> argparse.ArgumentParser:
    """Return a parser that shows texts as they are written."""
    return argparse.ArgumentParser(
        prog=prog,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def read_arguments(
    parser: argparse.ArgumentParser, argv: Sequence[str] | None, called: str
) -> argparse.Namespace:
    """Return the arguments of the command line, with the line itself as ``argv``."""
    args = parser.parse_args(argv)
    args.argv = [called, *(sys.argv[1:] if argv is None else argv)]
    return args


def add_environment_argument(parser: argparse.ArgumentParser) -> None:
    """Add the id of the environment."""
    parser.add_argument(
        "env_id",
        help="Gymnasium id, mnemonic (h36c), or module:id to import a module that registers it",
    )


def add_trial_arguments(parser: argparse.ArgumentParser, work: str, exact: str) -> None:
    """Add --restart, --seed, --max-minutes (for some work), and --no-exact (of exact figures)."""
    add = parser.add_argument
    add(
        "--restart",
        action="store_true",
        help="start again where the environment terminates, which makes it continuing",
    )
    add("--seed", type=at_least(0), default=0, metavar="SEED", help="default: 0")
    add(
        "--max-minutes",
        type=float,
        default=15.0,
        metavar="M",
        help=f"refuse to begin {work} will take longer (default: 15)",
    )
    add("--no-exact", action="store_true", help=f"leave out exact {exact}")


def add_output_arguments(parser: argparse.ArgumentParser, drawn: str, printed: str) -> None:
    """Add --plot and --json."""
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help=f"draw {drawn}")
    parser.add_argument(
        "--json", action="store_true", help=f"print one JSON document instead of {printed}"
    )


def add_quiet_argument(parser: argparse.ArgumentParser) -> None:
    """Add --quiet."""
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def subset(name: str, choices: Sequence[Any], what: str = "") -> dict[str, Any]:
    """Return how an argument takes some of the choices: by default all of them."""
    return {
        "nargs": "+",
        "type": type(choices[0]),
        "choices": choices,
        "default": list(choices),
        "metavar": name,
        "help": f"{what}among {', '.join(map(str, choices))} (all)",
    }


def add_size_arguments(parser: argparse.ArgumentParser, seeds: int = 20) -> None:
    """Add --seeds and --workers."""
    parser.add_argument(
        "--seeds", type=at_least(1, 100_000), default=seeds, help=f"number of seeds ({seeds})"
    )
    parser.add_argument("--workers", type=at_least(1, 10_000), default=2, help="processes (2)")


def add_run_arguments(parser: argparse.ArgumentParser, default_out: str, seeds: int = 20) -> None:
    """Add --seeds, --workers, --dask, --out and --quiet."""
    add_size_arguments(parser, seeds)
    parser.add_argument(
        "--dask", metavar="ADDRESS", help="use the Dask cluster at this address instead"
    )
    parser.add_argument(
        "--out", type=Path, default=Path(default_out), help=f"folder of results ({default_out})"
    )
    add_quiet_argument(parser)
