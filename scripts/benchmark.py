"""Measure speed and memory as ratios: the command `unichain bench`; `--help` lists its options."""

import sys

from unichain import start

if __name__ == "__main__":
    sys.exit(start("lstd_agent.benchmarks.command"))
