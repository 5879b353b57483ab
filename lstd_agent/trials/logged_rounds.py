"""Logged trials into rounds of sums, as the user's own loop makes them.

All are encoded and checked before the first is added, so that a refused log changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.errors import InvalidInputError, TerminationError, check_integer
from lstd_agent.trials.action_counts import ActionCounts
from lstd_agent.trials.batches import Batches
from lstd_agent.trials.counting import CountRecorder
from lstd_agent.trials.encoding import CountedEncoding, Encoding, States
from lstd_agent.trials.kept_trials import TrialRecorder
from lstd_agent.trials.logged import LoggedTrials
from lstd_agent.trials.logged_actions import as_numbers
from lstd_agent.trials.recording import Round, round_size

# Stored states of counted trials, and actions, at timesteps that a trial does not have.
_NONE = -1


class EncodedTrials:
    """Logged trials, encoded and as long as the others of an agent.

    Parameters
    ----------
    encoding : Encoding
    trials : LoggedTrials
    t_max : int or None
        What is logged beyond is left out; None goes to the end of the longest trial.
    known : int or None
        The last timestep of the agent's trials so far, which must be the same.
    actions : (int, int) or None
        How many Discrete actions there are, and the first of them; None leaves them out.

    Raises
    ------
    InvalidInputError
        If an observation or an action is none, or a trial is longer than those so far.
    TerminationError
        If a trial terminated, and the task is one that does not.
    """

    def __init__(
        self,
        encoding: Encoding,
        trials: LoggedTrials,
        t_max: int | None,
        known: int | None,
        actions: tuple[int, int] | None = None,
    ) -> None:
        longest = int(trials.lengths.max()) - 1
        if t_max is None:
            t_max = longest if known is None else known
            if longest > t_max:
                raise InvalidInputError(
                    f"trial {int(np.argmax(trials.lengths))} goes on to timestep {longest}, and "
                    f"the trials so far have t_max = {t_max}: leave out what comes after with "
                    f"t_max={t_max}, or forget the others with reset()"
                )
        self.t_max = check_integer("t_max", t_max, 0)
        if self.t_max > longest and known is None:
            raise InvalidInputError(
                f"no trial has timestep {self.t_max}: the longest goes to {longest}, so give a "
                "t_max of at most that"
            )
        self.lengths = np.minimum(trials.lengths, self.t_max + 1)
        ended = trials.terminated & (trials.lengths <= self.t_max + 1)
        if ended.any() and not encoding.ends:
            i = int(np.argmax(ended))
            raise TerminationError(
                f"trial {i} terminated at timestep {self.lengths[i] - 1}: the evaluator is for "
                "continuing tasks, which never terminate. Take the end for an absorbing state "
                'without reward with on_termination="absorb", or, where the trial only was cut '
                "short, do not call it terminated"
            )
        self._encoding = encoding
        encode = _Encoder(encoding)
        self._trials = [
            self._padded(encode(observed, i), paid, int(self.lengths[i]), bool(ended[i]))
            for i, (observed, paid) in enumerate(
                zip(trials.observations, trials.rewards, strict=True)
            )
        ]
        self._n_actions, self._actions = 0, None
        if actions is not None and trials.actions is not None:
            self._n_actions, self._actions = actions[0], self._padded_actions(trials, actions)
        # A trial that ended stays where it ended, and so has all timesteps.
        self.lengths[ended] = self.t_max + 1

    @property
    def first_states(self) -> States:
        """The state in which the first trial starts, in an array of one."""
        return self._trials[0][0][:1]

    def _padded(
        self, states: States, rewards: FloatArray, n: int, ended: bool
    ) -> tuple[States, FloatArray]:
        """Return a trial's states (t_max + 2, ...) and rewards (t_max + 1,)."""
        states, rewards = states[: n + 1], rewards[:n]
        n_missing = self.t_max + 1 - n
        if ended or n_missing:
            states = np.concatenate((states, np.repeat(states[-1:], n_missing, axis=0)))
            rewards = np.concatenate((rewards, np.zeros(n_missing)))
        if ended:
            states[n:] = self._encoding.terminal
        return states, rewards

    def _padded_actions(self, trials: LoggedTrials, numbers: tuple[int, int]) -> IntArray:
        """Return the actions (t_max + 1, m), `_NONE` where there is none."""
        padded = np.full((self.t_max + 1, trials.n_trials), _NONE, np.min_scalar_type(-numbers[0]))
        trial = np.repeat(np.arange(trials.n_trials), trials.lengths)
        t = np.arange(len(trial)) - (np.cumsum(trials.lengths) - trials.lengths)[trial]
        has = t < self.lengths[trial]
        padded[t[has], trial[has]] = as_numbers(trials, numbers)[has]
        return padded

    def rounds(self, batches: Batches) -> Iterator[Round]:
        """Yield the trials in rounds, as they are to be added to batches one after the other."""
        first = 0
        while first < len(self._trials):
            piece = self._trials[first : first + round_size(batches.n_trials, self.t_max)]
            states = np.stack([states for states, _ in piece], axis=1)
            rewards = np.stack([rewards for _, rewards in piece], axis=1)
            here = slice(first, first + len(piece))
            action = None if self._actions is None else self._actions[:, here]
            yield self._round(states, rewards, self.lengths[here], action, batches.n_stored_missing)
            first += len(piece)

    def _round(
        self,
        states: States,
        rewards: FloatArray,
        lengths: IntArray,
        action: IntArray | None,
        n_stored: int,
    ) -> Round:
        """Return some of the trials as a round."""
        encoding = self._encoding
        cut = lengths if (lengths <= self.t_max).any() else None
        if not isinstance(encoding, CountedEncoding):
            kept = TrialRecorder.of_whole(states, rewards)
            actions = None if action is None else np.ascontiguousarray(action.T)
            return Round(replace(kept, lengths=cut, actions=actions), np.empty(0))
        counted = counted_round(encoding, states, rewards, cut, None, n_stored)
        if action is None:
            return counted
        known, chosen = action != _NONE, action[action != _NONE].astype(np.int64)
        moves = states[:-1][known], chosen, states[1:][known]
        taken = ActionCounts.of(encoding.n_states, self._n_actions, *moves, rewards[known])
        return replace(counted, taken=taken)


def counted_round(
    encoding: CountedEncoding,
    states: IntArray,
    rewards: FloatArray,
    lengths: IntArray | None,
    explored: BoolArray | None,
    n_stored: int,
) -> Round:
    """Return whole trials of countable observations as a round.

    Parameters
    ----------
    encoding : CountedEncoding
    states : ndarray of int, shape (t_max + 2, n)
    rewards : ndarray, shape (t_max + 1, n)
    lengths : ndarray of int, shape (n,), or None
        How many timesteps each trial has, where some were cut short.
    explored : ndarray of bool, shape (t_max + 1, n), or None
        Which actions were exploratory, where some were.
    n_stored : int
        How many trials to keep whole beside their counts.
    """
    has = None if lengths is None else np.arange(len(rewards))[:, None] < lengths
    own = has
    if explored is not None:
        own = ~explored if has is None else has & ~explored
    sums = CountRecorder(encoding.n_states).of_whole(states, rewards, own=own)
    stored = states[:-1].T[:n_stored]
    if has is None:
        return Round(sums, stored.astype(encoding.dtype))
    return Round(sums, np.where(has.T[:n_stored], stored, _NONE))


class _Encoder:
    """Encodes the observations of one trial after the other, with errors that say where."""

    def __init__(self, encoding: Encoding) -> None:
        self._encoding = encoding
        flat = None if isinstance(encoding, CountedEncoding) else _flat(encoding.space)
        self._bounds = None if flat is None else (flat.low, flat.high)

    def __call__(self, observed: Any, trial: int) -> States:
        try:
            states = self._encoding.encode(self._whole(observed))
        except InvalidInputError as error:
            raise InvalidInputError(f"{error} in trial {trial}{self._place(observed)}") from None
        if self._bounds is not None:
            low, high = self._bounds
            outside = ((states < low) | (states > high)).any(axis=1)
            if outside.any():
                t = int(np.argmax(outside))
                raise InvalidInputError(
                    f"observation {t} of trial {trial} is {states[t]}, which "
                    f"{self._encoding.space} does not hold: name the space that it is of"
                )
        return states

    def _whole(self, observed: Any) -> Any:
        """Return numbered observations as integers, also where a table has made them floats."""
        if not isinstance(self._encoding, CountedEncoding) or not isinstance(observed, np.ndarray):
            return observed
        if observed.dtype.kind != "f" or not np.isfinite(observed).all():
            return observed
        whole = observed.astype(np.int64)
        return whole if (whole == observed).all() else observed

    def _place(self, observed: Any) -> str:
        """Return at which observation an array is wrong, as far as that is easy to tell."""
        if not isinstance(observed, np.ndarray):
            return ""
        for t in range(len(observed)):
            try:
                self._encoding.encode(self._whole(observed[t : t + 1]))
            except InvalidInputError:
                return f", observation {t}"
        return ""


def _flat(space: gym.Space[Any]) -> spaces.Box | None:
    """Return the Box of a space's vectors; None where it has none."""
    flat = spaces.flatten_space(space)
    return flat if isinstance(flat, spaces.Box) else None


def implied_space(trials: LoggedTrials) -> gym.Space[Any] | None:
    """Return the space that a log tells: named, or unbounded for vectors of floats."""
    if trials.observation_space is not None:
        return trials.observation_space
    observed: NDArray[Any] | Any = trials.observations[0]
    if isinstance(observed, np.ndarray) and observed.dtype.kind == "f" and observed.ndim > 1:
        dtype: Any = observed.dtype.type
        return spaces.Box(-np.inf, np.inf, observed.shape[1:], dtype)
    return None
