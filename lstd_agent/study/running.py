"""Command-line arguments that the study's scripts share."""

from __future__ import annotations

import argparse
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from pathlib import Path

from lstd_agent.parallel import open_executor


def add_run_arguments(parser: argparse.ArgumentParser, default_out: str) -> None:
    """Add --seeds, --workers, --dask and --out."""
    parser.add_argument("--seeds", type=_at_least_one, default=20, help="number of seeds (20)")
    parser.add_argument("--workers", type=_at_least_one, default=2, help="processes (2)")
    parser.add_argument(
        "--dask", metavar="ADDRESS", help="use the Dask cluster at this address instead"
    )
    parser.add_argument("--out", type=Path, default=Path(default_out), help=f"({default_out})")


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def opened_executor(args: argparse.Namespace) -> AbstractContextManager[Executor | None]:
    """Return a context that yields the executor of --dask, or None for processes of our own."""
    return open_executor(args.dask)
