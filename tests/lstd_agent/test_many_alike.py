"""Hundreds of dense features that are alike are fitted as the few that they are made of."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from numpy.testing import assert_allclose, assert_array_equal

from lstd_agent import KeptTrials, SeminormLSTDAgent

pytestmark = pytest.mark.filterwarnings("ignore::lstd_agent.errors.FitWarning")

N_TRIALS, T_MAX = 120, 30

FEWEST_REDUCED = 500  # features; so many are looked at for fewer numbers behind them


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
    options = {"anchors": [0, 5], "n_batches": 6, **options}
    return SeminormLSTDAgent(features, **options).attach(Line()).add(trials).fit()


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("backup", ["one_step", "auto"])
def test_many_redundant_features_predict_like_few(backup: Any, cut: bool) -> None:
    trials = walks(cut=cut)
    a, b = (fitted(f, trials, backup=backup) for f in (few, many))
    x = np.linspace(-3.5, 3.5, 11)[:, None]
    for t in (0, 20):
        assert_allclose(b.predict(x, t), a.predict(x, t), rtol=1e-6, atol=1e-6)
        errors = a.standard_errors(x, t)
        assert np.isfinite(errors[3:8]).all()
        assert_allclose(b.standard_errors(x, t), errors, rtol=1e-4)
        assert_allclose(b.coverage(x, t), a.coverage(x, t), rtol=1e-5)
        assert_array_equal(b.determined(x, t), a.determined(x, t))
    assert b.gain_ == pytest.approx(a.gain_, rel=1e-8)
    assert b.backup_.backup == a.backup_.backup
    assert_array_equal(b.system_.rank, a.system_.rank)
    assert b.system_.weights.shape == (2, FEWEST_REDUCED)


def test_observations_outside_the_span_of_samples_are_not_covered() -> None:
    def with_a_region(x: Any) -> Any:
        far = (np.abs(x[:, :1]) > 5.0) * np.ones(3)
        return np.hstack((many(x), far))

    agent = fitted(with_a_region, walks(), backup="one_step")
    x = np.array([[0.0], [6.0]])
    assert_array_equal(agent.determined(x, 0), [True, False])
    assert agent.coverage(x, 0)[1] == 0.0
    assert_array_equal(np.isfinite(agent.standard_errors(x, 0)), [True, False])
