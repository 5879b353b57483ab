"""What README.md promises: its code runs, its commands are the ones that are checked."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from lstd_agent.commands import evaluate

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_python_block_runs_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 3
    assert README.count("```python") == len(blocks)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "readme"}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    # The tour's estimate is close to the exact difference it prints before.
    exact = names["chain"].bias[0] - names["chain"].bias[35]
    (estimate,) = names["agent"].predict([0]) - names["agent"].predict([35])
    assert estimate == pytest.approx(exact, rel=0.05)
    # The backlog's value is the one stated: 687.9 ± 1 by 20,000 simulated pairs of trials.
    evaluator = names["evaluator"]
    backlog, none = evaluator.predict([[20.0], [0.0]])
    assert backlog - none == pytest.approx(-687.9, rel=0.02)
    assert "The 20 units cost 688 in all; the estimate is 691" in README
    assert f"{none - backlog:.0f}" == "691"


def test_each_of_the_two_commands_makes_what_it_needs() -> None:
    commands = [line for line in README.splitlines() if line.startswith("python3 -m venv .venv")]
    main, test = ([shlex.split(part) for part in line.split(" && ")] for line in commands)
    assert main[1] == [".venv/bin/pip", "install", "."]
    assert main[2][:2] == [".venv/bin/python", "scripts/evaluate_policy.py"]
    assert (ROOT / main[2][1]).is_file()
    assert test[1:] == [[".venv/bin/pip", "install", ".[test]"], [".venv/bin/pytest", "-n", "auto"]]


def test_every_core_has_a_row_in_the_table_of_environments() -> None:
    from unichain_gym.cores import CORES

    rows = re.findall(r"^\| `(\w)` \| (\d+) \| (\S+) \|", README, re.MULTILINE)
    made = {core: make() for core, make in CORES.items()}
    assert {core: int(n_states) for core, n_states, _ in rows} == {
        core: mdp.n_states for core, mdp in made.items()
    }
    for core, _, gain in rows:
        best = made[core].optimal_policy("gain").gain.max()
        assert float(gain) == pytest.approx(best, abs=5e-5)


def test_the_first_command_prints_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    main = next(line for line in README.splitlines() if line.startswith("python3 -m venv .venv"))
    _, *arguments = shlex.split(main.split(" && ")[2])[1:]
    assert evaluate.main(arguments) == 0
    shown_now = capsys.readouterr().out
    shown = re.search(r"^```text\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    assert shown is not None
    first, last = (part.splitlines() for part in shown[1].split("  ...\n"))
    printed = shown_now[shown_now.index("gain ") :].splitlines()
    number = re.compile(r"-?\d+(?:\.\d+)?")
    for line, promised in zip(
        printed[: len(first)] + printed[-len(last) :], first + last, strict=True
    ):
        assert number.sub("#", line).split() == number.sub("#", promised).split()
        ours, theirs = (np.array(number.findall(text), float) for text in (line, promised))
        # Rounding may differ from machine to machine in the last digit shown.
        assert_allclose(ours, theirs, rtol=1e-3, atol=2e-4)
