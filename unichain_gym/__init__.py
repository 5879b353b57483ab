"""Unichain MDPs with exact answers, as a Gymnasium environment suite."""

from unichain_gym.chain import MarkovChain
from unichain_gym.env import TabularEnv, UnichainEnv
from unichain_gym.mdp import TabularMDP
from unichain_gym.registration import register_envs
from unichain_gym.streams import attach_streams, make_mdp
from unichain_gym.vector_env import TabularVectorEnv, UnichainVectorEnv

__all__ = [
    "MarkovChain",
    "TabularEnv",
    "TabularMDP",
    "TabularVectorEnv",
    "UnichainEnv",
    "UnichainVectorEnv",
    "attach_streams",
    "make_mdp",
]

register_envs()
