"""Regenerate docs/results.md, docs/side_by_side.md and the pictures in docs/; see `--help`."""

import sys
from pathlib import Path

from lstd_agent.commands.main import start

if __name__ == "__main__":
    sys.exit(start("study.pages", Path(__file__).resolve().parent.parent))
