"""Environments of models whose states lack actions: masks, refusals, and the model's table."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from unichain_gym import TabularEnv, TabularMDP, TabularVectorEnv, attach_streams
from unichain_gym.descriptions import outcome_table
from unichain_gym.drawing import draw_mdp
from unichain_gym.errors import InvalidArgumentError


@pytest.fixture
def mdp():
    """State 0 has actions 0 and 2, state 1 action 1 alone, state 2 all."""
    transitions = [
        (0, 0, 1, 1.0, 0.0),
        (0, 2, 2, 1.0, 0.5),
        (1, 1, 2, 1.0, 1.0),
        (2, 0, 0, 1.0, 2.0),
        (2, 1, 1, 1.0, 3.0),
        (2, 2, 0, 0.5, 4.0),
        (2, 2, 2, 0.5, 4.0),
    ]
    return TabularMDP.from_transitions(transitions, [0.0, 1.0, 0.0])


MASKS = np.array([[1, 0, 1], [0, 1, 0], [1, 1, 1]], dtype=np.int8)


def test_reset_and_step_return_the_actions_of_the_state(mdp):
    env = TabularEnv(mdp)
    state, info = env.reset(seed=0)
    for _ in range(50):
        mask = info["action_mask"]
        assert mask.dtype == np.int8
        np.testing.assert_array_equal(mask, MASKS[state])
        assert list(info) == ["action_mask"]
        state, *_, info = env.step(env.action_space.sample(mask))


def test_an_action_that_the_state_lacks_is_refused_and_nothing_changes(mdp):
    env = TabularEnv(mdp)
    env.reset(seed=0, options={"state": 0})
    before = env.get_state()
    for _ in range(2):
        with pytest.raises(InvalidArgumentError, match="state 0 lacks action 1; it has: 0, 2"):
            env.step(1)
    assert env.get_state() == before
    assert env.step(2)[:2] == (2, 0.5)


def test_the_toy_text_table_has_an_empty_list_where_an_action_is_absent(mdp):
    P = TabularEnv(mdp).P
    assert P[0][1] == P[1][0] == P[1][2] == []
    assert P[1][1] == [(1.0, 2, 1.0, False)]
    assert {len(actions) for actions in P.values()} == {3}


def test_where_every_state_has_all_actions_the_mask_is_left_out():
    full = TabularMDP(np.zeros((1, 2, 1), int), np.ones((1, 2, 1)), np.zeros((1, 2, 1)), np.ones(1))
    assert TabularEnv(full).reset()[1] == {}
    assert TabularVectorEnv(full, 2).reset()[1] == {}


def test_masks_of_vector_environments_sample_available_actions(mdp):
    envs = TabularVectorEnv(mdp, 5, max_episode_steps=7)
    states, infos = envs.reset(seed=0, options={"state": [0, 1, 2, 0, 1]})
    envs.action_space.seed(0)
    for _ in range(40):
        assert infos["action_mask"].shape == (5, 3)
        assert infos["action_mask"].dtype == np.int8
        assert infos["_action_mask"].all()
        np.testing.assert_array_equal(infos["action_mask"], MASKS[states])
        states, *_, infos = envs.step(envs.action_space.sample(tuple(infos["action_mask"])))


def test_an_action_that_a_state_lacks_is_refused_with_the_environment_and_nothing_changes(mdp):
    envs = TabularVectorEnv(mdp, 3)
    envs.reset(seed=0, options={"state": [2, 0, 1]})
    before = envs.get_state()
    message = "environment 2: state 1 lacks action 0; it has: 1"
    with pytest.raises(InvalidArgumentError, match=message):
        envs.step([1, 2, 0])
    after = envs.get_state()
    np.testing.assert_array_equal(after["state"], before["state"])
    assert after["generator"] == before["generator"]


def test_absent_actions_survive_streams_pictures_and_tables(mdp):
    around = attach_streams(mdp, 2, 2)
    _, info = TabularEnv(around).reset(options={"state": 4})
    np.testing.assert_array_equal(info["action_mask"], MASKS[0])
    assert draw_mdp(around).axes
    assert outcome_table(mdp).splitlines()[2:4] == [
        "| 0 | 0 | 1: 1 | 0 |",
        "| 0 | 2 | 2: 1 | 0.5 |",
    ]


class Substituting(TabularEnv):
    """Takes the state's first action where the one sampled is absent."""

    def step(self, action):
        allowed = self.mdp.allowed_actions[self.get_state()["state"]]
        return super().step(action if allowed[action] else int(allowed.argmax()))


def test_gymnasiums_checker_finds_nothing_wrong_with_an_environment_that_has_masks(mdp):
    check_env(Substituting(mdp), skip_render_check=True)
