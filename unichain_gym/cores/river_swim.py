"""Core ``r``: RiverSwim, a swim against the current to a distant reward.

The task comes from Strehl & Littman (2008), the numbers from Osband, Russo & Van Roy (2013).
"""

from enum import IntEnum

import numpy as np

from unichain_gym.cores.core import Core
from unichain_gym.errors import InvalidModelError
from unichain_gym.mdp import TabularMDP
from unichain_gym.outcomes import require_integers

N_STATES = 6
UP, DOWN = 0.35, 0.05  # probabilities of swimming right; otherwise the swimmer stays
UP_AT_START, DOWN_AT_END = 0.6, 0.4
REWARD_AT_START, REWARD_AT_END = 0.005, 1.0

SwimAction = IntEnum("SwimAction", ["LEFT", "RIGHT"], start=0)


def river_swim(n_states: int = N_STATES) -> TabularMDP:
    """Return core ``r``.

    Parameters
    ----------
    n_states : int
        Length of the river, at least 2.
    """
    require_integers(InvalidModelError, n_states=n_states)
    if n_states < 2:
        raise InvalidModelError(f"RiverSwim needs n_states of at least 2; got {n_states}")
    left, right = SwimAction.LEFT, SwimAction.RIGHT
    up, down = np.full(n_states, UP), np.full(n_states, DOWN)
    up[0], down[0] = UP_AT_START, 0.0
    up[-1], down[-1] = 0.0, DOWN_AT_END
    P = np.zeros((n_states, 2, n_states))
    state = np.arange(n_states)
    P[state, left, np.maximum(state - 1, 0)] = 1.0
    P[:, right] = np.diag(1.0 - up - down) + np.diag(up[:-1], 1) + np.diag(down[1:], -1)
    R = np.zeros((n_states, 2))
    R[0, left], R[-1, right] = REWARD_AT_START, REWARD_AT_END
    return TabularMDP.from_arrays(P, R, np.full(n_states, 1 / n_states), name=f"r{n_states}")


RIVER_SWIM = Core(
    letter="r",
    name="RiverSwim",
    build=river_swim,
    actions=SwimAction,
    description=(
        "A swimmer in a river. Left, with the current, always moves one state down, or stays in "
        f"the first. Right moves up with probability {UP} and down with {DOWN}, and stays "
        f"otherwise; from the first state it moves up with {UP_AT_START}, and from the last down "
        f"with {DOWN_AT_END}."
    ),
    observations="The place in the river, from 0; the last is farthest against the current.",
    rewards=(
        f"Left pays {REWARD_AT_START} in the first state, right {REWARD_AT_END:g} in the last; "
        "all other rewards are 0."
    ),
    references=(
        "A. Strehl and M. Littman. An analysis of model-based interval estimation for Markov "
        "decision processes. Journal of Computer and System Sciences 74, 2008.",
        "I. Osband, D. Russo and B. Van Roy. (More) efficient reinforcement learning via "
        "posterior sampling. NeurIPS, 2013.",
    ),
    mnemonics=("r6", "r16", "r36c"),
)
