"""Linked systems: solved backwards in time, held to independent figures and to exact values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from lstd_agent import OneHot, SeminormLSTDAgent
from lstd_agent.statistics.counts import CountStatistics
from lstd_agent.study.exact import ExactStatistics
from lstd_agent.system.approximators import System
from lstd_agent.system.fit_system import fit_system
from lstd_agent.trials.recorders import CountRecorder
from unichain_gym import TabularMDP, make_mdp, simulate_counts


def difference(system: System, features: Any, case: Any) -> float:
    """The largest difference from the reference at states that its windows visit, over theirs."""
    expected = np.array([[np.nan if v is None else v for v in row] for row in case["values"]])
    found = system.weights @ features.T + system.offsets[:, None]
    return float(np.nanmax(np.abs(found - expected)) / np.nanmax(np.abs(expected)))


@pytest.mark.parametrize("number", range(4))
def test_exact_linked_systems_equal_the_reference_figures(reference: Any, number: int) -> None:
    """Where the condition is near 1e10, rounding errors of p^t and the gain are as amplified."""
    problem = reference("linked")["exact"][number]
    chain = make_mdp(problem["env"]).induce(np.array(problem["policy"]))
    features = np.array(problem["features"])
    p = chain.stepwise_distributions(problem["t_max"], tol=0.0).copy()
    p[p <= 1e-8] = 0.0
    statistics = ExactStatistics(chain, features, p / p.sum(axis=1, keepdims=True))
    cases = [case for case in problem["cases"] if case["lambda"] == 0.0]
    assert len(cases) == 4
    for case in cases:
        system = fit_system(statistics, np.array(case["anchors"]), problem["gain"])
        assert system.references.main == case["main_reference"]
        tolerance = 1e-7 if system.condition.max() < 1e9 else 1e-15 * system.condition.max()
        assert difference(system, features, case) < tolerance


@pytest.mark.parametrize("number", range(4))
def test_linked_systems_of_samples_equal_the_reference_figures(reference: Any, number: int) -> None:
    problem = reference("linked")["sample"][number]
    states, rewards = np.array(problem["states"]), np.array(problem["rewards"])
    features = np.array(problem["features"])
    recorder = CountRecorder(len(features))
    for t in range(rewards.shape[1]):
        recorder.record(states[:, t], rewards[:, t], states[:, t + 1])
    statistics = CountStatistics(recorder.sums(len(states)), features)
    cases = [case for case in problem["cases"] if case["lambda"] == 0.0]
    assert len(cases) == 3
    for case in cases:
        system = fit_system(statistics, np.array(case["anchors"]), problem["gain"])
        assert system.references.main == case["main_reference"]
        assert difference(system, features, case) < 1e-7


@pytest.mark.parametrize("anchors", [[0], [0, 1], [0, 7, 40], list(range(81))])
def test_exact_statistics_and_features_that_represent_it_give_the_bias(anchors: Any) -> None:
    chain = make_mdp("h6").induce(np.array([0, 1, 0, 1, 0, 1]))
    features = np.random.default_rng(0).normal(size=(6, 6))
    statistics = ExactStatistics(chain, features, chain.stepwise_distributions(80))
    system = fit_system(statistics, np.array(anchors), chain.gain)
    found = features @ system.weights[0] + system.offsets[0]
    exact = chain.relative_value(system.references.main)
    transient = chain.transient_states
    assert_allclose(found[transient], exact[transient], atol=1e-6 * np.ptp(exact))


def test_batches_agree_on_the_main_reference_where_two_states_are_visited_alike() -> None:
    # A fair coin: which of its sides the last neighborhood visits most is a matter of chance.
    mdp = TabularMDP.from_arrays(np.full((2, 1, 2), 0.5), [[0.0], [1.0]], [0.5, 0.5])
    counts = [simulate_counts(mdp.induce([0, 0]), 50, 40, seed) for seed in range(4, 12)]
    agent = SeminormLSTDAgent(OneHot(), 1)
    for portion in counts:
        agent.add(portion)
    agent.fit()
    assert agent.standard_errors([0, 1]).max() < 0.1
    assert agent.standard_errors([agent.main_reference_])[0] < 0.001
