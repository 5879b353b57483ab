"""The vector environment: fresh arrays, resets by mask, state and bad input."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from unichain_gym import TabularMDP, TabularVectorEnv, UnichainVectorEnv
from unichain_gym.errors import InvalidArgumentError, UnichainError


@pytest.fixture
def envs():
    envs = UnichainVectorEnv(6, "h36c", info_level="full")
    envs.reset(seed=3)
    return envs


def run(envs, n_steps=30, seed=0):
    """Observations and rewards under seeded actions."""
    rng = np.random.default_rng(seed)
    shape = (n_steps, envs.num_envs)
    steps = [envs.step(actions) for actions in rng.integers(2, size=shape)]
    return np.array([step[:2] for step in steps])


def test_a_seed_decides_everything_given_the_number_of_environments():
    first, second = (UnichainVectorEnv(5, "h36c") for _ in range(2))
    np.testing.assert_array_equal(first.reset(seed=1)[0], second.reset(seed=1)[0])
    np.testing.assert_array_equal(run(first), run(second))
    first.reset(seed=1)
    second.reset(seed=2)
    assert not np.array_equal(run(first), run(second))


def test_actions_are_left_alone_and_may_be_of_any_integer_type(envs):
    states = [copy.deepcopy(envs) for _ in range(4)]
    actions = [0, 1, 0, 1, 1, 0]
    results = []
    for env, dtype in zip(states, (np.int64, np.int32, np.uint8, np.uint64), strict=True):
        given = np.array(actions, dtype=dtype)
        results.append(env.step(given)[0])
        np.testing.assert_array_equal(given, actions)
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])
    np.testing.assert_array_equal(envs.step(actions)[0], results[0])


def test_a_mask_resets_the_environments_it_names(envs):
    for _ in range(4):
        before, *_ = envs.step([1] * 6)
    mask = np.array([True, False, True, False, False, False])
    options = {"reset_mask": mask, "state": np.arange(10, 16)}
    after, infos = envs.reset(options=options)
    np.testing.assert_array_equal(after, np.where(mask, np.arange(10, 16), before))
    np.testing.assert_array_equal(infos["_timestep"], mask)
    np.testing.assert_array_equal(envs.get_state()["timestep"], np.where(mask, 0, 4))
    assert set(options) == {"reset_mask", "state"}


def test_all_environments_start_in_the_given_state(envs):
    np.testing.assert_array_equal(envs.reset(options={"state": 35})[0], 35)
    np.testing.assert_array_equal(envs.reset(options={"distribution": np.eye(36)[7]})[0], 7)


def test_information_is_given_in_arrays_if_asked_for():
    envs = UnichainVectorEnv(2, "h5", advance_probs=(1.0, 1.0), info_level="full")
    envs.reset(seed=0, options={"state": [0, 1]})
    *_, infos = envs.step([0, 0])
    np.testing.assert_array_equal(infos["timestep"], [1, 1])
    np.testing.assert_array_equal(infos["state_class"], ["transient", "recurrent"])
    assert infos["_timestep"].all()
    assert infos["_state_class"].all()


def test_one_outcome_or_many_are_all_found():
    for n_outcomes in (1, 2, 3, 4, 5, 8, 9):
        next_state = np.arange(n_outcomes)[None, None].repeat(n_outcomes, axis=0)
        probability = np.full(next_state.shape, 1 / n_outcomes)
        initial = np.full(n_outcomes, 1 / n_outcomes)
        mdp = TabularMDP(next_state, probability, next_state.astype(float), initial)
        envs = TabularVectorEnv(mdp, 300)
        envs.reset(seed=0)
        observations, rewards, *_ = envs.step(np.zeros(300, dtype=int))
        np.testing.assert_array_equal(observations, rewards)
        assert set(observations.tolist()) == set(range(n_outcomes))


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ([0, 0, 2, 0, 0, 0], "integer from 0 to 1; environment 2 got 2"),
        ([0, 0, 0, -1, 0, 0], "integer from 0 to 1; environment 3 got -1"),
        (np.array([0, 0, 0, 0, 0, 2**64 - 1], np.uint64), "environment 5 got 18446744073709551615"),
        ([0, 0], r"integers of shape \(6,\); got int64 of shape \(2,\)"),
        ([0.0] * 6, r"integers of shape \(6,\); got float64"),
        (1, r"of shape \(\)"),
    ],
)
def test_wrong_actions_are_errors(envs, actions, message):
    with pytest.raises(InvalidArgumentError, match=message):
        envs.step(actions)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reset_mask": np.ones(5, bool)}, r"bool of shape \(6,\); got bool of shape \(5,\)"),
        ({"reset_mask": np.ones(6, int)}, r"bool of shape \(6,\); got int64"),
        ({"reset_mask": np.zeros(6, bool)}, "names no environment"),
        ({"state": 36}, "must be from 0 to 35; got 36"),
        ({"state": [0, 1]}, "one integer or 6 of them"),
        ({"start": 0}, "reset takes one option, .* got 'start'"),
        ([0], r"are a dict such as {'state': 3}; got \[0\]"),
    ],
)
def test_wrong_reset_options_are_errors(envs, options, message):
    with pytest.raises(InvalidArgumentError, match=message):
        envs.reset(options=options)


@pytest.mark.parametrize("timesteps", ["x", 3, [-1] * 6, [1.0] * 6])
def test_a_snapshot_with_wrong_timesteps_is_refused_and_changes_nothing(envs, timesteps):
    before = envs.get_state()
    with pytest.raises(InvalidArgumentError, match="timestep must be 6 integers, not negative"):
        envs.set_state({**before, "state": np.zeros(6, int), "timestep": timesteps})
    np.testing.assert_array_equal(envs.get_state()["state"], before["state"])


def test_one_generator_takes_one_seed(envs):
    with pytest.raises(InvalidArgumentError, match=r"seed must be an integer; got \[1, 2\]"):
        envs.reset(seed=[1, 2])


def test_a_start_comes_before_steps_and_partial_resets():
    envs = UnichainVectorEnv(2)
    with pytest.raises(UnichainError, match=r"call reset\(\) before step"):
        envs.step([0, 0])
    with pytest.raises(UnichainError, match=r"reset\(\) all environments before some"):
        envs.reset(options={"reset_mask": np.array([True, False])})
