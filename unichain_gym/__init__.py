"""Unichain MDPs with exact answers, as a Gymnasium environment suite."""

from unichain_gym.chain import MarkovChain
from unichain_gym.mdp import TabularMDP
from unichain_gym.streams import attach_streams, make_mdp

__all__ = ["MarkovChain", "TabularMDP", "attach_streams", "make_mdp"]
