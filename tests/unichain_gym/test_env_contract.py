"""The contract that every registered id keeps."""

from __future__ import annotations

import pickle
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env

import unichain_gym

IDS = [env_id for env_id in gym.registry if env_id.startswith("Unichain-")]


@pytest.fixture(params=IDS)
def env_id(request):
    return request.param


def model(spec):
    return gym.make(spec).get_wrapper_attr("mdp")


def trajectory(env, seed, n_steps=60, reset_every=25):
    """The results of an environment under seeded actions and some resets."""
    env.action_space.seed(seed)
    returned = [env.reset(seed=seed)]
    for t in range(1, n_steps):
        restart = t % reset_every == 0
        returned.append(env.reset() if restart else env.step(env.action_space.sample()))
    return returned


@pytest.mark.first(6)
def test_gymnasiums_checker_finds_nothing_wrong_in_any_render_mode(env_id):
    check_env(gym.make(env_id).unwrapped)


def test_a_seed_decides_the_trajectory_and_another_seed_another(env_id):
    env = gym.make(env_id)
    first = trajectory(env, seed=1)
    assert trajectory(env, seed=1) == first
    assert trajectory(gym.make(env_id), seed=1) == first
    assert trajectory(env, seed=2) != first


def test_every_step_returns_an_outcome_of_the_model_in_plain_types(env_id):
    env: Any = gym.make(env_id).unwrapped
    state, info = env.reset(seed=5)
    for _ in range(200):
        action = int(env.action_space.sample())
        following, reward, terminated, truncated, next_info = env.step(action)
        assert env.observation_space.contains(following)
        assert type(following) is int
        assert type(reward) is float
        assert terminated is False
        assert truncated is False
        assert next_info is not info
        possible = {(n, r) for _, n, r, _ in env.P[state][action]}
        assert (following, reward) in possible
        state, info = following, next_info


def test_the_spec_survives_json_and_pickle(env_id):
    spec = gym.spec(env_id)
    made = model(spec)
    for restored in (EnvSpec.from_json(spec.to_json()), pickle.loads(pickle.dumps(spec))):
        assert restored == spec
        mdp = model(restored)
        np.testing.assert_array_equal(mdp.outcome_thresholds, made.outcome_thresholds)
        np.testing.assert_array_equal(mdp.reward, made.reward)
        np.testing.assert_array_equal(mdp.next_state, made.next_state)


def test_the_vector_environment_is_native_and_steps_without_a_warning(env_id):
    envs = gym.make_vec(env_id, num_envs=8)
    assert isinstance(envs, unichain_gym.UnichainVectorEnv)
    observations, _ = envs.reset(seed=0)
    for _ in range(20):
        assert envs.observation_space.contains(observations)
        assert observations.dtype == np.int64
        actions = envs.action_space.sample()
        observations, rewards, terminated, truncated, infos = envs.step(actions)
        assert rewards.dtype == np.float64
        assert rewards.shape == terminated.shape == truncated.shape == (8,)
        assert not terminated.any()
        assert not truncated.any()
        assert set(infos) <= {"duration", "_duration"}
    envs.close()
    envs.close()
