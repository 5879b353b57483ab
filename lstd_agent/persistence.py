"""Agents in files: one ``.npz`` of plain arrays, with a JSON text for everything else.

Nothing is pickled, so that loading a file runs no code from it. The JSON carries a format
number; files of a newer format are refused. A file is written beside its target and then
renamed, so that an interrupt leaves the old one intact.
"""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray
from scipy import sparse

from lstd_agent.errors import InvalidInputError
from lstd_agent.features.kernels import Kernel
from lstd_agent.features.tables import GaussianFeatures, OneHot, is_table
from lstd_agent.features.vectors import Polynomial, RadialBasis, TileCoding
from lstd_agent.fit import Fit
from lstd_agent.statistics.backups import Backup, LambdaReturn, MultiStep, check_backup
from lstd_agent.system.distances import MMD
from lstd_agent.system.fit_system import System
from lstd_agent.system.references import ReferenceStates
from lstd_agent.trials.counting import TransitionCounts
from lstd_agent.trials.encoding import DiscreteDomain
from lstd_agent.trials.moment_sums import MomentSums

if TYPE_CHECKING:
    from lstd_agent.agent import SeminormLSTDAgent

FORMAT_VERSION = 1

_BUILDERS = {c.__name__: c for c in (OneHot, GaussianFeatures, RadialBasis, Polynomial, TileCoding)}

Arrays = dict[str, NDArray[Any]]

# What the agent was made with, besides features, distance, backup and anchors.
_OPTIONS = (
    "n_anchors",
    "search",
    "calibration",
    "reference",
    "tail",
    "gain",
    "on_termination",
    "rcond",
    "n_stored_trials",
    "n_batches",
)


def save_agent(agent: SeminormLSTDAgent, path: str | os.PathLike[str]) -> None:
    """Write an agent to a file; see `SeminormLSTDAgent.save`."""
    arrays: Arrays = {}
    batches, domain = agent._batches, agent._domain
    if isinstance(domain, DiscreteDomain):
        table: NDArray[Any] | None = domain.table[: domain.n]
    else:
        table = np.asarray(agent.features) if is_table(agent.features) else None
    facts = {
        "options": {name: getattr(agent, name) for name in _OPTIONS},
        "anchors": None if agent.anchors is None else np.asarray(agent.anchors).tolist(),
        "features": pack_features(agent.features, table, arrays),
        "distance": pack_distance(agent.distance),
        "backup": pack_backup(agent.backup),
        "space": None if domain is None else pack_space(domain.space),
        "batches": [pack_sums(s, f"batch{i}", arrays) for i, s in enumerate(batches.sums)],
        "system": None if agent._fitted is None else pack_system(agent.system_, arrays),
    }
    if batches.trials is not None:
        arrays["trials"] = batches.trials
    write(path, facts, arrays)


def load_agent(
    cls: type[SeminormLSTDAgent], path: str | os.PathLike[str], features: Any, distance: Any
) -> SeminormLSTDAgent:
    """Read an agent from a file; see `SeminormLSTDAgent.load`."""
    facts, arrays = read(path)
    given = {"features": features, "distance": distance}
    held = {
        "features": unpack_features(facts["features"], arrays),
        "distance": unpack_distance(facts["distance"]),
    }
    for name, value in held.items():
        if value is None and given[name] is None:
            raise InvalidInputError(
                f"the agent in {path} has a function for its {name}, which a file does not hold: "
                f"pass it as load(path, {name}=...)"
            )
        if value is not None and given[name] is not None:
            raise InvalidInputError(f"{path} holds the agent's {name}: load it without {name}=")
    agent = cls(
        given["features"] if held["features"] is None else held["features"],
        anchors=facts["anchors"],
        distance=held["distance"] or distance,
        backup=unpack_backup(facts.get("backup", "one_step")),
        **facts["options"],
    )
    if facts["space"] is not None:
        agent._make_domain(unpack_space(facts["space"]))
    for i, batch in enumerate(facts["batches"]):
        agent._batches.sums.append(unpack_sums(batch, f"batch{i}", arrays))
    if "trials" in arrays:
        agent._batches.keep(arrays["trials"])
    if facts["system"] is not None:
        system = unpack_system(facts["system"], arrays)
        domain = agent._domain
        assert domain is not None
        batches = list(agent._batches.sums)
        agent._fitted = Fit(system, agent.statistics, batches, domain, agent._fit_options())
    return agent


def write(path: str | os.PathLike[str], facts: dict[str, Any], arrays: Arrays) -> None:
    """Write facts (JSON-able) and arrays to a file, all or nothing."""
    target = Path(path)
    text = json.dumps({"format_version": FORMAT_VERSION, **facts})
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=target.name, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez_compressed(file, facts=np.array(text), **arrays)  # type: ignore[arg-type]
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Arrays]:
    """Return the facts and arrays of a file.

    Raises
    ------
    InvalidInputError
        If it is not an agent's, or of a newer format.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays: Arrays = dict(file)
        facts = json.loads(str(arrays.pop("facts")))
        version = facts["format_version"]
    except (zipfile.BadZipFile, zlib.error, ValueError, KeyError, TypeError, EOFError) as error:
        raise InvalidInputError(f"{path} is not a saved agent: {error}") from error
    if version > FORMAT_VERSION:
        raise InvalidInputError(
            f"{path} has format {version}, and this version of lstd_agent reads formats up to "
            f"{FORMAT_VERSION}: install a newer one"
        )
    return facts, arrays


def pack_features(features: Any, table: NDArray[Any] | None, arrays: Arrays) -> Any:
    """Return what to write of features; a table stands for a function of Discrete states."""
    if type(features) in _BUILDERS.values():
        arguments = {
            field.name: np.asarray(getattr(features, field.name)).tolist()
            for field in dataclasses.fields(features)
        }
        return {"type": type(features).__name__, "arguments": arguments}
    if table is not None:
        arrays["features"] = table
        return {"type": "array"}
    return {"type": "function"}


def unpack_features(facts: Any, arrays: Arrays) -> Any:
    """Return the features, or None for a function, which no file can hold."""
    if facts["type"] == "array":
        return arrays["features"]
    builder = _BUILDERS.get(facts["type"])
    return None if builder is None else builder(**facts["arguments"])


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


def pack_backup(backup: Backup) -> Any:
    """Return what to write of a backup."""
    return backup if isinstance(backup, str) else dataclasses.asdict(backup)


def unpack_backup(facts: Any) -> Backup:
    """Return the backup."""
    if isinstance(facts, dict):
        return MultiStep(**facts) if "steps" in facts else LambdaReturn(**facts)
    return check_backup(facts)


def pack_space(space: Space[Any]) -> Any:
    """Return what to write of an observation space."""
    kind = type(space).__name__
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


def pack_sums(sums: TransitionCounts | MomentSums, name: str, arrays: Arrays) -> Any:
    """Put a batch's sums among the arrays and return what else to write of them."""
    facts: dict[str, Any] = {"n_trials": sums.n_trials}
    if isinstance(sums, MomentSums):
        parts: dict[str, Any] = vars(sums)
    else:
        facts["n_states"] = sums.n_states
        parts = {
            f"{matrix}.{part}": getattr(getattr(sums, matrix), part)
            for matrix in ("transition_counts", "reward_sums")
            for part in ("data", "indices", "indptr")
        }
    arrays.update({f"{name}.{k}": v for k, v in parts.items() if k != "n_trials"})
    return facts


def unpack_sums(facts: Any, name: str, arrays: Arrays) -> TransitionCounts | MomentSums:
    """Return a batch's sums."""
    prefix = f"{name}."
    parts = {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
    if "n_states" not in facts:
        return MomentSums(n_trials=facts["n_trials"], **parts)
    S = facts["n_states"]
    matrices = []
    for matrix, n_columns in (("transition_counts", S * S), ("reward_sums", S)):
        data, indices, indptr = (parts[f"{matrix}.{p}"] for p in ("data", "indices", "indptr"))
        shape = (len(indptr) - 1, n_columns)
        matrices.append(sparse.csr_array((data, indices, indptr), shape=shape))
    return TransitionCounts(S, facts["n_trials"], *matrices)


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
