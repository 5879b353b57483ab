"""Dataclasses in files: one ``.npz`` of plain arrays, with a JSON text for everything else.

`pack` walks through a value: dataclasses, spaces, tuples and dicts become JSON, their arrays
members of the file. `unpack` calls the very constructors that check what users give them, so that
a file holds nothing that a user could not have given. Nothing is pickled and no text is
evaluated, so that no code of a file runs. Sizes are looked at before anything is read, and a
digest tells whether a file is as it was written. A file is written beside its target and then
renamed, so that an interrupt leaves the old one intact.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray
from scipy import sparse

from lstd_agent.drafts import write_draft
from lstd_agent.errors import EvaluationError, InvalidInputError
from lstd_agent.features.rows import is_sparse

FORMAT_VERSION = 6

Arrays: TypeAlias = dict[str, NDArray[Any]]

Makers: TypeAlias = Mapping[type, Callable[..., Any]]
"""What may be in a file, each type with what makes one of its fields, checked."""

# Arrays may take so many times as much memory as the file has bytes, and this in any case.
_LARGEST_RATIO = 200
_ALWAYS_ALLOWED = 2**26

_ARRAY = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '([<>|][biufU][1-9]\d*)', 'fortran_order': (False|True), "
    rb"'shape': \(([\d, ]*)\), \} *\n",
    re.DOTALL,
)
_CSR_PARTS = "data", "indices", "indptr"

# What spaces are made of, named alike as attributes and as arguments.
_SPACES: dict[type[Space[Any]], tuple[tuple[str, ...], Callable[..., Space[Any]]]] = {
    spaces.Dict: (("spaces",), lambda spaces_: spaces.Dict(list(spaces_.items()))),
    spaces.Tuple: (("spaces",), spaces.Tuple),
    spaces.Discrete: (("n", "start"), lambda n, start: spaces.Discrete(n, start=start)),
    spaces.MultiDiscrete: (
        ("nvec", "start"),
        lambda n, start: spaces.MultiDiscrete(n, start=start),
    ),
    spaces.MultiBinary: (("n",), spaces.MultiBinary),
    spaces.Box: (("low", "high"), lambda low, high: spaces.Box(low, high, dtype=low.dtype.type)),
}


def function(*_: Any) -> Any:
    """Stand for a function, which no file holds."""
    raise InvalidInputError("a file does not hold functions: give it again to load()")


def pack(value: Any, name: str, arrays: Arrays, makers: Makers) -> Any:
    """Put the arrays of a value among others, and return what else it has, as JSON.

    Parameters
    ----------
    value : number, text, array, space, dataclass, or a tuple, list or dict of them
        Anything else, such as a function, is only marked as one.
    name : str
        Of its arrays.
    arrays : dict
        Takes them.
    makers : Makers
    """
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
    for kind, (fields, _) in _SPACES.items():  # a subclass as the space that it is
        if isinstance(value, kind):
            return _parts(value, kind, fields, name, arrays, makers)
    if isinstance(value, tuple | list):
        parts = [pack(v, f"{name}.{i}", arrays, makers) for i, v in enumerate(value)]
        return {type(value).__name__: parts}
    if isinstance(value, Mapping):
        pairs = [[k, pack(v, f"{name}.{k}", arrays, makers)] for k, v in value.items()]
        return {"dict": pairs}
    if type(value) in makers:
        return _parts(value, type(value), _fields(type(value)), name, arrays, makers)
    return {"function": []}


def _parts(
    value: Any, kind: type, fields: Iterable[str], name: str, arrays: Arrays, makers: Makers
) -> Any:
    parts = [[f, pack(getattr(value, f), f"{name}.{f}", arrays, makers)] for f in fields]
    return {kind.__name__: parts}


def _fields(kind: type) -> tuple[str, ...]:
    return tuple(each.name for each in dataclasses.fields(kind) if each.init)


def unpack(facts: Any, arrays: Arrays, makers: Makers) -> Any:
    """Return what `pack` was given, made by the makers; they raise where it does not fit."""
    if facts is None or isinstance(facts, bool | int | float | str):
        return facts
    if "csr" in facts:
        return _read_csr(facts["csr"], arrays, tuple(facts["shape"]))
    ((kind, parts),) = facts.items()
    if kind == "array":
        return arrays[parts]
    if kind == "function":
        return function
    if kind in ("tuple", "list"):
        found = [unpack(part, arrays, makers) for part in parts]
        return tuple(found) if kind == "tuple" else found
    held = {key: unpack(part, arrays, makers) for key, part in parts}
    if kind == "dict":
        return held
    for each, (fields, make) in _SPACES.items():
        if each.__name__ == kind:
            return make(*(held[field] for field in fields))
    maker = next((make for each, make in makers.items() if each.__name__ == kind), None)
    if maker is None:
        raise InvalidInputError(f"{kind!r} is nothing that a file holds")
    return maker(**held)


def _read_csr(name: str, arrays: Arrays, shape: tuple[int, int]) -> sparse.csr_array:
    """Return a CSR matrix; indices out of range would be read all the same."""
    data, indices, indptr = (arrays[f"{name}.{part}"] for part in _CSR_PARTS)
    if any(part.dtype.kind not in "iu" or part.dtype.itemsize < 4 for part in (indices, indptr)):
        raise InvalidInputError(f"{name} has indices of {indices.dtype} and {indptr.dtype}")
    matrix = sparse.csr_array((data, indices, indptr), shape=shape)
    matrix.check_format(full_check=True)
    return matrix


def write(path: str | os.PathLike[str], value: Any, makers: Makers) -> None:
    """Write a value to a file, all or nothing.

    Parameters
    ----------
    path : path
        A symbolic link is followed, as by any program that writes a file by its name.
    value : dataclass
    makers : Makers
    """
    target = Path(os.path.realpath(path))
    arrays: Arrays = {}
    held = pack(value, "saved", arrays, makers)
    facts = {"format_version": FORMAT_VERSION, "digest": _digest(held, arrays), "saved": held}
    text = np.array(json.dumps(facts))

    def write_to(file: IO[bytes]) -> None:
        np.savez_compressed(file, facts=text, **arrays)  # type: ignore[arg-type]
        n_bytes = text.nbytes + sum(part.nbytes for part in arrays.values())
        if not _is_allowed(n_bytes + 256 * len(arrays) + 256, file.tell()):
            # So much the same throughout that it would be refused for its size.
            file.seek(0)
            file.truncate()
            np.savez(file, facts=text, **arrays)  # type: ignore[arg-type]

    try:
        draft = write_draft(target, write_to)
        try:
            os.replace(draft, target)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        error.filename = str(path)
        raise


def read(path: str | os.PathLike[str], kind: type, what: str, makers: Makers) -> Any:
    """Return the value in a file.

    Parameters
    ----------
    path : path
    kind : type
        Of the value.
    what : str
        What the file is to be, in words.
    makers : Makers

    Raises
    ------
    InvalidInputError
        If it is not such a file, one of another format, damaged, or larger than it can be.
    """
    with open(path, "rb") as file:
        try:
            arrays = _read_arrays(file, os.fstat(file.fileno()).st_size)
            facts = json.loads(arrays.pop("facts").tobytes().decode("utf-32-le").rstrip("\0"))
            version = facts["format_version"]
        except Exception as error:  # whatever the libraries do with a file that is none
            raise InvalidInputError(f"{path} is not a saved {what}: {error}") from error
    if version != FORMAT_VERSION:
        remedy = "install a newer one"
        if isinstance(version, int) and version < FORMAT_VERSION:
            remedy = "load it with the version that wrote it, or collect again"
        raise InvalidInputError(
            f"{path} has format {version!r:.20}, and this version of lstd_agent reads format "
            f"{FORMAT_VERSION}: {remedy}"
        )
    with refusing(path):
        if facts["digest"] != _digest(facts["saved"], arrays):
            raise InvalidInputError("it is not as it was written")
        value = unpack(facts["saved"], arrays, makers)
    if not isinstance(value, kind):
        raise InvalidInputError(f"{path} is not a saved {what}: it holds something else")
    return value


@contextmanager
def refusing(path: str | os.PathLike[str], why: str = "is damaged") -> Iterator[None]:
    """Have whatever goes wrong inside be the fault of the file that is being loaded."""
    try:
        yield
    except Exception as error:  # whatever a crafted value does to those that get it
        said = str(error) if isinstance(error, EvaluationError) else repr(error)
        raise InvalidInputError(f"{path} {why}: {said}") from error


def _is_allowed(n_bytes: int, file_size: int) -> bool:
    """Whether a file of this size may make arrays of so many bytes."""
    return n_bytes <= max(_ALWAYS_ALLOWED, _LARGEST_RATIO * file_size)


def _read_arrays(file: IO[bytes], file_size: int) -> Arrays:
    arrays: Arrays = {}
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        n_bytes = sum(member.file_size for member in members)
        if not _is_allowed(n_bytes, file_size):
            raise InvalidInputError(f"its {file_size} bytes claim to hold {n_bytes}")
        for member in members:
            name = member.filename.removesuffix(".npy")
            plain = member.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
            if not plain or name in arrays:
                raise InvalidInputError(f"its member {name!r} is none of a file that was saved")
            arrays[name] = _read_array(name, archive.read(member))
    return arrays


def _read_array(name: str, data: bytes) -> NDArray[Any]:
    """Return an array of a member of the file, of which no text is evaluated."""
    header = _ARRAY.match(data)
    if header is None:
        raise InvalidInputError(f"its member {name!r} is no array of numbers")
    dtype, begin = np.dtype(header[1].decode()), header.end()
    shape = tuple(int(n) for n in header[3].split(b",") if n.strip())
    if (dtype.kind == "U") != (name == "facts"):
        raise InvalidInputError(f"its member {name!r} holds {dtype}")
    if math.prod(shape) * dtype.itemsize != len(data) - begin:
        raise InvalidInputError(f"its member {name!r} has no numbers for shape {shape}")
    flat = np.frombuffer(data, np.uint8 if dtype.kind == "b" else dtype, offset=begin)
    if dtype.kind == "b":
        if flat.max(initial=0) > 1:
            raise InvalidInputError(f"its member {name!r} holds what is neither true nor false")
        flat = flat.view(np.bool_)
    return flat.reshape(shape, order="F" if header[2] == b"True" else "C").copy(order="K")


def _digest(held: Any, arrays: Arrays) -> str:
    """Return what changes as soon as anything of a value changes."""
    found = hashlib.sha256(json.dumps(held).encode())
    for name, part in sorted(arrays.items()):
        found.update(f"{name} {part.dtype.str} {part.shape}".encode())
        found.update(np.ascontiguousarray(part).data if part.size else b"")
    return found.hexdigest()
