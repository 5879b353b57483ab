"""The backup that the data choose: what predicts best, where its assumptions hold."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from lstd_agent.statistics.backups import LambdaReturn
from lstd_agent.statistics.counts import CountStatistics
from lstd_agent.statistics.holdouts import Approximators
from lstd_agent.statistics.return_moments import ReturnMoments
from lstd_agent.system.fit_system import fit_system
from numpy.testing import assert_allclose
from study.exact_systems import values_of

from lstd_agent import GaussianFeatures, OneHot, Polynomial, RadialBasis, SeminormLSTDAgent
from lstd_agent.errors import InvalidInputError
from lstd_agent.problems import (
    StepwiseErrors,
    full_distributions,
    population_counts,
    random_chain,
    random_features,
)
from lstd_agent.system.selection import choose_backup
from lstd_agent.trials.kept import KeptTrials


class Space(gym.Env[Any, Any]):
    """Nothing but an observation space."""

    def __init__(self, space: Any) -> None:
        self.observation_space, self.action_space = space, spaces.Discrete(2)


def given(space: Any, states: Any, rewards: Any, n_rounds: int = 10, **options: Any) -> Any:
    """An agent that was given trials in rounds."""
    agent = SeminormLSTDAgent(**options).attach(Space(space))
    for i in range(n_rounds):
        agent.add(KeptTrials.of(states[i::n_rounds], rewards[i::n_rounds]))
    return agent


@pytest.mark.parametrize("environment", ["h6", "c10", "h36c"])
def test_markov_states_are_pooled_and_that_is_as_good_as_it_gets(environment: str) -> None:
    """With coarse features, errors of the model are those of the best fit to the exact values."""
    chain = random_chain(environment, 0)
    t_max = 10 * chain.mixing_time()
    counts = population_counts(chain, 10_000, t_max, np.random.default_rng(0))
    F = random_features(chain.n_states, chain.n_states // 3, 0)
    statistics, anchors = CountStatistics(counts, F), np.array([0, 10])
    choice = choose_backup(statistics, [counts], anchors, chain.gain, 1e-10)
    assert choice.backup == "model"
    assert [tried.backup for tried in choice.tried] == ["one_step", "model"]
    errors = StepwiseErrors(chain, F, full_distributions(chain, t_max))
    found = values_of(fit_system(statistics, anchors, chain.gain, backup="model"), F)
    assert errors.totals(found)["total_rems"] < 1.05 * errors.limit(found)


def aggregated(seed: int = 0) -> tuple[Any, Any]:
    """Trials of 0, 1, 0, 2 and then a coin of 2 and 3; 0 pays 5, 3 pays 1, with noise.

    Whoever is in 0 comes back once at first and then never again, which no transition matrix
    tells. The gain is 0.5.
    """
    rng = np.random.default_rng(seed)
    states = np.empty((400, 42, 1), dtype=int)
    states[:, :4, 0] = [0, 1, 0, 2]
    states[:, 4:, 0] = rng.choice([2, 3], size=(400, 38))
    paid = np.array([5.0, 0.0, 0.0, 1.0])
    return states, paid[states[:, :-1, 0]] + rng.normal(size=(400, 41))


def test_observations_that_are_no_markov_states_are_not_pooled() -> None:
    states, rewards = aggregated()
    agent = given(spaces.Discrete(4), states, rewards, features=OneHot(), n_anchors=None)
    agent.fit()
    assert agent.backup_.backup != "model"
    model = next(tried for tried in agent.backup_.tried if tried.backup == "model")
    assert model.difference > 4 * model.standard_error
    # At first 0 is worth 5 - 1/2 more than at its second visit, and 1's -1/2.
    found = agent.predict([0, 1, 0], [0, 1, 2])
    assert_allclose(found - found[2], [4.0, -0.5, 0.0], atol=0.5)


def test_where_the_counts_do_not_lead_back_they_are_not_pooled() -> None:
    """Two pairs of places that never meet: the one tells nothing of the other's values."""
    states = np.array([[0, 1] * 10, [2, 3] * 10] * 20)[:, :, None]
    agent = given(spaces.Discrete(4), states, np.ones((40, 19)), features=OneHot())
    statistics, batches = agent.statistics, list(agent.collector.batches.sums)
    choice = choose_backup(statistics, batches, np.array([0]), 1.0, 1e-10)
    assert choice.backup == "one_step"
    assert "model" not in [tried.backup for tried in choice.tried]


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
    states, rewards = decaying(power)
    agent = given(spaces.Box(-9, 9, (1,)), states, rewards, features=Polynomial(degree))
    agent.fit()
    best = min(agent.backup_.tried, key=lambda tried: tried.error)
    assert best.error < 1.02 * agent.backup_.tried[0].error
    right = 1.0 / 0.2 if power == 1 else (16.0 - 9.0) / 0.36
    assert agent.compare([4.0], [3.0], 0).difference == pytest.approx(right, rel=0.05)


@pytest.mark.filterwarnings("ignore::lstd_agent.FitWarning")  # such features do not fit
def test_a_choice_is_the_simplest_within_an_error_of_the_best() -> None:
    states, rewards = decaying(3)
    agent = given(spaces.Box(-9, 9, (1,)), states, rewards, features=Polynomial(1), n_anchors=1)
    choice = agent.fit().backup_
    assert [tried.backup for tried in choice.tried[:3]] == [
        "one_step",
        LambdaReturn(0.6),
        LambdaReturn(0.9),
    ]
    best = min(choice.tried, key=lambda tried: tried.error)
    chosen = next(tried for tried in choice.tried if tried.backup == choice.backup)
    assert chosen.error <= best.error + best.standard_error


def test_held_out_errors_are_those_of_predictions_against_returns() -> None:
    """By hand: one neighbourhood, values x, three trials of three timesteps."""
    x = np.array([[1.0, 2, 3, 4], [0, 0, 0, 0], [2, 1, 1, 1]] * 4)[:, :, None]
    rewards = np.array([[1.0, 0, 2], [1, 1, 1], [0, 0, 3]] * 4)
    agent = given(spaces.Box(-9, 9, (1,)), x, rewards, 1, features=Polynomial(1), gain=0.5)
    system = Approximators(np.array([[0.0, 1.0]]), np.zeros(1), np.array([[0, 3]]))
    returns = np.array([[5.5, 5.0, 5.5], [1.5, 1.0, 0.5], [2.5, 3.0, 3.5]])
    errors = np.array([[1.0, 2, 3], [0, 0, 0], [2, 1, 1]]) - returns
    weights = np.array([1.0, 1 / 2, 1 / 3]) / (11 / 6)
    for i, holdout in enumerate(agent.statistics.holdouts(agent.collector.batches.sums)):
        # Every other trial, from the second and from the first, in the order of their content.
        total = agent.collector.batches.total.kept.observations[1 - i :: 2, 0, 0]
        order = [np.flatnonzero(x[:3, 0, 0] == start)[0] for start in total]
        [found] = holdout.errors([system], 0.5)
        assert_allclose(found[:, 0], (errors**2 @ weights)[order])
        assert_allclose(found[:, 1], errors[order, 0])


def test_counts_hold_predictions_against_the_same_returns_as_their_trials() -> None:
    """Where no two trials ever meet, the returns of counts are those of single trials."""
    rng = np.random.default_rng(0)
    states = (np.arange(16)[:, None] + 16 * np.arange(6))[:, :, None]
    rewards = rng.normal(size=(16, 5))
    F = rng.normal(size=(96, 2))
    counted = given(spaces.Discrete(96), states, rewards, 8, features=F)
    kept = given(
        spaces.Box(0, 99, (1,)),
        states.astype(float),
        rewards,
        8,
        features=lambda x: F[x[:, 0].astype(int)],
    )
    windows = np.array([[0, 2], [2, 5]])
    system = Approximators(rng.normal(size=(2, 2)), rng.normal(size=2), windows)
    by_trial, by_count = (
        np.concatenate(
            [
                h.errors([system], 0.1)[0]
                for h in a.statistics.holdouts(list(a.collector.batches.sums))
            ]
        )
        for a in (kept, counted)
    )
    assert_allclose(by_count.mean(axis=0), by_trial.mean(axis=0))


def test_counts_are_the_same_after_a_choice() -> None:
    chain = random_chain("h6", 0)
    counts = population_counts(chain, 200, 30, np.random.default_rng(0))
    before = [counts.transition_counts.toarray(), counts.reward_sums.toarray()]
    statistics = CountStatistics(counts, np.eye(6))
    choose_backup(statistics, [counts], np.array([0]), chain.gain, 1e-10)
    assert np.array_equal(counts.transition_counts.toarray(), before[0])
    assert np.array_equal(counts.reward_sums.toarray(), before[1])


@pytest.mark.filterwarnings("ignore::lstd_agent.FitWarning")
def test_a_choice_is_the_same_every_time_told_and_saved(tmp_path: Any) -> None:
    states, rewards = aggregated()
    for options in ({"n_anchors": 2}, {"n_anchors": None}):
        agent = given(spaces.Discrete(4), states, rewards, features=OneHot(), **options).fit()
        choice = agent.backup_
        assert agent.fit().backup_ == choice
        assert str(choice) in agent.summary()
        assert str(choice) in str(agent.diagnostics())
        agent.save(tmp_path / "agent.npz")
        other = SeminormLSTDAgent.load(tmp_path / "agent.npz")
        assert (other.backup, other.backup_) == ("auto", choice)
        assert np.array_equal(other.standard_errors([0, 2], 0), agent.standard_errors([0, 2], 0))


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
            make(GaussianFeatures(3), backup=backup).collect(env, policy, 500, 30, seed=0).fit()
            for backup in ("auto", "one_step")
        )
        assert auto.backup_.backup == "one_step"
        assert np.array_equal(auto.predict(np.arange(6)), one.predict(np.arange(6)))


@pytest.mark.filterwarnings("ignore::lstd_agent.FitWarning")
def test_where_there_is_nothing_to_choose_from_it_says_so(walk: Any) -> None:
    few = SeminormLSTDAgent(Polynomial(2), 1)
    few.collect(walk(kind="box"), lambda x: 0, n_trials=4, t_max=8, seed=0).fit()
    assert str(few.backup_) == "one step: there are too few trials to hold some out"


@pytest.mark.filterwarnings("ignore::lstd_agent.FitWarning")  # such features do not fit
def test_each_half_is_walked_once_for_whatever_is_tried_and_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both λ are summed together, and what the halves summed serves the fit of all trials."""
    states, rewards = decaying(3)
    walked, original = [], ReturnMoments._sums

    def sums(self: ReturnMoments, start: int, stop: int, *others: Any) -> Any:
        walked.append((start, stop))
        return original(self, start, stop, *others)

    monkeypatch.setattr(ReturnMoments, "_sums", sums)
    agent = given(spaces.Box(-9, 9, (1,)), states, rewards, features=Polynomial(2), n_anchors=1)
    assert agent.fit().backup_.backup == LambdaReturn(0.6)
    assert walked == [(0, 61)] * 2


def test_of_many_dense_features_single_steps_alone_are_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """λ-returns are to be had by name, and numbers of neighbourhoods are compared."""
    monkeypatch.setattr("lstd_agent.statistics.backups._MOST_COMPARED", 3)
    states, rewards = decaying(1)
    box = spaces.Box(-np.inf, np.inf, (1,))
    agent = given(box, states, rewards, features=Polynomial(3)).fit()
    assert agent.backup_.backup == "one_step"
    assert str(agent.backup_) == (
        "one step: of so many features (4) no lambda-returns are tried: give "
        "backup=LambdaReturn(decay) for one"
    )
    wanted = given(box, states, rewards, features=Polynomial(3), backup=LambdaReturn(0.6)).fit()
    assert wanted.backup_.backup == LambdaReturn(0.6)
    several = given(box, states, rewards, features=Polynomial(3), n_anchors="auto").fit()
    assert several.backup_.backup == "one_step"
    assert len(several.backup_.numbers) > 1
    assert given(box, states, rewards, features=Polynomial(2)).fit().backup_.tried


def draining(n_trials: int = 200) -> tuple[Any, Any]:
    """Trials of 21, 20 … 1 and then coins of 0 and 1, which cost what they are."""
    x = np.random.default_rng(0).integers(2, size=(n_trials, 102)).astype(float)
    x[:, :21] = np.arange(21, 0, -1)
    return x[:, :, None], -x[:, :-1]


def test_the_data_choose_as_many_neighborhoods_as_predict_better(tmp_path: Any) -> None:
    """Six bumps: two neighbourhoods are off by 2 of the 21's value, -221 beside that of 0."""
    box = spaces.Box(0.0, 21.0, (1,))
    features = RadialBasis.grid([0], [21], 6)
    agent = given(box, *draining(), features=features, n_anchors="auto").fit()
    value = agent.predict([[21.0]], 0) - agent.predict([[0.0]], 100)
    assert_allclose(value, -221.0, atol=1.0)
    tried = agent.backup_.numbers
    assert [each.n_anchors for each in tried] == [1, 2, 4, 8]
    best = min(each.error for each in tried)
    assert best < 0.95 * tried[1].error
    assert len(agent.system_.anchors) in (4, 8)
    assert "  4 neighborhoods, " in str(agent.diagnostics())
    agent.save(tmp_path / "agent.npz")
    other = SeminormLSTDAgent.load(tmp_path / "agent.npz")
    assert (other.n_anchors, other.backup_) == ("auto", agent.backup_)
    assert np.array_equal(other.fit().system_.weights, agent.system_.weights)


def test_features_that_represent_the_values_need_one_neighborhood() -> None:
    """Values of x are x / 0.2, less a constant."""
    states, rewards = decaying(1)
    box = spaces.Box(-np.inf, np.inf, (1,))
    agent = given(box, states, rewards, features=Polynomial(1), n_anchors="auto").fit()
    assert len(agent.system_.anchors) == 1


def test_a_choice_of_the_number_without_trials_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="n_anchors='auto' chooses among linked systems"):
        SeminormLSTDAgent(OneHot(), "auto", calibration="references")
