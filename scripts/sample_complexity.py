"""The command `unichain study complexity`; `--help` lists its options."""

import sys

from lstd_agent.commands.study import main

if __name__ == "__main__":
    sys.exit(main(["complexity", *sys.argv[1:]], "unichain study"))
