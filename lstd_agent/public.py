"""Every public name of `lstd_agent`, and where it is defined."""

from lstd_agent.actions.advantages import Undecided
from lstd_agent.actions.policy_iteration import PolicyIteration
from lstd_agent.actions.record import Iteration
from lstd_agent.agent import SeminormLSTDAgent
from lstd_agent.backups import LambdaReturn, MultiStep
from lstd_agent.diagnostics import Diagnostics
from lstd_agent.errors import EvaluationError, FitWarning
from lstd_agent.features.fourier import FourierBasis, RandomFourier
from lstd_agent.features.kernels import Kernel
from lstd_agent.features.standardized import Standardized
from lstd_agent.features.tables import GaussianFeatures, OneHot
from lstd_agent.features.vectors import Polynomial, RadialBasis, TileCoding
from lstd_agent.fit import Comparison
from lstd_agent.system.approximators import Neighborhood, System
from lstd_agent.system.distances import MMD
from lstd_agent.system.selection import Choice
from lstd_agent.trials.collect import Restart
from lstd_agent.trials.counts import TransitionCounts
from lstd_agent.trials.kept import KeptTrials
from lstd_agent.trials.logged import LoggedTrials

__all__ = [
    "MMD",
    "Choice",
    "Comparison",
    "Diagnostics",
    "EvaluationError",
    "FitWarning",
    "FourierBasis",
    "GaussianFeatures",
    "Iteration",
    "KeptTrials",
    "Kernel",
    "LambdaReturn",
    "LoggedTrials",
    "MultiStep",
    "Neighborhood",
    "OneHot",
    "PolicyIteration",
    "Polynomial",
    "RadialBasis",
    "RandomFourier",
    "Restart",
    "SeminormLSTDAgent",
    "Standardized",
    "System",
    "TileCoding",
    "TransitionCounts",
    "Undecided",
]
