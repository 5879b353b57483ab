"""Kept trials are fitted without the moments of single timesteps, to the same numbers."""

from __future__ import annotations

import tracemalloc
from functools import cache
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from lstd_agent.statistics.moment_sums import condense
from lstd_agent.statistics.moments import MomentStatistics
from lstd_agent.statistics.trial_moments import TrialMoments
from numpy.testing import assert_allclose

from lstd_agent import KeptTrials, Polynomial, RadialBasis, SeminormLSTDAgent
from lstd_agent.features.tables import vector_features

pytestmark = pytest.mark.filterwarnings("ignore::lstd_agent.errors.FitWarning")


class Spot(gym.ObservationWrapper[Any, Any, Any]):
    observation_space: Any = spaces.Box(0.0, 35.0, (1,))

    def observation(self, observation: Any) -> Any:
        return np.array([observation], dtype=np.float32)


class Backlog(gym.Env[Any, Any]):
    """A backlog that starts anywhere up to 20 and is worked off, and costs its size."""

    observation_space = spaces.Box(0.0, np.inf, (1,))
    action_space = spaces.Discrete(1)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.size = float(self.np_random.integers(0, 21))
        return np.array([self.size], dtype=np.float32), {}

    def step(self, action: Any) -> Any:
        cost = -self.size
        move = 1.0 if self.np_random.random() < 0.3 else -1.0
        self.size = max(0.0, self.size + move)
        return np.array([self.size], dtype=np.float32), cost, False, False, {}


@cache
def collected(task: str) -> SeminormLSTDAgent:
    options: dict[str, Any] = {"n_batches": 5, "backup": "one_step"}
    if task == "pendulum":
        agent = SeminormLSTDAgent(Polynomial(1), **options)
        env: Any = SyncVectorEnv([lambda: gym.make("Pendulum-v1")] * 10)
        return agent.collect(env, lambda x: -x[:, 2:], 200, 40, seed=0, batched=True)
    if task == "backlog":
        agent = SeminormLSTDAgent(RadialBasis.grid(0, 20, 8), **options)
        env = SyncVectorEnv([Backlog] * 20)
        return agent.collect(env, lambda x: np.zeros(len(x), int), 100, 100, seed=0, batched=True)
    one_hot = lambda x: x[:, :1] == np.arange(36)  # noqa: E731
    agent = SeminormLSTDAgent(one_hot, **options)
    env = SyncVectorEnv([lambda: Spot(gym.make("unichain_gym:Unichain-h36c-v0"))] * 50)
    policy = lambda x: x[:, 0].astype(int) % 2  # noqa: E731
    return agent.collect(env, policy, 500, 150, seed=0, batched=True)


def test_no_moments_of_single_timesteps_are_held() -> None:
    d, t_max, n_trials = 200, 300, 20
    rng = np.random.default_rng(0)
    trials = KeptTrials.of(
        rng.uniform(-1.0, 1.0, (n_trials, t_max + 2, 2)), rng.normal(size=(n_trials, t_max + 1))
    )
    centers = rng.uniform(-1.0, 1.0, (d, 2))
    agent = SeminormLSTDAgent(RadialBasis(centers, 0.2), anchors=[0, 10], n_batches=2)
    agent.attach(Backlog2()).add(trials)
    tracemalloc.start()
    agent.fit()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    moments_of_timesteps = 8 * (t_max + 1) * 2 * d**2
    assert peak < moments_of_timesteps / 2


class Backlog2(Backlog):
    observation_space = spaces.Box(-1.0, 1.0, (2,))


@pytest.mark.parametrize("lengths", [None, [11, 3, 11, 1, 7, 10, 11]])
def test_windows_are_summed_alike_whether_or_not_they_are_remembered(
    lengths: Any, monkeypatch: Any
) -> None:
    rng = np.random.default_rng(1)
    rewards = rng.normal(size=(7, 11))
    if lengths is not None:
        rewards[np.arange(11) >= np.array(lengths)[:, None]] = 0.0
    trials = KeptTrials.of(rng.normal(size=(7, 12, 2)), rewards, lengths)
    features = vector_features(Polynomial(2))
    by_timestep = condense(trials, features)
    windows = np.array([[0, 4], [4, 11], [0, 4], [3, 3]])
    expected = by_timestep.over(windows)
    for room in (2**30, 700, 0):
        monkeypatch.setattr("lstd_agent.statistics.trial_moments._MAX_KEPT_BYTES", room)
        halves = [
            KeptTrials(
                trials.observations[i::2],
                trials.rewards[i::2],
                None if trials.lengths is None else trials.lengths[i::2],
            )
            for i in range(2)
        ]
        a, b = (TrialMoments.of(half, features) for half in halves)
        for _ in range(2):
            found = (a + b).over(windows)
            assert found.n_trials == 7
            for name in ("second_moments", "successor_moments", "reward_moments", "feature_sums"):
                assert_allclose(getattr(found, name), getattr(expected, name), atol=1e-12)
            assert_allclose(found.reward_sums, expected.reward_sums, atol=1e-12)
        for name in ("feature_sums", "squares", "reward_sums", "trials_at"):
            assert_allclose(getattr(a + b, name), getattr(by_timestep, name), atol=1e-12)
        assert_allclose((a + b).following[:-1], by_timestep.following[:-1], atol=1e-12)


def test_stored_trials_are_not_converted_to_doubles() -> None:
    trials = KeptTrials.of(np.zeros((4, 6, 100), np.uint8), np.zeros((4, 5)))
    assert trials.states().dtype == np.uint8
    assert np.shares_memory(trials.states(2), trials.observations)
    statistics = MomentStatistics(
        trials, vector_features(lambda x: x[:, :2] + 1.0), trials.states()
    )
    assert statistics.candidate_features.shape == (1, 2)


def test_features_that_take_less_memory_than_observations_are_computed_once() -> None:
    """As those of pictures or of a network: all else is made of them."""
    rng = np.random.default_rng(0)
    seen = np.clip(rng.normal(128.0, 20.0, (60, 22, 48)), 0, 255).astype(np.uint8)
    trials = KeptTrials(seen, seen[:, :-1, 0] / 255.0)
    found = []
    for with_waste in (False, True):  # features that take more memory are computed again
        n_computed = 0

        def features(x: Any, with_waste: bool = with_waste) -> Any:
            nonlocal n_computed
            n_computed += len(x)
            few = np.stack((x[:, :24].mean(axis=1), x[:, 24:].mean(axis=1)), axis=1) / 255.0
            return np.hstack((few, np.zeros((len(x), 8 * with_waste))))

        agent = SeminormLSTDAgent(features, anchors=[0, 3])
        agent.attach(Pictures())
        for batch in range(6):
            agent.add(trials.take(slice(batch, None, 6)))
        agent.fit()
        few = trials.observations[:5, 0]
        found.append((agent.predict(few, 0), agent.standard_errors(few, 0)))
        n_passes = n_computed / seen[..., 0].size
        assert n_passes > 6.0 if with_waste else n_passes < 6.0
    assert_allclose(found[0], found[1], rtol=1e-8)


class Pictures(gym.Env[Any, Any]):
    observation_space = spaces.Box(0, 255, (48,), np.uint8)
    action_space = spaces.Discrete(2)
