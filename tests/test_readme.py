"""What README.md promises: its code runs, its commands are the ones that are checked."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from lstd_agent.commands import evaluate
from tests.pages import assert_printed, run_page
from unichain_gym import make_mdp

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readme_is_a_page() -> None:
    assert len(README.splitlines()) <= 150


def test_blocks_run_in_order_and_print_the_shown_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_page(README) == 2
    assert README.count("```python") == 2


def test_the_exact_difference_equals_the_number_in_the_picture() -> None:
    assert "a difference of 240 in total reward" in README
    chain = make_mdp("h36c").induce(np.ones(36, dtype=int))
    assert chain.bias[34] - chain.bias[0] == pytest.approx(240, abs=0.5)


def test_each_of_the_two_commands_runs_alone() -> None:
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


@pytest.mark.slow
def test_the_first_command_prints_the_shown_output(capsys: pytest.CaptureFixture[str]) -> None:
    main = next(line for line in README.splitlines() if line.startswith("python3 -m venv .venv"))
    _, *arguments = shlex.split(main.split(" && ")[2])[1:]
    assert evaluate.main(arguments) == 0
    shown_now = capsys.readouterr().out
    shown = re.search(r"^```text\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    assert shown is not None
    first, last = (part.splitlines() for part in shown[1].split("  ...\n"))
    printed = shown_now[shown_now.index("gain ") :].splitlines()
    for line, promised in zip(
        printed[: len(first)] + printed[-len(last) :], first + last, strict=True
    ):
        assert_printed(line, promised)
