"""The study's scripts: what they refuse before they begin."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.mark.parametrize(
    "name", ["exact_tables", "sampling_curves", "compare_references", "update_results"]
)
def test_a_missing_plot_extra_is_told_before_the_work(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setattr(sys, "argv", [name, "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(str(SCRIPTS / f"{name}.py"), run_name="__main__")
    assert stop.value.code == 2
    assert 'pip install "unichain-gym[plot]"' in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("compare_references.py", "--trials", "1"), "--trials: must be at least 2, got 1"),
        (("exact_tables.py", "--seeds", "0"), "--seeds: must be at least 1, got 0"),
        (("sampling_curves.py", "--workers", "-1"), "--workers: must be at least 1, got -1"),
    ],
)
def test_impossible_numbers_are_refused(argv: tuple[str, ...], message: str) -> None:
    command = [sys.executable, str(SCRIPTS / argv[0]), *argv[1:]]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert message in result.stderr
