"""Gymnasium's toy-text tasks, made continuing, against the exact values of their models."""

from __future__ import annotations

from copy import copy
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

from lstd_agent import OneHot, Restart, SeminormLSTDAgent
from lstd_agent.errors import FitWarning
from unichain_gym import TabularMDP


def continuing(name: str, **options: Any) -> tuple[Any, TabularMDP]:
    """Return copies of a task that starts again where it would end, and its model."""
    env = gym.make(name, max_episode_steps=-1, disable_env_checker=True, **options)
    mdp = TabularMDP.from_gymnasium(env, on_termination="restart")
    return SyncVectorEnv([lambda: Restart(copy(env.unwrapped))] * 100), mdp


def z_scores(agent: SeminormLSTDAgent, chain: Any, at_least: int) -> Any:
    """Errors in standard errors, of states that were visited often enough."""
    counts = agent.counts
    shape = counts.n_states, counts.n_states
    visits = counts.transition_counts.sum(axis=0).reshape(shape).sum(axis=1)
    states = np.flatnonzero(visits >= at_least)
    states = states[states != agent.main_reference_]
    exact = chain.bias - chain.bias[agent.main_reference_]
    assert states.size >= 10
    return (agent.predict(states) - exact[states]) / agent.standard_errors(states)


@pytest.mark.slow
@pytest.mark.parametrize("slippery", [True, False])
def test_frozen_lake_has_the_values_of_its_model(slippery: bool) -> None:
    env, mdp = continuing("FrozenLake-v1", is_slippery=slippery)
    policy = np.full((16, 4), 0.25)
    agent = SeminormLSTDAgent(OneHot(), 1)
    agent.collect(env, policy, n_trials=1000, t_max=59, seed=0).fit()
    chain = mdp.induce(policy)
    assert agent.gain_ == pytest.approx(chain.gain, rel=0.25)
    # Student's t with 19 degrees of freedom, at most 15 states: beyond 6 once in 10⁴ runs.
    assert np.abs(z_scores(agent, chain, 250)).max() < 6


def good_policy(mdp: TabularMDP) -> Any:
    """Act by 100 steps of value iteration, and at random one time in ten."""
    value = np.zeros(mdp.n_states)
    for _ in range(100):
        action_value = (mdp.probability * (mdp.reward + value[mdp.next_state])).sum(axis=2)
        value = action_value.max(axis=1)
    best = action_value.argmax(axis=1)
    return 0.9 * np.eye(mdp.n_actions)[best] + 0.1 / mdp.n_actions


@pytest.mark.slow
def test_taxi_has_the_values_of_its_model() -> None:
    env, mdp = continuing("Taxi-v4" if "Taxi-v4" in gym.registry else "Taxi-v3")
    policy = good_policy(mdp)
    chain = mdp.induce(policy)
    agent = SeminormLSTDAgent(OneHot(), 1, gain=chain.gain)
    agent.collect(env, policy, n_trials=1500, t_max=39, seed=0)
    with pytest.warns(FitWarning, match=r"starts .* fewer than 10 samples"):
        agent.fit()
    z = z_scores(agent, chain, 150)
    # Some hundred states, together off by as much as Student's t is: variance 14/12.
    assert z.size > 100
    assert np.abs(z).max() < 7
    assert np.mean(z**2) < 2.0
