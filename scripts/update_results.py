"""Regenerate the pictures in docs/ and the results section of README.md; see `--help`."""

import sys
from pathlib import Path

from unichain import start

if __name__ == "__main__":
    sys.exit(start("lstd_agent.commands.update_results", Path(__file__).resolve().parent.parent))
