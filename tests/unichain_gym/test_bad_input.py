"""Plausible but wrong input: each value is refused by name, without side effects."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from unichain_gym import MarkovChain, TabularEnv, TabularMDP, TabularVectorEnv, make_mdp
from unichain_gym.cores import garnet, river_swim
from unichain_gym.errors import InvalidArgumentError, InvalidModelError
from unichain_gym.suite import attach_streams

ONE = np.ones((1, 1, 1))


def test_next_states_that_are_not_whole_are_refused():
    with pytest.raises(InvalidModelError, match=r"next_state must hold integers; got 0\.7"):
        TabularMDP(np.full((1, 1, 1), 0.7), ONE, ONE, ONE[0, 0])
    with pytest.raises(InvalidModelError, match="next_state must hold integers; got nan"):
        TabularMDP(np.full((1, 1, 1), np.nan), ONE, ONE, ONE[0, 0])


@pytest.mark.parametrize(
    ("ask", "shown"),
    [
        (lambda mdp, P: TabularMDP.from_gymnasium(P), r"got \{0: \{0: \["),
        (lambda mdp, P: mdp.optimal_policy(P), r"got \{0: \{0: \["),
        (lambda mdp, P: mdp.induce({0: 1}), r"got \{0: 1\}$"),
        (lambda mdp, P: mdp.uniform_chain.simulate(np.int64(-70), 0), "got -70$"),
        (lambda mdp, P: mdp.uniform_chain.simulate(1, np.zeros((1_000, 2))), r"got array\("),
        (lambda mdp, P: mdp.uniform_chain.discounted_value(np.float64(2.0)), r"got 2\.0\."),
    ],
)
def test_an_error_prints_only_as_much_of_a_value_as_tells_what_it_is(ask: Any, shown: str):
    mdp = make_mdp("h36c")
    with pytest.raises((InvalidArgumentError, InvalidModelError), match=shown) as caught:
        ask(mdp, TabularEnv(mdp).P)
    assert len(str(caught.value)) < 200
    assert "\n" not in str(caught.value)


def test_a_negative_probability_cannot_hide_behind_a_duplicate():
    with pytest.raises(InvalidModelError, match=r"invalid probability.*-0\.5"):
        TabularMDP.from_transitions([(0, 0, 0, 1.5, 0.0), (0, 0, 0, -0.5, 0.0)], [1.0])


@pytest.mark.parametrize("state", [np.nan, np.inf, -1.0, 0.5, 1e300])
def test_transitions_name_the_one_with_an_impossible_state(state: float):
    with pytest.raises(InvalidModelError, match=r"transition 1 is \(0\.0, 0\.0"):
        TabularMDP.from_transitions([(0, 0, 0, 0.5, 0.0), (0, 0, state, 0.5, 0.0)], [1.0])


def test_rewards_at_both_ends_of_the_doubles_stay_apart():
    mdp = TabularMDP.from_transitions([(0, 0, 0, 0.5, 1.7e308), (0, 0, 0, 0.5, -1.7e308)], [1.0])
    assert sorted(mdp.reward.ravel()) == [-1.7e308, 1.7e308]


@pytest.mark.parametrize(
    ("build", "what"),
    [
        (lambda: TabularMDP.from_arrays("x", [[0.0]], [1.0]), "P, unless a list"),
        (lambda: TabularMDP.from_arrays(ONE, "x", [1.0]), "R"),
        (lambda: TabularMDP.from_arrays(ONE + 1j, [[0.0]], [1.0]), "P, unless a list"),
        (lambda: TabularMDP.from_transitions([(0, 0, 0, 1.0), (0, 0, 0, 1.0, 0)], [1.0]), "transi"),
        (lambda: MarkovChain([[1.0], [0.0, 1.0]], [0.0, 0.0], [1.0, 0.0]), "transition_matrix"),
        (lambda: make_mdp("h3").induce(np.full((3, 2), 0.5 + 1j)), "action probabilities"),
        (lambda: make_mdp("h6", advance_probs=[[0.1], [0.1, 0.2]]), "advance_probs"),
    ],
)
def test_anything_but_an_array_of_real_numbers_is_named(build: Any, what: str):
    with pytest.raises(InvalidModelError, match=f"{what}.* must be an array of real numbers"):
        build()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: river_swim(6.5), "n_states must be an integer; got 6.5"),  # type: ignore[arg-type]
        (lambda: garnet(branching=2.5), "branching must be"),  # type: ignore[arg-type]
        (lambda: garnet(seed=None), "seed must be an integer; got None"),  # type: ignore[arg-type]
        (lambda: garnet(seed=-1), "seed must not be negative; got -1"),
        (lambda: attach_streams(make_mdp("h3"), "2", 3), "n_streams must be"),  # type: ignore[arg-type]
    ],
)
def test_builders_want_whole_numbers(build: Any, message: str):
    with pytest.raises(InvalidModelError, match=message):
        build()


def test_answers_and_models_are_read_only():
    mdp = make_mdp("h6")
    pi = np.full((6, 2), 0.5)
    chain = mdp.induce(pi)
    P = chain.transition_matrix
    arrays: list[Any] = [P.data, P.indices, P.indptr, chain.reward, chain.policy]
    arrays += [chain.initial_distribution]
    arrays += [*chain.recurrent_classes, chain.recurrent_states, chain.transient_states]
    arrays += [chain.class_periods, chain.stationary_distribution, chain.gain_vector, chain.bias]
    arrays += [chain.action_bias, chain.deviation_matrix, chain.mean_absorption_time]
    arrays += [chain.expected_visits, mdp.next_state, mdp.probability, mdp.reward]
    arrays += [mdp.initial_distribution, mdp.expected_reward, mdp.outcome_thresholds]
    arrays += [mdp.state_classes, mdp.allowed_actions]
    for array in arrays:
        with pytest.raises(ValueError, match="read-only"):
            array[...] = array
    pi[0] = [1.0, 0.0]  # what was given stays the caller's
    assert chain.policy is not None
    assert chain.policy[0].tolist() == [0.5, 0.5]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"generator": None}, "generator is not one of PCG64"),
        ({"generator": np.random.MT19937(0).state}, "generator is not one of PCG64"),
        ({"state": 99}, "must be from 0 to 5; got 99"),
    ],
)
@pytest.mark.parametrize("kind", [TabularEnv, TabularVectorEnv])
def test_a_snapshot_that_does_not_fit_changes_nothing(kind: Any, change: Any, message: str):
    env = kind(make_mdp("h6"))
    env.reset(seed=0)
    before = env.get_state()
    with pytest.raises(InvalidArgumentError, match=message):
        env.set_state({**before, "state": 5, "timestep": before["timestep"] + 7, **change})
    assert env.get_state() == before


def test_a_snapshot_must_be_complete_and_of_as_many_environments():
    mdp = make_mdp("h6")
    with pytest.raises(InvalidArgumentError, match="lacks timestep, generator"):
        TabularEnv(mdp).set_state({"state": 1})
    with pytest.raises(InvalidArgumentError, match="snapshot is of 2 environments; these are 3"):
        TabularVectorEnv(mdp, 3).set_state(TabularVectorEnv(mdp, 2).get_state())
