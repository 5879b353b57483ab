"""Listing and drawing policies, and deciding whether an MDP is unichain."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unichain_gym import TabularMDP, make_mdp, unichain
from unichain_gym.errors import InvalidModelError


def mdp_of(S: int, A: int) -> TabularMDP:
    P = np.broadcast_to(np.eye(S)[:, None], (S, A, S))
    return TabularMDP.from_arrays(P, np.zeros(S), np.full(S, 1.0 / S))


@pytest.mark.parametrize(("S", "A"), [(1, 1), (1, 4), (4, 1), (5, 2), (3, 4)])
def test_policies_come_in_lexicographic_order(S: int, A: int) -> None:
    policies = mdp_of(S, A).policies()
    expected = list(itertools.product(range(A), repeat=S))
    assert len(policies) == len(expected) == policies.n_policies
    assert [tuple(p.tolist()) for p in policies] == expected
    assert tuple(policies[-1].tolist()) == expected[-1]
    assert [tuple(p.tolist()) for p in policies[1::3]] == expected[1::3]
    assert [tuple(p.tolist()) for p in reversed(policies)] == expected[::-1]
    with pytest.raises(IndexError):
        policies[len(expected)]


def test_policies_of_many_states_exceed_the_range_of_len() -> None:
    policies = make_mdp("h100").policies()
    assert policies.n_policies == 2**100
    np.testing.assert_array_equal(policies[2**100 - 1], np.ones(100))
    np.testing.assert_array_equal(next(iter(policies)), np.zeros(100))
    assert len(policies[-3:]) == 3
    with pytest.raises(OverflowError, match=r"2\*\*100 policies .* use n_policies"):
        len(policies)


@pytest.mark.parametrize("thing", [[0, 2, 0], [0, -1, 0], [0, 1], [0.0, 1.0, 0.0], "policy"])
def test_invalid_policies_are_not_among_the_policies(thing: object) -> None:
    assert thing not in mdp_of(3, 2).policies()


def test_random_policies_are_uniform_and_follow_the_seed() -> None:
    mdp = mdp_of(4_000, 3)
    policy = mdp.random_policy(7)
    assert policy.shape == (4_000,)
    np.testing.assert_array_equal(policy, mdp.random_policy(np.random.default_rng(7)))
    # Each count has mean 1333 and standard deviation 30: six of them.
    assert np.abs(np.bincount(policy.astype(int), minlength=3) - 4_000 / 3).max() < 180
    stochastic = mdp.random_policy(7, deterministic=False)
    assert stochastic.shape == (4_000, 3)
    mdp.check_policy(stochastic)
    # A coordinate of a uniform distribution on the simplex has mean 1/3, variance 1/18.
    assert np.abs(stochastic.mean(axis=0) - 1 / 3).max() < 6 * math.sqrt(1 / 18 / 4_000)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ([0, 1], r"shape \(3,\) .* or \(3, 2\) .* got \(2,\)"),
        ([0, 2, 0], "takes action 2 in state 1; actions are 0 to 1"),
        ([0.0, 1.0, 0.0], "one integer action a state; got dtype float64"),
        ([[1, 0], [0.5, 0.4], [0, 1]], r"of state 1 sum to 0\.9, not 1"),
        ([[1, 0], [1.5, -0.5], [0, 1]], "not negative; state 1 has"),
        ([[1, 0], [np.nan, 1], [0, 1]], "state 1 has"),
    ],
)
def test_policies_that_do_not_fit_are_refused(policy: object, message: str) -> None:
    with pytest.raises(InvalidModelError, match=message):
        mdp_of(3, 2).check_policy(policy)  # type: ignore[arg-type]


def all_unichain(mdp: TabularMDP) -> bool:
    return all(mdp.induce(policy).is_unichain for policy in mdp.policies())


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=60)
def test_unichain_verdict_agrees_with_trying_every_policy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    S, A = int(rng.integers(1, 5)), int(rng.integers(1, 4))
    P = rng.random((S, A, S)) * (rng.random((S, A, S)) < rng.choice([0.2, 0.4, 0.7]))
    P[np.arange(S), 0, int(rng.integers(S))] = 1.0
    total = P.sum(axis=2, keepdims=True)
    P = np.divide(P, total, out=np.zeros_like(P), where=total > 0.0)
    mdp = TabularMDP.from_arrays(P, np.zeros(S), np.full(S, 1.0 / S), allowed=P.any(axis=2))
    assert mdp.is_unichain() is all_unichain(mdp)


def three_pairs() -> TabularMDP:
    """Three states, each pair of which some policy closes: no state is in all pairs."""
    transitions = [(s, a, (s + 1 + a) % 3, 1.0, 0.0) for s in range(3) for a in range(2)]
    return TabularMDP.from_transitions(transitions, [1.0, 0.0, 0.0])


def test_policies_are_enumerated_where_no_state_is_unavoidable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mdp = three_pairs()
    assert all_unichain(mdp)
    assert mdp.is_unichain() is True
    monkeypatch.setattr(unichain, "MAX_ENUMERATED", 10)
    assert mdp.is_unichain() is None


@pytest.mark.parametrize("mnemonic", ["h3", "h6", "h36c", "c5", "c10", "c35c", "x9d", "h100003e"])
def test_environments_of_the_paper_are_unichain(mnemonic: str) -> None:
    assert make_mdp(mnemonic).is_unichain() is True


def test_two_absorbing_states_are_not_unichain() -> None:
    assert mdp_of(2, 1).is_unichain() is False
