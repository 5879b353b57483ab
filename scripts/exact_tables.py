"""The command `unichain study exact`; `--help` lists its options."""

import sys

from lstd_agent.commands.study import main

if __name__ == "__main__":
    sys.exit(main(["exact", *sys.argv[1:]], "unichain study"))
