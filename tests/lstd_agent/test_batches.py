"""Batches and samples: of trials, whatever the order in which they come; and own errors."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from lstd_agent import LoggedTrials, OneHot, Polynomial, SeminormLSTDAgent
from lstd_agent.errors import EvaluationError, InvalidInputError
from lstd_agent.trials.collect import split_seed
from lstd_agent.trials.counted import TrialSample
from lstd_agent.trials.kept import KeptTrials
from lstd_agent.trials.recording import Counter, Recording

SIX = spaces.Discrete(6)


def walks(n: int, t_max: int = 8, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    states = rng.integers(0, 6, (n, t_max + 2))
    return states, rng.normal(size=(n, t_max + 1))


def counted(states: Any, rewards: Any, **options: Any) -> SeminormLSTDAgent:
    agent = SeminormLSTDAgent(OneHot(), **options)
    return agent.add_trials(list(states), list(rewards), observation_space=SIX)


def kept(states: Any, rewards: Any) -> SeminormLSTDAgent:
    agent = SeminormLSTDAgent(Polynomial(2), anchors=[0], backup="one_step")
    return agent.add_trials(states[:, :, None].astype(float), rewards)


def test_the_sample_of_counted_trials_has_their_rewards() -> None:
    states, rewards = walks(50)
    sample: Any = counted(states, rewards).batches.sample
    assert sample.trials.observations.shape == (50, 10)
    assert sample.trials.rewards.shape == (50, 9)
    order = np.lexsort(sample.trials.rewards.T)
    assert_array_equal(sample.trials.rewards[order], rewards[np.lexsort(rewards.T)])
    assert_array_equal(sample.trials.observations[order], states[np.lexsort(rewards.T)])
    assert (np.diff(sample.hashes.astype(float)) > 0).all()


@settings(max_examples=8)
@given(st.integers(0, 10_000), st.integers(1, 60))
def test_sample_and_batches_of_a_log_do_not_depend_on_its_order(seed: int, n: int) -> None:
    states, rewards = walks(n, seed=seed)
    shuffled = np.random.default_rng(seed).permutation(n)
    a = counted(states, rewards, n_stored_trials=20).batches
    b = counted(states[shuffled], rewards[shuffled], n_stored_trials=20).batches
    assert a.sample is not None
    assert b.sample is not None
    assert_array_equal(a.sample.hashes, b.sample.hashes)
    for name in ("observations", "rewards"):
        assert_array_equal(getattr(a.sample.trials, name), getattr(b.sample.trials, name))
    for one, other in zip(a.sums, b.sums, strict=True):
        assert one.n_trials == other.n_trials
        found, expected = (x.transition_counts.toarray() for x in (one, other))
        assert_array_equal(found, expected)


def test_an_error_is_of_twenty_batches_or_more() -> None:
    states, rewards = walks(100)
    vectors = SeminormLSTDAgent(Polynomial(2), n_batches=3)
    vectors.add_trials(states[:, :, None].astype(float), rewards).fit()
    assert vectors.compare([1.0], [2.0]).degrees == 19
    counts = counted(states, rewards, n_batches=2).fit()
    assert counts.n_batches == len(counts.batches.sums) == 20
    assert counts.compare(1, 2).degrees == 19


def test_merged_agents_of_one_batch_are_batches_of_their_own() -> None:
    whole = SeminormLSTDAgent(OneHot(), n_batches=12)
    for seed in range(12):
        whole.merge(counted(*walks(24, seed=seed), n_batches=1))
    assert [counts.n_trials for counts in whole.batches.sums] == [24] * 12


def test_a_sample_of_merged_agents_equals_the_sample_of_all_trials() -> None:
    states, rewards = walks(300)
    parts = np.split(np.arange(300), [40, 41, 200])
    whole: Any = counted(states, rewards, n_stored_trials=25).batches.sample
    for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
        agents = [counted(states[parts[i]], rewards[parts[i]], n_stored_trials=25) for i in order]
        for other in agents[1:]:
            agents[0].merge(other)
        sample: Any = agents[0].batches.sample
        assert_array_equal(sample.trials.observations, whole.trials.observations)
        assert_array_equal(sample.trials.rewards, whole.trials.rewards)


@pytest.mark.filterwarnings("ignore::lstd_agent.errors.FitWarning")  # of random walks
def test_the_answer_of_kept_trials_does_not_depend_on_their_order_or_on_merging() -> None:
    states, rewards = walks(90)
    shuffled = np.random.default_rng(1).permutation(90)
    half = slice(0, 33), slice(33, None)
    merged = kept(states[half[1]], rewards[half[1]]).merge(kept(states[half[0]], rewards[half[0]]))
    x = np.arange(6.0)[:, None]
    whole = kept(states, rewards).fit()
    for agent in (kept(states[shuffled], rewards[shuffled]), merged):
        agent.fit()
        assert_array_equal(agent.predict(x), whole.predict(x))
        assert_array_equal(agent.standard_errors(x), whole.standard_errors(x))


def test_the_smallest_hashes_of_a_sample_are_no_special_trials() -> None:
    """Means over the sample are within five standard errors of means over all."""
    rng = np.random.default_rng(0)
    trials = KeptTrials(rng.integers(0, 6, (20_000, 12)), rng.normal(size=(20_000, 11)))
    sample = TrialSample.of(trials, 2000)
    error = 1.0 / np.sqrt(2000)
    assert np.abs(sample.trials.rewards.mean(axis=0)).max() < 5 * error
    assert np.abs(sample.trials.observations.mean(axis=0) - 2.5).max() < 5 * error * np.sqrt(
        35 / 12
    )


@settings(max_examples=8)
@given(st.integers(0, 10_000), st.sampled_from([3, 700, 2**28]), st.integers(1, 7))
def test_counts_by_batch_agree_with_a_plain_loop(seed: int, S: int, n_batches: int) -> None:
    rng = np.random.default_rng(seed)
    some = rng.choice(S, 3, replace=False) if S < 2**20 else rng.integers(0, S, 3)
    states, rewards = some[rng.integers(0, 3, (6, 11))], rng.normal(size=(5, 11))
    encoding: Any = SimpleNamespace(n_states=S)
    counter = Counter(Recording(encoding, n_batches), first=2)
    counter.count(KeptTrials(states.T, rewards.T))
    portion = counter.portion(11)
    for b in range(n_batches):
        mine = (2 + np.arange(11)) % n_batches == b
        counts, _ = portion.batch(b)
        assert counts.n_trials == mine.sum()
        for t in range(5):
            row = counts.transition_counts[[t]]
            pairs, n = np.unique(states[t][mine] * S + states[t + 1][mine], return_counts=True)
            assert dict(zip(row.indices.tolist(), row.data.tolist(), strict=True)) == dict(
                zip(pairs.tolist(), n.tolist(), strict=True)
            )
            assert_allclose(counts.reward_sums[[t]].sum(), rewards[t][mine].sum(), atol=1e-12)


def test_threads_that_collect_with_one_agent_lose_no_trial() -> None:
    agent = SeminormLSTDAgent(OneHot())

    def collect(seed: int) -> None:
        env = gym.make_vec("unichain_gym:Unichain-h6-v0", num_envs=3)
        agent.collect(env, [0] * 6, n_trials=3, t_max=4, seed=seed)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(collect, range(40)))
    assert agent.n_trials == 120
    assert_array_equal(agent.counts.transition_counts.sum(axis=1), [120] * 5)


def test_a_trial_under_way_is_refused_to_another_thread() -> None:
    agent = SeminormLSTDAgent(np.eye(2))
    agent.observe(0, 0, 1.0, 1)
    errors: list[BaseException] = []

    def meddle() -> None:
        for call in (lambda: agent.observe(1, 1, 1.0, 0), agent.end_trial):
            try:
                call()
            except InvalidInputError as error:
                errors.append(error)

    thread = threading.Thread(target=meddle)
    thread.start()
    thread.join()
    assert len(errors) == 2
    assert all("another thread has a trial under way" in str(error) for error in errors)
    agent.observe(1, 1, 1.0, 0)
    agent.end_trial()
    assert agent.n_trials == 1


def test_seeds_of_environments_fit_31_bits() -> None:
    assert all(split_seed(seed)[0] < 2**31 for seed in range(200))

    class Legacy(gym.Env[Any, Any]):
        observation_space, action_space = spaces.Discrete(2), spaces.Discrete(1)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            np.random.RandomState(seed)  # takes 32 bits at most
            return 0, {}

        def step(self, action: Any) -> Any:
            return 0, 0.0, False, False, {}

    sizes: tuple[dict[str, Any], ...] = {}, {"shard_size": 1}
    for workers in sizes:
        agent = SeminormLSTDAgent(OneHot())
        agent.collect(
            Legacy() if not workers else Legacy, [0, 0], n_trials=3, t_max=2, seed=0, **workers
        )
        assert agent.n_trials == 3


def test_rewards_that_are_huge_are_refused_with_their_value() -> None:
    agent = SeminormLSTDAgent(np.eye(2))
    message = r"to 1e\+100; got 1e\+300 at timestep 0"
    with pytest.raises(InvalidInputError, match=message):
        agent.observe(0, 0, 1e300, 1)
    agent.drop_trial()
    with pytest.raises(InvalidInputError, match=message):
        agent.observe(0, [0], [1e300], [1])
    with pytest.raises(InvalidInputError, match=message):
        LoggedTrials.of([[0, 1]], [[1e300]])
    with pytest.raises(InvalidInputError, match=message):
        KeptTrials.of([[[0.0], [1.0]]], [[1e300]])


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "t": (lambda a: a.observe(True, 0, 1.0, 1), "t must be an integer; got True"),
    "reward": (lambda a: a.observe(0, 0, "5", 1), "a reward is one number; got '5'"),
    "none": (lambda a: a.observe(0, 0, None, 1), "a reward is one number; got None"),
    "ragged reward": (lambda a: a.observe(0, 0, [1.0, [2.0]], 1), "a reward must be an array"),
    "observation": (lambda a: a.observe(0, True, 1.0, 1), "integers from 0 to 1; got True"),
    "text": (lambda a: a.observe(0, "x", 1.0, 1), "integers from 0 to 1; got 'x'"),
    "ragged": (lambda a: a.observe(0, [0, [1]], [1.0, 1.0], [1, 1]), "all rows of one length"),
    "terminated": (lambda a: a.observe(0, 0, 1.0, 1, [True, False]), "terminated is a bool"),
    "log": (lambda a: a.add_trials([[0, [1]]], [[1.0]]), "observations of a trial must be"),
    "rewards": (lambda a: a.add_trials([[0, 1]], [["1"]]), "of trial 0 must be real numbers"),
    "no rewards": (lambda a: a.add_trials([[0, 1]], 3), "rewards are given for each trial; got 3"),
    "kept": (lambda a: a.add(KeptTrials.of([[0], [0, 1]], [[1.0]])), "observations must be"),
    "policy": (
        lambda a: a.attach(gym.make("unichain_gym:Unichain-h3-v0"), [0, [1], 2]),
        r"a policy must be an array|has observed",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_anything_but_a_number_is_refused_with_its_value(case: str) -> None:
    call, message = REFUSED[case]
    agent = SeminormLSTDAgent(np.eye(2) if case != "policy" else OneHot())
    with pytest.raises(EvaluationError, match=message):
        call(agent)
    assert agent.n_trials == 0


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("n_batches", True),
        ("n_batches", "x"),
        ("n_batches", np.array([1, 2])),
        ("n_stored_trials", 2.0),
        ("observations", np.array(["auto", "counted"])),
        ("on_termination", ["raise"]),
        ("max_bytes", True),
    ],
)
def test_invalid_options_are_refused_with_their_value(option: str, value: Any) -> None:
    with pytest.raises(InvalidInputError, match=f"{option} must be"):
        SeminormLSTDAgent(OneHot(), **{option: value})
