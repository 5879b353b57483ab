"""Features, distances, spaces and sums as JSON facts and plain arrays, and back.

What is read is checked before it is used.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray
from scipy import sparse

from lstd_agent.backups import LambdaReturn, MultiStep, WantedBackup, check_backup
from lstd_agent.errors import InvalidInputError
from lstd_agent.features.fourier import FourierBasis, RandomFourier
from lstd_agent.features.kernels import Kernel
from lstd_agent.features.rows import is_sparse
from lstd_agent.features.standardized import Standardized
from lstd_agent.features.tables import GaussianFeatures, OneHot
from lstd_agent.features.vectors import Polynomial, RadialBasis, TileCoding
from lstd_agent.system.approximators import System
from lstd_agent.system.distances import MMD
from lstd_agent.system.references import ReferenceStates
from lstd_agent.system.selection import Choice, Tried
from lstd_agent.trials.action_counts import ActionCounts
from lstd_agent.trials.batches import Sums
from lstd_agent.trials.counts import TransitionCounts
from lstd_agent.trials.kept import KeptTrials

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

_CSR_PARTS = "data", "indices", "indptr"

ACTION_PARTS = "key", "count", "reward_sums", "reward_squares"
"""Arrays of `ActionCounts`."""

Arrays = dict[str, NDArray[Any]]


def pack_features(features: Any, table: Any, arrays: Arrays) -> Any:
    """Return what to write of features; a table stands for a function of countable states."""
    if type(features) in _BUILDERS.values():
        arguments = {
            field.name: np.asarray(getattr(features, field.name)).tolist()
            for field in dataclasses.fields(features)
        }
        return {"type": type(features).__name__, "arguments": arguments}
    if is_sparse(table):
        arrays.update(_csr_parts("features", sparse.csr_array(table)))
        return {"type": "csr", "shape": list(table.shape)}
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


def _pack(value: Any, name: str, arrays: Arrays) -> dict[str, Any]:
    """Put the arrays of a dataclass among others and return what else it has."""
    facts: dict[str, Any] = {}
    for field in dataclasses.fields(value):
        part = getattr(value, field.name)
        if is_sparse(part):
            arrays.update(_csr_parts(f"{name}.{field.name}", part))
        elif isinstance(part, np.ndarray):
            arrays[f"{name}.{field.name}"] = part
        elif part is not None:
            facts[field.name] = part
    return facts


def _named(name: str, arrays: Arrays) -> Arrays:
    """Return the arrays of one of those that were packed, by the names of its fields."""
    return {k.removeprefix(f"{name}."): v for k, v in arrays.items() if k.startswith(f"{name}.")}


def _csr_parts(name: str, matrix: Any) -> Arrays:
    return {f"{name}.{part}": getattr(matrix, part) for part in _CSR_PARTS}


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


def pack_backup(backup: WantedBackup) -> Any:
    """Return what to write of a backup."""
    return backup if isinstance(backup, str) else dataclasses.asdict(backup)


def unpack_backup(facts: Any) -> WantedBackup:
    """Return the backup."""
    if isinstance(facts, dict):
        return MultiStep(**facts) if "steps" in facts else LambdaReturn(**facts)
    return check_backup(facts)


def pack_choice(choice: Choice) -> Any:
    """Return what to write of a choice of a backup."""
    tried, numbers = (
        [{**vars(each), "backup": pack_backup(each.backup)} for each in group]
        for group in (choice.tried, choice.numbers)
    )
    facts = {"backup": pack_backup(choice.backup), "reason": choice.reason}
    return {**facts, "tried": tried, "numbers": numbers}


def unpack_choice(facts: Any) -> Choice:
    """Return the choice."""
    tried, numbers = (
        tuple(Tried(**{**each, "backup": unpack_backup(each["backup"])}) for each in group)
        for group in (facts["tried"], facts.get("numbers", []))
    )
    backup = unpack_backup(facts["backup"])
    if backup == "auto":
        raise InvalidInputError("the file is damaged: 'auto' is not a backup that can be chosen")
    return Choice(backup, facts["reason"], tried, numbers)


def pack_space(space: Space[Any]) -> Any:
    """Return what to write of an observation space; of a subclass, the space that it is."""
    kind = next(each for each in _SPACES if isinstance(space, each))
    return [kind.__name__, *_SPACES[kind][0](space)]


def unpack_space(facts: Any) -> Space[Any]:
    """Return the observation space."""
    name, *arguments = facts
    return next(make for kind, (_, make) in _SPACES.items() if kind.__name__ == name)(*arguments)


# Of each kind of space what is written of one, and how it is made of that.
_SPACES: dict[type[Space[Any]], tuple[Callable[[Any], list[Any]], Callable[..., Space[Any]]]] = {
    spaces.Dict: (
        lambda space: [[[key, pack_space(part)] for key, part in space.spaces.items()]],
        lambda parts: spaces.Dict([(key, unpack_space(part)) for key, part in parts]),
    ),
    spaces.Tuple: (
        lambda space: [[pack_space(part) for part in space.spaces]],
        lambda parts: spaces.Tuple([unpack_space(part) for part in parts]),
    ),
    spaces.Discrete: (
        lambda space: [int(space.n), int(space.start)],
        lambda n, start: spaces.Discrete(n, start=start),
    ),
    spaces.MultiDiscrete: (
        lambda space: [space.nvec.tolist(), space.start.tolist()],
        lambda nvec, start: spaces.MultiDiscrete(nvec, start=start),
    ),
    spaces.MultiBinary: (lambda space: [np.asarray(space.n).tolist()], spaces.MultiBinary),
    spaces.Box: (
        lambda space: [space.low.tolist(), space.high.tolist(), space.dtype.name],
        lambda low, high, dtype: spaces.Box(
            np.array(low, dtype), np.array(high, dtype), None, dtype
        ),
    ),
}


def pack_sums(sums: Sums, name: str, arrays: Arrays) -> Any:
    """Put a batch's sums among the arrays and return what else to write of them."""
    facts = _pack(sums, name, arrays)
    return {"n_trials": sums.n_trials, "kind": type(sums).__name__, **facts}


def unpack_sums(facts: Any, name: str, arrays: Arrays) -> Sums:
    """Return a batch's sums, checked."""
    parts = _named(name, arrays)
    try:
        if facts["kind"] == "KeptTrials":
            return KeptTrials.of(**parts)
        S = facts["n_states"]
        T = len(parts["transition_counts.indptr"]) - 1
        N, R = (
            _read_csr(f"{name}.{matrix}", arrays, (T, n_columns))
            for matrix, n_columns in (("transition_counts", S * S), ("reward_sums", S))
        )
        n_at = parts.get("n_at")
        return TransitionCounts.of(TransitionCounts(S, facts["n_trials"], N, R, n_at))
    except (KeyError, TypeError) as error:
        raise InvalidInputError(f"the file's {name} is damaged: {error!r}") from error


def pack_taken(taken: ActionCounts | None, name: str, arrays: Arrays) -> Any:
    """Put counts of actions among the arrays and return what else to write of them."""
    if taken is None:
        return None
    return list(_pack(taken, name, arrays).values())


def unpack_taken(facts: Any, name: str, arrays: Arrays) -> ActionCounts | None:
    """Return counts of actions, checked."""
    if facts is None:
        return None
    try:
        return ActionCounts(*facts, *(arrays[f"{name}.{p}"] for p in ACTION_PARTS)).checked()
    except (KeyError, TypeError) as error:
        raise InvalidInputError(f"the file's counts of actions are damaged: {error!r}") from error


def pack_system(system: System, arrays: Arrays) -> Any:
    """Put a fitted system among the arrays and return what else to write of it."""
    facts = _pack(system, "system", arrays)
    references = facts.pop("references")
    arrays["system.references"] = references.state
    return {"main": references.main, **facts}


def unpack_system(facts: Any, arrays: Arrays) -> System:
    """Return the fitted system."""
    parts: dict[str, Any] = _named("system", arrays)
    others = dict(facts)
    references = ReferenceStates(parts.pop("references"), others.pop("main"))
    return System(references=references, **parts, **others)
