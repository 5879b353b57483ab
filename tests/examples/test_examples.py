"""The examples run, at a small size, and their answers are the right ones."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from lstd_agent import FitWarning

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def example(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import an example as a script finds its neighbours: from its own folder."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module(request.param)


@pytest.fixture
def picture(tmp_path: Path) -> Iterator[str]:
    """Yield the path of an example's picture, and check that it was drawn."""
    path = tmp_path / "picture.png"
    yield str(path)
    assert path.read_bytes().startswith(b"\x89PNG")


def relative_value(env: Any, state: int, other: int) -> float:
    """Solve the average-reward Bellman equation of a table densely: b(state) - b(other)."""
    n = len(env.P)
    P, r = np.zeros((n, n)), np.zeros(n)
    for s, actions in env.P.items():
        for p, next_state, reward, _ in actions[0]:
            P[s, next_state] += p
            r[s] += p * reward
    # The unknowns are b, and g in a last column.
    A = np.column_stack([np.eye(n) - P, np.ones(n)])
    b = np.linalg.lstsq(A, r, rcond=None)[0]
    return float(b[state] - b[other])


@pytest.mark.slow
@pytest.mark.parametrize("example", ["queue_backlog"], indirect=True)
def test_the_cost_of_a_backlog_agrees_with_queueing_theory(
    example: ModuleType, picture: str, capsys: pytest.CaptureFixture[str]
) -> None:
    n = example.BACKLOG
    closed_form = n * (n + 1) / (2 * (example.SERVICE - example.ARRIVAL))
    assert relative_value(example.make_queue(), 0, n) == pytest.approx(closed_form, rel=1e-6)
    cost = example.main(n_runs=3, n_trials=150, picture=picture)
    assert abs(cost.value - closed_form) < 4 * cost.error
    assert cost.error < 0.15 * closed_form
    assert "a crew for 500 is worth it, by" in capsys.readouterr().out


def morning_of(example: ModuleType, nurses: Any) -> tuple[float, float]:
    """Return the long-run cost of an hour and the cost of the first hours, by small time steps."""
    n = np.arange(example.MOST + 1)
    work = np.array([nurses(patients) for patients in n])
    come = np.where(n < example.MOST, example.ARRIVALS, 0.0)
    go = example.SERVED * np.minimum(n, work)
    Q = np.diag(come[:-1], 1) + np.diag(go[1:], -1) - np.diag(come + go)
    cost = example.PATIENT * n + example.NURSE * work
    A = np.vstack([Q.T[:-1], np.ones(len(n))])
    hour = np.linalg.solve(A, np.eye(len(n))[-1]) @ cost
    steps = 20_000
    start, total = np.eye(len(n))[example.AT_THE_DOOR], 0.0
    for _ in range(steps):
        total += start @ cost * example.HOURS / steps
        start = start + start @ Q * example.HOURS / steps
    return float(hour), float(total)


@pytest.mark.slow
@pytest.mark.parametrize("example", ["clinic_staffing"], indirect=True)
def test_the_rule_for_a_queue_at_the_door_differs_from_the_long_run(
    example: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    found = example.main(n_runs=3, n_trials=60)
    for name, nurses in example.RULES.items():
        for estimate, right in zip(found[name], morning_of(example, nurses), strict=True):
            assert abs(estimate.value - right) < 5 * estimate.error
            assert estimate.error < 0.03 * right
    shown = capsys.readouterr().out
    assert "in the long run the cheaper rule is: a third nurse above 4" in shown
    assert "this morning the cheaper rule is: two more above 12" in shown


@pytest.mark.slow
@pytest.mark.parametrize("example", ["machine_warm_up"], indirect=True)
def test_the_value_of_a_warm_start_solves_the_bellman_equation(
    example: ModuleType, picture: str, capsys: pytest.CaptureFixture[str]
) -> None:
    exact = relative_value(example.make_machine(), example.WARM, 0)
    worth = example.main(n_runs=3, n_trials=150, picture=picture)
    assert abs(worth.value - exact) < 4 * worth.error
    assert worth.error < 0.1 * exact
    assert "preheating for 12 pieces is worth it, by" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("example", ["inventory_lead_time"], indirect=True)
def test_the_value_of_full_shelves_solves_the_bellman_equation(
    example: ModuleType, picture: str, capsys: pytest.CaptureFixture[str]
) -> None:
    full, empty = example.state_of(example.TARGET, 0), example.state_of(0, 0)
    exact = relative_value(example.make_shop(), full, empty)
    worth = example.main(n_runs=3, n_trials=300, picture=picture)
    assert abs(worth.value - exact) < 4 * worth.error
    assert worth.error < 0.1 * exact
    assert "an express delivery for 20 is too dear, by" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("example", ["taxi_shift"], indirect=True)
def test_the_better_rank_is_found_from_samples(
    example: ModuleType, picture: str, capsys: pytest.CaptureFixture[str]
) -> None:
    worth = example.main(n_runs=3, n_trials=900, picture=picture)
    printed = capsys.readouterr().out
    exact = float(printed.split("exactly ")[1].split()[0])
    assert abs(worth.value - exact) < 4 * worth.error
    assert worth.value > 2 * worth.error
    assert "start at red or yellow or blue" in printed


@pytest.mark.parametrize("example", ["learned_queue"], indirect=True)
@pytest.mark.filterwarnings("ignore::lstd_agent.errors.FitWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_value_of_a_learned_policy_solves_the_bellman_equation(
    example: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    found = example.main(n_steps=1000, every=1000, n_trials=1000, t_max=300)
    printed = capsys.readouterr().out
    if not found:
        assert printed.startswith("left out: this callback needs Stable-Baselines3: pip install ")
        pytest.skip(printed)
    assert [evaluation.n_steps for evaluation in found] == [0, 1000]
    n = example.MOST + 1
    actions, _ = found[-1].agent.policy(np.arange(n))
    arrive, serve = example.ARRIVAL, np.array(example.SERVICE)[actions]
    transitions = np.zeros((n, n))
    place = np.arange(n)
    np.add.at(transitions, (place, np.minimum(place + 1, n - 1)), arrive)
    np.add.at(transitions, (place, np.maximum(place - 1, 0)), serve)
    np.add.at(transitions, (place, place), 1.0 - arrive - serve)
    stationary = np.linalg.matrix_power(transitions, 100_000)[0]
    rewards = -place - example.PRICE * actions
    gain = float(stationary @ rewards)
    bias = np.linalg.lstsq(
        np.vstack((np.eye(n) - transitions, stationary)), np.append(rewards - gain, 0.0), rcond=None
    )[0]
    start = float(bias[: example.BACKLOG + 1].mean())
    assert found[-1].gain == pytest.approx(gain, abs=0.1 * abs(gain))
    assert found[-1].start_value == pytest.approx(start, rel=0.1)
    assert "put to work the policy after" in printed


@pytest.mark.slow
@pytest.mark.skipif(find_spec("gym_simplegrid") is None, reason="gym-simplegrid is not installed")
@pytest.mark.parametrize("example", ["delivery_cart"], indirect=True)
def test_the_value_of_a_cart_beside_the_table_solves_the_bellman_equation(
    example: ModuleType, picture: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)  # few trials start in each of fifty cells
        worth = example.main(n_runs=3, n_trials=400, picture=picture)
    printed = capsys.readouterr().out
    exact = float(printed.split("exactly ")[1].split()[0])
    assert abs(worth.value - exact) < 4 * worth.error + 0.005  # printed to two digits
    assert worth.error < 0.05
    assert "taking the cart there for 0.4 is worth it, by" in printed


SCRIPTS = sorted(path for path in EXAMPLES.glob("*.py") if path.stem != "small_models")


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_every_example_opens_with_its_question_and_is_on_their_page(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith('# %% [markdown]\n"""')
    assert "?" in text.split('"""')[1]
    page = (EXAMPLES.parent / "docs" / "examples.md").read_text("utf-8")
    assert f"`examples/{path.name}`" in page
