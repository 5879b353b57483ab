"""Building, converting and storing MDPs."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike
from scipy import sparse

from unichain_gym import TabularMDP, make_mdp
from unichain_gym.errors import InvalidArgumentError, InvalidModelError, ModelTooLargeError

TWO_STATES = np.array([[[0.5, 0.5], [0.0, 1.0]], [[1.0, 0.0], [0.25, 0.75]]])


def random_mdp(seed: int) -> TabularMDP:
    rng = np.random.default_rng(seed)
    S, A = rng.integers(1, 7, size=2)
    P = rng.random((S, A, S)) * (rng.random((S, A, S)) < 0.6)
    P[P.sum(axis=2) == 0.0, 0] = 1.0
    P /= P.sum(axis=2, keepdims=True)
    return TabularMDP.from_arrays(P, rng.normal(size=(S, A, S)), rng.dirichlet(np.ones(S)))


def assert_same(one: TabularMDP, other: TabularMDP) -> None:
    for ours, theirs in zip(one.to_arrays(), other.to_arrays(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-15, atol=1e-15)


@given(st.integers(0, 10_000))
@settings(max_examples=20)
def test_arrays_and_transitions_round_trip(seed: int) -> None:
    mdp = random_mdp(seed)
    P, R, initial = mdp.to_arrays()
    assert_same(mdp, TabularMDP.from_arrays(P, R, initial))
    by_action = [sparse.csr_matrix(P[:, a]) for a in range(mdp.n_actions)]
    assert_same(mdp, TabularMDP.from_arrays(by_action, R, initial))
    s, a, k = np.nonzero(P)
    transitions = np.column_stack((s, a, k, P[s, a, k], R[s, a, k])).tolist()
    assert_same(mdp, TabularMDP.from_transitions(transitions, initial))


@given(st.integers(0, 10_000))
@settings(max_examples=8)
def test_induced_chain_is_the_average_over_actions(seed: int) -> None:
    mdp = random_mdp(seed)
    P, R, initial = mdp.to_arrays()
    for deterministic in (True, False):
        policy = mdp.random_policy(seed, deterministic=deterministic)
        pi = mdp.check_policy(policy)
        chain = mdp.induce(policy)
        expected = np.einsum("sa,sax->sx", pi, P)
        np.testing.assert_allclose(chain.transition_matrix.toarray(), expected, atol=1e-15)
        np.testing.assert_allclose(
            chain.reward, np.einsum("sa,sax,sax->s", pi, P, R), rtol=1e-12, atol=1e-14
        )
        np.testing.assert_array_equal(chain.initial_distribution, initial)


@pytest.mark.parametrize(
    ("R", "expected"),
    [
        ([1.0, 2.0], [[1.0, 1.0], [2.0, 2.0]]),
        ([[1.0, 2.0], [3.0, 4.0]], [[1.0, 2.0], [3.0, 4.0]]),
        (np.arange(8.0).reshape(2, 2, 2), [[0.5, 3.0], [4.0, 6.75]]),
    ],
)
def test_rewards_may_depend_on_state_action_and_outcome(R: ArrayLike, expected: ArrayLike) -> None:
    mdp = TabularMDP.from_arrays(TWO_STATES, R, [1.0, 0.0])
    np.testing.assert_array_equal(mdp.expected_reward, expected)


def test_duplicate_outcomes_merge_and_impossible_ones_drop() -> None:
    transitions = [(0, 0, 0, 0.25, 1.0)] * 3 + [(0, 0, 0, 0.25, 5.0), (0, 0, 0, 0.0, 9.0)]
    mdp = TabularMDP.from_transitions(transitions, [1.0])
    np.testing.assert_array_equal(mdp.probability, [[[0.75, 0.25]]])
    np.testing.assert_array_equal(mdp.reward, [[[1.0, 5.0]]])
    assert mdp.expected_reward[0, 0] == 2.0


def test_unreachable_states_one_state_and_one_action_are_fine() -> None:
    transitions = [(0, 0, 0, 1.0, 3.0), (1, 0, 0, 1.0, 0.0)]
    chain = TabularMDP.from_transitions(transitions, [1.0, 0.0]).induce([0, 0])
    assert chain.gain == 3.0
    assert chain.expected_visits.tolist() == [np.inf, 0.0]


def test_row_sums_may_miss_one_by_rounding_in_proportion_to_the_outcomes() -> None:
    n = 1_000
    P = np.full((1, n), (1.0 + 1e-11) / n)
    P = np.broadcast_to(P, (n, 1, n))
    assert TabularMDP.from_arrays(P, np.zeros(n), np.eye(n)[0]).n_states == n
    with pytest.raises(InvalidModelError, match=r"state 0, action 0 sum to 1\.00000000001 \(resid"):
        TabularMDP.from_arrays([[[1.0 + 1e-11]]], [0.0], [1.0])


@pytest.mark.parametrize(
    ("P", "R", "message"),
    [
        (np.ones((2, 2)), [0, 0], r"list of one sparse \(S, S\) matrix per action; got shape"),
        (np.ones((2, 1, 3)) / 3, [0, 0], r"got shape \(2, 1, 3\)"),
        (TWO_STATES, [0, 0, 0], r"R has shape \(2, 2\), \(2, 2, 2\) or \(2,\) .* got \(3,\)"),
        ([sparse.identity(2), sparse.identity(3)], [0, 0], r"of action 1 is \(3, 3\)"),
        (TWO_STATES * [1.0, 0.5], [0, 0], r"state 0, action 0 sum to 0\.75 \(residual -0\.25\)"),
        (TWO_STATES, [np.nan, 0.0], "state 0, action 0 has a reward that is not finite"),
    ],
)
def test_arrays_that_make_no_mdp_are_refused(P: Any, R: ArrayLike, message: str) -> None:
    with pytest.raises(InvalidModelError, match=message):
        TabularMDP.from_arrays(P, R, [1.0, 0.0])


@pytest.mark.parametrize(
    ("transitions", "message"),
    [
        ([], "at least one"),
        ([(0, 0, 0, 1.0)], "tuples"),
        (
            [(0, 0, 2, 1.0, 0.0)],
            r"transition 0 is \(0\.0, 0\.0, 2\.0, 1\.0, 0\.0\); states are 0 to 1",
        ),
        ([(0, 0, 0, 1.0, 0.0), (1, -1, 0, 1.0, 0.0)], "transition 1 is"),
        ([(0, 0.5, 0, 1.0, 0.0)], "actions are integers from 0"),
        ([(0, 0, 0, 1.0, 0.0)], r"state 1 has no action; each state needs one"),
    ],
)
def test_transitions_that_make_no_mdp_are_refused(transitions: Any, message: str) -> None:
    with pytest.raises(InvalidModelError, match=message):
        TabularMDP.from_transitions(transitions, [1.0, 0.0])


def test_dense_arrays_of_a_large_mdp_are_refused_with_their_size() -> None:
    with pytest.raises(ModelTooLargeError, match=r"20003 states and 2 actions would take 12\.8 GB"):
        make_mdp("h20003").to_arrays()


@pytest.mark.parametrize("name", ["FrozenLake", "Taxi", "CliffWalking"])
@pytest.mark.parametrize("on_termination", ["absorb", "restart"])
def test_toy_text_environments_step_like_their_mdp(name: str, on_termination: Any) -> None:
    env_id = max(id for id in gymnasium.registry if id.startswith(f"{name}-v"))
    env = gymnasium.make(env_id)
    mdp = TabularMDP.from_gymnasium(env, on_termination=on_termination)
    assert mdp.name == env_id
    assert mdp.n_states == env.observation_space.n  # type: ignore[attr-defined]
    assert mdp.n_actions == env.action_space.n  # type: ignore[attr-defined]
    P, R, initial = mdp.to_arrays()
    rng = np.random.default_rng(0)
    state, _ = env.reset(seed=0)
    assert initial[state] > 0.0
    endings = 0
    for _ in range(3_000):
        action = int(rng.integers(mdp.n_actions))
        following, reward, terminated, truncated, _ = env.step(action)
        assert P[state, action, following] > 0.0
        assert R[state, action, following] == reward
        if terminated:
            stays = np.eye(mdp.n_states)[following]
            after = stays if on_termination == "absorb" else initial
            np.testing.assert_array_equal(P[following], np.tile(after, (mdp.n_actions, 1)))
            np.testing.assert_array_equal(R[following], 0.0)
            endings += 1
        state = following
        if terminated or truncated:
            state, _ = env.reset()
    assert endings > 0 or name == "CliffWalking"
    env.close()


def test_frozen_lake_has_its_known_success_probability() -> None:
    # The best policy of the slippery 4x4 lake reaches the goal with probability 14/17.
    env = gymnasium.make("FrozenLake-v1")
    best = [0, 3, 3, 3, 0, 0, 0, 0, 3, 1, 0, 0, 0, 2, 1, 0]
    absorbed = TabularMDP.from_gymnasium(env).induce(best)
    into = absorbed.absorption_probabilities()[0, absorbed.class_of(15)]
    assert into == pytest.approx(14 / 17, rel=1e-12)
    # Restarting, it is a renewal process: one success in each E[steps] + 1 steps to reset.
    continuing = TabularMDP.from_gymnasium(env, on_termination="restart")
    chain = continuing.induce(best)
    assert chain.gain == pytest.approx(into / (absorbed.mean_absorption_time[0] + 1.0), rel=1e-12)
    assert continuing.is_unichain() is True
    assert TabularMDP.from_gymnasium(env).is_unichain() is False


def test_cliff_walk_that_restarts_earns_its_length_every_round() -> None:
    # Up, eleven times right, down: 13 steps of reward -1, and one to restart.
    env = gymnasium.make(max(id for id in gymnasium.registry if id.startswith("CliffWalking-v")))
    continuing = TabularMDP.from_gymnasium(env, on_termination="restart")
    policy = np.r_[np.full(24, 2), np.ones(11), 2, np.zeros(12)].astype(int)
    chain = continuing.induce(policy)
    assert chain.gain == pytest.approx(-13 / 14, rel=1e-14)
    assert chain.period == 14
    assert TabularMDP.from_gymnasium(env).induce(policy).mean_absorption_time[36] == 13.0


class Tabled(gymnasium.Env[Any, Any]):
    """An environment that is its table."""

    def __init__(self, P: Any, **attributes: Any) -> None:
        self.P = P
        self.__dict__.update(attributes)


def test_environments_without_a_table_or_start_are_refused() -> None:
    with pytest.raises(InvalidModelError, match=r"has no transition table P\[state\]\[action\]"):
        TabularMDP.from_gymnasium(gymnasium.make("CartPole-v1"))
    table = {0: {0: [(1.0, 1, 1.0, True)]}, 1: {0: [(1.0, 1, 0.0, True)]}}
    with pytest.raises(InvalidModelError, match="has no initial distribution"):
        TabularMDP.from_gymnasium(Tabled(table))
    mdp = TabularMDP.from_gymnasium(Tabled(table), initial=[1.0, 0.0])
    assert mdp.induce([0, 0]).stationary_distribution.tolist() == [0.0, 1.0]
    with pytest.raises(InvalidArgumentError, match="'absorb' or 'restart'; got 'stop'"):
        TabularMDP.from_gymnasium(Tabled(table), on_termination="stop")  # type: ignore[arg-type]
    with pytest.raises(InvalidModelError, match=r"initial must have shape \(2,\)"):
        TabularMDP.from_gymnasium(Tabled(table), initial=[1.0])
    table[0][0] = [(0.5, 1, 1.0, True), (0.5, 1, 1.0, False)]
    with pytest.raises(InvalidModelError, match="state 1 is entered with and without terminating"):
        TabularMDP.from_gymnasium(Tabled(table), initial=[1.0, 0.0])
