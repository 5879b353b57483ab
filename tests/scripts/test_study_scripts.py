"""The study's commands: refused arguments, files, and rows kept after an interrupt."""

from __future__ import annotations

import errno
import io
import json
import os
import runpy
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from study import pages, studies, tables
from study.pages import BEGIN, END, GLOSSARY
from study.sampled import COMBINATIONS
from study.studies import STUDIES

from lstd_agent.commands.main import COMMANDS
from lstd_agent.commands.main import dispatch as unichain
from lstd_agent.commands.running import put_out, run
from lstd_agent.results import RowStore

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"
SMALL = ("--envs", "h6", "--rhos", "0.19", "--schemes", "p01", "pinf", "--seeds", "2")


def exact(out: Path, *argv: str) -> int:
    return studies.main("exact", [*SMALL, "--workers", "1", "--out", str(out), *argv])


@pytest.mark.parametrize("name", ["exact_tables", "compare_control", "update_results"])
def test_a_missing_plot_extra_is_an_error_before_the_work(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setattr(sys, "argv", [name, "--out", str(tmp_path / "out")])
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # its own are for its own process
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(str(SCRIPTS / f"{name}.py"), run_name="__main__")
    assert stop.value.code == 2
    assert 'pip install "unichain-gym[plot]"' in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("references", "--trials", "1"), "--trials: needs an integer from 2; got '1'"),
        (("control", "--samples", "0"), "--samples: needs an integer from 1; got '0'"),
        (("estimators", "--trials", "19"), "an integer from 20 to 1000000000000; got '19'"),
        (("complexity", "--trials", "100", "1"), "--trials: needs an integer from 2; got '1'"),
        (("estimators", "--trials", "9" * 20), f"from 20 to 1000000000000; got '{'9' * 20}'"),
        (("exact", "--seeds", "0"), "--seeds: needs an integer from 1 to 100000; got '0'"),
        (("exact", "--seeds", "9" * 20), f"from 1 to 100000; got '{'9' * 20}'"),
        (("sampling", "--workers", "-1"), "--workers: needs an integer from 1 to 10000; got '-1'"),
        (("exact", "--envs", "h7"), "invalid choice: 'h7'"),
    ],
)
def test_impossible_numbers_and_names_are_refused(
    argv: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        studies.main(argv[0], argv[1:])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_every_file_of_results_has_its_provenance(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert exact(out) == 0
    facts = json.loads((out / "provenance.json").read_text("utf-8"))
    assert facts["seeds"] == "0 to 1"
    assert facts["command"].startswith("study exact --envs h6")
    names = {path.name for path in out.iterdir()}
    assert names == {
        "tables.md", "tables.tex", "comparison.md", "claims.md", "comparison.png",
        "exact_rows.csv", "exact_rows.jsonl", "provenance.json",
    }  # fmt: skip
    for name in names:
        assert facts["code"].encode() in (out / name).read_bytes()


def test_progress_goes_to_stderr_only_when_asked_and_slow(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lstd_agent.progress.LINE_INTERVAL", 3600.0)
    exact(tmp_path / "fast")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("lstd_agent.progress.LINE_INTERVAL", 0.0)
    exact(tmp_path / "slow")
    assert "50% 1 of 2 tasks" in capsys.readouterr().err
    exact(tmp_path / "slow", "--quiet")
    assert capsys.readouterr().err == ""


def test_a_rho_that_an_environment_lacks_is_refused_with_those_it_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--envs", "h6", "--rhos", "0.33", "--out", str(tmp_path / "out")]
    assert studies.main("exact", argv) == 2
    message = (
        "h6 is not studied at ρ = 0.33, features for each state, with 6 states: take rhos among"
    )
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_made_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert exact(tmp_path / "file" / "out") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: [Errno 20] Not a directory")


def test_a_cluster_without_dask_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert exact(tmp_path / "out", "--dask", "tcp://localhost:1") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == 'error: a dask cluster needs distributed: pip install "unichain-gym[dask]"'


def stop_after_one(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Have the second task's rows raise an error while they are added."""
    add, calls = RowStore.add, []

    def fail(store: RowStore, rows: Any) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise error
        add(store, rows)

    monkeypatch.setattr(RowStore, "add", fail)


@pytest.mark.first(1)
@pytest.mark.parametrize(
    ("error", "status", "last"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "x"), 1,
         "error: [Errno 28] No space left on device: 'x'"),
        (MemoryError(), 1, "error: out of memory"),
    ],
)  # fmt: skip
def test_an_error_of_a_study_is_reported_with_the_kept_rows(
    error: BaseException,
    status: int,
    last: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stop_after_one(monkeypatch, error)
    assert exact(tmp_path, "--quiet") == status
    rows = tmp_path / "exact_rows.jsonl"
    kept = f"2 rows are kept in {rows}; the same command goes on from there"
    assert capsys.readouterr().err.splitlines() == [kept, last]
    monkeypatch.undo()
    computed = []
    command = STUDIES["exact"]

    def counting(task: Any) -> Any:
        computed.append(task.seed)
        return command.study.rows(task)

    study = replace(command.study, rows=counting)
    monkeypatch.setitem(STUDIES, "exact", replace(command, study=study))
    assert exact(tmp_path) == 0
    assert computed == [1]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_under_stdout_is_one_line() -> None:
    command = [sys.executable, str(SCRIPTS / "evaluate_policy.py"), "Unichain-h3-v0"]
    few = ["--trials", "100", "--t-max", "9"]
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            [*command, *few], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    assert done.stderr == "error: [Errno 28] No space left on device\n"


def test_a_text_and_files_are_put_out_even_if_the_other_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", Gone())
    with pytest.raises(BrokenPipeError):
        put_out("values of many states", {tmp_path / "values.csv": b"1,2\n"})
    assert (tmp_path / "values.csv").read_bytes() == b"1,2\n"
    monkeypatch.undo()
    with pytest.raises(FileNotFoundError):
        put_out("values", {tmp_path / "gone" / "values.csv": b""})
    assert capsys.readouterr().out == "values\n"


@pytest.mark.slow
def test_an_ascii_locale_gets_every_result(tmp_path: Path) -> None:
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    environment["PYTHONIOENCODING"] = "ascii"
    where = ["--workers", "1", "--out", str(tmp_path)]
    command = [sys.executable, str(SCRIPTS / "exact_tables.py"), *SMALL, *where]
    done = subprocess.run(command, capture_output=True, check=True, env=environment)
    assert b"\\u03b5_PB" in done.stdout
    assert "ε_PB" in (tmp_path / "claims.md").read_text("utf-8")


# The page of results


def test_the_section_replaces_the_text_between_its_markers() -> None:
    before, after = "Title\n" + BEGIN, END + "More\n"
    assert pages.replace_section(before + "old\n" + after, "new\n") == before + "new\n" + after


@pytest.mark.parametrize("text", ["", BEGIN, END, END + BEGIN, BEGIN + BEGIN + END])
def test_markers_that_are_missing_doubled_or_turned_round_are_refused(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "docs" / "results.md"
    page.parent.mkdir()
    page.write_text(text + "More\n", "utf-8")
    assert pages.main(tmp_path, ["--out", str(tmp_path / "rows")]) == 2
    assert "docs/results.md must have the line <!-- results:" in capsys.readouterr().err
    assert page.read_text("utf-8") == text + "More\n"
    assert not (tmp_path / "rows").exists()


def test_the_page_has_both_markers_once_and_explains_every_symbol() -> None:
    text = (ROOT / "docs" / "results.md").read_text("utf-8")
    pages.replace_section(text, "")
    section = text.partition(BEGIN)[2].partition(END)[0]
    assert [name for name in GLOSSARY if f"| {name} | " not in section] == []


def test_a_tie_counts_for_no_scheme_as_best() -> None:
    def rows(values: dict[Any, float]) -> list[dict[str, Any]]:
        return [
            {"scheme": "p02md", "env": env, "rho": 0.49, "seed": 0, "reference": rule,
             "calibration": calibration, "backup": backup,
             "total_rems": value + k * (rule == "none"), "limit": 1.0}
            for k, env in enumerate(("h6", "h36"))
            for (calibration, rule, backup), value in values.items()
        ]  # fmt: skip

    values = {combination: 2.0 + k for k, combination in enumerate(COMBINATIONS)}
    tied = next(c for c in COMBINATIONS if c[0] != "linked")
    default = next(iter(COMBINATIONS))
    values[tied] = values[default] = 1.0
    found = tables.multiples(rows(values))
    text = tables.reference_table(tables.medians(found))
    by_rule = {line.split(" | ")[0][2:]: line.split(" | ")[1:] for line in text.splitlines()[2:]}
    # On h6 the two are equal; on h36 the linked system's values are larger by one.
    assert by_rule[COMBINATIONS[default]] == ["1.5", "0 of 2 rows", "1 of 2 rows |"]
    assert by_rule[COMBINATIONS[tied]] == ["1", "1 of 2 rows", "1 of 2 rows |"]


# The command


def test_the_command_names_its_commands_version_and_statuses(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from unichain_gym import __version__

    assert unichain(["--version"]) == 0
    assert capsys.readouterr().out == f"unichain {__version__}\n"
    assert unichain([]) == 0
    shown = capsys.readouterr().out
    for word in ("evaluate", "score", "list", "exit status", "example:"):
        assert word in shown
    assert unichain(["evalute"]) == 2
    assert "did you mean evaluate?" in capsys.readouterr().err


@pytest.mark.parametrize("name", [*STUDIES, *COMMANDS])
def test_every_command_explains_itself_with_an_example(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        studies.main(name, ["--help"]) if name in STUDIES else unichain([name, "--help"])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert "--quiet" in shown or name in ("list", "optimal")
    example = "--seeds 5" if name in STUDIES else f"unichain {name}"
    assert example in shown.partition("example")[2]


INTERRUPTED_IMPORT = """
import os, signal, sys
from lstd_agent.commands import main as unichain
for number in (signal.SIGINT, signal.SIGTERM):  # a shell may have had them ignored
    signal.signal(number, signal.SIG_DFL)
class Interrupting:
    def find_spec(self, name, *_):
        if name == "numpy":
            os.kill(os.getpid(), int(sys.argv[1]))
sys.meta_path.insert(0, Interrupting())
sys.exit(unichain.main())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="interrupts by POSIX signals")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_while_modules_are_imported_is_one_line(number: int, status: int) -> None:
    command = [sys.executable, "-c", INTERRUPTED_IMPORT, str(int(number))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (status, "", "interrupted\n")


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX shells only")
@pytest.mark.parametrize(
    ("shell", "error"),
    [
        ("{} list >&-", "error: standard output is closed: redirect it, to /dev/null for example"),
        ("ulimit -v 200000; {} list", "error: 195 MiB of memory are allowed (ulimit -v): allow"),
    ],
)
def test_a_closed_output_and_too_little_memory_are_one_line(shell: str, error: str) -> None:
    command = shell.format(f"{sys.executable} -m lstd_agent")
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(error)


@pytest.mark.skipif(sys.platform == "win32", reason="SIGTERM ends the process there")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_that_a_library_turns_into_an_error_is_an_interrupt(
    number: int, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> int:
        raise ValueError("no transformation")

    def be_interrupted() -> int:
        with suppress(KeyboardInterrupt):
            signal.raise_signal(number)
        return fail()

    before = signal.signal(number, signal.default_int_handler)  # a shell may have had it ignored
    try:
        assert run(be_interrupted) == status
        assert capsys.readouterr().err == "interrupted\n"
        with pytest.raises(ValueError, match="no transformation"):
            run(fail)
    finally:
        signal.signal(number, before)


def test_the_list_has_every_registered_mnemonic(capsys: pytest.CaptureFixture[str]) -> None:
    assert unichain(["list", "--json"]) == 0
    found = {e["id"]: e for e in json.loads(capsys.readouterr().out)}
    assert found["Unichain-h36c-v0"] == {
        "id": "Unichain-h36c-v0", "states": 36, "transient": 33, "actions": 2,
    }  # fmt: skip


def test_as_many_repeats_are_measured_as_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from benchmark import command, timing

    for variable in command.THREADS:
        monkeypatch.setenv(variable, "1")
    calls: list[int] = []

    def group(setting: timing.Setting) -> Any:
        calls.clear()
        yield timing.compare("name", lambda: calls.append(1), lambda: None, setting)

    monkeypatch.setitem(command.GROUPS, "imports", group)
    path = tmp_path / "benchmark.json"
    assert command.main(["--only", "imports", "--repeats", "1", "--json", str(path)]) == 0
    assert len(calls) == 2  # one to warm up
    assert len(json.loads(path.read_text("utf-8"))["rows"]) == 1
