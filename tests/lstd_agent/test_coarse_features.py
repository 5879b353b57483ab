"""Features that cannot represent the values of counted states: the pooled model tells."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unichain_gym
from lstd_agent import OneHot, SeminormLSTDAgent
from lstd_agent.errors import FitWarning
from lstd_agent.standard_errors import quantile_of_t

RNG = np.random.default_rng(5)
POLICY = RNG.integers(0, 2, 10)
CHAIN = unichain_gym.make_mdp("c10").induce(POLICY)
COARSE = RNG.normal(np.arange(10)[:, None], 1.0, (10, 3))
EXACT = np.column_stack([CHAIN.bias, COARSE])


def fitted(features: Any, n_trials: int = 300, **options: Any) -> SeminormLSTDAgent:
    env = unichain_gym.UnichainVectorEnv(100, "c10")
    agent = SeminormLSTDAgent(features, **options)
    return agent.collect(env, POLICY, n_trials=n_trials, t_max=300, seed=0).fit()


@pytest.mark.parametrize("options", [{}, {"n_anchors": 1}, {"backup": "model"}])
@pytest.mark.parametrize("n_trials", [300, 3000])
def test_values_by_coarse_features_are_warned_of_and_as_uncertain_as_they_are_wrong(
    n_trials: int, options: dict[str, Any]
) -> None:
    with pytest.warns(FitWarning, match="the features do not suffice"):
        agent = fitted(COARSE, n_trials, **options)
    reach = quantile_of_t(0.999, 19)
    for s in range(1, 5):  # where trials start
        found = agent.compare(s, 0, t=0)
        right = CHAIN.bias[s] - CHAIN.bias[0]
        assert abs(found.difference - right) < reach * found.standard_error
    off = agent.predict(np.arange(5), 0) - (CHAIN.bias[:5] - CHAIN.bias[agent.main_reference_])
    assert (np.abs(off) < reach * agent.standard_errors(np.arange(5), 0)).all()
    assert abs(agent.start_bias_ - CHAIN.initial_distribution @ CHAIN.bias) < (
        reach * agent.start_bias_error_
    )


@pytest.mark.parametrize("features", [OneHot(), EXACT])
def test_features_that_suffice_change_no_value_beyond_noise(features: Any) -> None:
    for n_trials in (100, 300, 3000):
        agent = fitted(features, n_trials)
        assert agent.diagnostics().bent == 0.0
        found = agent.compare(4, 0, t=0)
        assert found.standard_error < 3.0 * fitted(OneHot(), n_trials).compare(4, 0).standard_error
