"""``python -m lstd_agent`` is the command `unichain`."""

import sys

from lstd_agent.commands.main import main

if __name__ == "__main__":
    sys.exit(main())
