"""Score a method of your own: the command `unichain score`.

python scripts/score.py my_package:my_method
python scripts/score.py --help
"""

import sys

from lstd_agent.commands.score import main

if __name__ == "__main__":
    sys.exit(main())
