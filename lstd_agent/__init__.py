"""A model-free evaluator of the bias from transient and recurrent states.

The system of seminorm LSTD approximators of Dewanto & Gallagher (arXiv:2204.04324).
`SeminormLSTDAgent` is the evaluator; the rest are its features, distances, backups and results, a
wrapper that makes episodic environments continuing, the base of all errors, and the warning of a
fit that may be far off.
"""

from lstd_agent.agent import SeminormLSTDAgent
from lstd_agent.errors import EvaluationError, FitWarning
from lstd_agent.features.kernels import Kernel
from lstd_agent.features.tables import GaussianFeatures, OneHot
from lstd_agent.features.vectors import Polynomial, RadialBasis, TileCoding
from lstd_agent.statistics.backups import LambdaReturn, MultiStep
from lstd_agent.system.distances import MMD
from lstd_agent.system.fit_system import Neighborhood
from lstd_agent.trials.restart import Restart

__all__ = [
    "MMD",
    "EvaluationError",
    "FitWarning",
    "GaussianFeatures",
    "Kernel",
    "LambdaReturn",
    "MultiStep",
    "Neighborhood",
    "OneHot",
    "Polynomial",
    "RadialBasis",
    "Restart",
    "SeminormLSTDAgent",
    "TileCoding",
]
