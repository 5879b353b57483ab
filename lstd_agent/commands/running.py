"""What all commands share: exit statuses, one-line errors, signals, and a stdout that never fails.

Status 0 is success, 1 what the machine could not do (disk, memory, workers), 2 what was asked for
and is impossible, 130 Ctrl-C, 143 SIGTERM, 141 a reader of stdout that is gone.
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
from lstd_agent.trials.parallel import WorkerError
from unichain_gym.errors import UnichainError


class Terminated(KeyboardInterrupt):
    """SIGTERM: answered as Ctrl-C is, so that the same things are kept."""


def run(work: Callable[[], int]) -> int:
    """Do the work of a command and return its exit status; report what went wrong in one line."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with _signals_raise():
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


def interrupted_status(interrupt: KeyboardInterrupt) -> int:
    """Return the exit status of a run that was stopped by a signal."""
    return 128 + (signal.SIGTERM if isinstance(interrupt, Terminated) else signal.SIGINT)


def say(message: str) -> None:
    """Tell people something, on stderr and in one line."""
    print(" ".join(message.split()), file=sys.stderr, flush=True)


@contextmanager
def _signals_raise() -> Iterator[None]:
    """Have signals raise `KeyboardInterrupt` meanwhile; only a main thread may set that."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: Any) -> NoReturn:
        raise Terminated

    raising = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: stop}
    before = {number: signal.getsignal(number) for number in raising}
    heeded = [number for number in raising if before[number] not in (signal.SIG_IGN, None)]
    try:
        for number in heeded:
            signal.signal(number, raising[number])
        yield
    finally:
        for number in heeded:
            signal.signal(number, before[number])


def _forget_stdout() -> None:
    """Drop what is still to be printed, if it cannot be: Python would try again on leaving."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def at_least(smallest: int) -> Callable[[str], int]:
    """Return a converter of command-line text into integers from ``smallest``."""

    def number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = smallest - 1
        if value < smallest:
            raise argparse.ArgumentTypeError(f"needs an integer from {smallest}; got {text!r}")
        return value

    return number


def available_memory() -> int:
    """Return how many bytes of memory are free, or a guess of 4 GiB where that is not told."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            facts = dict(line.split(":", 1) for line in lines)
        return int(facts["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError):
        return 4 * 2**30


def with_unit(n_bytes: float) -> str:
    """Write a number of bytes for people."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if n_bytes < 1024.0:
            return f"{n_bytes:.3g} {unit}"
        n_bytes /= 1024.0
    return f"{n_bytes:.3g} TiB"
