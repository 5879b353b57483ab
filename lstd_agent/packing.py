"""Dataclasses in files: one ``.npz`` of plain arrays, with a JSON text for everything else.

`pack` walks through a value: dataclasses, spaces, tuples and dicts become JSON, their arrays
members of the file. `unpack` calls the constructors that check what users give. Nothing is pickled,
so no code of a file runs. Sizes are checked before anything is read, and a digest detects changes:
whoever makes a new digest could write false numbers that no check finds. A file is written beside
its target and then renamed, so an interrupt leaves the old file intact.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import secrets
import stat
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from operator import methodcaller
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from scipy import sparse

from lstd_agent.errors import EvaluationError, InvalidInputError
from lstd_agent.features.rows import is_sparse

FORMAT_VERSION = 7
OLD = 3600.0  # seconds after which nobody writes a draft any more

Arrays: TypeAlias = dict[str, NDArray[Any]]

Makers: TypeAlias = Mapping[type, Callable[..., Any]]
"""Dataclasses that a file may hold, each with a function of its fields that checks and makes it."""

# Arrays may take this many times the bytes of the file, and always this much memory.
_LARGEST_RATIO = 200
_ALWAYS_ALLOWED = 2**26

_CSR_PARTS = "data", "indices", "indptr"

_SPACES: dict[type, tuple[str, ...]] = {
    spaces.Dict: ("spaces",),
    spaces.Tuple: ("spaces",),
    spaces.Discrete: ("n", "start"),
    spaces.MultiDiscrete: ("nvec", "start"),
    spaces.MultiBinary: ("n",),
    spaces.Box: ("low", "high"),
}


def function(*_: Any) -> Any:
    """Stand for a function: files hold none."""
    raise InvalidInputError("a file does not hold functions: give it again to load()")


def pack(value: Any, name: str, arrays: Arrays, makers: Makers) -> Any:
    """Put the arrays of a value among others, under its name, and return the rest as JSON.

    Numbers, texts, arrays, spaces, dataclasses of the makers, and tuples, lists and dicts of these
    are packed; anything else is marked as a function.
    """

    def inside(each: Any, key: Any) -> Any:
        return pack(each, f"{name}.{key}", arrays, makers)

    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if is_sparse(value):
        rows = sparse.csr_array(value)
        arrays.update({f"{name}.{part}": getattr(rows, part) for part in _CSR_PARTS})
        return {"csr": name, "shape": [int(n) for n in rows.shape]}
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        arrays[name] = value
        return {"array": name}
    if isinstance(value, tuple | list):
        return {type(value).__name__: [inside(each, i) for i, each in enumerate(value)]}
    # A subclass of a space is saved as the space that it is.
    kind = next((each for each in _SPACES if isinstance(value, each)), type(value))
    if kind not in _SPACES and isinstance(value, Mapping):
        return {"dict": [[key, inside(each, key)] for key, each in value.items()]}
    if kind in _SPACES:
        fields = _SPACES[kind]
    elif kind in makers:
        fields = tuple(each.name for each in dataclasses.fields(kind) if each.init)
    else:
        return {"function": []}
    return {kind.__name__: [[field, inside(getattr(value, field), field)] for field in fields]}


def unpack(facts: Any, arrays: Arrays, makers: Makers) -> Any:
    """Return the value that `pack` was given; the makers raise if it is invalid."""
    if facts is None or isinstance(facts, bool | int | float | str):
        return facts
    if "csr" in facts:
        data, indices, indptr = (arrays[f"{facts['csr']}.{part}"] for part in _CSR_PARTS)
        if any(each.dtype.kind not in "iu" or each.itemsize < 4 for each in (indices, indptr)):
            raise InvalidInputError(f"its indices are {indices.dtype} and {indptr.dtype}")
        matrix = sparse.csr_array((data, indices, indptr), shape=tuple(facts["shape"]))
        matrix.check_format(full_check=True)  # SciPy itself would read indices out of range
        return matrix
    ((name, parts),) = facts.items()
    if name == "array":
        return arrays[parts]
    if name == "function":
        return function
    if name in ("tuple", "list"):
        found = [unpack(part, arrays, makers) for part in parts]
        return tuple(found) if name == "tuple" else found
    held = {key: unpack(part, arrays, makers) for key, part in parts}
    if name == "dict":
        return held
    if name == "Dict":  # in the order of the file
        held["spaces"] = list(held["spaces"].items())
    if name == "Box":
        held["dtype"] = held["low"].dtype.type
    every: Makers = {**{space: space for space in _SPACES}, **makers}
    for kind, make in every.items():
        if kind.__name__ == name:
            return make(**held)
    raise InvalidInputError(f"a file cannot hold {name!r}")


def write(path: str | os.PathLike[str], value: Any, makers: Makers) -> None:
    """Write a value to a file, all or nothing; a symbolic link is followed."""
    arrays: Arrays = {}
    held = pack(value, "saved", arrays, makers)
    facts = {"format_version": FORMAT_VERSION, "digest": _digest(held, arrays), "saved": held}
    members: Any = {"facts": np.array(json.dumps(facts)), **arrays}
    n_bytes = sum(part.nbytes + 256 for part in members.values())

    def write_to(file: IO[bytes]) -> None:
        np.savez_compressed(file, **members)
        if not _is_allowed(n_bytes, file.tell()):  # `read` would refuse it: too small a file
            file.seek(0)
            file.truncate()
            np.savez(file, **members)

    write_files({path: write_to})


def read(path: str | os.PathLike[str], kind: type, what: str, makers: Makers) -> Any:
    """Return the value of a kind in a file; ``what`` names the expected content.

    Raises `InvalidInputError` if it is no such file, has another format, or is damaged.
    """
    with open(path, "rb") as file, refusing(path, f"is not a saved {what}"):
        arrays = _read_arrays(file, os.fstat(file.fileno()).st_size)
        facts = json.loads(arrays.pop("facts").tobytes().decode("utf-32-le").rstrip("\0"))
        version = facts["format_version"]
    if version != FORMAT_VERSION:
        is_older = isinstance(version, int) and version < FORMAT_VERSION
        older = "load it with the version that wrote it, or collect again"
        told = f"{path} has format {version!r:.20}, and this version of lstd_agent reads format "
        told += f"{FORMAT_VERSION}: {older if is_older else 'install a newer one'}"
        raise InvalidInputError(told)
    with refusing(path):
        if facts["digest"] != _digest(facts["saved"], arrays):
            raise InvalidInputError("its digest does not match its content")
        value = unpack(facts["saved"], arrays, makers)
    if not isinstance(value, kind):
        raise InvalidInputError(f"{path} is not a saved {what}: it holds something else")
    return value


@contextmanager
def refusing(path: str | os.PathLike[str], why: str = "is damaged") -> Iterator[None]:
    """Raise any error inside as `InvalidInputError` of the file that is being loaded."""
    try:
        yield
    except Exception as error:  # a crafted value may raise anything
        said = str(error) if isinstance(error, EvaluationError) else repr(error)
        raise InvalidInputError(f"{path} {why}: {said}") from error


def _is_allowed(n_bytes: int, file_size: int) -> bool:
    """Whether a file of this size may make arrays of so many bytes."""
    return n_bytes <= max(_ALWAYS_ALLOWED, _LARGEST_RATIO * file_size)


def _read_arrays(file: IO[bytes], file_size: int) -> Arrays:
    with zipfile.ZipFile(file) as archive:
        n_bytes = sum(member.file_size for member in archive.infolist())
    if not _is_allowed(n_bytes, file_size):
        raise InvalidInputError(f"its {file_size} bytes claim to hold {n_bytes}")
    file.seek(0)
    with np.load(file, allow_pickle=False) as loaded:
        return {name: loaded[name] for name in loaded.files}


def _digest(held: Any, arrays: Arrays) -> str:
    """Return a hash of all of a value."""
    found = hashlib.sha256(json.dumps(held).encode())
    for name, part in sorted(arrays.items()):
        found.update(f"{name} {part.dtype.str} {part.shape}".encode())
        found.update(np.ascontiguousarray(part).data if part.size else b"")
    return found.hexdigest()


def write_files(
    contents: Mapping[Any, bytes | Callable[[IO[bytes]], object]], check_only: bool = False
) -> None:
    """Write bytes, or what functions of open files write, to paths: all, or leave all old files.

    All contents are written beside their targets first and then take their places. An `OSError`
    names the file that could not be written. With ``check_only``, the old files stay.
    """
    written: list[tuple[Path, Path]] = []
    try:
        for path, content in contents.items():
            target = Path(os.path.realpath(path))
            fill = methodcaller("write", content) if isinstance(content, bytes) else content
            try:
                if not target.exists() or stat.S_ISREG(target.stat().st_mode):
                    written.append((_write_draft(target, fill), target))
                elif not check_only:  # a pipe or the like, which must not be replaced
                    fill(held := io.BytesIO())
                    target.write_bytes(held.getvalue())
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(path)) from None
        for draft, target in written if not check_only else ():
            os.replace(draft, target)
    finally:
        for draft, _ in written:
            draft.unlink(missing_ok=True)


def _write_draft(target: Path, write: Callable[[IO[bytes]], object]) -> Path:
    """Write a draft beside its target and return its path; a failure leaves no file.

    Symbolic links of the target must be followed before. The draft has the target's permissions,
    or those of the user's umask. Drafts that killed processes left an hour ago are removed.
    """
    prefix = f".{hashlib.sha256(target.name.encode()).hexdigest()[:12]}."
    with suppress(OSError):  # a folder that cannot be listed, or a draft of another user
        for path in target.parent.glob(f"{prefix}*.part"):
            if time.time() - path.stat().st_mtime > OLD:
                path.unlink(missing_ok=True)
    draft = target.with_name(f"{prefix}{secrets.token_hex(8)}.part")
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
