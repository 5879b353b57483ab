"""What all commands share: arguments, exit statuses, one-line errors, signals, files of results.

Status 0 is success, 1 a failure of the machine (disk, memory, workers), 2 an impossible request,
130 Ctrl-C, 143 SIGTERM, 141 a closed stdout. Files are written all or none.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import gymnasium as gym
import numpy as np

from lstd_agent.errors import EvaluationError, InvalidInputError
from lstd_agent.figure_style import new_figure, picture
from lstd_agent.packing import write_files
from lstd_agent.results import Row, WorkerError, one_line, provenance
from lstd_agent.summary import aligned
from unichain_gym.errors import UnichainError

MOST_TRIALS, MOST_FEATURES = 10**12, 10**6  # no machine has memory for more


class Terminated(KeyboardInterrupt):
    """SIGTERM: handled as Ctrl-C is, so that the same things are kept."""


def run(work: Callable[[], int]) -> int:
    """Do the work of a command and return its exit status; report what went wrong in one line."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    came: list[int] = []
    try:
        with _signals_raise(came):
            status = work()
            sys.stdout.flush()
            return status
    except KeyboardInterrupt as interrupt:
        say("interrupted")
        return interrupted_status(interrupt)
    except (OSError, MemoryError, WorkerError) as error:
        _forget_stdout()
        if isinstance(error, BrokenPipeError):
            return 141
        say(f"error: {str(error) or 'out of memory'}")
        return 1
    except (EvaluationError, UnichainError, gym.error.Error, ImportError) as error:
        say(f"error: {error}")
        return 2
    except Exception:
        if not came:
            raise
        # An extension was interrupted, and raised an error of its own.
        say("interrupted")
        return 128 + came[-1]


def interrupted_status(interrupt: KeyboardInterrupt) -> int:
    """Return the exit status of a run that was stopped by a signal."""
    return 128 + (signal.SIGTERM if isinstance(interrupt, Terminated) else signal.SIGINT)


def say(message: str) -> None:
    """Print a message on stderr, in one line, if there is a stderr."""
    if sys.stderr is not None:
        print(" ".join(message.split()), file=sys.stderr, flush=True)


@contextmanager
def _signals_raise(came: list[int]) -> Iterator[None]:
    """Make signals raise `KeyboardInterrupt` meanwhile, and list them; in the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, _: Any) -> NoReturn:
        came.append(number)
        raise Terminated if number == signal.SIGTERM else KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    heeded = {n: handler for n, handler in before.items() if handler not in (signal.SIG_IGN, None)}
    try:
        for number in heeded:
            signal.signal(number, stop)
        yield
    finally:
        for number, handler in heeded.items():
            signal.signal(number, handler)


def _forget_stdout() -> None:
    """Drop unprinted text if it cannot be printed: Python would try again at its exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def new_parser(
    prog: str | None, description: str | None, epilog: str | None = None
) -> argparse.ArgumentParser:
    """Return a parser that shows texts as they are written."""
    shape = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(prog, None, description, epilog, formatter_class=shape)


def read_arguments(
    parser: argparse.ArgumentParser, argv: Sequence[str] | None, called: str
) -> argparse.Namespace:
    """Return the arguments of the command line, with the line itself as ``argv``."""
    args = parser.parse_args(argv)
    args.argv = [called, *(sys.argv[1:] if argv is None else argv)]
    return args


def command(
    work: Callable[[Any], int], purpose: str | None, examples: str, add: Callable[[Any], None]
) -> Callable[..., int]:
    """Return ``main(argv, prog)``, which reads arguments, works, and returns a status."""

    def main(argv: Sequence[str] | None = None, prog: str | None = None) -> int:
        parser = new_parser(prog, purpose, examples)
        add(parser)
        args = read_arguments(parser, argv, parser.prog)
        return run(lambda: work(args))

    return main


def at_least(smallest: int, largest: int | None = None) -> Callable[[str], int]:
    """Return a converter of command-line text into integers in a range."""

    def number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = smallest - 1
        if value < smallest or (largest is not None and value > largest):
            to = "" if largest is None else f" to {largest}"
            raise argparse.ArgumentTypeError(f"needs an integer from {smallest}{to}; got {text!r}")
        return value

    return number


def subset(name: str, choices: Sequence[Any], what: str = "") -> dict[str, Any]:
    """Return the options of an argument that selects some choices, by default all."""
    told = f"{what}among {', '.join(map(str, choices))} (all)"
    how = {"nargs": "+", "type": type(choices[0]), "choices": choices, "default": list(choices)}
    return {**how, "metavar": name, "help": told}


_SWITCH, _MINUTES = {"action": "store_true"}, {"type": float, "default": 15.0, "metavar": "M"}
_SHARED: dict[str, dict[str, Any]] = {
    "env_id": {"help": "Gymnasium id, mnemonic (h36c), or module:id of a module that registers it"},
    "--restart": {**_SWITCH, "help": "start again where an episode ends: the task continues"},
    "--seed": {"type": at_least(0), "default": 0, "help": "default: 0"},
    "--max-minutes": {**_MINUTES, "help": "refuse trials that will take longer (default: 15)"},
    "--no-exact": {**_SWITCH, "help": "leave out exact values and errors"},
    "--plot": {"type": Path, "metavar": "FILE.png", "help": "draw the result"},
    "--json": {**_SWITCH, "help": "print one JSON document instead of tables"},
    "--quiet": {**_SWITCH, "help": "show no progress"},
    "--seeds": {"type": at_least(1, 100_000), "default": 20, "help": "number (%(default)s)"},
    "--workers": {"type": at_least(1, 10_000), "default": 2, "help": "processes (2)"},
    "--dask": {"metavar": "ADDRESS", "help": "use the Dask cluster at this address instead"},
    "--out": {"type": Path, "help": "folder of results (%(default)s)"},
}
TRIALS = "--restart", "--seed", "--max-minutes", "--no-exact"
SHOWN = "--plot", "--json", "--quiet"
RUN = "--seeds", "--workers", "--dask", "--out", "--quiet"
"""Shared arguments of commands that run trials, of what they show, and of studies."""


def add_arguments(parser: argparse.ArgumentParser, *flags: str, **defaults: Any) -> None:
    """Add arguments that several commands share, some with other defaults."""
    for flag in flags:
        parser.add_argument(flag, **_SHARED[flag])
    parser.set_defaults(**defaults)


def check_destinations(picture_at: Path | None, *files: Path | None) -> None:
    """Raise, before the work begins, if a picture or a file cannot be written; give the reason."""
    if picture_at:
        kinds = new_figure(1.0, 1.0).canvas.get_supported_filetypes()
        if picture_at.suffix[1:] not in kinds:
            raise InvalidInputError(f"cannot draw {picture_at}: name a .png, .pdf or .svg file")
    for path in filter(None, (*files, picture_at)):
        target = Path(os.path.realpath(path))
        try:
            if target.is_dir():
                raise IsADirectoryError("it is a directory")
            if not target.parent.is_dir():
                raise FileNotFoundError("there is no such directory")
            if target.exists() and not os.access(target, os.W_OK):
                raise PermissionError("the file there may not be written")
            write_files({target: b""}, check_only=True)
        except OSError as error:
            raise InvalidInputError(f"cannot write {path}: {error.strerror or error}") from None


def as_json(report: dict[str, Any]) -> str:
    """Return the report as one JSON document; numbers that are not finite are null."""

    def plain(value: Any) -> Any:
        if isinstance(value, np.ndarray | np.generic):
            value = value.tolist()
        if isinstance(value, dict):
            return {name: plain(part) for name, part in value.items()}
        if isinstance(value, list | tuple):
            return [plain(part) for part in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return json.dumps(plain(report), allow_nan=False)


def table(columns: Mapping[str, Sequence[Any] | np.ndarray[Any, Any]]) -> str:
    """Return columns as right-aligned text under their names; NaN, which is unknown, as a dash."""

    def cell(value: Any) -> str:
        if not isinstance(value, float):
            return str(value)
        text = "-" if math.isnan(value) else f"{value:.4f}"
        return text[1:] if text == "-0.0000" else text

    cells = (map(cell, np.asarray(column).tolist()) for column in columns.values())
    return aligned([[*columns], *zip(*cells, strict=True)])


def put_report(
    args: Any, report: dict[str, Any], text: str, draw: Callable[[], Any], files: Any = None
) -> None:
    """Print a report as text or JSON, write files, and draw where ``--plot`` says."""
    contents = dict(files or {})
    if args.plot:
        contents[args.plot] = picture(draw(), args.plot.suffix, one_line(report["provenance"]))
    put_out(as_json(report) if args.json else text, contents)


def put_out(text: str, contents: Mapping[Path, bytes]) -> None:
    """Print a text and write files; do either even if the other fails."""
    try:
        print(text, flush=True)
    finally:
        write_files(contents)


def saved(save: Callable[[Path], object], path: Path, what: str) -> bool:
    """Save to a file during the work; report a failure, and go on."""
    try:
        save(path)
    except OSError as error:
        say(f"error: {error}; {what} not saved")
        return False
    return True


def put_results(
    args: Any, contents: Mapping[str, Any], report: str, rows_name: str, rows: Sequence[Row]
) -> None:
    """Print a report, and write texts, figures and rows to ``args.out`` with their provenance."""
    facts = provenance(args.argv, seeds=f"0 to {args.seeds - 1}", code=rows[0]["code"])
    files, told = {}, one_line(facts)
    for name, content in contents.items():
        if isinstance(content, str):
            head = f"% {told}" if name.endswith(".tex") else f"<!-- {told} -->"
            files[name] = f"{head}\n\n{content}".encode()
        else:
            files[name] = picture(content, Path(name).suffix, told)
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, fieldnames=list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    files[f"{rows_name}.csv"] = text.getvalue().encode()
    files["provenance.json"] = (json.dumps(facts, indent=1) + "\n").encode()
    put_out(report, {args.out / name: content for name, content in files.items()})


@contextmanager
def rows_kept(path: Path) -> Iterator[None]:
    """When work stops early, say how many rows are kept."""
    # Threads in worker processes would only compete for cores.
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    try:
        yield
    except (KeyboardInterrupt, OSError, MemoryError, WorkerError):
        if path.is_file():
            with path.open("rb") as lines:
                n_rows = sum(line.endswith(b"\n") for line in lines)
            say(f"{n_rows} rows are kept in {path}; the same command goes on from there")
        raise
