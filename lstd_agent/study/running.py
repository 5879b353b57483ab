"""Command-line arguments that the study's scripts share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path


def add_run_arguments(parser: argparse.ArgumentParser, default_out: str) -> None:
    """Add --seeds, --workers, --dask and --out."""
    parser.add_argument("--seeds", type=at_least(1), default=20, help="number of seeds (20)")
    parser.add_argument("--workers", type=at_least(1), default=2, help="processes (2)")
    parser.add_argument(
        "--dask", metavar="ADDRESS", help="use the Dask cluster at this address instead"
    )
    parser.add_argument("--out", type=Path, default=Path(default_out), help=f"({default_out})")


def at_least(smallest: int) -> Callable[[str], int]:
    """Return a converter of command-line text into integers from ``smallest``."""

    def integer(text: str) -> int:
        number = int(text)
        if number < smallest:
            raise argparse.ArgumentTypeError(f"must be at least {smallest}, got {number}")
        return number

    return integer
