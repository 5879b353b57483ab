"""What optimal policies obey on every MDP: brute force, equations, symmetries, bad input."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from unichain_gym import TabularMDP, make_mdp
from unichain_gym.errors import InvalidArgumentError, ModelTooLargeError
from unichain_gym.pairs import list_pairs
from unichain_gym.policy_iteration import iterate_policies

SEEDS = st.integers(0, 2**32 - 1)


def small_mdp(seed: int) -> TabularMDP:
    """A multichain MDP full of ties: integer rewards, few probabilities, absent actions."""
    rng = np.random.default_rng(seed)
    S, A = int(rng.integers(1, 6)), int(rng.integers(1, 4))
    transitions = []
    for s in range(S):
        actions = np.flatnonzero(rng.random(A) < 0.85)
        for a in actions if actions.size else [rng.integers(A)]:
            to = rng.choice(S, min(int(rng.integers(1, 3)), S), replace=False)
            p = [1.0] if to.size == 1 else [[0.5, 0.5], [0.25, 0.75]][rng.integers(2)]
            reward = float(rng.integers(-1, 2))
            transitions += [(s, int(a), int(x), q, reward) for x, q in zip(to, p, strict=True)]
    return TabularMDP.from_transitions(transitions, np.full(S, 1.0 / S))


def brute_force(mdp: TabularMDP, orders: tuple[int, ...]) -> list[tuple[Any, list[Any]]]:
    """For ascending n, the actions of all n-discount optimal policies, and their y_-1, … y_n."""
    policies, terms = list(mdp.policies()), []
    for policy in policies:
        chain = mdp.induce(policy)
        y = [chain.gain_vector, chain.bias][: orders[-1] + 2]
        for _ in range(orders[-1]):
            y.append(-chain.deviation_matrix @ y[-1])
        terms.append(y)
    left, found = np.arange(len(policies)), []
    for k in range(orders[-1] + 2):
        values = np.array([terms[i][k] for i in left])
        left = left[(values >= values.max(axis=0) - 1e-6).all(axis=1)]
        if k - 1 in orders:
            actions = np.zeros((mdp.n_states, mdp.n_actions), dtype=bool)
            for i in left:
                actions[np.arange(mdp.n_states), policies[i]] = True
            found.append((actions, terms[left[0]]))
    return found


@settings(max_examples=8)
@given(SEEDS)
def test_values_and_actions_agree_with_trying_every_policy(seed: int) -> None:
    mdp = small_mdp(seed)
    criteria: tuple[Any, ...] = ("gain", "bias", "blackwell")
    by_trying = brute_force(mdp, (-1, 0, mdp.n_states))
    for criterion, (actions, terms) in zip(criteria, by_trying, strict=True):
        optimal = mdp.optimal_policy(criterion)
        assert (optimal.optimal_actions == actions).all()
        assert_allclose(optimal.gain, terms[0], atol=1e-9)
        if criterion != "gain":
            assert_allclose(optimal.bias, terms[1], atol=1e-9)


@settings(max_examples=15)
@given(SEEDS)
def test_the_optimality_equations_hold_to_rounding(seed: int) -> None:
    mdp = small_mdp(seed)
    optimal = mdp.optimal_policy("bias")
    lacks = np.where(mdp.allowed_actions, 0.0, -np.inf)

    def ahead(y: Any) -> Any:
        return np.einsum("sak,sak->sa", mdp.probability, y[mdp.next_state]) + lacks

    assert_allclose(ahead(optimal.gain).max(axis=1), optimal.gain, atol=1e-12)
    conserves = ahead(optimal.gain) >= optimal.gain[:, None] - 1e-9
    value = np.where(conserves, mdp.expected_reward + ahead(optimal.bias), -np.inf)
    assert_allclose(value.max(axis=1), optimal.bias + optimal.gain, atol=1e-12)


@settings(max_examples=15)
@given(SEEDS)
def test_no_single_change_of_an_action_improves_gain_or_bias(seed: int) -> None:
    mdp = small_mdp(seed)
    optimal = mdp.optimal_policy("bias")
    for s, a in np.argwhere(mdp.allowed_actions):
        policy = optimal.policy.copy()
        policy[s] = a
        chain = mdp.induce(policy)
        assert (chain.gain_vector <= optimal.gain + 1e-9).all()
        if np.allclose(chain.gain_vector, optimal.gain, atol=1e-9):
            assert (chain.bias <= optimal.bias + 1e-9).all()


@settings(max_examples=15)
@given(SEEDS)
def test_the_blackwell_policy_is_optimal_for_discounts_near_one(seed: int) -> None:
    mdp = small_mdp(seed)
    blackwell = mdp.optimal_policy("blackwell")
    discount = 1.0 - 1e-4
    best = mdp.optimal_policy("discounted", discount)
    assert best.value is not None
    value = mdp.induce(blackwell.policy).discounted_value(discount)
    assert_allclose(value, best.value, rtol=1e-12, atol=1e-10)


@settings(max_examples=8)
@given(SEEDS)
def test_gains_never_fall_from_one_iteration_to_the_next(seed: int) -> None:
    mdp = small_mdp(seed)
    pairs = list_pairs(mdp)
    start = np.flatnonzero(pairs.action == mdp.random_policy(seed)[pairs.state])
    steps = iterate_policies(pairs, start, 0, None)
    gains = [mdp.induce(pairs.action[step.rows]).gain_vector for step in steps]
    for before, after in pairwise(gains):
        assert (after >= before - 1e-12).all()
    best = np.max([mdp.induce(policy).gain_vector for policy in mdp.policies()], axis=0)
    assert_allclose(gains[-1], best, atol=1e-9)


@settings(max_examples=12)
@given(SEEDS, st.sampled_from(["gain", "bias", "blackwell"]))
def test_renumbering_states_renumbers_the_answers(seed: int, criterion: Any) -> None:
    mdp = small_mdp(seed)
    order = np.random.default_rng(seed).permutation(mdp.n_states)
    moved = TabularMDP(
        np.argsort(order)[mdp.next_state][order],
        mdp.probability[order],
        mdp.reward[order],
        mdp.initial_distribution[order],
    )
    ours, theirs = mdp.optimal_policy(criterion), moved.optimal_policy(criterion)
    assert (ours.optimal_actions[order] == theirs.optimal_actions).all()
    assert_allclose(ours.gain[order], theirs.gain, atol=1e-12)
    if criterion != "gain":
        assert_allclose(ours.bias[order], theirs.bias, atol=1e-12)


@settings(max_examples=12)
@given(
    SEEDS, st.floats(-100.0, 100.0), st.sampled_from([1e-9, 0.1, 3.0, 1e9]), st.sampled_from([0, 1])
)
def test_scaled_and_shifted_rewards_scale_and_shift_the_values(
    seed: int, shift: float, scale: float, order: int
) -> None:
    mdp = small_mdp(seed)
    criterion: Any = ("bias", "blackwell")[order]
    changed = replace(mdp, reward=scale * (mdp.reward + shift))
    before, after = mdp.optimal_policy(criterion), changed.optimal_policy(criterion)
    assert_allclose(after.gain, scale * (before.gain + shift), rtol=1e-9, atol=1e-9 * scale)
    assert_allclose(after.bias, scale * before.bias, atol=1e-9 * scale)
    assert (after.optimal_actions == before.optimal_actions).all()


@settings(max_examples=12)
@given(SEEDS)
def test_the_worst_policy_is_optimal_for_opposite_rewards(seed: int) -> None:
    mdp = small_mdp(seed)
    worst = mdp.worst_policy("bias")
    opposite = replace(mdp, reward=-mdp.reward).optimal_policy("bias")
    assert_allclose(worst.gain, -opposite.gain, atol=1e-12)
    assert_allclose(worst.bias, -opposite.bias, atol=1e-12)
    assert (worst.optimal_actions == opposite.optimal_actions).all()


@settings(max_examples=6)
@given(SEEDS)
def test_the_diameter_is_the_longest_of_the_shortest_hitting_times(seed: int) -> None:
    mdp = small_mdp(seed)
    longest = 0.0
    for target in range(mdp.n_states):
        times = [mdp.induce(policy).hitting_time(target) for policy in mdp.policies()]
        longest = max(longest, np.min(times, axis=0).max())
    assert_allclose(mdp.diameter(), longest, rtol=1e-9)


def test_rewards_of_very_different_size_are_each_decided() -> None:
    # State 0 is paid in billions, state 1 in billionths, and neither reaches the other.
    P = np.zeros((2, 2, 2))
    P[0, :, 0] = P[1, :, 1] = 1.0
    R = np.array([[1e9, 2e9], [2e-9, 1e-9]])
    mdp = TabularMDP.from_arrays(P, R, [0.5, 0.5])
    for criterion in ("gain", "bias", "blackwell"):
        optimal = mdp.optimal_policy(criterion)
        assert optimal.policy.tolist() == [1, 0]
        assert optimal.optimal_actions.tolist() == [[False, True], [True, False]]
        assert optimal.undecided == ()


def test_a_tie_up_to_rounding_is_reported_with_its_size() -> None:
    P = np.ones((1, 2, 1))
    mdp = TabularMDP.from_arrays(P, [[0.1 + 0.2, 0.3]], [1.0])
    optimal = mdp.optimal_policy("blackwell")
    assert optimal.optimal_actions.all()
    assert optimal.precision == "exact"
    in_doubles = mdp.optimal_policy("blackwell", precision="double")
    assert in_doubles.optimal_actions.all()
    assert [pair[:2] for pair in in_doubles.undecided] == [(0, 1)]
    assert 0.0 < in_doubles.undecided[0].bound < 1e-15


def test_an_action_that_shows_its_cost_only_when_met_again_is_gain_optimal_in_passing() -> None:
    # 0 -> 1 -> 2 -> 2, all for nothing; waiting in 1 costs and leads on, waiting in 2 costs.
    transitions = [(0, 0, 1, 1.0, 0.0), (0, 1, 0, 0.5, -1.0), (0, 1, 1, 0.5, -1.0)]
    transitions += [(1, 0, 2, 1.0, 0.0), (1, 1, 0, 1.0, 0.0)]
    transitions += [(2, 0, 2, 1.0, 0.0), (2, 1, 2, 1.0, -1.0)]
    mdp = TabularMDP.from_transitions(transitions, [1.0, 0.0, 0.0])
    optimal = mdp.optimal_policy("gain")
    # Waiting in 0 is left for 1 and 2 in time; in 2 it would be for ever.
    assert optimal.optimal_actions.tolist() == [[True, True], [True, True], [True, False]]
    assert (optimal.optimal_actions == brute_force(mdp, (-1,))[0][0]).all()


def test_a_long_corridor_is_answered_state_by_state() -> None:
    # Going back is never optimal: what lies behind leads through the same state again.
    n = 20_000
    s = np.arange(n)
    to = np.stack([np.minimum(s + 1, n - 1), np.maximum(s - 1, 0)], axis=1)[:, :, None]
    reward = np.where(s[:, None, None] == n - 1, [[[1.0], [0.0]]], [[[0.0], [0.0]]])
    mdp = TabularMDP(to, np.ones((n, 2, 1)), reward, np.full(n, 1.0 / n))
    optimal = mdp.optimal_policy("gain")
    assert_allclose(optimal.gain, 1.0)
    assert optimal.optimal_actions[:, 0].all()
    assert not optimal.optimal_actions[:, 1].any()


def test_one_state_with_one_action_is_optimal() -> None:
    mdp = TabularMDP.from_arrays(np.ones((1, 1, 1)), [[3.0]], [1.0])
    for criterion in ("gain", "bias", "blackwell"):
        assert mdp.optimal_policy(criterion).gain == [3.0]
    assert mdp.optimal_policy("discounted", 0.5).value == pytest.approx([6.0])
    assert mdp.diameter() == 0.0


def test_the_table_names_criterion_margin_actions_and_values() -> None:
    text = str(make_mdp("h4").optimal_policy("bias"))
    first, head, row, *_ = text.splitlines()
    assert first.startswith("bias-optimal, ")
    assert head.split() == ["state", "action", "optimal", "actions", "gain", "bias"]
    assert row.split() == ["0", "1", "1", "13.3445", "-32.5191"]


BAD_ARGUMENTS: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
    (("best",), {}, "criterion must be one of 'gain', 'bias', 'blackwell', 'discounted'; got 'b"),
    (("discounted",), {}, "criterion='discounted' needs discount="),
    (("gain", 0.9), {}, "no other criterion takes one; got criterion='gain', discount=0.9"),
    (("discounted", 1.0), {}, "discount must be at least 0 and below 1; got 1.0"),
    (("discounted", float("nan")), {}, "discount must be at least 0 and below 1; got nan"),
    (
        ("gain",),
        {"tie_tolerance": 0.0},
        "tie_tolerance must be 'rounding' or between 0 and 1; got 0.0",
    ),
]


@pytest.mark.parametrize(("args", "options", "message"), BAD_ARGUMENTS)
def test_a_bad_argument_is_named(
    args: tuple[Any, ...], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidArgumentError) as error:
        make_mdp("h4").optimal_policy(*args, **options)
    assert message in str(error.value)


def test_the_diameter_of_many_states_is_refused() -> None:
    with pytest.raises(ModelTooLargeError, match="each of 1002 target states"):
        make_mdp("x1002").diameter()
