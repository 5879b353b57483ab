"""Command-line arguments that the study's scripts share."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lstd_agent.errors import MissingDependencyError
from lstd_agent.study.figures import new_figure
from lstd_agent.system.references import RULES


def add_subset_argument(
    parser: argparse.ArgumentParser, name: str, choices: Sequence[Any], what: str = ""
) -> None:
    """Add ``--names``, which takes some of the choices and has all of them by default."""
    parser.add_argument(
        f"--{name}s",
        nargs="+",
        type=type(choices[0]),
        choices=choices,
        default=list(choices),
        metavar=name.upper(),
        help=f"{what}among {', '.join(map(str, choices))} (all)",
    )


def add_reference_argument(parser: argparse.ArgumentParser) -> None:
    """Add --reference, the paper's rule by default."""
    parser.add_argument(
        "--reference",
        choices=RULES,
        default="most_common",
        help="rule for reference states (default: most_common, the paper's)",
    )


def add_run_arguments(parser: argparse.ArgumentParser, default_out: str) -> None:
    """Add --seeds, --workers, --dask and --out."""
    parser.add_argument("--seeds", type=at_least(1), default=20, help="number of seeds (20)")
    parser.add_argument("--workers", type=at_least(1), default=2, help="processes (2)")
    parser.add_argument(
        "--dask", metavar="ADDRESS", help="use the Dask cluster at this address instead"
    )
    parser.add_argument(
        "--out", type=Path, default=Path(default_out), help=f"folder of results ({default_out})"
    )


def parse_arguments(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Parse the command line, and refuse at once to work for hours towards no picture."""
    args = parser.parse_args()
    try:
        new_figure(1.0, 1.0)
    except MissingDependencyError as error:
        parser.error(str(error))
    return args


def at_least(smallest: int) -> Callable[[str], int]:
    """Return a converter of command-line text into integers from ``smallest``."""

    def integer(text: str) -> int:
        number = int(text)
        if number < smallest:
            raise argparse.ArgumentTypeError(f"must be at least {smallest}, got {number}")
        return number

    return integer
