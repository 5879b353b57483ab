"""Other people's code around the environments: Gymnasium's wrappers, Stable-Baselines3."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import RecordEpisodeStatistics

import unichain_gym  # noqa: F401  (registers the ids)


def test_episode_statistics_add_up_the_rewards():
    env = RecordEpisodeStatistics(gym.make("Unichain-x10-v0", max_episode_steps=7))
    env.reset(seed=0, options={"state": 0})
    rewards: list[Any] = []
    info: dict[str, Any] = {}
    for action in (1, 0, 1, 1, 0, 1, 1):
        _, reward, _, _, info = env.step(action)
        rewards.append(reward)
    assert (info["episode"]["r"], info["episode"]["l"]) == (sum(rewards), 7)


@pytest.mark.parametrize(
    ("mode", "vector_kwargs"),
    [("sync", {}), pytest.param("async", {"context": "spawn"}, marks=pytest.mark.slow)],
)
def test_gymnasiums_vector_environments_step_single_ones(mode, vector_kwargs):
    envs = gym.make_vec(
        "Unichain-h36c-v0", num_envs=2, vectorization_mode=mode, vector_kwargs=vector_kwargs
    )
    singles = [gym.make("Unichain-h36c-v0") for _ in range(2)]
    observations, _ = envs.reset(seed=7)
    np.testing.assert_array_equal(
        observations, [env.reset(seed=7 + i)[0] for i, env in enumerate(singles)]
    )
    for actions in np.random.default_rng(0).integers(2, size=(30, 2)):
        observations, rewards, *_ = envs.step(actions)
        expected = [env.step(a)[:2] for env, a in zip(singles, actions, strict=True)]
        np.testing.assert_array_equal(np.column_stack((observations, rewards)), expected)
    envs.close()


# Stable-Baselines3 and what it imports warn about things of their own.
@pytest.mark.filterwarnings("default")
def test_stable_baselines3_accepts_an_environment_and_learns_on_it():
    pytest.importorskip("stable_baselines3")
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_checker import check_env

    env = gym.make("Unichain-h6-v0", max_episode_steps=32)
    check_env(env.unwrapped)
    model = PPO("MlpPolicy", env, n_steps=64, batch_size=32, n_epochs=2, seed=0, device="cpu")
    model.learn(256)
    action, _ = model.predict(env.reset(seed=0)[0])
    assert env.action_space.contains(int(action))
