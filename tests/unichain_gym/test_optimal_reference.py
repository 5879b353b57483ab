"""Optimal policies against exact rational enumeration, textbooks and other software."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from numpy.testing import assert_allclose

from unichain_gym import TabularMDP, make_mdp

N_CASES = 42


def test_every_case_of_the_reference_file_is_compared(reference: Any) -> None:
    assert len(reference("optimal")["cases"]) == N_CASES


@pytest.fixture(scope="module", params=range(N_CASES))
def case(request: pytest.FixtureRequest, reference: Any) -> tuple[dict[str, Any], TabularMDP]:
    figures = reference("optimal")["cases"][request.param]
    if "mnemonic" in figures:
        return figures, make_mdp(figures["mnemonic"])
    if "external" in figures:
        model = reference("external_mdps")["mdps"][figures["external"]]
        return figures, TabularMDP.from_transitions(model["transitions"], model["initial"])
    n = len(figures["P"])
    return figures, TabularMDP.from_arrays(figures["P"], figures["R"], np.full(n, 1.0 / n))


def listed(actions: np.ndarray[Any, Any]) -> list[list[int]]:
    return [np.flatnonzero(row).tolist() for row in actions]


def test_gain_and_worst_gain_are_the_largest_and_smallest_of_all_policies(
    case: tuple[dict[str, Any], TabularMDP],
) -> None:
    figures, mdp = case
    assert_allclose(mdp.optimal_policy("gain").gain, figures["gain"], rtol=1e-9, atol=1e-9)
    worst = mdp.worst_policy("gain")
    assert_allclose(worst.gain, figures["worst_gain"], rtol=1e-9, atol=1e-9)
    assert_allclose(mdp.induce(worst.policy).gain_vector, worst.gain)


@pytest.mark.parametrize("criterion", ["bias", "blackwell"])
def test_bias_and_optimal_actions_are_the_best_of_all_policies(
    case: tuple[dict[str, Any], TabularMDP], criterion: Any
) -> None:
    figures, mdp = case
    optimal = mdp.optimal_policy(criterion)
    assert_allclose(optimal.gain, figures["gain"], rtol=1e-9, atol=1e-9)
    assert_allclose(optimal.bias, figures["bias"], rtol=1e-9, atol=1e-9)
    assert listed(optimal.optimal_actions) == figures[f"{criterion}_actions"]


def test_actions_that_a_state_lacks_are_never_optimal() -> None:
    transitions = [(0, 0, 1, 1.0, -5.0), (0, 2, 0, 1.0, -6.0), (1, 1, 0, 1.0, -1.0)]
    mdp = TabularMDP.from_transitions(transitions, [1.0, 0.0])
    optimal = mdp.optimal_policy("blackwell")
    assert optimal.policy.tolist() == [0, 1]
    assert listed(optimal.optimal_actions) == [[0], [1]]
    assert_allclose(optimal.gain, -3.0)


def access_control(n_servers: int = 10, p_free: float = 0.06) -> TabularMDP:
    """Sutton & Barto (2018), example 10.2: accept or reject customers paying 1, 2, 4 or 8."""
    payments = np.array([1.0, 2.0, 4.0, 8.0])
    transitions = []
    for free in range(n_servers + 1):
        for k, payment in enumerate(payments):
            for accept in (0, 1) if free else (0,):
                busy = n_servers - free + accept
                freed = np.array([1.0])
                for _ in range(busy):
                    freed = np.convolve(freed, [1.0 - p_free, p_free])
                for count, p in enumerate(freed):
                    then = n_servers - busy + count
                    for next_k in range(4):
                        reward = float(payment * accept)
                        transitions.append((4 * free + k, accept, 4 * then + next_k, p / 4, reward))
    n = 4 * (n_servers + 1)
    return TabularMDP.from_transitions(transitions, np.full(n, 1.0 / n))


def test_access_control_has_the_books_policy_and_gain() -> None:
    optimal = access_control().optimal_policy("bias")
    # The gain that others report for the exact model; the book's figure shows the policy: with
    # few free servers low priorities are rejected, the highest is always accepted.
    assert_allclose(optimal.gain, 2.74764, atol=5e-6)
    accepts = optimal.policy.reshape(-1, 4)[1:]
    assert accepts[:, 3].all()
    assert (np.diff(accepts, axis=0) >= 0).all()
    assert (np.diff(accepts, axis=1) >= 0).all()


def test_river_swim_has_the_published_gain_and_diameter() -> None:
    swim = make_mdp("r6")
    assert_allclose(swim.optimal_policy().gain, 0.428622, atol=1e-6)
    assert_allclose(swim.diameter(), 14.7223, atol=1e-4)


@pytest.mark.parametrize("discount", [0.0, 0.9, 0.99])
def test_frozen_lake_discounted_agrees_with_value_iteration(discount: float) -> None:
    mdp = TabularMDP.from_gymnasium(gym.make("FrozenLake-v1"))
    optimal = mdp.optimal_policy("discounted", discount)
    P, R, _ = mdp.to_arrays()
    r = (P * R).sum(axis=2)
    v = np.zeros(mdp.n_states)
    for _ in range(4000):
        v = (r + discount * P @ v).max(axis=1)
    assert optimal.value is not None
    assert_allclose(optimal.value, v, atol=1e-12)
    q = r + discount * P @ v
    assert (optimal.optimal_actions == (q >= q.max(axis=1, keepdims=True) - 1e-10)).all()


@pytest.mark.parametrize("kind", ["CliffWalking-v", pytest.param("Taxi-v", marks=pytest.mark.slow)])
def test_continuing_toy_text_tasks_have_the_gain_of_relative_value_iteration(kind: str) -> None:
    env_id = max(name for name in gym.registry if name.startswith(kind))
    mdp = TabularMDP.from_gymnasium(gym.make(env_id), on_termination="restart")
    optimal = mdp.optimal_policy("bias")
    v = np.zeros(mdp.n_states)
    for _ in range(2000):
        q = mdp.expected_reward + np.einsum("sak,sak->sa", mdp.probability, v[mdp.next_state])
        step = 0.5 * (q.max(axis=1) - v)
        v = v + step - step[0]
    reached = mdp.induce(optimal.policy).expected_visits > 0.0
    assert_allclose(2.0 * step[reached], optimal.gain[reached], atol=1e-9)


def test_cliff_walking_takes_the_way_along_the_cliff() -> None:
    mdp = TabularMDP.from_gymnasium(gym.make("CliffWalking-v1"), on_termination="restart")
    # Thirteen steps at -1, and one at 0 back to the start.
    assert_allclose(mdp.optimal_policy().gain, -13.0 / 14.0)


def test_machine_replacement_is_a_threshold() -> None:
    # Deterministic wear, operating cost s, a new machine at cost 9 instead: renewing every n
    # steps costs (9 + 0 + 1 + … + n-2)/n on average, least for n = 4 and n = 5, which tie at 3.
    S = 8
    transitions = [(s, 0, min(s + 1, S - 1), 1.0, -float(s)) for s in range(S)]
    transitions += [(s, 1, 0, 1.0, -9.0) for s in range(S)]
    mdp = TabularMDP.from_transitions(transitions, np.full(S, 1.0 / S))
    optimal = mdp.optimal_policy("gain")
    costs = [(9.0 + sum(range(n - 1))) / n for n in range(1, S + 1)]
    assert_allclose(-optimal.gain, min(costs))
