"""Policies of learning libraries: torch modules, Stable-Baselines3 models, and its callback."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from numpy.testing import assert_array_equal

from lstd_agent import OneHot, Polynomial, SeminormLSTDAgent
from lstd_agent.errors import InvalidInputError
from lstd_agent.trials.policies import make_actor
from unichain_gym import make_mdp

H6 = "unichain_gym:Unichain-h6-v0"
RNG = np.random.default_rng(0)


def test_a_torch_module_acts_by_its_largest_output() -> None:
    torch = pytest.importorskip("torch", reason="needs torch")
    box, three = spaces.Box(-1.0, 1.0, (2,)), spaces.Discrete(3, start=4)
    linear = torch.nn.Linear(2, 3)
    x = np.random.default_rng(0).uniform(-1, 1, (7, 2)).astype(np.float32)
    expected = 4 + linear(torch.as_tensor(x)).detach().numpy().argmax(axis=1)
    act = make_actor(linear, box, three, None)
    assert_array_equal(act(x, RNG), expected)
    assert act.one(x[3].astype(np.float64), RNG) == expected[3]
    continuous = make_actor(torch.nn.Linear(2, 1), box, spaces.Box(-9.0, 9.0, (1,)), None)
    assert continuous(x, RNG).shape == (7, 1)
    table = torch.nn.Embedding(6, 2)
    act = make_actor(table, spaces.Discrete(6), spaces.Discrete(2), None)
    assert_array_equal(act(np.arange(6), RNG), table.weight.detach().numpy().argmax(axis=1))
    with pytest.raises(InvalidInputError, match=r"one number an action \(n, 3\); got float32"):
        make_actor(torch.nn.Linear(2, 2), box, three, None)(x, RNG)


def test_trials_of_a_module_that_has_learned_since_are_refused() -> None:
    torch = pytest.importorskip("torch", reason="needs torch")
    table = torch.nn.Embedding(6, 2)
    agent = SeminormLSTDAgent(OneHot()).collect(gym.make(H6), table, n_trials=3, t_max=5, seed=0)
    agent.collect(gym.make(H6), table, n_trials=3, t_max=5, seed=1)
    with torch.no_grad():
        table.weight += 1.0
    with pytest.raises(InvalidInputError, match="of another policy"):
        agent.collect(gym.make(H6), table, n_trials=3, t_max=5, seed=2)
    assert agent.n_trials == 6


def test_a_logged_module_is_checked_by_its_actions() -> None:
    torch = pytest.importorskip("torch", reason="needs torch")
    table = torch.nn.Embedding.from_pretrained(torch.eye(2)[torch.tensor([0, 1, 0, 1, 0, 1])])
    states, rewards = np.array([[3, 4, 5, 3]]), np.ones((1, 3))
    agent = SeminormLSTDAgent(np.eye(6))
    agent.add_trials(states, rewards, np.array([[1, 0, 1]]), policy=table)
    with pytest.raises(InvalidInputError, match="takes action 1 on observing 4 at timestep 1"):
        agent.add_trials(states, rewards, np.array([[1, 1, 1]]), policy=table)


@pytest.fixture
def sb3() -> Any:
    return pytest.importorskip("stable_baselines3", reason='needs pip install "unichain-gym[sb3]"')


@pytest.mark.filterwarnings("ignore::lstd_agent.errors.FitWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_model_gives_the_values_of_its_actions(sb3: Any) -> None:
    model = sb3.PPO("MlpPolicy", gym.make(H6, max_episode_steps=50), seed=0, device="cpu")
    actions, _ = model.predict(np.arange(6), deterministic=True)
    policy = partial(model.predict, deterministic=True)
    env = gym.make_vec(H6, num_envs=100)
    found = SeminormLSTDAgent(OneHot()).collect(env, policy, n_trials=300, t_max=30, seed=0)
    expected = SeminormLSTDAgent(OneHot()).collect(env, actions, n_trials=300, t_max=30, seed=0)
    ours, theirs = (each.counts.transition_counts.toarray() for each in (found, expected))
    assert_array_equal(ours, theirs)
    drawn = SeminormLSTDAgent(OneHot()).collect(gym.make(H6), model, n_trials=20, t_max=30, seed=0)
    assert drawn.collect(env, model, n_trials=100, t_max=30, seed=0).n_trials == 120
    pendulum = sb3.PPO("MlpPolicy", gym.make("Pendulum-v1"), seed=0, device="cpu")
    agent = SeminormLSTDAgent(Polynomial(1))
    assert (
        agent.collect(gym.make("Pendulum-v1"), pendulum, n_trials=3, t_max=5, seed=0).n_trials == 3
    )


@pytest.mark.filterwarnings("ignore::lstd_agent.errors.FitWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_callback_finds_gain_and_start_value_of_the_policy_at_the_time(sb3: Any) -> None:
    from lstd_agent.sb3 import StartValueCallback

    model = sb3.DQN(
        "MlpPolicy", gym.make(H6, max_episode_steps=100), learning_starts=50, seed=0, device="cpu"
    )
    env = gym.make_vec(H6, num_envs=500)
    callback = StartValueCallback(env, OneHot(), every=100, n_trials=4000, t_max=60)
    tables = []

    class Watched(StartValueCallback):
        def evaluate(self, model: Any, n_steps: int = 0) -> Any:
            tables.append(model.predict(np.arange(6), deterministic=True)[0])
            return super().evaluate(model, n_steps)

    callback = Watched(env, OneHot(), every=100, n_trials=4000, t_max=60)
    model.learn(300, callback=callback)
    assert [found.n_steps for found in callback.evaluations] == [0, 100, 200, 300]
    mdp = make_mdp("h6")
    for actions, found in zip(tables, callback.evaluations, strict=True):
        chain = mdp.induce(actions.astype(np.int64))
        start = float(mdp.initial_distribution @ chain.bias)
        assert found.gain == pytest.approx(chain.gain, abs=0.05)
        assert found.start_value == pytest.approx(start, abs=0.05 * np.ptp(chain.bias))
    model.learn(100, callback=callback, reset_num_timesteps=False)
    assert callback.evaluations[-1].n_steps == 400


def test_the_callback_raises_errors_at_once(sb3: Any) -> None:
    from lstd_agent.sb3 import StartValueCallback

    for options, message in (
        ({"every": 0}, "every must be at least 1"),
        ({"n_trials": 1}, "n_trials must be at least 2"),
        ({"search": "no"}, "search must be one of"),
    ):
        given: dict[str, Any] = {"every": 10, "n_trials": 10, "t_max": 10, **options}
        with pytest.raises(InvalidInputError, match=message):
            StartValueCallback(H6, OneHot(), **given)
