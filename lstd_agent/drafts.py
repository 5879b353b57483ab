"""Where a file is written before it takes the place of its target, so that a target is whole.

A process that is killed meanwhile leaves its draft behind. Its name tells whose it is, so that
whoever writes the same target next can remove it.
"""

from __future__ import annotations

import hashlib
import os
import platform
import secrets
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO


def write_draft(target: Path, write: Callable[[IO[bytes]], object]) -> Path:
    """Write what is to replace a file beside it, and return where; a failure leaves nothing.

    Symbolic links of the target have been followed. The draft has the target's permissions, or
    those that the user's umask says, and is to be renamed.
    """
    draft = draft_of(target)
    try:
        with draft.open("xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            draft.chmod(stat.S_IMODE(target.stat().st_mode))
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    return draft


def draft_of(target: Path) -> Path:
    """Return a path beside a target that no other process takes; remove drafts of killed ones."""
    prefix = f".{hashlib.sha256(f'{_place()} {target.name}'.encode()).hexdigest()[:12]}."
    # A folder that cannot be listed, or a name of somebody else's, is no obstacle to writing.
    with suppress(OSError, ValueError):
        for path in target.parent.iterdir():
            if path.name.startswith(prefix) and not _runs(int(path.name.split(".")[2])):
                path.unlink(missing_ok=True)
    return target.with_name(f"{prefix}{os.getpid()}.{secrets.token_hex(4)}.part")


def _place() -> str:
    """Return what process numbers hold for: a host, and the container on it where there is one."""
    with suppress(OSError):
        return f"{platform.node()} {os.readlink('/proc/self/ns/pid')}"
    return platform.node()


def _runs(process: int) -> bool:
    """Whether there is such a process; where that cannot be told, there may be."""
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
