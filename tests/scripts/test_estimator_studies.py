"""The comparison of estimators, and that of numbers of neighbourhoods and trials."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from study import complexity as rule
from study import studies, tables
from study.complexity import COMBINATIONS, COMPLEXITY
from study.sampled import (
    CERTAINTY,
    DEFAULTS,
    ESTIMATOR_STUDY,
    ESTIMATORS,
    OURS,
    EstimatorSettings,
    draw_batches,
)

from lstd_agent import SeminormLSTDAgent
from lstd_agent.problems import (
    PiecewiseValues,
    StepwiseErrors,
    random_chain,
    random_features,
    regimes,
)
from lstd_agent.system.distances import MMD

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rows")


@pytest.fixture(scope="module")
def estimators(folder: Path) -> Rows:
    settings = EstimatorSettings(n_trials=400)
    return ESTIMATOR_STUDY.run(folder, settings, {"env": ["h6"]}, 1)


@pytest.fixture(scope="module")
def complexity(folder: Path) -> Rows:
    return COMPLEXITY.run(folder, None, {"env": ["h6"], "n_trials": (100,)}, 1)


@pytest.mark.slow
def test_every_estimator_has_a_row_in_every_regime(estimators: Rows) -> None:
    found = {(r["rho"], r["seed"], r["scheme"], r["estimator"]) for r in estimators}
    assert len(found) == len(estimators) == 2 * 2 * len(ESTIMATORS)
    assert all(np.isfinite(r["total_rems"]) and r["limit"] > 0.0 for r in estimators)


def test_batches_are_all_trials_and_differ() -> None:
    batches = draw_batches(random_chain("h6", 0), 0, 100, 7, 5)
    assert sum(batch.n_trials for batch in batches) == 100
    assert {batch.n_trials for batch in batches} == {14, 15}
    first, second = batches[1].transition_counts, batches[2].transition_counts
    assert (first.toarray() != second.toarray()).any()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::lstd_agent.FitWarning")
def test_the_defaults_are_those_of_an_agent(estimators: Rows) -> None:
    chain = random_chain("h6", 0)
    t_max, regime = 10 * chain.mixing_time(), regimes(6)[0]
    F = random_features(6, regime.n_features, 0)
    agent = SeminormLSTDAgent(F, gain=chain.gain, distance=MMD("quadratic"), search="doubling")
    for batch in draw_batches(chain, 0, 400, 20, t_max):
        agent.add(batch)
    errors = StepwiseErrors(chain, F, chain.stepwise_distributions(t_max, tol=0.0))
    error = errors.rems(PiecewiseValues.of(agent.fit(), 6)).sum()
    key = {"scheme": "p02md", "rho": regime.rho, "seed": 0, "estimator": DEFAULTS}
    (row,) = (r for r in estimators if key.items() <= r.items())
    assert_allclose(row["total_rems"], error, rtol=1e-9)


@pytest.mark.slow
def test_errors_of_baselines_agree_with_their_values(estimators: Rows) -> None:
    """Certainty equivalence again, from the equation and the definition of total rems."""
    chain = random_chain("h6", 0)
    t_max = 10 * chain.mixing_time()
    batches = draw_batches(chain, 0, 400, 20, t_max)
    counts = [batch.transition_counts.toarray().sum(axis=0) for batch in batches]
    N = np.sum(counts, axis=0).reshape(6, 6)
    visits = N.sum(axis=1)
    main = int(np.argmax(visits))
    system = np.diag(visits) - N
    system[main] = np.eye(6)[main]
    right = visits * (chain.reward - chain.gain)
    right[main] = 0.0
    error = np.linalg.solve(system, right) - chain.relative_value(main)
    expected = np.sqrt(chain.stepwise_distributions(t_max, tol=0.0) @ error**2).sum()
    rows = [r for r in estimators if r["estimator"] == CERTAINTY and r["seed"] == 0]
    assert len(rows) == 4
    assert_allclose([r["total_rems"] for r in rows], expected, rtol=1e-6)


def test_the_summary_counts_rows_won_and_lost() -> None:
    def rows(env: str, values: dict[str, float]) -> Rows:
        return [
            {"scheme": "p02md", "env": env, "rho": 0.49, "seed": seed, "estimator": name,
             "total_rems": 2.0 * values.get(name, 1.0), "limit": 2.0}
            for name in ESTIMATORS
            for seed in range(3)
        ]  # fmt: skip

    second = [*OURS][1]
    given = [
        *rows("h6", {"LSTD(0)": 0.5, "TD(0)": 1.01}),
        *rows("h36", {"LSTD(0)": 3.0, second: 0.8}),
    ]
    table = tables.estimator_table(given).splitlines()
    assert table[2].startswith(f"| {DEFAULTS} | 1 | 1 to 1 | 1 |  |")
    assert "| LSTD(0) | 1.75 | 1.12 to 2.38 | 3 | 1 of 2 | 1 of 2 |" in table
    assert "| TD(0) | 1 | 1 to 1.01 | 1.01 | 0 of 2 | 0 of 2 |" in table
    assert table[-1].startswith("| *the best of ours in each row* | 0.9 |")
    report = tables.markdown_estimators(given)
    assert "- LSTD(0), in 1: p02md h6 ρ=0.49\n" in report
    assert f"- {second}, in 1: p02md h36 ρ=0.49\n" in report


@pytest.mark.slow
def test_all_numbers_of_neighborhoods_and_backups_are_tried(complexity: Rows) -> None:
    # h6 has one regime: a third and a fifth of its states are one feature either way.
    assert len(complexity) == len(COMBINATIONS)
    stepwise = [r for r in complexity if r["wanted"] == "stepwise"]
    t_max = 10 * random_chain("h6", 0).mixing_time()
    assert all(r["n_anchors"] == t_max + 1 for r in stepwise)
    assert all(r["n_anchors"] <= int(r["wanted"]) for r in complexity if r not in stepwise)


@pytest.mark.slow
def test_errors_are_multiples_of_the_best_constants_error(complexity: Rows) -> None:
    """With the limit of one neighbourhood by least squares on the exact values."""
    chain = random_chain("h6", 0)
    p = chain.stepwise_distributions(10 * chain.mixing_time(), tol=0.0)
    F = np.column_stack((random_features(6, 1, 0), np.ones(6)))
    root = np.sqrt(p.mean(axis=0))
    w = np.linalg.lstsq(root[:, None] * F, root * chain.bias, rcond=None)[0]
    rems = np.sqrt(p @ (F @ w - chain.bias) ** 2).sum()
    deviation = np.sqrt(p @ chain.bias**2 - (p @ chain.bias) ** 2).sum()
    row = next(r for r in complexity if r["env"] == "h6" and r["wanted"] == "1")
    assert row["limit"] == pytest.approx(rems / deviation, rel=1e-6)


@pytest.mark.slow
def test_a_finished_study_computes_nothing_and_more_trials_add_rows(
    folder: Path, complexity: Rows
) -> None:
    nothing: Any = None
    study = replace(COMPLEXITY, rows=nothing)
    fewer = study.run(folder, None, {"env": ["h6"], "n_trials": (100,)}, 1)
    assert fewer == complexity
    more = COMPLEXITY.run(folder, None, {"env": ["h6"], "n_trials": (100, 200)}, 1)
    assert [r for r in more if r["n_trials"] == 100] == fewer
    assert len(more) == 2 * len(fewer)


@pytest.mark.parametrize(
    ("n_trials", "d", "c", "expected"),
    [(100, 1, 10.0, "8"), (100, 10, 10.0, "1"), (99, 1, 100.0, "1"), (10**6, 1, 1.0, "32")],
)
def test_the_rule_feeds_each_weight_with_c_trials(
    n_trials: int, d: int, c: float, expected: str
) -> None:
    assert rule.by_rule(c)(n_trials, d, rule.WANTED) == expected


def complexity_of(errors: dict[int, dict[str, float]]) -> Rows:
    """Rows of one environment from errors by numbers of trials and of neighbourhoods."""
    return [
        {"env": "h6", "rho": 0.19, "seed": 0, "n_trials": n, "wanted": wanted, "backup": backup,
         "n_features": 1, "n_anchors": 1, "error": error, "limit": 0.5}
        for n, by_wanted in errors.items()
        for wanted, error in by_wanted.items()
        for backup in ("one step", "model")
    ]  # fmt: skip


def test_a_loss_is_the_error_over_the_least_one() -> None:
    errors = {n: {"1": 1.1, "2": 1.0 + 19.0 / n, "stepwise": 1.0 + 1e3 / n} for n in (10**2, 10**4)}
    found = rule.Curves.of(complexity_of(errors))
    _, worst = found.losses("model", ("h6",), lambda n, d, choices: "stepwise")
    assert worst == pytest.approx(11.0 / 1.1)


def test_the_rule_takes_the_largest_allowed_number_for_any_order_of_rows() -> None:
    by_wanted = {wanted: 1.0 + k for k, wanted in enumerate(sorted(rule.WANTED))}
    found = rule.Curves.of(complexity_of({100: by_wanted}))
    for c, allowed in ((100.0, "1"), (10.0, "8"), (5.0, "16"), (1.0, "32")):
        lost, worst = found.losses("model", ("h6",), rule.by_rule(c))
        assert lost == worst == pytest.approx(by_wanted[allowed])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["estimators", "complexity"])
def test_the_commands_write_tables_pictures_and_rows(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--envs", "h6", "--seeds", "1", "--trials", "100"]
    how = ["--workers", "1", "--quiet", "--out", str(tmp_path)]
    assert studies.main(name, [*argv, *how]) == 0
    written = {path.suffix for path in tmp_path.iterdir()}
    assert {".md", ".png", ".csv", ".json", ".jsonl"} == written
    assert capsys.readouterr().out.startswith("| ")
