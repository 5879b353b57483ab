"""Score a method of your own: the command `unichain score`.

python scripts/score.py my_package:my_method
python scripts/score.py --help
"""

import sys

from lstd_agent.commands.main import start

if __name__ == "__main__":
    sys.exit(start("lstd_agent.commands.score"))
