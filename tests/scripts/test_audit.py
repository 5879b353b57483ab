"""The audits' exact answers and verdicts are right."""

from __future__ import annotations

import importlib
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from lstd_agent import OneHot, RadialBasis

AUDIT = Path(__file__).resolve().parents[2] / "scripts" / "audit"


@pytest.fixture
def audit(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import a script of the audit as it finds its neighbours: from its own folder."""
    monkeypatch.syspath_prepend(str(AUDIT))
    return importlib.import_module


def answer_by_simulation(model: Any, n: int, t_max: int) -> tuple[float, float]:
    """The mean start bias of n trials, with the exact gain, and its standard error."""
    states, _, rewards = model.simulate(n, t_max, np.random.default_rng(7))
    times = getattr(model, "times", lambda *_: None)(states, np.random.default_rng(8))
    earned = (rewards - model.gain * (1.0 if times is None else times)).sum(axis=1)
    return earned.mean(), earned.std() / np.sqrt(n)


def small_models(models: Any) -> dict[str, Any]:
    walk, jobs = models.moves(8, {1: 0.2, -1: 0.5, 0: 0.3}), np.arange(8)
    queue = models.Finite(walk, -1.0 * jobs, models.at(8, 7, 2), jobs)
    slow = replace(queue, P=models.moves(8, {1: 0.4, -1: 0.5, 0: 0.1}))
    points = np.array([[3.0, -1.0], [0.5, 2.0], [-4.0, 0.0]])
    A = np.array([[0.8, 0.2], [-0.1, 0.7]])
    line = {
        pay: models.Gaussian(A, 0.3 * np.eye(2), np.array([1.0, 0.4]), pay, points, 2)
        for pay in ("linear", "square", "absolute", "bump")
    }
    start = np.stack([models.at(8, 2), models.at(8, 7)]) / 2.0
    return {
        "queue": queue,
        "timed": replace(queue, duration=0.1 + jobs / 2.0, law="lognormal"),
        "mode": models.with_mode(queue, slow, 0.9, start),
        "event": models.with_event(queue, 0.05, 10.0 * (queue.reward < -3)),
        **line,
    }


@pytest.mark.parametrize(
    "name", ["queue", "timed", "mode", "event", "linear", "square", "absolute", "bump"]
)
def test_the_bias_of_the_start_agrees_with_simulated_trials(audit: Any, name: str) -> None:
    models = audit("models")
    model = small_models(models)[name]
    t_max = 4 * models.mixing_time(model) + 40
    mean, error = answer_by_simulation(model, 4_000, t_max)
    assert abs(mean - models.start_bias(model)) < 4.5 * error


def test_values_of_linear_and_quadratic_rewards_have_their_closed_forms(audit: Any) -> None:
    models = audit("models")
    x = np.array([[2.0], [-1.0]])
    a, one = np.array([[0.7]]), np.ones(1)
    linear = models.Gaussian(a, np.eye(1), one, "linear", x, 1)
    assert_allclose(linear.to_come(0, x), x[:, 0] / 0.3, rtol=1e-8)
    square = models.Gaussian(a, np.eye(1), one, "square", x, 1)
    assert_allclose(np.subtract(*square.to_come(0, x)), -(4.0 - 1.0) / (1.0 - 0.49), rtol=1e-8)
    assert square.gain == pytest.approx(-1.0 / (1.0 - 0.49))


def test_a_periodic_chain_mixes_once_its_transient_states_are_left(audit: Any) -> None:
    models = audit("models")
    P = np.array([[0.0, 1, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0], [0.5, 0, 0, 0.5]])
    ring = models.Finite(P, np.array([3.0, 0, 0, 5.0]), models.at(4, 3), np.arange(4))
    assert ring.gain == pytest.approx(1.0)
    # Two steps at 5 in the mean, then into the ring, whose states average 1, 0 and -1 ahead.
    cesaro = np.array([1.0, -1.0, 0.0])
    assert_allclose(ring.to_come(0, np.arange(3)), cesaro)
    assert_allclose(ring.to_come(0, np.array([3])), [2 * 4.0 + 1.0])
    assert_allclose(ring.to_come(1, np.arange(3)), 0.0, atol=1e-12)
    # 4.75 / 2^h of the first range, 10: at most 5 % from h = 4 on.
    assert models.mixing_time(ring) == 4


def test_an_event_without_trials_is_left_out(audit: Any) -> None:
    models = audit("models")
    queue = small_models(models)["queue"]
    event = models.with_event(queue, 1e-6, np.full(8, 1e6))
    states, _, _ = event.simulate(300, 100, np.random.default_rng(0))
    seen = event.as_seen(states, np.full(300, 101))
    assert event.gain == pytest.approx(queue.gain + 1.0)
    assert seen.gain == pytest.approx(queue.gain, rel=0.01)
    assert_allclose(event.values(np.arange(16)), np.tile(queue.to_come(0, np.arange(8)), 2))
    i, t = np.argwhere(states[:, 1:-1] % 8 == 7)[0]
    states[i, t + 1] = 15  # once where there are most jobs
    somewhere = event.as_seen(states, np.full(300, 101))
    assert somewhere.P[:, 15].any()
    assert not somewhere.P[:, 8:15].any()
    often = models.with_event(queue, 0.01, np.full(8, 100.0))
    states, _, _ = often.simulate(300, 100, np.random.default_rng(0))
    seen = often.as_seen(states, np.full(300, 101))
    assert seen.gain == pytest.approx(often.gain, rel=0.01)


def outcome(verdicts: Any, healthy: bool = True, **parts: Any) -> Any:
    """An outcome with a limit of 1 and a span of 50."""
    health = {"settled": healthy}
    return verdicts.Outcome("queue", 0, 1.0, 50.0, health, True, **parts)


@pytest.mark.parametrize(
    ("estimate", "error", "seen", "parts", "verdict"),
    [
        (0.9, 0.01, 0.0, {}, "right"),  # many errors off, within the limit
        (1.1, 0.1, 0.0, {}, "miss"),
        (1.1, 0.1, 1.0, {}, "unseen"),
        (1.1, 0.3, 0.0, {}, "wide"),
        (9.0, np.inf, 0.0, {}, "wide"),
        (9.0, np.nan, 0.0, {}, "no error"),
        (9.0, 0.1, 0.0, {"warnings": ["no"]}, "warned"),
        (9.0, 4.0, 0.0, {"warnings": ["no"]}, "false alarm"),
        (9.0, np.inf, 0.0, {"warnings": ["no"]}, "warned"),
        (0.9, 0.1, 0.0, {"warnings": ["no"]}, "false alarm"),
        (0.9, 0.1, 0.0, {"warnings": ["no"], "starts_off": 1.1}, "false alarm"),
        (0.9, 0.1, 0.0, {"warnings": ["use features, or"], "starts_off": 1.1}, "warranted"),
        (1.2, 0.1, 0.0, {"warnings": ["use features, or"]}, "warned"),
        (1.2, 0.9, 0.0, {"warnings": ["use features, or"]}, "warranted"),
        (0.9, 0.1, 0.0, {"warnings": ["use features, or"]}, "false alarm"),
        (0.9, 0.1, 0.0, {"warnings": ["no"], "healthy": False}, "warned"),
        (0.9, 0.1, 0.0, {"others": ["overflow"]}, "right"),
        (0.9, 0.1, 0.0, {"crash": "KeyError"}, "crash"),
        (np.nan, 0.1, 0.0, {}, "miss"),
    ],
)
def test_a_verdict_follows_from_answers_warnings_and_health(
    audit: Any, estimate: float, error: float, seen: float, parts: Any, verdict: str
) -> None:
    verdicts = audit("verdicts")
    good = verdicts.Answer(0.0, 1.0, 0.0, 0.0)
    off = verdicts.Answer(estimate, error, 0.0, seen)
    found = outcome(verdicts, answers={"gain": good, "difference": off}, **parts)
    assert found.verdict == verdict


def test_a_miss_is_not_shown_if_returns_agree_and_the_features_do_not_suffice(audit: Any) -> None:
    verdicts = audit("verdicts")
    for direct, verdict in (((6.0, 1.1), "not shown"), ((6.0, 0.9), "miss"), ((6.0, 0.0), "miss")):
        off = verdicts.Answer(9.0, 0.1, 0.0, 0.0, direct)
        found = outcome(verdicts, answers={"difference": off})
        assert found.verdict == "miss"
        assert replace(found, suffices=False).verdict == verdict


def test_rows_are_read_as_they_were_written(audit: Any, tmp_path: Path) -> None:
    random_tasks, out = audit("random_tasks"), tmp_path / "rows.jsonl"
    options = ["--kind", "queue", "--seed", "3", "--out", str(out), "--fits"]
    random_tasks.main([*options, "1"])
    first = out.read_text()
    random_tasks.main([*options, "1"])
    assert out.read_text() == first
    assert json.loads(first)["verdict"] == random_tasks.read(first).verdict


def test_a_task_without_an_answer_is_missed_unless_the_fit_warns(audit: Any) -> None:
    verdicts = audit("verdicts")
    none = verdicts.Answer(3.0, 1.0, np.inf, np.inf)
    assert outcome(verdicts, answers={"difference": none}).verdict == "miss"
    assert outcome(verdicts, raised="two classes").verdict == "false alarm"
    assert outcome(verdicts, False, raised="two classes").verdict == "warned"


@pytest.mark.parametrize("kind", ["queue", "explored", "timed-vectors"])
def test_a_random_fit_gets_a_verdict(audit: Any, kind: str) -> None:
    random_tasks, verdicts = audit("random_tasks"), audit("verdicts")
    found = random_tasks.run(kind, 2, most_trials=40)
    assert found.verdict in {*verdicts.VERDICTS} - {"crash"}, found.crash
    assert found.raised or {*found.answers} == {"gain", "start_bias", "difference"}
    json.dumps(asdict(found))


def test_alternatives_find_the_difference_of_a_queue(audit: Any) -> None:
    """Each with an error that simulation explains: it falls within a tenth with 2,000 trials."""
    models, tasks, alternatives = audit("models"), audit("tasks"), audit("alternatives")
    base = small_models(models)["queue"]
    queue = models.Finite(base.P, base.reward, base.start, np.arange(8.0)[:, None])
    drawn = queue.simulate(2000, 60, np.random.default_rng(1))
    task = tasks.Task.of(queue, drawn, RadialBasis.grid([0], [7], 8), ([7.0], [2.0]))
    true = task.truth(queue)["difference"]
    for method in alternatives.ALTERNATIVES.values():
        assert method(task) == pytest.approx(true, rel=0.1)


def test_an_interval_holds_the_truth_or_it_does_not(audit: Any) -> None:
    models, tasks, intervals = audit("models"), audit("tasks"), audit("intervals")
    queue = small_models(models)["queue"]
    drawn = queue.simulate(100, 40, np.random.default_rng(1))
    task = tasks.Task.of(queue, drawn, OneHot(), (7, 2), n_batches=4)
    assert intervals.held(task, 0)["difference"]
    shifted = models.Finite(queue.P, 9.0 * queue.reward, queue.start, queue.shown)
    other = tasks.Task.of(shifted, drawn, OneHot(), (7, 2), n_batches=4)
    assert not intervals.held(other, 0)["difference"]
