"""The command `unichain study control`; `--help` lists its options."""

import sys

from lstd_agent.commands.study import main

if __name__ == "__main__":
    sys.exit(main(["control", *sys.argv[1:]], "unichain study"))
