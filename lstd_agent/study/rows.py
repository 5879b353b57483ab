"""Result rows in a JSON Lines file that survives being killed.

Each row holds its settings' hash, the version of the code that computed it and its key, and is
written as soon as it is known. A run that is started again reads the file, drops a last line that
was cut short, and computes only what is missing. Rows of other settings or of other code may share
the file; they are never mixed with those that are asked for, nor taken for them.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, TypedDict, TypeVar

from lstd_agent.errors import InvalidInputError
from lstd_agent.progress import progress_bar
from lstd_agent.study.provenance import code_version
from lstd_agent.trials.workers import run_tasks

Row = dict[str, Any]
Task = TypeVar("Task")


class How(TypedDict, total=False):
    """How rows are computed: see `lstd_agent.trials.workers.run_tasks` and `progress_bar`."""

    workers: int
    executor: Executor | None
    progress: bool | None


def settings_hash(settings: Mapping[str, Any]) -> str:
    """Return a short hash of JSON-able settings, the same whatever their order."""
    text = json.dumps(settings, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


class RowStore:
    """The rows of one experiment under one setting, computed by the code as it is.

    Parameters
    ----------
    path : Path
        The JSON Lines file; made with its folder if it does not exist.
    settings : mapping
        Everything that the rows depend on beside their key.
    key : sequence of str
        The fields that tell rows apart.

    Attributes
    ----------
    n_outdated : int
        How many rows of these settings are in the file that other code has computed.

    Raises
    ------
    InvalidInputError
        If a line of the file is no row.
    OSError
        If the file cannot be read or written.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any], key: Sequence[str]) -> None:
        self.path = path
        self.settings = settings_hash(settings)
        self.code = code_version()
        self.key = tuple(key)
        self.n_outdated = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8"):
            pass  # what cannot be written is told before anything is computed
        _cut_unfinished_line(path)
        self._rows: dict[tuple[Any, ...], Row] = {}
        with path.open(encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines, 1):
                self._read(number, line.rstrip("\n"))

    def _read(self, number: int, line: str) -> None:
        """Take in one line of the file."""
        try:
            row = json.loads(line)
            if row["settings"] != self.settings:
                return
            if row.get("code", self.code) != self.code:
                self.n_outdated += 1  # such rows may have another key
                return
            key = self.key_of(row)
            hash(key)
        except (ValueError, TypeError, KeyError) as error:
            raise InvalidInputError(
                f"{self.path}, line {number} is no row of results ({error!r}): {line[:60]!r}. "
                "Delete that line, and its row is computed again"
            ) from None
        if "code" in row:
            self._rows[key] = row
        else:
            self.n_outdated += 1

    def key_of(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return what identifies a row."""
        return tuple(row[field] for field in self.key)

    def __contains__(self, key: tuple[Any, ...]) -> bool:
        return key in self._rows

    def lacks(self, keys: Iterable[tuple[Any, ...]]) -> bool:
        """Whether a row of any of these keys is missing."""
        return any(key not in self for key in keys)

    @property
    def rows(self) -> list[Row]:
        """All rows of this setting, sorted by key."""
        return [self._rows[key] for key in sorted(self._rows)]

    def asked(self, **fields: Container[Any]) -> list[Row]:
        """Return the rows whose fields are among the given values, sorted by key."""
        return [row for row in self.rows if all(row[k] in among for k, among in fields.items())]

    def compute(
        self,
        function: Callable[[Task], list[Row]],
        missing: Iterable[Task],
        *,
        workers: int = 1,
        executor: Executor | None = None,
        progress: bool | None = None,
    ) -> None:
        """Run tasks and add what they find out; see `How`."""
        tasks = list(missing)  # before any row is added
        if self.n_outdated and tasks and progress is not False:
            print(
                f"{self.path}: {self.n_outdated} rows of other code than this are left alone, "
                "and what is missing is computed",
                file=sys.stderr,
            )
        results = run_tasks(function, tasks, workers=workers, executor=executor)
        with progress_bar(len(tasks), "task", progress) as bar:
            for rows in results:
                self.add(row for row in rows if self.key_of(row) not in self)
                bar.update()

    def add(self, rows: Iterable[Row]) -> None:
        """Append rows to the file, at once."""
        marked = [{"settings": self.settings, "code": self.code, **row} for row in rows]
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write("".join(json.dumps(row) + "\n" for row in marked))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from None
        self._rows.update((self.key_of(row), row) for row in marked)


def _cut_unfinished_line(path: Path) -> None:
    """Drop what follows the last line break: a row whose writing was interrupted."""
    content = path.read_bytes()
    complete = content.rfind(b"\n") + 1
    if complete < len(content):
        os.truncate(path, complete)
