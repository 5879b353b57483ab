"""Policies, features and kernels as users give them: understood, or refused with the reason."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from numpy.testing import assert_allclose, assert_array_equal

import unichain_gym
from lstd_agent import (
    MMD,
    GaussianFeatures,
    KeptTrials,
    Kernel,
    LoggedTrials,
    OneHot,
    SeminormLSTDAgent,
)
from lstd_agent.errors import InvalidInputError
from lstd_agent.features.tables import feature_table
from lstd_agent.trials.policies import check_probabilities, make_actor

STATES, ACTIONS = spaces.Discrete(3, start=1), spaces.Discrete(2, start=5)
RNG = np.random.default_rng(0)


def test_an_array_of_actions_is_indexed_by_observation() -> None:
    act = make_actor(np.array([5, 6, 5]), STATES, ACTIONS, None)
    assert_array_equal(act(np.array([1, 2, 3, 2]), RNG), [5, 6, 5, 6])


def test_probabilities_are_drawn_from() -> None:
    p = np.array([[0.3, 0.7], [1.0, 0.0], [0.0, 1.0]])
    act = make_actor(p, STATES, ACTIONS, None)
    assert_array_equal(np.unique(act(np.full(10_000, 2), RNG)), [5])
    assert_array_equal(np.unique(act(np.full(10_000, 3), RNG)), [6])
    share = (act(np.full(100_000, 1), RNG) == 6).mean()
    assert abs(share - 0.7) < 5 * np.sqrt(0.21 / 100_000)


def test_rounding_never_draws_an_impossible_action() -> None:
    """Ten times 0.1 add up to less than 1, and the last action has probability zero."""
    p = np.append(np.full(10, 0.1), 0.0)[None]
    assert p.cumsum()[-1] < 1.0

    class Highest(np.random.Generator):
        def random(self, size: Any = None, *_: Any, **__: Any) -> Any:
            return np.full(size, np.nextafter(1.0, 0.0))

    act = make_actor(p, spaces.Discrete(1), spaces.Discrete(11), None)
    assert act(np.array([0]), Highest(np.random.PCG64())).tolist() == [9]


@pytest.mark.parametrize("batched", [None, True])
def test_a_callable_that_takes_batches_is_called_once_a_batch(batched: bool | None) -> None:
    """So that one that draws from a generator of its own draws alike, whether told or not."""
    calls: list[int] = []

    def policy(observation: Any) -> Any:
        calls.append(len(observation))
        return 5 + observation % 2

    act = make_actor(policy, STATES, ACTIONS, batched)
    for _ in range(3):
        assert_array_equal(act(np.array([1, 2, 3]), RNG), [6, 5, 6])
    assert calls == [3] * 3


def test_a_callable_for_single_observations_is_recognized_once() -> None:
    calls: list[Any] = []

    def policy(observation: Any) -> int:
        calls.append(np.shape(observation))
        return 6 if observation > 1 else 5  # raises on a batch

    act = make_actor(policy, STATES, ACTIONS, None)
    for _ in range(2):
        assert_array_equal(act(np.array([1, 2, 3]), RNG), [5, 6, 6])
    assert calls == [(3,), *[()] * 6]


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7])
def test_a_look_up_by_components_is_not_mistaken_for_a_function_of_batches(n: int) -> None:
    """With as many observations as components its answer has the shape of actions."""
    table = np.arange(9).reshape(3, 3) % 2
    observations = np.random.default_rng(0).integers(3, size=(n, 2))
    space = spaces.MultiDiscrete([3, 3])
    act = make_actor(lambda o: table[tuple(o)], space, spaces.Discrete(2), None)
    assert_array_equal(act(observations, RNG), table[observations[:, 0], observations[:, 1]])


def test_single_observations_are_acted_on_like_batches_of_one() -> None:
    probabilities = np.random.default_rng(1).dirichlet([1.0, 1.0, 0.1, 1.0], size=5)
    tables: list[Any] = [np.array([3, 0, 2, 1, 1]), probabilities]
    functions: list[Any] = [lambda s: np.asarray(s) % 4, lambda s: int(s) // 2]
    space = spaces.Discrete(5)
    for policy in tables + functions:
        act = make_actor(policy, space, spaces.Discrete(4), None)
        a, b = (np.random.default_rng(7) for _ in range(2))
        for state in np.random.default_rng(2).integers(5, size=200):
            assert act.one(state, a) == act(np.array([state]), b)[0]


def test_answers_of_actions_and_no_state_are_actions() -> None:
    """As `predict` of Stable-Baselines3 models returns them."""
    act = make_actor(lambda o: (5 + np.asarray(o) % 2, None), STATES, ACTIONS, None)
    assert_array_equal(act(np.array([1, 2, 3]), RNG), [6, 5, 6])
    assert act.one(2, RNG) == 5
    recurrent = make_actor(lambda o: (np.zeros(3, int), np.ones(2)), STATES, ACTIONS, None)
    with pytest.raises(InvalidInputError, match="with a state to remember"):
        recurrent(np.array([1, 2, 3]), RNG)


def test_a_model_acts_by_its_predict_method() -> None:
    class Model:
        def __init__(self, first: int = 5) -> None:
            self.first = first

        def predict(self, observation: Any) -> Any:
            return self.first + np.asarray(observation) % 2, None

    act = make_actor(Model(), STATES, ACTIONS, None)
    assert_array_equal(act(np.array([1, 2, 3]), RNG), [6, 5, 6])
    assert act.one(2, RNG) == 5
    env = gym.make("unichain_gym:Unichain-h6-v0")
    agent = SeminormLSTDAgent(OneHot()).collect(env, Model(first=0), n_trials=3, t_max=4, seed=0)
    expected = SeminormLSTDAgent(OneHot()).collect(
        env, np.arange(6) % 2, n_trials=3, t_max=4, seed=0
    )
    ours, theirs = (each.counts.transition_counts.toarray() for each in (agent, expected))
    assert_array_equal(ours, theirs)


def test_an_optimal_policy_is_taken_as_its_actions() -> None:
    best: Any = unichain_gym.make_mdp("h6").optimal_policy("bias")
    agent = SeminormLSTDAgent(OneHot())
    agent.collect("Unichain-h6-v0", best, n_trials=50, t_max=20, seed=0, explore=1)
    assert_array_equal(np.asarray(agent.policy), best.policy)
    agent.collect("Unichain-h6-v0", best.policy, n_trials=50, t_max=20, seed=1).fit()
    assert_array_equal(*(agent.action_values(3, policy=each) for each in (best, best.policy)))  # type: ignore[arg-type]


def test_rows_of_lower_precision_are_normalized_and_wrong_ones_refused() -> None:
    rng = np.random.default_rng(3)
    logits = rng.normal(size=(500, 40)).astype(np.float32)
    softmax = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert softmax.dtype == np.float32
    assert np.abs(softmax.astype(float).sum(axis=1) - 1.0).max() > 1e-8
    assert_allclose(check_probabilities(softmax).sum(axis=1), 1.0, rtol=0, atol=1e-15)
    double = np.full((2, 2), 0.5)
    double[1, 0] -= 1e-10
    with pytest.raises(InvalidInputError, match=r"state 1 are .* which sum to 0\.9999999999"):
        check_probabilities(double)
    single = np.full((2, 2), 0.5, dtype=np.float32)
    single[1, 0] += 1e-5
    with pytest.raises(InvalidInputError, match="each row must be a distribution"):
        check_probabilities(single)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (np.array([5, 6]), "a policy is 3 integer actions"),
        (np.array([5.0, 6.0, 5.0]), "a policy is 3 integer actions"),
        (np.array([5, 6, 7]), "takes action 7 in state 2; actions are 5 to 6"),
        (np.array([[0.5, 0.5], [0.9, 0.2], [1, 0]]), "probabilities of state 1 are"),
        (np.array([[0.5, 0.5], [1.5, -0.5], [1, 0]]), "probabilities of state 1 are"),
    ],
)
def test_impossible_policies_are_refused(policy: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        make_actor(policy, STATES, ACTIONS, None)


def test_policies_that_do_not_fit_are_refused() -> None:
    box = spaces.Box(-1.0, 1.0, (2,))
    with pytest.raises(InvalidInputError, match="is a function, not an array"):
        make_actor(np.zeros(3, dtype=int), box, ACTIONS, None)
    act = make_actor(lambda x: np.zeros((len(x), 3)), STATES, box, True)
    with pytest.raises(InvalidInputError, match=r"shape \(4, 3\) for 4 observations.*batched="):
        act(np.array([1, 2, 3, 1]), RNG)


def test_feature_tables_come_from_anything_that_fills_them() -> None:
    three = np.arange(3)
    assert_array_equal(feature_table(OneHot(), three).toarray(), np.eye(3))
    assert_array_equal(feature_table([[1], [2], [3]], three), [[1], [2], [3]])
    squares = feature_table(lambda s: np.stack((s, s**2), 1), np.array([4, 5]))
    assert_array_equal(squares, [[4, 16], [5, 25]])
    F = feature_table(GaussianFeatures(2000, seed=1), np.arange(4))
    # f_i(s) ~ N(index(s), 1).
    assert_allclose(F.mean(axis=1), np.arange(4), atol=5 / np.sqrt(2000))
    assert_allclose(F.std(axis=1), 1.0, atol=5 / np.sqrt(4000))
    assert_array_equal(F, GaussianFeatures(2000, seed=1).table(4))


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (np.eye(4), r"shape \(3, d\), one row an observation; got \(4, 4\)"),
        (np.zeros((3, 0)), r"got \(3, 0\)"),
        (np.arange(3), r"got \(3,\)"),
        ([[1.0], [np.nan], [0.0]], "feature 0 of observation 1 is nan"),
    ],
)
def test_impossible_tables_are_refused(features: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        feature_table(features, np.arange(3))
    with pytest.raises(InvalidInputError, match="features d must be at least 1; got 0"):
        GaussianFeatures(0)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ("one-hot", r"or made by OneHot\(\), .*; got 'one-hot'"),
        (OneHot, r"or made by OneHot\(\), .*; got <class .*OneHot'>"),
        ([[1.0], [1.0, 2.0], [1.0]], r"must be an array of real numbers; got \[\[1"),
        (np.eye(3) * 1j, "must be an array of real numbers"),
    ],
)
def test_anything_without_real_numbers_is_refused(features: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        feature_table(features, np.arange(3))


def test_a_seed_is_needed_to_draw_the_same_features_again() -> None:
    with pytest.raises(InvalidInputError, match="seed must be an integer; got None"):
        GaussianFeatures(2, None)  # type: ignore[arg-type]


def test_kernels_measure_likeness() -> None:
    x = np.array([[0.0, 0.0], [3.0, 4.0]])
    assert_allclose(Kernel(width=5.0)(x, x), [[1, np.exp(-0.5)], [np.exp(-0.5), 1]])
    assert_array_equal(Kernel("dirac")(x, x), np.eye(2))
    for kernel in (Kernel(width=2.0), Kernel("dirac")):
        assert_allclose(kernel.paired(x, x[::-1]), np.diagonal(kernel(x, x[::-1])))
    # Distances 5, 5, 10 and 0: the median of the positive ones is 5.
    fitted = Kernel(width="median").fit_width(np.array([[0.0], [5.0], [10.0], [0.0]]))
    assert fitted.width == 5.0
    assert Kernel(width=np.float32(5.0)) == Kernel(width=np.int64(5)) == Kernel(width=5.0)  # type: ignore[arg-type]
    assert Kernel(width="median").fit_width(np.zeros((3, 1))).width == 1.0


def test_impossible_kernels_and_estimators_are_refused() -> None:
    for make, message in (
        (lambda: Kernel("linear"), "kernel must be one of .*; got 'linear'"),  # type: ignore[arg-type]
        (lambda: Kernel(width=0.0), "positive number or 'median'; got 0.0"),
        (lambda: Kernel(width="mean"), "positive number or 'median'; got 'mean'"),  # type: ignore[arg-type]
        (lambda: MMD("cubic"), "estimator must be one of .*; got 'cubic'"),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidInputError, match=message):
            make()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_trials": 0}, "n_trials must be at least 1; got 0"),
        ({"n_trials": 2.5}, "n_trials must be an integer; got 2.5"),
        ({"n_trials": True}, "n_trials must be an integer; got True"),
        ({"t_max": -1}, "t_max must be at least 0; got -1"),
        ({"t_max": 5.0}, "t_max must be an integer; got 5.0"),
        ({"seed": -1}, "seed must be at least 0; got -1"),
        ({"seed": 0.5}, "seed must be an integer; got 0.5"),
    ],
)
def test_impossible_collections_are_refused(arguments: Any, message: str) -> None:
    arguments = {"n_trials": 3, "t_max": 5, **arguments}
    for env in (gym.make("unichain_gym:Unichain-h6-v0"), "unichain_gym:Unichain-h6-v0"):
        with pytest.raises(InvalidInputError, match=message):
            SeminormLSTDAgent(OneHot()).collect(env, np.zeros(6, int), **arguments)


def test_progress_counts_steps_in_lines_where_there_is_no_terminal(
    capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lstd_agent.progress.LINE_INTERVAL", 0.0)
    env = gym.make("unichain_gym:Unichain-h6-v0")
    SeminormLSTDAgent(OneHot()).collect(env, np.zeros(6, int), n_trials=20, t_max=4, progress=True)
    assert capsys.readouterr().err.splitlines()[-1].startswith("100% 100 of 100 steps, ")


def test_rewards_that_are_not_finite_are_refused() -> None:
    """The trials that finished before stay."""
    rewards = iter([1.0] * 12 + [float("nan")])
    env = gym.wrappers.TransformReward(
        gym.make("unichain_gym:Unichain-h6-v0"), lambda r: next(rewards)
    )
    agent = SeminormLSTDAgent(OneHot())
    with pytest.raises(InvalidInputError, match=r"must be finite.*got nan at timestep 2"):
        agent.collect(env, np.zeros(6, int), n_trials=60, t_max=4)
    assert agent.n_trials == 2
    vector = gym.wrappers.vector.TransformReward(
        gym.make_vec("unichain_gym:Unichain-h6-v0", num_envs=3), lambda r: r * np.nan
    )
    with pytest.raises(InvalidInputError, match=r"finite.*got nan at timestep 0 of trial 0"):
        agent.collect(vector, np.zeros(6, int), n_trials=3, t_max=4)
    assert agent.n_trials == 2


@pytest.mark.parametrize("answer", [2, -1, 0.5, "left"])
@pytest.mark.parametrize("num_envs", [1, 7])
def test_an_answer_that_is_no_action_is_refused(answer: object, num_envs: int) -> None:
    name = "Unichain-h6-v0"
    env = gym.make(name) if num_envs == 1 else gym.make_vec(name, num_envs=num_envs)
    agent = SeminormLSTDAgent(OneHot())
    with pytest.raises(InvalidInputError, match=rf"takes action {answer}; actions are 0 to 1"):
        agent.collect(env, lambda state: answer, n_trials=20, t_max=5, seed=0)


def test_a_policys_array_that_was_changed_in_place_is_another_policy() -> None:
    """A loop that improves a policy may do so, and trials of two policies have no one value."""
    policy = np.zeros(6, dtype=np.int64)
    agent = SeminormLSTDAgent(OneHot())
    agent.collect("unichain_gym:Unichain-h6-v0", policy, n_trials=20, t_max=5, seed=0)
    policy[0] = 1
    with pytest.raises(InvalidInputError, match="of another policy"):
        agent.collect("unichain_gym:Unichain-h6-v0", policy, n_trials=20, t_max=5, seed=1)
    assert_array_equal(agent.policy, np.zeros(6))
    held: Any = agent.policy
    with pytest.raises(ValueError, match="read-only"):
        held[0] = 1


MASKED = np.ma.masked_array([[0, 1, 0, 1]] * 3, mask=[[False, False, True, False]] * 3)


@pytest.mark.parametrize(
    "add",
    [
        lambda agent: agent.add_trials(MASKED, np.ones((3, 3))),
        lambda agent: agent.add_trials(
            MASKED.data, np.ma.masked_array(np.ones((3, 3)), np.eye(3, dtype=bool))
        ),
        lambda agent: agent.add_trials(MASKED.data, np.ones((3, 3)), MASKED[:, 1:]),
        lambda agent: agent.add_trials(MASKED.data, np.ones((3, 3)), durations=MASKED[:, :3]),
        lambda agent: agent.add(KeptTrials.of(MASKED, np.ones((3, 3)))),
        lambda agent: agent.observe(0, 0, np.ma.masked, 1),
        lambda agent: agent.add_trials(MASKED.data, np.ones((3, 3))).encoding.encode(MASKED[0]),
        lambda agent: make_actor(MASKED[0], spaces.Discrete(4), spaces.Discrete(2), None),
        lambda agent: LoggedTrials.from_frame(
            {"trial": [0] * 4, "state": MASKED[0], "reward": np.ones(4)},
            trial="trial",
            observation="state",
            reward="reward",
        ),
    ],
)
def test_masked_entries_are_no_numbers(add: Any) -> None:
    with pytest.raises(InvalidInputError, match="masked entries, which stand for no number"):
        add(SeminormLSTDAgent(np.eye(2), 1))
    with pytest.raises(InvalidInputError, match="features must be an array of real numbers"):
        SeminormLSTDAgent(MASKED).attach(gym.make("unichain_gym:Unichain-h3-v0"))
