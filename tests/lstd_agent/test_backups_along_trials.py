"""Targets of several steps along kept trials of vectors, held to independent figures."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from lstd_agent.statistics.backups import LambdaReturn, MultiStep
from lstd_agent.statistics.moments import MomentStatistics
from lstd_agent.statistics.trial_moments import BatchMoments, TrialMoments
from lstd_agent.system.fit_system import fit_system
from lstd_agent.system.multistep import solve_backwards_multistep, solve_windows_multistep
from numpy.testing import assert_allclose

from lstd_agent import Polynomial, SeminormLSTDAgent
from lstd_agent.arrays import FloatArray
from lstd_agent.features.rows import as_rows
from lstd_agent.system.linked import solve_backwards
from lstd_agent.trials.kept import KeptTrials


def statistics_of(states: Any, rewards: Any, table: FloatArray) -> MomentStatistics:
    """Statistics of numbered states that are taken for vectors."""
    trials = KeptTrials.of(np.asarray(states), rewards)
    return MomentStatistics(
        trials,
        lambda observed: as_rows(table[observed[:, 0].astype(np.int64)], len(observed)),
        trials.states(),
    )


def sampled(d: int, seed: int = 0, m: int = 30, t_max: int = 11) -> tuple[MomentStatistics, Any]:
    """Trials that walk up and down 20 places with a drift, and rewards of each place."""
    rng = np.random.default_rng(seed)
    steps = rng.choice([-1, 1, 1], size=(m, t_max + 1))
    states = np.cumsum(np.hstack((rng.integers(3, size=(m, 1)), steps)), axis=1) % 20
    rewards = rng.normal(size=20)[states[:, :-1]] + rng.normal(size=(m, t_max + 1))
    table = rng.normal(size=(20, d))
    return statistics_of(states, rewards, table), (states, rewards, table)


def test_windows_equal_the_reference_figures(reference: Any) -> None:
    sample = reference("multistep")["sample"]
    features = np.array(sample["features"])
    statistics = statistics_of(sample["states"], sample["rewards"], features)
    cases = [case for case in sample["cases"] if case["way"] == "trials"]
    assert len(cases) == 18
    for case in cases:
        backup = MultiStep(case["m"]) if "m" in case else LambdaReturn(case["lambda"])
        windows = np.array([case["window"]])
        found, n_samples = solve_windows_multistep(
            statistics, windows, sample["gain"], 1e-12, backup
        )
        expected = np.array(case["fitted"])
        assert n_samples[0] == len(sample["states"]) * (windows[0, 1] - windows[0, 0])
        assert_allclose(found.weights[0], case["w"], atol=1e-8 * np.abs(case["w"]).max())
        assert_allclose(features @ found.weights[0], expected, atol=1e-8 * np.abs(expected).max())


@pytest.mark.parametrize("anchors", [[0], [0, 4], [0, 2, 7], list(range(12))])
@pytest.mark.parametrize("d", [3, 8, 25])
def test_steps_along_trials_are_those_of_the_moments(anchors: Any, d: int) -> None:
    """λ = 0 by either way, with more features than places too: what is open is alike."""
    statistics, (_, _, table) = sampled(d)
    windows = np.stack((anchors, [*anchors[1:], 12]), axis=1)
    one = solve_backwards(statistics, windows, 0.3, 1e-10)
    for backup in (LambdaReturn(0.0), MultiStep(1)):
        other = solve_backwards_multistep(statistics, windows, 0.3, 1e-10, backup)
        assert np.array_equal(one.rank, other.rank)
        assert np.array_equal(one.n_samples, other.n_samples)
        size = np.abs(one.weights).max()
        assert_allclose(other.weights, one.weights, atol=1e-6 * size)
        assert_allclose(other.offsets, one.offsets, atol=1e-6 * size)
        scaled = np.hstack((table, np.ones((20, 1)))) / statistics.feature_scale
        for mine, theirs in zip(one.open_directions, other.open_directions, strict=True):
            open_alike = [np.linalg.norm(scaled @ u, axis=1) > 1e-6 for u in (mine, theirs)]
            assert np.array_equal(*open_alike)


@pytest.mark.parametrize("calibration", ["linked", "references"])
@pytest.mark.parametrize("backup", [MultiStep(1), LambdaReturn(0.0)])
def test_one_step_by_another_name_is_the_same_to_the_last_bit(
    calibration: Any, backup: Any
) -> None:
    statistics, _ = sampled(5)
    one, other = (
        fit_system(statistics, np.array([0, 4]), 0.3, calibration=calibration, backup=each)
        for each in ("one_step", backup)
    )
    assert np.array_equal(one.weights, other.weights)
    assert np.array_equal(one.offsets, other.offsets)


def targets_of(backup: Any, rewards: Any, values: FloatArray) -> FloatArray:
    """Targets (m, T) as sums from each timestep on, by the values (m, T + 1) to bootstrap on."""
    m, T = rewards.shape
    targets = np.empty((m, T))
    for t in range(T):
        sums = np.cumsum(rewards[:, t:], axis=1)
        n_steps = np.arange(1, T - t + 1)
        returns = sums + values[:, t + 1 :]
        if isinstance(backup, MultiStep):
            reached = min(backup.steps, T - t) - 1
            targets[:, t] = returns[:, reached]
            continue
        weight = (1.0 - backup.decay) * backup.decay ** (n_steps - 1.0)
        weight[-1] = backup.decay ** (T - t - 1.0)
        targets[:, t] = returns @ weight
    return targets


@pytest.mark.parametrize(
    "backup", [LambdaReturn(0.6), LambdaReturn(1.0), MultiStep(2), MultiStep(12), MultiStep(99)]
)
@pytest.mark.parametrize("anchors", [[0, 5], [0, 2, 7]])
def test_linked_systems_solve_their_definition(backup: Any, anchors: Any) -> None:
    """Each approximator is the fit to the targets that it and the later ones make.

    To the end of the trials (λ = 1, many steps) that is Monte Carlo regression.
    """
    statistics, (states, rewards, table) = sampled(4)
    gain, T = 0.3, rewards.shape[1]
    system = fit_system(statistics, np.array(anchors), gain, backup=backup)
    # The value at each timestep bootstrapped on is by the neighbourhood of the one before it.
    by_neighborhood = system.weights @ table.T + system.offsets[:, None]
    before = system.neighborhood_at(np.arange(T))
    values = np.zeros((len(states), T + 1))
    stops = [*anchors[1:], T]
    targets = np.zeros((len(states), T))
    for k in range(len(anchors)):
        # Within a window values are its own; at its end and beyond they are those of the next.
        own = np.clip(system.neighborhood_at(np.arange(1, T + 1)), k, None)
        own[-1] = before[-1]
        values[:, 1:] = np.stack(
            [by_neighborhood[own[t], states[:, t + 1]] for t in range(T)], axis=1
        )
        targets = targets_of(backup, rewards - gain, values)
        start, stop = anchors[k], stops[k]
        f = np.concatenate([table[states[:, t]] for t in range(start, stop)])
        one = np.ones((len(f), 1))
        fitted = by_neighborhood[k][states[:, start:stop]].T.ravel()
        residual = targets[:, start:stop].T.ravel() - fitted
        bordered = f if k == len(anchors) - 1 else np.hstack((f, one))
        scale = np.abs(bordered).T @ np.abs(fitted)
        assert_allclose(bordered.T @ residual / scale, 0.0, atol=1e-10)


def interrupted(seed: int = 0) -> tuple[MomentStatistics, list[tuple[int, int, int]]]:
    """Trials cut short, some of which leave the policy at a timestep; runs (trial, start, stop)."""
    _, (states, rewards, table) = sampled(4, seed)
    rng = np.random.default_rng(seed + 1)
    m, T = rewards.shape
    lengths = np.where(np.arange(m) % 3 == 0, rng.integers(4, T, size=m), T)
    explored = rng.random((m, T)) < 0.1
    trials = KeptTrials(states[:, :, None], rewards, lengths, None, explored)
    statistics = MomentStatistics(
        trials, lambda observed: table[observed[:, 0].astype(np.int64)], states[:, :-1, None]
    )
    runs = []
    for i in range(m):
        breaks = [-1, *np.flatnonzero(explored[i, : lengths[i]]).tolist(), int(lengths[i])]
        runs += [(i, a + 1, b) for a, b in pairwise(breaks) if b > a + 1]
    return statistics, runs


@pytest.mark.parametrize("anchors", [[0], [0, 5], [0, 2, 7]])
def test_interrupted_trials_of_single_steps_are_those_of_the_moments(anchors: Any) -> None:
    statistics, _ = interrupted()
    windows = np.stack((anchors, [*anchors[1:], 12]), axis=1)
    one = solve_backwards(statistics, windows, 0.3, 1e-10)
    other = solve_backwards_multistep(statistics, windows, 0.3, 1e-10, LambdaReturn(0.0))
    assert np.array_equal(one.n_samples, other.n_samples)
    assert_allclose(other.weights, one.weights, atol=1e-8 * np.abs(one.weights).max())
    assert_allclose(other.offsets, one.offsets, atol=1e-8 * np.abs(one.weights).max())


@pytest.mark.parametrize("backup", [LambdaReturn(0.6), LambdaReturn(1.0), MultiStep(3)])
@pytest.mark.parametrize("anchors", [[0], [0, 5], [0, 2, 7]])
def test_interrupted_trials_bootstrap_where_they_break_off(backup: Any, anchors: Any) -> None:
    """Each unbroken run of a trial is one by itself, and worth at its end what its state is."""
    _, (states, rewards, table) = sampled(4)
    statistics, runs = interrupted()
    gain, T = 0.3, rewards.shape[1]
    system = fit_system(statistics, np.array(anchors), gain, backup=backup)
    by_neighborhood = system.weights @ table.T + system.offsets[:, None]
    of = np.minimum(system.neighborhood_at(np.arange(T + 1)), len(anchors) - 1)
    residuals = [np.zeros(5) for _ in anchors]
    sizes = [np.zeros(5) for _ in anchors]
    for i, start, stop in runs:
        values = by_neighborhood[of[start : stop + 1], states[i, start : stop + 1]]
        targets = targets_of(backup, (rewards[i, start:stop] - gain)[None], values[None])[0]
        for t in range(start, stop):
            f = np.append(table[states[i, t]], 1.0)
            residuals[of[t]] += f * (targets[t - start] - values[t - start])
            sizes[of[t]] += np.abs(f * targets[t - start])
    for k, (residual, size) in enumerate(zip(residuals, sizes, strict=True)):
        d = 4 if k == len(anchors) - 1 else 5
        assert_allclose((residual / size)[:d], 0.0, atol=1e-10)


@pytest.mark.parametrize("calibration", ["linked", "references"])
@pytest.mark.parametrize("backup", [LambdaReturn(0.7), LambdaReturn(1.0), MultiStep(4)])
def test_values_until_a_task_ends_are_exact_ones(walk: Any, backup: Any, calibration: Any) -> None:
    """The walk pays 0, 1, 2, …, its place, and ends, worth 0, also beside a gain that it loses."""
    agent = SeminormLSTDAgent(
        lambda x: np.eye(6)[x[:, 0].astype(int)], on_termination="absorb", backup=backup
    )
    agent.collect(walk(n=6, ends=True, kind="box"), lambda x: 0, n_trials=20, t_max=9, seed=0)
    statistics, anchors = agent.statistics, np.array([0])
    for gain, expected in ((0.0, [10.0, 10.0, 9.0, 7.0, 4.0]), (1.0, [5.0, 6.0, 6.0, 5.0, 3.0])):
        system = fit_system(statistics, anchors, gain, calibration=calibration, backup=backup)
        values = system.values(np.eye(6)[:5], np.zeros(5, dtype=np.int64))
        assert_allclose(values, expected, atol=1e-9)


def test_what_is_open_to_single_steps_is_open_to_several() -> None:
    """Two blocks of places that never meet: nothing ties the values of one to the other's."""
    states = np.array([[0, 1, 0, 1, 0, 1, 0], [2, 3, 2, 3, 2, 3, 2]] * 20)
    statistics = statistics_of(states, np.ones((40, 6)), np.eye(4))
    for anchors in ([0], [0, 2]):
        system = fit_system(statistics, np.array(anchors), 1.0, backup=LambdaReturn(0.6))
        one = fit_system(statistics, np.array(anchors), 1.0)
        scaled = np.hstack((np.eye(4), np.ones((4, 1)))) / statistics.feature_scale
        for k in range(len(anchors)):
            shares = [s.open_share(scaled, np.full(4, k)) for s in (system, one)]
            assert np.array_equal(shares[0] > 0.05, shares[1] > 0.05)


def drifting(env: Any, backup: Any, seed: int = 0) -> SeminormLSTDAgent:
    """An agent that was given trials of a noisy drift towards 0, with rewards -x."""
    rng = np.random.default_rng(seed)
    agent = SeminormLSTDAgent(Polynomial(2, 4.0), 2, anchors=[0, 6], gain=0.0, backup=backup)
    agent.attach(env)
    for _ in range(10):
        x = np.empty((20, 32, 1))
        x[:, 0] = rng.choice([3.0, 4.0], size=(20, 1))
        for t in range(31):
            x[:, t + 1] = 0.7 * x[:, t] + 0.3 * rng.normal(size=(20, 1))
        agent.add(KeptTrials.of(x, -x[:, :-1, 0]))
    return agent


@pytest.mark.slow
@pytest.mark.parametrize("backup", [LambdaReturn(0.9), MultiStep(5)])
def test_standard_errors_are_as_large_as_the_errors(walk: Any, backup: Any) -> None:
    """The value of x is -x / 0.3; mean squares over 25 collections tell errors to a seventh."""
    x = np.array([[3.0], [4.0]])
    errors, expected = [], []
    for seed in range(25):
        agent = drifting(walk(kind="box"), backup, seed).fit()
        errors.append(agent.predict(x, 0) + x[:, 0] / 0.3)
        expected.append(agent.standard_errors(x, 0))
        assert agent.determined(x, 0).all()
    ratio = np.sqrt(np.mean(np.square(errors), axis=0) / np.mean(np.square(expected), axis=0))
    assert (np.abs(ratio - 1.0) < 0.35).all(), ratio


def test_agents_are_saved_and_loaded_with_their_trials(tmp_path: Any, walk: Any) -> None:
    agent = drifting(walk(kind="box"), LambdaReturn(0.9)).fit()
    agent.save(tmp_path / "agent.npz")
    other = SeminormLSTDAgent.load(tmp_path / "agent.npz")
    x = np.array([[3.0], [4.0]])
    assert other.backup == LambdaReturn(0.9)
    assert np.array_equal(other.determined(x), agent.determined(x))
    assert np.array_equal(other.standard_errors(x, 0), agent.standard_errors(x, 0))
    assert np.array_equal(other.fit().predict(x), agent.predict(x))


@pytest.mark.parametrize("room", [2**30, 0])
@pytest.mark.parametrize("decay", [0.6, 1.0])
def test_batches_and_pieces_of_trials_add_up(
    room: int, decay: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums of batches, in pieces of three trials or timesteps, solve the system of all trials."""
    statistics, _ = interrupted()
    anchors, backup = np.array([0, 2, 7]), LambdaReturn(decay)
    right = fit_system(statistics, anchors, 0.3, backup=backup)
    trials: Any = statistics.sums.kept
    rows = statistics._rows
    monkeypatch.setattr("lstd_agent.statistics.return_moments.n_at_a_time", lambda width: 7)
    parts = [
        BatchMoments(trials.take(slice(i, None, 4)), rows, room, decays=(0.6, 0.9))
        for i in range(4)
    ]
    batches = statistics.of(TrialMoments(parts))
    for _ in range(2):  # summed, and from what is kept
        found = fit_system(batches, anchors, 0.3, backup=backup)
        assert np.array_equal(found.n_samples, right.n_samples)
        assert_allclose(found.weights, right.weights, atol=1e-9 * np.abs(right.weights).max())
        assert_allclose(found.offsets, right.offsets, atol=1e-9 * np.abs(right.weights).max())
        assert found.open_directions.shape == right.open_directions.shape


def test_sums_are_kept_as_far_as_there_is_room() -> None:
    """Refits ask for the same windows again and again: features are computed once for each."""
    statistics, _ = interrupted()
    trials: Any = statistics.sums.kept
    asked: list[int] = []

    def rows(observed: Any) -> Any:
        asked.append(len(observed))
        return statistics._rows(observed)

    for room, again in ((2**20, 0), (0, 1)):
        batch = BatchMoments(trials, rows, room)
        first = batch.returns.over(0, 5, 0.6, 1.0, is_last=False)
        asked.clear()
        second = batch.returns.over(0, 5, 0.6, 1.0, is_last=False)
        assert bool(asked) == bool(again)
        assert np.array_equal(first.X, second.X)
