"""Chains whose answers are known in closed form, among them ones that other tools get wrong."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import ArrayLike
from scipy import sparse

from unichain_gym import MarkovChain, make_mdp
from unichain_gym.errors import (
    ConvergenceError,
    InvalidArgumentError,
    InvalidModelError,
    ModelTooLargeError,
    MulticlassError,
    PeriodicChainError,
)

TWO_CYCLE = MarkovChain([[0.0, 1.0], [1.0, 0.0]], [1.0, 0.0], [1.0, 0.0])
TWO_ABSORBING = MarkovChain(np.eye(2), [1.0, 0.0], [0.25, 0.75])
FORK = MarkovChain([[0.0, 0.5, 0.5], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], [0, 1, 2], [1, 0, 0])


def two_states(switch: float, back: float | None = None) -> MarkovChain:
    back = switch if back is None else back
    return MarkovChain([[1 - switch, switch], [back, 1 - back]], [1.0, 0.0], [1.0, 0.0])


def ring(n: int) -> MarkovChain:
    """A cycle of n states that are visited in turn; reward 1 in state 0."""
    state = np.arange(n)
    P = sparse.csr_array((np.ones(n), (state, (state + 1) % n)), shape=(n, n))
    return MarkovChain(P, state == 0, state == 0)


def test_two_cycle_has_the_cesaro_gain_and_bias() -> None:
    assert TWO_CYCLE.period == 2
    assert TWO_CYCLE.gain == 0.5
    np.testing.assert_allclose(TWO_CYCLE.bias, [0.25, -0.25], atol=1e-15)
    np.testing.assert_array_equal(TWO_CYCLE.stationary_distribution, [0.5, 0.5])


def test_two_absorbing_states_have_a_gain_each() -> None:
    np.testing.assert_array_equal(TWO_ABSORBING.gain_vector, [1.0, 0.0])
    np.testing.assert_array_equal(TWO_ABSORBING.bias, [0.0, 0.0])
    np.testing.assert_array_equal(TWO_ABSORBING.stationary_distribution, [0.25, 0.75])


def test_fork_into_two_classes_splits_the_limit() -> None:
    np.testing.assert_array_equal(FORK.stationary_distribution, [0.0, 0.5, 0.5])
    np.testing.assert_array_equal(FORK.gain_vector, [1.5, 1.0, 2.0])
    np.testing.assert_array_equal(FORK.bias, [-1.5, 0.0, 0.0])
    np.testing.assert_array_equal(FORK.absorption_probabilities()[0], [0.5, 0.5])
    assert FORK.max_absorption_time() == 1
    np.testing.assert_array_equal(FORK.expected_visits, [1.0, math.inf, math.inf])
    np.testing.assert_array_equal(FORK.hitting_time(1), [math.inf, 0.0, math.inf])
    np.testing.assert_array_equal(FORK.hitting_time([1, 2]), [1.0, 0.0, 0.0])


def test_two_state_chain_has_its_closed_forms() -> None:
    a, b = 0.3, 0.1
    chain = two_states(a, b)
    np.testing.assert_allclose(chain.stationary_distribution, [0.25, 0.75], rtol=1e-15)
    np.testing.assert_allclose(
        chain.deviation_matrix, np.array([[a, -a], [-b, b]]) / (a + b) ** 2, rtol=1e-14
    )
    np.testing.assert_allclose(chain.bias, np.array([a, -b]) / (a + b) ** 2, rtol=1e-14)
    assert chain.kemeny_constant == pytest.approx(1.0 / (a + b), rel=1e-14)
    # Var = p(1 - p)(1 + λ)/(1 - λ) with λ = 1 - a - b.
    assert chain.variance == pytest.approx(0.25 * 0.75 * (2 - a - b) / (a + b), rel=1e-13)


@pytest.mark.parametrize("switch", [1e-3, 1e-6])
def test_slow_two_state_chain_has_the_mixing_time_of_its_eigenvalue(switch: float) -> None:
    # The distance is ½ (1 - 2 switch)^t.
    expected = math.ceil(math.log(2e-10) / math.log1p(-2.0 * switch))
    assert two_states(switch).mixing_time() == pytest.approx(expected, abs=1)
    assert two_states(switch).mixing_time(start="worst") == pytest.approx(expected, abs=1)


def test_transient_state_is_absorbed_on_entering_the_class_not_one_state_of_it() -> None:
    P = [[0.5, 0.25, 0.25], [0.0, 0.5, 0.5], [0.0, 1.0, 0.0]]
    chain = MarkovChain(P, [0, 0, 0], [1, 0, 0])
    np.testing.assert_array_equal(chain.mean_absorption_time, [2.0, 0.0, 0.0])
    assert chain.max_absorption_time(0.5**10) == 10


def test_stationary_distribution_of_nearly_decomposable_blocks_is_exact_in_every_entry() -> None:
    eps = Fraction(1, 10**12)
    half, third = Fraction(1, 2), Fraction(1, 3)
    # Two blocks of two states; rows as off-diagonal fractions, the diagonal takes the rest.
    leave = {(0, 1): half, (1, 0): third, (1, 2): eps, (2, 3): half, (3, 2): third, (3, 0): eps}
    P = np.array([[float(leave.get((i, j), 0)) for j in range(4)] for i in range(4)])
    P += np.diag(1.0 - P.sum(axis=1))
    # Flow balance around the cycle of blocks: p1 eps = p3 eps, so p1 = p3, p0 = p2.
    inside = (third + eps) / half
    total = 2 * (inside + 1)
    exact = [float(x / total) for x in (inside, Fraction(1), inside, Fraction(1))]
    chain = MarkovChain(P, [1, 1, 0, 0], [1, 0, 0, 0])
    np.testing.assert_allclose(chain.stationary_distribution, exact, rtol=1e-13, atol=0)
    # The gains of the blocks differ, so the bias is of order 1/eps; so is its accuracy.
    assert chain.gain == pytest.approx(0.5, rel=1e-13)


def test_uneven_coupling_shows_in_the_stationary_distribution_to_all_digits() -> None:
    # Blocks {0, 1} and {2, 3} with symmetric insides, left at rates 1e-12 and 3e-12.
    P = np.array([[0, 0.5, 0, 0], [0.5, 0, 1e-12, 0], [0, 0, 0, 0.25], [3e-12, 0, 0.25, 0]])
    P += np.diag(1.0 - P.sum(axis=1))
    # π1 a = π3 b; π0 = π1 (½ + a)/½; π2 = π3 (¼ + b)/¼.
    a, b = Fraction(1, 10**12), Fraction(3, 10**12)
    weights = [(Fraction(1, 2) + a) * 2 * b, b, (Fraction(1, 4) + b) * 4 * a, a]
    exact = [float(w / sum(weights)) for w in weights]
    p = MarkovChain(P, np.zeros(4), [1, 0, 0, 0]).stationary_distribution
    np.testing.assert_allclose(p, exact, rtol=1e-13, atol=0)


def test_birth_and_death_chain_has_a_geometric_stationary_distribution() -> None:
    n, up, down = 400, 0.2, 0.5
    i = np.arange(n - 1)
    P = sparse.coo_array((np.full(n - 1, up), (i, i + 1)), shape=(n, n)).toarray()
    P += sparse.coo_array((np.full(n - 1, down), (i + 1, i)), shape=(n, n)).toarray()
    P += np.diag(1.0 - P.sum(axis=1))
    p = MarkovChain(P, np.zeros(n), np.eye(n)[0]).stationary_distribution
    expected = (up / down) ** np.arange(n) * (1 - up / down)
    np.testing.assert_allclose(p, expected, rtol=1e-12, atol=0)
    assert p[-1] < 1e-150


def test_gamblers_ruin_has_linear_absorption_and_quadratic_duration() -> None:
    n = 50
    P = np.eye(n + 1)
    i = np.arange(1, n)
    P[i, i], P[i, i - 1], P[i, i + 1] = 0.0, 0.5, 0.5
    chain = MarkovChain(P, np.zeros(n + 1), np.eye(n + 1)[1])
    wealth = np.arange(n + 1)
    np.testing.assert_allclose(chain.absorption_probabilities()[:, 1], wealth / n, atol=1e-13)
    np.testing.assert_allclose(chain.mean_absorption_time, wealth * (n - wealth), rtol=1e-12)


def test_ring_of_n_states_has_period_n_and_a_linear_bias() -> None:
    n = 7
    chain = ring(n)
    assert chain.period == n
    assert chain.gain == pytest.approx(1 / n, rel=1e-15)
    # From state s the reward comes n - s steps later; b falls by 1/n as it recedes.
    expected = np.r_[0.0, np.arange(1, n) / n - 1.0]
    np.testing.assert_allclose(chain.relative_value(0), expected, atol=1e-15)
    np.testing.assert_array_equal(chain.hitting_time(0), np.r_[0, np.arange(n - 1, 0, -1)])


def test_periods_of_several_classes_combine_to_their_least_common_multiple() -> None:
    P = sparse.block_diag((ring(4).transition_matrix, ring(6).transition_matrix, [[1.0]]))
    chain = MarkovChain(P, np.zeros(11), np.full(11, 1 / 11))
    np.testing.assert_array_equal(chain.class_periods, [4, 6, 1])
    assert chain.period == 12


def test_running_average_of_a_cycle_is_exact_after_a_full_turn() -> None:
    assert TWO_CYCLE.mixing_time(averaged=True) == 1
    assert ring(5).mixing_time(averaged=True) == 4
    assert ring(5).mixing_time(start="worst", averaged=True) == 4


def test_running_average_of_a_mixing_chain_comes_in_at_the_rate_one_over_t() -> None:
    # Σ_k (p^k - p*) = p^0 D = (a, -a)/(a + b)² at last, so the distance is c/(t + 1).
    a, b, tol = 0.3, 0.11, 1e-10
    t = two_states(a, b).mixing_time(tol, averaged=True)
    assert t == math.ceil(a / (a + b) ** 2 / tol) - 1


def test_action_bias_averages_to_the_bias() -> None:
    mdp = make_mdp("c11b")
    policy = mdp.random_policy(3, deterministic=False)
    chain = mdp.induce(policy)
    np.testing.assert_allclose((policy * chain.action_bias).sum(axis=1), chain.bias, atol=1e-11)


def test_bias_of_every_policy_ranks_its_one_step_improvements() -> None:
    # Policy iteration with q of the bias ends in the best gain of all 2^3 policies.
    mdp = make_mdp("h3")
    best = max(mdp.induce(policy).gain for policy in mdp.policies())
    policy = np.zeros(3, dtype=int)
    for _ in range(8):
        policy = mdp.induce(policy).action_bias.argmax(axis=1)
    assert mdp.induce(policy).gain == pytest.approx(best, rel=1e-14)


def test_stepwise_distributions_stay_right_long_after_mixing_and_on_cycles() -> None:
    t_max = 100_000
    p = ring(3).stepwise_distributions(t_max)
    np.testing.assert_array_equal(p[-1], np.eye(3)[t_max % 3])
    chain = two_states(0.3, 0.1)
    p = chain.stepwise_distributions(t_max)
    expected = 0.25 + 0.75 * 0.6 ** np.arange(t_max + 1)
    np.testing.assert_allclose(p[:, 0], expected, rtol=0, atol=1e-12)


def test_stepwise_distributions_are_the_same_by_doubling_and_by_products() -> None:
    n, t_max = 700, 40
    rng = np.random.default_rng(0)
    weight = rng.random((n, n)) * (rng.random((n, n)) < 0.01) + np.eye(n)
    P = sparse.csr_array(weight / weight.sum(axis=1, keepdims=True))
    chain = MarkovChain(P, np.zeros(n), rng.dirichlet(np.ones(n)))
    expected = [chain.initial_distribution]
    for _ in range(t_max):
        expected.append(expected[-1] @ P)
    np.testing.assert_allclose(chain.stepwise_distributions(t_max), expected, atol=1e-14)


def test_summaries_print_as_tables() -> None:
    text = str(FORK.classify()).splitlines()
    assert text[0].split() == ["class", "states", "period", "gain", "reached", "with", "which"]
    assert text[1].split() == ["0", "1", "1", "1", "0.5", "1"]
    assert text[3].split() == ["transient", "1", "0"]
    report = str(FORK.solver_report).splitlines()
    columns = ["quantity", "states", "method", "iterations", "residual", "error", "at", "most"]
    assert report[0].split() == columns


def test_gain_of_several_classes_names_them() -> None:
    with pytest.raises(MulticlassError, match=r"2 recurrent .* \{0\}, \{1\}\. Use gain_vector"):
        _ = TWO_ABSORBING.gain


@pytest.mark.parametrize("quantity", ["variance", "kemeny_constant"])
def test_quantities_of_unichains_are_refused_for_several_classes(quantity: str) -> None:
    with pytest.raises(MulticlassError, match="2 recurrent classes"):
        getattr(TWO_ABSORBING, quantity)
    with pytest.raises(MulticlassError, match="Use bias and gain_vector"):
        TWO_ABSORBING.relative_value(0)
    with pytest.raises(MulticlassError, match="start='initial'"):
        TWO_ABSORBING.mixing_time(start="worst")


def test_mixing_time_of_a_periodic_chain_names_the_period() -> None:
    with pytest.raises(PeriodicChainError, match=r"period 2 never mixes.*averaged=True"):
        TWO_CYCLE.mixing_time()


@pytest.mark.parametrize(
    ("P", "reward", "initial", "message"),
    [
        ([[0.5, 0.4], [0.0, 1.0]], [0, 0], [1, 0], "state 0 sum to 0.9, not 1"),
        ([[1.5, -0.5], [0.0, 1.0]], [0, 0], [1, 0], "from state 0 to 1 is -0.5"),
        ([[np.nan, 1.0], [0.0, 1.0]], [0, 0], [1, 0], "from state 0 to 0 is nan"),
        (np.eye(2), [0, np.inf], [1, 0], "reward of state 1 is inf"),
        (np.eye(2), [0, 0, 0], [1, 0], r"got \(2, 2\), \(3,\) and \(2,\)"),
        (np.eye(2), [0, 0], [0.5, 0.4], "initial_distribution sums to 0.9"),
    ],
)
def test_invalid_chains_are_refused(
    P: ArrayLike, reward: ArrayLike, initial: ArrayLike, message: str
) -> None:
    with pytest.raises(InvalidModelError, match=message):
        MarkovChain(P, reward, initial)


def test_a_matrix_that_is_passed_in_stays_as_it_was() -> None:
    P = sparse.csr_array(([1.0, 0.0, 1.0], [0, 0, 1], [0, 1, 3]), shape=(2, 2))
    assert MarkovChain(P, [0, 0], [1, 0]).transition_matrix.data.tolist() == [1.0, 1.0]
    assert P.data.tolist() == [1.0, 0.0, 1.0]


def test_invalid_arguments_are_refused() -> None:
    chain = two_states(0.1)
    with pytest.raises(InvalidArgumentError, match=r"at least 0 and below 1; got 1\.0"):
        chain.discounted_value(1.0)
    with pytest.raises(InvalidArgumentError, match="tol must be positive; got 0"):
        chain.mixing_time(0.0)
    with pytest.raises(InvalidArgumentError, match="'initial' or 'worst'; got 'best'"):
        chain.mixing_time(start="best")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="t_max must not be negative; got -1"):
        chain.stepwise_distributions(-1)
    with pytest.raises(InvalidModelError, match="state 2 does not exist; states are 0 to 1"):
        chain.hitting_time(2)
    with pytest.raises(InvalidModelError, match="state -1 does not exist"):
        chain.relative_value(-1)
    with pytest.raises(InvalidModelError, match="states must be integers"):
        chain.class_of(0.5)  # type: ignore[arg-type]
    with pytest.raises(InvalidModelError, match="made from a transition matrix alone"):
        _ = chain.action_bias


def test_dense_results_of_large_chains_are_refused_with_their_size() -> None:
    chain = ring(10_000)
    with pytest.raises(ModelTooLargeError, match=r"deviation_matrix of 10000 states .* 0\.8 GB"):
        _ = chain.deviation_matrix
    with pytest.raises(ModelTooLargeError, match="bisimulation_distance of 10000 states"):
        chain.bisimulation_distance()
    with pytest.raises(ModelTooLargeError, match="absorption_probabilities of 10000 states"):
        MarkovChain(
            sparse.identity(10_000), np.zeros(10_000), np.full(10_000, 1e-4)
        ).absorption_probabilities()
    with pytest.raises(ModelTooLargeError, match=r"10000 transient states .* mean_absorption_time"):
        make_mdp("h10003").induce(np.zeros(10_003, dtype=int)).max_absorption_time()


def test_a_mixing_time_out_of_reach_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unichain_gym.stepwise.STEP_SECONDS", 1e-3)
    monkeypatch.setattr("unichain_gym.stepwise.DOUBLING_STATES", 1_000)
    chain = make_mdp("h2003").induce(np.zeros(2_003, dtype=int))
    with pytest.raises(ConvergenceError, match=r"not reached within \d+ steps.*2003 states"):
        chain.mixing_time()
