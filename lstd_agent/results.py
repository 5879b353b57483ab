"""Rows of results in a JSON Lines file that survives being killed, and where results come from.

A row holds the hash of its settings, the version of the code that computed it, and its key. It is
written as soon as it is known. A second run reads the file, drops a last line that was cut short,
and computes the missing rows only. It keeps rows of other settings or other code, and never uses
them.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import platform
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from datetime import datetime, timezone
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import lstd_agent
import unichain_gym
from lstd_agent.errors import InvalidInputError
from lstd_agent.progress import progress_bar
from lstd_agent.trials.workers import WorkerError, open_executor, run_tasks

__all__ = ["Row", "RowStore", "WorkerError", "code_version", "open_executor", "provenance"]

Row = dict[str, Any]
Task = TypeVar("Task")

PACKAGES = ("numpy", "scipy", "gymnasium", "POT")  # whose versions may change a result

# These modules show results and compute none.
_SHOWS = re.compile(r"commands/|(progress|summary|study/(claims|figures|pages|studies|tables))\.py")


@cache
def code_version(*folders: Path) -> str:
    """Return the version of the packages, and a hash of their and the folders' computing source."""
    packages = (Path(str(package.__file__)).parent for package in (unichain_gym, lstd_agent))
    files = []
    for root in (*packages, *folders):
        for path in sorted(root.rglob("*.py")):
            name = f"{root.name}/{path.relative_to(root).as_posix()}"
            if not _SHOWS.match(name.removeprefix("lstd_agent/")):
                files.append(f"{name} {digest(path.read_bytes())}\n")
    return f"{unichain_gym.__version__}+{digest(''.join(files).encode())}"


def digest(content: bytes) -> str:
    """Return a short hash of a text, the same for any line endings."""
    return hashlib.sha256(content.replace(b"\r\n", b"\n")).hexdigest()[:12]


def source_of(function: Callable[..., Any]) -> str:
    """Return a hash of the file that a function is written in, or else of its code.

    Files that it imports, and variables around an inner function, do not enter the hash.
    """
    if isinstance(function, partial):
        parts = (function.func, *function.args, *function.keywords, *function.keywords.values())
        return digest(" ".join(source_of(x) if callable(x) else repr(x) for x in parts).encode())
    defined = function if hasattr(function, "__qualname__") else type(function)
    try:
        return digest(Path(str(inspect.getsourcefile(defined))).read_bytes())
    except (TypeError, OSError):  # such as a function of a notebook
        code = getattr(defined, "__code__", None)
        return digest(repr(function).encode() if code is None else code.co_code)


def provenance(arguments: Sequence[str], **facts: Any) -> dict[str, Any]:
    """Return the origin of a result as JSON-able facts: command, caller's facts, versions."""
    return {
        # A file's name may have bytes that are no text.
        "command": " ".join(arguments).encode("utf-8", "backslashreplace").decode("utf-8"),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "code": code_version(),
        **facts,
        "python": platform.python_version(),
        "platform": sys.platform,
        **{name: installed_version(name) for name in PACKAGES},
    }


def installed_version(package: str) -> str:
    """Return the version of an installed package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def one_line(facts: Mapping[str, Any]) -> str:
    """Write provenance as one line, for the head of a text file or for a picture's metadata."""
    return "; ".join(f"{name}: {value}" for name, value in facts.items())


class RowStore:
    """The rows of one experiment with one setting, computed by the present ``code``.

    ``settings`` are everything that rows depend on beside their ``key`` fields. ``n_outdated``
    counts rows with these settings from other code.
    """

    def __init__(
        self, path: Path, settings: Mapping[str, Any], key: Sequence[str], code: str = ""
    ) -> None:
        self.path = path
        self.settings = digest(json.dumps(settings, sort_keys=True).encode())
        self.code = code or code_version()
        self.key = tuple(key)
        self.n_outdated = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab"):
            pass  # a file that cannot be written is an error before anything is computed
        content = path.read_bytes()
        complete = content.rfind(b"\n") + 1
        if complete < len(content):  # the last row was being written when a run was killed
            os.truncate(path, complete)
        self._rows: dict[tuple[Any, ...], Row] = {}
        lines = content[:complete].decode("utf-8", errors="replace").split("\n")[:-1]
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
                if row["settings"] != self.settings:
                    continue
                if row["code"] != self.code:
                    self.n_outdated += 1  # such a row may have another key
                else:
                    self._rows[self.key_of(row)] = row
            except (ValueError, TypeError, KeyError) as error:
                told = f"{path}, line {number} is no row of results ({error!r}): {line[:60]!r}. "
                told += "Delete that line, and its row is computed again"
                raise InvalidInputError(told) from None

    def key_of(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the key of a row."""
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
        workers: int = 1,
        executor: Executor | None = None,
        progress: bool | None = None,
    ) -> None:
        """Run the function on each task, in processes or by an executor, and add its new rows."""
        if self.n_outdated and tasks and progress is not False:
            told = f"{self.n_outdated} rows of other code than this are left alone"
            print(f"{self.path}: {told}, and what is missing is computed", file=sys.stderr)
        with progress_bar(len(tasks), "task", progress) as bar:

            def keep(rows: Iterable[Row]) -> None:
                self.add(row for row in rows if self.key_of(row) not in self)
                bar.update()

            run_tasks(function, tasks, keep, workers=workers, executor=executor)

    def add(self, rows: Iterable[Row]) -> None:
        """Append rows to the file at once."""
        marked = [{"settings": self.settings, "code": self.code, **row} for row in rows]
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write("".join(json.dumps(row) + "\n" for row in marked))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from None
        self._rows.update((self.key_of(row), row) for row in marked)
