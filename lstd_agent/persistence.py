"""Agents in files: one ``.npz`` of plain arrays, with a JSON text for everything else.

Nothing is pickled, so that loading a file runs no code from it. The JSON carries a format
number; files of another format are refused. What is read is checked before it is used. A file
is written beside its target and then renamed, so that an interrupt leaves the old one intact.
"""

from __future__ import annotations

import dataclasses
import json
import os
import uuid
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray
from scipy import sparse

from lstd_agent.errors import InvalidInputError
from lstd_agent.features.fourier import FourierBasis, RandomFourier
from lstd_agent.features.kernels import Kernel
from lstd_agent.features.rows import is_sparse
from lstd_agent.features.standardized import Standardized
from lstd_agent.features.tables import GaussianFeatures, OneHot, is_table
from lstd_agent.features.vectors import Polynomial, RadialBasis, TileCoding
from lstd_agent.fit import Fit
from lstd_agent.system.distances import MMD
from lstd_agent.system.fit_system import System
from lstd_agent.system.references import ReferenceStates
from lstd_agent.trials.counting import TransitionCounts
from lstd_agent.trials.encoding import CountedEncoding
from lstd_agent.trials.kept_trials import KeptTrials
from lstd_agent.trials.moment_sums import MomentSums
from lstd_agent.trials.recording import Sums

if TYPE_CHECKING:
    from lstd_agent.agent import SeminormLSTDAgent

FORMAT_VERSION = 2

_BUILDERS = {
    c.__name__: c
    for c in (
        OneHot,
        GaussianFeatures,
        RadialBasis,
        Polynomial,
        TileCoding,
        FourierBasis,
        RandomFourier,
    )
}

_SPACES = (
    spaces.Dict,
    spaces.Tuple,
    spaces.Discrete,
    spaces.MultiDiscrete,
    spaces.MultiBinary,
    spaces.Box,
)

_CSR_PARTS = "data", "indices", "indptr"

Arrays = dict[str, NDArray[Any]]

# What the agent was made with, besides features, distance and anchors.
_OPTIONS = (
    "n_anchors",
    "search",
    "reference",
    "tail",
    "gain",
    "on_termination",
    "rcond",
    "n_stored_trials",
    "n_batches",
    "observations",
    "max_bytes",
)


def save_agent(agent: SeminormLSTDAgent, path: str | os.PathLike[str]) -> None:
    """Write an agent to a file; see `SeminormLSTDAgent.save`."""
    arrays: Arrays = {}
    batches, encoding = agent._batches, agent._encoding
    table: Any = None
    if isinstance(encoding, CountedEncoding):
        table = encoding.table_rows[: encoding.n]
    elif is_table(agent.features):
        table = agent.features
    stored = None if batches.are_kept else batches.trials
    policy = agent._policy
    facts = {
        "options": {name: getattr(agent, name) for name in _OPTIONS},
        "anchors": None if agent.anchors is None else np.asarray(agent.anchors).tolist(),
        "features": pack_features(agent.features, table, arrays),
        "distance": pack_distance(agent.distance),
        "space": None if encoding is None else pack_space(encoding.space),
        "batches": [pack_sums(s, f"batch{i}", arrays) for i, s in enumerate(batches.sums)],
        "system": None if agent._fitted is None else pack_system(agent.system_, arrays),
    }
    if stored is not None:
        arrays["trials"] = stored
    if policy is not None and not callable(policy):
        arrays["policy"] = np.asarray(policy)
    write(path, facts, arrays)


def load_agent(
    cls: type[SeminormLSTDAgent], path: str | os.PathLike[str], features: Any, distance: Any
) -> SeminormLSTDAgent:
    """Read an agent from a file; see `SeminormLSTDAgent.load`."""
    facts, arrays = read(path)
    given = {"features": features, "distance": distance}
    held = {
        "features": unpack_features(facts["features"], arrays, features),
        "distance": unpack_distance(facts["distance"]),
    }
    for name, value in held.items():
        if value is None and given[name] is None:
            raise InvalidInputError(
                f"the agent in {path} has a function for its {name}, which a file does not hold: "
                f"pass it as load(path, {name}=...)"
            )
        if value is not None and given[name] is not None and value is not given[name]:
            if (
                name == "features"
                and isinstance(value, Standardized)
                and value.features is features
            ):
                continue
            raise InvalidInputError(f"{path} holds the agent's {name}: load it without {name}=")
    agent = cls(
        given["features"] if held["features"] is None else held["features"],
        anchors=facts["anchors"],
        distance=held["distance"] or distance,
        **facts["options"],
    )
    if facts["space"] is not None:
        agent._encoding = agent._encoding_of(unpack_space(facts["space"]))
    for i, batch in enumerate(facts["batches"]):
        sums = unpack_sums(batch, f"batch{i}", arrays)
        if agent._batches.sums:
            agent._batches.check_t_max(sums.t_max)
            agent._batches.sums[0].check_adds(sums)
        agent._batches.sums.append(sums)
    if "trials" in arrays:
        agent._batches.keep(arrays["trials"])
    agent._policy = arrays.get("policy")
    if facts["system"] is not None:
        system = unpack_system(facts["system"], arrays)
        agent._fitted = Fit(system, list(agent._batches.sums), agent.statistics)
    return agent


def write(path: str | os.PathLike[str], facts: dict[str, Any], arrays: Arrays) -> None:
    """Write facts (JSON-able) and arrays to a file, all or nothing."""
    # Through a symbolic link, as open() would write.
    target = Path(os.path.realpath(path))
    text = json.dumps({"format_version": FORMAT_VERSION, **facts})
    part = target.with_name(f"{target.name}.{uuid.uuid4().hex}.part")
    try:
        # Made anew by open(), so that it has the permissions that the user's umask says.
        with open(part, "xb") as file:
            np.savez_compressed(file, facts=np.array(text), **arrays)  # type: ignore[arg-type]
        if target.exists():
            os.chmod(part, target.stat().st_mode & 0o7777)
        os.replace(part, target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Arrays]:
    """Return the facts and arrays of a file.

    Raises
    ------
    InvalidInputError
        If it is not an agent's, or of another format.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays: Arrays = dict(file)
        facts = json.loads(str(arrays.pop("facts")))
        version = facts["format_version"]
    except (zipfile.BadZipFile, zlib.error, ValueError, KeyError, TypeError, EOFError) as error:
        raise InvalidInputError(f"{path} is not a saved agent: {error}") from error
    if version != FORMAT_VERSION:
        remedy = "install a newer one"
        if isinstance(version, int) and version < FORMAT_VERSION:
            remedy = "load it with the version that wrote it, or collect again"
        raise InvalidInputError(
            f"{path} has format {version}, and this version of lstd_agent reads format "
            f"{FORMAT_VERSION}: {remedy}"
        )
    return facts, arrays


def pack_features(features: Any, table: Any, arrays: Arrays) -> Any:
    """Return what to write of features; a table stands for a function of countable states."""
    if type(features) in _BUILDERS.values():
        arguments = {
            field.name: np.asarray(getattr(features, field.name)).tolist()
            for field in dataclasses.fields(features)
        }
        return {"type": type(features).__name__, "arguments": arguments}
    if is_sparse(table):
        csr = sparse.csr_array(table)
        arrays.update({f"features.{part}": getattr(csr, part) for part in _CSR_PARTS})
        return {"type": "csr", "shape": list(csr.shape)}
    if table is not None:
        arrays["features"] = np.asarray(table)
        return {"type": "array"}
    if isinstance(features, Standardized):
        measured = features.is_measured
        return {
            "type": "Standardized",
            "features": pack_features(features.features, None, arrays),
            "mean": np.asarray(features.mean).tolist() if measured else None,
            "deviation": np.asarray(features.deviation).tolist() if measured else None,
        }
    return {"type": "function"}


def unpack_features(facts: Any, arrays: Arrays, given: Any = None) -> Any:
    """Return the features, or None for a function, which no file can hold, unless it is given."""
    kind = facts["type"]
    if kind == "array":
        return arrays["features"]
    if kind == "csr":
        return _read_csr("features", arrays, tuple(facts["shape"]))
    if kind == "Standardized":
        inner = unpack_features(facts["features"], arrays)
        if inner is None:
            inner = given
        return None if inner is None else Standardized(inner, facts["mean"], facts["deviation"])
    builder = _BUILDERS.get(kind)
    return None if builder is None else builder(**facts["arguments"])


def _read_csr(name: str, arrays: Arrays, shape: tuple[int, int]) -> sparse.csr_array:
    """Return a CSR matrix from a file; indices out of range would be read all the same."""
    data, indices, indptr = (arrays[f"{name}.{part}"] for part in _CSR_PARTS)
    try:
        matrix = sparse.csr_array((data, indices, indptr), shape=shape)
        matrix.check_format(full_check=True)
    except ValueError as error:
        raise InvalidInputError(f"the file's {name} is damaged: {error}") from error
    return matrix


def pack_distance(distance: Any) -> Any:
    """Return what to write of a distance."""
    if isinstance(distance, MMD):
        return dataclasses.asdict(distance)
    return distance if isinstance(distance, str) else None


def unpack_distance(facts: Any) -> Any:
    """Return the distance, or None for a function, which no file can hold."""
    if isinstance(facts, dict):
        return MMD(facts["estimator"], Kernel(**facts["kernel"]))
    return facts


def pack_space(space: Space[Any]) -> Any:
    """Return what to write of an observation space; of a subclass, the space that it is."""
    kind = next(c.__name__ for c in _SPACES if isinstance(space, c))
    if isinstance(space, spaces.Dict):
        return [kind, [[key, pack_space(part)] for key, part in space.spaces.items()]]
    if isinstance(space, spaces.Tuple):
        return [kind, [pack_space(part) for part in space.spaces]]
    if isinstance(space, spaces.Discrete):
        return [kind, int(space.n), int(space.start)]
    if isinstance(space, spaces.MultiDiscrete):
        return [kind, space.nvec.tolist(), space.start.tolist()]
    if isinstance(space, spaces.MultiBinary):
        return [kind, np.asarray(space.n).tolist()]
    assert isinstance(space, spaces.Box)
    return [kind, space.low.tolist(), space.high.tolist(), space.dtype.name]


def unpack_space(facts: Any) -> Space[Any]:
    """Return the observation space."""
    kind, *arguments = facts
    if kind == "Dict":
        return spaces.Dict([(key, unpack_space(part)) for key, part in arguments[0]])
    if kind == "Tuple":
        return spaces.Tuple([unpack_space(part) for part in arguments[0]])
    if kind == "Discrete":
        return spaces.Discrete(arguments[0], start=arguments[1])
    if kind == "MultiDiscrete":
        return spaces.MultiDiscrete(arguments[0], start=arguments[1])
    if kind == "MultiBinary":
        return spaces.MultiBinary(arguments[0])
    low, high, dtype = arguments
    return spaces.Box(np.array(low, dtype=dtype), np.array(high, dtype=dtype), dtype=dtype)


def pack_sums(sums: Sums, name: str, arrays: Arrays) -> Any:
    """Put a batch's sums among the arrays and return what else to write of them."""
    facts: dict[str, Any] = {"n_trials": sums.n_trials, "kind": type(sums).__name__}
    if not isinstance(sums, TransitionCounts):
        arrays.update({f"{name}.{k}": v for k, v in vars(sums).items() if k != "n_trials"})
        return facts
    facts["n_states"] = sums.n_states
    for matrix in ("transition_counts", "reward_sums"):
        for part in _CSR_PARTS:
            arrays[f"{name}.{matrix}.{part}"] = getattr(getattr(sums, matrix), part)
    return facts


def unpack_sums(facts: Any, name: str, arrays: Arrays) -> Sums:
    """Return a batch's sums, checked."""
    prefix = f"{name}."
    parts = {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
    try:
        if facts["kind"] == "KeptTrials":
            return KeptTrials.of(parts["observations"], parts["rewards"])
        if facts["kind"] == "MomentSums":
            return MomentSums.of(MomentSums(n_trials=facts["n_trials"], **parts))
        S = facts["n_states"]
        T = len(parts["transition_counts.indptr"]) - 1
        N, R = (
            _read_csr(f"{name}.{matrix}", arrays, (T, n_columns))
            for matrix, n_columns in (("transition_counts", S * S), ("reward_sums", S))
        )
        return TransitionCounts.of(TransitionCounts(S, facts["n_trials"], N, R))
    except (KeyError, TypeError) as error:
        raise InvalidInputError(f"the file's {name} is damaged: {error!r}") from error


def pack_system(system: System, arrays: Arrays) -> Any:
    """Put a fitted system among the arrays and return what else to write of it."""
    facts: dict[str, Any] = {"main": system.references.main}
    arrays["system.references"] = system.references.state
    for name, value in vars(system).items():
        if isinstance(value, np.ndarray):
            arrays[f"system.{name}"] = value
        elif name != "references":
            facts[name] = value
    return facts


def unpack_system(facts: Any, arrays: Arrays) -> System:
    """Return the fitted system."""
    parts: dict[str, Any] = {
        k.removeprefix("system."): v for k, v in arrays.items() if k.startswith("system.")
    }
    others = dict(facts)
    references = ReferenceStates(parts.pop("references"), others.pop("main"))
    return System(references=references, **parts, **others)
