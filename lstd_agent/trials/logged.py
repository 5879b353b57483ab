"""Logged trials from arrays, tables and Minari datasets.

A trial of n transitions has n + 1 observations, n rewards and, if logged, n actions and n
durations. ``rewards[t]`` and ``actions[t]`` belong to leaving ``observations[t]``. A shorter trial
was *cut short*, unless it terminated. Its transitions count: equations are of single transitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import ArrayLike, NDArray

from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.trials.kept import check_range, checked_durations
from lstd_agent.trials.spaces import batch_size, each_array, plain_array, real_array

Columns = str | Sequence[str]
"""The name of a column, or names of several columns that are a vector."""


@dataclass(frozen=True, eq=False)
class LoggedTrials:
    """Logged trials of any lengths, checked.

    `of` takes arrays, `from_frame` a table with one row a timestep, `from_minari` a dataset.

    Attributes
    ----------
    observations : list
        For each trial n + 1 observations: an array, or a dict or tuple of arrays.
    rewards, actions, durations : list of ndarray, shape (n,)
        Of each trial; actions, which may have further axes, and durations may be None.
    terminated : ndarray of bool, shape (m,)
        Whether a trial ended with its last transition, instead of being cut short.
    observation_space, action_space : Space or None
        If the log names them.

    Examples
    --------
    >>> from lstd_agent import LoggedTrials
    >>> logged = LoggedTrials.of([[0, 1, 2], [0, 1]], [[5.0, 6.0], [5.0]])
    >>> logged.n_trials, logged.lengths.tolist()
    (2, [2, 1])
    """

    observations: list[Any]
    rewards: list[FloatArray]
    actions: list[NDArray[Any]] | None
    terminated: BoolArray
    observation_space: gym.Space[Any] | None = None
    action_space: gym.Space[Any] | None = None
    durations: list[FloatArray] | None = None

    @property
    def n_trials(self) -> int:
        """Number of trials m."""
        return len(self.rewards)

    @property
    def lengths(self) -> IntArray:
        """Number of transitions of each trial, shape (m,)."""
        return np.array([len(rewards) for rewards in self.rewards], dtype=np.int64)

    def __repr__(self) -> str:
        return f"<LoggedTrials, {self.n_trials} trials, {self.lengths.sum()} transitions>"

    @classmethod
    def of(
        cls,
        observations: Iterable[Any],
        rewards: Iterable[ArrayLike],
        actions: Iterable[ArrayLike] | None = None,
        *,
        terminated: ArrayLike | None = None,
        durations: Iterable[ArrayLike] | None = None,
        observation_space: gym.Space[Any] | None = None,
        action_space: gym.Space[Any] | None = None,
    ) -> LoggedTrials:
        """Return logged trials, checked.

        Parameters
        ----------
        observations : array_like, shape (m, n + 1, ...), or iterable of batches
            For a Dict or Tuple space each batch is a dict or tuple of arrays (n + 1, ...).
        rewards, actions, durations : array_like, shape (m, n), or iterable of array_like
            Of leaving ``observations[i][t]``. Actions and durations are optional.
        terminated : array_like of bool, shape (m,), optional
            Whether each trial ended with its last transition; by default none did.
        observation_space, action_space : Space, optional

        Raises
        ------
        InvalidInputError
            If there are no trials, their parts differ in length, or a reward is not finite.
        """
        observed = [
            each_array(lambda part: plain_array(part, "the observations of a trial"), batch)
            for batch in _each(observations, "observations")
        ]
        paid = _each(rewards, "rewards")
        m, taken, times = len(paid), _each(actions, "actions"), _each(durations, "durations")
        if m == 0:
            raise InvalidInputError("there are no trials: give observations and rewards of one")
        for name, parts in (("observations", observed), ("actions", taken), ("durations", times)):
            if parts is not None and len(parts) != m:
                raise InvalidInputError(f"rewards are of {m} trials, {name} of {len(parts)}")
        ended = plain_array([False] * m if terminated is None else terminated, "terminated")
        if ended.shape != (m,) or ended.dtype != bool:
            told = f"terminated is a bool for each of {m} trials; got {terminated!r}"
            raise InvalidInputError(told)
        for i, batch in enumerate(observed):
            where = f"at timestep {{0}} of trial {i}"
            each = real_array(paid[i], f"rewards of trial {i}")
            if each.ndim != 1 or not each.size:
                told = f"rewards of trial {i} are numbers, at least one; got {paid[i]!r}"
                raise InvalidInputError(told)
            check_range("rewards", each, where)
            paid[i], n = each, len(each)
            if batch_size(batch) != n + 1:
                raise InvalidInputError(
                    f"trial {i} has {batch_size(batch)} observations, {n} rewards: give one more "
                    "observation than rewards, the one that followed the last. Rewards paid on "
                    "*entering* observations are shifted by one: leave the first out"
                )
            if taken is not None:
                taken[i] = plain_array(taken[i], "the actions of a trial")
                if taken[i].shape[:1] != (n,):
                    told = f"actions of trial {i}: {taken[i].shape}; give one for each reward"
                    raise InvalidInputError(told)
            if times is not None:
                times[i] = checked_durations(times[i], each.shape, where)
        return cls(observed, paid, taken, ended, observation_space, action_space, times)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        trial: str,
        observation: Columns,
        reward: str,
        timestep: str | None = None,
        action: Columns | None = None,
        next_observation: Columns | None = None,
        terminated: str | None = None,
        duration: str | None = None,
        time: str | None = None,
        drop_last: bool = False,
        observation_space: gym.Space[Any] | None = None,
        action_space: gym.Space[Any] | None = None,
    ) -> LoggedTrials:
        """Return the trials of a table with one row a timestep.

        Parameters
        ----------
        frame : DataFrame or mapping
            Columns ``frame[name]`` are array-like: of pandas, polars, or a dict.
        trial, reward : str
            Columns of trial numbers or names, and of rewards on leaving the row's observation.
        observation, action, next_observation : str or sequence of str
            Column of numbers, or columns that make up a vector. Without ``next_observation`` a
            trial's last row is only an observation, and its reward must be missing (NaN).
        timestep : str, optional
            Column of consecutive integers with the same start in each trial; by default rows are in
            order.
        terminated : str, optional
            Column of bool: true in a trial's last row, if it ended there.
        duration, time : str, optional
            Column of durations of each row's observation, or of its start. Dates and times give
            seconds. By default each step takes 1.
        drop_last : bool
            Leave out the reward and action of the last row, for want of a next observation.
        observation_space, action_space : Space, optional

        Raises
        ------
        InvalidInputError
            If a column or a timestep is missing, or rows do not follow each other.
        """
        roles: dict[str, Any] = {"trial": trial, "timestep": timestep, "reward": reward}
        roles |= {"terminated": terminated, "duration": duration, "time": time, "action": action}
        roles |= {"observation": observation, "next_observation": next_observation}
        needed = "trial", "observation", "reward"
        roles = {role: name for role, name in roles.items() if name is not None or role in needed}
        columns = {role: _column(frame, name, role) for role, name in roles.items()}
        trials = _trials_of(columns, drop_last)
        return cls.of(**trials, observation_space=observation_space, action_space=action_space)

    @classmethod
    def from_minari(cls, dataset: Any) -> LoggedTrials:
        """Return the episodes of a Minari ``dataset`` (``minari.load_dataset``) as trials.

        An episode that was truncated is a trial cut short.

        Raises
        ------
        InvalidInputError
            If an episode has no transition, or goes on after its end.
        """
        parts: dict[str, Any] = {"observations": [], "rewards": [], "actions": []}
        terminated = []
        for episode in dataset.iterate_episodes():
            if "duration" in (getattr(episode, "infos", None) or {}):
                told = "the episodes have durations in infos: give LoggedTrials.of(..., durations=)"
                raise InvalidInputError(told)
            ended = np.asarray(episode.terminations, dtype=bool)
            if ended[:-1].any():
                told = f"episode {episode.id} terminates at timestep {np.argmax(ended)} and goes on"
                raise InvalidInputError(told)
            terminated.append(ended[-1:].any())
            for name, part in parts.items():
                part.append(getattr(episode, name))
        spaces = {name: getattr(dataset, name) for name in ("observation_space", "action_space")}
        if not all(isinstance(each, np.ndarray) for each in parts["actions"]):
            del parts["actions"]
        return cls.of(**parts, terminated=np.array(terminated, dtype=bool), **spaces)


def _each(parts: Any, name: str) -> Any:
    """Return the parts of all trials as a list, or None as it is if they may be left out."""
    if parts is None and name in ("actions", "durations"):
        return None
    try:
        return list(parts)
    except TypeError:
        raise InvalidInputError(f"{name} are given for each trial; got {parts!r}") from None


def _column(frame: Any, name: Any, role: str) -> NDArray[Any]:
    """Return a column (n,), or several side by side (n, k)."""
    if not isinstance(name, str):
        several = isinstance(name, Sequence) and role.endswith(("observation", "action"))
        if not several or not name or not all(isinstance(each, str) for each in name):
            raise InvalidInputError(f"{role}= names a column of the table; got {name!r}")
        return np.stack([_column(frame, each, role) for each in name], axis=1)
    if hasattr(frame, "columns") or isinstance(frame, Mapping):
        names = list(getattr(frame, "columns", frame))
    elif isinstance(frame, np.ndarray) and frame.dtype.names:
        names = list(frame.dtype.names)
    else:
        told = f"a table is a DataFrame, a structured array or a dict; got {type(frame).__name__}"
        raise InvalidInputError(told)
    if name not in names:
        raise InvalidInputError(f"{role}={name!r} is no column; there are {names}")
    return plain_array(frame[name], f"a column {name!r}")


def _trials_of(columns: dict[str, NDArray[Any]], drop_last: bool) -> dict[str, Any]:
    """Cut the columns of a table into the arguments of `LoggedTrials.of`.

    It raises unless rows are transitions that follow each other. Without columns of next
    observations, the last row of a trial that did not end is only an observation.
    """
    reward = columns["reward"]
    if not reward.size:
        raise InvalidInputError("the table has no rows")
    for role, column in columns.items():
        n_axes = max(column.ndim, 1) if role.endswith(("observation", "action")) else 1
        if reward.ndim != 1 or column.shape[:1] != reward.shape or column.ndim != n_axes:
            told = f"columns have one entry a row; got {role} {column.shape}, reward {reward.shape}"
            raise InvalidInputError(told)
    if reward.dtype.kind not in "fiub":
        told = f"rewards are numbers; got {reward[:3]!r}: convert what a reader left as text"
        raise InvalidInputError(told)
    if (steps := columns.get("timestep")) is not None and steps.dtype.kind not in "iuf":
        told = f"timesteps are integers; got {steps[0]}: count the steps of each trial"
        raise InvalidInputError(told)
    # Trials keep the order in which they begin.
    labels = columns["trial"]
    try:
        _, first, number = np.unique(labels, return_index=True, return_inverse=True)
        if (labels != labels).any():  # as only NaN and NaT are
            raise TypeError("a trial has no number")
    except TypeError:
        told = "trials have numbers or names, all of one kind, and none is missing"
        raise InvalidInputError(told) from None
    number = np.argsort(np.argsort(first))[number.ravel()]
    order = np.lexsort((columns.get("timestep", np.arange(len(reward))), number))
    columns, number = {name: column[order] for name, column in columns.items()}, number[order]
    reward, observed = columns["reward"].astype(np.float64), columns["observation"]
    # The rows of trial i are those from start[i] to last[i], and n[i] of them are transitions.
    size = np.bincount(number)
    last = np.cumsum(size) - 1
    start = last + 1 - size
    ends = columns.get("terminated", np.zeros(len(reward), dtype=bool))
    if not set(ends.tolist()) <= {False, True}:
        raise InvalidInputError(f"terminated is true or false in each row; got {ends!r}")
    ends = ends.astype(bool)
    is_whole = ends[last] | ("next_observation" in columns)
    n = size - 1 + is_whole
    t = np.arange(len(reward)) - start[number]
    is_last, is_missing = t + 1 == size[number], np.isnan(reward)
    is_open = is_last & ~is_whole[number]
    is_paid = is_open & ~is_missing & (not drop_last)
    timestep, ahead = columns.get("timestep", t), np.roll(observed, -1, axis=0)
    following, expected = columns.get("next_observation"), t + timestep.min()
    if following is None:  # observations after an end do not matter: repeat the last one
        following = ahead.copy()
        following[last] = observed[last]
    facts = {"t": t, "reward": reward, "timestep": timestep, "expected": expected}
    facts |= {"following": following, "ahead": ahead}
    wrong = {
        "{trial} has timestep {timestep} where {expected} comes next: trials begin at the same "
        "timestep and leave none out. Cut the trial before the gap, or leave it out": (
            timestep != expected
        ),
        "{trial} terminates in its row {t} and goes on: give what follows another trial number": (
            ends & ~is_last
        ),
        "{trial} has a single row, which shows no transition": is_open & (t == 0),
        "the first reward of {trial} is missing and the last is not: rewards are paid on entering "
        "a row's observation, and must be paid on leaving it. Shift them by one": (
            is_paid & is_missing[start[number]]
        ),
        "the last row of {trial} has the reward {reward}, and no observation follows it: name the "
        "columns of next observations (next_observation=), or leave it out with drop_last=True": (
            is_paid
        ),
        "rewards must be finite; got nan in row {t} of {trial}: fill the reward in, or cut the "
        "trial before this row": is_missing & ~is_open,
        "row {t} of {trial} is followed by {following}, and the row after it is at {ahead}: are "
        "rows missing, or is the column of trials wrong?": (
            (ahead != following).reshape(len(t), -1).any(axis=1) & ~is_last
        ),
    }
    for message, those in wrong.items():
        if those.any():
            row = int(np.argmax(those))
            label = np.asarray(columns["trial"][row]).item()
            here = {name: numbers[row] for name, numbers in facts.items()}
            raise InvalidInputError(message.format(trial=f"trial {label!r}", **here))
    times = _times(columns, last[is_whole])
    cut = [slice(a, a + k) for a, k in zip(start.tolist(), n.tolist(), strict=True)]
    seen = [np.append(observed[each], following[each][-1:], axis=0) for each in cut]
    found: dict[str, Any] = {"observations": seen, "terminated": ends[last]}
    parts = {"rewards": columns["reward"], "actions": columns.get("action"), "durations": times}
    for name, part in parts.items():
        found[name] = None if part is None else [part[each] for each in cut]
    return found


def _times(columns: Mapping[str, NDArray[Any]], whole: IntArray) -> Any:
    """Return the duration of each row's step; ``whole`` last rows of trials are transitions too."""
    if "duration" in columns and "time" in columns:
        raise InvalidInputError("duration= and time= both give durations: leave one of them out")
    times: Any = columns.get("duration")
    if "time" in columns:
        if len(whole):
            told = f"no time follows the last row of {columns['trial'][whole[0]]}: give duration="
            raise InvalidInputError(told)
        time = columns["time"]
        if time.dtype.kind == "O":  # numbers, perhaps
            time = np.array(time.tolist())
        if time.dtype.kind not in "fiubM":
            told = f"times are numbers or dates; got {time.tolist()[0]!r}: use datetime64"
            raise InvalidInputError(told)
        # Differences of small or unsigned integers would wrap around.
        times = np.diff(time if time.dtype.kind in "fM" else time.astype(np.int64))
    is_span = times is not None and times.dtype.kind == "m"
    return times / np.timedelta64(1, "s") if is_span else times
