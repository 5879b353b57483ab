"""Measure speed and memory as ratios: the command `unichain bench`; `--help` lists its options."""

import sys

from lstd_agent.benchmarks.command import main

if __name__ == "__main__":
    sys.exit(main())
