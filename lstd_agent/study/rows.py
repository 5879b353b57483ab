"""Result rows in a JSON Lines file that survives being killed.

Each row holds its settings' hash and its key, and is written as soon as it is known. A run that
is started again reads the file, drops a last line that was cut short, and computes only what
is missing. Rows of other settings may share the file; they are never mixed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, TypeVar

from tqdm import tqdm

from lstd_agent.trials.parallel import run_tasks

Row = dict[str, Any]
Task = TypeVar("Task")


def settings_hash(settings: Mapping[str, Any]) -> str:
    """Return a short hash of JSON-able settings, the same whatever their order."""
    text = json.dumps(settings, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


class RowStore:
    """The rows of one experiment under one setting.

    Parameters
    ----------
    path : Path
        The JSON Lines file; made with its folder if it does not exist.
    settings : mapping
        Everything that the rows depend on beside their key.
    key : sequence of str
        The fields that tell rows apart.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any], key: Sequence[str]) -> None:
        self.path = path
        self.settings = settings_hash(settings)
        self.key = tuple(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        _cut_unfinished_line(path)
        with path.open() as lines:
            rows = (json.loads(line) for line in lines)
            self._rows = {self.key_of(r): r for r in rows if r["settings"] == self.settings}

    def key_of(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return what identifies a row."""
        return tuple(row[field] for field in self.key)

    def __contains__(self, key: tuple[Any, ...]) -> bool:
        return key in self._rows

    @property
    def rows(self) -> list[Row]:
        """All rows of this setting, sorted by key."""
        return [self._rows[key] for key in sorted(self._rows)]

    def compute(
        self,
        function: Callable[[Task], list[Row]],
        tasks: Sequence[Task],
        *,
        workers: int,
        executor: Executor | None,
    ) -> None:
        """Run tasks (see `lstd_agent.trials.parallel.run_tasks`) and add what they find out."""
        results = run_tasks(function, tasks, workers=workers, executor=executor)
        for rows in tqdm(results, total=len(tasks), unit="task", disable=None):
            self.add(row for row in rows if self.key_of(row) not in self)

    def add(self, rows: Iterable[Row]) -> None:
        """Append rows to the file, at once."""
        marked = [{"settings": self.settings, **row} for row in rows]
        with self.path.open("a") as file:
            file.write("".join(json.dumps(row) + "\n" for row in marked))
            file.flush()
            os.fsync(file.fileno())
        self._rows.update((self.key_of(row), row) for row in marked)


def _cut_unfinished_line(path: Path) -> None:
    """Drop what follows the last line break: a row whose writing was interrupted."""
    content = path.read_bytes()
    complete = content.rfind(b"\n") + 1
    if complete < len(content):
        os.truncate(path, complete)
