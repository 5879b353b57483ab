"""Semi-gradient steps, held to the LSTD solution that they are to come to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from numpy.testing import assert_allclose

import unichain_gym
from lstd_agent import OneHot, SeminormLSTDAgent, SeminormTDAgent, TrialCollector
from lstd_agent.errors import EvaluationError, FitWarning, InvalidInputError, NotFittedError
from lstd_agent.study.problems import (
    population_counts,
    random_chain,
    random_features,
    random_policy,
)
from lstd_agent.trials.counting import TransitionCounts
from lstd_agent.trials.kept_trials import KeptTrials
from lstd_agent.trials.recorders import CountRecorder
from lstd_agent.trials.request import Request

S = 36
FEATURES = {
    "one-hot": np.eye(S),
    "grouped": np.kron(np.eye(S // 3), np.ones((3, 1))),
    "Gaussian": random_features(S, 7, 0),
}


def counts_of(seed: int, n_trials: int, t_max: int) -> TransitionCounts:
    return population_counts(random_chain("h36c", 0), n_trials, t_max, np.random.default_rng(seed))


@pytest.fixture(scope="module")
def counts() -> TransitionCounts:
    return counts_of(0, 5000, 1000)


def lstd(features: Any, anchors: list[int], counts: TransitionCounts, **options: Any) -> Any:
    options = {"backup": "one_step", **options}
    return SeminormLSTDAgent(features, anchors=anchors, **options).add(counts).fit()


def deviations(agent: SeminormTDAgent, other: Any, features: np.ndarray) -> list[float]:
    """Largest differences of values, but for a constant, at the states that each window visits."""
    found = []
    for k, each in enumerate(other.neighborhoods_):
        seen = features[each.occupancy > 0.0]
        values = seen @ agent.weights_[k] + agent.offsets_[k]
        found.append(float(np.ptp(values - seen @ each.weights - each.offset)))
    return found


def distances(agent: SeminormTDAgent, other: Any, features: np.ndarray) -> list[float]:
    """Differences in the mean square over visits, beside the values' standard deviation."""
    found = []
    for k, each in enumerate(other.neighborhoods_):
        p, values = each.occupancy / each.occupancy.sum(), features @ each.weights
        gap = features @ agent.weights_[k] - values
        found.append(np.sqrt(p @ (gap - p @ gap) ** 2 / (p @ (values - p @ values) ** 2)))
    return found


@pytest.mark.parametrize(
    ("name", "anchors"),
    [
        ("one-hot", [0]),
        ("grouped", [0]),
        *[(name, anchors) for name in FEATURES for anchors in ([0, 51], [0, 5, 20, 103])],
    ],
)
@pytest.mark.filterwarnings("ignore::lstd_agent.FitWarning")
def test_sweeps_end_in_the_lstd_solution_of_every_neighborhood(
    counts: TransitionCounts, name: str, anchors: list[int]
) -> None:
    features = FEATURES[name]
    agent = SeminormTDAgent(features, anchors).fit(counts)
    assert max(deviations(agent, lstd(features, anchors, counts), features)) < 1e-5  # of 200


@pytest.mark.slow
@pytest.mark.parametrize("name", ["one-hot", "grouped"])
def test_one_pass_comes_close_to_the_lstd_solution_of_the_same_trials(name: str) -> None:
    features, anchors = FEATURES[name], [0, 20]
    agent = SeminormTDAgent(features, anchors)
    parts = [counts_of(seed, 400, 120) for seed in range(25)]
    for part in parts:
        agent.partial_fit(part)
    assert agent.n_trials == 10_000
    other = lstd(features, anchors, sum(parts[1:], parts[0]), gain=agent.gain_)
    assert max(distances(agent, other, features)) < 0.15


def test_one_pass_does_not_hang_on_the_size_of_features() -> None:
    small, large = (SeminormTDAgent(size * np.eye(S), [0, 20]) for size in (1.0, 1e6))
    for seed in range(2):
        for agent in (small, large):
            agent.partial_fit(counts_of(seed, 100, 60))
    assert_allclose(large.predict(range(S), 0), small.predict(range(S), 0), rtol=1e-9)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.filterwarnings("ignore::lstd_agent.FitWarning")
def test_after_a_change_of_policy_a_warm_start_needs_a_fraction_of_the_trials(seed: int) -> None:
    """400 trials leave it a smaller error than 800 a cold start."""
    mdp, t_max, anchors = unichain_gym.make_mdp("h36c"), 120, [0, 51]
    policy = random_policy(mdp, seed)
    changed = policy.copy()
    changed[:30:6] = 1 - changed[:30:6]
    before, after = mdp.induce(policy), mdp.induce(changed)
    rng = np.random.default_rng(seed)
    first = lstd(np.eye(S), anchors, population_counts(before, 2000, t_max, rng), gain=before.gain)
    cold = SeminormTDAgent(OneHot(), anchors, gain=after.gain)
    warm = SeminormTDAgent(OneHot(), anchors, gain=after.gain, initial=first.system_)
    transient = after.initial_distribution > 0.0

    def error(agent: SeminormTDAgent) -> float:
        gap = (agent.predict(range(S), 0) - after.bias)[transient]
        return float(np.std(gap) / np.std(after.bias[transient]))

    for each in range(8):
        part = population_counts(after, 100, t_max, rng)
        cold.partial_fit(part)
        if each < 4:
            warm.partial_fit(part)
    assert error(warm) < 0.6 * error(cold)


def test_a_fit_that_begins_at_its_solution_has_nothing_to_do(counts: TransitionCounts) -> None:
    first = SeminormTDAgent(OneHot(), [0, 51]).fit(counts)
    again = SeminormTDAgent(OneHot(), [0, 51], initial=first).fit(counts)
    assert first.n_sweeps_ > 100
    assert again.n_sweeps_ < first.n_sweeps_ / 10
    assert_allclose(again.predict(range(S), 0), first.predict(range(S), 0), atol=1e-5)


def walks(start: int) -> TransitionCounts:
    """One trial 0 → 1 → 2 → 2 … from some place on, each step of which pays its place."""
    recorder = CountRecorder(3)
    for t in range(start, start + 6):
        here, there = np.array([min(t, 2)]), np.array([min(t + 1, 2)])
        recorder.record(here, here.astype(float), there)
    return recorder.sums(1)


def test_states_that_are_not_seen_keep_the_weights_that_they_began_with() -> None:
    first = SeminormTDAgent(OneHot(), [0, 3]).fit(walks(0))
    assert_allclose(first.predict(range(3), [0, 1, 2]), [-3.0, -1.0, 0.0], atol=1e-8)
    warm = SeminormTDAgent(OneHot(), [0, 3], initial=first).fit(walks(1))
    assert_allclose(warm.predict(range(3), [0, 1, 2]), [-3.0, -1.0, 0.0], atol=1e-8)


@pytest.fixture(scope="module")
def vectors() -> TrialCollector:
    """Trials of a noisy relaxation x' = x / 2 + e, which pays x."""
    rng = np.random.default_rng(0)
    x = np.full((2000, 32), 4.0)
    for t in range(31):
        x[:, t + 1] = 0.5 * x[:, t] + 0.3 * rng.normal(size=2000)
    collector = TrialCollector(lambda x: x, observations="vectors")
    space = spaces.Box(-np.inf, np.inf, (1,))
    collector.restore(space, [KeptTrials.of(x[:, :, None], x[:, :-1])])
    return collector


@pytest.mark.parametrize("way", ["partial_fit", "fit"])
def test_values_of_vectors_are_right(vectors: TrialCollector, way: str) -> None:
    """v(x) = 2 x, since x pays x + x/2 + x/4 + …"""
    agent = SeminormTDAgent(lambda x: x, [0, 5], gain=0.0)
    getattr(agent, way)(vectors)
    values = agent.predict([[3.0], [1.0]], 0)
    assert_allclose(values[0] - values[1], 4.0, rtol=0.1)


@pytest.mark.filterwarnings("ignore::lstd_agent.FitWarning")
def test_steps_that_lead_away_are_refused_with_the_window(counts: TransitionCounts) -> None:
    agent = SeminormTDAgent(FEATURES["Gaussian"], [0])
    with pytest.raises(
        EvaluationError, match=r"diverge in the neighborhood of timesteps 0 to 1000"
    ):
        agent.fit(counts)
    with pytest.raises(NotFittedError, match="no weights yet"):
        agent.predict([0], 0)


def test_a_first_round_tells_steps_that_lead_away() -> None:
    """By weights, that would show after hundreds of rounds."""
    part = counts_of(0, 200, 120)
    agent = SeminormTDAgent(FEATURES["Gaussian"], [0, 20])
    with pytest.warns(FitWarning, match=r"first round.* neighborhood of timesteps 20 to 120"):
        agent.partial_fit(part)
    agent.partial_fit(part)
    SeminormTDAgent(FEATURES["Gaussian"], [0, 51]).partial_fit(part)


def test_bad_input_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="initial weights are those of a System"):
        SeminormTDAgent(OneHot(), [0], initial=np.zeros(3))  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="anchors must be ascending"):
        SeminormTDAgent(OneHot(), [0, 90]).partial_fit(counts_of(0, 10, 50))
    agent = SeminormTDAgent(OneHot(), [0]).partial_fit(counts_of(0, 10, 50))
    with pytest.raises(InvalidInputError, match="trials so far have t_max = 50; got 40"):
        agent.partial_fit(counts_of(0, 10, 40))
    with pytest.raises(InvalidInputError, match="no trials in the collector"):
        agent.partial_fit(TrialCollector(OneHot()))
    other = TransitionCounts.of(unichain_gym.simulate_counts(random_chain("h6", 0), 10, 50, 0))
    with pytest.raises(InvalidInputError, match="trials so far are of Discrete"):
        agent.partial_fit(other)
    with pytest.raises(InvalidInputError, match="a timestep is an integer"):
        agent.predict([0], 0.5)


def test_trials_that_an_environment_was_stepped_for_are_taken(walk: Any) -> None:
    """The walk 0 → 1 → 2 → 3 pays its place, and 3 ever after."""
    collector = TrialCollector(OneHot())
    collector.collect(walk(), [0] * 4, Request(n_trials=1, t_max=20, seed=0))
    agent = SeminormTDAgent(OneHot(), [0, 5]).fit(collector)
    assert_allclose(agent.predict([0, 1, 2, 3], [0, 1, 2, 3]), [-6.0, -3.0, -1.0, 0.0], atol=1e-8)
