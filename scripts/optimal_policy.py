"""Find an optimal policy: the command `unichain optimal`.

python scripts/optimal_policy.py Unichain-h36c-v0 --criterion bias
python scripts/optimal_policy.py --help
"""

import sys

from lstd_agent.commands.main import start

if __name__ == "__main__":
    sys.exit(start("lstd_agent.commands.optimal"))
