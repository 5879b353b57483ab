"""Anchors: the paper's search, the exact one, and those given outright."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.stats import wasserstein_distance

from lstd_agent import MMD, Kernel, OneHot, SeminormLSTDAgent
from lstd_agent.errors import FitWarning, InvalidInputError
from lstd_agent.system.distances import (
    mean_discrepancy,
    optimal_transport,
    paired_discrepancy,
    total_variation,
)
from lstd_agent.system.neighborhoods import AnchorSearch, check_anchors


def line(t_max: int) -> Any:
    """Distributions at places 0, 1, …, t_max of a line: squared distances (t - anchor)²."""

    def squared(anchor: int, start: int, stop: int) -> Any:
        return (np.arange(start, stop) - anchor) ** 2.0

    return squared


def reference_anchors(squared: Any, t_max: int, tolerance: float) -> list[int]:
    """Algorithm ``approx_anchor``'s inner loop, word by word."""
    anchors, average = [0], 0.0
    for t in range(1, t_max + 1):
        last = anchors[-1]
        average += (squared(last, t, t + 1)[0] - average) / (t - last)
        if average > tolerance**2:
            anchors.append(t)
            average = 0.0
    return anchors


def test_anchors_of_a_line_are_where_the_mean_square_exceeds() -> None:
    # Running averages from an anchor: 1, 2.5, 4 2/3, 7.5. With Δ² = 4 the third neighbour
    # exceeds: anchors 0, 3, 6, 9.
    search = AnchorSearch(line(11), 11)
    assert_array_equal(search.anchors(2.0, 99), [0, 3, 6, 9])
    # From 1e-3, doubling: 1.024 is the first Δ with Δ² ≥ 1 (1.05): every second timestep.
    # 2.048 (4.19) gives 0, 3, 6, 9.
    assert_array_equal(AnchorSearch(line(11), 11).find(6), [0, 2, 4, 6, 8, 10])
    assert_array_equal(AnchorSearch(line(11), 11).find(5), [0, 3, 6, 9])


def test_exact_search_gets_the_wanted_number_where_doubling_misses_it() -> None:
    # Δ² from 7.5 on gives spacing 5 (averages 1, 2.5, 4 2/3, 7.5, 11): 0, 5, 10, three anchors.
    # Doubling goes from Δ = 2.048 (four anchors) to 4.096 (0, 7: averages 11, 15 1/6, 20 > 16.8).
    assert_array_equal(AnchorSearch(line(11), 11).find(3), [0, 7])
    assert AnchorSearch(line(11), 11).find(3, search="exact").size == 3


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.integers(2, 12), st.sampled_from(["doubling", "exact"]))
def test_searches_follow_the_algorithm_and_never_exceed_the_number(
    seed: int, n_anchors: int, search: Any
) -> None:
    rng = np.random.default_rng(seed)
    t_max = int(rng.integers(n_anchors + 1, 50))
    # Like the linear estimator, distances may be negative.
    table = rng.normal(0.3, 1.0, size=(t_max + 1, t_max + 1))

    def squared(anchor: int, start: int, stop: int) -> Any:
        return table[anchor, start:stop]

    found = AnchorSearch(squared, t_max).find(n_anchors, search)
    assert found[0] == 0
    assert found.size <= n_anchors
    doubling = AnchorSearch(squared, t_max).find(n_anchors)
    assert found.size >= doubling.size
    tolerance = 1e-3
    while len(expected := reference_anchors(squared, t_max, tolerance)) > n_anchors:
        tolerance *= 2.0
    assert_array_equal(doubling, expected)


@settings(max_examples=8)
@given(st.integers(0, 10_000), st.integers(3, 9))
def test_exact_search_keeps_the_best_that_it_comes_across(seed: int, n_anchors: int) -> None:
    rng = np.random.default_rng(seed)
    table = rng.normal(0.1, 1.0, size=(41, 41))
    tried = []

    class Watched(AnchorSearch):
        def anchors(self, tolerance: float, at_most: int) -> Any:
            found = super().anchors(tolerance, at_most)
            tried.append(found.size)
            return found

    search = Watched(lambda anchor, start, stop: table[anchor, start:stop], 40)
    found = search.find(n_anchors, "exact")
    assert found.size == max(size for size in tried if size <= n_anchors)


def test_one_is_a_single_neighborhood_and_none_is_stepwise() -> None:
    search: Any
    assert_array_equal(AnchorSearch(line(5), 5).find(1), [0])
    assert_array_equal(AnchorSearch(line(5), 5).find(None), np.arange(6))
    for search in ("doubling", "exact"):  # one a timestep would be six
        assert AnchorSearch(line(5), 5).find(5, search).size <= 5


@pytest.mark.parametrize(
    "anchors", [[], [1], [0, 0], [0, 3, 2], [0, 11], [0.0, 1.0], [[0]], [[0, 2], [3]]]
)
def test_impossible_anchors_are_refused(anchors: Any) -> None:
    with pytest.raises(InvalidInputError, match="ascending integers that start at 0"):
        check_anchors(anchors, 10)
    assert_array_equal(check_anchors([0, 3, 10], 10), [0, 3, 10])


def test_total_variation_is_half_the_absolute_difference() -> None:
    p = np.array([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.2, 0.3, 0.5]])
    found = total_variation(sparse.csr_array(p), np.ones(3))(0, 1, 3)
    assert_allclose(found, [0.5**2, 0.5**2])
    n = np.array([40, 20, 10])  # trials that were cut short have as many shares
    found = total_variation(sparse.csr_array(p * n[:, None]), n)(0, 1, 3)
    assert_allclose(found, [0.5**2, 0.5**2])


def test_optimal_transport_on_a_line_is_the_wasserstein_distance_of_scipy() -> None:
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(7), size=5)
    p[1, :3] = 0.0
    p /= p.sum(axis=1, keepdims=True)
    x = rng.normal(size=7)
    cost = np.abs(x[:, None] - x)
    expected = [wasserstein_distance(x, x, p[0], q) ** 2 for q in p]
    assert_allclose(optimal_transport(p, cost)(0, 0, 5), expected, atol=1e-12)


def test_the_dirac_mmd_is_the_euclidean_distance_of_distributions() -> None:
    p = np.random.default_rng(0).dirichlet(np.ones(7), size=5)
    gram = Kernel("dirac")(np.eye(7), np.eye(7))
    expected = np.square(p[1:] - p[0]).sum(axis=1)
    assert_allclose(mean_discrepancy(p, gram)(0, 1, 5), expected, atol=1e-15)


def test_the_paired_estimator_is_unbiased() -> None:
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(4), size=2)
    gram = Kernel()(np.arange(4.0)[:, None], np.arange(4.0)[:, None])
    trials = np.stack([rng.choice(4, size=200_000, p=q) for q in p], axis=1)
    estimate = paired_discrepancy(
        trials, np.full(len(trials), trials.shape[1]), lambda x, y: gram[x, y]
    )(0, 1, 2)[0]
    exact = mean_discrepancy(p, gram)(0, 1, 2)[0]
    # Terms lie within ±2, so that the standard error is below 2 / sqrt(100 000).
    assert abs(estimate - exact) < 5 * 2 / np.sqrt(100_000)


def collected(**options: Any) -> SeminormLSTDAgent:
    import gymnasium as gym

    agent = SeminormLSTDAgent(OneHot(), **options)
    env = gym.make_vec("unichain_gym:Unichain-h36c-v0", num_envs=500)
    return agent.collect(env, np.ones(36, dtype=int), n_trials=1000, t_max=60, seed=0).fit()


@pytest.mark.first(3)
@pytest.mark.parametrize(
    "distance",
    ["mmd", "tv", "ot", MMD(kernel=Kernel(width="median")), MMD("linear")],
    ids=str,
)
def test_every_distance_finds_anchors_while_the_transients_pass(distance: Any) -> None:
    agent = collected(distance=distance, n_anchors=3, search="exact")
    anchors = [n.anchor for n in agent.neighborhoods_]
    assert len(anchors) == 3
    assert anchors[1] < 30


@pytest.mark.slow
def test_a_callable_distance_gives_the_same_as_the_named_one() -> None:
    named = collected(distance="tv", n_anchors=4)
    own = collected(distance=lambda p, q: 0.5 * np.abs(p - q).sum(), n_anchors=4)
    assert_array_equal(own.system_.anchors, named.system_.anchors)


@pytest.mark.parametrize("impossible", [np.nan, np.inf])
def test_distances_that_are_not_finite_are_refused(impossible: float) -> None:
    """A NaN exceeds no tolerance, and would leave one neighbourhood without a word."""
    with pytest.raises(InvalidInputError, match="finite numbers; that of timesteps 0 and 1 is not"):
        collected(distance=lambda p, q: impossible, n_anchors=4)


def test_a_negative_distance_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="a number of at least 0; got -1"):
        collected(distance=lambda p, q: -1.0, n_anchors=4)


@pytest.mark.parametrize("n_anchors", [1, None, 99])
def test_a_single_trial_suffices_where_no_distance_is_needed(n_anchors: int | None) -> None:
    agent = SeminormLSTDAgent(np.eye(2), n_anchors, gain=0.5)
    for t in range(4):
        agent.observe(t, t % 2, 1.0 - t % 2, (t + 1) % 2)
    agent.end_trial()
    # Two states in turn, rewards 1 and 0: b(0) - b(1) = r(0) - g = 1/2.
    with pytest.warns(FitWarning, match=r"starts 0 have fewer than 10 samples \(at least [12]\)"):
        agent.fit()
    assert len(agent.neighborhoods_) == (1 if n_anchors == 1 else 4)
    if n_anchors == 1:
        b = agent.predict([0, 1])
        assert b[0] - b[1] == pytest.approx(0.5)
    else:
        assert agent.predict(0, 0) == pytest.approx(agent.predict(1, 1) + 0.5)


def test_anchors_may_be_given() -> None:
    agent = collected(anchors=[0, 7, 20])
    assert [(n.anchor, n.stop) for n in agent.neighborhoods_] == [(0, 7), (7, 20), (20, 61)]
    assert agent.neighborhoods_[-1].window == (20, 61)
    settled = collected(anchors=[0, 7, 20], calibration="references", tail="settled")
    assert settled.neighborhoods_[-1].window == (40, 61)


def test_unknown_names_are_refused() -> None:
    for name, message in (
        ("search", "search must be one of"),
        ("reference", "reference must be one of"),
        ("tail", "tail must be one of"),
        ("on_termination", "on_termination must be one of"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            collected(**{name: "best"})
    with pytest.raises(InvalidInputError, match="distance must be 'mmd', 'tv', 'ot'"):
        collected(distance="kl")
    with pytest.raises(InvalidInputError, match=r"n_anchors must be at least 1.*got 0"):
        SeminormLSTDAgent(OneHot(), 0)
    with pytest.raises(InvalidInputError, match="needs at least 2 stored; got 0"):
        collected(n_stored_trials=0, distance=MMD("linear"))


def test_counts_without_stored_trials_have_total_variation_by_default_and_say_so() -> None:
    found, asked = collected(n_stored_trials=0), collected(n_stored_trials=0, distance="tv")
    assert_array_equal(found.system_.anchors, asked.system_.anchors)
    said = "distance    total variation, since no trials are stored"
    assert said in found.summary()
    assert said not in asked.summary()


def test_a_timestep_that_no_trial_has_is_as_far_as_can_be() -> None:
    visits = sparse.csr_array(np.array([[2.0, 2.0], [4.0, 0.0], [0.0, 0.0]]))
    squared = total_variation(visits, np.array([4, 4, 0]))
    assert_allclose(squared(0, 0, 3), [0.0, 0.25, 1.0])
