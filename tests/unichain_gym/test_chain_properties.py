"""What holds for every chain: checked on random ones of every structure."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from unichain_gym import MarkovChain

FloatArray = NDArray[np.float64]

KINDS = ("dense", "sparse", "periodic", "several classes", "transient", "slow")


@st.composite
def chains(draw: st.DrawFn) -> MarkovChain:
    """A random chain of 1 to 60 states, its states in random order."""
    kind = draw(st.sampled_from(KINDS))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = draw(st.integers(1, 60))
    weight = rng.random((n, n)) + 0.01
    if kind == "sparse":
        weight *= rng.random((n, n)) < min(1.0, 2.0 / n)
    elif kind == "periodic":
        level = np.arange(n) % draw(st.integers(1, 4))
        weight *= level[None, :] == (level[:, None] + 1) % (level.max() + 1)
    elif kind == "several classes":
        block = rng.integers(0, 4, size=n)
        weight *= block[:, None] == block[None, :]
        weight += (block == 0)[:, None] * rng.random((n, n))
    elif kind == "transient":
        weight *= np.arange(n)[:, None] <= np.arange(n)[None, :]
        weight *= rng.random((n, n)) < 0.3
    elif kind == "slow":
        weight *= 1e-4
        weight += np.eye(n)
    weight[weight.sum(axis=1) == 0.0] += np.eye(n)[weight.sum(axis=1) == 0.0]
    order = rng.permutation(n)
    P = weight / weight.sum(axis=1, keepdims=True)
    return MarkovChain(P[order][:, order], rng.normal(size=n), rng.dirichlet(np.ones(n)))


def limiting_matrix(chain: MarkovChain) -> FloatArray:
    """P*, by squaring the lazy chain, which converges to it whatever the period."""
    M = 0.5 * (np.eye(chain.n_states) + chain.transition_matrix.toarray())
    for _ in range(60):
        M = M @ M
        M /= M.sum(axis=1, keepdims=True)
    return M


@given(chains())
@settings(max_examples=15)
def test_gain_bias_and_stationary_distribution_solve_their_equations(chain: MarkovChain) -> None:
    P, limit = chain.transition_matrix, limiting_matrix(chain)
    p = chain.stationary_distribution
    np.testing.assert_allclose(p @ P, p, atol=1e-13)
    np.testing.assert_allclose(p, chain.initial_distribution @ limit, atol=1e-9)
    g, b = chain.gain_vector, chain.bias
    scale = 1.0 + np.abs(b).max()
    np.testing.assert_allclose(g, limit @ chain.reward, atol=1e-9)
    np.testing.assert_allclose(b - P @ b, chain.reward - g, atol=1e-11 * scale)
    np.testing.assert_allclose(limit @ b, 0.0, atol=1e-9 * scale)


@given(chains())
@settings(max_examples=15)
def test_deviation_matrix_is_the_group_inverse(chain: MarkovChain) -> None:
    D, limit = chain.deviation_matrix, limiting_matrix(chain)
    eye = np.eye(chain.n_states)
    laplacian = eye - chain.transition_matrix.toarray()
    scale = np.abs(D).max() + 1.0
    np.testing.assert_allclose(laplacian @ D, eye - limit, atol=1e-10 * scale)
    np.testing.assert_allclose(D @ laplacian, eye - limit, atol=1e-10 * scale)
    np.testing.assert_allclose(limit @ D, 0.0, atol=1e-9 * scale)
    np.testing.assert_allclose(D @ limit, 0.0, atol=1e-9 * scale)
    np.testing.assert_allclose(D @ chain.reward, chain.bias, atol=1e-10 * scale)


@given(chains())
@settings(max_examples=15)
def test_classes_and_periods_agree_with_other_libraries(chain: MarkovChain) -> None:
    quantecon = pytest.importorskip("quantecon")  # whose import takes seconds
    P = chain.transition_matrix.toarray()
    theirs = quantecon.MarkovChain(P)
    ours = {tuple(c.tolist()) for c in chain.recurrent_classes}
    assert ours == {tuple(sorted(map(int, c))) for c in theirs.recurrent_classes_indices}
    graph = nx.from_numpy_array(P, create_using=nx.DiGraph)
    assert ours == {tuple(sorted(c)) for c in nx.attracting_components(graph)}
    for states, period in zip(chain.recurrent_classes, chain.class_periods, strict=True):
        single = quantecon.MarkovChain(P[np.ix_(states, states)])
        assert period == single.period
        assert (period == 1) == nx.is_aperiodic(graph.subgraph(states.tolist()))
    assert chain.period == np.lcm.reduce(chain.class_periods)
    every_state = np.concatenate((chain.recurrent_states, chain.transient_states))
    assert sorted(every_state) == list(range(chain.n_states))


@given(chains())
@settings(max_examples=15)
def test_every_walk_is_absorbed_somewhere(chain: MarkovChain) -> None:
    absorption = chain.absorption_probabilities()
    assert (absorption >= 0.0).all()
    np.testing.assert_allclose(absorption.sum(axis=1), 1.0, atol=1e-12)
    for k, states in enumerate(chain.recurrent_classes):
        np.testing.assert_array_equal(absorption[states, k], 1.0)
        assert {chain.class_of(int(s)) for s in states} == {k}
    assert all(chain.class_of(int(s)) is None for s in chain.transient_states)
    # Each step before absorption visits some transient state.
    visits = chain.expected_visits[chain.transient_states].sum()
    np.testing.assert_allclose(
        visits, chain.initial_distribution @ chain.mean_absorption_time, rtol=1e-10, atol=1e-12
    )
    np.testing.assert_allclose(
        chain.hitting_time(chain.recurrent_states), chain.mean_absorption_time, rtol=1e-10
    )


@given(chains())
@settings(max_examples=15)
def test_discounted_value_tends_to_gain_and_bias(chain: MarkovChain) -> None:
    P, r = chain.transition_matrix.toarray(), chain.reward
    exact = np.linalg.solve(np.eye(r.size) - 0.9 * P, r)
    np.testing.assert_allclose(chain.discounted_value(0.9), exact, rtol=1e-10, atol=1e-10)
    # The Laurent series of v: the next term after gain and bias, then those that are negligible.
    leave = 2.0**-27
    ahead = leave / (1.0 - leave)
    v = chain.discounted_value(1.0 - leave)
    expected = (chain.bias - ahead * chain.deviation_matrix @ chain.bias) / (1.0 - leave)
    scale = 1.0 + np.abs(chain.bias).max()
    np.testing.assert_allclose(v - chain.gain_vector / leave, expected, atol=1e-6 * scale)


@given(chains(), st.integers(0, 100))
@settings(max_examples=15)
def test_stepwise_distributions_follow_the_chain(chain: MarkovChain, t_max: int) -> None:
    p = chain.stepwise_distributions(t_max)
    assert p.shape == (t_max + 1, chain.n_states)
    np.testing.assert_array_equal(p[0], chain.initial_distribution)
    np.testing.assert_allclose(p[1:], p[:-1] @ chain.transition_matrix, atol=1e-11)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-12)


@given(chains(), st.sampled_from((1e-2, 1e-6)))
@settings(max_examples=15)
def test_mixing_time_is_the_first_time_within_the_tolerance(chain: MarkovChain, tol: float) -> None:
    assume(chain.period == 1)
    t = chain.mixing_time(tol)
    power = np.linalg.matrix_power(chain.transition_matrix.toarray(), max(0, t - 1))
    before = chain.initial_distribution @ power
    after = before @ chain.transition_matrix if t else before
    assert 0.5 * np.abs(after - chain.stationary_distribution).sum() <= tol
    assert t == 0 or 0.5 * np.abs(before - chain.stationary_distribution).sum() > tol


@given(chains())
@settings(max_examples=15)
def test_averaged_mixing_time_is_the_first_time_within_the_tolerance(chain: MarkovChain) -> None:
    tol = 0.02
    t = chain.mixing_time(tol, averaged=True)
    assume(t <= 2_000)
    p = chain.stepwise_distributions(t)
    average = np.cumsum(p, axis=0) / np.arange(1, t + 2)[:, None]
    distance = 0.5 * np.abs(average - chain.stationary_distribution).sum(axis=1)
    assert distance[t] <= tol
    assert (distance[:t] > tol).all()


@given(chains(), st.sampled_from((1.0, 1e-1, 1e-4)))
@settings(max_examples=15)
def test_max_absorption_time_is_the_first_time_of_a_small_norm(
    chain: MarkovChain, tol: float
) -> None:
    T = chain.transient_states
    P = chain.transition_matrix.toarray()[np.ix_(T, T)]
    power, expected = np.eye(T.size), 0
    while np.linalg.norm(power) > tol and expected < 3_000:
        power, expected = power @ P, expected + 1
    assume(expected < 3_000)
    assert chain.max_absorption_time(tol) == expected


@given(chains())
@settings(max_examples=15)
def test_hitting_times_solve_their_equation(chain: MarkovChain) -> None:
    P = chain.transition_matrix.toarray()
    target = chain.n_states // 2
    h = chain.hitting_time(target)
    assert h[target] == 0.0
    reach = np.linalg.matrix_power(np.eye(P.shape[0]) + P, chain.n_states) > 0.0
    loses = P * (np.arange(chain.n_states) != target)[:, None]
    astray = np.linalg.matrix_power(np.eye(P.shape[0]) + loses, chain.n_states) > 0.0
    may_miss = (astray & ~reach[:, target]).any(axis=1)
    np.testing.assert_array_equal(np.isinf(h), may_miss)
    finite = np.isfinite(h) & (np.arange(chain.n_states) != target)
    ahead = np.where(P[finite] > 0.0, P[finite] * np.where(np.isfinite(h), h, 0.0), 0.0)
    np.testing.assert_allclose(h[finite], 1.0 + ahead.sum(axis=1), rtol=1e-9)


@given(chains())
@settings(max_examples=15)
def test_variance_and_kemeny_constant_agree_with_their_definitions(chain: MarkovChain) -> None:
    assume(chain.is_unichain)
    D, p, r = chain.deviation_matrix, chain.stationary_distribution, chain.reward
    excess = r - chain.gain
    expected = 2.0 * (p * excess) @ D @ r - p @ excess**2
    scale = 1.0 + np.abs(D).max()
    assert chain.variance == pytest.approx(expected, rel=1e-9, abs=1e-9 * scale)
    start = int(chain.recurrent_states[0])
    to_each = np.array([chain.hitting_time(int(s))[start] for s in chain.recurrent_states])
    kemeny = float(p[chain.recurrent_states] @ to_each)
    assert chain.kemeny_constant == pytest.approx(kemeny, rel=1e-9, abs=1e-12 * scale)
