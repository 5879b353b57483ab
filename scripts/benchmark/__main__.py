"""Measure speed and memory as ratios: `python scripts/benchmark`; `--help` lists the options."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])  # where the package `benchmark` is

from lstd_agent.commands.main import start  # noqa: E402

if __name__ == "__main__":
    sys.exit(start("benchmark.command"))
