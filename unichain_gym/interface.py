"""The types that algorithms name in annotations, without importing the classes.

An MDP induces chains, and a chain knows the MDP it comes from. The algorithms of either only ask
what they are given, and know it by these names, so that imports go one way when the package runs.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unichain_gym.chain import MarkovChain as RewardProcess
    from unichain_gym.mdp import TabularMDP as OutcomeModel
    from unichain_gym.optimal import OptimalPolicy
else:
    OptimalPolicy = OutcomeModel = RewardProcess = object

__all__ = ["OptimalPolicy", "OutcomeModel", "RewardProcess"]
