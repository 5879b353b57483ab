"""The user's own loop, and collection: one way of counting, whatever the order of calls."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from lstd_agent import OneHot, RadialBasis, SeminormLSTDAgent
from lstd_agent.errors import InvalidInputError, NotFittedError, TerminationError
from lstd_agent.trials.collect import split_seed
from lstd_agent.trials.encoding import CountedEncoding, make_encoding
from lstd_agent.trials.spaces import as_batch
from unichain_gym import TabularVectorEnv, make_mdp

POLICY = np.array([0, 1, 0, 1, 0, 1])


def counts(agent: SeminormLSTDAgent) -> Any:
    return agent.counts


def assert_same_counts(a: SeminormLSTDAgent, b: SeminormLSTDAgent) -> None:
    assert a.n_trials == b.n_trials
    assert (counts(a).transition_counts != counts(b).transition_counts).nnz == 0
    np.testing.assert_array_equal(counts(a).reward_sums.toarray(), counts(b).reward_sums.toarray())
    (some, others) = (each._source[0].whole_trials for each in (a, b))
    assert some is not None
    assert others is not None
    np.testing.assert_array_equal(some.observations, others.observations)
    np.testing.assert_array_equal(some.rewards, others.rewards)


def run_trials(agent: SeminormLSTDAgent, env: Any, n: int, t_max: int, seed: int) -> None:
    for i in range(n):
        observation, _ = env.reset(seed=seed if i == 0 else None)
        for t in range(t_max + 1):
            following, reward, *_ = env.step(agent.act(observation))
            agent.observe(t, observation, reward, following)
            observation = following
        agent.end_trial()


def recorded_trials(n: int, t_max: int) -> tuple[Any, Any]:
    env = gym.make_vec("unichain_gym:Unichain-h6-v0", num_envs=n)
    states, rewards = [env.reset(seed=0)[0]], []
    for _ in range(t_max + 1):
        state, reward, *_ = env.step(POLICY[states[-1]])
        states.append(state)
        rewards.append(reward)
    return np.array(states), np.array(rewards)


def test_scalars_one_by_one_count_like_batches_in_lockstep() -> None:
    states, rewards = recorded_trials(60, t_max=9)
    batch, single = SeminormLSTDAgent(np.eye(6)), SeminormLSTDAgent(np.eye(6))
    for t in range(10):
        batch.observe(t, states[t], rewards[t], states[t + 1])
    batch.end_trial()
    for i in range(60):
        for t in range(10):
            single.observe(t, int(states[t, i]), rewards[t, i], states[t + 1, i])
        single.end_trial()
    assert_same_counts(batch, single)
    expected = np.zeros((10, 6, 6))
    for t in range(10):
        np.add.at(expected[t], (states[t], states[t + 1]), 1)
    N = counts(batch).transition_counts.toarray().reshape(10, 6, 6)
    np.testing.assert_array_equal(N, expected)


def test_the_users_loop_counts_like_collect() -> None:
    collected, observed = SeminormLSTDAgent(OneHot()), SeminormLSTDAgent(OneHot())
    env = gym.make("unichain_gym:Unichain-h6-v0")
    collected.collect(env, POLICY, n_trials=30, t_max=12, seed=5)
    env_seed, _ = split_seed(5)
    observed.attach(env, POLICY)
    run_trials(observed, env, 30, 12, env_seed)
    assert_same_counts(collected, observed)


def test_collection_continues_where_it_stopped() -> None:
    env = gym.make_vec("unichain_gym:Unichain-h6-v0", num_envs=50)
    agent = SeminormLSTDAgent(OneHot()).collect(env, POLICY, n_trials=120, t_max=20, seed=0)
    agent.collect(env, POLICY, n_trials=80, t_max=20, seed=1)
    assert agent.n_trials == 200
    np.testing.assert_array_equal(counts(agent).transition_counts.sum(axis=1), 200)
    with pytest.raises(InvalidInputError, match="have t_max = 20; got 21"):
        agent.collect(env, POLICY, n_trials=10, t_max=21)


def test_the_same_seed_gives_the_same_trials() -> None:
    env = gym.make_vec("unichain_gym:Unichain-h6-v0", num_envs=50)
    random_policy = np.full((6, 2), 0.5)
    a, b, c = (
        SeminormLSTDAgent(OneHot()).collect(env, random_policy, n_trials=70, t_max=20, seed=seed)
        for seed in (3, 3, 4)
    )
    assert_same_counts(a, b)
    assert (counts(a).transition_counts != counts(c).transition_counts).nnz > 0


class Interrupted(gym.Wrapper[Any, Any, Any, Any]):
    """Breaks off after so many steps, as a user's Ctrl-C does."""

    def __init__(self, env: Any, n_steps: int) -> None:
        super().__init__(env)
        self.n_steps = n_steps

    def step(self, action: Any) -> Any:
        self.n_steps -= 1
        if self.n_steps < 0:
            raise KeyboardInterrupt
        return super().step(action)


def test_an_interrupt_keeps_all_finished_trials() -> None:
    env = Interrupted(gym.make("unichain_gym:Unichain-h6-v0"), n_steps=7 * 10 + 3)
    agent = SeminormLSTDAgent(OneHot())
    with pytest.raises(KeyboardInterrupt):
        agent.collect(env, POLICY, n_trials=2000, t_max=9, seed=0)
    assert agent.n_trials == 7
    np.testing.assert_array_equal(counts(agent).transition_counts.sum(axis=1), 7)


def test_the_first_finished_trial_sets_t_max_and_later_ones_must_match(walk: Any) -> None:
    agent = SeminormLSTDAgent(OneHot()).attach(walk(), np.zeros(4, dtype=int))
    run_trials(agent, walk(), 2, 4, seed=0)
    assert agent.counts.t_max == 4
    for t, place in enumerate([0, 1, 2]):
        agent.observe(t, place, float(place), place + 1)
    with pytest.raises(InvalidInputError, match="timesteps 0 to 2, the others 0 to 4"):
        agent.end_trial()
    agent.drop_trial()
    run_trials(agent, walk(), 1, 4, seed=0)
    assert agent.n_trials == 3
    with pytest.raises(InvalidInputError, match="timesteps 0 to 4; got t = 5"):
        run_trials(agent, walk(), 1, 5, seed=0)


@pytest.mark.parametrize(
    ("calls", "message"),
    [
        ([(1, 0, 0.0, 0)], "timestep 0 comes next; got t = 1"),
        ([(0, 0, 0.0, 1), (0, 0, 0.0, 1)], "timestep 1 comes next; got t = 0"),
        ([(0, 0, 0.0, 1), (1, 0, 0.0, 1)], "observed elsewhere at timestep 1"),
        (
            [(0, [0, 0], [0.0, 0.0], [1, 1]), (1, [1, 0], [0.0, 0.0], [1, 1])],
            "trial 1 is observed elsewhere at timestep 1",
        ),
        ([(0, 0, np.nan, 1)], "rewards must be finite.*got nan"),
        ([(0, 2, 0.0, 1)], "integers from 0 to 1; got 2"),
        ([(0, 0.5, 0.0, 1)], "integers from 0 to 1; got 0.5"),
        ([(0, 0, 0.0, 1), (1, [1, 1], [0.0, 0.0], [1, 1])], "a single trial is under way"),
        ([(0, [1, 1], [0.0, 0.0], [1, 1]), (1, 1, 0.0, 1)], "trials in lockstep are under way"),
        ([(0, [1, 1], [0.0], [1, 1])], r"got \(\(2,\), \(1,\), \(2,\)\)"),
        ([(0, 1, [0.0], 1)], r"got \(\(\), \(1,\), \(\)\)"),
        ([(0, np.empty(0, int), [], np.empty(0, int))], r"next observations; got \(\(0,\)"),
        ([(0, [1, 1], [0.0, 0.0], [1, 1], [True])], r"one for each trial of a batch; got \[True\]"),
        ([(0, [1, 1], [0.0, 0.0], [1, 1]), (1, [1], [0.0], [1])], "2 trials are under way"),
    ],
)
def test_impossible_transitions_are_refused(calls: list[Any], message: str) -> None:
    agent = SeminormLSTDAgent(np.eye(2))
    for call in calls[:-1]:
        agent.observe(*call)
    with pytest.raises(InvalidInputError, match=message):
        agent.observe(*calls[-1])


def test_the_loop_needs_to_know_spaces_and_policy() -> None:
    agent = SeminormLSTDAgent(OneHot())
    with pytest.raises(NotFittedError, match=r"call attach\(env\)"):
        agent.observe(0, 0, 0.0, 1)
    with pytest.raises(NotFittedError, match=r"give one to attach\(\)"):
        agent.act(0)
    with pytest.raises(InvalidInputError, match="no trial is under way"):
        agent.end_trial()
    with pytest.raises(NotFittedError, match="there are no trials yet: call collect or observe"):
        agent.fit()
    agent.attach(gym.make("unichain_gym:Unichain-h6-v0")).observe(0, 0, 0.0, 1)
    with pytest.raises(NotFittedError, match=r"there are no trials yet: call end_trial\(\) first"):
        agent.fit()


def test_one_long_run_is_to_be_cut_into_trials() -> None:
    rng, n, T = np.random.default_rng(0), 10_050, 100
    x, r = rng.integers(2, size=n + 1), rng.random(n)
    agent = SeminormLSTDAgent(OneHot())
    with pytest.raises(
        InvalidInputError, match=r"cut one long run .* by end_trial or add_trials\("
    ):
        agent.add_trials([x], [r], observation_space=gym.spaces.Discrete(2)).fit()
    # As the message says.
    cut = [x[i : i + T + 1] for i in range(0, n, T)], [r[i : i + T] for i in range(0, n, T)]
    agent.reset().add_trials(*cut, observation_space=gym.spaces.Discrete(2)).fit()
    assert agent.n_trials == 101
    assert abs(agent.gain_ - 0.5) < 4.0 * agent.gain_error_


@pytest.mark.parametrize("observation", [-1, 6, 1.0, "a", np.array([-1, 3])])
def test_there_is_no_action_for_an_impossible_observation(observation: Any) -> None:
    env = gym.make("unichain_gym:Unichain-h6-v0")
    agent = SeminormLSTDAgent(OneHot()).attach(env, np.zeros(6, dtype=int))
    with pytest.raises(InvalidInputError, match="integers from 0 to 5"):
        agent.act(observation)


@pytest.mark.parametrize(("t_max", "message"), [(-1, "at least 0; got -1"), (2.5, "an integer")])
def test_an_impossible_t_max_is_refused(t_max: Any, message: str) -> None:
    env = gym.make("unichain_gym:Unichain-h6-v0")
    with pytest.raises(InvalidInputError, match=message):
        SeminormLSTDAgent(OneHot()).attach(env, t_max=t_max)


def test_small_integers_do_not_wrap_around() -> None:
    space = gym.spaces.Discrete(250, start=-5)
    states = CountedEncoding(space, OneHot(), ends=False).encode(np.array([0, 125], np.int8))
    assert states.tolist() == [5, 130]


def test_a_trial_under_way_is_finished_or_dropped_but_never_forgotten() -> None:
    env = gym.make("unichain_gym:Unichain-h6-v0")
    for observe in ((0, 1, 0.0, 1), (0, [1, 1], [0.0, 0.0], [1, 1])):
        agent = SeminormLSTDAgent(OneHot()).attach(env)
        agent.observe(*observe)
        with pytest.raises(InvalidInputError, match="a trial is under way: call end_trial"):
            agent.attach(env)
        agent.drop_trial()
        agent.attach(env).observe(*observe)
        agent.end_trial()
        assert agent.n_trials == np.size(observe[1])


def test_policies_act_on_single_observations_and_on_batches() -> None:
    env = gym.make("unichain_gym:Unichain-h6-v0")
    agent = SeminormLSTDAgent(OneHot()).attach(env, POLICY)
    assert agent.act(3) == 1
    assert agent.act(np.int64(2)) == 0
    np.testing.assert_array_equal(agent.act(np.array([1, 2])), [1, 0])
    agent.attach(env, np.array([[0.5, 0.5]] * 6), seed=0)
    drawn = [agent.act(0) for _ in range(400)]
    assert 150 < sum(drawn) < 250  # ±5 standard deviations


def test_dict_observations_reach_a_policy_as_they_are(walk: Any) -> None:
    seen: list[Any] = []

    def policy(observation: Any) -> int:
        seen.append(observation)
        return int(observation["x"][0] > 1)

    features = RadialBasis([[0.0, 1.0, 0.0], [2.0, 1.0, 0.0]], 1.0)
    agent = SeminormLSTDAgent(features)
    agent.collect(walk(kind="dict"), policy, n_trials=3, t_max=4, batched=False)
    assert agent.n_trials == 3
    assert set(seen[-1]) == {"x", "even"}


def test_single_observations_of_several_parts_are_held_as_batches_of_them_are_encoded() -> None:
    box, picture = spaces.Box(-9.0, 9.0, (2,)), spaces.Box(0, 255, (2, 2), np.uint8)
    numbers = spaces.Tuple((spaces.Discrete(3), spaces.Discrete(2, start=1)))
    cases: list[tuple[Any, list[Any]]] = [
        (numbers, [(2, 1), (np.int64(2), np.int64(2)), (np.uint8(0), 1)]),
        (spaces.MultiDiscrete([3, 2], start=[5, -1]), [np.array([7, -1]), np.array([5, 0])]),
        (spaces.Dict(b=box, a=picture), [{"a": np.eye(2, dtype=np.uint8), "b": np.ones(2)}]),
        (spaces.Tuple((box, box)), [(np.ones(2, np.float32), np.zeros(2, np.float32))]),
        (spaces.Tuple((box, spaces.Discrete(3))), [(np.ones(2), 2), (np.ones(2), np.int64(1))]),
    ]
    for space, observations in cases:
        encoding: Any = make_encoding(space, lambda x: x, False)
        for observation in observations * 2:  # the second time they are known
            held = encoding.hold(observation)
            np.testing.assert_array_equal(held, encoding.encode(as_batch(observation))[0])
            assert encoding.is_held(held, observation)


def test_an_observation_outside_the_space_is_refused_even_if_equal() -> None:
    numbers = make_encoding(spaces.Tuple((spaces.Discrete(3), spaces.Discrete(2))), OneHot(), False)
    numbers.hold((2, 1))
    for other in ((2.0, 1), (3, 1), (2, 1, 0), 2):
        with pytest.raises(InvalidInputError):
            numbers.hold(other)
    box = spaces.Box(-9.0, 9.0, (2,))
    boxes = make_encoding(spaces.Dict(a=box, b=box), lambda x: x, False)
    for wrong in ({"a": np.ones(2)}, {"a": np.ones(2), "b": np.ones(3)}, [1.0, 2.0], 2.0):
        with pytest.raises(InvalidInputError):
            boxes.hold(wrong)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_truncation_before_t_max_names_the_limit(mode: AutoresetMode) -> None:
    def make() -> Any:
        return gym.make("unichain_gym:Unichain-h6-v0", max_episode_steps=10)

    message = r"truncated at timestep 9, before t_max = 10: .*max_episode_steps\) to at least 11"
    possible = make_mdp("h6").induce(POLICY).transition_matrix.toarray() > 0
    for env in (make(), SyncVectorEnv([make] * 3, autoreset_mode=mode)):
        with pytest.raises(TerminationError, match=message):
            SeminormLSTDAgent(OneHot()).collect(env, POLICY, n_trials=3, t_max=10, seed=0)
        # A limit at the very end cuts nothing off, and the last transition is not the reset.
        agent = SeminormLSTDAgent(OneHot()).collect(env, POLICY, n_trials=30, t_max=9, seed=0)
        N = counts(agent).transition_counts.toarray().reshape(10, 6, 6)
        assert not N[:, ~possible].any()


def test_waiting_trials_are_added_up_by_the_room_that_they_take() -> None:
    """A trial that terminates at once takes as many timesteps as the others."""
    task = TabularVectorEnv(make_mdp("h6"))
    agent = SeminormLSTDAgent(OneHot(), gain=0.0, on_termination="absorb")
    agent.attach(task, t_max=2**17 - 1)
    waiting = []
    for _ in range(4):
        agent.observe(0, 0, 1.0, 1, terminated=True)
        agent.end_trial()
        waiting.append(agent._n_waiting)
    assert waiting == [1, 0, 1, 0]
    assert agent.n_trials == 4
