"""Logged trials as encoded ones: checked, and all over the same timesteps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from lstd_agent.arrays import States
from lstd_agent.errors import InvalidInputError, TerminationError, check_integer
from lstd_agent.trials.encoding import Encoding
from lstd_agent.trials.exploration import ActionNumbers
from lstd_agent.trials.kept import KeptTrials
from lstd_agent.trials.logged import LoggedTrials
from lstd_agent.trials.logged_actions import as_numbers


def encoded_trials(
    encoding: Encoding,
    trials: LoggedTrials,
    t_max: int | None,
    known: int | None,
    numbers: ActionNumbers | None = None,
) -> KeptTrials:
    """Return logged trials, encoded and as long as the others of an agent.

    Parameters
    ----------
    encoding : Encoding
    trials : LoggedTrials
    t_max : int or None
        What is logged beyond is left out; None goes to the end of the longest trial.
    known : int or None
        The last timestep of the agent's trials so far, which must be the same.
    numbers : (int, int) or None
        How many Discrete actions there are, and the first of them; None leaves them out.

    Raises
    ------
    InvalidInputError
        If an observation or an action does not fit, or a trial is longer than those so far.
    TerminationError
        If a trial terminated, and the task is one that does not.
    """
    T, m = _last_timestep(trials, t_max, known) + 1, trials.n_trials
    lengths = np.minimum(trials.lengths, T)
    ended = trials.terminated & (trials.lengths <= T)
    if ended.any() and not encoding.ends:
        i = int(np.argmax(ended))
        raise TerminationError(
            f"trial {i} terminated at timestep {lengths[i] - 1}: the evaluator is for "
            "continuing tasks, which never terminate. Take the end for an absorbing state "
            'without reward with on_termination="absorb", or, where the trial only was cut '
            "short, do not call it terminated"
        )
    encoded = list(_encoded(encoding, trials))
    encoding.check_features(encoded[0])
    dtype = np.result_type(*{each.dtype for each in encoded})
    states: States = np.empty((m, T + 1, *encoded[0].shape[1:]), dtype)
    rewards = np.zeros((m, T))
    for i, n in enumerate(lengths.tolist()):
        states[i, :n] = encoded[i][:n]
        states[i, n:] = encoding.terminal if ended[i] else encoded[i][n]
        rewards[i, :n] = trials.rewards[i][:n]
    states = encoding.compact(states)
    durations = None
    if trials.durations is not None:
        durations = np.ones((m, T))
        for i, n in enumerate(lengths.tolist()):
            durations[i, :n] = trials.durations[i][:n]
    actions = None
    if numbers is not None and trials.actions is not None:
        has = np.concatenate([np.arange(n) < T for n in trials.lengths])
        actions = np.full((m, T), -1, np.min_scalar_type(-numbers[0]))
        actions[np.arange(T) < lengths[:, None]] = as_numbers(trials, numbers)[has]
    # A trial that ended stays where it ended, and so has all timesteps.
    lengths = np.where(ended, T, lengths)
    cut = lengths if (lengths < T).any() else None
    return KeptTrials(states, rewards, cut, actions, durations=durations)


def _last_timestep(trials: LoggedTrials, t_max: int | None, known: int | None) -> int:
    """Return the last timestep of trials to be added to others, or raise if they do not fit."""
    longest = int(trials.lengths.max()) - 1
    if t_max is None:
        t_max = longest if known is None else known
        if longest > t_max:
            raise InvalidInputError(
                f"trial {int(np.argmax(trials.lengths))} goes on to timestep {longest}, and "
                f"the trials so far have t_max = {t_max}: leave out what comes after with "
                f"t_max={t_max}, or forget the others with reset()"
            )
    t_max = check_integer("t_max", t_max, 0)
    if t_max > longest and known is None:
        raise InvalidInputError(
            f"no trial has timestep {t_max}: the longest goes to {longest}, so give a "
            "t_max of at most that"
        )
    return t_max


def _encoded(encoding: Encoding, trials: LoggedTrials) -> Iterator[States]:
    """Yield the states of one trial after the other, with errors that say where."""
    box = encoding.box
    for i, observed in enumerate(trials.observations):
        try:
            states = encoding.encode_table(observed)
        except InvalidInputError as error:
            raise InvalidInputError(f"{error} in trial {i}{_place(encoding, observed)}") from None
        if box is not None:
            outside = ((states < box.low) | (states > box.high)).any(axis=1)
            if outside.any():
                t = int(np.argmax(outside))
                raise InvalidInputError(
                    f"observation {t} of trial {i} is {states[t]}, which "
                    f"{encoding.space} does not hold: name the space that it is of"
                )
        yield states


def _place(encoding: Encoding, observed: Any) -> str:
    """Return at which observation an array is wrong, as far as that is easy to tell."""
    for t in range(len(observed) if isinstance(observed, np.ndarray) else 0):
        try:
            encoding.encode_table(observed[t : t + 1])
        except InvalidInputError:
            return f", observation {t}"
    return ""


def implied_space(trials: LoggedTrials) -> gym.Space[Any] | None:
    """Return the space that a log tells: named, or unbounded for vectors of floats."""
    if trials.observation_space is not None:
        return trials.observation_space
    observed: NDArray[Any] | Any = trials.observations[0]
    if isinstance(observed, np.ndarray) and observed.dtype.kind == "f" and observed.ndim > 1:
        dtype: Any = observed.dtype.type
        return spaces.Box(-np.inf, np.inf, observed.shape[1:], dtype)
    return None
