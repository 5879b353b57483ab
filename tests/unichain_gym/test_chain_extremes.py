"""Chains on which a careless solver is silently wrong: rare states, long drifts, tiny edges."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from unichain_gym import MarkovChain, TabularMDP, make_mdp
from unichain_gym.errors import ConvergenceError, InvalidArgumentError, PeriodicChainError
from unichain_gym.unichain import is_unichain


def line(n: int, up: float, down: float) -> sparse.csr_array:
    """Return a random walk on a line that stays at the ends instead of leaving."""
    P = sparse.diags_array([up, down], offsets=[1, -1], shape=(n, n))
    return sparse.csr_array(P + sparse.diags_array(1.0 - P.sum(axis=1)))


def line_bias(n: int, up: Fraction, down: Fraction, reward: list[int]) -> list[Fraction]:
    """Solve (I - P) b = r - g, p* b = 0 on the line in rational numbers."""
    p = [Fraction(1)]
    for _ in range(n - 1):
        p.append(p[-1] * up / down)
    total = sum(p)
    p = [x / total for x in p]
    gain = sum(x * r for x, r in zip(p, reward, strict=True))
    # The flow across each edge balances what lies below it.
    b, below = [Fraction(0)], Fraction(0)
    for s in range(n - 1):
        below += p[s] * (reward[s] - gain)
        b.append(b[-1] - below / (p[s] * up))
    mean = sum(x * y for x, y in zip(p, b, strict=True))
    return [x - mean for x in b]


@pytest.mark.parametrize("n", [20, 60, 300])
@pytest.mark.parametrize("speed", [1.0, 2.0**-20])
def test_a_bias_is_right_where_the_chain_drifts_away_from_most_states(n, speed):
    # The last state is 6^(n-1) times as frequent as the first.
    up, down = 0.375 * speed, 0.0625 * speed
    reward = [0] * (n - 1) + [1]
    chain = MarkovChain(line(n, up, down), reward, np.full(n, 1 / n))
    expected = [float(x) for x in line_bias(n, Fraction(up), Fraction(down), reward)]
    np.testing.assert_allclose(chain.bias, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("n", [2_900, 3_500])  # on both sides of where dense elimination ends
def test_a_long_drifting_line_has_its_stationary_distribution_and_bias(n):
    ratio = 0.35 / 0.05
    chain = MarkovChain(line(n, 0.35, 0.05), np.arange(n) == n - 1, np.full(n, 1 / n))
    p = ratio ** np.arange(-n + 1.0, 1.0)
    np.testing.assert_allclose(chain.stationary_distribution, p / p.sum(), atol=1e-12)
    excess = chain.reward - chain.gain
    residual = chain.bias - chain.transition_matrix @ chain.bias - excess
    assert np.abs(residual).max() < 1e-10
    # Far from both ends, each step up costs the gain for 1/(up - down) steps.
    np.testing.assert_allclose(np.diff(chain.bias)[50 : n // 2], chain.gain / 0.3, rtol=1e-9)


def leaving_walk(n: int, up: float) -> MarkovChain:
    """Return a walk on n transient states that is absorbed beyond the last."""
    P = line(n + 1, up, 1.0 - up).tolil()
    P[n] = 0.0
    P[n, n] = 1.0
    return MarkovChain(P.tocsr(), np.ones(n + 1), np.eye(n + 1)[0])


@pytest.mark.parametrize("n", [800, 3_500])
def test_times_beyond_doubles_are_refused(n):
    chain = leaving_walk(n, 0.1)  # absorbed after 9^n steps
    with pytest.raises(ConvergenceError, match=r"exceed the range of doubles|loses all digits"):
        _ = chain.mean_absorption_time
    with pytest.raises(ConvergenceError, match=r"exceed the range of doubles|loses all digits"):
        _ = chain.expected_visits


def test_states_reached_with_a_probability_below_doubles_are_visited_for_ever():
    n = 800  # from state 0, up with 0.1 each time or out for good
    P = sparse.lil_array((n + 2, n + 2))
    P[np.arange(n), np.arange(1, n + 1)] = 0.1
    P[np.arange(n), np.full(n, n + 1)] = 0.9
    P[n, n] = P[n + 1, n + 1] = 1.0
    chain = MarkovChain(P.tocsr(), np.zeros(n + 2), np.eye(n + 2)[0])
    assert chain.expected_visits[n:].tolist() == [np.inf, np.inf]


def test_a_target_named_twice_is_hit_as_soon_as_when_named_once():
    chain = make_mdp("h6").induce(np.zeros(6, dtype=int))
    np.testing.assert_array_equal(chain.hitting_time([4, 4]), chain.hitting_time(4))


def test_the_least_probable_action_still_decides_the_classes():
    stay_or_leave = [(0, 0, 0, 1.0, 5.0), (0, 1, 1, 1.0, 0.0)]
    mdp = TabularMDP.from_transitions(
        [*stay_or_leave, (1, 0, 1, 1.0, 1.0), (1, 1, 1, 1.0, 1.0)], [1.0, 0.0]
    )
    chain = mdp.induce([[1.0, 1e-17], [1.0, 0.0]])
    assert [c.tolist() for c in chain.recurrent_classes] == [[1]]
    assert chain.gain == 1.0


def test_a_chain_does_not_change_with_the_arrays_it_was_made_from():
    reward = np.array([1.0, 0.0])
    chain = MarkovChain([[0.5, 0.5], [0.5, 0.5]], reward, [1.0, 0.0])
    reward[:] = 9.0
    assert chain.gain == 0.5


@pytest.mark.parametrize(
    "name",
    [
        *("reward", "initial_distribution", "stationary_distribution", "gain_vector", "bias"),
        *("action_bias", "deviation_matrix", "mean_absorption_time", "expected_visits"),
    ],
)
def test_cached_results_of_a_chain_cannot_be_changed_by_accident(name):
    chain = make_mdp("h6").induce(np.zeros(6, dtype=int))
    kept = getattr(chain, name)
    with pytest.raises(ValueError, match="read-only"):
        kept -= kept[0]


def test_a_running_average_that_is_never_near_enough_is_refused():
    chain = MarkovChain([[0.5, 0.5], [0.5, 0.5]], [1.0, 0.0], [1.0, 0.0])
    with pytest.raises(ConvergenceError, match=r"not reached within 2\^53 steps"):
        chain.mixing_time(1e-30, averaged=True)


def test_a_search_for_a_time_in_a_huge_table_is_refused(monkeypatch):
    n = 40
    P = np.full((n, 2, n), 1.0 / n)
    mdp = TabularMDP.from_arrays(P, np.zeros((n, 2)), np.full(n, 1 / n))
    searched = []

    def count(next_state, possible, allowed):
        searched.append(allowed)
        return np.zeros(len(next_state), dtype=np.int64)

    monkeypatch.setattr("unichain_gym.unichain.maximal_end_components", count)
    monkeypatch.setattr("unichain_gym.unichain.MAX_VISITED", 3 * n * 2 * n)
    is_unichain(mdp.next_state, mdp.probability > 0.0)
    assert len(searched) == 1 + 3  # all states, then without each of three


@pytest.mark.parametrize("discount", [0.0, 0.5, 1 - 1e-6, 1 - 1e-12, 1 - 2.0**-53])
def test_values_whose_gain_is_zero_stay_right_up_to_the_limit(discount):
    # Half up and half down whatever the state: v = r.
    chain = MarkovChain([[0.5, 0.5], [0.5, 0.5]], [1.0, -1.0], [1.0, 0.0])
    np.testing.assert_allclose(chain.discounted_value(discount), [1.0, -1.0], rtol=1e-15)


@pytest.mark.parametrize("discount", [0.3, 1 - 1e-4, 1 - 1e-12])
def test_discounted_values_of_a_slow_chain_keep_their_digits(discount):
    a, b = Fraction(1, 2**30), Fraction(1, 2**33)
    P: Any = [[1 - a, a], [b, 1 - b]]
    chain = MarkovChain(P, [1.0, 0.0], [1.0, 0.0])
    y = Fraction(discount)
    # p* v = p* r/(1 - y) with p* = (b, a)/(a + b), and v0 - v1 = 1/(1 - y + y (a + b)).
    difference = 1 / (1 - y + y * (a + b))
    v1 = (b / (a + b)) / (1 - y) - difference * b / (a + b)
    expected = [float(v1 + difference), float(v1)]
    error = np.abs(chain.discounted_value(discount) - expected).max()
    assert error <= 1e-14 * expected[0]


def test_a_variance_is_right_where_steps_are_huge_and_rare():
    assert MarkovChain([[1.0, 1e-160], [0.0, 1.0]], [1.0, 0.0], [1.0, 0.0]).variance == 0.0
    slow = MarkovChain([[1.0, 1e-200], [1e-200, 1.0]], [1.0, 0.0], [1.0, 0.0])
    assert slow.variance == pytest.approx(2.5e199, rel=1e-13)  # p (1 - p) (2 - 2e)/(2e)


@pytest.mark.parametrize(
    ("P", "reward", "name"),
    [
        ([[1.0, 1e-320], [0.0, 1.0]], [1.0, 0.0], "mean_absorption_time"),
        ([[1.0, 1e-320], [0.0, 1.0]], [1.0, 0.0], "bias"),
        ([[0.5, 0.5], [0.5, 0.5]], [1.7e308, -1.7e308], "bias"),
        ([[1.0, 1e-300], [1e-300, 1.0]], [1e100, 0.0], "variance"),
    ],
)
def test_numbers_beyond_doubles_are_refused_and_not_infinite(P, reward, name):
    chain = MarkovChain(P, reward, [1.0, 0.0])
    with pytest.raises(ConvergenceError, match="exceed the range of doubles"):
        getattr(chain, name)


def test_a_constant_reward_has_no_bias_however_slow_the_chain():
    chain = MarkovChain([[1 - 1e-14, 1e-14], [1e-15, 1 - 1e-15]], [0.1, 0.1], [1.0, 0.0])
    assert chain.bias.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("tol", [4e-15, 1e-14, 1e-12, 1e-3])
def test_mixing_times_are_exact_down_to_the_smallest_tolerance(tol):
    chain = MarkovChain([[0.75, 0.25], [0.25, 0.75]], [0.0, 0.0], [1.0, 0.0])
    distance, t = Fraction(1, 2), 0
    while distance > Fraction(tol):
        distance, t = distance / 2, t + 1
    assert chain.mixing_time(tol) == chain.mixing_time(tol, "worst") == t


def test_a_tolerance_that_rounding_hides_is_refused_with_the_smallest_that_works():
    chain = MarkovChain([[0.75, 0.25], [0.25, 0.75]], [0.0, 0.0], [1.0, 0.0])
    with pytest.raises(InvalidArgumentError, match=r"tol is 1e-20, .* 3\.6e-15; that is the small"):
        chain.mixing_time(1e-20)
    assert chain.mixing_time(3.6e-15) == 47  # the first power of a half below it is 2^-48


@pytest.mark.parametrize(("tol", "t"), [(1e-200, 665), (1e-300, 997), (5e-324, 1074), (0.5, 1)])
def test_absorption_times_are_exact_down_to_the_smallest_double(tol, t):
    chain = MarkovChain([[0.5, 0.5], [0.0, 1.0]], [0.0, 0.0], [1.0, 0.0])
    assert chain.max_absorption_time(tol) == t


def test_a_periodic_class_out_of_reach_does_not_keep_a_chain_from_mixing():
    P = np.zeros((5, 5))
    P[:2, :2] = 0.5
    P[2, 3] = P[3, 2] = 1.0
    P[4, 0] = P[4, 2] = 0.5
    assert MarkovChain(P, np.zeros(5), np.eye(5)[0]).mixing_time() == 1
    assert MarkovChain(P, np.zeros(5), np.eye(5)[2]).mixing_time(averaged=True) == 1
    for start in (2, 4):
        with pytest.raises(PeriodicChainError, match="period 2 never mixes"):
            MarkovChain(P, np.zeros(5), np.eye(5)[start]).mixing_time()


def test_a_slow_start_into_two_classes_mixes_once_both_ways_end():
    # From state 0 out with 2e-7 a step, into either class; the classes then mix at once.
    leave = 1e-7
    P = np.zeros((5, 5))
    P[0, 0], P[0, 1], P[0, 3] = 1 - 2 * leave, leave, leave
    P[1:3, 1:3] = P[3:, 3:] = 0.5
    t = MarkovChain(P, np.zeros(5), np.eye(5)[0]).mixing_time(1e-3)
    # What is still in 0, and half of what has just entered, is not where it will be.
    assert t == pytest.approx(np.log(1e-3) / np.log1p(-2 * leave), rel=1e-9, abs=2)
