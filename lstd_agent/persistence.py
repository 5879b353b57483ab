"""Agents in files: one ``.npz`` of plain arrays, with a JSON text for everything else.

Nothing is pickled, so that loading a file runs no code from it. The JSON carries a format
number; files of another format are refused. What is read is checked before it is used. A file
is written beside its target and then renamed, so that an interrupt leaves the old one intact.
"""

from __future__ import annotations

import json
import os
import uuid
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lstd_agent.errors import InvalidInputError
from lstd_agent.features.standardized import Standardized
from lstd_agent.features.tables import is_table
from lstd_agent.fit import Fit
from lstd_agent.packing import (
    Arrays,
    pack_backup,
    pack_distance,
    pack_features,
    pack_space,
    pack_sums,
    unpack_backup,
    unpack_distance,
    unpack_features,
    unpack_space,
    unpack_sums,
)
from lstd_agent.system.fit_system import System
from lstd_agent.system.references import ReferenceStates
from lstd_agent.trials.encoding import CountedEncoding

if TYPE_CHECKING:
    from lstd_agent.agent import SeminormLSTDAgent

FORMAT_VERSION = 2

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
        "backup": pack_backup(agent.backup),
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
        backup=unpack_backup(facts.get("backup", "one_step")),
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
        encoding = agent._encoding
        assert encoding is not None
        batches = list(agent._batches.sums)
        agent._fitted = Fit(system, agent.statistics, batches, encoding, agent._fit_options())
    return agent


def write(path: str | os.PathLike[str], facts: dict[str, Any], arrays: Arrays) -> None:
    """Write facts (JSON-able) and arrays to a file, all or nothing."""
    # Through a symbolic link, as a file that is opened by name is written.
    target = Path(os.path.realpath(path))
    text = json.dumps({"format_version": FORMAT_VERSION, **facts})
    part = target.with_name(f"{target.name}.{uuid.uuid4().hex}.part")
    try:
        # Made anew, not by tempfile, so that it has the permissions that the user's umask says.
        with open(part, "xb") as file:
            np.savez_compressed(file, facts=np.array(text), **arrays)  # type: ignore[arg-type]
        if target.exists():
            os.chmod(part, target.stat().st_mode & 0o7777)
        os.replace(part, target)
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        part.unlink(missing_ok=True)


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
