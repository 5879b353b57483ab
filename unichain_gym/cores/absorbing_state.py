"""Core ``x``: one absorbing state with reward 0, the end of an episodic task."""

from enum import IntEnum

import numpy as np

from unichain_gym.cores.core import Core
from unichain_gym.mdp import TabularMDP

IdleAction = IntEnum("IdleAction", ["WAIT", "IDLE"], start=0)


def absorbing_state() -> TabularMDP:
    """Return core ``x``."""
    return TabularMDP.from_arrays(np.ones((1, 2, 1)), np.zeros((1, 2)), [1.0], name="x1")


ABSORBING_STATE = Core(
    letter="x",
    name="Absorbing state",
    build=absorbing_state,
    actions=IdleAction,
    description=(
        "The end of an episodic task: an absorbing state with reward 0. "
        "Only the streams before it matter."
    ),
    observations="The one state, 0.",
    rewards="None: 0.",
    references=(),  # the paper, which every page lists
    mnemonics=("x9d", "x10"),
    state_names=("end",),
)
