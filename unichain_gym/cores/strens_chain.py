"""Core ``c``: the five-state chain of Strens (2000)."""

from enum import IntEnum

import numpy as np

from unichain_gym.cores.core import Core
from unichain_gym.mdp import TabularMDP

N_STATES = 5
SLIP = 0.2  # probability of the other action's move
REWARD_BACK = 2.0
REWARD_AT_END = 10.0

ChainAction = IntEnum("ChainAction", ["FORWARD", "BACK"], start=0)


def strens_chain() -> TabularMDP:
    """Return core ``c``."""
    P = np.zeros((N_STATES, 2, N_STATES))
    R = np.zeros((N_STATES, 2, N_STATES))
    for s in range(N_STATES):
        forward = min(s + 1, N_STATES - 1)
        for action, p_forward in ((ChainAction.FORWARD, 1.0 - SLIP), (ChainAction.BACK, SLIP)):
            P[s, action, forward] += p_forward
            P[s, action, 0] += 1.0 - p_forward
        R[s, :, 0] = REWARD_BACK
        R[s, :, forward] = REWARD_AT_END if s == N_STATES - 1 else 0.0
    initial = np.full(N_STATES, 1 / N_STATES)
    return TabularMDP.from_arrays(P, R, initial, name=f"c{N_STATES}")


STRENS_CHAIN = Core(
    letter="c",
    name="Strens' chain problem",
    build=strens_chain,
    actions=ChainAction,
    description=(
        f"A chain of {N_STATES} states. Going forward moves one state on, and stays in the last "
        "one; going back returns to the first. With probability "
        f"{SLIP} an action slips and has the effect of the other action."
    ),
    observations="The place in the chain, from 0.",
    rewards=(
        f"Going back pays {REWARD_BACK:g}, going forward {REWARD_AT_END:g} in the last state and "
        "0 elsewhere."
    ),
    references=("M. Strens. A Bayesian framework for reinforcement learning. ICML, 2000.",),
    mnemonics=("c5", "c10", "c35", "c35c", "c75", "c100"),
)
