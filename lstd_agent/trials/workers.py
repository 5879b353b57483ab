"""Independent tasks on any `concurrent.futures.Executor`, with retries.

A task is a function of one picklable argument. Results come as they finish. A task whose worker
died is run again; one that raises an error of its own is not, since it would raise it again.
Tasks are handed out a few at a time, so there may be any number of them.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from contextlib import contextmanager, nullcontext, suppress
from itertools import chain
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from lstd_agent.errors import EvaluationError, MissingDependencyError, check_integer

Task = TypeVar("Task")
Result = TypeVar("Result")

MAX_RETRIES = 3

# Tasks handed to an executor of unknown size, running or waiting.
_MIN_SUBMITTED = 64

_INTERRUPTS = (signal.SIGINT, signal.SIGTERM)


class WorkerError(EvaluationError, RuntimeError):
    """Workers died more often than tasks are retried."""


@contextmanager
def open_executor(dask_address: str | None) -> Iterator[Executor | None]:
    """Connect to a `dask.distributed` scheduler for as long as the context lasts.

    Parameters
    ----------
    dask_address : str or None
        Such as ``"tcp://host:8786"``; None gives None, which `run_tasks` takes as well.

    Yields
    ------
    Executor or None

    Raises
    ------
    MissingDependencyError
        If ``distributed`` is not installed.
    """
    if dask_address is None:
        yield None
        return
    try:
        from distributed import Client
    except ImportError as error:
        raise MissingDependencyError(
            'a dask cluster needs distributed: pip install "unichain-gym[dask]"'
        ) from error
    with Client(dask_address) as client:
        yield client.get_executor()


def run_tasks(
    function: Callable[[Task], Result],
    tasks: Iterable[Task],
    *,
    workers: int = 1,
    executor: Executor | None = None,
    unclaimed: list[Result] | None = None,
) -> Generator[Result, None, None]:
    """Run the function on every task and yield results in the order they finish.

    Parameters
    ----------
    function : callable
        Importable by name, so that workers can find it.
    tasks : iterable
        Drawn as workers become free.
    workers : int
        Number of processes to start; with 1 the tasks run here, one after the other. With an
        executor: how many workers it has, if more than 32, so that none of them is idle.
    executor : Executor, optional
        Any executor to use instead: of `dask.distributed` (``Client.get_executor()``), of
        `mpi4py.futures`, or a pool of your own.
    unclaimed : list, optional
        Gets the results that are there, but not yielded yet, when an interrupt, an error or
        ``close()`` ends the work early.

    Yields
    ------
    result
        One for each task.

    Raises
    ------
    WorkerError
        If the worker of one task dies more than three times, or the given executor breaks.
    """
    workers = check_integer("workers", workers, 1)
    if workers == 1 and executor is None:
        return (function(task) for task in tasks)
    return _run(function, tasks, workers, executor, [] if unclaimed is None else unclaimed)


def _run(
    function: Callable[[Task], Result],
    tasks: Iterable[Task],
    workers: int,
    executor: Executor | None,
    unclaimed: list[Result],
) -> Generator[Result, None, None]:
    """Run tasks on an executor, or on a pool that is replaced when a dead worker breaks it."""
    is_own = executor is None
    n_submitted = 2 * workers if is_own else max(_MIN_SUBMITTED, 2 * workers)
    attempts: Iterator[tuple[Task, int]] = ((task, 0) for task in tasks)
    while True:
        with _pool(workers) if executor is None else nullcontext(executor) as pool:
            how = function, attempts, n_submitted, unclaimed, is_own
            lost = yield from _run_until_broken(pool, *how)
        if not lost:
            return
        if not is_own:  # dask replaces dead workers itself
            raise WorkerError(
                "a worker of the executor died, which broke it. Pass workers= instead of "
                "executor=: then dead workers are replaced"
            )
        if max(n_deaths for _, n_deaths in lost) > MAX_RETRIES:
            raise WorkerError(
                f"the worker of one task died {MAX_RETRIES + 1} times. It may need more memory "
                "than there is: use fewer workers. A script must start its work under "
                'if __name__ == "__main__", since every worker imports it'
            )
        attempts = chain(lost, attempts)


@contextmanager
def _pool(workers: int) -> Iterator[Executor]:
    """Start processes that end with the context, at once if it is left by an exception."""
    # A fresh interpreter for each worker: forking would copy threads' locks.
    context = multiprocessing.get_context("spawn")
    watched, alive = context.Pipe(duplex=False)
    with ProcessPoolExecutor(workers, context, _end_with_parent, (watched,)) as pool:
        try:
            yield pool
        except BaseException:
            alive.close()  # nobody waits for what the workers are at
            raise
    alive.close()
    watched.close()


def _end_with_parent(watched: Connection) -> None:
    """Have this worker end as soon as the other end of the pipe is closed, or its process gone.

    A killed parent tells its workers nothing, and they would wait for tasks for ever. Ctrl-C, which
    a terminal sends to all of them, is the parent's to answer.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPTS)  # see _uninterrupted

    def watch() -> None:
        with suppress(EOFError, OSError):
            watched.recv()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _uninterrupted(workers_too: bool) -> Iterator[None]:
    """Have Ctrl-C and SIGTERM wait meanwhile; only a main thread is interrupted by them.

    A process that is left half started knows no pool, and fails with a traceback of its own. So
    does one that is interrupted while it imports: it inherits blocked signals, up to
    `_end_with_parent`. To block them is not enough here, since another thread may take them.
    """
    came: list[int] = []
    before: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for each in _INTERRUPTS:
            before[each] = signal.signal(each, lambda number, _: came.append(number))
    blocks = workers_too and hasattr(signal, "pthread_sigmask")  # not on Windows
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPTS) if blocks else ()
    try:
        yield
    finally:
        if blocks:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for each, handler in before.items():
            signal.signal(each, handler)
        for number in came:
            signal.raise_signal(number)


def _run_until_broken(
    executor: Executor,
    function: Callable[[Task], Result],
    attempts: Iterator[tuple[Task, int]],
    n_submitted: int,
    unclaimed: list[Result],
    is_own: bool,
) -> Generator[Result, None, list[tuple[Task, int]]]:
    """Yield the results of tasks, each with how often a worker died on it.

    Returns the tasks that were lost because the executor broke; the others are still to be
    drawn from ``attempts``. Work that ends early cancels what has not begun, unless the executor
    is our own and ends with it: a process pool that breaks complains of tasks that somebody else
    has cancelled.
    """
    running: dict[Future[Result], tuple[Task, int]] = {}
    lost: list[tuple[Task, int]] = []
    try:
        while True:
            while len(running) < n_submitted and not lost and (attempt := next(attempts, None)):
                try:
                    with _uninterrupted(is_own):  # it may start a worker
                        running[executor.submit(function, attempt[0])] = attempt
                except BrokenExecutor:
                    lost.append(attempt)
            if not running:
                return lost
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                task, n_deaths = running.pop(future)
                error = future.exception()
                if error is None:
                    yield future.result()
                elif isinstance(error, BrokenExecutor):
                    lost.append((task, n_deaths + 1))
                else:
                    raise error
    finally:
        for future in running:
            if future.done():
                if not future.cancelled() and future.exception() is None:
                    unclaimed.append(future.result())
            elif not is_own:
                future.cancel()
