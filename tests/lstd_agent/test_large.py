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
from lstd_agent.problems import population_counts, random_chain
from lstd_agent.statistics import dominant, sparse_counts
from lstd_agent.statistics.counts import CountStatistics
from lstd_agent.statistics.pairs import cut_pairs_discrepancy, paired_mean_discrepancy
from lstd_agent.statistics.structure import recurrent_classes
from lstd_agent.system import sparse as sparse_system
from lstd_agent.system.distances import sampled_distance, sampled_total_variation, total_variation
from lstd_agent.system.fit_system import fit_system
from lstd_agent.system.gain import corrected_gain
from lstd_agent.system.sparse import least_squares
from lstd_agent.trials.counted import CountRecorder
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
        assert (statistics.sparse_counts is None) == (fewest == 1000)
        gain = corrected_gain(statistics, 1e-10)
        system = fit_system(statistics, np.array(anchors), gain)
        values = system.weights + system.offsets[:, None]
        found.append((gain, values[system.occupancy > 0.0], system.references.main))
    (gain, values, main), (sparse_gain, sparse_values, sparse_main) = found
    assert sparse_gain == pytest.approx(gain, rel=1e-10)
    assert_allclose(sparse_values, values, atol=1e-10 * np.ptp(values))
    assert sparse_main == main


@pytest.mark.parametrize("n_trials", [40, 1000])
@pytest.mark.parametrize("most_factored", [2, 3000])
def test_transitions_that_are_not_local_are_solved_as_dense_ones_are(
    n_trials: int, most_factored: int, monkeypatch: Any
) -> None:
    """In each way there is, also where trials end in states that none was seen to leave."""
    n = 300
    rng = np.random.default_rng(0)
    recorder = CountRecorder(n)
    successors = np.stack((np.minimum(np.arange(n) + 1, n - 1), *rng.integers(n // 2, n, (2, n))))
    rewards, states = rng.normal(size=n), rng.integers(0, n // 4, n_trials)
    for _ in range(60):
        following = successors[rng.choice(3, n_trials, p=[0.5, 0.3, 0.2]), states]
        recorder.record(states, rewards[states], following)
        states = following
    counts = recorder.sums(n_trials)
    monkeypatch.setattr(dominant, "_MOST_FACTORED", most_factored)
    monkeypatch.setattr(dominant, "_LOCAL", 0.0)
    windows = np.array([[0, 7], [7, 30], [30, 60]])
    found = []
    for fewest, beside in ((1000, 32), (2, 32), (2, 0), (2, None)):
        monkeypatch.setattr(sparse_counts, "_FEWEST_SPARSE", fewest)
        monkeypatch.setattr(sparse_system, "_MOST_BESIDE", beside)
        if beside is None:  # the saddle-point matrix itself
            monkeypatch.setattr(sparse_system, "_all_lead_out", lambda square: False)
        statistics = CountStatistics(counts, np.eye(n))
        assert (statistics.sparse_counts is None) == (fewest == 1000)
        gain = corrected_gain(statistics, 1e-10)
        system = fit_system(statistics, windows[:, 0], 0.1)
        values = system.weights + system.offsets[:, None]
        found.append((gain, values[system.occupancy > 0.0]))
    (_, dense_values), *eliminated, (saddle_gain, saddle_values) = found
    for gain, values in eliminated:
        assert gain == pytest.approx(saddle_gain, rel=1e-7)
        assert_allclose(values, saddle_values, atol=1e-7 * np.ptp(saddle_values))
        assert_allclose(values, dense_values, atol=1e-7 * np.ptp(dense_values))


def test_a_constant_for_each_of_two_closed_classes_is_left_open_and_kept_small() -> None:
    rng = np.random.default_rng(0)
    X = np.zeros((7, 7))
    for states, visits in (([0, 1, 2], 5.0), ([3, 4, 5, 6], 2.0)):
        X[states, states] = visits
        X[states, np.roll(states, 1)] -= visits
    y, root = rng.normal(size=7), np.sqrt(np.diag(X))
    found = least_squares(sparse.csr_array(np.diag(root**2)), sparse.csr_array(X), y)
    scaled = X / root[:, None]
    size = np.linalg.norm(scaled, axis=0)
    assert_allclose(found, np.linalg.pinv(scaled / size) @ (y / root) / size, atol=1e-5)


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
    assert statistics.sparse_counts is not None
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
    found = sampled_total_variation(statistics.visits, statistics.trials_at)
    for anchor in (0, 3, 60):
        assert_allclose(found(anchor, 2, 61), expected(anchor, 2, 61), atol=1e-14)


def test_the_linear_mmd_needs_no_table_of_the_kernel() -> None:
    rng = np.random.default_rng(0)
    trials, features = rng.integers(9, size=(41, 12)), rng.normal(size=(9, 3))
    kernel = Kernel(width=0.7)
    table = paired_mean_discrepancy(trials, kernel(features, features))
    pairs = cut_pairs_discrepancy(
        trials, np.full(41, 12), lambda x, y: kernel.paired(features[x], features[y])
    )
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
