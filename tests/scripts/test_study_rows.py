"""Rows survive kills, never mix settings, and are computed once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from study.exact import EXACT, ExactSettings

import lstd_agent
from lstd_agent import results
from lstd_agent.errors import InvalidInputError
from lstd_agent.results import RowStore, code_version
from lstd_agent.trials.workers import run_tasks

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
N_KILLS = int(os.environ.get("N_KILLS", "2"))  # more where there is time

STUDY: dict[str, Any] = {
    "among": {"env": ("h6", "c10"), "rho": (0.49, 0.19), "scheme": ("p01", "p02md", "pinf")},
    "n_seeds": 2,
}
SCRIPT = f"""
from pathlib import Path
import sys
sys.path.insert(0, sys.argv[1])
from study.exact import EXACT
EXACT.run(Path(sys.argv[2]), **{STUDY})
"""


def sorted_lines(out: Path) -> list[str]:
    return sorted((out / "exact_rows.jsonl").read_text().splitlines())


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    out = tmp_path_factory.mktemp("whole")
    rows = EXACT.run(out, **STUDY)
    assert len(rows) == 4 * 3 * 2
    return sorted_lines(out)


@pytest.mark.slow
def test_kills_change_no_byte_of_the_rows(tmp_path: Path, uninterrupted: list[str]) -> None:
    moments = random.Random(0)
    command = [sys.executable, "-c", SCRIPT, str(SCRIPTS), str(tmp_path)]
    n_killed = 0
    for _ in range(N_KILLS):
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
    EXACT.run(tmp_path, **STUDY)
    assert sorted_lines(tmp_path) == uninterrupted


def test_a_file_cut_at_any_byte_is_completed_to_the_same_rows(
    tmp_path: Path, uninterrupted: list[str]
) -> None:
    path = tmp_path / "exact_rows.jsonl"
    whole = ("\n".join(uninterrupted) + "\n").encode()
    for cut in random.Random(1).sample(range(len(whole)), 1):
        path.write_bytes(whole[:cut])
        EXACT.run(tmp_path, **STUDY)
        assert sorted_lines(tmp_path) == uninterrupted


def test_a_finished_study_computes_nothing(tmp_path: Path, uninterrupted: list[str]) -> None:
    path = tmp_path / "exact_rows.jsonl"
    path.write_text("\n".join(uninterrupted) + "\n")
    nothing: Any = None
    study = replace(EXACT, rows=nothing)
    assert len(study.run(tmp_path, **STUDY)) == 24


def test_rows_of_other_settings_are_never_mixed(tmp_path: Path) -> None:
    small: Any = {"among": {"env": ("h6",), "rho": (0.19,), "scheme": ("p01",)}, "n_seeds": 1}
    window = EXACT.run(tmp_path, ExactSettings(tail="window"), **small)
    stationary = EXACT.run(tmp_path, ExactSettings(tail="stationary"), **small)
    assert window[0]["settings"] != stationary[0]["settings"]
    assert window[0]["total_repb"] != stationary[0]["total_repb"]
    assert EXACT.run(tmp_path, ExactSettings(tail="window"), **small) == window
    assert len((tmp_path / "exact_rows.jsonl").read_text().splitlines()) == 2


@pytest.mark.slow
def test_workers_compute_the_same_rows(tmp_path: Path, uninterrupted: list[str]) -> None:
    EXACT.run(tmp_path, workers=2, **STUDY)
    assert sorted_lines(tmp_path) == uninterrupted


def test_a_store_knows_its_keys(tmp_path: Path) -> None:
    store = RowStore(tmp_path / "deep" / "rows.jsonl", {"x": 1, "y": 2}, ("env", "seed"))
    store.add([{"env": "h6", "seed": 0, "value": 0.1}])
    assert ("h6", 0) in store
    assert ("h6", 1) not in store
    again = RowStore(tmp_path / "deep" / "rows.jsonl", {"y": 2, "x": 1}, ("env", "seed"))
    marks = {"settings": store.settings, "code": code_version()}
    assert again.rows == [{**marks, "env": "h6", "seed": 0, "value": 0.1}]
    assert json.loads((tmp_path / "deep" / "rows.jsonl").read_text())["value"] == 0.1


def test_rows_of_other_code_are_neither_used_nor_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.jsonl"
    store = RowStore(path, {}, ("seed",))
    store.add([{"seed": 0, "value": 1.0}])
    monkeypatch.setattr("lstd_agent.results.code_version", lambda: "0.2.0+other")
    later = RowStore(path, {}, ("seed",))
    assert (0,) not in later
    later.compute(lambda seed: [{"seed": seed, "value": 2.0}], [0], workers=1, executor=None)
    assert "1 rows of other code than this are left alone" in capsys.readouterr().err
    assert [row["value"] for row in later.rows] == [2.0]
    monkeypatch.undo()
    assert [row["value"] for row in RowStore(path, {}, ("seed",)).rows] == [1.0]


def test_any_change_of_the_source_changes_the_version_of_the_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "lstd_agent"
    showing = ("commands/main.py", "progress.py", "../study/tables.py")
    computing = ("solver.py", "features/tables.py", "../study/exact.py")
    for name in ("__init__.py", *showing, *computing):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text("x = 1\n")
    monkeypatch.setattr(lstd_agent, "__file__", str(package / "__init__.py"))
    version = results.code_version.__wrapped__
    versions = [version(tmp_path / "study")]
    for name in showing:
        (package / name).write_text("x = 2\n")
        assert version(tmp_path / "study") == versions[0], name
    for name in computing:
        (package / name).write_text("x = 2\n")
        assert version(tmp_path / "study") not in versions, name
        versions.append(version(tmp_path / "study"))


@pytest.mark.parametrize(
    "line", ["not json", "[1, 2]", '{"settings": 1', "{}", '{"settings": "%s", "other": 1}']
)
def test_a_damaged_line_is_named_with_its_file_and_number(tmp_path: Path, line: str) -> None:
    path = tmp_path / "rows.jsonl"
    store = RowStore(path, {}, ("seed",))
    store.add([{"seed": 0}])
    damaged = line.replace("%s", store.settings)
    with path.open("a") as file:
        file.write(damaged + "\n")
    with pytest.raises(InvalidInputError) as refusal:
        RowStore(path, {}, ("seed",))
    assert str(refusal.value).startswith(f"{path}, line 2 is no row of results (")
    assert repr(damaged) in str(refusal.value)


PARENT = """
import os, sys, time
from lstd_agent.trials.workers import run_tasks
def work(seconds):
    os.write(1, f"{os.getpid()}\\n".encode())  # at once, so that the two workers' lines stay whole
    time.sleep(seconds)
if __name__ == "__main__":
    run_tasks(work, [60, 60], print, workers=2)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="kills by POSIX signals")
@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_their_parent(tmp_path: Path, signal_number: signal.Signals) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as parent:
        assert parent.stdout is not None
        workers = [int(parent.stdout.readline()) for _ in range(2)]
        parent.send_signal(signal_number)
        # Whoever holds the pipe's other end is alive: it closes when the last worker has ended.
        assert parent.stdout.read() == ""
    assert len(set(workers)) == 2


def test_an_interrupt_does_not_wait_for_running_tasks() -> None:
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):  # although one worker has ten minutes to sleep
        run_tasks(time.sleep, [0.0, 600.0], interrupt, workers=2)


def test_the_origin_of_a_result_is_text_whatever_a_files_name_is() -> None:
    """A name in another encoding ended a command after its work, when it wrote its files."""
    facts = results.provenance(["unichain", "--out", "r\udcf6"])
    assert facts["command"].encode() == b"unichain --out r\\udcf6"
