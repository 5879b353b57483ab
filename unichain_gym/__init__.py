"""Unichain MDPs with exact answers, as a Gymnasium environment suite.

Importing the package registers its environments. `make_mdp` makes one of its MDPs by mnemonic,
`TabularMDP` makes your own, `attach_streams` puts transient states in front of an MDP, and
``mdp.induce(policy)`` is a `MarkovChain`, which computes exact answers. `TabularEnv` and
`TabularVectorEnv` step any `TabularMDP`. The other classes are results of their methods.
"""

from unichain_gym.chain import MarkovChain
from unichain_gym.env import TabularEnv
from unichain_gym.errors import UnichainError
from unichain_gym.mdp import TabularMDP
from unichain_gym.optimal import OptimalPolicy
from unichain_gym.policies import DeterministicPolicies
from unichain_gym.population import TransitionCounts, simulate_counts
from unichain_gym.rewards import HorizonPolicy
from unichain_gym.solver_report import SolverReport
from unichain_gym.suite import (
    UnichainEnv,
    UnichainVectorEnv,
    attach_streams,
    make_mdp,
    register_envs,
    register_mnemonics,
)
from unichain_gym.summary import Classification
from unichain_gym.trajectory import Trajectory
from unichain_gym.vector_env import TabularVectorEnv

__version__ = "0.1.0"

__all__ = [
    "Classification",
    "DeterministicPolicies",
    "HorizonPolicy",
    "MarkovChain",
    "OptimalPolicy",
    "SolverReport",
    "TabularEnv",
    "TabularMDP",
    "TabularVectorEnv",
    "Trajectory",
    "TransitionCounts",
    "UnichainEnv",
    "UnichainError",
    "UnichainVectorEnv",
    "attach_streams",
    "make_mdp",
    "register_mnemonics",
    "simulate_counts",
]

register_envs()
