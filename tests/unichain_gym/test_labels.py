"""Labeled tables, states and actions by name, and refusals of contradictions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from unichain_gym import MarkovChain, TabularEnv, TabularMDP, make_mdp, register_mnemonics
from unichain_gym.errors import (
    InvalidArgumentError,
    InvalidModelError,
    ModelTooLargeError,
    MulticlassError,
)

STATES = ["runs", "broken", "idle"]
P = np.array([[0.9, 0.1, 0.0], [0.5, 0.0, 0.5], [1.0, 0.0, 0.0]])
FRAME = pd.DataFrame(P, STATES, STATES)
REWARD = pd.Series([6.0, 0.0, 1.0], STATES)
START = pd.Series([1.0, 0.0, 0.0], STATES)
CHAIN = MarkovChain(FRAME, REWARD, START)

ROWS = [
    ("runs", "slow", "runs", 0.95, 4.0),
    ("runs", "slow", "broken", 0.05, 4.0),
    ("runs", "fast", "runs", 0.9, 6.0),
    ("runs", "fast", "broken", 0.1, 6.0),
    ("broken", "slow", "runs", 1.0, 0.0),
]
TABLE = pd.DataFrame(ROWS, columns=["state", "action", "next_state", "probability", "reward"])
MDP = TabularMDP.from_transitions(TABLE, pd.Series([1.0, 0.0], STATES[:2]))


def test_labels_of_tables_are_names() -> None:
    assert CHAIN.state_names == tuple(STATES)
    numbered = MarkovChain(pd.DataFrame(P), pd.Series(REWARD.to_numpy()), [1.0, 0.0, 0.0])
    assert numbered.state_names == range(3)
    by_action = [FRAME, FRAME.iloc[:, ::-1].loc[:, STATES]]
    pay = pd.DataFrame([[1.0, 2.0]] * 3, STATES, ["slow", "fast"])
    mdp = TabularMDP.from_arrays(by_action, pay, START, order="ass")
    assert (mdp.state_names, mdp.action_names) == (tuple(STATES), ("slow", "fast"))
    np.testing.assert_array_equal(mdp.expected_reward, pay.to_numpy())


@pytest.mark.parametrize(
    "transitions", [TABLE, ROWS, TABLE.to_records(index=False), TABLE.iloc[:, ::-1]]
)
def test_transitions_are_read_by_name_from_any_container(transitions: Any) -> None:
    mdp = TabularMDP.from_transitions(transitions, [1.0, 0.0], state_names=STATES[:2])
    assert (mdp.state_names, mdp.action_names) == (("runs", "broken"), ("slow", "fast"))
    numbers = [(STATES.index(s), int(a == "fast"), STATES.index(n), p, r) for s, a, n, p, r in ROWS]
    expected = TabularMDP.from_transitions(numbers, [1.0, 0.0])
    for field in ("next_state", "probability", "reward"):
        np.testing.assert_array_equal(getattr(mdp, field), getattr(expected, field))


def test_tables_of_classes_and_paths_show_names() -> None:
    chain = MDP.induce([0, 0])
    assert str(chain.classify()).endswith("runs, broken")
    assert "<td>slow</td>" in chain.simulate(3, seed=0)._repr_html_()
    still = MarkovChain(pd.DataFrame(np.eye(3), STATES, STATES), REWARD, START)
    with pytest.raises(MulticlassError, match=r"\{runs\}, \{broken\}, \{idle\}"):
        _ = still.gain


def test_names_stay_in_files_and_restrictions(tmp_path: Any) -> None:
    MDP.save(tmp_path / "shop.npz")
    for mdp in (TabularMDP.load(tmp_path / "shop.npz"), MDP.reachable()):
        assert (mdp.state_names, mdp.action_names) == (("runs", "broken"), ("slow", "fast"))
    assert TabularMDP.from_gymnasium(TabularEnv(MDP)).action_names == ("slow", "fast")


SWAPPED = ["broken", "runs", "idle"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MarkovChain(FRAME[SWAPPED], REWARD, START), "the columns of transition_matrix"),
        (lambda: MarkovChain(pd.DataFrame(P)[[1, 0, 2]], P[0], P[0]), "the rows of transition_mat"),
        (lambda: MarkovChain(pd.DataFrame(P).iloc[::-1], P[0], P[0]), "the columns of transition"),
        (lambda: MarkovChain(FRAME, REWARD[SWAPPED], START), "reward and the rows of trans"),
        (lambda: MarkovChain(FRAME, REWARD, START[SWAPPED]), "initial_distribution and the rows"),
        (lambda: MarkovChain(FRAME, REWARD, START, state_names=SWAPPED), "and state_names"),
        (lambda: TabularMDP.from_arrays([FRAME], REWARD[SWAPPED], START, order="ass"), "R and"),
        (lambda: MDP.induce(pd.Series([0, 1], ["broken", "runs"])), "the policy and state_names"),
        (lambda: MDP.induce(pd.DataFrame(np.eye(2), columns=["fast", "slow"])), "and action_names"),
        (lambda: make_mdp("h3").induce(pd.Series([0, 1, 0], [2, 1, 0])), "the policy and state_n"),
        (lambda: CHAIN.finite_horizon_value(2, REWARD[SWAPPED]), "terminal and state_names"),
        (lambda: CHAIN.plot(values=REWARD[SWAPPED]), "values and state_names"),
    ],
)
def test_labels_that_contradict_each_other_are_refused(make: Any, message: str) -> None:
    with pytest.raises(InvalidModelError, match=f"{message}.* disagree on the (states|actions)"):
        make()


MASKED = np.ma.masked_array([6.0, 99.0, 1.0], mask=[False, True, False])


@pytest.mark.parametrize(
    "make",
    [
        lambda: MarkovChain(P, MASKED, [1.0, 0.0, 0.0]),
        lambda: MarkovChain(np.ma.masked_array(P, P == 0.0), REWARD, START),
        lambda: MarkovChain(P, [1.0, np.ma.masked, 0.0], [1.0, 0.0, 0.0]),  # type: ignore[arg-type]
        lambda: TabularMDP.from_arrays([P], MASKED, [1.0, 0.0, 0.0], order="ass"),
        lambda: make_mdp("h3").induce(np.ma.masked_array([0, 1, 0], mask=[False, False, True])),
        lambda: CHAIN.hitting_time(np.ma.masked_array([0, 1], mask=[False, True])),
    ],
)
def test_masked_entries_are_refused(make: Any) -> None:
    with pytest.raises(InvalidModelError, match=r"has masked entries.* fill them in"):
        make()


def test_a_masked_array_without_masked_entries_is_an_array() -> None:
    chain = MarkovChain(P, np.ma.masked_array([6.0, 0.0, 1.0]), [1.0, 0.0, 0.0])
    assert chain.gain == CHAIN.gain


def test_states_go_by_number_name_or_mask() -> None:
    for states in (1, "broken", ["broken"], [False, True, False], CHAIN.reward == 0.0):
        np.testing.assert_array_equal(CHAIN.hitting_time(states), CHAIN.hitting_time([1]))
    both = CHAIN.hitting_probability(["broken", "idle"], avoiding="runs")
    np.testing.assert_array_equal(both, CHAIN.hitting_probability([1, 2], 0))
    assert CHAIN.class_of("idle") == 0
    np.testing.assert_array_equal(CHAIN.relative_value("runs"), CHAIN.relative_value(0))
    assert CHAIN.reachable("runs").n_states == 3
    assert MDP.reachable("broken").initial_distribution.tolist() == [0.0, 1.0]
    assert TabularEnv(MDP).reset(options={"state": "broken"})[0] == 1
    np.testing.assert_array_equal(MDP.check_policy(["fast", "slow"]), [[0, 1], [1, 0]])
    with pytest.raises(InvalidModelError, match=r"state 'brokn': .*\(did you mean 'broken'\?\)"):
        CHAIN.hitting_time("brokn")
    with pytest.raises(InvalidModelError, match="state 'a': states have no names"):
        make_mdp("h3").induce([0, 0, 0]).hitting_time("a")
    with pytest.raises(InvalidModelError, match="a mask of 3 booleans with at least one True"):
        CHAIN.hitting_time([False] * 3)


def test_sparse_rewards_are_those_of_their_dense_form() -> None:
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.ones(4), (2, 4)) * (rng.random((2, 4, 4)) < 0.7)
    P[:, :, 0] += 1.0 - P.sum(axis=2)
    R = rng.normal(size=(2, 4, 4)) * (rng.random((2, 4, 4)) < 0.5)
    start = [1.0, 0.0, 0.0, 0.0]
    expected = TabularMDP.from_arrays(P, R, start, order="ass")
    for kind in (sparse.csr_array, sparse.coo_matrix, sparse.csc_array):
        for dense in (P, list(map(sparse.csr_array, P))):
            mdp = TabularMDP.from_arrays(dense, [kind(r) for r in R], start, order="ass")
            np.testing.assert_array_equal(mdp.to_arrays()[1], expected.to_arrays()[1])
    by_action = R[:, :, 0].T
    mdp = TabularMDP.from_arrays(P, sparse.csr_array(by_action), start, order="ass")
    np.testing.assert_allclose(mdp.expected_reward, by_action, rtol=1e-15)
    with pytest.raises(InvalidModelError, match=r"R as a list of sparse .* for each of the 2 act"):
        TabularMDP.from_arrays(P, [sparse.csr_array(R[0])], start, order="ass")


def test_a_chain_does_not_change() -> None:
    chain = make_mdp("h3").induce([0, 0, 0])
    for name in ("reward", "bias", "transition_matrix", "mdp", "color"):
        with pytest.raises(AttributeError, match=f"'{name}' of a chain cannot be set. Make anoth"):
            setattr(chain, name, None)
    with pytest.raises(AttributeError, match="cannot be deleted"):
        del chain.reward


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: TabularMDP.from_transitions(None, [1.0]),  # type: ignore[arg-type]
            InvalidModelError,
            "got None",
        ),
        (
            lambda: TabularMDP.from_transitions(TABLE.drop(columns="reward"), [1.0, 0.0]),
            InvalidModelError,
            "columns state, action, next_state, probability, reward; it lacks reward",
        ),
        (
            lambda: TabularMDP.from_transitions([(0, 2**31 - 1, 0, 1.0, 0.0)], [1.0]),
            ModelTooLargeError,
            "number actions without gaps",
        ),
        (
            lambda: TabularMDP.from_gymnasium(TabularEnv(MDP).P),  # type: ignore[arg-type]
            InvalidArgumentError,
            "needs the environment itself, .* not its id or its table",
        ),
        (
            lambda: CHAIN.discounted_value(".9"),  # type: ignore[arg-type]
            InvalidArgumentError,
            "discount must be a number; got '.9'",
        ),
        (
            lambda: CHAIN.mixing_time(None),  # type: ignore[arg-type]
            InvalidArgumentError,
            "tol must be a number; got None",
        ),
        (
            lambda: CHAIN.simulate(True, 0),
            InvalidArgumentError,
            "n_steps must be an integer; got True",
        ),
        (
            lambda: MarkovChain(P, ["6", "0", "1"], [1.0, 0.0, 0.0]),
            InvalidModelError,
            r"reward must be an array of real numbers: got \['6', '0', '1'\]",
        ),
        (lambda: register_mnemonics("h6"), InvalidArgumentError, r"such as \['h6'\]; got 'h6'"),
    ],
)
def test_the_error_names_the_value_and_the_remedy(make: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        make()
