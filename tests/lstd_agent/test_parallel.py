"""Tasks on executors: every result comes once, whatever dies on the way."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from lstd_agent.trials.workers import WorkerError, run_tasks

# Workers import their tasks by name, which they cannot from a file of tests.
TASKS = """
import os
from pathlib import Path

def square(x):
    return x * x

def square_unless_five(x):
    if x == 5:
        raise ValueError("five is not to be squared")
    return x * x

def square_or_die_once(task):
    x, folder = task
    if x == 9:
        try:
            Path(folder, str(x)).touch(exist_ok=False)
        except FileExistsError:
            return x * x
        os._exit(1)
    return x * x

def die(x):
    os._exit(1)
"""


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "tasks_of_workers.py").write_text(TASKS)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("tasks_of_workers")
    yield module
    sys.modules.pop("tasks_of_workers")


SQUARES = [x * x for x in range(10)]


def results_of(function: Any, work: Any, **options: Any) -> list[Any]:
    found: list[Any] = []
    run_tasks(function, work, found.append, **options)
    return sorted(found)


def test_a_task_whose_worker_died_is_run_again(tasks: Any, tmp_path: Path) -> None:
    work = [(x, str(tmp_path)) for x in range(10)]
    assert results_of(tasks.square_or_die_once, work, workers=2) == SQUARES
    assert (tmp_path / "9").exists()  # a worker did die


def test_a_task_that_kills_every_worker_is_given_up(tasks: Any) -> None:
    with pytest.raises(WorkerError, match="workers died 4 times"):
        results_of(tasks.die, [0], workers=2)


def test_a_given_executor_that_breaks_is_an_error(tasks: Any) -> None:
    with (
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool,
        pytest.raises(WorkerError, match="Pass workers= instead of executor="),
    ):
        results_of(tasks.die, [0], executor=pool)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_of_the_task_itself_is_raised(tasks: Any, workers: int) -> None:
    with pytest.raises(ValueError, match="five is not to be squared"):
        results_of(tasks.square_unless_five, range(10), workers=workers)


def test_tasks_are_drawn_as_workers_become_free(tasks: Any) -> None:
    drawn: list[int] = []

    def endless() -> Iterator[int]:
        while True:
            drawn.append(len(drawn))
            yield drawn[-1]

    found: list[int] = []

    def keep(result: int) -> None:
        found.append(result)
        if len(found) == 5:
            raise KeyboardInterrupt

    with ThreadPoolExecutor(1) as pool, pytest.raises(KeyboardInterrupt):
        run_tasks(tasks.square, endless(), keep, executor=pool)
    assert len(drawn) < 100


def test_results_that_have_finished_are_kept_when_work_ends_early(tasks: Any) -> None:
    found: list[int] = []
    futures: list[Any] = []

    class Pool(ThreadPoolExecutor):
        def submit(self, *call: Any) -> Any:  # type: ignore[override]
            futures.append(super().submit(*call))
            return futures[-1]

    def keep(result: int) -> None:
        found.append(result)
        if len(found) == 1:
            wait(futures)
        raise ValueError("enough")

    with Pool(6) as pool, pytest.raises(ValueError, match="enough"):
        run_tasks(tasks.square, range(10), keep, executor=pool)
    assert sorted(found) == SQUARES
