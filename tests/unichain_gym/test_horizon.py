"""Total rewards over finite horizons: short and long, small and large, periodic or not."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from unichain_gym import MarkovChain, TabularMDP, make_mdp
from unichain_gym.errors import ConvergenceError, InvalidArgumentError, ModelTooLargeError


def ring(n: int) -> MarkovChain:
    """A cycle of n states that are visited in turn; reward 1 in state 0."""
    s = np.arange(n)
    P = sparse.csr_array((np.ones(n), (s, (s + 1) % n)), shape=(n, n))
    return MarkovChain(P, s == 0, s == 0)


def ring_total(n: int, n_steps: int) -> np.ndarray:
    """The number of visits of state 0 in n_steps steps from each state of a ring."""
    first = -np.arange(n) % n
    return np.where(n_steps > first, 1 + (n_steps - 1 - first) // n, 0)


@pytest.mark.parametrize("n_steps", [0, 1, 2, 37, 1_000])
def test_a_horizon_is_the_recursion_from_its_end(chain: MarkovChain, n_steps: int) -> None:
    terminal = np.linspace(-3.0, 5.0, chain.n_states)
    P = chain.transition_matrix.toarray()
    expected, expected_with_end = np.zeros(chain.n_states), terminal
    for _ in range(n_steps):
        expected = chain.reward + P @ expected
        expected_with_end = chain.reward + P @ expected_with_end
    tolerance = 1e-14 * (n_steps + 10)
    np.testing.assert_allclose(chain.finite_horizon_value(n_steps), expected, atol=tolerance)
    value = chain.finite_horizon_value(n_steps, terminal)
    np.testing.assert_allclose(value, expected_with_end, atol=5 * tolerance)
    all_values = chain.finite_horizon_value(n_steps, terminal, all_horizons=True)
    assert all_values.shape == (n_steps + 1, chain.n_states)
    np.testing.assert_array_equal(all_values[0], terminal)
    np.testing.assert_allclose(all_values[-1], value, atol=5 * tolerance)
    np.testing.assert_allclose(all_values[1:], chain.reward + all_values[:-1] @ P.T, atol=1e-10)


def test_a_long_horizon_is_the_gain_of_each_step_plus_the_bias() -> None:
    chain = make_mdp("h36c").induce(np.zeros(36, dtype=int))
    for n in (10**4, 10**9, 10**15):
        expected = n * chain.gain + chain.bias
        np.testing.assert_allclose(chain.finite_horizon_value(n), expected, rtol=1e-13)


@pytest.mark.parametrize("switch", [1e-3, 1e-9, 1e-12])
@pytest.mark.parametrize("n_steps", [10, 10**6, 10**12, 10**15])
def test_a_slow_chain_has_its_closed_form_at_every_horizon(switch: float, n_steps: int) -> None:
    chain = MarkovChain(np.eye(2) + switch * np.array([[-1, 1], [1, -1]]), [1, 0], [1, 0])
    # v_n = n/2 ± (1 - λ^n)/(4 switch), λ = 1 - 2 switch.
    half = -np.expm1(n_steps * np.log1p(-2.0 * switch)) / (4.0 * switch)
    value = chain.finite_horizon_value(n_steps)
    # Rounding of 1 - switch is an error of 1e-16 in the rate at which the chain switches.
    np.testing.assert_allclose(value[0], n_steps / 2 + half, rtol=1e-12 + 1e-15 / switch)
    np.testing.assert_allclose(value.sum(), n_steps, rtol=1e-12)


@pytest.mark.parametrize("n_steps", [7, 2_002, 10**6 + 3])
@pytest.mark.parametrize("n", [1, 12, 2_003, 5_003])
def test_a_ring_counts_its_rounds(n: int, n_steps: int) -> None:
    value = ring(n).finite_horizon_value(n_steps)
    np.testing.assert_allclose(value, ring_total(n, n_steps), rtol=1e-12, atol=1e-12)


def test_a_large_ring_needs_a_few_rounds_of_a_billion_steps() -> None:
    n, n_steps = 20_000, 10**9 + 17
    value = ring(n).finite_horizon_value(n_steps)
    np.testing.assert_allclose(value, ring_total(n, n_steps), rtol=1e-12)


def test_a_large_chain_stops_where_the_rest_is_certain() -> None:
    n = 20_000
    rng = np.random.default_rng(0)
    s = np.arange(n)
    ways = (np.tile(s, 4), np.r_[(s + 1) % n, rng.permutation(n), rng.permutation(n), s])
    P = sparse.csr_array((np.full(4 * n, 0.25), ways), shape=(n, n))
    chain = MarkovChain(P, rng.random(n), np.full(n, 1.0 / n))
    for n_steps in (10**6, 10**12):
        expected = n_steps * chain.gain + chain.bias
        np.testing.assert_allclose(chain.finite_horizon_value(n_steps), expected, rtol=1e-12)
    # The terminal value fades to its average.
    end = 1e6 * rng.random(n)
    value = chain.finite_horizon_value(10**6, end)
    expected = 10**6 * chain.gain + chain.bias + chain.stationary_distribution @ end
    np.testing.assert_allclose(value, expected, rtol=1e-11)


def test_an_episode_pays_once_however_long_the_horizon() -> None:
    # Two classes, one absorbing: from 0 a step pays 1 until the end, with probability ½ each.
    P = [[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    chain = MarkovChain(P, [1.0, 0.0, 0.25], [1, 0, 0])
    value = chain.finite_horizon_value(2**40, terminal=[7.0, 3.0, 0.0])
    np.testing.assert_allclose(value, [5.0, 3.0, 2.0**38], rtol=1e-15)


def test_a_horizon_out_of_reach_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unichain_gym.rewards.STEP_WORK", 1e6)
    with pytest.raises(ConvergenceError, match=r"of a chain of 5003 states.*gain_vector \+ bias"):
        ring(5_003).finite_horizon_value(10**12)


@pytest.mark.parametrize(
    ("n_steps", "all_horizons"), [(3, False), (10**6, False), (3, True), (10**4, True)]
)
def test_a_total_beyond_the_range_of_doubles_is_refused(n_steps: int, all_horizons: bool) -> None:
    chain = MarkovChain([[1.0]], [1e308], [1.0])
    with pytest.raises(ConvergenceError, match="exceed the range of doubles"):
        chain.finite_horizon_value(n_steps, all_horizons=all_horizons)
    value = MarkovChain(np.full((2, 2), 0.5), [1e308, -1e308], [1, 0]).finite_horizon_value(n_steps)
    np.testing.assert_array_equal(value, [1e308, -1e308])


def test_horizons_and_ends_that_do_not_fit_are_refused() -> None:
    chain = ring(3)
    with pytest.raises(InvalidArgumentError, match="n_steps must not be negative; got -1"):
        chain.finite_horizon_value(-1)
    with pytest.raises(InvalidArgumentError, match=r"n_steps must be an integer; got 1\.5"):
        chain.finite_horizon_value(1.5)  # type: ignore[arg-type]
    for end in ([1.0, 2.0], [0.0, np.nan, 0.0], 1.0):
        with pytest.raises(InvalidArgumentError, match="terminal must be 3 finite numbers"):
            chain.finite_horizon_value(1, end)
    with pytest.raises(InvalidArgumentError, match="terminal must be an array of real numbers"):
        chain.finite_horizon_value(1, ["a", "b", "c"])


def small_mdp(seed: int) -> TabularMDP:
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.ones(3), (3, 2))
    allowed = np.array([[True, True], [True, False], [True, True]])
    return TabularMDP.from_arrays(P, rng.normal(size=(3, 2, 3)), [1, 0, 0], allowed=allowed)


@pytest.mark.parametrize("discount", [None, 1.0, 0.7, 0.0])
@pytest.mark.parametrize("seed", range(4))
def test_a_horizon_s_policy_is_the_best_of_all_sequences(seed: int, discount: float | None) -> None:
    mdp, n, terminal = small_mdp(seed), 3, np.array([1.0, -2.0, 0.5])
    gamma = 1.0 if discount is None else discount
    chains = [mdp.induce(policy) for policy in mdp.policies()]
    largest = np.full(3, -np.inf)
    for sequence in itertools.product(chains, repeat=n):
        value = terminal
        for chain in sequence[::-1]:
            value = chain.reward + gamma * (chain.transition_matrix @ value)
        largest = np.maximum(largest, value)
    best = mdp.optimal_policy(horizon=n, terminal=terminal, discount=discount)
    np.testing.assert_allclose(best.values[0], largest, rtol=1e-13, atol=1e-13)
    np.testing.assert_array_equal(best.values[n], terminal)
    value = terminal
    for t in range(n - 1, -1, -1):  # what the actions are worth is what the values say
        chain = mdp.induce(best.actions[t])
        value = chain.reward + gamma * (chain.transition_matrix @ value)
        np.testing.assert_allclose(best.values[t], value, rtol=1e-13, atol=1e-13)


def test_over_many_steps_the_values_grow_by_the_largest_gain() -> None:
    mdp = make_mdp("h36c")
    best = mdp.optimal_policy(horizon=2_000)
    gain = mdp.optimal_policy("bias").gain
    np.testing.assert_allclose(best.values[0] - best.values[1], gain, rtol=1e-9)
    assert mdp.optimal_policy(horizon=0).values.tolist() == [[0.0] * 36]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"horizon": -1}, InvalidArgumentError, "horizon must not be negative; got -1"),
        ({"horizon": 2.5}, InvalidArgumentError, "horizon must be an integer; got 2.5"),
        ({"horizon": 3, "discount": 1.5}, InvalidArgumentError, "discount must be from 0 to 1"),
        ({"horizon": 3, "criterion": "bias"}, InvalidArgumentError, "horizon= goes with terminal="),
        ({"terminal": [0, 0, 0]}, InvalidArgumentError, "terminal= needs it; got horizon=None"),
        ({"horizon": 3, "terminal": [0, 0]}, InvalidArgumentError, "terminal must be 3 finite"),
        ({"horizon": 10**9}, ModelTooLargeError, "a policy of as many steps would be an array"),
    ],
)
def test_a_horizon_that_makes_no_sense_is_refused(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        small_mdp(0).optimal_policy(**arguments)
