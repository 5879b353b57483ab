"""One step, several steps and λ: systems of counts and of trials, held to their definitions.

Figures of independent programs are in `test_reference_figures.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from lstd_agent import KeptTrials, LambdaReturn, MultiStep, OneHot, Polynomial, SeminormLSTDAgent
from lstd_agent.errors import InvalidInputError
from lstd_agent.fit_options import FitOptions, Fitted
from lstd_agent.problems import ChainRows
from lstd_agent.rows.counts import CountRows
from lstd_agent.rows.kept import TrialRows
from lstd_agent.system.solve import Subsets
from lstd_agent.trials.counted import CountedTrials
from unichain_gym import TabularMDP, make_mdp, simulate_counts

pytestmark = pytest.mark.filterwarnings("ignore::lstd_agent.errors.FitWarning")

GAIN, T = 0.3, 12


def places(seed: int = 0, m: int = 30) -> tuple[Any, Any]:
    """Trials that walk up and down 20 places with a drift, and rewards of places with noise."""
    rng = np.random.default_rng(seed)
    steps = rng.choice([-1, 1, 1], size=(m, T))
    states = np.cumsum(np.hstack((rng.integers(3, size=(m, 1)), steps)), axis=1) % 20
    return states, rng.normal(size=20)[states[:, :-1]] + rng.normal(size=(m, T))


def counts_of(states: Any, rewards: Any, table: Any) -> CountRows:
    counts = SeminormLSTDAgent(table).add(KeptTrials.of(states, rewards)).counts
    return CountRows(CountedTrials.of(counts), table)


def trials_of(states: Any, rewards: Any, table: Any, lengths: Any = None) -> TrialRows:
    kept = KeptTrials.of(states[..., None].astype(float), rewards, lengths=lengths)
    return TrialRows(kept, lambda seen: table[seen[:, 0].astype(int)])


ROWS: list[Any] = [counts_of, trials_of]


def fitted(source: Any, anchors: Any, backup: Any, **options: Any) -> Fitted:
    options = {"gain": GAIN, "backup": backup, "anchors": anchors, **options}
    return FitOptions(**options).fit(source, 1)


def values_of(found: Fitted, table: Any) -> Any:
    """Calibrated values (n, S) of every window."""
    return found.system.weights @ table.T + found.system.offsets[:, None]


@pytest.mark.parametrize("anchors", [[0], [0, 1], [0, 7, 40], list(range(81))])
def test_exact_rows_and_features_that_represent_it_give_the_bias(anchors: Any) -> None:
    chain = make_mdp("h6").induce(np.array([0, 1, 0, 1, 0, 1]))
    table = np.random.default_rng(0).normal(size=(6, 6))
    p = chain.stepwise_distributions(80)
    source = ChainRows(chain, p, table)
    for backup in ("one_step", LambdaReturn(0.5)):
        subsets, each = Subsets(source, np.array(anchors)), ([chain.gain], [backup])
        [[solved]] = subsets.solve(np.array(anchors), *each)
        exact = chain.relative_value(source.main_state(anchors[-1]))
        transient = chain.transient_states
        w = source.coordinates.of_features(solved[0].columns)[:, 0]
        first = table @ w[:-1] + w[-1]
        assert_allclose(first[transient], exact[transient], atol=1e-6 * np.ptp(exact))


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("calibration", ["linked", "references"])
@pytest.mark.parametrize("backup", [MultiStep(1), LambdaReturn(0.0)])
def test_one_step_by_any_class_is_the_same_to_the_last_bit(
    rows: Any, calibration: Any, backup: Any
) -> None:
    table = np.random.default_rng(1).normal(size=(20, 5))
    one, other = (
        fitted(rows(*places(), table), [0, 4], each, calibration=calibration).system
        for each in ("one_step", backup)
    )
    assert np.array_equal(one.weights, other.weights)
    assert np.array_equal(one.offsets, other.offsets)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(
    ("calibration", "anchors"),
    [("linked", [0]), ("linked", [0, 3, 8]), ("linked", list(range(T))), ("references", [0, 5])],
)
def test_barely_more_than_one_step_is_barely_another_system(
    rows: Any, calibration: Any, anchors: Any
) -> None:
    """Targets take another way through the code than factors of single steps."""
    table = np.random.default_rng(1).normal(size=(20, 3))
    source = rows(*places(m=200), table)
    one, other = (
        fitted(source, anchors, backup, calibration=calibration)
        for backup in ("one_step", LambdaReturn(1e-9))
    )
    assert np.array_equal(one.system.rank, other.system.rank)
    assert np.array_equal(one.system.n_samples, other.system.n_samples)
    a, b = values_of(one, table), values_of(other, table)
    assert_allclose(b, a, atol=1e-5 * np.abs(a).max())


def targets_of(backup: Any, rewards: Any, values: Any) -> Any:
    """Targets (m, T) as sums from each timestep on, by the values (m, T + 1) to bootstrap on."""
    targets = np.empty(rewards.shape)
    for t in range(rewards.shape[1]):
        left = rewards.shape[1] - t
        returns = np.cumsum(rewards[:, t:], axis=1) + values[:, t + 1 :]
        if isinstance(backup, MultiStep):
            targets[:, t] = returns[:, min(backup.steps, left) - 1]
            continue
        weight = (1.0 - backup.decay) * backup.decay ** np.arange(left)
        weight[-1] = backup.decay ** (left - 1.0)
        targets[:, t] = returns @ weight
    return targets


@pytest.mark.parametrize("anchors", [[0], [0, 4], [0, 2, 7]])
@pytest.mark.parametrize("backup", [LambdaReturn(0.7), LambdaReturn(1.0), MultiStep(3)])
def test_values_along_trials_solve_their_definition(backup: Any, anchors: Any) -> None:
    """In each window targets less values have no part along features, nor along 1 but the last."""
    states, rewards = places(m=200)
    table = np.random.default_rng(1).normal(size=(20, 3))
    found = fitted(trials_of(states, rewards, table), anchors, backup)
    window = np.searchsorted(anchors, np.arange(T + 1), side="right") - 1
    v = values_of(found, table)[window[None, :], states]
    off = targets_of(backup, rewards - GAIN, v) - v[:, :-1]
    f = np.concatenate((table[states], np.ones((*states.shape, 1))), axis=2)[:, :-1]
    for k in range(len(anchors)):
        here = window[:-1] == k
        left = np.einsum("mtd,mt->d", f[:, here], off[:, here])
        left = left[:-1] if k == len(anchors) - 1 else left
        assert_allclose(left, 0.0, atol=1e-8 * np.abs(off).sum())


def test_targets_of_counts_and_of_trials_that_never_meet_are_the_same() -> None:
    states = np.arange(16)[:, None] + 16 * np.arange(T + 1)
    rng = np.random.default_rng(0)
    rewards, table = rng.normal(size=(16, T)), rng.normal(size=(16 * (T + 1), 2))
    for backup in (LambdaReturn(0.7), MultiStep(3)):
        a, b = (values_of(fitted(r(states, rewards, table), [0, 4], backup), table) for r in ROWS)
        shift = (b - a)[-1, 0]  # values are 0 at a state, or at the mean of the tail
        assert_allclose(b - shift, a, atol=1e-8 * np.abs(a).max())


@pytest.mark.parametrize("backup", ["one_step", LambdaReturn(0.7), MultiStep(3)])
def test_trials_that_were_cut_short_do_not_affect_later_timesteps(backup: Any) -> None:
    """Whatever is written there."""
    states, rewards = places(m=60)
    lengths = np.random.default_rng(2).integers(6, T + 1, size=60)
    lengths[:10] = T
    table = np.random.default_rng(1).normal(size=(20, 3))
    late = np.arange(T + 1) > lengths[:, None]
    found = []
    for other in (0, 7):
        changed = np.where(late, other, states), np.where(late[:, 1:], 1e3 * other, rewards)
        source = trials_of(*changed, table, lengths)
        found.append(values_of(fitted(source, [0, 4], backup), table))
    assert_allclose(found[1], found[0], atol=1e-9 * np.abs(found[0]).max())


@pytest.mark.parametrize("kind", ["discrete", "box"])
@pytest.mark.parametrize("backup", [LambdaReturn(0.7), LambdaReturn(1.0), MultiStep(4)])
def test_values_of_several_steps_until_a_task_ends_are_exact_ones(
    walk: Any, backup: Any, kind: str
) -> None:
    """The walk pays 0, 1, 2, …, its place, and ends, worth 0."""
    features: Any = OneHot()
    if kind == "box":
        features = lambda x: x[:, :1] == np.arange(6)  # noqa: E731
    agent = SeminormLSTDAgent(
        features, anchors=[0, 3], gain=0.0, on_termination="absorb", backup=backup
    )
    agent.collect(walk(n=6, ends=True, kind=kind), lambda _: 0, n_trials=10, t_max=9, seed=0)
    agent.fit()
    at = np.arange(5) if kind == "discrete" else np.arange(5.0)[:, None]
    assert_allclose(agent.predict(at[:3], 0), [10.0, 10.0, 9.0], atol=1e-6)
    assert_allclose(agent.predict(at[3:], 4), [7.0, 4.0], atol=1e-6)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("backup", ["one_step", LambdaReturn(0.7), LambdaReturn(1.0), MultiStep(4)])
def test_two_blocks_that_never_meet_are_open_to_each_other(rows: Any, backup: Any) -> None:
    states = np.array([[0, 1, 0, 1, 0, 1, 0], [2, 3, 2, 3, 2, 3, 2]])
    table, anchors = np.eye(4), [0, 2]
    source = rows(states, np.ones((2, 6)), table)
    found = fitted(source, anchors, backup, gain=1.0)
    for k in range(len(anchors)):
        share = found.open_share(table, np.full(4, k))
        if rows is counts_of:
            block = np.arange(4) // 2 == found.system.references.main // 2
            assert (share[~block] > 0.2).all()
            assert (share[block] < 1e-9).all()
        else:  # 0 is the mean of both, so that neither is tied to it
            assert (share > 0.1).all()


def test_batches_agree_on_the_main_reference_where_two_states_are_visited_alike() -> None:
    # A fair coin: which of its sides the last neighborhood visits most is a matter of chance.
    mdp = TabularMDP.from_arrays(np.full((2, 1, 2), 0.5), [[0.0], [1.0]], [0.5, 0.5])
    agent = SeminormLSTDAgent(OneHot(), 1)
    for seed in range(4, 12):
        agent.add(simulate_counts(mdp.induce([0, 0]), 50, 40, seed))
    agent.fit()
    assert agent.standard_errors([0, 1]).max() < 0.1
    assert agent.standard_errors([agent.main_reference_])[0] < 0.001


@pytest.mark.slow
@pytest.mark.parametrize("backup", [LambdaReturn(0.25), MultiStep(3)])
def test_standard_errors_along_trials_are_as_large_as_the_errors(backup: Any) -> None:
    """Root mean squares over 60 collections of x → .8 x + noise, whose value is x / .2."""
    off, errors = [], []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        x = np.empty((60, 32))
        x[:, 0] = rng.choice([3.0, 4.0], 60)
        for t in range(31):
            x[:, t + 1] = 0.8 * x[:, t] + 0.5 * rng.normal(size=60)
        agent = SeminormLSTDAgent(Polynomial(1), anchors=[0, 8], gain=0.0, backup=backup)
        agent.add_trials(x[..., None], x[:, :-1] + rng.normal(size=(60, 31))).fit()
        found = agent.compare([[4.0]], [[3.0]], 0)
        off.append(found.difference - 5.0)
        errors.append(found.standard_error)
    ratio = np.sqrt(np.mean(np.square(off)) / np.mean(np.square(errors)))
    assert 0.7 < ratio < 1.3


@pytest.mark.parametrize("rows_of", ROWS)
def test_steps_beyond_the_end_of_the_trials_stop_at_the_end(rows_of: Any) -> None:
    table = np.eye(20)[:, :5]
    source = rows_of(*places(), table)
    to_the_end = fitted(source, [0, 5], MultiStep(T)).system.weights
    assert not np.allclose(to_the_end, fitted(source, [0, 5], MultiStep(T - 2)).system.weights)
    for steps in (T + 1, 10**12):  # which would be 10^12 columns
        found = fitted(source, [0, 5], MultiStep(steps)).system.weights
        np.testing.assert_array_equal(found, to_the_end)


def test_bad_backups_are_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"backup must be .*; got 'two_steps'"):
        SeminormLSTDAgent(OneHot(), backup="two_steps")  # type: ignore[arg-type]
    for steps in (0, -1, 1.5, True):
        with pytest.raises(InvalidInputError, match="steps must be"):
            MultiStep(steps)  # type: ignore[arg-type]
    for decay in (-0.1, 1.1, float("nan"), "0"):
        with pytest.raises(InvalidInputError, match="must be from 0 to 1; got"):
            LambdaReturn(decay)  # type: ignore[arg-type]
