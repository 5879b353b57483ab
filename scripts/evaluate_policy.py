"""Evaluate a policy from sampled trials: the command `unichain evaluate`.

python scripts/evaluate_policy.py Unichain-h36c-v0
python scripts/evaluate_policy.py --help
"""

import sys

from lstd_agent.commands.main import start

if __name__ == "__main__":
    sys.exit(start("lstd_agent.commands.evaluate"))
