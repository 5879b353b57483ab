"""Many states: sparse features are solved as such, and nothing holds all pairs of states."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from lstd_agent import MMD, Kernel, OneHot, SeminormLSTDAgent
from lstd_agent.errors import InvalidInputError
from lstd_agent.statistics import sparse_counts
from lstd_agent.statistics.counts import CountStatistics
from lstd_agent.statistics.pairs import paired_feature_discrepancy, paired_mean_discrepancy
from lstd_agent.statistics.structure import recurrent_classes
from lstd_agent.study.problems import population_counts, random_chain
from lstd_agent.system.distances import sampled_distance, total_variation
from lstd_agent.system.fit_system import fit_system
from lstd_agent.system.gain import corrected_gain
from lstd_agent.trials.counting import CountRecorder
from unichain_gym import UnichainVectorEnv


@pytest.mark.parametrize("anchors", [[0], [0, 20], [0, 1, 2, 50]])
@pytest.mark.parametrize("env", ["h36c", "c10"])
def test_sparse_systems_are_the_dense_ones(env: str, anchors: Any, monkeypatch: Any) -> None:
    chain = random_chain(env, 1)
    counts = population_counts(chain, 3000, 200, np.random.default_rng(0))
    found = []
    for fewest in (1000, 2):
        monkeypatch.setattr(sparse_counts, "_FEWEST_SPARSE", fewest)
        monkeypatch.setattr(sparse_counts, "_LARGEST_DENSITY", 1.0)
        statistics = CountStatistics(counts, np.eye(chain.n_states))
        assert (statistics.sparse_view is None) == (fewest == 1000)
        gain = corrected_gain(statistics, 1e-10)
        system = fit_system(statistics, np.array(anchors), gain)
        values = system.weights + system.offsets[:, None]
        found.append((gain, values[system.occupancy > 0.0], system.references.main))
    (gain, values, main), (sparse_gain, sparse_values, sparse_main) = found
    assert sparse_gain == pytest.approx(gain, rel=1e-10)
    assert_allclose(sparse_values, values, atol=1e-10 * np.ptp(values))
    assert sparse_main == main


def test_a_line_of_3000_states_has_the_value_that_it_has() -> None:
    """A step down a line costs 1, and at its end nothing: b(s) - b(0) = -s."""
    n, n_trials = 3000, 30
    recorder = CountRecorder(n)
    states = np.linspace(0, n - 1, n_trials).astype(np.int64)
    for _ in range(n + 50):
        following = np.maximum(states - 1, 0)
        recorder.record(states, -(states > 0).astype(float), following)
        states = following
    statistics = CountStatistics(recorder.sums(n_trials), np.eye(n))
    assert statistics.sparse_view is not None
    gain = corrected_gain(statistics, 1e-10)
    assert gain == pytest.approx(0.0, abs=1e-12)
    for anchors in ([0], [0, 7, 1500]):
        system = fit_system(statistics, np.array(anchors), gain)
        seen = system.occupancy > 0.0
        values = system.weights + system.offsets[:, None]
        expected = np.broadcast_to(-np.arange(n), values.shape)
        assert_allclose(values[seen], expected[seen], atol=1e-6)


def test_total_variation_of_counts_is_that_of_their_distributions() -> None:
    chain = random_chain("h36c", 0)
    counts = population_counts(chain, 500, 60, np.random.default_rng(0))
    statistics = CountStatistics(counts, np.eye(36))
    expected = total_variation(statistics.distributions)
    found = statistics.total_variation()
    for anchor in (0, 3, 60):
        assert_allclose(found(anchor, 2, 61), expected(anchor, 2, 61), atol=1e-14)


def test_the_linear_mmd_needs_no_table_of_the_kernel() -> None:
    rng = np.random.default_rng(0)
    trials, features = rng.integers(9, size=(41, 12)), rng.normal(size=(9, 3))
    kernel = Kernel(width=0.7)
    table = paired_mean_discrepancy(trials, kernel(features, features))
    pairs = paired_feature_discrepancy(trials, features, kernel)
    assert_allclose(pairs(2, 3, 12), table(2, 3, 12), atol=1e-12)


def test_a_hundred_thousand_states_are_fitted_without_all_pairs_of_them() -> None:
    n, n_trials = 100_000, 400
    rng = np.random.default_rng(0)
    recorder, trials = CountRecorder(n), []
    states = rng.integers(n, size=n_trials)
    for _ in range(30):
        following = np.where(
            rng.random(n_trials) < 0.5, states // 2, rng.integers(5, size=n_trials)
        )
        recorder.record(states, -np.sqrt(states), following)
        trials.append(states)
        states = following
    features = np.stack([np.arange(n) ** p for p in (0.0, 0.5, 1.0)], axis=1)
    statistics = CountStatistics(recorder.sums(n_trials), features, np.array(trials).T)
    for distance in ("mmd", "tv", MMD("linear")):
        squared = sampled_distance(distance, statistics)
        assert np.isfinite(squared(0, 1, 5)).all()
    system = fit_system(statistics, np.array([0, 8]), corrected_gain(statistics, 1e-10))
    assert np.isfinite(system.weights).all()
    with pytest.raises(InvalidInputError, match="all pairs of states, here 100000²"):
        sampled_distance(MMD("quadratic"), statistics)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 8), st.integers(1, 6))
def test_classes_and_periods_are_those_of_the_graph(seed: int, n: int, period: int) -> None:
    """A cycle of blocks has its number for a period; a state before it is of no class."""
    rng = np.random.default_rng(seed)
    block = rng.integers(period, size=n * period)
    block[:period] = np.arange(period)
    edges = (block[:, None] + 1) % period == block[None, :]
    size = len(block)
    counts = np.zeros((size + 2, size + 2))
    counts[:size, :size] = edges
    counts[size, rng.integers(size)] = 3  # transient
    counts[0, size + 1] = 0  # never entered nor left
    (found,) = recurrent_classes(sparse.csr_array(counts))
    assert found.states.tolist() == list(range(size))
    assert found.period == period
    assert found.n_transitions == edges.sum()


@pytest.mark.parametrize("distance", [MMD(), MMD("quadratic"), MMD(kernel=Kernel(width="median"))])
def test_an_agent_holds_sparse_tables_as_such_and_fits_what_dense_ones_fit(
    distance: Any, monkeypatch: Any
) -> None:
    found = []
    for fewest in (1000, 2):
        monkeypatch.setattr(sparse_counts, "_FEWEST_SPARSE", fewest)
        monkeypatch.setattr(sparse_counts, "_LARGEST_DENSITY", 1.0)
        agent = SeminormLSTDAgent(OneHot(), distance=distance, backup="model")
        env, policy = UnichainVectorEnv(100, "h36c"), np.zeros(36, dtype=np.int64)
        for seed in range(3):
            agent.collect(env, policy, 100, 60, seed=seed)
        agent.fit()
        assert sparse.issparse(agent.fitted_statistics_.candidate_features) == (fewest == 2)
        seen = agent.determined(np.arange(36))
        errors = agent.standard_errors(np.arange(36)[seen])
        found.append((agent.system_.anchors, agent.predict(np.arange(36)[seen]), errors))
    (anchors, values, errors), (sparse_anchors, sparse_values, sparse_errors) = found
    assert_array_equal(sparse_anchors, anchors)
    assert_allclose(sparse_values, values, atol=1e-8 * np.ptp(values))
    assert_allclose(sparse_errors, errors, rtol=1e-6)
