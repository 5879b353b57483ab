"""The types for annotations, without importing the classes.

An MDP induces chains, and a chain refers to its MDP. Algorithms of both use these names, so that
imports at run time are not circular.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unichain_gym.chain import MarkovChain as RewardProcess
    from unichain_gym.mdp import TabularMDP as OutcomeModel
    from unichain_gym.optimal import OptimalPolicy
else:
    OptimalPolicy = OutcomeModel = RewardProcess = object

__all__ = ["OptimalPolicy", "OutcomeModel", "RewardProcess"]
