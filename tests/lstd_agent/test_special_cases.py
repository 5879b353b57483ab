"""Existing methods are the system with one or two neighbourhoods (section ``unify_existing``).

Each is written down here on its own, from its own article's equations, and held to the system.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from numpy.testing import assert_allclose

from lstd_agent import SeminormLSTDAgent
from lstd_agent.problems import ChainRows
from lstd_agent.rows.factors import Segments, factor_of
from lstd_agent.system.linked import SingleSteps, solve_linked, solve_window, zero_of
from unichain_gym import make_mdp


def random_problem(mnemonic: str, d: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(3)
    mdp = make_mdp(mnemonic)
    chain = mdp.induce(rng.integers(mdp.n_actions, size=mdp.n_states))
    return chain, rng.normal(size=(mdp.n_states, d))


@pytest.mark.parametrize(("mnemonic", "d"), [("h3", 1), ("h3", 2), ("c5", 2), ("c5", 4)])
def test_one_neighborhood_on_p_star_is_average_reward_lstd(mnemonic: str, d: int) -> None:
    """Yu & Bertsekas (2009): w = X⁻¹ y of the stationary distribution."""
    chain, F = random_problem(mnemonic, d)
    P, r = chain.transition_matrix.toarray(), chain.reward
    left = np.linalg.eig(P.T)
    p = np.real(left.eigenvectors[:, np.argmax(left.eigenvalues.real)])
    p /= p.sum()
    X = F.T @ np.diag(p) @ (np.eye(len(p)) - P) @ F
    y = F.T @ np.diag(p) @ (r - p @ r)
    w = np.linalg.solve(X, y)
    source = ChainRows(chain, chain.stepwise_distributions(400), F)
    for start, stop in ((200, 401), (401, 402)):  # the settled tail, and p* itself
        factor = factor_of(source.merged(start, stop))
        found = solve_window(source, factor.above(chain.gain)).weights
        in_features = source.coordinates.of_features(np.vstack((found, np.zeros((1, 1)))))
        assert_allclose(in_features[:-1, 0], w, rtol=1e-8)


@pytest.mark.parametrize("d", [1, 3, 5])
def test_one_neighborhood_without_the_terminal_state_is_transient_lstd(d: int) -> None:
    """Bradtke & Barto (1996), undiscounted: X and y over visits of transient states alone."""
    chain, F = random_problem("x9d", d)
    transient = chain.transient_states
    end = chain.recurrent_states
    Q = chain.transition_matrix.toarray()[np.ix_(transient, transient)]
    r = chain.reward[transient]
    visits = np.linalg.solve(np.eye(len(Q)) - Q.T, chain.initial_distribution[transient])
    f = F[transient]
    w = np.linalg.solve(f.T @ np.diag(visits) @ (f - Q @ f), f.T @ (visits * r))
    # The system: zero features in the terminal state, whose value 0 is known, and gain 0.
    F[end] = 0.0
    t_max = chain.max_absorption_time(1e-15)
    source = ChainRows(chain, chain.stepwise_distributions(t_max), F, int(end[0]))
    anchors = np.array([0])
    segments = Segments.of(source, anchors)
    equations = SingleSteps(source, segments, np.zeros(1))
    [[[found]]] = solve_linked(source, equations, anchors, zero_of(source, segments, 0))
    in_features = source.coordinates.of_features(found.columns)[:, 0]
    assert_allclose(in_features[:-1], w, rtol=1e-8)
    assert in_features[-1] == pytest.approx(0.0, abs=1e-12)


def recorded(mnemonic: str, policy: Any, n: int, t_max: int) -> tuple[Any, Any]:
    env = gym.make_vec(f"unichain_gym:Unichain-{mnemonic}-v0", num_envs=n)
    states, rewards = [env.reset(seed=7)[0]], []
    for _ in range(t_max + 1):
        following, reward, *_ = env.step(policy[states[-1]])
        states.append(following)
        rewards.append(reward)
    return np.array(states), np.array(rewards)


def lstd_of_samples(f: Any, g: Any, r: Any) -> Any:
    """X⁻¹ y of samples: features, next features and excess rewards, one row each."""
    return np.linalg.solve(f.T @ (f - g), f.T @ r)


def observed(agent: SeminormLSTDAgent, states: Any, rewards: Any, *ended: Any) -> Any:
    for t in range(len(rewards)):
        agent.observe(t, states[t], rewards[t], states[t + 1], *(e[t] for e in ended))
    agent.end_trial()
    return agent.fit()


# Weights are what counts; a few random features cannot hold the values.
@pytest.mark.filterwarnings("ignore::lstd_agent.errors.FitWarning")
@pytest.mark.parametrize("mnemonic", ["h3", "c5"])
def test_the_average_reward_constructor_is_lstd_on_settled_samples(mnemonic: str) -> None:
    chain, F = random_problem(mnemonic, 2)
    states, rewards = recorded(mnemonic, chain.policy.argmax(axis=1), 200, 99)
    agent = observed(SeminormLSTDAgent.average_reward(F), states, rewards)
    late = slice(50, 100)
    r = rewards[late] - rewards[late].mean()
    w = lstd_of_samples(F[states[late]].reshape(-1, 2), F[states[51:101]].reshape(-1, 2), r.ravel())
    assert len(agent.neighborhoods_) == 1
    assert_allclose(agent.system_.weights[0], w, rtol=1e-8)
    assert agent.gain_ == pytest.approx(rewards[late].mean(), rel=1e-12)


@pytest.mark.filterwarnings("ignore::lstd_agent.errors.FitWarning")
def test_the_transient_constructor_is_lstd_on_samples_before_the_end() -> None:
    chain, F = random_problem("x9d", 3)
    states, rewards = recorded("x9d", chain.policy.argmax(axis=1), 300, 150)
    end = int(chain.recurrent_states[0])
    over = states == end
    assert over[-1].all()
    agent = SeminormLSTDAgent.transient(F).attach(gym.make("unichain_gym:Unichain-x9d-v0"))
    observed(agent, states, rewards, over[1:] & ~over[:-1])
    going = ~over[:-1]
    zeroed = F.copy()
    zeroed[end] = 0.0
    w = lstd_of_samples(F[states[:-1][going]], zeroed[states[1:][going]], rewards[going])
    assert agent.main_reference_ is None
    assert_allclose(agent.system_.weights[0], w, rtol=1e-8)
    transient = chain.transient_states
    assert_allclose(agent.predict(transient), F[transient] @ w, rtol=1e-8)


@pytest.mark.filterwarnings("ignore::lstd_agent.errors.FitWarning")
def test_the_stepwise_constructor_fits_each_timestep_alone() -> None:
    chain, F = random_problem("h3", 2)
    states, rewards = recorded("h3", chain.policy.argmax(axis=1), 500, 9)
    agent = observed(
        SeminormLSTDAgent.stepwise(F, gain=4.0, calibration="references"), states, rewards
    )
    assert len(agent.neighborhoods_) == 10
    for t in range(10):
        w = lstd_of_samples(F[states[t]], F[states[t + 1]], rewards[t] - 4.0)
        assert_allclose(agent.system_.weights[t], w, rtol=1e-8)
