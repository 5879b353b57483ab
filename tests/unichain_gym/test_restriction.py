"""Chains and MDPs restricted to what can be reached, and refusals that point there."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from scipy import sparse

from unichain_gym import MarkovChain, TabularMDP, make_mdp
from unichain_gym.errors import InvalidModelError, MulticlassError

# An absorbing state that the start cannot reach.
APART = MarkovChain([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]], (1, 0, 5), (1, 0, 0))


@pytest.fixture(scope="module")
def mdp() -> TabularMDP:
    """Action 0 stays in {a, b}, action 1 leads from b to c, from where there is no way back."""
    transitions = [
        (0, 0, 1, 1.0, 1.0),
        (0, 1, 0, 1.0, 0.0),
        (1, 0, 0, 0.5, 2.0),
        (1, 0, 1, 0.5, 0.0),
        (1, 1, 2, 0.5, 9.0),
        (1, 1, 0, 0.5, 9.0),
        (2, 0, 2, 1.0, 3.0),
        (3, 1, 0, 1.0, 4.0),
    ]
    return TabularMDP.from_transitions(transitions, [1, 0, 0, 0], state_names=["a", "b", "c", "d"])


def test_reachable_states_are_the_descendants_of_the_start(chain: MarkovChain) -> None:
    graph = nx.from_scipy_sparse_array(chain.transition_matrix, create_using=nx.DiGraph)
    for s in range(chain.n_states):
        part = chain.reachable(s)
        assert list(part.state_names) == sorted(nx.descendants(graph, s) | {s})
        assert part.initial_distribution[part.state_names.index(s)] == 1.0
        kept = np.array(part.state_names, dtype=int)
        np.testing.assert_array_equal(part.reward, chain.reward[kept])
        np.testing.assert_array_equal(
            part.transition_matrix.toarray(), chain.transition_matrix.toarray()[np.ix_(kept, kept)]
        )
        np.testing.assert_allclose(part.gain_vector, chain.gain_vector[kept], atol=1e-10)


def test_a_chain_that_reaches_all_its_states_is_kept_whole(chain: MarkovChain) -> None:
    whole = chain.reachable()
    assert whole.n_states == chain.n_states
    np.testing.assert_array_equal(whole.bias, chain.bias)
    np.testing.assert_array_equal(whole.initial_distribution, chain.initial_distribution)


def test_several_states_to_start_from_are_equally_likely() -> None:
    part = APART.reachable([2, 0, 2])
    assert part.state_names == (0, 1, 2)
    np.testing.assert_array_equal(part.initial_distribution, [0.5, 0.0, 0.5])
    assert APART.reachable(2).state_names == (2,)


def test_names_survive_restriction_after_restriction() -> None:
    P = np.diag(np.ones(3), 1)
    P[3, 3] = 1.0
    numbered = MarkovChain(P, np.arange(4), [0, 1, 0, 0])
    assert numbered.state_names == range(4)
    assert numbered.reachable().reachable(1).state_names == (2, 3)
    named = MarkovChain(P, np.arange(4), [0, 1, 0, 0], state_names=["a", "b", "c", "d"])
    assert named.reachable().reachable(1).state_names == ("c", "d")
    with pytest.raises(InvalidModelError, match="state_names"):
        MarkovChain(P, np.arange(4), [0, 1, 0, 0], state_names=["a"])


@pytest.mark.parametrize(
    "quantity",
    [
        lambda c: c.gain,
        lambda c: c.relative_value(0),
        lambda c: c.kemeny_constant,
        lambda c: c.variance,
        lambda c: c.asymptotic_variance(),
        lambda c: c.mixing_time(start="worst"),
    ],
)
def test_quantities_of_the_reachable_part_are_refused_with_a_remedy(quantity) -> None:
    message = r"reaches only \{0, 1\}: chain\.reachable\(\), without the states"
    with pytest.raises(MulticlassError, match=message):
        quantity(APART)
    quantity(APART.reachable())


def test_the_reachable_part_has_the_refused_quantities() -> None:
    part = APART.reachable()
    assert part.gain == 0.5
    np.testing.assert_allclose(part.relative_value(1), [1.0, 0.0])
    assert part.kemeny_constant == pytest.approx(1.0)


def test_a_start_that_reaches_both_classes_gets_no_such_advice() -> None:
    both = MarkovChain(np.eye(2), [1.0, 0.0], [0.25, 0.75])
    with pytest.raises(MulticlassError) as caught:
        _ = both.gain
    assert "reachable" not in str(caught.value)


def test_an_mdp_keeps_the_states_that_some_action_can_reach(mdp: TabularMDP) -> None:
    part = mdp.reachable()
    assert part.state_names == ("a", "b", "c")
    assert part.allowed_actions.tolist() == [[True, True], [True, True], [True, False]]
    for policy in part.policies():
        theirs = mdp.induce([*policy, 1])
        ours = part.induce(policy)
        np.testing.assert_array_equal(ours.gain_vector, theirs.gain_vector[:3])
        np.testing.assert_allclose(ours.bias, theirs.bias[:3], atol=1e-15)
    assert mdp.reachable(2).state_names == ("c",)
    assert mdp.reachable([3]).n_states == 4
    with pytest.raises(InvalidModelError, match="state 4 does not exist"):
        mdp.reachable(4)


def test_the_mdp_of_a_reachable_chain_lacks_the_actions_that_lead_out(mdp: TabularMDP) -> None:
    chain = mdp.induce([0, 0, 0, 1])
    part = chain.reachable()
    assert part.state_names == ("a", "b")
    assert isinstance(part.mdp, TabularMDP)
    assert part.policy is not None
    assert part.mdp.state_names == ("a", "b")
    assert part.mdp.allowed_actions.tolist() == [[True, True], [True, False]]
    again = part.mdp.induce(part.policy)
    np.testing.assert_array_equal(
        again.transition_matrix.toarray(), part.transition_matrix.toarray()
    )
    np.testing.assert_array_equal(again.reward, part.reward)
    # Of the actions that stay, the bias is what it was, relative to the class.
    kept = part.mdp.allowed_actions
    np.testing.assert_allclose(part.action_bias[kept], chain.action_bias[:2][kept], atol=1e-14)
    assert part.asymptotic_variance() > 0.0


def test_numbers_stand_for_names_of_an_mdp_without_any() -> None:
    mdp = make_mdp("h36c")
    assert mdp.reachable().n_states == 36
    part = mdp.reachable(10)
    assert part.state_names == (10, 33, 34, 35)
    chain = part.induce(np.zeros(4, dtype=int))
    assert chain.state_names == (10, 33, 34, 35)
    np.testing.assert_allclose(
        chain.bias, mdp.induce(np.zeros(36, dtype=int)).bias[[10, 33, 34, 35]], rtol=1e-12
    )


def test_one_class_of_a_large_chain_is_cut_out() -> None:
    n = 200_000
    s = np.arange(n)
    P = sparse.csr_array((np.ones(n), (s, (s + 2) % n)), shape=(n, n))
    part = MarkovChain(P, s % 2, s == 3).reachable()
    assert part.n_states == n // 2
    assert part.state_names[:3] == (1, 3, 5)
    assert part.period == n // 2
