"""Pickled, copied and dumped: the same answers, before and after anything was computed."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest

from unichain_gym import MarkovChain, TabularEnv, TabularMDP, TabularVectorEnv, make_mdp

SUITE = ["x10", "m16"]

QUANTITIES = (
    *("gain", "gain_vector", "bias", "action_bias", "stationary_distribution", "variance"),
    *("deviation_matrix", "fundamental_matrix", "kemeny_constant", "mean_absorption_time"),
    *("absorption_time_variance", "expected_visits", "mean_return_time", "period"),
)


def by_joblib(thing: Any, folder: Path) -> Any:
    joblib.dump(thing, folder / "thing.joblib")
    return joblib.load(folder / "thing.joblib")


WAYS: dict[str, Callable[[Any, Path], Any]] = {
    "pickle": lambda thing, _: pickle.loads(pickle.dumps(thing)),
    "deepcopy": lambda thing, _: copy.deepcopy(thing),
    "copy": lambda thing, _: copy.copy(thing),
    "joblib": by_joblib,
}


def answers(chain: MarkovChain) -> dict[str, Any]:
    """Every exact quantity of a chain, so that every factorization is made and kept."""
    found = {name: getattr(chain, name) for name in QUANTITIES}
    found["discounted"] = chain.discounted_value(0.9)
    found["report"] = str(chain.solver_report)
    found["hitting"] = chain.hitting_time(chain.n_states - 1)
    found["path"] = chain.simulate(20, 0).states
    return found


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mnemonic", SUITE)
def test_a_chain_and_its_copy_answer_alike(mnemonic: str, way: str, tmp_path: Path) -> None:
    mdp = make_mdp(mnemonic)
    chain = mdp.induce(mdp.random_policy(0, deterministic=False))
    fresh = WAYS[way](chain, tmp_path)
    expected = answers(chain)
    used = WAYS[way](chain, tmp_path)
    for each in (fresh, used):
        for name, value in answers(each).items():
            np.testing.assert_array_equal(value, expected[name], err_msg=name)
        assert each.mdp is not None
        np.testing.assert_array_equal(each.policy, chain.policy)
        for array in (each.reward, each.policy, each.transition_matrix.data, each.mdp.reward):
            assert not array.flags.writeable
        with pytest.raises(AttributeError, match="'reward' of a chain cannot be set"):
            each.reward = chain.reward


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mnemonic", SUITE)
def test_an_mdp_and_its_copy_are_alike(mnemonic: str, way: str, tmp_path: Path) -> None:
    mdp = make_mdp(mnemonic)
    first = WAYS[way](mdp, tmp_path)
    mdp.is_unichain(), mdp.state_classes, mdp.outcome_thresholds, mdp.expected_reward
    for each in (first, WAYS[way](mdp, tmp_path)):
        for field in ("next_state", "probability", "reward", "initial_distribution"):
            np.testing.assert_array_equal(getattr(each, field), getattr(mdp, field))
            assert not getattr(each, field).flags.writeable
        assert each.name == mdp.name


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("criterion", ["gain", "bias", "blackwell", "discounted"])
@pytest.mark.parametrize("mnemonic", SUITE)
def test_an_optimal_policy_and_its_copy_are_alike(
    mnemonic: str, criterion: Any, way: str, tmp_path: Path
) -> None:
    discount = 0.9 if criterion == "discounted" else None
    best = make_mdp(mnemonic).optimal_policy(criterion, discount)
    first = WAYS[way](best, tmp_path)
    table, actions = str(best), best.optimal_actions
    for each in (first, WAYS[way](best, tmp_path)):
        assert str(each) == table
        np.testing.assert_array_equal(each.policy, best.policy)
        np.testing.assert_array_equal(each.optimal_actions, actions)
        np.testing.assert_array_equal(each.bias, best.bias)
        if best.value is not None:
            np.testing.assert_array_equal(each.value, best.value)


@pytest.mark.parametrize("way", ["pickle", "deepcopy", "joblib"])
def test_names_and_environments_are_copied_too(way: str, tmp_path: Path) -> None:
    P, names = [[0.5, 0.5], [1.0, 0.0]], ["up", "down"]
    chain = WAYS[way](MarkovChain(P, [1.0, 0.0], [1.0, 0.0], state_names=names), tmp_path)
    assert chain.state_names == ("up", "down")
    assert WAYS[way](make_mdp("h6").induce([0] * 6), tmp_path).state_names == range(6)
    mdp = TabularMDP.from_arrays(
        [P], [0.0, 1.0], [1.0, 0.0], order="ass", state_names=names, action_names=["wait"]
    )
    copied = WAYS[way](mdp, tmp_path)
    assert (copied.state_names, copied.action_names) == (("up", "down"), ("wait",))
    for env in (TabularEnv(make_mdp("h36c")), TabularVectorEnv(make_mdp("h36c"), 3)):
        env.reset(seed=0)
        action: Any = 1 if isinstance(env, TabularEnv) else [1, 0, 1]
        env.step(action)
        twin = WAYS[way](env, tmp_path)
        for _ in range(20):
            expected, found = env.step(action), twin.step(action)
            np.testing.assert_array_equal(expected[0], found[0])
            np.testing.assert_array_equal(expected[1], found[1])
