"""Vector observations: flattening, features, moments, distances and references."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from gymnasium.vector.utils import batch_space, iterate
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from lstd_agent import (
    MMD,
    Kernel,
    OneHot,
    Polynomial,
    RadialBasis,
    SeminormLSTDAgent,
    TileCoding,
)
from lstd_agent.errors import FitWarning, InvalidInputError
from lstd_agent.rows.kept import TrialRows
from lstd_agent.trials.encoding import make_encoding
from lstd_agent.trials.kept import KeptTrials
from lstd_agent.trials.spaces import flatten_batch, is_batch

SPACES = [
    spaces.Box(-1.0, 1.0, (2, 3)),
    spaces.Discrete(4, start=-1),
    spaces.MultiDiscrete([3, 2]),
    spaces.MultiDiscrete(np.array([[3, 2], [2, 2]])),
    spaces.MultiBinary(3),
    spaces.Dict({"b": spaces.Box(0.0, 1.0, (2,)), "a": spaces.Discrete(3)}),
    spaces.Tuple([spaces.MultiBinary(2), spaces.Dict({"x": spaces.Discrete(2)})]),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_batches_flatten_like_single_observations(space: Any) -> None:
    batched = batch_space(space, 5)
    batched.seed(0)
    batch = batched.sample()
    expected = np.stack([np.asarray(spaces.flatten(space, one)) for one in iterate(batched, batch)])
    assert_array_equal(flatten_batch(space, batch), expected)
    assert is_batch(space, batch)
    assert not is_batch(space, space.sample())


def test_a_space_without_flat_form_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="no flat form of fixed length"):
        flatten_batch(spaces.Text(5), ["a"])
    with pytest.raises(InvalidInputError, match="have no components"):
        make_encoding(spaces.Box(0.0, 1.0, (0,)), Polynomial(1), False)


def test_polynomials_agree_with_scikit_learn() -> None:
    x = np.random.default_rng(0).normal(size=(20, 3))
    for degree in range(4):
        ours = Polynomial(degree)(x)
        theirs = PolynomialFeatures(degree).fit_transform(x)
        assert ours.shape == theirs.shape
        assert_allclose(np.sort(ours, axis=1), np.sort(theirs, axis=1), rtol=1e-12)
    assert_allclose(Polynomial(2, scale=2.0)(np.array([4.0])), [[1.0, 2.0, 4.0]])


def test_radial_basis_functions_are_gaussian_bumps() -> None:
    features = RadialBasis([[0.0, 0.0], [1.0, 2.0]], [1.0, 2.0])
    x = np.array([[0.0, 0.0], [1.0, 2.0], [1.0, 0.0]])
    expected = np.exp([[0.0, -1.0], [-1.0, 0.0], [-0.5, -0.5]])
    assert_allclose(features(x), expected, rtol=1e-12)
    grid = RadialBasis.grid([0.0, -1.0], [1.0, 1.0], 3)
    assert_allclose(np.asarray(grid.width), [0.5, 1.0])
    assert_allclose(np.asarray(grid.centers)[[0, 4, 8]], [[0.0, -1.0], [0.5, 0.0], [1.0, 1.0]])


def test_tile_coding_lights_one_tile_a_tiling_and_near_points_share_tiles() -> None:
    coding = TileCoding([0.0, 0.0], [1.0, 1.0], n_tiles=4, n_tilings=8)
    x = np.random.default_rng(0).random((50, 2))
    f = coding(x).toarray()
    assert f.shape == (50, 8 * 25)
    assert_array_equal(f.reshape(50, 8, 25).sum(axis=2), 1.0)
    # Points that are 1/8 of a tile apart in one dimension differ in exactly 1 tiling of 8.
    a, b = coding(np.array([[0.5, 0.5], [0.5 + 1 / 32, 0.5]])).toarray()
    assert a @ b == 7.0
    # Shifts differ between dimensions: a step along the diagonal crosses two tilings' borders.
    assert a @ coding(np.array([[0.5 + 1 / 32, 0.5 + 1 / 32]])).toarray()[0] == 6.0
    outside, corner = coding(np.array([[9.0, -9.0], [1.0, 0.0]])).toarray()
    assert_array_equal(outside, corner)


class Spot(gym.ObservationWrapper[Any, Any, Any]):
    """Observes h6's state number as a vector, so that both kinds see the same trials."""

    observation_space: Any = spaces.Box(0.0, 5.0, (1,))

    def observation(self, observation: Any) -> Any:
        return np.array([observation], dtype=np.float32)


ACTIONS = np.array([0, 1, 0, 1, 0, 1])


def one_hot(x: Any) -> Any:
    return np.asarray(x).reshape(-1, 1) == np.arange(6)


def both_kinds(n_trials: int = 400, n_anchors: int | None = 2) -> Any:
    make = lambda: gym.make("unichain_gym:Unichain-h6-v0")  # noqa: E731
    discrete = SyncVectorEnv([make] * 40)
    vector = SyncVectorEnv([lambda: Spot(make())] * 40)
    distance = MMD(kernel=Kernel("dirac"))
    a, b = (SeminormLSTDAgent(one_hot, n_anchors, distance=distance) for _ in range(2))
    a.collect(discrete, ACTIONS, n_trials=n_trials, t_max=40, seed=0)
    b.collect(vector, lambda x: ACTIONS[x[:, 0].astype(int)], n_trials=n_trials, t_max=40, seed=0)
    return a, b


@pytest.mark.parametrize("calibration", ["linked", "references"])
def test_with_the_dirac_kernel_vectors_give_the_values_of_counts(calibration: str) -> None:
    a, b = both_kinds()
    for agent in (a, b):
        agent.calibration, agent.backup, agent.anchors = calibration, "one_step", [0, 10]
        agent.fit()
    states = np.arange(6)
    if calibration == "references":
        assert a.main_reference_ == b.main_reference_
    else:  # a value of vectors is the bias: its mean over the settled tail is 0
        assert b.main_reference_ is None
        tail = a.counts.transition_counts.toarray().reshape(41, 6, 6)[20:].sum(axis=(0, 2))
        values = b.predict(states[:, None], 40)
        assert tail @ values == pytest.approx(0.0, abs=1e-6 * np.ptp(values) * tail.sum())
    for t in (0, 40):
        seen = a.coverage(states, t) > 0
        shift = b.predict(np.array([4]), 40) - a.predict(4, 40)
        found = b.predict(states[seen, None], t) - shift
        assert_allclose(found, a.predict(states[seen], t), atol=1e-7)
    # The Christoffel function of one-hot features is the visiting frequency.
    assert_allclose(b.coverage(states[:, None], 0), a.coverage(states, 0), atol=1e-12)


def candidates_of(observations: Any, ends: bool = False) -> Any:
    rewards = np.zeros((observations.shape[0], observations.shape[1] - 1))
    trials = KeptTrials(observations, rewards)
    return TrialRows(trials, Polynomial(1), ends).candidates


def test_candidates_do_not_miss_short_transients() -> None:
    candidates = candidates_of(np.arange(5001.0).reshape(1, -1, 1))[:, 0]
    assert candidates.size <= 200
    assert (candidates < 50).sum() > 20, "evenly spaced ones would leave a single one"
    assert (candidates > 2500).sum() > 40


def test_the_terminal_state_has_zero_features_and_is_the_first_candidate() -> None:
    encoding = make_encoding(spaces.Box(-9, 9, (1,)), Polynomial(1), ends=True)
    nan = np.nan
    assert_array_equal(encoding.features(np.array([[2.0], [nan]])), [[1.0, 2.0], [0.0, 0.0]])
    assert_array_equal(encoding.features(np.array([[nan], [nan]])), np.zeros((2, 2)))
    seen = np.array([[[2.0], [nan], [nan]], [[2.0], [3.0], [nan]]])
    assert_array_equal(candidates_of(seen, ends=True), [[nan], [2.0], [3.0]])


def test_observations_that_are_not_finite_are_refused() -> None:
    agent = SeminormLSTDAgent(Polynomial(1)).attach(gym.make("Pendulum-v1"))
    with pytest.raises(InvalidInputError, match=r"observations must be finite; got .*inf"):
        agent.observe(0, [0.0, np.inf, 0.0], 0.0, [0.0, 0.0, 0.0])
    with pytest.raises(InvalidInputError, match="have 3 components; got 2"):
        agent.observe(0, [0.0, 0.0], 0.0, [0.0, 0.0])


def test_scikit_learn_transformers_are_features() -> None:
    rng = np.random.default_rng(0)
    transformer = PolynomialFeatures(2).fit(rng.normal(size=(9, 3)))
    agent = SeminormLSTDAgent(transformer, 1, gain=0.0)
    observations = rng.normal(size=(4, 5, 3)).astype(np.float32)
    env = SyncVectorEnv([lambda: gym.make("Pendulum-v1")] * 5)
    agent.attach(env)
    for t in range(3):
        agent.observe(t, observations[t], np.zeros(5), observations[t + 1])
    agent.end_trial()
    with pytest.warns(FitWarning, match="do not determine the values of starts"):
        agent.fit()  # five trials are few
    assert agent.system_.weights.shape == (1, 10)
    discrete = SeminormLSTDAgent(StandardScaler().fit(np.arange(6.0)[:, None]), 1)
    discrete.collect(gym.make("unichain_gym:Unichain-h6-v0"), ACTIONS, n_trials=5, t_max=5, seed=0)
    with pytest.warns(FitWarning, match="fewer than 10 samples"):
        discrete.fit()
    assert discrete.system_.weights.shape == (1, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"features": OneHot()}, "OneHot features need Discrete observations"),
        ({"features": np.eye(3)}, "ndarray features need Discrete observations"),
        ({"distance": "tv"}, "compares distributions over countable states"),
        ({"distance": MMD("quadratic")}, "compares distributions over countable states"),
        ({"features": lambda x: x[:, 0]}, r"features must have shape \(1, d\)"),
        ({"features": lambda x: x * np.nan}, "features must be finite"),
    ],
)
def test_options_that_vectors_cannot_have_are_refused(
    options: dict[str, Any], message: str
) -> None:
    options = {"features": Polynomial(1), **options}
    env = SyncVectorEnv([lambda: gym.make("Pendulum-v1")] * 5)
    agent = SeminormLSTDAgent(**options)
    with pytest.raises(InvalidInputError, match=message):
        agent.collect(env, lambda x: np.zeros((len(x), 1)), n_trials=400, t_max=6, seed=0).fit()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*do not determine the values of starts:UserWarning")
def test_pendulum_is_evaluated_from_vectors() -> None:
    """The difference of two states' values is what simulated totals from there differ by."""
    env = SyncVectorEnv([lambda: gym.make("Pendulum-v1", max_episode_steps=-1)] * 50)
    rng = np.random.default_rng(0)

    def policy(x: Any) -> Any:
        friction = -1.0 * x[:, 2:]
        return (friction + rng.uniform(-1.0, 1.0, size=(len(x), 1))).astype(np.float32)

    def total_reward_from(angle: float) -> float:
        observation, _ = env.reset(seed=1)
        for copy in env.envs:
            copy.unwrapped.set_wrapper_attr("state", np.array([angle, 0.0]))
        observation[:] = [np.cos(angle), np.sin(angle), 0.0]
        total = 0.0
        for _ in range(100):
            observation, reward, *_ = env.step(policy(observation))
            total += reward.mean()
        return total

    simulated = total_reward_from(np.pi / 2) - total_reward_from(np.pi)
    features = RadialBasis.grid([-1, -1, -6], [1, 1, 6], 5)
    agent = (
        SeminormLSTDAgent(features, 2).collect(env, policy, n_trials=400, t_max=99, seed=0).fit()
    )
    level, hanging = [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]
    estimated = agent.predict(np.array(level), 0) - agent.predict(np.array(hanging), 0)
    assert simulated > 70.0
    assert estimated == pytest.approx(simulated, rel=0.12)
    assert 0.0 < agent.coverage(np.array(level), 0) < agent.coverage(np.array(hanging), 0) < 1.0
    assert agent.standard_errors(np.array([level, hanging]), [0, 99]).shape == (2,)


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        ({"a": 9, "b": [0.0]}, r"a choice that Discrete\(3, start=2\) does not hold"),
        ({"a": 2.5, "b": [0.0]}, r"a choice that Discrete\(3, start=2\) does not hold"),
        ({"a": 2}, "is not made of observations of Dict.*'b'"),
        ({"a": np.array([2, 3]), "b": np.zeros((3, 1))}, "is not made of observations of Dict"),
        (3, "is not made of observations of Dict"),
        (np.zeros(4), "is not made of observations of Dict.*: it is no dict of 'a', 'b'"),
    ],
)
def test_observations_that_a_dict_does_not_hold_are_refused(observation: Any, message: str) -> None:
    """A choice out of range would otherwise be a vector of zeros, like any other such."""
    parts = {"a": gym.spaces.Discrete(3, start=2), "b": gym.spaces.Box(-1.0, 1.0, (1,))}
    encoding = make_encoding(gym.spaces.Dict(parts), Polynomial(1), False)
    with pytest.raises(InvalidInputError, match=message):
        encoding.encode_any(observation)
