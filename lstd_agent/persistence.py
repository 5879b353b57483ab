"""Agents in files: one ``.npz`` of plain arrays, with a JSON text for everything else.

Nothing is pickled, so that loading a file runs no code from it. The JSON carries a format
number; files of another format are refused. What is read is checked before it is used. A file
is written beside its target and then renamed, so that an interrupt leaves the old one intact.
"""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Space

from lstd_agent.drafts import write_draft
from lstd_agent.errors import InvalidInputError
from lstd_agent.features.standardized import Standardized
from lstd_agent.features.tables import is_table
from lstd_agent.packing import (
    Arrays,
    pack_backup,
    pack_choice,
    pack_distance,
    pack_features,
    pack_space,
    pack_sums,
    pack_taken,
    unpack_backup,
    unpack_choice,
    unpack_distance,
    unpack_features,
    unpack_space,
    unpack_sums,
    unpack_taken,
)
from lstd_agent.system.fit_system import System
from lstd_agent.system.references import ReferenceStates
from lstd_agent.system.selection import Choice
from lstd_agent.trials.action_counts import ActionCounts
from lstd_agent.trials.collector import TrialCollector
from lstd_agent.trials.counting import TransitionCounts
from lstd_agent.trials.encoding import CountedEncoding, States
from lstd_agent.trials.policies import Policy
from lstd_agent.trials.recorders import Sums

FORMAT_VERSION = 2

# Options that take more than their value in JSON.
_PACKED = ("features", "distance", "backup", "anchors")


@dataclass(frozen=True, eq=False)
class SavedAgent:
    """What a file holds of an agent.

    Attributes
    ----------
    options : dict
        What the agent was made with.
    space : Space or None
        Of its observations, if it was known.
    batches : list of sums
        Of its trials.
    trials : ndarray or None
        Those that were kept whole beside their sums.
    policy : ndarray or None
        Whose trials they are, if it was a table.
    system : System or None
        What was fitted to them.
    choice : Choice or None
        Of the backup that it was fitted by.
    taken : list of ActionCounts or None
        What actions led to, batch by batch.
    actions : (int, int) or None
        How many there are, and the first of them.
    """

    options: dict[str, Any]
    space: Space[Any] | None
    batches: list[Sums]
    trials: States | None
    policy: Policy | None
    system: System | None
    choice: Choice | None
    taken: list[ActionCounts | None]
    actions: tuple[int, int] | None


def save(
    path: str | os.PathLike[str],
    options: dict[str, Any],
    collector: TrialCollector,
    system: System | None,
    choice: Choice | None,
) -> None:
    """Write an agent to a file; see `SeminormLSTDAgent.save`."""
    arrays: Arrays = {}
    batches, encoding, policy = collector.batches, collector.encoding, collector.policy
    table: Any = None
    if isinstance(encoding, CountedEncoding):
        table = encoding.table_rows[: encoding.n]
    elif is_table(collector.features):
        table = collector.features
    stored = None if batches.are_kept else batches.trials
    anchors = options["anchors"]
    facts = {
        "options": {name: value for name, value in options.items() if name not in _PACKED},
        "anchors": None if anchors is None else np.asarray(anchors).tolist(),
        "features": pack_features(collector.features, table, arrays),
        "distance": pack_distance(options["distance"]),
        "backup": pack_backup(options["backup"]),
        "space": None if encoding is None else pack_space(encoding.space),
        "batches": [pack_sums(s, f"batch{i}", arrays) for i, s in enumerate(batches.sums)],
        "system": None if system is None else pack_system(system, arrays),
        "choice": None if choice is None else pack_choice(choice),
        "actions": collector.actions,
        "taken": [pack_taken(t, f"taken{i}", arrays) for i, t in enumerate(batches.taken)],
    }
    if stored is not None:
        arrays["trials"] = stored
    if policy is not None and not callable(policy):
        arrays["policy"] = np.asarray(policy)
    write(path, facts, arrays)


def load(path: str | os.PathLike[str], features: Any, distance: Any) -> SavedAgent:
    """Read an agent from a file; see `SeminormLSTDAgent.load`."""
    facts, arrays = read(path)
    held = unpack_features(facts["features"], arrays, features)
    # What was given may be what the file's features were standardized from.
    known = isinstance(held, Standardized) and held.features is features
    options = {
        "features": held if known else _held_or_given(path, "features", held, features),
        "distance": _held_or_given(path, "distance", unpack_distance(facts["distance"]), distance),
        "backup": unpack_backup(facts.get("backup", "one_step")),
        "anchors": facts["anchors"],
    }
    # Before backups could be chosen, files told what was asked for alone.
    asked_for = {"backup": facts.get("backup", "one_step"), "reason": "asked for", "tried": []}
    choice = facts.get("choice", asked_for)
    batches = [unpack_sums(batch, f"batch{i}", arrays) for i, batch in enumerate(facts["batches"])]
    # Files of before actions were recorded tell none.
    taken = facts.get("taken") or [None] * len(batches)
    return SavedAgent(
        options={**options, **facts["options"]},
        space=None if facts["space"] is None else unpack_space(facts["space"]),
        batches=batches,
        trials=_checked_trials(arrays.get("trials"), batches),
        policy=arrays.get("policy"),
        taken=[unpack_taken(t, f"taken{i}", arrays) for i, t in enumerate(taken)],
        actions=None if facts.get("actions") is None else tuple(facts["actions"]),
        system=None if facts["system"] is None else unpack_system(facts["system"], arrays),
        choice=None if facts["system"] is None else unpack_choice(choice),
    )


def _checked_trials(trials: States | None, batches: list[Sums]) -> States | None:
    """Return stored trials, or raise unless they can be those of the batches."""
    if trials is None:
        return None
    counts = [batch for batch in batches if isinstance(batch, TransitionCounts)]
    right = bool(batches) and trials.shape[1:2] == (batches[0].t_max + 1,)
    if counts:
        right &= trials.ndim == 2 and trials.dtype.kind in "iu"
        lowest = 0 if all(batch.n_at is None for batch in counts) else -1  # where cut short
        right = right and bool((trials >= lowest).all() and (trials < counts[0].n_states).all())
    else:
        right &= trials.ndim == 3 and trials.dtype.kind in "fiub"
    if not right:
        raise InvalidInputError(
            f"the file's trials are damaged: {trials.dtype} of shape {trials.shape} are not states "
            "of its trials at each timestep"
        )
    return trials


def _held_or_given(path: str | os.PathLike[str], name: str, held: Any, given: Any) -> Any:
    """Return what a file holds, or, where that is a function, what was given in its place."""
    if held is None and given is None:
        raise InvalidInputError(
            f"the agent in {path} has a function for its {name}, which a file does not hold: "
            f"pass it as load(path, {name}=...)"
        )
    if held is not None and given is not None and held is not given:
        raise InvalidInputError(f"{path} holds the agent's {name}: load it without {name}=")
    return given if held is None else held


def write(path: str | os.PathLike[str], facts: dict[str, Any], arrays: Arrays) -> None:
    """Write facts (JSON-able) and arrays to a file, all or nothing."""
    # Through a symbolic link, as a file that is opened by name is written.
    target = Path(os.path.realpath(path))
    text = json.dumps({"format_version": FORMAT_VERSION, **facts})
    try:
        draft = write_draft(
            target,
            lambda file: np.savez_compressed(file, facts=np.array(text), **arrays),  # type: ignore[arg-type]
        )
        try:
            os.replace(draft, target)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        error.filename = str(path)
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
