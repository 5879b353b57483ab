"""Files of results: tried before the work, and written all or none of them."""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Callable, Mapping
from operator import methodcaller
from pathlib import Path
from typing import Any

import numpy as np

from lstd_agent.commands.running import say
from lstd_agent.drafts import write_draft
from lstd_agent.errors import InvalidInputError
from lstd_agent.figure_style import new_figure


def check_writable(path: Path) -> None:
    """Raise, before any work, what would go wrong in writing a file.

    Raises
    ------
    InvalidInputError
        With the reason.
    """
    target = Path(os.path.realpath(path))
    try:
        if target.is_dir():
            raise IsADirectoryError("it is a directory")
        if _is_special(target):
            return
        if not target.parent.is_dir():
            raise FileNotFoundError("there is no such directory")
        if target.exists() and not os.access(target, os.W_OK):
            raise PermissionError("the file there may not be written")
        write_draft(target, lambda _: None).unlink()
    except OSError as error:
        raise InvalidInputError(f"cannot write {path}: {error.strerror or error}") from None


def check_picture(path: Path) -> None:
    """Raise, before any work, what would go wrong in drawing to a file.

    Raises
    ------
    InvalidInputError
        With the reason.
    """
    if path.suffix[1:] not in new_figure(1.0, 1.0).canvas.get_supported_filetypes():
        raise InvalidInputError(f"cannot draw {path}: name a .png, .pdf or .svg file")
    check_writable(path)


def as_json(report: dict[str, Any]) -> str:
    """Return the report as one JSON document, in which what is no finite number is null."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: plain(part) for name, part in value.items()}
        if isinstance(value, np.ndarray | np.generic):
            return plain(value.tolist())
        if isinstance(value, list):
            return [plain(part) for part in value]
        if isinstance(value, float) and not math.isfinite(value):
            return None
        return value

    return json.dumps(plain(report), allow_nan=False)


def put_out(text: str, contents: Mapping[Path, bytes]) -> None:
    """Print a text and write files, each even if the other fails, as on a full disk.

    Raises
    ------
    OSError
        If one of them could not be done.
    """
    try:
        print(text, flush=True)
    finally:
        write_files(contents)


def saved(save: Callable[[Path], object], path: Path, what: str) -> bool:
    """Save something to a file before the work is over; say so if that fails, and go on."""
    try:
        save(path)
    except OSError as error:
        say(f"error: {error}; {what} not saved")
        return False
    return True


def write_files(contents: Mapping[Path, bytes]) -> None:
    """Write files so that a failure or an interrupt leaves every old one as it was.

    All contents are written beside their targets first and then take their places.

    Raises
    ------
    OSError
        With the name of the file that could not be written.
    """
    written: list[tuple[Path, Path]] = []
    try:
        for path, content in contents.items():
            target = Path(os.path.realpath(path))
            try:
                if _is_special(target):
                    target.write_bytes(content)
                else:
                    written.append((write_draft(target, methodcaller("write", content)), target))
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(path)) from None
        for draft, target in written:
            os.replace(draft, target)
    finally:
        for draft, _ in written:
            draft.unlink(missing_ok=True)


def _is_special(target: Path) -> bool:
    """Whether a path is there and no regular file, such as a pipe: it must not be replaced."""
    return target.exists() and not stat.S_ISREG(target.stat().st_mode)
