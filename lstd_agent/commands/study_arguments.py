"""Command-line arguments that the study's commands share."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lstd_agent.commands.running import at_least
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


def add_run_arguments(parser: argparse.ArgumentParser, default_out: str, seeds: int = 20) -> None:
    """Add --seeds, --workers, --dask, --out and --quiet."""
    parser.add_argument(
        "--seeds", type=at_least(1, 100_000), default=seeds, help=f"number of seeds ({seeds})"
    )
    parser.add_argument("--workers", type=at_least(1, 10_000), default=2, help="processes (2)")
    parser.add_argument(
        "--dask", metavar="ADDRESS", help="use the Dask cluster at this address instead"
    )
    parser.add_argument(
        "--out", type=Path, default=Path(default_out), help=f"folder of results ({default_out})"
    )
    parser.add_argument("--quiet", action="store_true", help="show no progress")
