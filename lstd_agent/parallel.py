"""Independent tasks on any `concurrent.futures.Executor`, with retries.

A task is a function of one picklable argument. Results come as they finish. A task that fails
because its worker died is submitted again; one that raises an error of its own is not, since
it would raise it again.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from lstd_agent.errors import EvaluationError

Task = TypeVar("Task")
Result = TypeVar("Result")

MAX_RETRIES = 3


class WorkerError(EvaluationError, RuntimeError):
    """Workers died more often than tasks are retried."""


def run_tasks(
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    *,
    workers: int = 1,
    executor: Executor | None = None,
) -> Iterator[Result]:
    """Run the function on every task and yield results in the order they finish.

    Parameters
    ----------
    function : callable
        Importable by name, so that workers can find it.
    tasks : sequence
    workers : int
        Number of processes to start; with 1 the tasks run here, one after the other.
    executor : Executor, optional
        Any executor to use instead: of `dask.distributed` (``Client.get_executor()``), of
        `mpi4py.futures`, or a pool of your own.

    Yields
    ------
    result
        One for each task.

    Raises
    ------
    WorkerError
        If workers keep dying.
    """
    if executor is not None:
        yield from _run_on(executor, function, list(tasks))
    elif workers == 1:
        yield from map(function, tasks)
    else:
        yield from _run_on_own_pools(function, list(tasks), workers)


def _run_on(
    executor: Executor, function: Callable[[Task], Result], tasks: list[Task]
) -> Iterator[Result]:
    """Run tasks on an executor that survives the death of a worker."""
    attempts: dict[Future[Result], tuple[Task, int]] = {
        executor.submit(function, task): (task, 0) for task in tasks
    }
    try:
        while attempts:
            finished, _ = wait(attempts, return_when=FIRST_COMPLETED)
            for future in finished:
                task, n_retries = attempts.pop(future)
                error = future.exception()
                if error is None:
                    yield future.result()
                elif not _worker_died(error):
                    raise error
                elif n_retries == MAX_RETRIES or isinstance(error, BrokenProcessPool):
                    raise WorkerError(
                        f"a worker died {n_retries + 1} times on one task; its last error: "
                        f"{error!r}"
                    ) from error
                else:
                    attempts[executor.submit(function, task)] = (task, n_retries + 1)
    finally:
        for future in attempts:
            future.cancel()


def _worker_died(error: BaseException) -> bool:
    """Tell the death of a worker from an error of the task itself."""
    return isinstance(error, BrokenProcessPool) or type(error).__name__ == "KilledWorker"


def _run_on_own_pools(
    function: Callable[[Task], Result], tasks: list[Task], workers: int
) -> Iterator[Result]:
    """Run tasks on process pools, starting a new pool when a dead worker breaks one."""
    # A fresh interpreter for each worker: forking would copy threads' locks.
    context = multiprocessing.get_context("spawn")
    waiting = dict(enumerate(tasks))
    for _ in range(MAX_RETRIES + 1):
        with ProcessPoolExecutor(workers, mp_context=context) as pool:
            numbers = {pool.submit(function, task): number for number, task in waiting.items()}
            try:
                pending = set(numbers)
                while pending:
                    finished, pending = wait(pending, return_when=FIRST_COMPLETED)
                    for future in finished:
                        result = future.result()
                        del waiting[numbers[future]]
                        yield result
                return
            except BrokenProcessPool as error:
                last_error = error
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
    raise WorkerError(
        f"worker processes died {MAX_RETRIES + 1} times; {len(waiting)} tasks are left. They may "
        "need more memory than there is: use fewer workers"
    ) from last_error
