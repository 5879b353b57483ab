"""Scores: what a method of ten lines gets, and what is refused, kept and computed again."""

from __future__ import annotations

import inspect
import json
import pickle
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from lstd_agent.commands.main import dispatch as unichain
from lstd_agent.errors import InvalidInputError
from lstd_agent.problems import random_chain, random_policy, root_errors
from lstd_agent.results import source_of
from lstd_agent.scoring import (
    BUILT_IN,
    Budget,
    BudgetedEnv,
    BudgetError,
    ScoringError,
    score,
    trials,
)
from unichain_gym import TabularMDP, TabularVectorEnv, make_mdp

SMALL: dict[str, Any] = {"environments": ["h6"], "seeds": 2, "n_trials": 200, "t_max": 40}


PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "scoring.md"


@pytest.fixture
def average_returns(tmp_path: Path) -> Any:
    """Return the ten-line method of the page that tells how."""
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.S | re.M)
    path = tmp_path / "my_methods.py"
    path.write_text(code, encoding="utf-8")
    names: dict[str, Any] = {"__name__": "my_methods"}
    exec(compile(code, str(path), "exec"), names)
    return names["average_returns"]


def exact(env: Any, policy: Any, budget: Any, seed: int) -> Any:
    chain = env.unwrapped.mdp.induce(policy)
    return chain.bias + 7.0, chain.gain


def zeros(env: Any, policy: Any, budget: Any, seed: int) -> Any:
    return np.zeros(len(policy))


def configured(env: Any, policy: Any, budget: Any, seed: int, a: Any = None) -> Any:
    return np.zeros(len(policy))


def test_a_method_of_ten_lines_is_scored_beside_ours(average_returns: Any, tmp_path: Path) -> None:
    scores = score(average_returns, **{**SMALL, "seeds": 1}, out=tmp_path)
    assert scores.methods == ("average_returns", *BUILT_IN)
    assert len(scores.rows) == 1 + len(BUILT_IN)
    assert min(scores.measures("average_returns", "total_to_reference")) > 1.0
    assert max(scores.measures("average_returns", "total_to_limit")) < 1.0  # it needs no features
    assert scores.measures("certainty_equivalence", "total_to_reference") == [1.0]
    shown = str(scores)
    assert "| average_returns |" in shown
    assert "| h6 | 0.19 |" in shown


def test_exact_values_up_to_a_constant_have_no_error(tmp_path: Path) -> None:
    rows = score(exact, **SMALL, out=tmp_path, against=()).rows
    ours = [row for row in rows if row["method"] == "exact"]
    assert len(ours) == SMALL["seeds"]
    assert max(row["total_rems"] for row in ours) < 1e-8
    assert {row["gain_error"] for row in ours} == {0.0}


def test_the_error_of_zero_values_is_the_spread_of_the_bias(tmp_path: Path) -> None:
    rows = score({"nothing": zeros}, **SMALL, out=tmp_path, against=()).rows
    row = next(r for r in rows if r["method"] == "nothing" and r["seed"] == 1)
    chain = random_chain("h6", 1)
    p = np.array(make_mdp("h6").initial_distribution)
    assert_allclose(row["start_rems"], np.sqrt(p @ np.asarray(chain.bias) ** 2), rtol=1e-12)
    total = 0.0
    for _ in range(40 + 1):
        total += float(np.sqrt(p @ chain.bias**2))
        p = chain.transition_matrix.T @ p
    assert_allclose(row["total_rems"], total, rtol=1e-9)
    assert row["gain_error"] is None


def test_values_by_timestep_count_at_their_own() -> None:
    chain = random_chain("h6", 0)
    distributions = chain.stepwise_distributions(30)
    values = np.tile(chain.bias, (31, 1))
    values[4] += 2.0
    errors = root_errors(values, chain, distributions)
    assert_allclose(errors, np.where(np.arange(31) == 4, 2.0, 0.0), atol=1e-12)


@pytest.mark.slow
def test_the_limit_bounds_methods_with_its_features(tmp_path: Path) -> None:
    small = {**SMALL, "environments": ["h6", "c10"], "seeds": 1, "n_trials": 1000}
    scores = score({}, rhos=[0.49], **small, out=tmp_path)
    for method in ("linked", "paper", "lstd", "discounted_lstd", "differential_td", "monte_carlo"):
        assert min(scores.measures(method, "total_to_limit")) > 0.95, method


def test_existing_rows_are_not_computed_again(tmp_path: Path) -> None:
    calls: list[int] = []

    def counted(env: Any, policy: Any, budget: Any, seed: int) -> Any:
        calls.append(seed)
        return zeros(env, policy, budget, seed)

    for n in (1, 2, 2):
        scores = score(counted, **{**SMALL, "seeds": n}, against=(), out=tmp_path)
    assert calls == [0, 1]
    assert len(scores.rows) == 2 * 2
    # By a method without features once, whatever the number of regimes.
    ten = {**SMALL, "environments": ["c10"], "seeds": 1}
    score(counted, rhos=[0.49, 0.33], **ten, against=(), out=tmp_path)
    assert calls == [0, 1, 0]


def test_rows_of_a_changed_method_are_not_reused(tmp_path: Path) -> None:
    def written(value: float) -> Any:
        path = tmp_path / "theirs.py"
        path.write_text(
            f"import numpy as np\ndef f(env, policy, budget, seed):\n"
            f"    return {value} * np.arange(len(policy))\n"
        )
        names: dict[str, Any] = {}
        exec(compile(path.read_text(), str(path), "exec"), names)
        return names["f"]

    first = score(written(0.0), **SMALL, against=(), out=tmp_path / "out")
    other = score(written(1.0), **SMALL, against=(), out=tmp_path / "out")
    assert first.measures("f", "total_to_limit") != other.measures("f", "total_to_limit")
    assert len(other.rows) == len(first.rows)
    assert source_of(partial(configured, a=1)) != source_of(partial(configured, a=2))
    assert "0x" in repr(partial(configured, a=exact))  # an address, which does not count
    assert source_of(partial(configured, a=exact)) == source_of(partial(configured, a=zeros))


@pytest.mark.slow
def test_workers_compute_the_same_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Where workers find the method of this module.
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[2])
    methods = {"a": exact}
    one = score(methods, **SMALL, against=(), out=tmp_path / "one")
    two = score(methods, **SMALL, against=(), out=tmp_path / "two", workers=2)
    drop = ("seconds",)
    assert [{k: v for k, v in r.items() if k not in drop} for r in one.rows] == [
        {k: v for k, v in r.items() if k not in drop} for r in two.rows
    ]


def test_an_mdp_of_ones_own_is_a_problem_too(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    P, R = rng.dirichlet(np.ones(12), (12, 2)), rng.normal(size=(12, 2))
    own = {"mine": TabularMDP.from_arrays(P, R, np.eye(12)[0])}
    small = {**SMALL, "seeds": 1}
    scores = score(exact, **{**small, "environments": own}, against=(), out=tmp_path)
    assert {row["env"] for row in scores.rows} == {"mine"}
    changed = {"mine": TabularMDP.from_arrays(P, R + 1.0, np.eye(12)[0])}
    again = score(exact, **{**small, "environments": changed}, against=(), out=tmp_path)
    assert {r["model"] for r in again.rows}.isdisjoint(r["model"] for r in scores.rows)


def test_the_reference_of_a_task_whose_steps_take_time_has_the_gain_per_unit_of_time(
    tmp_path: Path,
) -> None:
    mdp = make_mdp("a11")
    slower = replace(mdp, durations=2.0 * np.asarray(mdp.durations))
    small: dict[str, Any] = {"seeds": 1, "n_trials": 2000, "t_max": 200, "against": ()}
    for given in (mdp, slower):  # of which the second is another model
        (row,) = score({}, environments={"a11": given}, **small, out=tmp_path).rows
        assert row["gain_error"] < 0.02
        assert row["total_rems"] < 0.2 * row["limit_total"]


def test_a_random_policy_takes_allowed_actions_only() -> None:
    P = np.full((3, 3, 3), 1.0 / 3.0)
    allowed = np.array([[1, 0, 1], [0, 1, 0], [1, 1, 1]], dtype=bool)
    mdp = TabularMDP.from_arrays(P, np.zeros((3, 3)), np.eye(3)[0], allowed=allowed)
    drawn = np.array([random_policy(mdp, seed) for seed in range(200)])
    for s in range(3):
        assert set(drawn[:, s].tolist()) == set(np.flatnonzero(allowed[s]).tolist())


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (np.zeros(5), r"must have the shape \(6,\), or \(\d+, 6\).*got \(5,\)"),
        (np.full(6, np.nan), r"must be finite; got nan at index \(0,\)"),
        ("values", "must return an array, or a pair of an array and the gain; got str"),
        ((np.zeros(6), np.inf), "the gain must be finite, or left out; got inf"),
        (None, r"values must have the shape .*; got \(\)"),
    ],
)
def test_an_invalid_answer_is_refused(answer: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ScoringError, match=f"mine on h6, ρ = 0.19, seed 0: .*{message}"):
        score({"mine": lambda *_: answer}, **SMALL, out=tmp_path)


def test_a_failing_method_is_named_and_earlier_rows_are_kept(tmp_path: Path) -> None:
    def failing(env: Any, policy: Any, budget: Any, seed: int) -> Any:
        if seed == 1:
            raise ZeroDivisionError("no visits")
        return zeros(env, policy, budget, seed)

    with pytest.raises(ScoringError, match=r"failing on h6, ρ = 0.19, seed 1: ZeroDivisionError"):
        score(failing, **SMALL, against=(), out=tmp_path)
    assert len((tmp_path / "score_rows.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": lambda *_: 0}, "has no name: give"),
        ({"method": {"linked": zeros}}, "there is a method 'linked' of ours"),
        ({"method": {"mine": 3}}, "a method must be callable; got 3"),
        ({"method": zeros, "against": ["theirs"]}, "against must be among .*; got 'theirs'"),
        ({"method": zeros, "against": "linked"}, "against must be a sequence; got 'linked'"),
        ({"method": zeros, "environments": "h6"}, "environments must be a sequence; got 'h6'"),
        ({"method": zeros, "against": 1}, r"against must be a sequence; got 1: .1.\?"),
        ({"method": zeros, "against": [["linked"]]}, "against must be among .*; got .'linked'."),
        ({"method": zeros, "environments": [1]}, "a mnemonic or an id; got 1"),
        ({"method": zeros, "environments": {"mine": 3}}, "'mine' must be a TabularMDP; got 3"),
        ({"method": zeros, "rhos": 0.19}, r"rhos must be a sequence; got 0.19: .0.19.\?"),
        ({"method": zeros, "seeds": None}, "seeds must be a sequence; got None"),
        ({"method": zeros, "seeds": [-1]}, "a seed must be at least 0; got -1"),
        ({"method": zeros, "t_max": 2**70}, "are at most 1e9; got n_trials=.* and t_max=118"),
        ({"method": zeros, "n_trials": 2**70}, "are at most 1e9; got n_trials=1180591620717"),
        ({"method": {1: zeros}}, "has no name: give .'its name': method"),
        (
            {"method": zeros, "environments": ["h6"], "rhos": [0.03]},
            "h6 is not studied at ρ = 0.03",
        ),
        ({"method": zeros, "seeds": 0}, "seeds must be at least 1; got 0"),
        ({"method": zeros, "n_trials": 1.5}, "n_trials must be an integer; got 1.5"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    arguments: dict[str, Any], message: str, tmp_path: Path
) -> None:
    method = arguments.pop("method")
    with pytest.raises(InvalidInputError, match=message):
        score(method, **arguments, out=tmp_path)


def test_no_more_than_the_budget_can_be_sampled() -> None:
    budget = Budget(n_trials=45, t_max=3)
    env = BudgetedEnv(TabularVectorEnv(make_mdp("h6"), budget.num_envs), budget)
    rounds = list(trials(env, np.zeros(6, dtype=np.int64), budget, seed=0))
    assert [states.shape for states, _ in rounds] == [(3, 5)] * 15
    assert rounds[0][1].shape == (3, 4)
    with pytest.raises(BudgetError, match="the budget of 45 trials is spent: 15 rounds of 3"):
        env.reset()
    with pytest.raises(BudgetError, match="a trial ends with the step at timestep t_max = 3"):
        env.step(np.zeros(3, dtype=np.int64))


def test_the_command_runs_five_seeds_and_names_the_option_for_more(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: dict[str, Any] = {}

    def told(methods: Any, **arguments: Any) -> None:
        asked.update(arguments)
        raise InvalidInputError("enough")

    monkeypatch.setattr("lstd_agent.commands.score.score", told)
    assert unichain(["score"]) == 2
    assert asked["seeds"] == inspect.signature(score).parameters["seeds"].default == 5
    assert len(asked["environments"]) * asked["seeds"] * (1 + len(asked["against"])) == 400
    with pytest.raises(SystemExit):
        unichain(["score", "--help"])
    captured = capsys.readouterr()
    assert "350 tasks of certainty_equivalence, differential_td, discounted_lstd" in captured.err
    shown = " ".join(captured.out.split())
    assert "a quarter of an hour on two cores" in shown
    assert "--seeds 20" in shown


@pytest.mark.slow
def test_the_command_scores_a_method_of_a_module_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my_scored_package.py").write_text(
        "import numpy as np\ndef guess(env, policy, budget, seed):\n    return 0.0 * policy\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.setenv(variable, "1")
    small = ["--envs", "h6", "--seeds", "1", "--trials", "100", "--workers", "1", "--quiet"]
    small += ["--against", "linked"]
    assert unichain(["score", "my_scored_package:guess", *small]) == 0
    assert "| guess |" in capsys.readouterr().out
    assert {path.name for path in (tmp_path / "results" / "score").iterdir()} == {
        "score_rows.jsonl", "score_rows.csv", "scores.md", "provenance.json",
    }  # fmt: skip
    facts = json.loads((tmp_path / "results" / "score" / "provenance.json").read_text())
    assert facts["command"].startswith("unichain score my_scored_package:guess")
    assert unichain(["score", "my_scored_package:gess", *small]) == 2
    assert "the module my_scored_package has no 'gess'" in capsys.readouterr().err
    assert unichain(["score", "my_scored_package", *small]) == 2
    assert "is no method: write module:function" in capsys.readouterr().err
    assert unichain(["score", "my_package_of_none:f", *small]) == 2
    assert "cannot import my_package_of_none" in capsys.readouterr().err


def test_the_command_shows_where_a_method_failed_and_prints_one_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my_failing_package.py").write_text(
        "def fails(env, policy, budget, seed):\n    return policy.no_such_attribute\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    small = ["--envs", "c5", "FrozenLake-v1", "--seeds", "1", "--trials", "40", "--quiet"]
    small += ["--rhos", "0.49", "--against", "--workers", "1"]
    assert unichain(["score", "my_failing_package:fails", *small]) == 2
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert "return policy.no_such_attribute" in shown
    assert shown.splitlines()[-1].startswith("error: fails on c5, ρ = 0.49, seed 0: AttributeError")
    assert unichain(["score", *small, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {row["env"] for row in document["rows"]} == {"c5", "FrozenLake-v1"}
    assert document["medians"]["certainty_equivalence"]["total_to_reference"] == 1.0


def test_an_error_of_a_method_keeps_its_traceback_across_processes() -> None:
    failed = ScoringError("it failed")
    failed.traceback = "Traceback: here"
    error = pickle.loads(pickle.dumps(failed))
    assert (str(error), error.traceback) == ("it failed", "Traceback: here")


def test_an_environment_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="CartPole-v1 has no exact model"):
        score({}, environments=["CartPole-v1"], out=tmp_path)
