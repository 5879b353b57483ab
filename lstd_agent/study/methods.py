"""Methods to score others beside: ours, the paper's, and the baseline of all.

A *method* is a callable ``method(env, policy, budget, seed)``, with a keyword ``features`` if it
uses any; `lstd_agent.study.score` says what it gets and returns.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from lstd_agent.agent import SeminormLSTDAgent
from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.errors import FitWarning
from lstd_agent.features.tables import OneHot
from lstd_agent.study.budget import Budget, BudgetedEnv

Method = Callable[..., Any]


def certainty_equivalence(
    env: BudgetedEnv, policy: IntArray, budget: Budget, seed: int
) -> tuple[FloatArray, float]:
    """Solve the model that the transitions of all trials together make up, without features."""
    agent = SeminormLSTDAgent(OneHot(), n_anchors=1, backup="model")
    return _answer(agent, env, policy, budget, seed)


def linked(
    env: BudgetedEnv, policy: IntArray, budget: Budget, seed: int, *, features: FloatArray
) -> tuple[FloatArray, float]:
    """Two neighbourhoods by our defaults: solved backwards in time."""
    return _answer(SeminormLSTDAgent(features), env, policy, budget, seed)


def paper(
    env: BudgetedEnv, policy: IntArray, budget: Budget, seed: int, *, features: FloatArray
) -> tuple[FloatArray, float]:
    """Two neighbourhoods by the paper's rules."""
    return _answer(SeminormLSTDAgent.paper(features), env, policy, budget, seed)


BUILT_IN: dict[str, Method] = {
    method.__name__: method for method in (certainty_equivalence, linked, paper)
}
"""By name; the first is what scores are multiples of."""


def _answer(
    agent: SeminormLSTDAgent, env: BudgetedEnv, policy: IntArray, budget: Budget, seed: int
) -> tuple[FloatArray, float]:
    """Collect, fit, and return values of shape (t_max + 1, S), and the gain."""
    agent.collect(env, policy, budget.n_trials, t_max=budget.t_max, seed=seed, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)  # the score says how far off the values are
        agent.fit()
    states = np.arange(len(policy))
    by_neighborhood = [agent.predict(states, k.anchor) for k in agent.neighborhoods_]
    at = agent.system_.neighborhood_at(np.arange(budget.t_max + 1))
    return np.array(by_neighborhood)[at], agent.gain_
