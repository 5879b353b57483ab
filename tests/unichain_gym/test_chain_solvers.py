"""Each solver against another, and the choice among them on chains of many states."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial import cKDTree

from unichain_gym import MarkovChain, elimination, linear, make_mdp
from unichain_gym.elimination import GthFactors, eliminate
from unichain_gym.errors import ConvergenceError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def random_sparse_chain(n: int, seed: int = 0) -> MarkovChain:
    """Three random successors for each state: elimination fills in, but it mixes fast."""
    rng = np.random.default_rng(seed)
    row = np.repeat(np.arange(n), 3)
    W = sparse.csr_array((rng.random(3 * n), (row, rng.integers(n, size=3 * n))), shape=(n, n))
    P = sparse.diags_array(1.0 / W.sum(axis=1)) @ W
    return MarkovChain(P, rng.random(n), np.full(n, 1.0 / n))


def assert_solves(chain: MarkovChain, rtol: float) -> None:
    p, b = chain.stationary_distribution, chain.bias
    assert (p >= 0.0).all()
    assert np.abs(p @ chain.transition_matrix - p).sum() <= rtol
    residual = chain.reward - chain.gain - b + chain.transition_matrix @ b
    assert np.abs(residual).max() <= rtol * np.abs(b).max()
    assert abs(p @ b) <= rtol * np.abs(b).max()


@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 200])
def test_elimination_without_subtraction_solves_both_systems(n: int) -> None:
    rng = np.random.default_rng(n)
    N, leave = rng.random((n, n)), rng.random(n) * 1e-3
    A = np.diag(leave + N.sum(axis=1) - N.diagonal()) - N + np.diag(N.diagonal())
    c = rng.random((n, 2))
    factors = GthFactors(N, leave)
    np.testing.assert_allclose(factors.solve(c), np.linalg.solve(A, c), rtol=1e-9)
    np.testing.assert_allclose(
        factors.solve(c, transposed=True), np.linalg.solve(A.T, c), rtol=1e-9
    )


def test_a_nearly_closed_transient_block_is_left_after_the_exact_time() -> None:
    leave = 1e-13
    P = [[0.5, 0.5, 0.0], [0.5, 0.5 - leave, leave], [0.0, 0.0, 1.0]]
    t = MarkovChain(P, np.zeros(3), [1, 0, 0]).mean_absorption_time
    # Two visits of state 1 in every 4 steps: t1 = 2/leave and t0 = t1 + 2.
    np.testing.assert_allclose(t, [2 / leave + 2, 2 / leave, 0.0], rtol=1e-14)


def choose(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """Force the method for chains of a few hundred states."""
    work = {"sparse LU": np.inf, "dense LU": np.inf}.get(method, 0.0)
    for name, value in {
        "SMALL_STATES": 10_000 if method == "GTH" else 1,
        "DENSE_STATES": 1,
        "DENSITY": 0.0 if method == "dense LU" else 2.0,
        "LITTLE_WORK": work,
        "GRID_WORK": work,
        "ELIMINATION_WORK": work,
        "AFFORDABLE_STATES": 0 if method == "sparse GTH" else 3_000,
    }.items():
        monkeypatch.setattr(linear, name, value)
    monkeypatch.setattr(elimination, "SMALL_CORE", 50)
    none = method in ("BiCGStab", "sparse LU")
    monkeypatch.setattr(
        linear, "eliminate", lambda N, e, *_, **__: None if none else eliminate(N, e)
    )


@pytest.mark.parametrize("method", ["sparse LU", "dense LU", "sparse GTH", "BiCGStab"])
def test_all_methods_agree_on_the_same_chain(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    choose(monkeypatch, "GTH")
    by_gth = random_sparse_chain(600)
    assert {e.method for e in by_gth.solver_report.entries[:2]} == {"GTH"}
    expected = by_gth.discounted_value(0.99)
    choose(monkeypatch, method)
    chain = random_sparse_chain(600)
    assert {e.method for e in chain.solver_report.entries[:2]} == {method}
    for what in ("stationary_distribution", "bias"):
        ours, theirs = getattr(chain, what), getattr(by_gth, what)
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-13)
    # What an averaged mixing time is found from: sums of distributions, by the transposed system.
    start = np.eye(600)[0]
    ours, theirs = (of._limits.left_potential(start) for of in (chain, by_gth))
    np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(chain.discounted_value(0.99), expected, rtol=1e-12)


def two_halves(inside: list[sparse.csr_array], leave: float, back: float) -> MarkovChain:
    """Two chains of n states each, linked by one rare transition each way; reward in the first.

    With doubly stochastic or reversible halves the first is occupied back/(leave + back) of the
    time, as long as both states of a link are as frequent in their halves.
    """
    n = inside[0].shape[0]
    P = sparse.block_diag(inside).tolil()
    P[0] = P[0] * (1.0 - leave)
    P[n] = P[n] * (1.0 - back)
    P[0, n], P[n, 0] = leave, back
    return MarkovChain(P.tocsr(), np.repeat([1.0, 0.0], n), np.full(2 * n, 0.5 / n))


def expander(n: int, seed: int) -> sparse.csr_array:
    """The mean of four random permutations: doubly stochastic, and it mixes fast."""
    rng = np.random.default_rng(seed)
    to = np.concatenate([rng.permutation(n) for _ in range(4)])
    return sparse.csr_array((np.full(4 * n, 0.25), (np.tile(np.arange(n), 4), to)), shape=(n, n))


def walk_on(one: IntArray, other: IntArray, weight: FloatArray, n: int) -> sparse.csr_array:
    """Return the reversible walk on a graph whose edges have weights."""
    W = sparse.coo_array((weight, (one, other)), shape=(n, n)).tocsr()
    W = W + W.T
    return sparse.csr_array(sparse.diags_array(1.0 / W.sum(axis=1)) @ W)


def grid_edges(*sides: int) -> tuple[IntArray, IntArray]:
    """Return the neighbours on a grid of so many dimensions."""
    index = np.arange(np.prod(sides)).reshape(sides)
    axes = range(len(sides))
    one = [np.delete(index, -1, axis=k).ravel() for k in axes]
    other = [np.delete(index, 0, axis=k).ravel() for k in axes]
    return np.concatenate(one), np.concatenate(other)


def test_grids_that_hardly_exchange_anything_have_their_shares() -> None:
    one, other = grid_edges(50, 50)
    grid = walk_on(one, other, np.ones(one.size), 2_500)
    chain = two_halves([grid, grid], 1e-12, 0.25e-12)
    assert chain.gain == pytest.approx(0.2, rel=1e-10)
    # b differs between the halves by 1/(leave p0 + back p1), each link left from one state in n.
    p = grid_share(grid)
    assert np.ptp(chain.bias) == pytest.approx(1.0 / (1.25e-12 * p), rel=1e-6)


def grid_share(grid: sparse.csr_array) -> float:
    """Return the stationary probability of a corner: two of all directed edges."""
    return 2.0 / grid.nnz


def halves_by(method: str, leave: float, monkeypatch: pytest.MonkeyPatch) -> MarkovChain:
    """Two halves that are left with these probabilities, by a method that has error bounds."""
    choose(monkeypatch, method)
    monkeypatch.setattr(linear, "MAX_ERROR_AFFORDABLE", linear.MAX_ERROR)
    return two_halves([expander(200, 2), expander(200, 3)], leave, leave / 4.0)


@pytest.mark.parametrize("method", ["sparse LU", "BiCGStab"])
@pytest.mark.parametrize("leave", [1e-2, 1e-4])
def test_errors_are_within_the_bounds_that_are_reported(
    monkeypatch: pytest.MonkeyPatch, method: str, leave: float
) -> None:
    choose(monkeypatch, "GTH")
    exact = two_halves([expander(200, 2), expander(200, 3)], leave, leave / 4.0)
    assert exact.solver_report.entries[0].method == "GTH"
    chain = halves_by(method, leave, monkeypatch)
    p, b = chain.stationary_distribution, chain.bias
    of_p, of_b = (e.error_bound for e in chain.solver_report.entries)
    assert np.abs(p - exact.stationary_distribution).sum() <= of_p < 1e-8
    assert np.abs(b - exact.bias).max() <= of_b * np.abs(b).max()


@pytest.mark.first(5)
@pytest.mark.parametrize("method", ["sparse LU", "BiCGStab"])
@pytest.mark.parametrize("leave", [1e-6, 1e-9, 1e-13])
def test_results_beyond_the_error_bounds_are_refused(
    monkeypatch: pytest.MonkeyPatch, method: str, leave: float
) -> None:
    message = rf"out of reach: (rounding may change the answer of )?{method} (by|did not conv)"
    with pytest.raises(ConvergenceError, match=message):
        _ = halves_by(method, leave, monkeypatch).stationary_distribution


def test_iteration_converges_on_periodic_chains_and_on_several_classes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(1)
    half = rng.dirichlet(np.ones(20), size=20)
    periodic = sparse.bmat(
        [[None, sparse.csr_array(half)], [half.T / half.T.sum(axis=1, keepdims=True), None]]
    )
    P = sparse.block_diag((periodic, sparse.csr_array(rng.dirichlet(np.ones(20), size=20))))
    arguments = P, rng.random(60), np.full(60, 1 / 60)
    exact = MarkovChain(*arguments)
    assert exact.period == 2
    choose(monkeypatch, "BiCGStab")
    chain = MarkovChain(*arguments)
    np.testing.assert_allclose(chain.gain_vector, exact.gain_vector, rtol=1e-12)
    np.testing.assert_allclose(chain.bias, exact.bias, rtol=1e-11, atol=1e-13)
    assert chain.solver_report.entries[0].method == "BiCGStab"


def test_large_random_chain_is_solved_by_iteration() -> None:
    chain = random_sparse_chain(30_000)
    assert_solves(chain, 1e-11)
    methods = {e.quantity: e.method for e in chain.solver_report.entries}
    assert methods["stationary distribution"] == methods["bias"] == "BiCGStab"
    assert all(e.residual < 1e-13 for e in chain.solver_report.entries)
    assert all(e.error_bound < 1e-8 for e in chain.solver_report.entries)
    assert chain.mixing_time() == np.argmax(
        np.abs(chain.stepwise_distributions(60) - chain.stationary_distribution).sum(axis=1)
        <= 2e-10
    )


def test_hitting_times_of_an_expander_agree_with_the_deviation_matrix() -> None:
    n, target = 20_000, 7
    P = expander(n, 4)
    chain = MarkovChain(P, np.arange(n) == target, np.full(n, 1.0 / n))
    # Column j of D is the bias of a reward in state j; h(s, j) = (D_jj - D_sj)/p_j.
    expected = (chain.bias[target] - chain.bias) * n
    np.testing.assert_allclose(chain.hitting_time(target), expected, rtol=1e-8)


def test_a_random_tree_of_100000_states_is_eliminated() -> None:
    n = 100_000
    rng = np.random.default_rng(0)
    child = np.arange(1, n)
    parent = (rng.random(n - 1) * child).astype(np.int64)
    weight = rng.random(n - 1) + 0.1
    P = walk_on(parent, child, weight, n)
    degree = np.bincount(parent, weight, n) + np.bincount(child, weight, n)
    chain = MarkovChain(P, rng.random(n), degree / degree.sum())
    assert chain.solver_report.entries[0].method == "sparse GTH"
    np.testing.assert_allclose(chain.stationary_distribution, degree / degree.sum(), rtol=1e-12)
    assert_solves(chain, 1e-10)
    # Down an edge the walk passes 1/weight times the weight of what hangs above.
    below = np.zeros(n)
    for s in range(n - 1, 0, -1):
        below[s] += degree[s]
        below[parent[s - 1]] += below[s]
    time_to_root = np.zeros(n)
    for s in range(1, n):
        time_to_root[s] = time_to_root[parent[s - 1]] + below[s] / weight[s - 1]
    np.testing.assert_allclose(chain.hitting_time(0), time_to_root, rtol=1e-10)


def test_a_grid_of_three_dimensions_that_is_too_large_to_eliminate_is_discounted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    m = 20
    monkeypatch.setattr(linear, "ELIMINATION_WORK", 1e8)
    one, other = grid_edges(m, m, m)
    P = walk_on(one, other, np.ones(one.size), m**3)
    reward = np.random.default_rng(0).random(m**3)
    v = MarkovChain(P, reward, np.full(m**3, 1.0 / m**3)).discounted_value(0.999)
    np.testing.assert_allclose(v, reward + 0.999 * (P @ v), rtol=1e-11)


def test_a_graph_of_nearest_neighbours_is_solved() -> None:
    n = 20_000
    place = np.random.default_rng(0).random((n, 3))
    neighbor = np.asarray(cKDTree(place).query(place, 7)[1])
    P = sparse.csr_array(
        (np.full(6 * n, 1.0 / 6.0), neighbor[:, 1:].ravel(), np.arange(0, 6 * n + 1, 6)),
        shape=(n, n),
    )
    chain = MarkovChain(P, place[:, 0], np.full(n, 1.0 / n))
    excess = chain.reward - chain.gain_vector
    residual = chain.bias - P @ chain.bias - excess
    assert np.abs(residual).max() <= 1e-11 * np.abs(chain.bias).max()
    assert all(e.error_bound < 1e-7 for e in chain.solver_report.entries)


def test_the_report_of_the_bias_does_not_depend_on_other_quantities(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    choose(monkeypatch, "BiCGStab")
    chain = random_sparse_chain(200)
    report = chain.solver_report
    choose(monkeypatch, "sparse GTH")  # for so many right-hand sides it takes over
    _ = chain.deviation_matrix, chain.discounted_value(0.9), chain.hitting_time(3)
    assert chain.solver_report == report
    assert report.entries[1].n_iterations > 0


@pytest.mark.parametrize("n", [5_000, 40_000])
def test_large_chain_with_a_reset_to_one_state_is_solved_by_elimination(n: int) -> None:
    state = np.arange(n)
    P = sparse.coo_array(
        (
            np.r_[np.full(n, 0.999), np.full(n, 0.001)],
            (np.r_[state, state], np.r_[np.minimum(state + 1, n - 1), np.zeros(n, dtype=int)]),
        ),
        shape=(n, n),
    )
    chain = MarkovChain(P, state / n, (state == 0).astype(float))
    expected = 0.001 * 0.999**state
    expected[-1] = 0.999 ** (n - 1)
    np.testing.assert_allclose(chain.stationary_distribution, expected, rtol=1e-9)
    assert_solves(chain, 1e-11)
    assert chain.solver_report.entries[0].method in ("triangular", "sparse LU")


def test_large_grid_is_solved_by_elimination() -> None:
    m = 120
    index = np.arange(m * m).reshape(m, m)
    one = np.concatenate((index[:-1].ravel(), index[:, :-1].ravel()))
    other = np.concatenate((index[1:].ravel(), index[:, 1:].ravel()))
    weight = np.random.default_rng(0).random(one.size) + 0.1
    # Symmetric weights: the stationary distribution is proportional to their row sums.
    W = sparse.coo_array((weight, (one, other)), shape=(m * m, m * m)).tocsr()
    W = W + W.T
    total: FloatArray = W.sum(axis=1)
    chain = MarkovChain(sparse.diags(1.0 / total) @ W, index.ravel() % m, total / total.sum())
    assert chain.period == 2
    np.testing.assert_allclose(chain.stationary_distribution, total / total.sum(), rtol=1e-9)
    assert_solves(chain, 1e-10)
    assert chain.solver_report.entries[0].method == "sparse LU"


def test_long_streams_have_closed_forms() -> None:
    length = 50_000
    mdp = make_mdp(f"x{2 * length + 1}b")
    policy = np.r_[np.zeros(length, dtype=int), np.ones(length, dtype=int), 0]
    chain = mdp.induce(policy)
    # Advancing with 0.3 and paying 0 in one stream, with 0.6 and paying 1 in the other.
    steps = np.arange(length, 0, -1)
    time = np.r_[steps / 0.3, steps / 0.6, 0.0]
    np.testing.assert_allclose(chain.mean_absorption_time, time, rtol=1e-11)
    np.testing.assert_allclose(chain.bias, np.r_[np.zeros(length), time[length:]], rtol=1e-11)
    np.testing.assert_allclose(chain.hitting_time(2 * length), time, rtol=1e-11)
    assert chain.solver_report.entries[-1].method == "triangular"


def test_a_hundred_thousand_states_are_solved_by_structure() -> None:
    mdp = make_mdp("h100003e")
    chain = mdp.induce(np.ones(mdp.n_states, dtype=int))
    core = make_mdp("h3").induce(np.ones(3, dtype=int))
    np.testing.assert_allclose(chain.stationary_distribution[-3:], core.stationary_distribution)
    assert chain.gain == pytest.approx(core.gain, rel=1e-14)
    np.testing.assert_allclose(chain.bias[-3:], core.bias, rtol=1e-12)
    # Each state of a stream adds (1 - g)/0.6 before the core is entered.
    expected = core.bias[0] + 20_000 / 0.6 * (1.0 - core.gain)
    np.testing.assert_allclose(chain.bias[:100_000:20_000], expected, rtol=1e-9)
    assert chain.mean_absorption_time[0] == pytest.approx(20_000 / 0.6, rel=1e-9)
    p = chain.stepwise_distributions(3)
    np.testing.assert_allclose(p[3, -3:].sum(), 5 * (3 * 0.6) * 1e-5, rtol=1e-9)


def test_classes_of_a_wide_chain_are_found_without_a_loop_over_them() -> None:
    n = 200_000
    chain = MarkovChain(sparse.identity(n), np.arange(n), np.full(n, 1.0 / n))
    np.testing.assert_array_equal(chain.gain_vector, np.arange(n))
    np.testing.assert_array_equal(chain.bias, 0.0)
    assert chain.period == 1
    assert "199980 more classes" in str(chain.classify())


def test_halves_with_an_extremely_weak_link_have_their_shares() -> None:
    # Elimination with subtraction meets a pivot of 0 here.
    one, other = grid_edges(40, 40)
    grid = walk_on(one, other, np.ones(one.size), 1_600)
    chain = two_halves([grid, grid], 1e-30, 0.25e-30)
    assert chain.gain == pytest.approx(0.2, rel=1e-10)


@pytest.mark.parametrize("n", [10, 300])
@pytest.mark.parametrize("leave", [1e-6, 1e-12, 1e-30, 1e-300])
@pytest.mark.parametrize("kind", ["random", "line"])
def test_halves_of_every_size_have_their_shares_or_are_refused(
    n: int, leave: float, kind: str
) -> None:
    m = n // 2
    if kind == "random":
        half = expander(m, n)
    else:
        one, other = grid_edges(m)
        half = walk_on(one, other, np.ones(m - 1), m)
    chain = two_halves([half, half], leave, 0.25 * leave)
    try:
        gain, error = chain.gain, chain.solver_report.entries[0].error_bound
    except ConvergenceError as refusal:
        assert leave == 1e-300
        assert "range of doubles" in str(refusal)  # noqa: PT017
        return
    # The halves themselves change by `leave`.
    assert gain == pytest.approx(0.2, rel=1e-9 + leave)
    assert error < 1e-8


@pytest.mark.parametrize("n", [10, 100, 1_000, 3_000])
def test_a_line_that_is_hardly_ever_climbed_has_its_frequencies(n: int) -> None:
    up, down = 1e-3, 0.5
    P: Any = sparse.diags_array([up, down], offsets=[1, -1], shape=(n, n))
    P = sparse.csr_array(P + sparse.diags_array(1.0 - P.sum(axis=1)))
    p = MarkovChain(P, np.arange(n) == 0, np.eye(n)[n - 1]).stationary_distribution
    seen = min(n, 50)
    expected = (up / down) ** np.arange(seen)
    np.testing.assert_allclose(p[:seen] / p[0], expected, rtol=1e-10)
