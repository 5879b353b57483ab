"""Core ``m``: when to replace a machine that deteriorates.

The problem is described by Puterman (1994). The numbers, with the cost of each policy, are the
prototype example in the chapter on Markov decision processes of Hillier & Lieberman.
"""

from enum import IntEnum

import numpy as np

from unichain_gym.cores.core import Core
from unichain_gym.mdp import TabularMDP

STATES = ("good as new", "minor wear", "major wear", "inoperable")
WEAR = np.array([[0, 14, 1, 1], [0, 12, 2, 2], [0, 0, 8, 8]]) / 16  # under the action keep
# Thousands a week, by state and action: running in wear 0, 1 or 2, an overhaul, a replacement.
COST = np.array([[0, 0, 0], [1, 1, 6], [3, 4, 6], [6, 6, 6]])

MachineAction = IntEnum("MachineAction", ["KEEP", "OVERHAUL", "REPLACE"], start=0)


def machine_replacement() -> TabularMDP:
    """Return core ``m``."""
    new, minor = np.eye(4)[0], np.eye(4)[1]
    P = [
        [WEAR[0], WEAR[0], WEAR[0]],
        [WEAR[1], WEAR[1], new],
        [WEAR[2], minor, new],
        [new, new, new],
    ]
    return TabularMDP.from_arrays(P, -COST, np.full(4, 1 / 4), name="m4")


MACHINE_REPLACEMENT = Core(
    letter="m",
    name="Machine replacement",
    build=machine_replacement,
    actions=MachineAction,
    description=(
        "A machine wears out. Each week it is kept running, overhauled (back to minor wear) or "
        "replaced (back to good as new). Only major wear allows an overhaul, a new machine "
        "cannot be replaced, and an inoperable one must be. A forbidden action has the effect "
        "keep, keep or replace, in this order."
    ),
    observations=", ".join(f"{s}: {name}" for s, name in enumerate(STATES)) + ".",
    rewards=(
        "Minus the cost of the week in thousands: running with minor wear 1 and with major wear "
        "3, an overhaul 4, a replacement 6."
    ),
    references=(
        "M. Puterman. Markov decision processes. Wiley, 1994.",
        "F. Hillier and G. Lieberman. Introduction to operations research. McGraw-Hill.",
    ),
    mnemonics=("m4", "m16", "m34c"),
    state_names=STATES,
)
