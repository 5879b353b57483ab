"""What a collector is given, forgets and refuses; and what a refusal leaves as it was."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy import sparse

from lstd_agent import GaussianFeatures, OneHot, Polynomial, SeminormLSTDAgent, TransitionCounts
from lstd_agent.errors import FitWarning, InvalidInputError, NotFittedError
from lstd_agent.trials.encoding import CountedEncoding, VectorEncoding, make_encoding
from lstd_agent.trials.policies import same_policy
from lstd_agent.trials.spaces import Numbering
from unichain_gym import make_mdp, simulate_counts

ZEROS = np.zeros(6, dtype=int)


def h6() -> Any:
    return gym.make("unichain_gym:Unichain-h6-v0")


def simulated(seed: int = 0, t_max: int = 20) -> Any:
    return simulate_counts(make_mdp("h6").induce(ZEROS), 100, t_max, seed)


finite = st.recursive(
    st.one_of(
        st.builds(lambda n, s: spaces.Discrete(n, start=s), st.integers(1, 6), st.integers(-3, 3)),
        st.lists(st.integers(1, 4), min_size=1, max_size=3).map(spaces.MultiDiscrete),
        st.integers(1, 3).map(spaces.MultiBinary),
        st.builds(
            lambda low, n: spaces.Box(low, low + n, (2,), np.int8),
            st.integers(-4, 4),
            st.integers(0, 3),
        ),
    ),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple),
        st.dictionaries(st.sampled_from("abc"), inner, min_size=1).map(spaces.Dict),
    ),
    max_leaves=3,
)


@settings(max_examples=25)
@given(finite, st.integers(0, 2**31))
def test_numbers_and_observations_of_a_finite_space_map_to_each_other(
    space: Any, seed: int
) -> None:
    encoding = make_encoding(space, lambda o: np.ones((len(o), 1)), False, "counted")
    assert isinstance(encoding, CountedEncoding)
    space.seed(seed % 1000)
    state = seed % encoding.n
    parts = encoding.numbering.parts_of(np.array([state]))
    assert encoding.numbering.numbers_of_parts(parts).tolist() == [state]
    samples = [space.sample() for _ in range(5)]
    numbers = [int(encoding.encode_any(sample)[0][0]) for sample in samples]
    assert all(0 <= number < encoding.n for number in numbers)
    flat = {
        tuple(np.asarray(spaces.flatten(space, s)).tolist()): n
        for s, n in zip(samples, numbers, strict=True)
    }
    assert len(flat) == len(set(numbers)), "equal observations have equal numbers, others others"
    if isinstance(space, spaces.Dict | spaces.Tuple):
        assert encoding.encode_any(samples)[0].tolist() == numbers
    assert [encoding.hold(sample) for sample in samples] == numbers


def test_a_list_of_observations_of_a_tuple_space_is_not_read_across() -> None:
    space = spaces.Tuple([spaces.Discrete(32), spaces.Discrete(11), spaces.Discrete(2)])
    encoding = make_encoding(space, OneHot(), False)
    hands = [(4, 10, 0), (5, 1, 0), (1, 0, 1)]
    expected = [(s * 11 + d) * 2 + ace for s, d, ace in hands]
    assert encoding.encode_any(hands)[0].tolist() == expected
    columns = tuple(np.array(column) for column in zip(*hands, strict=True))
    assert encoding.encode_any(columns)[0].tolist() == expected
    assert encoding.encode_any(hands[0])[1] == ()
    vectors = make_encoding(space, Polynomial(1), False, "vectors")
    assert_array_equal(vectors.encode_any(hands)[0], [spaces.flatten(space, h) for h in hands])
    with pytest.raises(InvalidInputError, match="does not have 3 members"):
        encoding.encode_any([(4, 10)])


def test_small_finite_spaces_are_counted_by_default() -> None:
    ones = lambda o: np.ones((len(o), 1))  # noqa: E731
    for space, option, kind in (
        (spaces.MultiDiscrete([3, 4]), "auto", CountedEncoding),
        (spaces.MultiDiscrete([3, 4]), "vectors", VectorEncoding),
        (spaces.MultiDiscrete([300, 400]), "auto", VectorEncoding),
        (spaces.MultiDiscrete([300, 400]), "counted", CountedEncoding),
        (spaces.Box(0, 255, (1,), np.uint8), "auto", CountedEncoding),
        (spaces.Box(0, 255, (84, 84, 3), np.uint8), "auto", VectorEncoding),
        (spaces.Box(0, 1, (1,)), "auto", VectorEncoding),
        (spaces.Discrete(3), "vectors", VectorEncoding),
        (spaces.Discrete(20_000), "auto", CountedEncoding),
    ):
        assert type(make_encoding(space, ones, False, option)) is kind  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="has too many observations to count"):
        make_encoding(spaces.Box(0, 1, (1,)), ones, False, "counted")
    with pytest.raises(InvalidInputError, match="observations must be one of"):
        SeminormLSTDAgent(OneHot(), observations="numbers")  # type: ignore[arg-type]
    assert Numbering.of(spaces.Box(0, 255, (84, 84, 3), np.uint8)) is None


def test_features_of_counted_spaces_are_functions_of_their_parts() -> None:
    space = spaces.MultiDiscrete([3, 4], start=[1, 0])
    encoding = make_encoding(space, lambda o: o[:, :1] * 10 + o[:, 1:], False)
    state = encoding.encode(np.array([[2, 3]]))
    assert encoding.features(state).tolist() == [[23.0]]
    assert_array_equal(np.asarray(encoding.decode(int(state[0]))), [2, 3])


def test_the_users_generator_is_not_drawn_from() -> None:
    env = gym.make("Pendulum-v1")
    env.observation_space.seed(3)
    before = env.observation_space.np_random.bit_generator.state
    SeminormLSTDAgent(Polynomial(1)).collect(env, lambda x: [0.0], n_trials=1, t_max=3, seed=0)
    assert env.observation_space.np_random.bit_generator.state == before


def test_counts_from_any_source_are_added() -> None:
    a, b = simulated(0), simulated(1)
    agent = SeminormLSTDAgent(OneHot()).add(a).add(b)
    assert agent.n_trials == 200
    total = agent.counts
    assert (total.transition_counts != a.transition_counts + b.transition_counts).nnz == 0
    other = SeminormLSTDAgent(GaussianFeatures(3)).add(total)
    assert other.n_trials == 200
    assert other.add(agent).n_trials == 400
    on_top = SeminormLSTDAgent(OneHot()).attach(h6()).add(a)
    assert on_top.collect(h6(), ZEROS, n_trials=5, t_max=20).n_trials == 105


def changed(**changes: Any) -> Any:
    good = simulated()
    names = ("n_states", "n_trials", "transition_counts", "reward_sums")
    return SimpleNamespace(**{**{name: getattr(good, name) for name in names}, **changes})


def unbalanced() -> sparse.csr_array:
    N = simulated().transition_counts.tolil(copy=True)
    N[3] = 0
    N[3, 35] = 100
    return sparse.csr_array(N)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: changed(n_states=5), r"of shape \(t_max \+ 1, 25\)"),
        (lambda: changed(n_trials=99), "transitions of 99 trials at timestep 0 sum to 100"),
        (lambda: changed(transition_counts=unbalanced()), "that reaches a state must leave it"),
        (lambda: changed(transition_counts=-simulated().transition_counts), "integers from 0"),
        (lambda: changed(transition_counts=simulated().transition_counts * 1.0), "got float64"),
        (
            lambda: changed(reward_sums=simulated().reward_sums * np.nan),
            r"finite, at most 1e\+100 a trial",
        ),
        (
            lambda: changed(reward_sums=sparse.csr_array(np.ones((21, 6)))),
            "rewards of states that no trial was in",
        ),
        (lambda: {"n_states": 6}, "no attribute 'n_states'"),
        (lambda: simulated(t_max=21), "have t_max = 20; got 21"),
    ],
)
def test_counts_that_cannot_be_of_trials_are_refused(make: Any, message: str) -> None:
    agent = SeminormLSTDAgent(OneHot()).add(simulated(5))
    with pytest.raises(InvalidInputError, match=message):
        agent.add(make())
    assert agent.n_trials == 100


def test_damaged_matrices_are_refused_before_they_are_used() -> None:
    good = simulated()
    N = good.transition_counts.copy()
    N.indices = N.indices.copy()
    N.indices[-1] = 10**6
    damaged = TransitionCounts(6, 100, N, good.reward_sums)
    with pytest.raises(InvalidInputError, match="transition_counts is not a valid CSR matrix"):
        SeminormLSTDAgent(OneHot()).add(damaged)


def test_both_packages_use_the_same_counts() -> None:
    from dataclasses import fields

    ours, theirs = (
        [f.name for f in fields(kind)] for kind in (TransitionCounts, type(simulated()))
    )
    assert set(ours) == {*theirs, "n_at", "duration_sums"}


def test_nothing_changes_when_something_is_refused() -> None:
    h3 = gym.make("unichain_gym:Unichain-h3-v0")
    agent = SeminormLSTDAgent(OneHot())
    for refused in (
        lambda: agent.collect(h3, np.zeros(3, int), n_trials=0, t_max=5),
        lambda: agent.collect(h3, np.zeros(4, int), n_trials=2, t_max=5),
        lambda: agent.attach(h3, np.zeros(4, int)),
        lambda: agent.attach(h3, t_max=-1),
        lambda: agent.attach(h3, seed=-1),
        lambda: agent.collect(h3, np.zeros(3, int), n_trials=2, t_max=5, seed=-1),
    ):
        with pytest.raises(InvalidInputError):
            refused()
    agent.collect(h6(), ZEROS, n_trials=2, t_max=7)
    with pytest.raises(InvalidInputError, match="have t_max = 7; got 9"):
        agent.attach(h6(), t_max=9)
    with pytest.raises(NotFittedError, match="has no policy"):
        agent.act(0)
    assert agent.collect(h6(), ZEROS, n_trials=2, t_max=7).n_trials == 4


def test_trials_of_a_second_policy_are_refused_by_default() -> None:
    agent = SeminormLSTDAgent(OneHot(), 1).collect(h6(), ZEROS, n_trials=2, t_max=5, seed=0)
    ones = np.ones(6, int)
    again: Any
    for again in (agent.collect, agent.attach):
        with pytest.raises(InvalidInputError, match=r"of another policy.*reset\(\)"):
            again(h6(), ones, **({"n_trials": 2, "t_max": 5} if again == agent.collect else {}))
    with pytest.raises(InvalidInputError, match="of another policy"):
        agent.merge(SeminormLSTDAgent(OneHot()).collect(h6(), ones, n_trials=2, t_max=5))
    assert agent.n_trials == 2
    with pytest.warns(FitWarning, match="collect more trials"):
        agent.collect(h6(), lambda s: 0, n_trials=2, t_max=5, seed=1, is_same_policy=True).fit()
    agent.reset()
    assert agent.n_trials == 0
    assert repr(agent).endswith("0 trials, not fitted>")
    h3 = gym.make("unichain_gym:Unichain-h3-v0")
    assert agent.collect(h3, np.ones(3, int), n_trials=2, t_max=9).n_trials == 2


def test_policies_are_compared_by_value() -> None:
    def threshold(c: float) -> Any:
        return lambda x: int(x[0] > c)

    assert same_policy([0, 1], np.array([0, 1]))
    assert same_policy(threshold(1.0), threshold(1.0))
    assert not same_policy(threshold(1.0), threshold(2.0))
    assert not same_policy(np.zeros(2), threshold(2.0))
    assert not same_policy(lambda x: 0, lambda x: 1)
    space = spaces.Discrete(2)
    assert same_policy(space.contains, space.contains)
    assert not same_policy(space.contains, spaces.Discrete(2).contains)


def test_vector_rewards_that_are_not_finite_name_timestep_and_copy(walk: Any) -> None:
    def make(bad: bool) -> Any:
        return lambda: gym.wrappers.TransformReward(
            walk(), lambda r: float("nan") if bad and r == 2 else r
        )

    env = SyncVectorEnv([make(False), make(True)])
    with pytest.raises(InvalidInputError, match="got nan at timestep 2 of trial 1 of the round"):
        SeminormLSTDAgent(OneHot()).collect(env, np.zeros(4, int), n_trials=2, t_max=5)


def test_rewards_that_are_arrays_are_refused_with_timestep_and_value(walk: Any) -> None:
    env = gym.wrappers.TransformReward(walk(), lambda r: np.array([r]) if r == 2 else r)
    with pytest.raises(InvalidInputError, match=r"got array\(\[2\.\]\) at timestep 2"):
        SeminormLSTDAgent(OneHot()).collect(env, np.zeros(4, int), n_trials=2, t_max=5)
    agent = SeminormLSTDAgent(np.eye(4))
    with pytest.raises(InvalidInputError, match="a reward is one number; got None"):
        agent.observe(0, 0, None, 1)  # type: ignore[arg-type]


def test_spaces_and_environments_of_other_kinds_are_refused(walk: Any) -> None:
    env = walk()
    env.observation_space = spaces.Graph(spaces.Box(0, 1, (2,)), None)
    with pytest.raises(InvalidInputError, match=r"Graph.* have no flat form of fixed length"):
        SeminormLSTDAgent(Polynomial(1)).attach(env)

    class DummyVecEnv:
        num_envs = 2

        def step_async(self, actions: Any) -> None: ...

    stable: Any = DummyVecEnv()
    agent = SeminormLSTDAgent(OneHot())
    with pytest.raises(InvalidInputError, match=r"make a gymnasium\.vector\.SyncVectorEnv"):
        agent.collect(stable, np.zeros(4, int), n_trials=2, t_max=5)
    with pytest.raises(InvalidInputError, match="env must be an Env or a VectorEnv"):
        agent.attach(stable)


def test_a_table_that_is_written_to_changes_nothing() -> None:
    table = np.eye(6)
    agent = SeminormLSTDAgent(table, 1).collect(h6(), ZEROS, n_trials=30, t_max=20, seed=0)
    before = agent.fit().predict(np.arange(6))
    table[:] = 7.0
    assert_array_equal(agent.fit().predict(np.arange(6)), before)


def test_further_trials_have_the_timesteps_of_the_first() -> None:
    agent = SeminormLSTDAgent(OneHot())
    env = gym.make("unichain_gym:Unichain-h6-v0")
    with pytest.raises(InvalidInputError, match="the first trials need t_max"):
        agent.collect(env, np.zeros(6, dtype=int), 5)
    agent.collect(env, np.zeros(6, dtype=int), 5, t_max=7).collect(env, np.zeros(6, dtype=int), 5)
    assert (agent.n_trials, agent.counts.t_max) == (10, 7)
    with pytest.raises(InvalidInputError, match=r"integers from 0 to 5; got 70 in trial 0"):
        agent.add_trials(np.array([[0, 70]]), np.zeros((1, 1)))
