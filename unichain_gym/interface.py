"""The types of annotations: arrays, whose shapes docstrings give, and classes.

An MDP induces chains, and a chain refers to its MDP. Algorithms of both use these names of classes,
which are known to checkers alone, so that imports at run time are not circular.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from unichain_gym.chain import MarkovChain as RewardProcess
    from unichain_gym.mdp import TabularMDP as OutcomeModel
    from unichain_gym.optimal import OptimalPolicy
else:
    OptimalPolicy = OutcomeModel = RewardProcess = object

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

__all__ = ["BoolArray", "FloatArray", "IntArray", "OptimalPolicy", "OutcomeModel", "RewardProcess"]
