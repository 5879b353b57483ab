"""Samples that people already have: logged trials from arrays, tables and Minari datasets.

A trial of n transitions is n + 1 observations, n rewards and, if they were logged, n actions:
``rewards[t]`` and ``actions[t]`` are those on leaving ``observations[t]``, and the last observation
is what followed the last reward. Steps may have n durations. A trial that is shorter than others
was *cut short* unless it is said to have terminated: what came next is not known, which is nothing
to do with an end of the task. Equations are of single transitions, so those of a timestep use the
trials that have it, and a transition counts for what it shows however its trial went on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import ArrayLike, NDArray

from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.trials.kept import bad_reward, checked_durations
from lstd_agent.trials.logged_tables import trials_of_table
from lstd_agent.trials.spaces import (
    MAX_REWARD,
    batch_size,
    each_array,
    plain_array,
    real_array,
)

Columns = str | Sequence[str]
"""The name of a column, or of several that belong together side by side."""


@dataclass(frozen=True, eq=False)
class LoggedTrials:
    """Trials as they were logged, of any lengths, checked.

    `of` takes arrays, `from_frame` a table with one row a timestep, `from_minari` a dataset.

    Attributes
    ----------
    observations : list
        Of each trial a batch of n + 1 observations: an array, or a dict or tuple of arrays.
    rewards : list of ndarray, shape (n,)
    actions : list of ndarray, shape (n, ...), or None
    terminated : ndarray of bool, shape (m,)
        Whether a trial ended with its last transition; else it was cut short there.
    observation_space, action_space : Space or None
        Where the log tells them.
    durations : list of ndarray, shape (n,), or None
        How long each step takes; None where each takes 1 unit of time.
    n_trials : int
        Number of trials m.
    lengths : ndarray of int, shape (m,)
        Number of transitions of each.

    Methods
    -------
    of(observations, rewards, actions)
        Trials in arrays.
    from_frame(frame)
        Trials in a table with one row a timestep.
    from_minari(dataset)
        Episodes of a Minari dataset.

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
            Of each trial; lengths may differ. Of a Dict or Tuple space a dict or tuple of arrays
            (n + 1, ...) each.
        rewards : array_like, shape (m, n), or iterable of array_like
            ``rewards[i][t]`` is paid on leaving ``observations[i][t]``.
        actions : array_like, shape (m, n, ...), or iterable of array_like, optional
        terminated : array_like of bool, shape (m,), optional
            Whether each trial ended with its last transition; by default none did.
        durations : array_like, shape (m, n), or iterable of array_like, optional
            ``durations[i][t]`` is how long trial i stays in ``observations[i][t]``; 1 by default.
        observation_space, action_space : Space, optional

        Returns
        -------
        LoggedTrials

        Raises
        ------
        InvalidInputError
            If there are no trials, their parts differ in length, or a reward is not finite.
        """
        observed = [
            each_array(lambda part: plain_array(part, "the observations of a trial"), batch)
            for batch in _each(observations, "observations")
        ]
        paid = [_rewards_of(each, i) for i, each in enumerate(_each(rewards, "rewards"))]
        taken = None
        if actions is not None:
            each_trial = _each(actions, "actions")
            taken = [plain_array(each, "the actions of a trial") for each in each_trial]
        m = len(paid)
        if m == 0:
            raise InvalidInputError("there are no trials: give observations and rewards of one")
        times = None if durations is None else _each(durations, "durations")
        for name, parts in (("observations", observed), ("actions", taken), ("durations", times)):
            if parts is not None and len(parts) != m:
                raise InvalidInputError(f"rewards are of {m} trials, {name} of {len(parts)}")
        ended = np.zeros(m, dtype=bool)
        if terminated is not None:
            ended = plain_array(terminated, "terminated")
        if ended.shape != (m,) or ended.dtype != bool:
            raise InvalidInputError(
                f"terminated holds a bool for each of {m} trials, whether it ended with its last "
                f"transition; got {terminated!r}"
            )
        for i, (batch, each) in enumerate(zip(observed, paid, strict=True)):
            _check_length(i, batch_size(batch), len(each))
        for i, (each, action) in enumerate(zip(paid, taken or [], strict=False)):
            if action.shape[:1] != (len(each),):
                raise InvalidInputError(
                    f"trial {i} has {len(each)} rewards and actions of shape {action.shape}: "
                    "there is one action for each reward"
                )
        if times is not None:
            times = [
                checked_durations(time, each.shape, f"at timestep {{0}} of trial {i}")
                for i, (time, each) in enumerate(zip(times, paid, strict=True))
            ]
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
            Anything whose columns ``frame[name]`` are array-like: of pandas, polars, or a dict.
        trial : str
            Column that tells trials apart.
        observation : str or sequence of str
            Column of numbered states, or columns that are a vector side by side.
        reward : str
            Column of what is paid on leaving the row's observation.
        timestep : str, optional
            Column of consecutive integers within a trial, by which rows are sorted, all trials
            from the same one on; without it rows are in order.
        action : str or sequence of str, optional
        next_observation : str or sequence of str, optional
            Columns of what followed each row. Without them a trial's last row is an observation
            alone, and its reward must be missing (NaN).
        terminated : str, optional
            Column of bool: true in a trial's last row, if it ended there.
        duration, time : str, optional
            Column of how long each row's observation lasts, or of when it began: numbers, or
            dates and times, of which durations are in seconds. Without one each step takes 1.
        drop_last : bool
            Without next observations: leave the last row's reward and action out, which nothing
            is known to follow.
        observation_space, action_space : Space, optional

        Returns
        -------
        LoggedTrials

        Raises
        ------
        InvalidInputError
            If a column or a timestep is missing, or rows do not follow each other.
        """
        single = {
            "trial": trial,
            "timestep": timestep,
            "reward": reward,
            "terminated": terminated,
            "duration": duration,
            "time": time,
        }
        joint = {
            "observation": observation,
            "action": action,
            "next_observation": next_observation,
        }
        trials = trials_of_table(frame, single, joint, drop_last)
        return cls.of(**trials, observation_space=observation_space, action_space=action_space)

    @classmethod
    def from_minari(cls, dataset: Any) -> LoggedTrials:
        """Return the episodes of a Minari dataset (``minari.load_dataset``) as trials.

        Parameters
        ----------
        dataset : minari.MinariDataset
            An episode that was truncated is a trial cut short.

        Returns
        -------
        LoggedTrials

        Raises
        ------
        InvalidInputError
            If an episode has no transition, or goes on after its end.
        """
        observations, rewards, actions, terminated = [], [], [], []
        for episode in dataset.iterate_episodes():
            if "duration" in (getattr(episode, "infos", None) or {}):
                raise InvalidInputError(
                    "the episodes have durations in their infos, whose place differs between "
                    "datasets: give them to LoggedTrials.of(..., durations=)"
                )
            ended = np.asarray(episode.terminations, dtype=bool)
            if ended[:-1].any():
                raise InvalidInputError(
                    f"episode {episode.id} terminates at timestep {int(np.argmax(ended))} and "
                    "goes on: give each episode of the dataset one end"
                )
            observations.append(episode.observations)
            rewards.append(episode.rewards)
            actions.append(episode.actions)
            terminated.append(bool(ended[-1:].any()))
        return cls.of(
            observations,
            rewards,
            actions if all(isinstance(each, np.ndarray) for each in actions) else None,
            terminated=np.array(terminated, dtype=bool),
            observation_space=dataset.observation_space,
            action_space=dataset.action_space,
        )


def as_logged(
    observations: Any,
    rewards: Any,
    actions: Any,
    terminated: Any,
    durations: Any,
    action_space: gym.Space[Any] | None,
) -> LoggedTrials:
    """Return what `SeminormLSTDAgent.add_trials` was given as logged trials."""
    whole = observations
    if hasattr(observations, "iterate_episodes"):
        whole = LoggedTrials.from_minari(observations)
    if isinstance(whole, LoggedTrials):
        names = "rewards", "actions", "terminated", "durations"
        for name, part in zip(names, (rewards, actions, terminated, durations), strict=True):
            if part is not None:
                raise InvalidInputError(f"the trials hold their {name}: leave {name}= out")
        return whole if action_space is None else replace(whole, action_space=action_space)
    if hasattr(observations, "columns"):
        raise InvalidInputError(
            "a table's columns have names of their own: LoggedTrials.from_frame(frame, trial=..., "
            "observation=..., reward=...) makes trials of them"
        )
    if rewards is None:
        raise InvalidInputError("rewards are missing: give those of each trial")
    how = {"terminated": terminated, "durations": durations, "action_space": action_space}
    return LoggedTrials.of(observations, rewards, actions, **how)


def _each(parts: Any, name: str) -> list[Any]:
    """Return what was given of each trial, or raise unless it is one thing after another."""
    try:
        return list(parts)
    except TypeError:
        raise InvalidInputError(f"{name} are given for each trial; got {parts!r}") from None


def _rewards_of(rewards: ArrayLike, trial: int) -> FloatArray:
    """Return a trial's rewards, or raise unless they are numbers of a reasonable size."""
    try:
        paid = real_array(rewards, "rewards")
    except InvalidInputError:
        paid = np.empty(())
    if paid.ndim != 1 or not paid.size:
        raise InvalidInputError(
            f"the rewards of trial {trial} are one number a timestep, at least one; got {rewards!r}"
        )
    fine = np.abs(paid) <= MAX_REWARD
    if not fine.all():
        t = int(np.argmin(fine))
        raise InvalidInputError(f"{bad_reward(paid[t])} at timestep {t} of trial {trial}")
    return paid


def _check_length(trial: int, n_observations: int, n_rewards: int) -> None:
    """Raise unless there is one more observation than there are rewards."""
    if n_observations == n_rewards + 1:
        return
    remedy = "give them one for one"
    if n_observations == n_rewards:
        remedy = (
            "the observation that followed the last reward is missing: add it, or leave the last "
            "reward (and action) out. If rewards[t] is what was paid on *entering* "
            "observations[t], they are shifted by one: leave the first out"
        )
    raise InvalidInputError(
        f"trial {trial} has {n_observations} observations and {n_rewards} rewards; rewards[t] is "
        f"paid on leaving observations[t], so that there is one more observation: {remedy}"
    )
