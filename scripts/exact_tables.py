"""The command `unichain study exact`; `--help` lists its options."""

import sys

from unichain import start

if __name__ == "__main__":
    sys.exit(start("lstd_agent.commands.study", ["exact", *sys.argv[1:]], "unichain study"))
