"""The backup that the data choose: what predicts best, where its assumptions hold."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from numpy.testing import assert_allclose

from lstd_agent import GaussianFeatures, OneHot, Polynomial, RadialBasis, SeminormLSTDAgent
from lstd_agent.backups import LambdaReturn
from lstd_agent.errors import InvalidInputError
from lstd_agent.problems import random_chain
from unichain_gym import simulate_counts

BOX = spaces.Box(-np.inf, np.inf, (1,))


def given(space: Any, states: Any, rewards: Any, **options: Any) -> SeminormLSTDAgent:
    agent = SeminormLSTDAgent(**options)
    return agent.add_trials(states, rewards, observation_space=space)


@pytest.mark.first(1)
@pytest.mark.filterwarnings("ignore::lstd_agent.FitWarning")
@pytest.mark.parametrize("environment", ["h6", "c10"])
def test_markov_states_are_pooled(environment: str) -> None:
    chain = random_chain(environment, 0)
    agent = SeminormLSTDAgent(GaussianFeatures(chain.n_states // 3), anchors=[0, 10])
    agent.add(simulate_counts(chain, 10_000, 10 * chain.mixing_time(), np.random.default_rng(0)))
    assert agent.fit().backup_.backup == "model"


def aggregated(seed: int = 0) -> tuple[Any, Any]:
    """Trials of 0, 1, 0, 2 and then a coin of 2 and 3; 0 pays 5, 3 pays 1, with noise.

    Whoever is in 0 comes back once at first and then never again, which no transition matrix
    tells. The gain is 0.5.
    """
    rng = np.random.default_rng(seed)
    states = np.empty((400, 42), dtype=int)
    states[:, :4] = [0, 1, 0, 2]
    states[:, 4:] = rng.choice([2, 3], size=(400, 38))
    paid = np.array([5.0, 0.0, 0.0, 1.0])
    return states, paid[states[:, :-1]] + rng.normal(size=(400, 41))


@pytest.mark.filterwarnings("ignore::lstd_agent.FitWarning")
def test_observations_that_are_not_markov_states_are_not_pooled() -> None:
    agent = given(spaces.Discrete(4), *aggregated(), features=OneHot(), n_anchors=None).fit()
    assert agent.backup_.backup != "model"
    model = next(tried for tried in agent.backup_.tried if tried.backup == "model")
    assert model.difference > 4 * model.standard_error
    # At first 0 is worth 5 - 1/2 more than at its second visit, and 1's -1/2.
    found = agent.predict([0, 1, 0], [0, 1, 2])
    assert_allclose(found - found[2], [4.0, -0.5, 0.0], atol=0.5)


def decaying(power: int, seed: int = 0) -> tuple[Any, Any]:
    """Trials of x → 0.8 x + noise from 3 or 4, rewards x to a power."""
    rng = np.random.default_rng(seed)
    x = np.empty((300, 62, 1))
    x[:, 0] = rng.choice([3.0, 4.0], size=(300, 1))
    for t in range(61):
        x[:, t + 1] = 0.8 * x[:, t] + 0.3 * rng.normal(size=(300, 1))
    return x, x[:, :-1, 0] ** power


@pytest.mark.parametrize(("power", "degree"), [(1, 1), (1, 3), (2, 2)])
def test_features_that_represent_the_values_of_vectors_have_single_steps(
    power: int, degree: int
) -> None:
    """Values of x and x² are x / 0.2 and x² / 0.36, less a constant."""
    agent = given(BOX, *decaying(power), features=Polynomial(degree)).fit()
    assert agent.backup_.backup == "one_step"
    assert len(agent.system_.anchors) == 1
    assert agent.diagnostics().gain_rows == "tail"
    right = 1.0 / 0.2 if power == 1 else (16.0 - 9.0) / 0.36
    assert agent.compare([4.0], [3.0], 0).difference == pytest.approx(right, rel=0.05)


@pytest.mark.filterwarnings("ignore::lstd_agent.FitWarning")  # such features do not fit
def test_a_choice_is_the_simplest_within_an_error_of_the_best() -> None:
    agent = given(BOX, *decaying(3), features=Polynomial(1), n_anchors=1).fit()
    choice = agent.backup_
    tried = [each.backup for each in choice.tried]
    assert tried == ["one_step", LambdaReturn(0.6), LambdaReturn(0.9), LambdaReturn(1.0)]
    best = min(choice.tried, key=lambda tried: tried.error)
    chosen = next(tried for tried in choice.tried if tried.backup == choice.backup)
    assert chosen.error <= best.error + best.standard_error


@pytest.mark.filterwarnings("ignore::lstd_agent.FitWarning")
def test_counts_are_the_same_after_a_choice_and_the_choice_is_the_same_again() -> None:
    counts = simulate_counts(random_chain("h6", 0), 200, 30, 0)
    before = counts.transition_counts.toarray(), counts.reward_sums.toarray()
    agent = SeminormLSTDAgent(OneHot()).add(counts).fit()
    choice = agent.backup_
    assert np.array_equal(counts.transition_counts.toarray(), before[0])
    assert np.array_equal(counts.reward_sums.toarray(), before[1])
    assert agent.fit().backup_ == choice
    assert str(choice) in agent.summary()
    assert str(choice) in str(agent.diagnostics())


@pytest.mark.filterwarnings("ignore::lstd_agent.FitWarning")
def test_systems_with_reference_states_have_single_steps() -> None:
    env = gym.make_vec("unichain_gym:Unichain-h6-v0", num_envs=100)
    policy = np.zeros(6, dtype=int)
    for make in (
        SeminormLSTDAgent.paper,
        SeminormLSTDAgent.average_reward,
        lambda f, **o: SeminormLSTDAgent(f, calibration="references", **o),
    ):
        auto, one = (
            make(GaussianFeatures(3), backup=backup)
            .collect(env, policy, n_trials=500, t_max=30, seed=0)
            .fit()
            for backup in ("auto", "one_step")
        )
        assert auto.backup_.backup == "one_step"
        assert np.array_equal(auto.predict(np.arange(6)), one.predict(np.arange(6)))


@pytest.mark.filterwarnings("ignore::lstd_agent.FitWarning")
def test_a_choice_with_too_few_trials_says_so(walk: Any) -> None:
    few = SeminormLSTDAgent(Polynomial(2), 1)
    few.collect(walk(kind="box"), lambda x: 0, n_trials=4, t_max=8, seed=0).fit()
    assert str(few.backup_) == "one step: there are too few trials to hold some out"


def draining(n_trials: int = 200) -> tuple[Any, Any]:
    """Trials of 21, 20 … 1 and then coins of 0 and 1, which cost what they are."""
    x = np.random.default_rng(0).integers(2, size=(n_trials, 102)).astype(float)
    x[:, :21] = np.arange(21, 0, -1)
    return x[:, :, None], -x[:, :-1]


def test_the_data_choose_as_many_neighborhoods_as_predict_better() -> None:
    """Six bumps: two neighbourhoods are off by 2 of the 21's value, -221 beside that of 0."""
    features = RadialBasis.grid([0], [21], 6)
    agent = given(BOX, *draining(), features=features, n_anchors="auto").fit()
    value = agent.predict([[21.0]], 0) - agent.predict([[0.0]], 100)
    assert_allclose(value, -221.0, atol=1.0)
    tried = agent.backup_.numbers
    assert tried[0].n_anchors == 1
    best = min(each.error for each in tried)
    assert best < 0.95 * tried[0].error
    assert len(agent.system_.anchors) >= 2


def test_features_that_represent_the_values_need_one_neighborhood() -> None:
    """Values of x are x / 0.2, less a constant."""
    agent = given(BOX, *decaying(1), features=Polynomial(1), n_anchors="auto").fit()
    assert len(agent.system_.anchors) == 1


@pytest.mark.filterwarnings("ignore::lstd_agent.FitWarning")  # such features do not fit
@pytest.mark.parametrize("options", [{}, {"gain": 0.0}])
def test_features_that_do_not_represent_the_values_keep_two_neighborhoods(options: Any) -> None:
    """Values of x³ are no line; a gain that is given is not estimated again."""
    agent = given(BOX, *decaying(3), features=Polynomial(1), **options).fit()
    assert len(agent.system_.anchors) == 2
    assert agent.diagnostics().gain_rows == ("given" if options else "tail")


def test_a_choice_of_the_number_with_reference_states_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="n_anchors='auto' chooses among linked systems"):
        SeminormLSTDAgent(OneHot(), "auto", calibration="references")
