"""Core ``f``: a machine that fails and is repaired in random time.

Each policy induces a renewal-reward process (Ross 1970, Barlow & Proschan 1965); the numbers are
chosen here.
"""

from enum import IntEnum

import numpy as np

from unichain_gym.cores.core import Core
from unichain_gym.mdp import TabularMDP

STATES = ("good as new", "worn", "failed")
# For each state and action: next state, probability, reward, days.
OUTCOMES = {
    (0, 0): [(1, 0.8, 100.0, 10.0), (2, 0.2, 50.0, 5.0)],
    (0, 1): [(0, 1.0, -5.0, 1.0)],
    (1, 0): [(2, 1.0, 32.0, 4.0)],
    (1, 1): [(0, 1.0, -5.0, 1.0)],
    (2, 0): [(0, 0.5, -10.0, 2.0), (0, 0.3, -20.0, 4.0), (0, 0.2, -50.0, 10.0)],
    (2, 1): [(0, 1.0, -60.0, 1.0)],
}

RepairAction = IntEnum("RepairAction", ["OWN", "CONTRACTOR"], start=0)


def random_repair() -> TabularMDP:
    """Return core ``f``."""
    rows = [(s, a, *outcome) for (s, a), listed in OUTCOMES.items() for outcome in listed]
    return TabularMDP.from_transitions(rows, np.full(3, 1 / 3), name="f3")


RANDOM_REPAIR = Core(
    letter="f",
    name="Repair in random time",
    build=random_repair,
    actions=RepairAction,
    description=(
        "A machine runs (own) until it is worn or fails, or a service (contractor) takes a day and "
        "makes it as new. A repair takes 2, 4 or 10 days with probability .5, .3 and "
        ".2 (own), or in one day (contractor). Steps take time: gains are per day."
    ),
    observations=", ".join(f"{s}: {name}" for s, name in enumerate(STATES)) + ".",
    rewards=(
        "Running earns 10 a day, and 8 a day if worn; a service costs 5, a repair 5 a day or, by "
        "the contractor, 60."
    ),
    references=(
        "R. Barlow and F. Proschan. Mathematical theory of reliability. Wiley, 1965.",
        "S. Ross. Applied probability models with optimization applications. Holden-Day, 1970.",
    ),
    mnemonics=("f3", "f18c"),
    state_names=STATES,
)
