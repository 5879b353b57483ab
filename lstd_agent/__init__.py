"""A model-free evaluator of the bias from transient and recurrent states.

The system of seminorm LSTD approximators of Dewanto & Gallagher (arXiv:2204.04324).
`SeminormLSTDAgent` is the evaluator; the rest are its features, distances and results, a wrapper
that makes episodic environments continuing, and the base of all errors.
"""

from lstd_agent.agent import SeminormLSTDAgent
from lstd_agent.continuing import Restart
from lstd_agent.distances import MMD
from lstd_agent.errors import EvaluationError
from lstd_agent.features import GaussianFeatures, OneHot
from lstd_agent.kernels import Kernel
from lstd_agent.system import Neighborhood
from lstd_agent.vector_features import Polynomial, RadialBasis, TileCoding

__all__ = [
    "MMD",
    "EvaluationError",
    "GaussianFeatures",
    "Kernel",
    "Neighborhood",
    "OneHot",
    "Polynomial",
    "RadialBasis",
    "Restart",
    "SeminormLSTDAgent",
    "TileCoding",
]
