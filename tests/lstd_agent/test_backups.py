"""Targets of several steps, λ-returns and a pooled model, held to independent figures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lstd_agent.statistics.backups import LambdaReturn, MultiStep
from lstd_agent.statistics.counts import CountStatistics
from lstd_agent.system.fit_system import fit_system
from lstd_agent.system.multistep import solve_windows_multistep
from numpy.testing import assert_allclose
from study.exact_systems import ExactStatistics

from lstd_agent import OneHot, SeminormLSTDAgent
from lstd_agent.errors import InvalidInputError
from lstd_agent.problems import population_counts
from lstd_agent.system.approximators import System
from lstd_agent.trials.counted import CountRecorder
from unichain_gym import make_mdp


def backup_of(case: Any) -> MultiStep | LambdaReturn:
    return MultiStep(case["m"]) if "m" in case else LambdaReturn(case["lambda"])


def counts_of(states: Any, rewards: Any, n_states: int) -> Any:
    recorder = CountRecorder(n_states)
    for t in range(rewards.shape[1]):
        recorder.record(states[:, t], rewards[:, t], states[:, t + 1])
    return recorder.sums(len(states))


def difference(system: System, features: Any, case: Any) -> float:
    """The largest difference from the reference at states that its windows visit, over theirs."""
    expected = np.array([[np.nan if v is None else v for v in row] for row in case["values"]])
    found = system.weights @ features.T + system.offsets[:, None]
    return float(np.nanmax(np.abs(found - expected)) / np.nanmax(np.abs(expected)))


def test_windows_of_counts_equal_the_reference_figures(reference: Any) -> None:
    sample = reference("multistep")["sample"]
    features = np.array(sample["features"])
    counts = counts_of(np.array(sample["states"]), np.array(sample["rewards"]), len(features))
    statistics = CountStatistics(counts, features)
    cases = [case for case in sample["cases"] if case["way"] == "counts"]
    assert len(cases) == 18
    for case in cases:
        windows = np.array([case["window"]])
        found, n_samples = solve_windows_multistep(
            statistics, windows, sample["gain"], 1e-12, backup_of(case)
        )
        expected = np.array(case["fitted"])
        assert n_samples[0] == counts.n_trials * (windows[0, 1] - windows[0, 0])
        assert_allclose(found.weights[0], case["w"], atol=1e-8 * np.abs(case["w"]).max())
        assert_allclose(features @ found.weights[0], expected, atol=1e-8 * np.abs(expected).max())


def test_exact_distributions_equal_the_reference_figures(reference: Any) -> None:
    lstd = reference("lstd")["cases"]
    cases = reference("multistep")["exact"]
    assert len(cases) == 72
    for case in cases:
        problem = lstd[case["lstd_case"]]
        chain = make_mdp(problem["env"]).induce(np.array(problem["policy"]))
        features = np.array(problem["features"])
        statistics = ExactStatistics(chain, features, np.array([problem["distribution"]]))
        found, _ = solve_windows_multistep(
            statistics, np.array([[0, 1]]), problem["gain"], 1e-12, backup_of(case)
        )
        seen = np.array(problem["distribution"]) > 0.0
        expected = np.array(case["fitted"])[seen]
        fitted = (features @ found.weights[0])[seen]
        assert_allclose(fitted, expected, atol=1e-8 * np.abs(expected).max())


@pytest.mark.parametrize("number", range(4))
def test_exact_linked_systems_equal_the_reference_figures(reference: Any, number: int) -> None:
    """Where the condition is near 1e10, rounding errors of p^t and the gain are as amplified."""
    problem = reference("linked")["exact"][number]
    chain = make_mdp(problem["env"]).induce(np.array(problem["policy"]))
    features = np.array(problem["features"])
    p = chain.stepwise_distributions(problem["t_max"], tol=0.0).copy()
    p[p <= 1e-8] = 0.0
    statistics = ExactStatistics(chain, features, p / p.sum(axis=1, keepdims=True))
    assert len(problem["cases"]) == 12
    for case in problem["cases"]:
        system = fit_system(
            statistics, np.array(case["anchors"]), problem["gain"], backup=backup_of(case)
        )
        assert system.references.main == case["main_reference"]
        rounding = 1e-15 if case["lambda"] == 0.0 else 5e-15
        tolerance = 1e-7 if system.condition.max() < 1e9 else rounding * system.condition.max()
        assert difference(system, features, case) < tolerance


@pytest.mark.parametrize("number", range(4))
def test_linked_systems_of_samples_equal_the_reference_figures(reference: Any, number: int) -> None:
    problem = reference("linked")["sample"][number]
    features = np.array(problem["features"])
    counts = counts_of(np.array(problem["states"]), np.array(problem["rewards"]), len(features))
    statistics = CountStatistics(counts, features)
    assert len(problem["cases"]) == 6
    for case in problem["cases"]:
        system = fit_system(
            statistics, np.array(case["anchors"]), problem["gain"], backup=backup_of(case)
        )
        assert system.references.main == case["main_reference"]
        assert difference(system, features, case) < 1e-7


def sampled(mnemonic: str, seed: int, d: int, n_trials: int = 200, t_max: int = 60) -> Any:
    """Statistics of counts of a random policy, its chain and a generator."""
    rng = np.random.default_rng(seed)
    mdp = make_mdp(mnemonic)
    chain = mdp.induce(rng.integers(mdp.n_actions, size=mdp.n_states))
    counts = population_counts(chain, n_trials, t_max, rng)
    features = rng.normal(size=(chain.n_states, d))
    return CountStatistics(counts, features), chain


@pytest.mark.parametrize("calibration", ["linked", "references"])
@pytest.mark.parametrize("backup", [MultiStep(1), LambdaReturn(0.0)])
def test_one_step_by_another_name_is_the_same_to_the_last_bit(
    calibration: Any, backup: Any
) -> None:
    statistics, chain = sampled("h15b", 1, 4)
    anchors = np.array([0, 5, 20])
    one, other = (
        fit_system(statistics, anchors, chain.gain, calibration=calibration, backup=each)
        for each in ("one_step", backup)
    )
    assert np.array_equal(one.weights, other.weights)
    assert np.array_equal(one.offsets, other.offsets)
    assert np.array_equal(one.open_directions, other.open_directions)


@pytest.mark.parametrize(
    ("calibration", "anchors"),
    [
        ("linked", [0]),
        ("linked", [0, 5, 20]),
        ("linked", list(range(61))),
        ("references", [0]),
        ("references", [0, 5, 20]),
    ],
)
def test_barely_more_than_one_step_is_barely_another_system(calibration: Any, anchors: Any) -> None:
    statistics, chain = sampled("h15b", 1, 4)
    one, other = (
        fit_system(statistics, np.array(anchors), chain.gain, calibration=calibration, backup=each)
        for each in ("one_step", LambdaReturn(1e-9))
    )
    assert one.references.main == other.references.main
    assert np.array_equal(one.rank, other.rank)
    size = np.abs(statistics.features @ one.weights.T + one.offsets).max()
    seen = one.occupancy > 0.0
    values = [s.weights @ statistics.features.T + s.offsets[:, None] for s in (one, other)]
    assert_allclose(values[0][seen], values[1][seen], atol=1e-5 * size)


@pytest.mark.parametrize("anchors", [[0], [0, 5, 20]])
def test_targets_to_the_end_are_monte_carlo_regression(anchors: Any) -> None:
    """λ = 1 and many steps: excess rewards to the end, and the last approximator there."""
    statistics, chain = sampled("h15b", 2, 4)
    F, counts, T = statistics.features, statistics.counts, statistics.t_max + 1
    S = chain.n_states
    total, constant = np.zeros((T, S)), np.zeros((T + 1, S))
    end = np.zeros((T + 1, S, S))
    end[T] = np.eye(S)
    N = counts.transition_counts.toarray().reshape(T, S, S)
    R = counts.reward_sums.toarray()
    for t in reversed(range(T)):
        total[t] = N[t].sum(axis=1)
        P = N[t] / np.maximum(total[t], 1)[:, None]
        constant[t] = (R[t] - chain.gain * total[t]) / np.maximum(total[t], 1) + P @ constant[t + 1]
        end[t] = P @ end[t + 1]
    for backup in (LambdaReturn(1.0), MultiStep(T), MultiStep(10 * T)):
        system = fit_system(statistics, np.array(anchors), chain.gain, backup=backup)
        ends = F @ system.weights[-1] + system.offsets[-1]
        stops = [*anchors[1:], T]
        for k, (start, stop) in enumerate(zip(anchors[:-1], stops[:-1], strict=True)):
            n = total[start:stop]
            target = ((constant[start:stop] + end[start:stop] @ ends) * n).sum(axis=0)
            visits = n.sum(axis=0)
            root = np.sqrt(visits)
            X = root[:, None] * np.hstack((F, np.ones((S, 1))))
            w = np.linalg.lstsq(X, target / np.maximum(root, 1), rcond=None)[0]
            assert_allclose(system.weights[k], w[:-1], atol=1e-7 * np.abs(w).max())
            assert_allclose(system.offsets[k], w[-1], atol=1e-7 * np.abs(w).max())
        n, visits = total[anchors[-1] :], total[anchors[-1] :].sum(axis=0)
        G = (n[:, :, None] * (end[anchors[-1] : T] @ F)).sum(axis=0)
        c = (n * constant[anchors[-1] : T]).sum(axis=0)
        X = F.T @ (visits[:, None] * F - G)
        assert_allclose(X @ system.weights[-1], F.T @ c, rtol=1e-7)


@pytest.mark.parametrize("backup", [LambdaReturn(0.7), LambdaReturn(1.0), MultiStep(4)])
def test_values_of_several_steps_until_a_task_ends_are_exact_ones(walk: Any, backup: Any) -> None:
    """The walk pays 0, 1, 2, …, its place, and ends, worth 0."""
    agent = SeminormLSTDAgent(
        OneHot(), 2, anchors=[0, 3], gain=0.0, on_termination="absorb", backup=backup
    )
    agent.collect(walk(n=6, ends=True), lambda state: 0, n_trials=10, t_max=9, seed=0)
    agent.fit()
    assert_allclose(agent.predict([0, 1, 2], 0), [10.0, 10.0, 9.0], atol=1e-9)
    assert_allclose(agent.predict([3, 4], 4), [7.0, 4.0], atol=1e-9)


@pytest.mark.parametrize("backup", [LambdaReturn(0.7), LambdaReturn(1.0), MultiStep(4)])
def test_what_is_open_to_single_steps_is_open_to_several(backup: Any) -> None:
    """Two blocks of states that never meet: nothing ties the values of one to the other's."""
    states = np.array([[0, 1, 0, 1, 0, 1, 0], [2, 3, 2, 3, 2, 3, 2]])
    statistics = CountStatistics(counts_of(states, np.ones((2, 6)), 4), np.eye(4))
    for anchors in ([0], [0, 2], [0, 1, 2, 3, 4, 5]):
        system = fit_system(statistics, np.array(anchors), 1.0, backup=backup)
        scaled = np.hstack((statistics.features, np.ones((4, 1)))) / statistics.feature_scale
        for k in range(len(anchors)):
            share = system.open_share(scaled, np.full(4, k))
            here = np.isin(np.arange(4), np.flatnonzero(system.occupancy[k]))
            block = np.arange(4) // 2 == system.references.main // 2
            assert (share[here & ~block] > 0.2).all()
            assert (share[here & block] < 1e-9).all()


def test_backups_are_saved_and_loaded(tmp_path: Any, walk: Any) -> None:
    for backup in ("one_step", LambdaReturn(0.25), MultiStep(3)):
        agent = SeminormLSTDAgent(OneHot(), 1, backup=backup)
        agent.collect(walk(), lambda state: 0, n_trials=10, t_max=8, seed=0)
        agent.fit()
        agent.save(tmp_path / "agent.npz")
        other = SeminormLSTDAgent.load(tmp_path / "agent.npz")
        assert other.backup == backup
        assert np.array_equal(other.fit().predict([0, 1, 2, 3]), agent.predict([0, 1, 2, 3]))


def test_bad_backups_are_refused(walk: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"backup must be .*; got 'two_steps'"):
        SeminormLSTDAgent(OneHot(), backup="two_steps")  # type: ignore[arg-type]
    for steps in (0, -1, 1.5, True):
        with pytest.raises(InvalidInputError, match="steps must be an integer from 1; got"):
            MultiStep(steps)  # type: ignore[arg-type]
    for decay in (-0.1, 1.1, float("nan"), "0"):
        with pytest.raises(InvalidInputError, match="must be from 0 to 1; got"):
            LambdaReturn(decay)  # type: ignore[arg-type]
