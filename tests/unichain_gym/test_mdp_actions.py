"""MDPs whose states have different actions: building, policies, chains, simulation, storage."""

from __future__ import annotations

import itertools
from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unichain_gym import TabularMDP
from unichain_gym.errors import InvalidModelError

LEFT, STAY, RIGHT = range(3)


def corridor(n: int = 3) -> TabularMDP:
    """A walk along n states: no way left of the first or right of the last, resting at the ends."""
    moves = [(s, LEFT, s - 1, 1.0, 0.0) for s in range(1, n)]
    moves += [(s, RIGHT, s + 1, 1.0, 1.0) for s in range(n - 1)]
    moves += [(0, STAY, 0, 1.0, -1.0), (n - 1, STAY, n - 1, 1.0, 2.0)]
    return TabularMDP.from_transitions(moves, np.eye(n)[0])


CORRIDOR = [[False, True, True], [True, False, True], [True, True, False]]


def random_mdp(seed: int) -> TabularMDP:
    """States with one to all of the actions, each with one to all of the successors."""
    rng = np.random.default_rng(seed)
    S, A = rng.integers(1, 6, size=2)
    P = rng.random((S, A, S)) * (rng.random((S, A, S)) < 0.5)
    P[np.arange(S), rng.integers(A, size=S), rng.integers(S, size=S)] = 1.0
    total = P.sum(axis=2, keepdims=True)
    P = np.divide(P, total, out=np.zeros_like(P), where=total > 0.0)
    R = rng.normal(size=(S, A, S))
    return TabularMDP.from_arrays(P, R, np.full(S, 1.0 / S), allowed=P.any(axis=2))


def test_pairs_that_are_never_listed_are_absent():
    mdp = corridor()
    np.testing.assert_array_equal(mdp.allowed_actions, CORRIDOR)
    assert not mdp.allowed_actions.flags.writeable
    assert mdp.n_actions == 3
    assert not mdp.probability[0, LEFT].any()


@pytest.mark.parametrize("fill", [0.0, np.nan, -np.inf])
def test_entries_of_absent_actions_are_not_read(fill: float):
    P, R, initial = corridor().to_arrays()
    absent = ~np.array(CORRIDOR)
    P[absent], R[absent] = fill, fill
    mdp = TabularMDP.from_arrays(P, R, initial, allowed=CORRIDOR)
    np.testing.assert_array_equal(mdp.allowed_actions, CORRIDOR)
    for ours, theirs in zip(mdp.to_arrays(), corridor().to_arrays(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_rows_of_zeros_and_rewards_of_minus_infinity_are_explained():
    P, R, initial = corridor().to_arrays()
    with pytest.raises(
        InvalidModelError, match=r"state 0, action 0 sum to 0\.0, not 1; .*allowed="
    ):
        TabularMDP.from_arrays(P, R, initial)
    P[0, LEFT, 0] = 1.0
    R[0, LEFT, 0] = -np.inf
    with pytest.raises(InvalidModelError, match=r"state 0, action 0 has a reward.*allowed="):
        TabularMDP.from_arrays(P, R, initial, allowed=np.array(CORRIDOR) | (P.any(axis=2)))
    with pytest.raises(InvalidModelError, match=r"state 0, action 1 sum to 0\.0, not 1; leave out"):
        TabularMDP.from_transitions([(0, 0, 0, 1.0, 0.0), (0, 1, 0, 0.0, 0.0)], [1.0])


@pytest.mark.parametrize("allowed", [[True], np.full((3, 3), 2), np.full((3, 3), "yes")])
def test_marks_that_are_no_booleans_of_the_right_shape_are_refused(allowed: Any):
    with pytest.raises(InvalidModelError, match=r"allowed must be boolean, of shape \(3, 3\); got"):
        TabularMDP.from_arrays(*corridor().to_arrays(), allowed=allowed)


def test_a_state_without_any_action_is_refused():
    with pytest.raises(InvalidModelError, match="state 1 has no action; each state needs one"):
        TabularMDP.from_transitions([(0, 0, 0, 1.0, 0.0)], [1.0, 0.0])
    P, R, initial = corridor().to_arrays()
    with pytest.raises(InvalidModelError, match="state 2 has no action"):
        TabularMDP.from_arrays(P, R, initial, allowed=[*CORRIDOR[:2], [False] * 3])


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ([LEFT, LEFT, LEFT], r"takes action 0 in state 0 with probability 1\.0.* it has: 1, 2"),
        ([[0, 1, 0], [0.5, 0.1, 0.4], [1, 0, 0]], r"action 1 in state 1 with .* 0\.1,.*has: 0, 2"),
    ],
)
def test_policies_that_take_an_absent_action_are_refused(policy: Any, message: str):
    with pytest.raises(InvalidModelError, match=message):
        corridor().induce(policy)


def test_policies_use_only_the_actions_of_each_state():
    expected = list(itertools.product([STAY, RIGHT], [LEFT, RIGHT], [LEFT, STAY]))
    policies = corridor().policies()
    assert [tuple(p.tolist()) for p in policies] == expected
    assert [tuple(p.tolist()) for p in policies[::-3]] == expected[::-3]
    assert np.array([STAY, RIGHT, STAY]) in policies
    assert np.array([STAY, RIGHT, STAY]) not in policies[:2]
    assert np.array([LEFT, RIGHT, STAY]) not in policies


@given(st.integers(1, 5), st.integers(1, 150), st.integers(0, 2**32 - 1))
@settings(max_examples=20)
def test_any_policy_is_found_by_its_number_in_mixed_bases(A: int, S: int, seed: int):
    rng = np.random.default_rng(seed)
    allowed = rng.random((S, A)) < 0.6
    allowed[np.arange(S), rng.integers(A, size=S)] = True
    transitions = [(s, a, s, 1.0, 0.0) for s, a in np.argwhere(allowed)]
    mdp = TabularMDP.from_transitions(transitions, np.eye(S)[0])
    policies, policy = mdp.policies(), mdp.random_policy(seed)
    number, n_policies = 0, 1
    for state, action in enumerate(policy.tolist()):
        choices = np.flatnonzero(mdp.allowed_actions[state]).tolist()
        number = number * len(choices) + choices.index(action)
        n_policies *= len(choices)
    assert policies.n_policies == n_policies
    np.testing.assert_array_equal(policies[number], policy)
    assert policy in policies[number : number + 1]


def test_drawn_policies_are_uniform_over_the_actions_that_a_state_has():
    n = 4_000
    transitions = [(s, a, s, 1.0, 0.0) for s in range(n) for a in (0, 2, 3)]
    mdp = TabularMDP.from_transitions([*transitions, (0, 1, 0, 1.0, 0.0)], np.eye(n)[0])
    count = np.bincount(mdp.random_policy(7)[1:].astype(int), minlength=4)
    # Each count has mean 1333 and standard deviation 30: six of them.
    assert np.abs(count[[0, 2, 3]] - n / 3).max() < 180
    pi = mdp.random_policy(7, deterministic=False)[1:, [0, 2, 3]]
    # A coordinate of a uniform distribution on the simplex has mean 1/3, variance 1/18.
    assert np.abs(pi.mean(axis=0) - 1 / 3).max() < 6 * np.sqrt(1 / 18 / n)
    assert np.abs(pi.var(axis=0) - 1 / 18).max() < 0.005


def test_names_are_text_or_the_numbers_that_the_states_had_elsewhere():
    P, R, initial = corridor().to_arrays()

    def named(names: Any) -> Any:
        return TabularMDP.from_arrays(
            P, R, initial, allowed=CORRIDOR, state_names=names
        ).state_names

    assert named(None) is None
    assert named(["a", "b", "c"]) == ("a", "b", "c")
    assert named(np.array([7, 2, 5])) == (7, 2, 5)
    for names, message in (
        ("abc", "one name for each of the 3 states"),
        (["a", "b"], r"each of the 3 states; got \['a', 'b'\]"),
        (["a", "b", "a"], "two states are called 'a'"),
        (["a", 1, 2], r"state_names\[0\] must be an integer; got 'a'"),
        ([0.5, 1, 2], r"state_names\[0\] must be an integer; got 0\.5"),
        (5, "each of the 3 states; got 5"),
    ):
        with pytest.raises(InvalidModelError, match=message):
            named(names)


class Tabled(gymnasium.Env[Any, Any]):
    """An environment that is its table."""

    def __init__(self, P: Any) -> None:
        self.P = P


def test_empty_lists_of_a_toy_text_table_are_absent_actions():
    table: dict[int, dict[int, list[Any]]] = {
        0: {0: [], 1: [(1.0, 1, 5.0, False)]},
        1: {0: [(0.5, 0, 0.0, False), (0.5, 2, 1.0, True)], 1: []},
        2: {0: [], 1: []},
    }
    mdp = TabularMDP.from_gymnasium(Tabled(table), initial=[1.0, 0.0, 0.0])
    np.testing.assert_array_equal(mdp.allowed_actions, [[False, True], [True, False], [True, True]])
    table[0][0] = [(0.0, 0, 0.0, False)]
    with pytest.raises(InvalidModelError, match=r"state 0, action 0 sum to 0\.0.*leave the list"):
        TabularMDP.from_gymnasium(Tabled(table), initial=[1.0, 0.0, 0.0])


def test_an_absent_action_has_no_value():
    chain = corridor().induce([RIGHT, RIGHT, STAY])
    np.testing.assert_array_equal(np.isnan(chain.action_bias), ~np.array(CORRIDOR))
    assert chain.action_bias[0, RIGHT] == chain.bias[0]
    with pytest.raises(InvalidModelError, match="state 1 has other actions than state 0"):
        chain.bisimulation_distance()


def test_an_action_that_no_state_has_changes_no_distance():
    moves = [(0, 0, 1, 1.0, 0.0), (1, 0, 0, 1.0, 1.0)]
    apart = [(s, 2 * a, n, p, r) for s, a, n, p, r in [*moves, (0, 1, 0, 1, 3), (1, 1, 1, 1, 5)]]
    close = [(s, a // 2, n, p, r) for s, a, n, p, r in apart]
    one, other = (
        TabularMDP.from_transitions(listed, [1.0, 0.0]).induce([0, 0]).bisimulation_distance()
        for listed in (apart, close)
    )
    np.testing.assert_array_equal(one, other)
