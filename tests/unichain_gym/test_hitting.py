"""Hitting probabilities and variances, absorption variances and the fundamental matrix."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from scipy import sparse

from unichain_gym import MarkovChain, make_mdp
from unichain_gym.errors import ConvergenceError, InvalidModelError, ModelTooLargeError


def walk(n: int, up: float, down: float) -> MarkovChain:
    """A walk on 0 … n that ends at both ends, started at 1."""
    i = np.arange(1, n)
    P = sparse.lil_array((n + 1, n + 1))
    P[i, i + 1], P[i, i - 1], P[i, i] = up, down, 1.0 - up - down
    P[0, 0] = P[n, n] = 1.0
    return MarkovChain(P.tocsr(), np.zeros(n + 1), np.eye(n + 1)[1])


def ring_walk(n: int) -> MarkovChain:
    """A walk on a ring of n states that goes either way with probability ½."""
    s = np.arange(n)
    ways = (np.r_[s, s], np.r_[(s + 1) % n, (s - 1) % n])
    P = sparse.csr_array((np.full(2 * n, 0.5), ways), shape=(n, n))
    return MarkovChain(P, np.zeros(n), np.full(n, 1.0 / n))


def by_powers(chain: MarkovChain, targets: list[int], avoided: list[int]) -> np.ndarray:
    """The probability of being in a target after 2^60 steps, if targets and avoided end it."""
    M = chain.transition_matrix.toarray()
    ends = [*targets, *avoided]
    M[ends] = np.eye(len(M))[ends]
    for _ in range(60):
        M = M @ M
        M /= M.sum(axis=1, keepdims=True)
    return M[:, targets].sum(axis=1)


def test_hitting_probabilities_are_where_a_stopped_chain_ends(chain: MarkovChain) -> None:
    n = chain.n_states
    targets, avoided = [0, n // 2] if n > 1 else [0], [n - 1] if n > 2 else []
    np.testing.assert_allclose(
        chain.hitting_probability(targets), by_powers(chain, targets, []), atol=1e-9
    )
    if avoided:
        np.testing.assert_allclose(
            chain.hitting_probability(targets, avoiding=avoided),
            by_powers(chain, targets, avoided),
            atol=1e-9,
        )


def test_sure_and_impossible_events_have_exactly_probability_one_and_zero(
    chain: MarkovChain,
) -> None:
    f = chain.hitting_probability(0)
    graph = nx.from_scipy_sparse_array(chain.transition_matrix, create_using=nx.DiGraph)
    may_hit = nx.ancestors(graph, 0) | {0}
    graph.remove_edges_from(list(graph.out_edges(0)))
    for s in range(chain.n_states):
        assert (f[s] > 0.0) == (s in may_hit)
        is_sure = may_hit >= (nx.descendants(graph, s) | {s})
        assert f[s] == 1.0 if is_sure else f[s] < 1.0 + 1e-12
        assert np.isfinite(chain.hitting_time(0)[s]) == is_sure


def test_classes_are_hit_with_the_absorption_probabilities(chain: MarkovChain) -> None:
    absorption = chain.absorption_probabilities()
    for k, states in enumerate(chain.recurrent_classes):
        np.testing.assert_allclose(
            chain.hitting_probability(states), absorption[:, k], rtol=1e-10, atol=1e-14
        )


@pytest.mark.parametrize("up", [0.3, 0.5, 0.1])
def test_gamblers_ruin_has_its_closed_form(up: float) -> None:
    n, down = 60, 0.4 if up != 0.5 else 0.5
    wealth = np.arange(n + 1)
    expected = (
        wealth / n
        if up == down
        else np.expm1(wealth * np.log(down / up)) / np.expm1(n * np.log(down / up))
    )
    chain = walk(n, up, down)
    # Every digit of the smallest too: 1e-36 where the odds are four to one.
    np.testing.assert_allclose(chain.hitting_probability(n), expected, rtol=1e-11, atol=0)
    np.testing.assert_array_equal(
        chain.hitting_probability(n), chain.hitting_probability(n, avoiding=0)
    )


def test_a_large_ring_is_split_linearly_between_target_and_avoided() -> None:
    n = 100_000
    chain = ring_walk(n)
    f = chain.hitting_probability(0, avoiding=n // 2)
    distance = np.minimum(np.arange(n), n - np.arange(n))
    np.testing.assert_allclose(f, 1.0 - distance / (n // 2), atol=1e-9)
    np.testing.assert_array_equal(chain.hitting_probability([5, 7]), 1.0)


def test_a_periodic_chain_hits_the_states_it_visits() -> None:
    P = [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.25, 0.0, 0.75]]
    chain = MarkovChain(P, np.zeros(3), [0, 0, 1])
    np.testing.assert_array_equal(chain.hitting_probability(1), 1.0)
    np.testing.assert_array_equal(chain.hitting_probability(2), [0.0, 0.0, 1.0])
    np.testing.assert_array_equal(chain.hitting_probability(1, avoiding=0), [0.0, 1.0, 0.0])


def test_targets_must_exist_and_must_not_be_avoided() -> None:
    chain = walk(5, 0.5, 0.5)
    with pytest.raises(InvalidModelError, match="state 3 is both a target and to be avoided"):
        chain.hitting_probability([1, 3], avoiding=[3, 4])
    with pytest.raises(InvalidModelError, match="state 6 does not exist; states are 0 to 5"):
        chain.hitting_probability(0, avoiding=6)
    with pytest.raises(InvalidModelError, match="states must be integers"):
        chain.hitting_probability([])


def moments_by_inverse(chain: MarkovChain, targets: np.ndarray) -> np.ndarray:
    """Kemeny and Snell's (2N - I) τ - τ², where the targets are hit surely; NaN elsewhere."""
    sure = np.isfinite(chain.hitting_time(targets))
    inside = np.setdiff1d(np.flatnonzero(sure), targets)
    variance = np.where(sure, 0.0, np.nan)
    Q = chain.transition_matrix.toarray()[np.ix_(inside, inside)]
    N = np.linalg.inv(np.eye(inside.size) - Q)
    tau = N.sum(axis=1)
    variance[inside] = (2.0 * N - np.eye(inside.size)) @ tau - tau**2
    return variance


def test_variances_equal_those_of_kemeny_and_snell(chain: MarkovChain) -> None:
    for targets in (np.array([0]), np.unique([0, chain.n_states - 1])):
        variance = chain.hitting_time_variance(targets)
        expected = moments_by_inverse(chain, targets)
        scale = 1.0 + np.nanmax(expected, initial=0.0)
        np.testing.assert_allclose(variance, expected, rtol=1e-6, atol=1e-10 * scale)
    expected = moments_by_inverse(chain, chain.recurrent_states)
    np.testing.assert_allclose(chain.absorption_time_variance, expected, rtol=1e-9, atol=1e-10)


def test_the_second_moment_agrees_with_the_distribution_of_the_time() -> None:
    chain = walk(6, 0.3, 0.5)
    # P(τ > t) is the probability of being inside at t, and E τ² = Σ (2t + 1) P(τ > t).
    survival = chain.stepwise_distributions(2_000, tol=1e-300)[:, 1:6].sum(axis=1)
    mean = chain.mean_absorption_time[1]
    assert mean == pytest.approx(survival.sum(), rel=1e-12)
    second = chain.absorption_time_variance[1] + mean**2
    assert second == pytest.approx((2.0 * np.arange(2_001) + 1.0) @ survival, rel=1e-12)


def test_a_symmetric_walk_leaves_an_interval_with_its_closed_variance() -> None:
    half = 150
    chain = walk(2 * half, 0.5, 0.5)
    # From the middle: mean m², variance 2 m² (m² - 1)/3.
    expected = 2.0 * half**2 * (half**2 - 1) / 3.0
    assert chain.absorption_time_variance[half] == pytest.approx(expected, rel=1e-11)
    assert chain.hitting_time_variance([0, 2 * half])[half] == pytest.approx(expected, rel=1e-11)


def test_collecting_coupons_takes_a_sum_of_geometric_times() -> None:
    n = 40
    k = np.arange(n)
    p = (n - k) / n
    P = np.diag(np.r_[1.0 - p, 1.0]) + np.diag(p, 1)
    chain = MarkovChain(P, np.zeros(n + 1), np.eye(n + 1)[0])
    expected = np.r_[np.cumsum(((1.0 - p) / p**2)[::-1])[::-1], 0.0]
    np.testing.assert_allclose(chain.hitting_time_variance(n), expected, rtol=1e-12)


@pytest.mark.parametrize("n", [5, 4_000])
def test_times_without_chance_have_no_variance(n: int) -> None:
    s = np.arange(n)
    P = sparse.csr_array((np.ones(n), (s, (s + 1) % n)), shape=(n, n))
    chain = MarkovChain(P, np.zeros(n), np.full(n, 1.0 / n))
    np.testing.assert_array_equal(chain.hitting_time_variance(0), 0.0)
    np.testing.assert_array_equal(chain.absorption_time_variance, 0.0)


def test_a_variance_that_does_not_exist_is_nan() -> None:
    P = np.array([[0.5, 0.25, 0.25, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 1, 0, 0]])
    chain = MarkovChain(P, np.zeros(4), [1, 0, 0, 0])
    np.testing.assert_array_equal(chain.hitting_time(1), [np.inf, 0.0, np.inf, 1.0])
    np.testing.assert_array_equal(chain.hitting_time_variance(1), [np.nan, 0.0, np.nan, 0.0])


def test_variances_of_rare_events_keep_their_digits_and_too_large_ones_are_refused() -> None:
    for p in (1e-9, 1e-120):
        chain = MarkovChain([[1.0 - p, p], [0.0, 1.0]], [0, 0], [1, 0], drop_below=0)
        assert chain.absorption_time_variance[0] == pytest.approx(p**-2, rel=1e-8)
        assert chain.hitting_time_variance(1)[0] == pytest.approx(p**-2, rel=1e-8)
    chain = MarkovChain([[1.0, 1e-160], [0.0, 1.0]], [0, 0], [1, 0], drop_below=0)
    assert chain.mean_absorption_time[0] == pytest.approx(1e160)
    for refused in (
        lambda: chain.absorption_time_variance,
        lambda: chain.hitting_time_variance(1),
    ):
        with pytest.raises(ConvergenceError, match="exceed the range of doubles"):
            refused()


def test_fundamental_matrix_is_the_inverse_that_defines_it(chain: MarkovChain) -> None:
    eye = np.eye(chain.n_states)
    Z = chain.fundamental_matrix
    star = Z - chain.deviation_matrix
    P = chain.transition_matrix.toarray()
    np.testing.assert_allclose(star @ P, star, atol=1e-11)
    np.testing.assert_allclose(star @ star, star, atol=1e-11)
    np.testing.assert_allclose(star.sum(axis=1), 1.0, atol=1e-11)
    scale = np.abs(Z).max()
    np.testing.assert_allclose((eye - P + star) @ Z, eye, atol=1e-11 * scale)
    T = chain.transient_states
    visits = np.linalg.inv((eye - P)[np.ix_(T, T)])
    np.testing.assert_allclose(Z[np.ix_(T, T)], visits, atol=1e-10 * scale)


def test_fundamental_matrix_of_a_weather_chain_equals_the_book() -> None:
    # Kemeny & Snell, 1960, example 4.3: the Land of Oz, with rain, nice and snow.
    P = [[0.5, 0.25, 0.25], [0.5, 0.0, 0.5], [0.25, 0.25, 0.5]]
    chain = MarkovChain(P, np.zeros(3), [1, 0, 0])
    expected = np.array([[86, 3, -14], [6, 63, 6], [-14, 3, 86]]) / 75
    np.testing.assert_allclose(chain.fundamental_matrix, expected, atol=1e-14)


def test_a_fundamental_matrix_too_large_is_refused_with_its_size() -> None:
    chain = make_mdp("h10003").induce(np.zeros(10_003, dtype=int))
    with pytest.raises(ModelTooLargeError, match=r"fundamental_matrix of 10003 states .* 0\.8 GB"):
        _ = chain.fundamental_matrix


def transient_walk(seed: int) -> MarkovChain:
    """A random chain of eight states, of which the last two absorb."""
    rng = np.random.default_rng(seed)
    P = np.zeros((8, 8))
    P[:6] = rng.dirichlet(np.full(8, 0.5), 6)
    P[6, 6] = P[7, 7] = 1.0
    return MarkovChain(P, rng.normal(size=8), np.full(8, 1 / 8), state_names=list("abcdefgh"))


@pytest.mark.parametrize("seed", range(5))
def test_rewards_and_times_until_a_hit_are_sums_over_the_steps_before(seed: int) -> None:
    chain = transient_walk(seed)
    P, r = chain.transition_matrix.toarray(), chain.reward
    inside = np.eye(8) - P * (np.arange(8) < 6)[:, None]
    inside[6:] = np.eye(8)[6:]
    pay = np.where(np.arange(8) < 6, r, 0.0)
    np.testing.assert_allclose(
        chain.hitting_reward(["g", "h"]), np.linalg.solve(inside, pay), rtol=1e-12, atol=1e-12
    )
    assert np.isnan(chain.hitting_reward("g")[:6]).all()
    # By the walk conditioned on its end, which is a chain of its own (Doob).
    f = chain.hitting_probability("h")
    conditioned = P[:6, :6] * f[:6] / f[:6, None]
    expected = np.linalg.solve(np.eye(6) - conditioned, np.ones(6))
    time = chain.hitting_time(chain.recurrent_classes[1], given_hit=True)
    np.testing.assert_allclose(time[:6], expected, rtol=1e-12)
    assert time[7] == 0.0
    assert np.isnan(time[6])


def test_a_hit_that_is_sure_conditions_nothing(chain: MarkovChain) -> None:
    time, given = chain.hitting_time(0), chain.hitting_time(0, given_hit=True)
    sure = np.isfinite(time)
    np.testing.assert_allclose(given[sure], time[sure], rtol=1e-9, atol=1e-12)
    counted = MarkovChain(
        chain.transition_matrix, np.ones(chain.n_states), chain.initial_distribution
    )
    np.testing.assert_allclose(counted.hitting_reward(0)[sure], time[sure], rtol=1e-12)


def test_the_return_time_is_a_step_and_the_time_to_hit_from_there(chain: MarkovChain) -> None:
    for state in range(chain.n_states):
        expected = 1.0 + chain.transition_matrix[[state]] @ chain.hitting_time(state)
        if state in chain.transient_states:
            expected = np.array([np.inf])
        np.testing.assert_allclose(chain.mean_return_time[state], expected[0], rtol=1e-9)
