"""Each solver against another, and the choice among them on chains of many states."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from unichain_gym import MarkovChain, linear, make_mdp
from unichain_gym.elimination import GthFactors
from unichain_gym.errors import ConvergenceError

FloatArray = NDArray[np.float64]


def random_sparse_chain(n: int, seed: int = 0) -> MarkovChain:
    """Three random successors for each state: elimination fills in, but it mixes fast."""
    rng = np.random.default_rng(seed)
    row = np.repeat(np.arange(n), 3)
    P = sparse.csr_array((rng.random(3 * n), (row, rng.integers(n, size=3 * n))), shape=(n, n))
    P = sparse.diags(1.0 / P.sum(axis=1)) @ P
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
    np.testing.assert_allclose(factors.solve_transposed(c), np.linalg.solve(A.T, c), rtol=1e-9)


def test_a_nearly_closed_transient_block_is_left_after_the_exact_time() -> None:
    leave = 1e-13
    P = [[0.5, 0.5, 0.0], [0.5, 0.5 - leave, leave], [0.0, 0.0, 1.0]]
    t = MarkovChain(P, np.zeros(3), [1, 0, 0]).mean_absorption_time
    # Two visits of state 1 in every 4 steps: t1 = 2/leave and t0 = t1 + 2.
    np.testing.assert_allclose(t, [2 / leave + 2, 2 / leave, 0.0], rtol=1e-14)


def test_all_methods_agree_on_the_same_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    by_gth = random_sparse_chain(600)
    assert {e.method for e in by_gth.solver_report.entries[:2]} == {"GTH"}
    expected = by_gth.stationary_distribution, by_gth.bias, by_gth.discounted_value(0.99)
    for method, work in (("sparse LU", np.inf), ("iteration", 0.0)):
        monkeypatch.setattr(linear, "DENSE_STATES", 1)
        monkeypatch.setattr(linear, "ELIMINATION_WORK", work)
        chain = random_sparse_chain(600)
        assert {e.method for e in chain.solver_report.entries[:2]} == {method}
        got = chain.stationary_distribution, chain.bias, chain.discounted_value(0.99)
        for ours, theirs in zip(got, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(
            chain._start_potential, by_gth._start_potential, rtol=1e-10, atol=1e-14
        )


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
    monkeypatch.setattr(linear, "DENSE_STATES", 1)
    monkeypatch.setattr(linear, "ELIMINATION_WORK", 0.0)
    chain = MarkovChain(*arguments)
    np.testing.assert_allclose(chain.gain_vector, exact.gain_vector, rtol=1e-12)
    np.testing.assert_allclose(chain.bias, exact.bias, rtol=1e-11, atol=1e-13)
    assert chain.solver_report.entries[0].method == "iteration"


@pytest.mark.parametrize("leave", [1e-6, 1e-10, 1e-13])
def test_iteration_that_does_not_converge_raises_with_its_residual(
    monkeypatch: pytest.MonkeyPatch, leave: float
) -> None:
    monkeypatch.setattr(linear, "DENSE_STATES", 1)
    monkeypatch.setattr(linear, "ELIMINATION_WORK", 0.0)
    monkeypatch.setattr(linear, "MAX_ITERATIONS", 2_000)
    blocks = [random_sparse_chain(200, seed).transition_matrix.toarray() for seed in (2, 3)]
    P = np.zeros((400, 400))
    P[:200, :200], P[200:, 200:] = blocks
    P[:200] += leave / 400
    P[200:] += 3.0 * leave / 400
    P /= P.sum(axis=1, keepdims=True)
    # From equal halves the exchange to one and three quarters takes some 1/leave iterations,
    # long after the error inside each half has died out.
    reward, start = np.repeat([1.0, 0.0], 200), np.full(400, 1 / 400)
    chain = MarkovChain(P, reward, start, drop_below=0.0)
    message = r"stationary distribution: the relative residual is [\d.]+e-\d+ after 2000 iterations"
    with pytest.raises(ConvergenceError, match=message):
        _ = chain.gain


def test_large_random_chain_is_solved_by_iteration() -> None:
    chain = random_sparse_chain(100_000)
    assert_solves(chain, 1e-12)
    methods = {e.quantity: e.method for e in chain.solver_report.entries}
    assert methods["stationary distribution"] == methods["bias"] == "iteration"
    assert all(e.residual < 1e-13 for e in chain.solver_report.entries)
    assert chain.mixing_time() == np.argmax(
        np.abs(chain.stepwise_distributions(60) - chain.stationary_distribution).sum(axis=1)
        <= 2e-10
    )


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
    total = W.sum(axis=1)
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


def test_a_million_states_are_solved_by_structure() -> None:
    mdp = make_mdp("h1000003e")
    chain = mdp.induce(np.ones(mdp.n_states, dtype=int))
    core = make_mdp("h3").induce(np.ones(3, dtype=int))
    np.testing.assert_allclose(chain.stationary_distribution[-3:], core.stationary_distribution)
    assert chain.gain == pytest.approx(core.gain, rel=1e-14)
    np.testing.assert_allclose(chain.bias[-3:], core.bias, rtol=1e-12)
    # Each state of a stream adds (1 - g)/0.6 before the core is entered.
    expected = core.bias[0] + 200_000 / 0.6 * (1.0 - core.gain)
    np.testing.assert_allclose(chain.bias[:1_000_000:200_000], expected, rtol=1e-9)
    assert chain.mean_absorption_time[0] == pytest.approx(200_000 / 0.6, rel=1e-9)
    p = chain.stepwise_distributions(3)
    np.testing.assert_allclose(p[3, -3:].sum(), 5 * (3 * 0.6) * 1e-6, rtol=1e-9)


def test_classes_of_a_wide_chain_are_found_without_a_loop_over_them() -> None:
    n = 200_000
    chain = MarkovChain(sparse.identity(n), np.arange(n), np.full(n, 1.0 / n))
    np.testing.assert_array_equal(chain.gain_vector, np.arange(n))
    np.testing.assert_array_equal(chain.bias, 0.0)
    assert chain.period == 1
    assert "199980 more classes" in str(chain.classify())
