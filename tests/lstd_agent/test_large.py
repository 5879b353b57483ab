"""Many states: sparse features are solved as such, and nothing holds all pairs of states.

What solves their systems is held to dense algebra in `test_sparse.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from lstd_agent import MMD, Kernel, OneHot, SeminormLSTDAgent, TransitionCounts
from lstd_agent.errors import InvalidInputError
from lstd_agent.features import rows as feature_rows
from lstd_agent.fit_options import FitOptions
from lstd_agent.problems import random_chain
from lstd_agent.rows.classes import recurrent_classes
from lstd_agent.rows.counts import CountRows
from lstd_agent.system.distances import sampled_distance
from lstd_agent.trials.counted import CountedTrials
from lstd_agent.trials.kept import KeptTrials
from unichain_gym import UnichainVectorEnv, simulate_counts

pytestmark = pytest.mark.filterwarnings("ignore::lstd_agent.errors.FitWarning")


def both_kinds(monkeypatch: Any, make: Any) -> Any:
    """What a function returns where features are dense, and where they are sparse."""
    for fewest in (1000, 2):
        monkeypatch.setattr(feature_rows, "MANY_SPARSE", (fewest, 1.0))
        yield make()


@pytest.mark.parametrize(
    ("backup", "anchors"), [("one_step", [0, 1, 2, 50]), ("one_step", [0]), ("model", [0, 20])]
)
@pytest.mark.parametrize("env", ["h36c", "c10"])
def test_sparse_systems_agree_with_dense_ones(
    env: str, anchors: Any, backup: Any, monkeypatch: Any
) -> None:
    chain = random_chain(env, 1)
    drawn = simulate_counts(chain, 3000, 200, np.random.default_rng(0))
    counts = TransitionCounts.of(drawn)
    options = FitOptions(anchors=anchors, backup=backup)

    def make() -> Any:
        source = CountRows(CountedTrials.of(counts), np.eye(chain.n_states))
        return source.is_sparse, options.fit(source, 1)

    (_, dense), (is_sparse, other) = both_kinds(monkeypatch, make)
    assert is_sparse
    assert other.gain.value == pytest.approx(dense.gain.value, rel=1e-8)
    seen = dense.system.occupancy > 0.0
    values = [f.system.weights + f.system.offsets[:, None] for f in (dense, other)]
    assert_allclose(values[1][seen], values[0][seen], atol=1e-7 * np.ptp(values[0][seen]))
    assert other.system.references.main == dense.system.references.main


def test_a_line_of_3000_states_has_its_exact_values() -> None:
    """A step down a line costs 1, and at its end nothing: b(s) - b(0) = -s."""
    n, n_trials = 3000, 30
    starts = np.linspace(0, n - 1, n_trials).astype(np.int64)
    states = np.maximum(starts[:, None] - np.arange(n + 51), 0)
    agent = SeminormLSTDAgent(OneHot(), n_batches=1)
    rewards = -(states[:, :-1] > 0).astype(float)
    agent.add_trials(states, rewards, observation_space=spaces.Discrete(n))
    source = CountRows(CountedTrials.of(agent.counts), np.eye(n))
    assert source.is_sparse
    for anchors in ([0], [0, 7, 1500]):
        found = FitOptions(anchors=anchors, backup="one_step", gain=0.0).fit(source, 1).system
        seen = found.occupancy > 0.0
        values = found.weights + found.offsets[:, None]
        expected = np.broadcast_to(-np.arange(n), values.shape)
        assert_allclose(values[seen], expected[seen], atol=1e-5)


def test_a_hundred_thousand_states_are_fitted_without_all_pairs_of_them() -> None:
    n, n_trials = 100_000, 100
    rng = np.random.default_rng(0)
    trials = [rng.integers(n, size=n_trials)]
    rewards = np.zeros((n_trials, 12))
    for t in range(12):
        states = trials[-1]
        near = rng.random(n_trials) < 0.5
        trials.append(np.where(near, states // 2, rng.integers(5, size=n_trials)))
        rewards[:, t] = -np.sqrt(states)
    table = np.stack([np.arange(n) ** p for p in (0.0, 0.5, 1.0)], axis=1)
    sample = KeptTrials(np.array(trials).T, rewards)
    counts = SeminormLSTDAgent(table).add(KeptTrials.of(sample.observations, rewards)).counts
    source = CountRows(CountedTrials.of(counts), table, sample=sample)
    for distance in ("mmd", "tv", MMD("linear")):
        assert np.isfinite(sampled_distance(distance, source)(0, 1, 5)).all()
    assert np.isfinite(FitOptions(anchors=[0, 8]).fit(source, 1).system.weights).all()
    with pytest.raises(InvalidInputError, match="all pairs of states, here 100000²"):
        sampled_distance(MMD("quadratic"), source)


@settings(max_examples=20)
@given(st.integers(0, 10_000), st.integers(1, 8), st.integers(1, 6))
def test_classes_and_periods_agree_with_the_graph(seed: int, n: int, period: int) -> None:
    """A cycle of blocks has its number for a period; a state before it is of no class."""
    rng = np.random.default_rng(seed)
    block = rng.integers(period, size=n * period)
    block[:period] = np.arange(period)
    edges = (block[:, None] + 1) % period == block[None, :]
    size = len(block)
    counts = np.zeros((size + 2, size + 2))
    counts[:size, :size] = edges
    counts[size, rng.integers(size)] = 3  # transient
    (found,) = recurrent_classes(sparse.csr_array(counts))
    assert found.states.tolist() == list(range(size))
    assert found.period == period
    assert found.n_transitions == edges.sum()


@pytest.mark.first(1)
@pytest.mark.parametrize("distance", [MMD(), MMD(kernel=Kernel(width="median"))])
def test_an_agent_fits_sparse_tables_as_dense_ones(distance: Any, monkeypatch: Any) -> None:
    def make() -> Any:
        agent = SeminormLSTDAgent(OneHot(), distance=distance, backup="model")
        env, policy = UnichainVectorEnv(100, "h36c"), np.zeros(36, dtype=np.int64)
        agent.collect(env, policy, n_trials=300, t_max=60, seed=0).fit()
        seen = np.flatnonzero(agent.determined(np.arange(36)))
        return agent.system_.anchors, agent.predict(seen), agent.standard_errors(seen)

    (anchors, values, errors), found = both_kinds(monkeypatch, make)
    assert_array_equal(found[0], anchors)
    assert_allclose(found[1], values, atol=1e-8 * np.ptp(values))
    assert_allclose(found[2], errors, rtol=1e-5)
