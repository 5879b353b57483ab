"""Files of results: checked before the work, and written all or none."""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from lstd_agent.commands.running import say
from lstd_agent.errors import InvalidInputError
from lstd_agent.figure_style import new_figure, picture
from lstd_agent.packing import write_files
from lstd_agent.results import Row, WorkerError, one_line, provenance


def check_destinations(picture_at: Path | None, *files: Path | None) -> None:
    """Raise, before the work begins, if a picture or a file cannot be written; give the reason."""
    kinds = new_figure(1.0, 1.0).canvas.get_supported_filetypes() if picture_at else {}
    if picture_at and picture_at.suffix[1:] not in kinds:
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
        if isinstance(value, dict):
            return {name: plain(part) for name, part in value.items()}
        if isinstance(value, np.ndarray | np.generic):
            return plain(value.tolist())
        if isinstance(value, list | tuple):
            return [plain(part) for part in value]
        if isinstance(value, float) and not math.isfinite(value):
            return None
        return value

    return json.dumps(plain(report), allow_nan=False)


def put_report(
    args: argparse.Namespace,
    report: dict[str, Any],
    text: str,
    draw: Callable[[], Any],
    files: Mapping[Path, bytes] | None = None,
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
    args: argparse.Namespace,
    contents: Mapping[str, Any],
    report: str,
    rows_name: str,
    rows: Sequence[Row],
) -> None:
    """Print a report, and write texts, figures and rows to ``args.out`` with their provenance."""
    facts = provenance(args.argv, seeds=f"0 to {args.seeds - 1}", code=rows[0]["code"])
    files = {}
    for name, content in contents.items():
        if isinstance(content, str):
            before, after = ("% ", "") if name.endswith(".tex") else ("<!-- ", " -->")
            files[name] = f"{before}{one_line(facts)}{after}\n\n{content}".encode()
        else:
            files[name] = picture(content, Path(name).suffix, one_line(facts))
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
