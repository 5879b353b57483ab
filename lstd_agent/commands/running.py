"""What all commands share: arguments, exit statuses, one-line errors, signals, a broken stdout.

Status 0 is success, 1 a failure of the machine (disk, memory, workers), 2 an impossible request,
130 Ctrl-C, 143 SIGTERM, 141 a closed stdout.
"""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import gymnasium as gym

from lstd_agent.errors import EvaluationError
from lstd_agent.results import WorkerError
from unichain_gym.errors import UnichainError

MOST_TRIALS, MOST_FEATURES = 10**12, 10**6
"""Larger numbers are refused: no machine has memory for them."""


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
    except BrokenPipeError:
        _forget_stdout()
        return 141
    except (OSError, MemoryError, WorkerError) as error:
        _forget_stdout()
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


_SWITCH = {"action": "store_true"}
_SHARED: dict[str, dict[str, Any]] = {
    "env_id": {
        "help": "Gymnasium id, mnemonic (h36c), or module:id to import a module that registers it"
    },
    "--restart": {**_SWITCH, "help": "start again where an episode ends: the task continues"},
    "--seed": {"type": at_least(0), "default": 0, "help": "default: 0"},
    "--max-minutes": {
        "type": float,
        "default": 15.0,
        "metavar": "M",
        "help": "refuse to begin trials that will take longer (default: 15)",
    },
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
