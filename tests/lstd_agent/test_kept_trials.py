"""Trials of vectors: kept as they come, in memory while there is room, in files beyond."""

from __future__ import annotations

import errno
import os
import pickle
from copy import deepcopy
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from numpy.testing import assert_allclose, assert_array_equal

from lstd_agent import (
    KeptTrials,
    OneHot,
    Polynomial,
    SeminormLSTDAgent,
    Standardized,
)
from lstd_agent.errors import InvalidInputError
from lstd_agent.trials.counted import Batches


def still(observation: Any) -> Any:
    return np.zeros((len(observation), 1))


def pendulum(features: Any = Polynomial(1), n_trials: int = 40, **options: Any) -> Any:  # noqa: B008
    agent = SeminormLSTDAgent(features, 1, gain=0.0, **options)
    env = SyncVectorEnv([lambda: gym.make("Pendulum-v1")] * 4)
    return agent.collect(env, still, n_trials=n_trials, t_max=30, seed=0)


@pytest.mark.filterwarnings("ignore::lstd_agent.errors.FitWarning")  # coarse features, few trials
def test_features_may_change_after_collection() -> None:
    agent, other = pendulum(Polynomial(1)), pendulum(Polynomial(3))
    agent.use_features(Polynomial(3)).fit()
    x = np.array([[1.0, 0.0, 0.5], [0.0, 1.0, -1.0]])
    assert_array_equal(agent.predict(x), other.fit().predict(x))
    counted = SeminormLSTDAgent(OneHot(), 1).collect(
        gym.make("unichain_gym:Unichain-h6-v0"), np.zeros(6, int), n_trials=200, t_max=30, seed=0
    )
    table = np.random.default_rng(0).normal(size=(6, 2))
    assert counted.use_features(table).fit().system_.weights.shape == (1, 2)


@pytest.mark.parametrize("max_bytes", [10**6, 60_000])
def test_environments_may_write_all_their_observations_into_one_array(max_bytes: int) -> None:
    totals = []
    for copy in (True, False):
        env = SyncVectorEnv([lambda: gym.make("Pendulum-v1")] * 4, copy=copy)
        agent = SeminormLSTDAgent(Polynomial(2), max_bytes=max_bytes, n_batches=1)
        agent.collect(env, still, n_trials=120, t_max=30, seed=0)
        totals.append(agent.batches.total)
    for name in ("observations", "rewards"):
        assert_array_equal(getattr(totals[0], name), getattr(totals[1], name))


def test_an_invalid_observation_is_named_with_its_timestep() -> None:
    class Failing(gym.ObservationWrapper[Any, Any, Any]):
        n = 0

        def observation(self, observation: Any) -> Any:
            self.n += 1
            return observation * (np.nan if self.n == 8 else 1.0)

    env = SyncVectorEnv([lambda: Failing(gym.make("Pendulum-v1"))] * 2)
    with pytest.raises(InvalidInputError, match=r"finite; got \[nan nan nan\] at timestep 7"):
        SeminormLSTDAgent(Polynomial(1)).collect(env, still, n_trials=2, t_max=30, seed=0)


def test_trials_that_were_added_do_not_change_with_the_arrays_that_were_given() -> None:
    observations, rewards = np.ones((3, 5, 9)), np.ones((3, 4))
    added = SeminormLSTDAgent(Polynomial(1)).attach(Blank())
    added.add(KeptTrials.of(observations, rewards))
    logged = SeminormLSTDAgent(Polynomial(1))
    logged.add_trials(observations, rewards, observation_space=Blank.observation_space)
    observations[:], rewards[:] = 0.0, 0.0
    for agent in (added, logged):
        assert_array_equal(agent.kept_trials.observations, 1.0)
        assert_array_equal(agent.kept_trials.rewards, 1.0)


@pytest.mark.filterwarnings("ignore::lstd_agent.errors.FitWarning")  # coarse features, few trials
def test_trials_in_files_answer_as_trials_in_memory_do() -> None:
    x = np.array([[1.0, 0.0, 0.5], [0.0, 1.0, -1.0]])
    kept, filed = pendulum(), pendulum(max_bytes=20_000)
    size = 40 * (32 * 3 * 4 + 31 * 8)
    for agent, place, allowed in (
        (kept, "as they came", "1.07 GB"),
        (filed, "in temporary files", "20 kB"),
    ):
        agent.collect(
            gym.make("Pendulum-v1"), still_one, n_trials=5, t_max=30, seed=1, is_same_policy=True
        )
        account = f"kept        {place}: {size * 45 / 40 / 1000:.3g} kB (max_bytes {allowed})"
        assert account in deepcopy(agent).fit().summary()
    for copied in (filed, deepcopy(filed), pickle.loads(pickle.dumps(filed))):
        assert_array_equal(copied.kept_trials.observations, kept.kept_trials.observations)
        assert_allclose(copied.fit().predict(x), kept.fit().predict(x), rtol=1e-10)
        assert_allclose(copied.standard_errors(x), kept.standard_errors(x), rtol=1e-7)
        assert copied.use_features(Polynomial(1)).n_trials == 45


def still_one(observation: Any) -> Any:
    return np.zeros(1)


def test_files_have_no_name_and_go_with_the_arrays() -> None:
    def n_mapped() -> int:
        return Path("/proc/self/maps").read_text().count("lstd_agent")

    if not Path("/proc/self/maps").exists():
        pytest.skip("what is mapped cannot be seen here")

    def named() -> list[str]:
        return [name for name in os.listdir(gettempdir()) if name.startswith("lstd_agent")]

    before, there = n_mapped(), named()
    trials = Batches(1, 0, max_bytes=1000)
    for _ in range(3):
        trials.add(KeptTrials(np.ones((50, 4, 2)), np.ones((50, 3)), np.full(50, 2)))
    assert trials.in_file
    assert trials.kept.observations.sum() == 150 * 8
    assert n_mapped() == before + 3 or named() == there
    del trials
    assert n_mapped() == before


def test_a_full_disk_is_reported_and_loses_no_trial(monkeypatch: Any) -> None:
    agent = pendulum()
    observed = agent.kept_trials

    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    small = SeminormLSTDAgent(Polynomial(1), max_bytes=20_000).attach(gym.make("Pendulum-v1"))
    small.add(observed.take(slice(0, 5)))
    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(InvalidInputError, match=r"no room for .* \(No space left on device\)"):
        small.add(observed)
    assert small.n_trials == 5
    assert_array_equal(small.kept_trials.rewards, observed.rewards[:5])


class Blank(gym.Env[Any, Any]):
    observation_space = spaces.Box(-1.0, 1.0, (9,))
    action_space = spaces.Discrete(2)


class Picture(gym.Env[Any, Any]):
    observation_space = spaces.Box(0, 255, (8, 8, 3), np.uint8)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        return self.observation_space.sample(), 1.0, False, False, {}


@pytest.mark.filterwarnings("ignore::lstd_agent.errors.FitWarning")  # coarse features, few trials
def test_pictures_stay_bytes() -> None:
    agent = SeminormLSTDAgent(lambda x: x[:, :2] / 255.0, 1, gain=0.0)
    agent.collect(Picture(), lambda x: 0, n_trials=6, t_max=9)
    kept = agent.kept_trials
    assert kept.observations.dtype == np.uint8
    assert kept.observations.shape == (6, 11, 192)
    agent.fit()


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_dict_observations_that_end_are_kept_alike_in_every_mode(walk: Any, mode: Any) -> None:
    env = SyncVectorEnv([lambda: walk(4, True, "dict")] * 3, autoreset_mode=mode)
    agent = SeminormLSTDAgent(Polynomial(1), on_termination="absorb")
    kept = agent.collect(
        env, lambda o: np.zeros(3, int), n_trials=6, t_max=5, batched=True
    ).kept_trials
    assert_array_equal(kept.observations[0, :3, 2], [0.0, 1.0, 2.0])
    assert np.isnan(kept.observations[0, 3:]).all()
    assert_array_equal(kept.rewards, [[0, 1, 2, 0, 0, 0]] * 6)


def test_observations_that_are_not_finite_name_their_timestep(walk: Any) -> None:
    env = gym.wrappers.TransformObservation(
        walk(kind="box"), lambda o: o + (np.nan if o[0] == 2 else 0), spaces.Box(0, 10, (1,))
    )
    agent = SeminormLSTDAgent(Polynomial(1))
    with pytest.raises(InvalidInputError, match=r"must be finite; got \[nan\] at timestep 2"):
        agent.collect(env, lambda o: 0, n_trials=2, t_max=5)


def test_logged_trials_equal_collected_ones(walk: Any) -> None:
    observed = pendulum()
    kept = observed.kept_trials
    agent = SeminormLSTDAgent(Polynomial(1), 1, gain=0.0).attach(gym.make("Pendulum-v1"))
    agent.add(KeptTrials.of(kept.observations, kept.rewards))
    assert_array_equal(agent.kept_trials.observations, kept.observations)
    assert_array_equal(agent.kept_trials.rewards, kept.rewards)
    counted = SeminormLSTDAgent(np.eye(4))
    counted.add(KeptTrials.of([[[0], [1], [2]], [[0], [1], [3]]], [[0.0, 1.0], [0.0, 2.0]]))
    assert counted.n_trials == 2
    assert counted.counts.transition_counts[[1]].toarray().nonzero()[1].tolist() == [6, 7]
    ends = SeminormLSTDAgent(OneHot(), on_termination="absorb").attach(walk(4))
    ends.add(KeptTrials.of([[[0.0], [1.0], [np.nan]]], [[0.0, 1.0]]))
    other = SeminormLSTDAgent(OneHot(), on_termination="absorb").attach(walk(4), t_max=1)
    other.observe(0, 0, 0.0, 1)
    other.observe(1, 1, 1.0, 2, True)
    other.end_trial()
    found, expected = (each.counts.transition_counts.toarray() for each in (ends, other))
    assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("observations", "rewards", "message"),
    [
        (np.zeros((2, 4, 3)), np.zeros((2, 4)), r"got shapes \(2, 4, 3\) and \(2, 4\)"),
        (np.zeros((2, 5, 3)), np.full((2, 4), np.nan), "got nan at timestep 0 of trial 0"),
        (np.full((2, 5, 3), np.inf), np.zeros((2, 4)), "trial 0 at timestep 0 is not"),
        (np.full((2, 5, 3), np.nan), np.zeros((2, 4)), "NaN marks the end"),
        (np.zeros((2, 5, 2)), np.zeros((2, 4)), "have 3 components; got 2"),
        (np.zeros((2, 5, 3)), np.zeros(4), r"rewards \(m, t_max \+ 1\)"),
    ],
)
def test_invalid_trials_are_refused(observations: Any, rewards: Any, message: str) -> None:
    agent = SeminormLSTDAgent(Polynomial(1)).attach(gym.make("Pendulum-v1"))
    with pytest.raises(InvalidInputError, match=message):
        agent.add(KeptTrials.of(observations, rewards))
    assert agent.n_trials == 0


@pytest.mark.filterwarnings("ignore::lstd_agent.errors.FitWarning")  # coarse features, few trials
def test_standardized_features_are_measured_on_the_trials_and_remembered(tmp_path: Any) -> None:
    agent = pendulum(Standardized(Polynomial(2)))
    agent.fit()
    seen = agent.kept_trials.observations.reshape(-1, 3).astype(float)
    assert_allclose(agent.features.mean, seen.mean(axis=0))
    assert_allclose(agent.features.deviation, seen.std(axis=0))
    x = np.array([[1.0, 0.0, 0.5]])
    agent.save(tmp_path / "agent.npz")
    loaded = SeminormLSTDAgent.load(tmp_path / "agent.npz")
    assert_array_equal(loaded.predict(x), agent.predict(x))
    assert isinstance(loaded.features, Standardized)
    assert_array_equal(loaded.features.mean, agent.features.mean)
    inner = lambda z: np.hstack((np.ones((len(z), 1)), z))  # noqa: E731
    other = pendulum(Standardized(inner)).fit()
    other.save(tmp_path / "other.npz")
    with pytest.raises(InvalidInputError, match="a function for its features"):
        SeminormLSTDAgent.load(tmp_path / "other.npz")
    again = SeminormLSTDAgent.load(tmp_path / "other.npz", features=inner)
    assert_array_equal(again.predict(x), other.predict(x))
