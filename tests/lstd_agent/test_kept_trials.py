"""Trials of vectors: kept as they come while there is room, condensed into moments beyond."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from numpy.testing import assert_allclose, assert_array_equal

from lstd_agent import (
    CondensedTrialsWarning,
    KeptTrials,
    OneHot,
    Polynomial,
    RadialBasis,
    SeminormLSTDAgent,
    Standardized,
    TileCoding,
)
from lstd_agent.errors import InvalidInputError
from lstd_agent.features.rows import dense
from lstd_agent.statistics.moment_sums import MomentSums


def still(observation: Any) -> Any:
    return np.zeros((len(observation), 1))


def pendulum(features: Any = Polynomial(1), n_trials: int = 40, **options: Any) -> Any:  # noqa: B008
    agent = SeminormLSTDAgent(features, 1, gain=0.0, **options)
    env = SyncVectorEnv([lambda: gym.make("Pendulum-v1")] * 4)
    return agent.collect(env, still, n_trials, 30, seed=0)


def sums_of(agent: Any) -> MomentSums:
    kept = agent.kept_trials
    condensed: MomentSums = kept.condense(agent.collector.encoding.rows)
    return condensed


def assert_same_moments(a: MomentSums, b: MomentSums) -> None:
    for name in (n for n, value in vars(a).items() if value is not None):
        assert_allclose(getattr(a, name), getattr(b, name), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("features", [Polynomial(2), TileCoding([-1, -1, -8], [1, 1, 8], 3, 2)])
def test_moments_of_kept_trials_are_the_sums_that_their_definition_says(features: Any) -> None:
    kept = pendulum(features).kept_trials
    f = np.stack([dense(features(trial.astype(float))) for trial in kept.observations])
    now, following, r = f[:, :-1], f[:, 1:], kept.rewards
    windows = np.array([[0, 7], [7, 31], [30, 31], [3, 9]])
    for sums in (kept.condense(features, windows), kept.condense(features).over(windows)):
        for i, (a, b) in enumerate(windows):
            w = slice(a, b)
            for name, expected in (
                ("second_moments", np.einsum("mti,mtj->ij", now[:, w], now[:, w])),
                ("successor_moments", np.einsum("mti,mtj->ij", now[:, w], following[:, w])),
                ("reward_moments", np.einsum("mti,mt->i", now[:, w], r[:, w])),
                ("feature_sums", now[:, w].sum(axis=(0, 1))),
                ("reward_sums", r[:, w].sum()),
            ):
                assert_allclose(getattr(sums, name)[i], expected, rtol=1e-9, atol=1e-9)


def test_pieces_of_any_size_give_the_same_moments(monkeypatch: Any) -> None:
    kept = pendulum().kept_trials
    windows = np.array([[0, 20], [20, 31]])
    whole = kept.condense(Polynomial(2), windows)
    for size in (1, 100, 1000):
        monkeypatch.setattr("lstd_agent.features.rows._CHUNK_SIZE", size)
        assert_same_moments(kept.condense(Polynomial(2), windows), whole)


@pytest.mark.filterwarnings("ignore::lstd_agent.errors.FitWarning")  # coarse features, few trials
def test_features_may_change_after_collection() -> None:
    agent, other = pendulum(Polynomial(1)), pendulum(Polynomial(3))
    agent.use_features(Polynomial(3)).fit()
    x = np.array([[1.0, 0.0, 0.5], [0.0, 1.0, -1.0]])
    assert_array_equal(agent.predict(x), other.fit().predict(x))
    counted = SeminormLSTDAgent(OneHot(), 1).collect(
        gym.make("unichain_gym:Unichain-h6-v0"), np.zeros(6, int), 200, 30, seed=0
    )
    table = np.random.default_rng(0).normal(size=(6, 2))
    assert counted.use_features(table).fit().system_.weights.shape == (1, 2)


def test_condensed_trials_have_the_moments_of_kept_ones_and_keep_their_features() -> None:
    kept = pendulum()
    with pytest.warns(CondensedTrialsWarning, match=r"into moments of 4 features .* in 1 batches"):
        condensed = pendulum(max_bytes=20_000)
    assert_same_moments(condensed.collector.batches.total, sums_of(kept))
    stored = condensed.collector.batches.trials
    assert len(stored) == 40  # all: 20,000 bytes are 52 trials of 32 × 3 floats
    with pytest.raises(InvalidInputError, match="condensed into moments of the features so far"):
        condensed.use_features(Polynomial(2))
    with pytest.raises(InvalidInputError, match="no trials are kept"):
        _ = condensed.kept_trials


def test_trials_that_outgrow_their_room_are_condensed_on_the_way() -> None:
    env = gym.make("Pendulum-v1")
    agent = SeminormLSTDAgent(Polynomial(1), max_bytes=20_000)
    reference = pendulum(n_trials=4)
    agent.collect(env, lambda x: [0.0], 10, 30, seed=1, batched=False)
    reference.reset().collect(env, lambda x: [0.0], 10, 30, seed=1, batched=False)
    assert agent.collector.batches.are_kept
    with pytest.warns(CondensedTrialsWarning):
        agent.collect(env, lambda x: [0.0], 60, 30, seed=2, batched=False, is_same_policy=True)
    reference.collect(env, lambda x: [0.0], 60, 30, seed=2, batched=False, is_same_policy=True)
    assert agent.n_trials == 70
    total = agent.collector.batches.total
    assert isinstance(total, MomentSums)
    assert_same_moments(total, sums_of(reference))


@pytest.mark.filterwarnings("ignore::lstd_agent.errors.CondensedTrialsWarning")
@pytest.mark.parametrize("max_bytes", [10**6, 60_000])
def test_environments_may_write_all_their_observations_into_one_array(max_bytes: int) -> None:
    totals = []
    for copy in (True, False):
        env = SyncVectorEnv([lambda: gym.make("Pendulum-v1")] * 4, copy=copy)
        agent = SeminormLSTDAgent(Polynomial(2), max_bytes=max_bytes, n_batches=1)
        agent.collect(env, still, 120, 30, seed=0)
        totals.append(agent.collector.batches.total)
    for name, value in vars(totals[0]).items():
        assert_array_equal(value, getattr(totals[1], name))


def test_an_observation_that_is_none_is_named_with_its_timestep() -> None:
    class Failing(gym.ObservationWrapper[Any, Any, Any]):
        n = 0

        def observation(self, observation: Any) -> Any:
            self.n += 1
            return observation * (np.nan if self.n == 8 else 1.0)

    env = SyncVectorEnv([lambda: Failing(gym.make("Pendulum-v1"))] * 2)
    with pytest.raises(InvalidInputError, match=r"finite; got \[nan nan nan\] at timestep 7"):
        SeminormLSTDAgent(Polynomial(1)).collect(env, still, 2, 30, seed=0)


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


def test_what_has_no_room_is_refused_before_the_first_step() -> None:
    class Counting(gym.Wrapper[Any, Any, Any, Any]):
        n_steps = 0

        def step(self, action: Any) -> Any:
            self.n_steps += 1
            return super().step(action)

    env = Counting(gym.make("Pendulum-v1"))
    agent = SeminormLSTDAgent(lambda x: np.ones((len(x), 2000)), max_bytes=10**6)
    message = r"2.*MB, the moments of 2000 features over 201 timesteps 12\.9 GB.*allows 1 MB"
    with pytest.raises(InvalidInputError, match=message):
        agent.collect(env, lambda x: [0.0], 6000, 200, batched=False)
    assert env.n_steps == 0
    assert agent.n_trials == 0


def test_what_has_no_room_changes_nothing_whichever_way_it_comes() -> None:
    observations, rewards = np.zeros((30, 22, 9), np.float32), np.zeros((30, 21))
    space = spaces.Box(-1.0, 1.0, (9,))
    # 28,728 bytes are kept, and there is room for 20,000; moments take 8 · 21 · 181.
    agent = SeminormLSTDAgent(Polynomial(1), max_bytes=20_000)
    agent.add_trials(observations[:1], rewards[:1], observation_space=space)
    other = SeminormLSTDAgent(Polynomial(1))
    other.add_trials(observations, rewards, observation_space=space)
    agent.attach(Blank(), t_max=20)
    for add in (
        lambda: agent.add_trials(observations, rewards),
        lambda: agent.add(other.kept_trials),
        lambda: agent.merge(other),
        lambda: agent.observe(0, observations[:, 0], rewards[:, 0], observations[:, 1]),
    ):
        with pytest.raises(InvalidInputError, match=r"the moments of 10 features .*allows 20 kB"):
            add()
        assert agent.n_trials == 1
    assert not agent.collector.loop.under_way


def test_trials_in_lockstep_that_will_not_have_room_are_summed_up_from_the_first_step_on() -> None:
    agent = SeminormLSTDAgent(lambda x: x[:, :1], max_bytes=20_000).attach(Blank(), t_max=20)
    observed = np.random.default_rng(0).uniform(size=(22, 30, 9)).astype(np.float32)
    with pytest.warns(CondensedTrialsWarning, match=r"would take 28\.8 kB.* for 20 kB"):
        agent.observe(0, observed[0], observed[0, :, 0], observed[1])
    for t in range(1, 21):
        agent.observe(t, observed[t], observed[t, :, 0], observed[t + 1])
    agent.end_trial()
    kept = SeminormLSTDAgent(lambda x: x[:, :1])
    kept.add_trials(observed.swapaxes(0, 1), observed[:-1, :, 0].T)
    total = agent.collector.batches.total
    assert isinstance(total, MomentSums)
    assert_same_moments(total, sums_of(kept))


@pytest.mark.filterwarnings("ignore::lstd_agent.errors.FitWarning")  # coarse features, few trials
def test_the_summary_says_how_trials_are_kept_and_how_much_room_there_is() -> None:
    text = pendulum(max_bytes=10**6).fit().summary()
    size = 40 * (32 * 3 * 4 + 31 * 8)
    assert f"kept        as they came: {size / 1000:.3g} kB, and there is room for 1 MB" in text
    assert "(max_bytes 1 MB)" in text
    with pytest.warns(CondensedTrialsWarning):
        condensed = pendulum(max_bytes=20_000).fit().summary()
    assert "as moments of 4 features in 1 batches: 10.2 kB (max_bytes 20 kB)" in condensed


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
    agent.collect(Picture(), lambda x: 0, 6, 9)
    kept = agent.kept_trials
    assert kept.observations.dtype == np.uint8
    assert kept.observations.shape == (6, 11, 192)
    agent.fit()


def test_an_array_that_is_written_again_every_step_is_not_what_is_kept() -> None:
    class Reused(gym.Env[Any, Any]):
        observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
        action_space = spaces.Discrete(2)
        array = np.zeros(2)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            self.array[:] = 0.0
            return self.array, {}

        def step(self, action: Any) -> Any:
            self.array += 1.0
            return self.array, 1.0, False, False, {}

    agent = SeminormLSTDAgent(Polynomial(1)).collect(Reused(), lambda x: 0, 2, 3)
    assert_array_equal(agent.kept_trials.observations[1, :, 0], np.arange(5))


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_dict_observations_that_end_are_kept_alike_in_every_mode(walk: Any, mode: Any) -> None:
    env = SyncVectorEnv([lambda: walk(4, True, "dict")] * 3, autoreset_mode=mode)
    agent = SeminormLSTDAgent(Polynomial(1), on_termination="absorb")
    kept = agent.collect(env, lambda o: np.zeros(3, int), 6, 5, batched=True).kept_trials
    assert_array_equal(kept.observations[0, :3, 2], [0.0, 1.0, 2.0])
    assert np.isnan(kept.observations[0, 3:]).all()
    assert_array_equal(kept.rewards, [[0, 1, 2, 0, 0, 0]] * 6)


def test_observations_that_are_not_finite_name_their_timestep(walk: Any) -> None:
    env = gym.wrappers.TransformObservation(
        walk(kind="box"), lambda o: o + (np.nan if o[0] == 2 else 0), spaces.Box(0, 10, (1,))
    )
    agent = SeminormLSTDAgent(Polynomial(1))
    with pytest.raises(InvalidInputError, match=r"must be finite; got \[nan\] at timestep 2"):
        agent.collect(env, lambda o: 0, 2, 5)


def test_logged_trials_are_what_collecting_them_would_have_been(walk: Any) -> None:
    observed = pendulum()
    kept = observed.kept_trials
    agent = SeminormLSTDAgent(Polynomial(1), 1, gain=0.0).attach(gym.make("Pendulum-v1"))
    agent.add(KeptTrials.of(kept.observations, kept.rewards))
    assert_same_moments(sums_of(agent), sums_of(observed))
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
        (np.zeros((2, 4, 3)), np.zeros((2, 4)), r"need observations of shape \(2, 5, \.\.\.\)"),
        (np.zeros((2, 5, 3)), np.full((2, 4), np.nan), "got nan at timestep 0 of trial 0"),
        (np.full((2, 5, 3), np.inf), np.zeros((2, 4)), "trial 0 at timestep 0 is not"),
        (np.full((2, 5, 3), np.nan), np.zeros((2, 4)), "NaN, which marks the end"),
        (np.zeros((2, 5, 2)), np.zeros((2, 4)), "have 3 components; got 2"),
        (np.zeros((2, 5, 3)), np.zeros(4), r"rewards \(m, t_max \+ 1\)"),
    ],
)
def test_what_are_no_trials_is_refused(observations: Any, rewards: Any, message: str) -> None:
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


@pytest.mark.filterwarnings("ignore::lstd_agent.errors.FitWarning")  # coarse features, few trials
def test_standardized_features_are_measured_before_trials_are_condensed() -> None:
    with pytest.raises(InvalidInputError, match=r"Standardized\(features\)\.measured\(samples\)"):
        pendulum(Standardized(Polynomial(1)), max_bytes=20_000)
    agent = pendulum(Standardized(Polynomial(1)), 16, max_bytes=20_000)
    kept = agent.kept_trials
    env = SyncVectorEnv([lambda: gym.make("Pendulum-v1")] * 4)
    with pytest.warns(CondensedTrialsWarning):
        agent.collect(env, still, 40, 30, seed=1)
    assert_allclose(
        agent.collector.encoding.given.mean, kept.observations.mean(axis=(0, 1)), atol=1e-6
    )
    assert agent.n_trials == 56
    agent.fit()


def test_the_kept_trials_do_not_depend_on_the_number_of_workers() -> None:
    # Of NumPy, which workers can import wherever they are started: torque is the cosine.
    policy = partial(np.take, indices=[0], axis=1)
    agents = [
        SeminormLSTDAgent(RadialBasis.grid([-1, -1, -8], [1, 1, 8], 2)).collect(
            "Pendulum-v1", policy, 12, 9, seed=3, workers=workers, batched=True, shard_size=4
        )
        for workers in (1, 2)
    ]
    first, second = (agent.kept_trials for agent in agents)
    assert_array_equal(first.observations, second.observations)
    assert_array_equal(first.rewards, second.rewards)
