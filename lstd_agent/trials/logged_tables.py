"""Logged trials from a table with one row a timestep, whatever library holds its columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstd_agent.arrays import IntArray
from lstd_agent.errors import InvalidInputError


def trials_of_table(
    frame: Any, single: Mapping[str, str | None], joint: Mapping[str, Any], drop_last: bool
) -> dict[str, Any]:
    """Cut a table into trials, as `LoggedTrials.of` takes them.

    Parameters
    ----------
    frame, drop_last
        See `LoggedTrials.from_frame`.
    single : mapping
        Names of the columns ``trial``, ``timestep``, ``reward``, ``terminated``, ``duration`` and
        ``time``, or None.
    joint : mapping
        One name or several of ``observation``, ``action`` and ``next_observation``, or None.
    """
    columns = {name: _column(frame, column, name) for name, column in single.items() if column}
    columns |= {name: _joined(frame, names, name) for name, names in joint.items() if names}
    reward = columns["reward"]
    if not len(reward):
        raise InvalidInputError("the table has no rows")
    if reward.dtype.kind not in "fiub":
        raise InvalidInputError(
            f"rewards are numbers; got {reward[:3]!r}: convert what a reader left as text"
        )
    labels, first, number = np.unique(columns["trial"], return_index=True, return_inverse=True)
    rank = np.empty(len(labels), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(labels))  # trials keep the order in which they begin
    timestep = columns.get("timestep", np.arange(len(reward)))
    order = np.lexsort((timestep, rank[number.ravel()]))
    columns = {name: column[order] for name, column in columns.items()}
    bounds = np.append(0, np.cumsum(np.bincount(rank[number.ravel()])))
    if "timestep" in columns:
        _check_timesteps(columns, bounds)
    ends = columns.get("terminated", np.zeros(len(reward), dtype=bool)).astype(bool)
    trials: dict[str, Any] = {"observations": [], "rewards": [], "actions": [], "durations": []}
    terminated = []
    for a, b in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        if ends[a : b - 1].any():
            t = int(np.argmax(ends[a:b]))
            raise InvalidInputError(
                f"trial {columns['trial'][a]!r} terminates in its row {t} and goes on: give what "
                "follows an end another trial number"
            )
        n = _n_transitions(columns, a, b, bool(ends[b - 1]), drop_last)
        trials["observations"].append(_observations(columns, a, b, n))
        trials["rewards"].append(columns["reward"][a : a + n])
        if "action" in columns:
            trials["actions"].append(columns["action"][a : a + n])
        if "duration" in columns or "time" in columns:
            trials["durations"].append(_durations(columns, a, b, n))
        terminated.append(ends[b - 1] and n == b - a)
    trials["actions"], trials["durations"] = trials["actions"] or None, trials["durations"] or None
    return {**trials, "terminated": np.array(terminated, dtype=bool)}


def _column(frame: Any, name: str, role: str) -> NDArray[Any]:
    """Return a column as an array, or raise with the names that there are."""
    if hasattr(frame, "columns") or isinstance(frame, Mapping):
        names = list(getattr(frame, "columns", frame))
    elif isinstance(frame, np.ndarray) and frame.dtype.names:
        names = list(frame.dtype.names)
    else:
        raise InvalidInputError(
            "a table is a DataFrame, a structured array or a dictionary of columns; got "
            f"{type(frame).__name__}"
        )
    if name not in names:
        raise InvalidInputError(f"{role}={name!r} is no column; there are {names}")
    return np.asarray(frame[name])


def _joined(frame: Any, names: Any, role: str) -> NDArray[Any]:
    """Return one column (n,), or several side by side (n, k)."""
    if isinstance(names, str):
        return _column(frame, names, role)
    return np.stack([_column(frame, name, role) for name in names], axis=1)


def _check_timesteps(columns: Mapping[str, NDArray[Any]], bounds: IntArray) -> None:
    """Raise unless each trial has consecutive timesteps from the same one on."""
    timestep, begin = columns["timestep"], bounds[:-1]
    if timestep.dtype.kind not in "iuf":
        raise InvalidInputError(f"timesteps are integers; got {timestep[:3]!r}")
    expected = np.arange(len(timestep)) - np.repeat(begin, np.diff(bounds)) + timestep.min()
    wrong = np.flatnonzero(timestep != expected)
    if wrong.size:
        i = wrong[0]
        raise InvalidInputError(
            f"trial {columns['trial'][i]!r} has timestep {timestep[i]!r} where {expected[i]} "
            "comes next: trials begin at the same timestep and leave none out"
        )


def _n_transitions(
    columns: Mapping[str, NDArray[Any]], a: int, b: int, ended: bool, drop_last: bool
) -> int:
    """Return how many transitions the rows a to b of a trial show."""
    if "next_observation" in columns or ended:
        return b - a
    reward = columns["reward"][a:b].astype(np.float64)
    label = np.asarray(columns["trial"][a]).item()
    if b - a == 1:
        raise InvalidInputError(f"trial {label!r} has a single row, which shows no transition")
    if np.isnan(reward[-1]) or drop_last:
        return b - a - 1
    if np.isnan(reward[0]):
        raise InvalidInputError(
            f"the first reward of trial {label!r} is missing and the last is not: rewards are "
            "those on entering a row's observation, and are to be those on leaving it. Shift them "
            "by one within each trial"
        )
    raise InvalidInputError(
        f"the last row of trial {label!r} has the reward {reward[-1]}, and no observation follows "
        "it: name the columns of next observations (next_observation=), or leave it out with "
        "drop_last=True"
    )


def _durations(columns: Mapping[str, NDArray[Any]], a: int, b: int, n: int) -> NDArray[Any]:
    """Return how long the n transitions of a trial take."""
    if "duration" in columns:
        if "time" in columns:
            raise InvalidInputError("duration= and time= tell the same: leave one of them out")
        times = columns["duration"][a : a + n]
    elif n == b - a:
        raise InvalidInputError(
            f"no row follows the last one of trial {columns['trial'][a]!r}, so that time= does not "
            "tell how long it lasts: name a column of durations (duration=) instead"
        )
    else:
        times = np.diff(columns["time"][a : a + n + 1])
    return times / np.timedelta64(1, "s") if times.dtype.kind == "m" else times


def _observations(columns: Mapping[str, NDArray[Any]], a: int, b: int, n: int) -> NDArray[Any]:
    """Return the n + 1 observations of a trial's n transitions."""
    observed = columns["observation"]
    if "next_observation" not in columns:
        # What follows an end does not matter: the last observation stands in.
        last: NDArray[Any] = observed[np.minimum(np.arange(a, a + n + 1), b - 1)]
        return last
    following = columns["next_observation"]
    unlike = (observed[a + 1 : b] != following[a : b - 1]).reshape(b - a - 1, -1).any(axis=1)
    if unlike.any():
        t = int(np.argmax(unlike))
        raise InvalidInputError(
            f"row {t} of trial {columns['trial'][a]!r} is followed by {following[a + t]}, and the "
            f"row after it is at {observed[a + t + 1]}: are rows missing, or is the column of "
            "trials another one?"
        )
    return np.concatenate((observed[a:b], following[b - 1 : b]))
