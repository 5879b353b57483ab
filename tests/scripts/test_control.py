"""Learners of control: their updates by hand, their limits, and their study."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from study import control as control_study
from study.control import (
    CONTROL,
    METHODS,
    RULES,
    ControlSettings,
    control_rows,
    learn,
)
from study.figures import control_curves
from study.store import Task
from study.tables import control_summary, markdown_control

from unichain_gym import TabularVectorEnv, make_mdp


def h6(n: int) -> Any:
    return TabularVectorEnv(make_mdp("h6"), n)


@pytest.mark.parametrize("rule", RULES)
def test_updates_agree_with_the_papers(rule: Any) -> None:
    """Replayed one learner at a time, with plain numbers."""
    env, log = h6(3), []

    class Logged(gym.vector.VectorWrapper):
        def reset(self, **options: Any) -> Any:
            observation, info = super().reset(**options)
            log.append((observation.copy(), None, None))
            return observation, info

        def step(self, actions: Any) -> Any:
            result = super().step(actions)
            log.append((result[0].copy(), actions.copy(), result[1].copy()))
            return result

    numbers = {"exponent": 0.7, "epsilon": 0.3, "rate_step": 0.5, "discount": 0.9}
    found = learn(rule, Logged(env), [60], 9, 1, **numbers)[0]
    assert len(log) == 60 + 6
    for i in range(3):
        Q, visits, rate = np.zeros((6, 2)), np.zeros((6, 2)), 0.0
        for before, (following, action, reward) in pairwise(log):
            if action is None:
                continue
            s, a, s2 = int(before[0][i]), int(action[i]), int(following[i])
            visits[s, a] += 1
            alpha = visits[s, a] ** -0.7
            gamma = 0.9 if rule == "discounted" else 1.0
            ahead = Q[s2].max()
            delta = reward[i] - rate + gamma * ahead - Q[s, a]
            Q[s, a] += alpha * delta
            if rule == "differential":
                rate += 0.5 * alpha * delta
            elif rule == "rvi":
                rate = Q.mean()
            elif rule == "r_learning" and Q[s, a] == Q[s].max():
                rate += 0.5 * alpha * (reward[i] + ahead - Q[s].max() - rate)
        assert_allclose(found[i], Q, atol=1e-3)
        assert np.abs(Q).max() > 1.0


def test_discounted_values_agree_with_the_discounted_optimum() -> None:
    mdp = make_mdp("h6")
    tables = learn("discounted", h6(20), [6_000], 40, 0, discount=0.8)[0]
    optimum = mdp.optimal_policy("discounted", 0.8)
    expected = optimum.chain.discounted_value(0.8)
    assert_allclose(tables.max(axis=2).mean(axis=0), expected, rtol=0.02)


def test_checkpoints_belong_to_one_run_and_seeds_repeat_them() -> None:
    def learned(marks: list[int], seed: int) -> Any:
        return learn("differential", h6(2), marks, 20, seed)

    both = learned([50, 100], 3)
    assert both.shape == (2, 2, 6, 2)
    assert_array_equal(learned([50], 3)[0], both[0])
    assert_array_equal(learned([100], 3)[0], both[1])
    assert (learned([50], 4)[0] != both[0]).any()


SMALL = ControlSettings(checkpoints=(1000, 2000))


def test_rows_hold_policies_to_the_exact_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    mdp = make_mdp("c10")
    optimum = mdp.optimal_policy("bias")
    wrong_start = optimum.policy.copy()
    transient = optimum.chain.transient_states
    wrong_start[transient] = np.argmin(optimum.optimal_actions[transient], axis=1)
    policies = [optimum.policy, wrong_start, np.ones(10, dtype=np.int64)]
    told = control_study.Method(lambda *_: iter([(i, 9, p) for i, p in enumerate(policies)]), 3)
    monkeypatch.setitem(METHODS, "told", told)
    best, late, bad = control_rows(Task("c10", (0, 1, 2), [("c10", 0, "told", 9)], SMALL))
    assert best["start_shortfall"] == pytest.approx(0.0, abs=1e-12)
    assert best["transient_right"] == 1.0
    assert late["is_gain_optimal"]
    assert late["transient_right"] == 0.0
    lost = optimum.chain.bias - mdp.induce(wrong_start).bias
    expected = mdp.initial_distribution @ lost / np.ptp(optimum.chain.bias)
    assert late["start_shortfall"] == pytest.approx(expected)
    assert late["start_shortfall"] > 0.1
    assert not bad["is_gain_optimal"]
    assert bad["start_shortfall"] is None
    assert bad["gain"] < bad["optimal_gain"]


def test_a_gain_within_the_error_of_the_optimal_one_counts_as_optimal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An action of q44 in a state that is visited once in 80,000 timesteps, and a costly one."""
    optimum = make_mdp("q44").optimal_policy("bias")
    policies = [optimum.policy.copy(), optimum.policy.copy()]
    policies[0][36] = 1 - policies[0][36]
    q, visited = optimum.chain.action_bias, optimum.chain.stationary_distribution
    costly = int(np.argmax(visited * np.abs(q[:, 0] - q[:, 1])))
    policies[1][costly] = 1 - policies[1][costly]
    told = control_study.Method(lambda *_: iter([(i, 9, p) for i, p in enumerate(policies)]), 2)
    monkeypatch.setitem(METHODS, "told", told)
    rare, bad = control_rows(Task("q44", (0, 1), [("q44", 0, "told", 9)], SMALL))
    assert 1e-8 < (rare["optimal_gain"] - rare["gain"]) / rare["optimal_gain"] < 1e-6
    assert rare["is_gain_optimal"]
    assert rare["start_shortfall"] > 1e-5
    assert not bad["is_gain_optimal"]
    assert "within 0.01 %" in markdown_control([rare, bad])


@pytest.mark.slow
def test_the_study_is_resumed_and_seeds_are_independent(tmp_path: Path) -> None:
    some = CONTROL.run(tmp_path / "a", SMALL, {"env": ["h6"]}, 2, progress=False)
    more = CONTROL.run(tmp_path / "b", SMALL, {"env": ["h6"]}, 3, progress=False)
    assert {row["method"] for row in some} == set(METHODS)
    assert [row for row in more if row["seed"] < 2] == some
    lines = (tmp_path / "a" / "control_rows.jsonl").read_bytes()
    again = CONTROL.run(tmp_path / "a", SMALL, {"env": ["h6"]}, 2, progress=False)
    assert again == some
    assert (tmp_path / "a" / "control_rows.jsonl").read_bytes() == lines
    report = markdown_control(some)
    assert report.count("| policy iteration |") == 2
    summary = control_summary(some).loc[("policy iteration", "h6", 2000)]
    runs = [r for r in some if r["method"] == "policy iteration" and r["n_samples"] == 2000]
    assert summary.gain_optimal == np.mean([r["is_gain_optimal"] for r in runs])
    panels = control_curves(some).axes
    assert [len(axes.lines) for axes in panels] == [len(METHODS)] * 3


@pytest.mark.slow
def test_one_run_leaves_the_start_arbitrary_and_trials_do_not() -> None:
    settings = ControlSettings(checkpoints=(20_000,))
    shares = {}
    for method in ("differential Q", "differential Q, one run", "policy iteration"):
        n = METHODS[method].n_at_once
        rows = control_rows(Task("h36c", tuple(range(n)), [("h36c", 0, method, 20_000)], settings))
        shares[method] = np.mean([row["transient_right"] for row in rows])
    assert abs(shares["differential Q, one run"] - 0.5) < 0.1
    assert shares["differential Q"] > 0.8
    assert shares["policy iteration"] > 0.9
