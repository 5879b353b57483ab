"""Agents in files: one ``.npz`` of plain arrays, with a JSON text for everything else.

Nothing is pickled, so that loading a file runs no code from it. The JSON carries a format
number; files of another format are refused. What is read is checked before it is used. A file
is written beside its target and then renamed, so that an interrupt leaves the old one intact.
"""

from __future__ import annotations

import dataclasses
import json
import os
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lstd_agent.drafts import write_draft
from lstd_agent.errors import InvalidInputError
from lstd_agent.features.standardized import Standardized
from lstd_agent.features.tables import is_table
from lstd_agent.fit import Fit
from lstd_agent.packing import (
    Arrays,
    pack_backup,
    pack_choice,
    pack_distance,
    pack_features,
    pack_space,
    pack_sums,
    pack_system,
    pack_taken,
    unpack_backup,
    unpack_choice,
    unpack_distance,
    unpack_features,
    unpack_space,
    unpack_sums,
    unpack_system,
    unpack_taken,
)
from lstd_agent.system.approximators import System
from lstd_agent.system.selection import Choice
from lstd_agent.trials.batches import Sums
from lstd_agent.trials.kept import KeptTrials
from lstd_agent.trials.samples import TrialSample
from lstd_agent.trials.store import TrialStore

FORMAT_VERSION = 3

# Options that take more than their value in JSON.
_PACKED = ("features", "distance", "backup", "anchors")


def save(
    path: str | os.PathLike[str],
    options: dict[str, Any],
    collector: TrialStore,
    fit: Fit | None,
) -> None:
    """Write an agent to a file; see `SeminormLSTDAgent.save`."""
    arrays: Arrays = {}
    batches, encoding, policy = collector.batches, collector.encoding, collector.policy
    table: Any = collector.features if is_table(collector.features) else None
    if encoding is not None and encoding.table_rows is not None:
        table = encoding.table_rows[: -1 if encoding.ends else None]
    anchors = options["anchors"]
    sums = [batches.kept] if batches.are_kept else batches.sums
    taken = [None] if batches.are_kept else batches.taken
    facts = {
        "options": {name: value for name, value in options.items() if name not in _PACKED},
        "anchors": None if anchors is None else np.asarray(anchors).tolist(),
        "features": pack_features(collector.features, table, arrays),
        "distance": pack_distance(options["distance"]),
        "backup": pack_backup(options["backup"]),
        "space": None if encoding is None else pack_space(encoding.space),
        "batches": [pack_sums(s, f"batch{i}", arrays) for i, s in enumerate(sums)],
        "system": None if fit is None else pack_system(fit.system, arrays),
        "choice": None if fit is None else pack_choice(fit.choice),
        "actions": collector.actions,
        "taken": [pack_taken(t, f"taken{i}", arrays) for i, t in enumerate(taken)],
    }
    if batches.sample is not None:
        parts = vars(batches.sample.trials).items()
        arrays.update({f"sample.{name}": part for name, part in parts if part is not None})
    if policy is not None and not callable(policy):
        arrays["policy"] = np.asarray(policy)
    write(path, facts, arrays)


@dataclass(frozen=True, eq=False)
class SavedAgent:
    """An agent in a file, whose parts are checked as they are asked for.

    Attributes
    ----------
    path : path
    facts : dict
        From the JSON.
    arrays : dict of ndarray
    """

    path: str | os.PathLike[str]
    facts: dict[str, Any]
    arrays: Arrays

    def options(self, features: Any, distance: Any) -> dict[str, Any]:
        """Return what the agent was made with, functions as they are given."""
        facts = self.facts
        if isinstance(features, Standardized) and facts["features"]["type"] == "Standardized":
            features = features.features  # mean and deviation are the file's
        held = unpack_features(facts["features"], self.arrays, features)
        # What was given may be what the file's features were standardized from.
        known = isinstance(held, Standardized) and held.features is features
        held_distance = unpack_distance(facts["distance"])
        return {
            "features": held if known else self._held_or_given("features", held, features),
            "distance": self._held_or_given("distance", held_distance, distance),
            "backup": unpack_backup(facts.get("backup", "one_step")),
            "anchors": facts["anchors"],
            **facts["options"],
        }

    def _held_or_given(self, name: str, held: Any, given: Any) -> Any:
        """Return what the file holds, or, where that is a function, what was given for it."""
        if held is None and given is None:
            raise InvalidInputError(
                f"the agent in {self.path} has a function for its {name}, which a file does not "
                f"hold: pass it as load(path, {name}=...)"
            )
        if held is not None and given is not None and held is not given:
            raise InvalidInputError(
                f"{self.path} holds the agent's {name}: load it without {name}="
            )
        return given if held is None else held

    def restore(self, collector: TrialStore) -> None:
        """Have a collector take the trials."""
        facts, arrays = self.facts, self.arrays
        batches = [
            unpack_sums(sums, f"batch{i}", arrays) for i, sums in enumerate(facts["batches"])
        ]
        # Files of before actions were recorded tell none.
        taken = facts.get("taken") or [None] * len(batches)
        collector.restore(
            None if facts["space"] is None else unpack_space(facts["space"]),
            batches,
            _read_sample(arrays, batches),
            arrays.get("policy"),
            [unpack_taken(each, f"taken{i}", arrays) for i, each in enumerate(taken)],
            None if facts.get("actions") is None else tuple(facts["actions"]),
        )

    def fitted(self) -> tuple[System, Choice] | None:
        """Return the fitted system, if there is one, and the choice of its backup."""
        facts = self.facts
        if facts["system"] is None:
            return None
        # Before backups could be chosen, files told what was asked for alone.
        asked_for = {"backup": facts.get("backup", "one_step"), "reason": "asked for", "tried": []}
        choice = unpack_choice(facts.get("choice", asked_for))
        return unpack_system(facts["system"], self.arrays), choice


def _read_sample(arrays: Arrays, batches: list[Sums]) -> TrialSample | None:
    """Return counted trials that were kept whole, or raise unless they can be those of batches."""
    parts = {k.removeprefix("sample."): v for k, v in arrays.items() if k.startswith("sample.")}
    if not parts:
        return None
    try:
        trials = KeptTrials.of(**parts)
    except TypeError as error:
        raise InvalidInputError(f"the file's sample of trials is damaged: {error}") from error
    counts, states = [batch.counts for batch in batches], trials.observations
    if (
        not counts
        or counts[0] is None
        or parts["observations"].ndim != 2
        or states.dtype.kind not in "iu"
        or trials.t_max != counts[0].t_max
        or states.min() < 0
        or states.max() >= counts[0].n_states
    ):
        raise InvalidInputError(
            f"the file's sample of trials is damaged: {states.dtype} of shape {states.shape} are "
            "not states of its trials at each timestep"
        )
    whole = dataclasses.replace(trials, observations=states[:, :, 0], actions=None)
    return TrialSample.of(whole, trials.n_trials)


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
