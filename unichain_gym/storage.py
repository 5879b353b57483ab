"""Files that hold an MDP: an .npz archive of its arrays, written whole or not at all."""

from __future__ import annotations

import json
import os
import platform
import secrets
import shutil
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import IO, Any
from zipfile import BadZipFile, is_zipfile

import numpy as np

from unichain_gym.errors import InvalidArgumentError, InvalidModelError, brief

ARRAYS = ("next_state", "probability", "reward", "initial_distribution")
OPTIONAL = "durations"  # an array that not every MDP has
LABELS = ("name", "state_names", "action_names")


def write_archive(path: str | Path, fields: Mapping[str, Any]) -> None:
    """Write the fields of an MDP, its labels as JSON, to an archive at exactly this path."""
    kept = {name: fields[name] for name in (*ARRAYS, OPTIONAL) if fields[name] is not None}
    kept |= {name: json.dumps(fields[name]) for name in LABELS}
    with replacing(_read_path(path)) as file:
        np.savez_compressed(file, **kept)


def read_archive(path: str | Path) -> dict[str, Any]:
    """Return the fields of an MDP in an archive, executing nothing, or `InvalidModelError`."""
    what = f"{path} holds no saved MDP"
    with _read_path(path).open("rb") as file:
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
    name = str(archive["name"])  # as JSON, or from older releases as plain text
    fields["name"] = str(json.loads(name)) if name.startswith('"') else name
    if OPTIONAL in archive:
        fields[OPTIONAL] = archive[OPTIONAL]
    for label in LABELS[1:]:
        if label in archive:
            fields[label] = json.loads(str(archive[label]))
    return fields


def _read_path(path: str | Path) -> Path:
    try:
        return Path(path)
    except TypeError:
        raise InvalidArgumentError(f"path must be text or a path; got {brief(path)}") from None


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that replaces ``path`` after a complete write only.

    As with `open`, symbolic links and permissions stay, and a target that is no regular file is
    written directly. Drafts of killed processes for the same file are removed.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        with target.open("wb") as file:
            yield file
        return
    draft = _draft_of(target)
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


def _draft_of(target: Path) -> Path:
    """Return a path beside a target for this process alone; remove drafts of killed processes."""
    # Process numbers are unique only within a host or a container.
    place = platform.node()
    with suppress(OSError):
        place += os.readlink("/proc/self/ns/pid")
    prefix = f".{sha256(f'{place} {target.name}'.encode()).hexdigest()[:12]}."
    # An unreadable folder, or another user's file, does not prevent writing.
    with suppress(OSError, ValueError):
        for left in target.parent.glob(f"{prefix}*.tmp"):
            if not _runs(int(left.name.split(".")[2])):
                left.unlink(missing_ok=True)
    return target.with_name(f"{prefix}{os.getpid()}.{secrets.token_hex(4)}.tmp")


def _runs(process: int) -> bool:
    """Whether a process runs; True if unknown."""
    try:
        if os.name == "posix":
            os.kill(process, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return True
