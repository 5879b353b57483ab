"""Regenerate the pictures in docs/ and the results section of README.md; see `--help`."""

import sys
from pathlib import Path

from lstd_agent.commands.update_results import main

if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parent.parent))
