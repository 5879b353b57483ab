"""Trials as they are observed: the one way from transitions into sums.

`LockstepTrials` run together, one call a timestep. `SequentialTrials` run one after the other,
as a plain environment makes them; finished ones wait until there are enough of them for a round.
Either way a `Round` comes out. A trial that terminates stays in the terminal state for the rest
of its timesteps.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lstd_agent.arrays import BoolArray, FloatArray, States
from lstd_agent.errors import InvalidInputError, TerminationError
from lstd_agent.trials.action_counts import ActionCountRecorder, Taken
from lstd_agent.trials.encoding import Encoding
from lstd_agent.trials.recorders import Recorder, Round

# Rounds of single trials are a share of those so far, and of a few megabytes at most.
_ROUNDS, _ROUND_TIMESTEPS = 20, 2**18


class LockstepTrials:
    """Trials that are observed together, timestep by timestep.

    Parameters
    ----------
    encoding : Encoding
    recorder : Recorder
        A fresh one.
    states : ndarray, shape (n,) or (n, k)
        In which they start, encoded.
    n_stored : int
        How many of them to keep whole.
    actions : ActionCountRecorder, optional
        A fresh one, where it is asked for what actions lead to.
    """

    def __init__(
        self,
        encoding: Encoding,
        recorder: Recorder,
        states: States,
        n_stored: int,
        actions: ActionCountRecorder | None = None,
    ) -> None:
        self.n_timesteps = 0
        self._encoding = encoding
        self.states = states
        self._n_stored = n_stored
        self._stored: list[States] = []
        self._recorder = recorder
        self._actions = actions
        self._living: BoolArray | None = None

    @property
    def living(self) -> BoolArray:
        """Which trials have not terminated, shape (n,)."""
        return np.ones(len(self.states), dtype=bool) if self._living is None else self._living

    def advance(
        self,
        reward: FloatArray,
        next_state: States,
        terminated: BoolArray | None = None,
        taken: Taken | None = None,
    ) -> None:
        """Record the next timestep of all trials: rewards (n,), states (n, ...), and by what.

        Whatever a trial that has terminated before observes does not matter.
        """
        if self._living is not None:
            reward = np.where(self._living, reward, 0.0)
        if not np.isfinite(reward).all():
            trial = int(np.argmin(np.isfinite(reward)))
            raise InvalidInputError(
                f"rewards must be finite; got {reward[trial]} at timestep {self.n_timesteps} of "
                f"trial {trial} of the round"
            )
        if terminated is not None and terminated.any():
            _refuse_unless_it_ends(self._encoding, self.living & terminated, self.n_timesteps)
            self._living = self.living & ~terminated
        if self._living is not None:
            next_state = next_state.copy()
            next_state[~self._living] = self._encoding.terminal
        self._recorder.record(self.states, reward, next_state, taken)
        if self._actions is not None:
            assert taken is not None
            self._actions.record(self.states, taken, reward, next_state)
        if self._n_stored:
            self._stored.append(self._encoding.compact(self.states[: self._n_stored]))
        self.states = next_state
        self.n_timesteps += 1

    def finish(self) -> Round:
        """Return what the trials leave behind, all of them over the same timesteps."""
        sums = self._recorder.sums(len(self.states))
        taken = None if self._actions is None else self._actions.sums()
        if not self._stored:
            return Round(sums, np.empty(0), taken)
        return Round(sums, np.ascontiguousarray(np.stack(self._stored).swapaxes(0, 1)), taken)


class SequentialTrials:
    """Trials that are observed one after the other.

    Their last timestep ``t_max``, if it is not known, is that of the first trial that ends.
    """

    def __init__(self, encoding: Encoding, t_max: int | None) -> None:
        self.t_max = t_max
        self.terminated = False
        self.encoding = encoding
        self._hold = encoding.hold
        self._finished: list[tuple[States, FloatArray, list[Taken]]] = []
        self._held: list[Any] = []
        self._rewards: list[float] = []
        self._taken: list[Taken] = []

    @property
    def n_finished(self) -> int:
        """Number of finished trials."""
        return len(self._finished)

    @property
    def n_timesteps(self) -> int:
        """Timesteps of the trial under way so far."""
        return len(self._rewards)

    @property
    def last(self) -> Any:
        """The observation of the trial under way that was held last."""
        return self._held[-1]

    def start(self, observation: Any) -> None:
        """Start a trial with an observation, in place of any that is under way."""
        self.drop()
        self._held.append(self._hold(observation))

    def advance(
        self, reward: Any, observation: Any, terminated: bool, taken: Taken | None = None
    ) -> None:
        """Record the next timestep of the trial under way."""
        if type(reward) is not float:
            reward = as_reward(reward, len(self._rewards))
        if not math.isfinite(reward):
            raise InvalidInputError(
                f"rewards must be finite; got {reward} at timestep {len(self._rewards)}"
            )
        if terminated:
            living = np.ones(1, dtype=bool)
            _refuse_unless_it_ends(self.encoding, living, len(self._rewards))
            self.terminated = True
        else:
            self._held.append(self._hold(observation))
        self._rewards.append(reward)
        if taken is not None:
            self._taken.append(taken)

    def end(self) -> None:
        """Finish the trial under way, or raise if it is not like the others."""
        n = self.n_timesteps
        if self.t_max is None and self.terminated:
            raise InvalidInputError(
                f"the first trial terminated at timestep {n - 1}, so it does not tell how long "
                "trials are: give t_max to attach()"
            )
        t_max = n - 1 if self.t_max is None else self.t_max
        n_missing = t_max + 1 - n
        if n_missing < 0 or (n_missing > 0 and not self.terminated):
            raise InvalidInputError(
                f"this trial has timesteps 0 to {n - 1}, the others 0 to {t_max}: all "
                "trials must have the same t_max (was it truncated? then raise the "
                "environment's max_episode_steps). Drop it with drop_trial()"
            )
        states = self._encode_held()
        if self.terminated:
            states = np.concatenate((states, np.repeat(states[-1:], t_max + 2 - len(states), 0)))
            states[n:] = self.encoding.terminal
        rewards = np.concatenate((np.asarray(self._rewards), np.zeros(n_missing)))
        self.t_max = t_max
        self._finished.append((states, rewards, self._taken))
        self.drop()

    def _encode_held(self) -> States:
        """Return the states of the trial under way; an error names the timestep."""
        try:
            return self.encoding.encode_held(self._held)
        except InvalidInputError:
            for t, held in enumerate(self._held):
                try:
                    self.encoding.encode_held([held])
                except InvalidInputError as error:
                    raise InvalidInputError(
                        f"{error} at timestep {t}. This trial is lost: drop_trial() forgets it"
                    ) from None
            raise

    def drop(self) -> None:
        """Forget the trial under way."""
        self._held, self._rewards, self._taken, self.terminated = [], [], [], False

    def finish(
        self, recorder: Recorder, n_stored: int, actions: ActionCountRecorder | None = None
    ) -> Round:
        """Return what the finished trials leave behind, and forget them."""
        states = np.stack([states for states, _, _ in self._finished], axis=1)
        rewards = np.stack([rewards for _, rewards, _ in self._finished], axis=1)
        taken, counted = self._all_taken(rewards), None
        if actions is not None:
            assert taken is not None
            actions.record(states[:-1], taken, rewards, states[1:])
            counted = actions.sums()
        self._finished = []
        stored: Any = np.empty(0)
        if n_stored:
            by_trial = states[:-1, :n_stored].swapaxes(0, 1)
            stored = np.ascontiguousarray(self.encoding.compact(by_trial))
        return Round(recorder.of_whole(states, rewards, taken), stored, counted)

    def _all_taken(self, rewards: FloatArray) -> Taken | None:
        """Return the actions of the finished trials, arrays (t_max + 1, n), if they are known."""
        if not any(taken for _, _, taken in self._finished):
            return None
        action, explored = np.zeros(rewards.shape, np.int64), np.zeros(rewards.shape, bool)
        for trial, (_, _, taken) in enumerate(self._finished):
            for t, each in enumerate(taken):
                action[t, trial], explored[t, trial] = each.action[0], each.explored[0]
        return Taken(action, explored)


def round_size(n_trials: int, t_max: int) -> int:
    """Return how many single trials to add up together, after so many.

    A twentieth of those so far: any number of trials then makes about twenty batches, for
    standard errors to compare, of about one size; and never more than fit in little memory.
    """
    return max(1, min(n_trials // _ROUNDS, _ROUND_TIMESTEPS // (t_max + 1)))


def as_reward(reward: Any, t: int) -> float:
    """Return a reward as a float, or raise unless it is one number."""
    if np.ndim(reward) == 0:
        try:
            return float(reward)
        except (TypeError, ValueError):
            pass
    raise InvalidInputError(
        f"a reward is one number; got {reward!r} at timestep {t}: have the environment return a "
        "float, for instance by gymnasium.wrappers.TransformReward"
    )


def _refuse_unless_it_ends(encoding: Encoding, terminated: BoolArray, t: int) -> None:
    """Raise `TerminationError` unless the task is one that terminates."""
    if not encoding.ends and terminated.any():
        raise TerminationError(
            f"trial {int(np.argmax(terminated))} of the round terminated at timestep {t}: the "
            "evaluator is for continuing tasks, which never terminate. Make the task continuing, "
            "for instance by starting again where it would end (lstd_agent.Restart), or take the "
            'end for an absorbing state without reward: on_termination="absorb"'
        )
