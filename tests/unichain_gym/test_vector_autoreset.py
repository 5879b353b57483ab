"""Time limit and autoreset of the vector environment, held to Gymnasium's `SyncVectorEnv`.

With one copy, the same seed gives both the same draws, so that all they return must agree; with
several, on a model without chance.
"""

from __future__ import annotations

import copy
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit

from unichain_gym import TabularEnv, TabularMDP, TabularVectorEnv, UnichainVectorEnv, make_mdp
from unichain_gym.errors import InvalidArgumentError, UnichainError

MODES = list(AutoresetMode)


def assert_same(ours, theirs):
    """Equal in value, type and shape, through dicts, tuples and object arrays."""
    assert type(ours) is type(theirs)
    if isinstance(ours, dict):
        assert ours.keys() == theirs.keys()
        for key in ours:
            assert_same(ours[key], theirs[key])
    elif isinstance(ours, tuple):
        for one, other in zip(ours, theirs, strict=True):
            assert_same(one, other)
    else:
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)
        if ours.dtype == object:
            assert [type(x) for x in ours] == [type(x) for x in theirs]


def ring(n=5, start=2):
    """States that follow one another, and pay their number."""
    next_state = (np.arange(n) + 1)[:, None, None] % n
    reward = np.arange(n)[:, None, None]
    return TabularMDP(next_state, np.ones((n, 1, 1)), reward, np.eye(n)[start])


def both(mdp, num_envs, mode, info_level, limit=4):
    """The native vector environment and Gymnasium's, of the same environment."""

    def make():
        return TimeLimit(TabularEnv(mdp, info_level=info_level), limit)

    native = TabularVectorEnv(
        mdp, num_envs, max_episode_steps=limit, autoreset_mode=mode, info_level=info_level
    )
    return native, SyncVectorEnv([make] * num_envs, autoreset_mode=mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("info_level", ["minimal", "full"])
@pytest.mark.parametrize("mnemonic", ["h36c", "m16"])
def test_one_copy_returns_the_same_as_sync_vector_env(mnemonic, mode, info_level):
    mdp = make_mdp(mnemonic)
    ours, theirs = both(mdp, 1, mode, info_level)
    assert_same(ours.reset(seed=5), theirs.reset(seed=5))
    for action in np.random.default_rng(0).integers(mdp.n_actions, size=(60, 1)):
        step = ours.step(action)
        assert_same(step, theirs.step(action))
        if mode is AutoresetMode.DISABLED and step[3].any():
            options = {"reset_mask": step[3]}
            assert_same(ours.reset(options=dict(options)), theirs.reset(options=dict(options)))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("info_level", ["minimal", "full"])
@pytest.mark.parametrize("lacking", [False, True])
def test_copies_that_end_at_different_times_return_the_same_as_sync_vector_env(
    lacking, mode, info_level
):
    mdp = ring()
    if lacking:  # state 1 has action 1 alone, state 3 action 0 alone
        moves = [(s, a, (s + 1) % 5, 1.0, float(s)) for s in range(5) for a in range(2)]
        moves = [move for move in moves if move[:2] not in ((1, 0), (3, 1))]
        mdp = TabularMDP.from_transitions(moves, np.eye(5)[2])
    ours, theirs = both(mdp, 4, mode, info_level)
    n_ended = np.zeros(4, dtype=int)
    start = ours.reset(seed=0)
    assert_same(start, theirs.reset(seed=0))
    states = start[0]
    for t in range(40):
        actions = mdp.allowed_actions[states].argmax(axis=1)
        step = ours.step(actions)
        assert_same(step, theirs.step(actions))
        states = step[0]
        n_ended += step[3]
        mask = step[3] if mode is AutoresetMode.DISABLED else np.zeros(4, dtype=bool)
        if t in (1, 12, 13):
            mask = mask | np.array([t == 1, False, t == 12, True])
        if mask.any():
            options = {"reset_mask": mask}
            start = ours.reset(options=dict(options))
            assert_same(start, theirs.reset(options=dict(options)))
            states = start[0]
    assert (n_ended > 5).all()
    assert len(set(n_ended.tolist())) > 1


def test_make_vec_takes_limit_mode_and_rendering_and_sets_the_metadata():
    envs = gym.make_vec(
        "Unichain-h6-v0",
        num_envs=2,
        max_episode_steps=10,
        autoreset_mode="SameStep",
        render_mode="ansi",
    )
    assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert UnichainVectorEnv.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    envs.reset(seed=0, options={"state": [0, 5]})
    steps = [envs.step([1, 1]) for _ in range(20)]
    assert [bool(s[3].all()) for s in steps] == ([False] * 9 + [True]) * 2
    lines = envs.render()
    assert lines is not None
    assert [str(line)[:9] for line in lines] == ["h6: state"] * 2


def test_the_action_of_a_copy_that_starts_again_is_ignored():
    envs = TabularVectorEnv(ring(), 2, max_episode_steps=1)
    envs.reset(seed=0)
    envs.step([0, 0])
    observations, rewards, _, truncated, _ = envs.step([-7, 99])
    np.testing.assert_array_equal(observations, 2)
    np.testing.assert_array_equal(rewards, 0.0)
    assert not truncated.any()
    with pytest.raises(InvalidArgumentError, match="environment 1 got 99"):
        envs.step([0, 99])


def test_with_autoreset_disabled_a_truncated_copy_must_be_reset_before_the_next_step():
    envs = TabularVectorEnv(ring(), 3, max_episode_steps=2, autoreset_mode="Disabled")
    envs.reset(seed=0)
    envs.step([0] * 3)
    envs.reset(options={"reset_mask": np.array([True, False, True])})
    *_, truncated, _ = envs.step([0] * 3)
    np.testing.assert_array_equal(truncated, [False, True, False])
    with pytest.raises(UnichainError, match=r"environment 1 is truncated .*reset_mask"):
        envs.step([0] * 3)
    envs.reset(options={"reset_mask": truncated})
    *_, truncated, _ = envs.step([0] * 3)
    np.testing.assert_array_equal(truncated, [True, False, True])


@pytest.mark.parametrize("mode", MODES)
def test_a_state_set_between_truncation_and_restart_replays_the_restart(mode):
    envs = UnichainVectorEnv(4, "h36c", max_episode_steps=3, autoreset_mode=mode)

    def run(envs):
        for actions in np.random.default_rng(0).integers(2, size=(9, 4)):
            step = envs.step(actions)
            yield step[:4]
            if mode is AutoresetMode.DISABLED and step[3].any():
                envs.reset(options={"reset_mask": step[3]})

    envs.reset(seed=1)
    for _ in range(3 if mode is not AutoresetMode.DISABLED else 2):
        envs.step([1] * 4)
    snapshot = envs.get_state()
    first = list(run(envs))
    other = UnichainVectorEnv(4, "h36c", max_episode_steps=3, autoreset_mode=mode)
    other.set_state(snapshot)
    for ours, theirs in zip(run(other), first, strict=True):
        assert_same(ours, theirs)


@pytest.mark.parametrize("mode", MODES)
def test_returned_arrays_and_infos_are_fresh_and_changing_them_changes_nothing(mode):
    def flat(value):
        if isinstance(value, dict):
            return [a for v in value.values() for a in flat(v)]
        return [value]

    envs = UnichainVectorEnv(5, "h36c", max_episode_steps=3, autoreset_mode=mode, info_level="full")
    envs.reset(seed=1)
    other = copy.deepcopy(envs)
    kept: list[Any] = []
    for actions in np.random.default_rng(0).integers(2, size=(20, 5)):
        step, expected = envs.step(actions), other.step(actions)
        assert_same(step, expected)
        truncated = step[3].copy()
        arrays = [a for part in step for a in flat(part)]
        for array in arrays:
            assert not any(np.shares_memory(array, old) for old in kept)
            array[...] = array[::-1].copy()
        kept = kept[-30:] + arrays
        if mode is AutoresetMode.DISABLED and truncated.any():
            for e in (envs, other):
                e.reset(options={"reset_mask": truncated})


def test_pictures_equal_those_of_single_environments():
    envs = UnichainVectorEnv(2, "h6", render_mode="rgb_array", max_episode_steps=2)
    envs.reset(seed=0, options={"state": [0, 4]})
    single = TabularEnv(envs.mdp, render_mode="rgb_array")
    for state, picture in zip((0, 4), envs.render() or (), strict=True):
        single.reset(options={"state": state})
        np.testing.assert_array_equal(picture, single.render())
    observations, *_ = envs.step([1, 0])
    pictures = envs.render()
    assert isinstance(pictures, tuple)
    for i, action in enumerate((1, 0)):
        single.set_state(
            single.get_state() | {"state": int(observations[i]), "last_action": action}
        )
        np.testing.assert_array_equal(pictures[i], single.render())


def test_a_copy_that_started_again_shows_no_last_action():
    envs = TabularVectorEnv(ring(), 2, render_mode="ansi", max_episode_steps=1)
    envs.reset(seed=0)
    envs.step([0, 0])
    assert envs.render() == ("mdp: state 3 of 5 (recurrent), after action 0 with reward 2",) * 2
    envs.step([0, 0])
    assert envs.render() == ("mdp: state 2 of 5 (recurrent)",) * 2


def test_render_needs_a_mode_and_a_reset():
    with pytest.warns(UserWarning, match="without a render_mode"):
        assert UnichainVectorEnv(2, "h6").render() is None
    with pytest.raises(UnichainError, match=r"call reset\(\) before render"):
        UnichainVectorEnv(2, "h6", render_mode="ansi").render()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_episode_steps": 0}, "max_episode_steps must be at least 1; got 0"),
        ({"max_episode_steps": 2.5}, "max_episode_steps must be an integer; got 2.5"),
        ({"autoreset_mode": "next_step"}, r"got 'next_step' \(did you mean 'NextStep'\?\)"),
        ({"autoreset_mode": None}, "one of 'NextStep', 'SameStep', 'Disabled'; got None"),
        ({"render_mode": "human"}, "render_mode must be 'rgb_array' or 'ansi'; got 'human'"),
        ({"info_level": "fill"}, r"did you mean 'full'\?"),
    ],
)
def test_wrong_arguments_are_errors(arguments, message):
    with pytest.raises(InvalidArgumentError, match=message):
        gym.make_vec("Unichain-h6-v0", num_envs=2, **arguments)
