"""The study's scripts: what they refuse before they begin."""

from __future__ import annotations

import runpy
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
