"""Values of single starts are what trials from there earn, or a warning says that they are not."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from lstd_agent import OneHot, Polynomial, RadialBasis, SeminormLSTDAgent
from lstd_agent.errors import FitWarning
from unichain_gym import TabularMDP, TabularVectorEnv, make_mdp


def two_ways_in(gain: float, share: float = 0.5) -> TabularMDP:
    """From 0 with a reward above the gain, or from 1 with one as far below it, into a coin."""
    P = np.zeros((4, 1, 4))
    P[:, 0, 2:] = 0.5
    rewards = np.array([gain + 10.0, gain - 10.0, gain + 1.0, gain - 1.0])
    return TabularMDP.from_arrays(P, rewards[:, None], [share, 1.0 - share, 0.0, 0.0])


@pytest.fixture
def collected(as_numbers: Any) -> Any:
    """Collect trials of the only action; states may be vectors of one number."""

    def collect(
        agent: SeminormLSTDAgent, mdp: TabularMDP, *, vectors: bool, num_envs: int = 20,
        n_trials: int = 400, t_max: int = 40, seed: int = 0,
    ) -> SeminormLSTDAgent:  # fmt: skip
        env: Any = TabularVectorEnv(mdp, num_envs)
        policy: Any = np.zeros(mdp.n_states, dtype=int)
        if vectors:
            env, policy = as_numbers(env), lambda x: np.zeros(len(x), dtype=int)
        return agent.collect(env, policy, n_trials=n_trials, t_max=t_max, seed=seed)

    return collect


@pytest.mark.parametrize(("gain", "n_anchors"), [(0.0, 1), (3.0, 2)])
@pytest.mark.parametrize("vectors", [True, False])
def test_errors_of_two_starts_that_cancel_are_both_reported(
    collected: Any, vectors: bool, n_anchors: int, gain: float
) -> None:
    """One feature for all states gives all of them one value: right on average, wrong by 10."""
    features: Any = Polynomial(0) if vectors else np.ones((4, 1))
    agent = collected(SeminormLSTDAgent(features, n_anchors), two_ways_in(gain), vectors=vectors)
    with pytest.warns(FitWarning, match="value of start") as caught:
        agent.fit()
    found = agent.diagnostics()
    assert not found.start_agrees
    told = {float(np.ravel(each.start)[0]): each for each in found.misfits}
    assert set(told) == {0.0, 1.0}
    for start, right in ((0.0, 10.0), (1.0, -10.0)):
        each = told[start]
        assert each.n_starts == 1
        assert abs(each.direct - each.predicted - right) < 5 * max(each.error, 0.1)
        assert f"{each.predicted:.6g} by the features, and {each.direct:.6g}" in str(caught[0])
    assert "NOT ALIKE" in str(found)


def test_starts_of_few_trials_each_are_reported_together(collected: Any) -> None:
    """Eight ways into a coin pay -7 to 7 above the gain, and features see four pairs of them."""
    P = np.zeros((10, 1, 10))
    P[:, 0, 8:] = 0.5
    rewards = np.append(np.arange(8.0) * 2.0 - 7.0, [1.0, -1.0])
    mdp = TabularMDP.from_arrays(P, rewards[:, None], np.append(np.ones(8) / 8, [0.0, 0.0]))
    groups = np.append(np.arange(8) % 4, [4, 5])
    agent = collected(SeminormLSTDAgent(np.eye(6)[groups], 1), mdp, vectors=False, n_trials=160)
    with pytest.warns(FitWarning, match=r"value of start \d is .* by the rewards of the next 41"):
        agent.fit()
    right = SeminormLSTDAgent(OneHot(), 1)
    assert collected(right, mdp, vectors=False, n_trials=160).fit().diagnostics().start_agrees


@pytest.mark.parametrize("n_anchors", [1, 2])
@pytest.mark.parametrize("vectors", [True, False])
def test_features_that_distinguish_these_starts_raise_no_warning(
    collected: Any, vectors: bool, n_anchors: int
) -> None:
    features: Any = Polynomial(3) if vectors else OneHot()
    mdp = two_ways_in(3.0)
    agent = collected(SeminormLSTDAgent(features, n_anchors), mdp, vectors=vectors).fit()
    assert agent.diagnostics().misfits == []
    starts = [[0.0], [1.0]] if vectors else [0, 1]
    assert agent.compare(starts[0], starts[1], 0).difference == pytest.approx(20.0, abs=0.5)


def test_starts_that_three_bumps_cannot_distinguish_are_named(as_numbers: Any) -> None:
    """States of three streams of eleven as numbers: the mean of the start is right, single starts
    are off by a third of the range of values."""
    mdp = make_mdp("h36c")
    exact = mdp.induce(np.ones(36, dtype=int)).bias
    agent = SeminormLSTDAgent(RadialBasis.grid([0], [35], 3), 1)
    agent.collect(
        as_numbers(TabularVectorEnv(mdp, 50)),
        lambda x: np.ones(len(x), int),
        n_trials=1000,
        t_max=200,
        seed=0,
    )
    with pytest.warns(FitWarning, match=r"value of start \["):
        agent.fit()
    found = agent.diagnostics()
    assert len(found.misfits) > 3
    starts = np.arange(33.0)[:, None]
    predicted = agent.predict(starts, 0)
    assert np.abs(predicted - exact[:33]).max() > 0.2 * np.ptp(exact)
    assert abs(predicted.mean() - exact[:33].mean()) < 0.05 * np.ptp(exact)
    long = [each for each in found.misfits if each.n_starts == 1 and each.horizon >= 64]
    for each in long:
        start = int(each.start[0])
        assert each.predicted == pytest.approx(predicted[start])
        assert (each.direct > each.predicted) == (exact[start] > predicted[start])
    assert len(long) > 3


@pytest.mark.parametrize("vectors", [True, False])
def test_a_right_fit_of_few_trials_raises_no_warning(collected: Any, vectors: bool) -> None:
    """A coin of three sides tells in one step what a start is worth, however long trials go on."""
    mdp = TabularMDP.from_arrays(np.full((3, 1, 3), 1 / 3), np.arange(3.0)[:, None], np.ones(3) / 3)
    features: Any = Polynomial(2) if vectors else OneHot()
    options = {"num_envs": 4, "n_trials": 80, "t_max": 20}
    for seed in range(4):
        agent = SeminormLSTDAgent(features, 1)
        collected(agent, mdp, vectors=vectors, seed=seed, **options).fit()
        assert agent.diagnostics().start_agrees


def test_bumps_far_from_all_that_was_seen_leave_values_undetermined_without_a_warning(
    collected: Any,
) -> None:
    agent = SeminormLSTDAgent(RadialBasis.grid([0], [100], 50))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        collected(agent, two_ways_in(0.0), vectors=True).fit()
        far = np.array([[30.0], [60.0], [100.0]])
        assert np.isinf(agent.standard_errors(far)).all()
        assert not agent.determined(far).any()


def squares(seed: int, n: int, pay: Any) -> tuple[Any, Any]:
    """Return AR(1) from three starts, whose reward is a function of the observation."""
    rng = np.random.default_rng(seed)
    x = np.empty((n, 26, 1))
    x[:, 0, 0] = np.array([-4.0, 0.0, 5.0])[np.arange(n) % 3]
    for t in range(25):
        x[:, t + 1] = 0.8 * x[:, t] + 0.5 * rng.standard_normal((n, 1))
    return x, pay(x[:, :-1, 0])


def test_values_that_are_no_linear_function_of_the_features_are_warned_of() -> None:
    """The true value is -x²/(1 - .8²), plus a constant; differences are as wide as a refit says."""
    x, rewards = squares(0, 60, lambda x: -(x**2))
    agent = SeminormLSTDAgent(Polynomial(1), n_anchors=1, backup="one_step")
    agent.add_trials(x, rewards)
    with pytest.warns(FitWarning, match="the features do not suffice: .* with more features"):
        agent.fit()
    found = agent.compare([5.0], [0.0])
    assert abs(found.difference + 25.0 / 0.36) < 3.0 * found.standard_error

    def at_starts(*more: Any) -> Any:
        """Return values of starts above the tail's, by temporal differences with more features."""
        f, later = (
            np.stack([np.ones(y.size), y.ravel(), *(h(y.ravel()) for h in more)], axis=1)
            for y in (x[:, :-1], x[:, 1:])
        )
        changes = f - later
        changes[:, 0] = 1.0  # of the gain
        w = np.linalg.solve(f.T @ changes, f.T @ rewards.ravel())
        values = (f[:, 1:] @ w[1:]).reshape(60, 25)
        return values[:, 0] - values[:, 12:].mean()

    change = at_starts(np.square) - at_starts()
    assert found.standard_error == pytest.approx(abs(change[2] - change[1]), rel=1e-6)
    assert agent.diagnostics().bent == pytest.approx(np.abs(change).max(), rel=1e-6)


@pytest.mark.parametrize("pay", [lambda x: -(x**2), lambda x: 2.0 * x])
def test_values_that_are_a_linear_function_of_the_features_change_by_noise(pay: Any) -> None:
    for seed in range(10):
        x, rewards = squares(seed, 60, pay)
        agent = SeminormLSTDAgent(Polynomial(2, scale=5.0), n_anchors=1)
        agent.add_trials(x, rewards).fit()
        assert agent.diagnostics().bent == 0.0


@pytest.mark.parametrize("pay", [lambda x: x, lambda x: -(x**2)])
def test_returns_near_an_unseen_start_at_the_edge_are_not_those_of_its_inner_neighbors(
    pay: Any,
) -> None:
    """Starts are uniform in -3 ... 3; the value of x is x/(1 - .8) or -x²/(1 - .8²)."""
    rng, held = np.random.default_rng(0), 0
    values = np.array([3.0, 0.0]) / 0.2 if pay(2.0) == 2.0 else np.array([-9.0, 0.0]) / 0.36
    for _ in range(40):
        x = np.empty((400, 32))
        x[:, 0] = rng.uniform(-3.0, 3.0, 400)
        for t in range(31):
            x[:, t + 1] = 0.8 * x[:, t] + 0.2 * rng.standard_normal(400)
        agent = SeminormLSTDAgent(Polynomial(2), n_anchors=1, backup="one_step")
        agent.add_trials(x[:, :, None], pay(x[:, :-1]))._fit()
        low, high = agent.compare([3.0], [0.0], by="returns").interval(0.95)
        held += low <= values[0] - values[1] <= high
    assert held >= 34


@pytest.mark.parametrize("seed", range(3))
def test_constant_rewards_leave_rounding_which_is_no_misfit(seed: int) -> None:
    states = np.random.default_rng(seed).integers(4, size=(300, 22))
    agent = SeminormLSTDAgent(OneHot())
    agent.add_trials(states, np.ones((300, 21)), observation_space=spaces.Discrete(4)).fit()
    assert agent.diagnostics().warnings == []
    assert agent.gain_ == pytest.approx(1.0)
