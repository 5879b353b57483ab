"""The effect of our rules; `--help` lists the options."""

import sys

from lstd_agent.commands.main import start

if __name__ == "__main__":
    sys.exit(start("study.studies", "references"))
