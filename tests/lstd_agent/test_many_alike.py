"""Hundreds of dense features that are alike are fitted as the few that they are made of."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from lstd_agent.statistics.coordinates import FEWEST_REDUCED
from numpy.testing import assert_allclose, assert_array_equal

from lstd_agent import KeptTrials, LambdaReturn, SeminormLSTDAgent

pytestmark = pytest.mark.filterwarnings("ignore::lstd_agent.errors.FitWarning")

N_TRIALS, T_MAX = 120, 30


class Line(gym.Env[Any, Any]):
    observation_space = spaces.Box(-10.0, 10.0, (1,))
    action_space = spaces.Discrete(2)


def walks(*, cut: bool = False) -> KeptTrials:
    """Return trials of a random walk back to 0, from starts far off, some cut short."""
    rng = np.random.default_rng(0)
    x = np.empty((N_TRIALS, T_MAX + 2, 1))
    x[:, 0, 0] = rng.uniform(-4.0, 4.0, N_TRIALS)
    for t in range(T_MAX + 1):
        x[:, t + 1] = np.clip(0.8 * x[:, t] + 0.5 * rng.normal(size=(N_TRIALS, 1)), -4.0, 4.0)
    lengths = rng.integers(10, T_MAX + 2, N_TRIALS) if cut else None
    if lengths is not None:
        lengths[:20] = T_MAX + 1
        x[np.arange(T_MAX + 2) > lengths[:, None]] = 3.0  # nobody may look at these
    return KeptTrials(x, -(x[:, :-1, 0] ** 2), lengths)


mixing = np.random.default_rng(1).normal(size=(6, FEWEST_REDUCED))


def few(x: Any) -> Any:
    return np.clip(1.0 - np.abs(x - np.linspace(-4.0, 4.0, 6)) / 1.6, 0.0, 1.0)


def many(x: Any) -> Any:
    return few(x) @ mixing


def fitted(features: Any, trials: KeptTrials, **options: Any) -> SeminormLSTDAgent:
    agent = SeminormLSTDAgent(features, **{"anchors": [0, 5], **options}).attach(Line())
    for batch in range(6):
        agent.add(trials.every(6, batch))
    return agent.fit()


@pytest.mark.parametrize("solver", ["svd", "qr"])
@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("backup", ["one_step", LambdaReturn(0.6), "auto"])
def test_many_features_predict_what_few_do(backup: Any, cut: bool, solver: Any) -> None:
    trials = walks(cut=cut)
    a, b = (fitted(f, trials, backup=backup, solver=solver) for f in (few, many))
    x = np.linspace(-3.5, 3.5, 11)[:, None]
    for t in (0, 20):
        assert_allclose(b.predict(x, t), a.predict(x, t), rtol=1e-6, atol=1e-6)
        errors = a.standard_errors(x, t)
        assert np.isfinite(errors[3:8]).all()
        assert_allclose(b.standard_errors(x, t), errors, rtol=1e-4)
        assert_allclose(b.coverage(x, t), a.coverage(x, t), rtol=1e-5)
        assert_array_equal(b.determined(x, t), a.determined(x, t))
    assert b.gain_ == pytest.approx(a.gain_, rel=1e-8)
    assert b.diagnostics().choice.backup == a.diagnostics().choice.backup
    assert_array_equal(b.system_.rank, a.system_.rank)
    assert b.system_.weights.shape == (2, FEWEST_REDUCED)


def test_the_smallest_weights_are_those_without_coordinates(monkeypatch: Any) -> None:
    trials = walks()
    reduced = fitted(many, trials, backup="one_step").system_
    monkeypatch.setattr("lstd_agent.statistics.moments.FEWEST_REDUCED", 10**6)
    whole = fitted(many, trials, backup="one_step").system_
    size = np.abs(whole.weights).max()
    assert_allclose(reduced.weights, whole.weights, atol=1e-6 * size)
    assert_allclose(reduced.offsets, whole.offsets, rtol=1e-6, atol=1e-6)


def test_observations_beyond_all_that_samples_span_are_not_covered() -> None:
    def with_a_region(x: Any) -> Any:
        far = (np.abs(x[:, :1]) > 5.0) * np.ones(3)
        return np.hstack((many(x), far))

    agent = fitted(with_a_region, walks(), backup="one_step")
    x = np.array([[0.0], [6.0]])
    assert_array_equal(agent.determined(x, 0), [True, False])
    assert agent.coverage(x, 0)[1] == 0.0
    assert_array_equal(np.isfinite(agent.standard_errors(x, 0)), [True, False])


def test_features_that_are_not_alike_stay_what_they_are(monkeypatch: Any) -> None:
    edges = np.linspace(-4.0, 4.0, FEWEST_REDUCED + 1)[1:-1]

    def cells(x: Any) -> Any:
        return (np.digitize(x[:, 0], edges)[:, None] == np.arange(FEWEST_REDUCED)).astype(float)

    x = np.random.default_rng(0).uniform(-4.0, 4.0, (2000, 4, 1))
    trials = KeptTrials(x, x[:, :-1, 0])
    found = []
    for fewest in (FEWEST_REDUCED, 10**6):
        monkeypatch.setattr("lstd_agent.statistics.moments.FEWEST_REDUCED", fewest)
        found.append(fitted(cells, trials, anchors=[0], backup="one_step").system_)
    assert_array_equal(found[0].weights, found[1].weights)


@pytest.mark.parametrize("gain", [None, -1.0])
@pytest.mark.parametrize("features", ["few", "many"])
def test_a_batch_is_left_out_of_what_all_led_to_as_by_a_fit_of_its_own(
    features: str, gain: Any, monkeypatch: Any
) -> None:
    x = np.linspace(-3.5, 3.5, 11)[:, None]
    found: list[Any] = []
    for fewest in (10**6, 1):
        monkeypatch.setattr("lstd_agent.statistics.moments._FEWEST_MANY", fewest)
        rows = few if features == "few" else many
        agent = fitted(rows, walks(), anchors=[0, 3, 9], backup="one_step", gain=gain)
        found.append([agent.standard_errors(x, 0), agent.standard_errors(x, 20)])
        found[-1].append(agent.standard_errors(x, 4))
    assert np.isfinite(found[0]).sum() > 15
    assert_allclose(found[1], found[0], rtol=1e-3)


def test_what_a_batch_alone_determines_is_fitted_afresh_without_it(monkeypatch: Any) -> None:
    trials = walks()
    observations = trials.observations.copy()
    observations[::6] += 20.0  # the first batch is elsewhere
    elsewhere = KeptTrials(observations, trials.rewards)

    def both(x: Any) -> Any:
        return np.hstack((few(x), few(x - 20.0)))

    found = []
    for fewest in (10**6, 1):
        monkeypatch.setattr("lstd_agent.statistics.moments._FEWEST_MANY", fewest)
        agent = fitted(both, elsewhere, backup="one_step")
        x = np.array([[0.0], [1.0], [20.0]])
        found.append([agent.standard_errors(x, t) for t in (0, 20)])
    assert np.isinf(found[0])[:, 2].all()
    assert_allclose(found[1], found[0], rtol=1e-3)
