"""Rows survive kills, never mix settings, and are computed once."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lstd_agent.study.exact_study import ExactSettings, run_exact_study
from lstd_agent.study.rows import RowStore, settings_hash

STUDY = {"environments": ("h6", "c10"), "rhos": (0.49, 0.19), "n_seeds": 4}
SCRIPT = """
from pathlib import Path
import sys
from lstd_agent.study.exact_study import ExactSettings, run_exact_study
run_exact_study(Path(sys.argv[1]), ExactSettings(), environments=("h6", "c10"),
                rhos=(0.49, 0.19), n_seeds=4)
"""


def sorted_lines(out: Path) -> list[str]:
    return sorted((out / "exact_rows.jsonl").read_text().splitlines())


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    out = tmp_path_factory.mktemp("whole")
    rows = run_exact_study(out, ExactSettings(), **STUDY)
    assert len(rows) == 4 * 10 * 4
    return sorted_lines(out)


def test_ten_kills_change_no_byte_of_the_rows(tmp_path: Path, uninterrupted: list[str]) -> None:
    moments = random.Random(0)
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    n_killed = 0
    for _ in range(10):
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        rows = tmp_path / "exact_rows.jsonl"
        size = rows.stat().st_size if rows.exists() else 0
        # Let it get to work, then strike at any moment of the next task.
        while process.poll() is None and (not rows.exists() or rows.stat().st_size <= size):
            time.sleep(0.01)
        time.sleep(moments.uniform(0.0, 0.2))
        process.send_signal(signal.SIGKILL)
        n_killed += process.wait() == -signal.SIGKILL
    assert n_killed >= 1
    run_exact_study(tmp_path, ExactSettings(), **STUDY)
    assert sorted_lines(tmp_path) == uninterrupted


def test_a_file_cut_at_any_byte_is_completed_to_the_same_rows(
    tmp_path: Path, uninterrupted: list[str]
) -> None:
    path = tmp_path / "exact_rows.jsonl"
    whole = ("\n".join(uninterrupted) + "\n").encode()
    for cut in random.Random(1).sample(range(len(whole)), 3):
        path.write_bytes(whole[:cut])
        run_exact_study(tmp_path, ExactSettings(), **STUDY)
        assert sorted_lines(tmp_path) == uninterrupted


def test_a_finished_study_computes_nothing(
    tmp_path: Path, uninterrupted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "exact_rows.jsonl"
    path.write_text("\n".join(uninterrupted) + "\n")
    monkeypatch.setattr("lstd_agent.study.exact_study.exact_rows", None)
    assert len(run_exact_study(tmp_path, ExactSettings(), **STUDY)) == 160


def test_rows_of_other_settings_are_never_mixed(tmp_path: Path) -> None:
    small = {"environments": ("h6",), "rhos": (0.19,), "schemes": ("p01",), "n_seeds": 1}
    window = run_exact_study(tmp_path, ExactSettings(tail="window"), **small)
    stationary = run_exact_study(tmp_path, ExactSettings(tail="stationary"), **small)
    assert window[0]["settings"] != stationary[0]["settings"]
    assert window[0]["total_repb"] != stationary[0]["total_repb"]
    assert run_exact_study(tmp_path, ExactSettings(tail="window"), **small) == window
    assert len((tmp_path / "exact_rows.jsonl").read_text().splitlines()) == 2


def test_workers_compute_the_same_rows(tmp_path: Path, uninterrupted: list[str]) -> None:
    run_exact_study(tmp_path, ExactSettings(), workers=2, **STUDY)
    assert sorted_lines(tmp_path) == uninterrupted


def test_the_hash_of_settings_does_not_depend_on_their_order() -> None:
    assert settings_hash({"a": 1, "b": 2}) == settings_hash({"b": 2, "a": 1})
    assert settings_hash({"a": 1}) != settings_hash({"a": 2})


def test_a_store_tells_which_keys_it_has(tmp_path: Path) -> None:
    store = RowStore(tmp_path / "deep" / "rows.jsonl", {"x": 1}, ("env", "seed"))
    store.add([{"env": "h6", "seed": 0, "value": 0.1}])
    assert ("h6", 0) in store
    assert ("h6", 1) not in store
    again = RowStore(tmp_path / "deep" / "rows.jsonl", {"x": 1}, ("env", "seed"))
    assert again.rows == [{"settings": store.settings, "env": "h6", "seed": 0, "value": 0.1}]
    assert json.loads((tmp_path / "deep" / "rows.jsonl").read_text())["value"] == 0.1
