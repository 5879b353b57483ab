"""Files that hold an MDP: an .npz archive of its arrays, written whole or not at all."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from zipfile import BadZipFile, is_zipfile

import numpy as np

from unichain_gym.errors import InvalidModelError

ARRAYS = ("next_state", "probability", "reward", "initial_distribution")


def write_archive(path: str | Path, arrays: dict[str, Any], labels: dict[str, Any]) -> None:
    """Write arrays, and labels as JSON, to an archive at exactly this path."""
    fields: dict[str, Any] = {name: json.dumps(label) for name, label in labels.items()}
    with replacing(Path(path)) as file:
        np.savez_compressed(file, **arrays, **fields)


def read_archive(path: str | Path) -> dict[str, Any]:
    """Return what the fields of an MDP hold in an archive; nothing in it is executed (no pickle).

    Raises
    ------
    InvalidModelError
        If the file is of another kind, is damaged, or lacks a field.
    """
    what = f"{path} holds no saved MDP"
    with Path(path).open("rb") as file:
        if not is_zipfile(file):
            raise InvalidModelError(f"{what}: it is no .npz file, or not a whole one")
        file.seek(0)
        try:
            with np.load(file, allow_pickle=False) as archive:
                return _read_fields(archive, what)
        except InvalidModelError:
            raise
        except (ValueError, KeyError, EOFError, OSError, RuntimeError, BadZipFile, zlib.error) as e:
            raise InvalidModelError(f"{what}, or it is damaged: {e}") from e


def _read_fields(archive: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Return the fields of an MDP; an archive may be without names of states."""
    missing = [field for field in (*ARRAYS, "name") if field not in archive]
    if missing:
        raise InvalidModelError(f"{what}: it lacks {', '.join(missing)}")
    fields: dict[str, Any] = {field: archive[field] for field in ARRAYS}
    fields["name"] = _read_name(str(archive["name"]))
    if "state_names" in archive:
        fields["state_names"] = json.loads(str(archive["state_names"]))
    return fields


def _read_name(text: str) -> str:
    """Return a name stored as JSON, or as plain text."""
    return str(json.loads(text)) if text.startswith('"') else text


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that takes the place of ``path`` once it is written, and not if that fails.

    As `open` would, it leaves a symbolic link in place and writes what that points to, keeps the
    permissions of an existing file, and writes to what is no regular file directly.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        with target.open("wb") as file:
            yield file
        return
    draft = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with draft.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            shutil.copymode(target, draft)
        os.replace(draft, target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
