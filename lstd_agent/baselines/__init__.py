"""Established estimators of the bias, to compare with: from the same counts or kept trials."""

from lstd_agent.baselines.estimators import (
    average_reward_lstd,
    certainty_equivalence,
    differential_td,
    discounted_lstd,
    monte_carlo,
)
from lstd_agent.baselines.traces import LinearValue

__all__ = [
    "LinearValue",
    "average_reward_lstd",
    "certainty_equivalence",
    "differential_td",
    "discounted_lstd",
    "monte_carlo",
]
