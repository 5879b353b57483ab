"""One environment: start, step, information, state and bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from unichain_gym import TabularEnv, TabularMDP, UnichainEnv, make_mdp
from unichain_gym.errors import (
    InvalidArgumentError,
    InvalidMnemonicError,
    InvalidModelError,
    UnichainError,
)


@pytest.fixture
def env():
    env = UnichainEnv("h36c")
    env.reset(seed=3)
    return env


def test_p_lists_the_possible_outcomes_of_the_model_and_nothing_ends():
    env = UnichainEnv("h6", advance_probs=(0.25, 1.0))
    assert env.P[0][0] == [(0.75, 0, 0.0, False), (0.25, 1, 0.0, False)]
    assert env.P[2][1] == [(1.0, 3, 1.0, False)]
    assert env.P[4][0] == [(0.5, 3, 16.0, False), (0.5, 5, 16.0, False)]
    assert (len(env.P), {len(actions) for actions in env.P.values()}) == (6, {2})


def test_any_tabular_mdp_is_an_environment():
    arrays: Any = [[[1]], [[2]], [[0]]], np.ones((3, 1, 1)), [[[5]], [[6]], [[7]]], [0, 1, 0]
    ring = TabularMDP(*arrays)
    env = TabularEnv(ring)
    assert env.reset()[0] == 1
    assert [env.step(0)[:2] for _ in range(4)] == [(2, 6.0), (0, 7.0), (1, 5.0), (2, 6.0)]


def test_the_start_is_drawn_from_the_transient_states_or_from_all_without_any():
    for mnemonic in ("h6", "h3"):
        env = UnichainEnv(mnemonic)
        assert {env.reset(seed=seed)[0] for seed in range(60)} == {0, 1, 2}


def test_reset_starts_in_a_given_state_or_distribution(env):
    assert env.reset(options={"state": 35})[0] == 35
    only_7 = np.eye(36)[7]
    assert env.reset(options={"distribution": only_7})[0] == 7


def test_reset_without_a_seed_goes_on_with_the_generator():
    env = UnichainEnv("h100")
    env.reset(seed=0)
    later = [env.reset()[0] for _ in range(5)]
    assert len(set(later)) > 1
    env.reset(seed=0)
    assert [env.reset()[0] for _ in range(5)] == later


def test_full_info_has_timestep_and_class_of_the_state():
    env = UnichainEnv("h4", advance_probs=(1.0, 1.0), info_level="full")
    assert env.reset() == (0, {"timestep": 0, "state_class": "transient"})
    assert env.step(0)[4] == {"timestep": 1, "state_class": "recurrent"}


def test_a_restored_state_replays_steps_and_resets(env):
    rng = np.random.default_rng(0)
    for _ in range(10):
        env.step(int(rng.integers(2)))
    snapshot = env.get_state()
    actions = rng.integers(2, size=200).tolist()
    first = [env.step(a) for a in actions] + [env.reset() for _ in range(10)]
    other = UnichainEnv("h36c")
    for replaying in (env, other):
        replaying.set_state(snapshot)
        again = [replaying.step(a) for a in actions] + [replaying.reset() for _ in range(10)]
        assert again == first
    with pytest.raises(InvalidArgumentError, match="the snapshot's state must be from 0 to 5"):
        UnichainEnv("h6").set_state({**snapshot, "state": 30})


@pytest.mark.parametrize("action", [np.int64(1), np.int32(1), np.array(1), True])
def test_integers_of_any_kind_are_actions(env, action):
    snapshot = env.get_state()
    expected = env.step(1)
    env.set_state(snapshot)
    assert env.step(action) == expected


@pytest.mark.parametrize("action", [-1, 2, 1.0, np.float64(0), "0", None, np.array([0, 1])])
def test_anything_but_an_integer_is_refused_as_an_action(env, action):
    env.step(0)
    with pytest.raises(InvalidArgumentError, match="an action is an integer from 0 to 1; got"):
        env.step(action)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"state": 36}, InvalidArgumentError, r"options\['state'\] must be from 0 to 35; got 36"),
        ({"state": -1}, InvalidArgumentError, "must be from 0 to 35; got -1"),
        ({"state": 1.5}, InvalidArgumentError, "must be one integer"),
        ({"state": [1, 2]}, InvalidArgumentError, "must be one integer"),
        ({"distribution": [1.0]}, InvalidArgumentError, r"must have shape \(36,\); got \(1,\)"),
        ({"distribution": np.ones(36)}, InvalidModelError, r"\['distribution'\] sums to 36"),
        ({"distribution": -np.eye(36)[0]}, InvalidModelError, "not negative; state 0"),
        (5, InvalidArgumentError, "are a dict such as {'state': 3}; got 5"),
        ({"sate": 1}, InvalidArgumentError, "reset takes one option, .* got 'sate'"),
        ({"state": 1, "distribution": np.eye(36)[0]}, InvalidArgumentError, "takes one option"),
    ],
)
def test_a_wrong_reset_option_is_an_error(env, options, error, message):
    with pytest.raises(error, match=message):
        env.reset(options=options)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"render_mode": "video"}, InvalidArgumentError, "'rgb_array' or 'ansi'; got 'video'"),
        ({"info_level": "all"}, InvalidArgumentError, "'minimal' or 'full'; got 'all'"),
        ({"mnemonic": "h4b"}, InvalidMnemonicError, "the nearest valid ones: h5b"),
        ({"core_options": 5}, InvalidModelError, "core_options must be a dict of options; got 5"),
    ],
)
def test_a_wrong_argument_is_an_error(arguments, error, message):
    with pytest.raises(error, match=message):
        UnichainEnv(**arguments)


def test_step_and_render_need_a_reset_first():
    env = UnichainEnv("h6", render_mode="ansi")
    with pytest.raises(UnichainError, match=r"call reset\(\) before step"):
        env.step(0)
    with pytest.raises(UnichainError, match=r"call reset\(\) before render"):
        env.render()


def test_render_without_a_mode_warns_and_returns_nothing(env):
    with pytest.warns(UserWarning, match="without a render_mode"):
        assert env.render() is None


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"timestep": "x"}, "timestep must be one integer, not negative; got 'x'"),
        ({"timestep": -1}, "timestep must be one integer, not negative; got -1"),
        ({"timestep": 1.0}, "timestep must be one integer, not negative; got 1.0"),
        ({"state": "x"}, "state 'x': states have no names here, only numbers"),
        ({"last_action": 2}, "an action is an integer from 0 to 1; got 2"),
        ({"last_reward": "x"}, "last_reward is no float: 'x'"),
        ({"generator": {}}, "generator is not one of PCG64"),
    ],
)
def test_a_snapshot_with_a_wrong_entry_is_refused_and_changes_nothing(env, entry, message):
    before = env.get_state()
    with pytest.raises(InvalidArgumentError, match=message):
        env.set_state({**UnichainEnv("h36c").get_state(), "state": 3, **entry})
    assert env.get_state() == before


def test_a_large_environment_steps_at_once():
    env = TabularEnv(make_mdp("h1000003e"))
    ends = env.mdp.next_state[199_999:1_000_000:200_000, 0, 1]
    np.testing.assert_array_equal(ends, [1_000_000] * 5)
    env.reset(seed=0, options={"state": 1_000_002})
    assert 999_999 < env.step(1)[0] < 1_000_003
