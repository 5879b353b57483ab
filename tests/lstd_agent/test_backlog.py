"""A queue that starts full: the start is what an evaluator of the bias is for."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from lstd_agent import OneHot, SeminormLSTDAgent
from unichain_gym import TabularMDP, TabularVectorEnv

CAPACITY = 12


def queue() -> TabularMDP:
    """One arrives with probability 0.4, the fast server (action 1) costs 2 a step."""
    S = CAPACITY + 1
    P = np.zeros((S, 2, S))
    R = -np.arange(S, dtype=float)[:, None] - [0.0, 2.0]
    for n in range(S):
        for action, served in enumerate((0.5, 0.8)):
            for arrivals, p in ((0, 0.6), (1, 0.4)):
                for departures, q in ((0, 1.0 - served), (1, served)):
                    after = min(max(n + arrivals - departures, 0), CAPACITY)
                    P[n, action, after] += p * q
    return TabularMDP.from_arrays(P, R, np.eye(S)[CAPACITY])


def test_the_default_agent_knows_the_value_of_a_backlog() -> None:
    mdp = queue()
    policy = (np.arange(mdp.n_states) >= 6).astype(int)
    agent = SeminormLSTDAgent(OneHot())
    agent.collect(TabularVectorEnv(mdp, 300), policy, 6000, 200, seed=0).fit()
    assert len(agent.neighborhoods_) == 2
    exact = mdp.induce(policy).relative_value(agent.main_reference_)
    assert np.ptp(exact) > 180.0
    assert_allclose(agent.predict(np.arange(mdp.n_states)), exact, atol=3.0)


@pytest.mark.parametrize("n_anchors", [1, 2, None])
def test_a_start_that_a_single_neighborhood_holds_is_not_lost(n_anchors: int | None) -> None:
    mdp = queue()
    policy = np.ones(mdp.n_states, dtype=int)
    agent = SeminormLSTDAgent(OneHot(), n_anchors, distance=lambda p, q: 0.0)
    agent.collect(TabularVectorEnv(mdp, 50), policy, 1000, 100, seed=0).fit()
    found = agent.compare(CAPACITY, 0)
    chain = mdp.induce(policy)
    exact = chain.bias[CAPACITY] - chain.bias[0]
    assert abs(found.difference - exact) < 5 * found.standard_error
    assert found.standard_error < 0.05 * abs(exact)
