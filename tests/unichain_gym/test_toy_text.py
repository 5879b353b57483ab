"""MDPs from environments that carry a table: what it holds, and what they do beyond it."""

from __future__ import annotations

import threading
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import TransformObservation, TransformReward

from unichain_gym import TabularEnv, TabularMDP, make_mdp
from unichain_gym.errors import InvalidModelError


class Coin(gym.Env[Any, Any]):
    """Two states; either action moves to one of them by a coin, and 1 pays 1."""

    def __init__(self, *, first: int = 0, pays: float = 1.0, ends: bool = False) -> None:
        self.observation_space = gym.spaces.Discrete(2)
        self.action_space = gym.spaces.Discrete(2)
        self.first, self.pays, self.ends = first, pays, ends
        self.initial_state_distrib = [1.0, 0.0]
        self.P: dict[int, dict[int, list[Any]]] = {
            s: {a: [(0.5, n, float(a), False) for n in range(2)] for a in range(2)}
            for s in range(2)
        }

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        return self.first, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        return int(self.np_random.integers(2)), self.pays * action, self.ends, False, {}


def test_an_environment_that_keeps_to_its_table_is_read_and_left_as_it_was():
    env = Coin()
    env.reset(seed=5)
    before = env.np_random.bit_generator.state
    mdp = TabularMDP.from_gymnasium(env)
    assert env.np_random.bit_generator.state == before
    assert mdp.expected_reward.tolist() == [[0.0, 1.0]] * 2
    assert mdp.initial_distribution.tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"first": 1}, "started in state 1, of which its initial distribution says that it never"),
        ({"pays": 2.0}, r"led to state \d with reward 2\.0 and terminated False, and the table"),
        ({"ends": True}, r"with reward .* and terminated True, and the table lists \[\(0\.5, 0"),
    ],
)
def test_an_environment_that_contradicts_its_table_is_refused(options: Any, message: str):
    with pytest.raises(InvalidModelError, match=message):
        TabularMDP.from_gymnasium(Coin(**options))


def test_another_start_may_be_given():
    assert TabularMDP.from_gymnasium(Coin(first=1), initial=[0.5, 0.5]).n_states == 2


def test_changes_by_a_wrapper_are_not_in_the_table():
    for wrapped, message in (
        (TransformReward(Coin(), lambda r: -float(r)), "env.unwrapped if a wrapper changes it"),
        (
            TransformObservation(Coin(), lambda s: np.eye(2)[s], gym.spaces.Box(0, 1, (2,))),
            r"observations are not the states 0 to 1 .* got array.* pass env\.unwrapped",
        ),
    ):
        with pytest.raises(InvalidModelError, match=message):
            TabularMDP.from_gymnasium(wrapped)
        assert TabularMDP.from_gymnasium(wrapped.unwrapped).n_states == 2


def test_a_passenger_who_changes_the_destination_is_not_in_the_table():
    taxi = max(id for id in gym.registry if id.startswith("Taxi-v"))
    # The first version with such passengers does not let their probability be chosen.
    options: dict[str, Any] = {} if taxi == "Taxi-v3" else {"fickle_probability": 1.0}
    env = gym.make(taxi, fickle_passenger=True, **options)
    with pytest.raises(InvalidModelError, match="does not hold what fickle_passenger does"):
        TabularMDP.from_gymnasium(env, on_termination="restart")
    # Rain is: its table has three outcomes for a move.
    assert TabularMDP.from_gymnasium(gym.make(taxi, is_rainy=True)).next_state.shape[2] == 3


def test_an_environment_that_cannot_be_copied_is_read_with_a_warning():
    env = Coin()
    env.lock = threading.Lock()  # type: ignore[attr-defined]
    with pytest.warns(UserWarning, match="cannot be copied, so its table is unchecked"):
        assert TabularMDP.from_gymnasium(env).n_states == 2


@pytest.mark.parametrize("mnemonic", ["h36c", "q64b", "x10"])
def test_environments_of_this_package_need_no_start(mnemonic: str):
    mdp = make_mdp(mnemonic)
    read = TabularMDP.from_gymnasium(gym.make("unichain_gym:Unichain-v0", mnemonic=mnemonic))
    assert read.name == "Unichain-v0"
    np.testing.assert_array_equal(read.initial_distribution, mdp.initial_distribution)
    for ours, theirs in zip(read.to_arrays(), mdp.to_arrays(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-14)


def test_names_of_states_are_kept():
    named = TabularMDP.from_transitions(
        [(0, 0, 1, 1.0, 0.0), (1, 0, 0, 1.0, 0.0)], [1.0, 0.0], state_names=["a", "b"]
    )
    assert TabularMDP.from_gymnasium(TabularEnv(named)).state_names == ("a", "b")


@pytest.mark.parametrize(
    ("P", "message"),
    [
        ({0: {0: [(1.0, 0, 0.0)]}}, r"at least one; got \(1\.0, 0, 0\.0\)"),
        ({0: {0: []}}, "at least one; got None"),
        ({0: {0: [(1.0, 7, 0.0, True)]}}, "leads to state 7, which must lie in 0 to 0"),
        ({0: {0: []}, 1: {0: [], 1: []}}, "1 actions for state 0 and 2 for state 1"),
        ({0: {1: [(1.0, 0, 0.0, False)]}}, "each with actions 0 to 0"),
        ({0: {0: [(1.0, 0.5, 0.0, False)]}}, r"next states of P must hold integers; got 0\.5"),
        ({0: {0: [("x", 0, 0.0, False)]}}, "probabilities of P must be an array of real numbers"),
    ],
)
def test_tables_that_are_malformed_are_refused(P: Any, message: str):
    env = Coin()
    env.P = P
    with pytest.raises(InvalidModelError, match=message):
        TabularMDP.from_gymnasium(env, initial=np.eye(1, len(P))[0])


def test_a_table_in_single_precision_is_normalized():
    third = np.float32(1 / 3)
    env = Coin()
    env.P[0][0] = [(third, 0, 0.0, False), (third, 1, 0.0, False), (third, 1, 1.0, False)]
    for s, a in ((0, 1), (1, 0), (1, 1)):
        env.P[s][a] = [(np.float32(0.5), n, float(a), False) for n in range(2)]
    mdp = TabularMDP.from_gymnasium(env)
    assert mdp.to_arrays()[0][0, 0].tolist() == [1 / 3, 2 / 3]
