"""The registered ids, and their options as keywords."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Discrete

from unichain_gym import TabularMDP, make_mdp, register_mnemonics
from unichain_gym.errors import InvalidArgumentError

PAPER = ("h6", "h36", "h36c", "h70", "h100", "c10", "c35", "c35c", "c75", "c100")
TABLE_1 = ("h3", "c5", "x9d", "x10")


def model(env: Any) -> TabularMDP:
    return env.unwrapped.mdp


def test_every_environment_of_the_paper_has_an_id():
    for mnemonic in (*PAPER, *TABLE_1):
        assert model(gym.make(f"Unichain-{mnemonic}-v0")).name == mnemonic
    assert model(gym.make("Unichain-v0")).name == "h36c"


def test_any_other_mnemonic_can_be_given_an_id():
    register_mnemonics(["r8b"])
    try:
        assert model(gym.make("Unichain-r8b-v0")).name == "r8b"
        assert gym.make_vec("Unichain-r8b-v0", num_envs=2).single_observation_space == Discrete(8)
    finally:
        del gym.registry["Unichain-r8b-v0"]


def test_options_are_keywords_that_survive_the_spec():
    options: dict[str, Any] = {
        "mnemonic": "g12b",
        "advance_probs": [[0.1, 0.2], [0.3, 0.4]],
        "stream_rewards": [1.0, 2.0],
        "entry_state": [0, 3],
        "core_options": {"n_states": 8, "branching": 2, "seed": 5},
    }
    env = gym.make("Unichain-v0", **options)
    assert env.spec is not None
    again = gym.make(gym.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    envs = gym.make_vec("Unichain-v0", num_envs=2, **options)
    expected = make_mdp(**options)
    for mdp in map(model, (env, again, envs)):
        np.testing.assert_array_equal(mdp.outcome_thresholds, expected.outcome_thresholds)
        np.testing.assert_array_equal(mdp.next_state, expected.next_state)
        np.testing.assert_array_equal(mdp.reward, expected.reward)


def test_the_mnemonic_of_an_id_may_be_repeated_but_not_contradicted():
    assert model(gym.make("Unichain-h6-v0", mnemonic="h6")).name == "h6"
    for make in (gym.make, gym.make_vec):
        with pytest.raises(
            InvalidArgumentError, match="is the environment 'h6'; for mnemonic='h5' make"
        ):
            make("Unichain-h6-v0", mnemonic="h5")


@pytest.mark.parametrize("make", [gym.make, gym.make_vec])
@pytest.mark.parametrize(
    ("name", "nearest"),
    [("mnemnic", "mnemonic"), ("Stream_Rewards", "stream_rewards"), ("infolevel", "info_level")],
)
def test_a_misspelled_argument_is_an_error_with_the_nearest_right_one(make, name, nearest):
    with pytest.raises(
        InvalidArgumentError, match=rf"no argument '{name}' \(did you mean '{nearest}'\?\)"
    ):
        make("Unichain-v0", **{name: 1})


def test_an_argument_like_no_other_is_an_error_that_lists_them():
    with pytest.raises(
        InvalidArgumentError,
        match="UnichainEnv has no argument 'zzz'; it has: mnemonic, render_mode, info_level, "
        "advance_probs, stream_rewards, entry_state, core_options",
    ):
        gym.make("Unichain-v0", zzz=1)
    with pytest.raises(InvalidArgumentError, match="num_envs, mnemonic, max_episode_steps"):
        gym.make_vec("Unichain-v0", zzz=1)
