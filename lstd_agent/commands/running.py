"""What all commands share: exit statuses, one-line errors, signals, and a stdout that may break.

Status 0 is success, 1 what the machine could not do (disk, memory, workers), 2 what was asked for
and is impossible, 130 Ctrl-C, 143 SIGTERM, 141 a reader of stdout that has gone.
"""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import gymnasium as gym

from lstd_agent.errors import EvaluationError
from lstd_agent.results import WorkerError
from unichain_gym.errors import UnichainError

MOST_TRIALS, MOST_FEATURES = 10**12, 10**6
"""No machine has memory for more. What takes far more than memory fails unpredictably."""


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
