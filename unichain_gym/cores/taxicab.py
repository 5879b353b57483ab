"""Core ``h``: Howard's taxicab problem in the form of Hordijk, Dekker & Kallenberg (1985)."""

from enum import IntEnum

import numpy as np

from unichain_gym.cores.core import Core
from unichain_gym.mdp import TabularMDP

# Howard's first two actions in each town, with expected rewards.
P = [
    [[0.5, 0.25, 0.25], [0.0625, 0.75, 0.1875]],
    [[0.5, 0.0, 0.5], [0.0625, 0.875, 0.0625]],
    [[0.25, 0.25, 0.5], [0.125, 0.75, 0.125]],
]
R = [[8.0, 2.75], [16.0, 15.0], [7.0, 4.0]]

TaxicabAction = IntEnum("TaxicabAction", ["CRUISE", "STAND"], start=0)


def taxicab() -> TabularMDP:
    """Return core ``h``."""
    return TabularMDP.from_arrays(P, R, np.full(3, 1 / 3), name="h3")


TAXICAB = Core(
    letter="h",
    name="Howard's taxicab problem",
    build=taxicab,
    actions=TaxicabAction,
    description=(
        "A taxicab driver serves three towns. In each, the driver cruises or drives to the "
        "nearest stand. The choice decides the passengers' destination and fare."
    ),
    observations="The town: 0, 1 or 2.",
    rewards="The expected fare in the town with the action, from 2.75 to 16.",
    references=(
        "A. Hordijk, R. Dekker and L. Kallenberg. Sensitivity analysis in discounted Markovian "
        "decision problems. OR Spektrum 7, 1985.",
        "R. Howard. Dynamic programming and Markov processes. MIT Press, 1960.",
    ),
    mnemonics=("h3", "h6", "h36", "h36c", "h70", "h100"),
    state_names=("town A", "town B", "town C"),
)
