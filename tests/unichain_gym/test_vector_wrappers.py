"""Gymnasium's vector wrappers around the native vector environment."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import vector as wrappers

import unichain_gym  # noqa: F401  (registers the ids)

MODES = list(AutoresetMode)


def make(mode=AutoresetMode.NEXT_STEP, num_envs=3, limit=4, **options):
    return gym.make_vec(
        "Unichain-x10-v0",
        num_envs=num_envs,
        max_episode_steps=limit,
        autoreset_mode=mode,
        **options,
    )


def run(envs, n_steps, mode=AutoresetMode.NEXT_STEP, action=1):
    """Steps of action 1, and resets where autoreset leaves them to the user."""
    for _ in range(n_steps):
        step = envs.step(np.full(envs.num_envs, action))
        yield step
        if mode is AutoresetMode.DISABLED and step[3].any():
            envs.reset(options={"reset_mask": step[3]})


@pytest.mark.parametrize("mode", MODES)
def test_episode_statistics_add_up_the_rewards_of_each_episode(mode):
    version = tuple(int(part) for part in gym.__version__.split(".")[:2])
    if mode is AutoresetMode.SAME_STEP and version < (1, 4):
        pytest.skip("older versions count the last step to the next episode in this mode")
    envs = wrappers.RecordEpisodeStatistics(make(mode, stream_rewards=(2.0, 2.0), limit=3))
    # Three steps from the start of a stream of nine do not leave it: 3 x 2.
    envs.reset(seed=0, options={"state": 0})
    *_, infos = list(run(envs, 3, mode))[-1]
    np.testing.assert_array_equal(infos["episode"]["r"], 6.0)
    np.testing.assert_array_equal(infos["episode"]["l"], 3)


def test_observations_and_rewards_are_normalized():
    observed = wrappers.TransformObservation(
        make(), lambda s: s[:, None].astype(np.float32), Box(0.0, 9.0, (3, 1)), Box(0.0, 9.0, (1,))
    )
    envs = wrappers.NormalizeReward(wrappers.NormalizeObservation(observed))
    envs.reset(seed=0)
    steps = list(run(envs, 50))
    assert np.isfinite([s[0] for s in steps]).all()
    assert np.isfinite([s[1] for s in steps]).all()


def test_videos_are_recorded(tmp_path):
    pytest.importorskip("moviepy")
    envs = wrappers.RecordVideo(
        make(render_mode="rgb_array"), str(tmp_path / "videos"), episode_trigger=lambda i: i == 0
    )
    envs.reset(seed=0)
    list(run(envs, 10))
    envs.close()
    assert list(tmp_path.glob("videos/*.mp4"))
