"""Recording: the one way from transitions to counts or kept trials.

`LockstepTrials` run together, one call a timestep. `SequentialTrials` run one after the other, as
in a plain environment. Both return a *portion*: `CountedTrials` if states are numbers, else
`KeptTrials`. A trial that terminates stays in the terminal state for the rest of its timesteps.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from lstd_agent.arrays import BoolArray, FloatArray, States
from lstd_agent.errors import InvalidInputError, TerminationError
from lstd_agent.trials.counted import (
    ActionCountRecorder,
    CountedTrials,
    CountRecorder,
    TrialSample,
    ordered,
)
from lstd_agent.trials.counts import Taken
from lstd_agent.trials.encoding import Encoding
from lstd_agent.trials.kept import (
    KeptTrials,
    bad_reward,
    check_both_timed,
    check_rewards,
    checked_durations,
)
from lstd_agent.trials.spaces import MAX_REWARD, real_array

Portion: TypeAlias = CountedTrials | KeptTrials
"""Recorded trials; two portions of the same kind add up."""


@dataclass(frozen=True, eq=False)
class Recording:
    """How trials are recorded.

    Counted trials are dealt into ``n_batches``. With ``n_actions``, transitions are also counted by
    action.
    """

    encoding: Encoding
    n_batches: int = 1
    n_actions: int = 0

    def without_features(self) -> Recording:
        """Return a copy for workers, which only encode."""
        return dataclasses.replace(self, encoding=self.encoding.without_features())

    def recorder(self, first: int) -> Any:
        """Return the recorder of trials from number ``first`` on; None if trials are kept."""
        if not self.encoding.is_counted:
            return None
        actions = self.action_recorder(first)
        return CountRecorder(self.encoding.n_states, self.n_batches, first, actions)

    def action_recorder(self, first: int) -> ActionCountRecorder | None:
        """Return the recorder of action counts, or None."""
        if not self.n_actions:
            return None
        encoding = self.encoding
        terminal: Any = encoding.terminal if encoding.ends else None
        how = terminal, self.n_batches, first
        return ActionCountRecorder(encoding.n_states, self.n_actions, *how)

    def portion_of(self, trials: KeptTrials, first: int, n_stored: int) -> Portion:
        """Return encoded trials as a portion; ``n_stored`` counted ones are kept whole."""
        recorder = self.recorder(first)
        if recorder is None:
            return trials
        # Batches do not depend on the order of a log's trials.
        trials = trials.take(ordered(trials))
        recorder.record_whole(trials)
        sample = TrialSample.of(trials, n_stored, first) if n_stored else None
        portion: Portion = recorder.portion(trials.n_trials, sample)
        return portion


class LockstepTrials:
    """Trials that are observed together, from encoded states (n, ...) on.

    The first trial has number ``first``; ``n_stored`` counted trials are kept whole.
    """

    def __init__(
        self, recording: Recording, states: States, first: int = 0, n_stored: int = 0
    ) -> None:
        self.n_timesteps = 0
        self.states = states
        self._encoding = encoding = recording.encoding
        self._recorder = recording.recorder(first)
        self._n_whole = len(states) if self._recorder is None else min(n_stored, len(states))
        self._whole = [encoding.compact(states[: self._n_whole])]
        self._rewards: list[FloatArray] = []
        self._durations: list[FloatArray] = []
        self._is_timed = False
        self._taken: list[Taken] = []
        self._living: BoolArray | None = None
        encoding.check_features(states)

    @property
    def durations(self) -> FloatArray | None:
        """Durations (n,) of steps in the terminal state; None if steps have none."""
        return np.ones(len(self.states)) if self._is_timed else None

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
        duration: Any = None,
    ) -> None:
        """Record the next timestep of n trials; trials that have terminated are ignored."""
        if self._living is not None:
            reward = np.where(self._living, reward, 0.0)
            if np.shape(duration) == reward.shape:
                duration = np.where(self._living, duration, 1.0)
        where = f"at timestep {self.n_timesteps} of trial {{0}} of the round"
        check_rewards(reward, where)
        if duration is not None:
            duration = checked_durations(duration, reward.shape, where)
        if self.n_timesteps:
            check_both_timed(duration, self._is_timed or None)
        if terminated is not None and terminated.any():
            _refuse_unless_it_ends(self._encoding, self.living & terminated, self.n_timesteps)
            self._living = self.living & ~terminated
        if self._living is not None:
            next_state = next_state.copy()
            next_state[~self._living] = self._encoding.terminal
        if self._recorder is not None:
            self._recorder.record(self.states, reward, next_state, taken, duration)
        if m := self._n_whole:
            self._whole.append(self._encoding.compact(next_state[:m]))
            self._rewards.append(reward[:m].copy())  # an environment may write into it again
            if duration is not None:
                self._durations.append(duration[:m].copy())
            if taken is not None:
                self._taken.append(Taken(taken.action[:m], taken.explored[:m]))
        self.states, self._is_timed = next_state, duration is not None
        self.n_timesteps += 1

    def finish(self) -> Portion:
        """Return the trials, all of them over the same timesteps."""
        whole = None
        if self._n_whole:
            states, rewards = np.stack(self._whole, axis=1), np.stack(self._rewards, axis=1)
            taken = [np.stack(parts) for parts in zip(*self._taken, strict=True)]
            times = np.stack(self._durations, axis=1) if self._durations else None
            whole = _kept(states, rewards, times, Taken(*taken) if taken else None)
        if self._recorder is None:
            assert whole is not None
            return whole
        sample = None if whole is None else TrialSample.of(whole, self._n_whole)
        portion: Portion = self._recorder.portion(len(self.states), sample)
        return portion


class SequentialTrials:
    """Trials that are observed one after the other, up to t_max.

    Without ``t_max`` the first finished trial sets it to its last timestep.
    """

    def __init__(self, encoding: Encoding, t_max: int | None) -> None:
        self.t_max = t_max
        self.terminated = False
        self.encoding = encoding
        self._hold = encoding.hold
        self._finished: list[KeptTrials] = []
        self._held: list[Any] = []
        self._rewards: list[float] = []
        self._durations: list[float] = []
        self._taken: list[Taken] = []

    @property
    def durations(self) -> FloatArray | None:
        """Durations of the first finished trial's steps (1, n), or None."""
        return self._finished[0].durations if self._finished else None

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
        """The last held observation of the trial under way."""
        return self._held[-1]

    def start(self, observation: Any) -> None:
        """Start a trial with an observation; drop any trial under way."""
        self.drop()
        self._held.append(self._hold(observation))

    def advance(
        self,
        reward: Any,
        observation: Any,
        terminated: bool,
        taken: Taken | None = None,
        duration: Any = None,
    ) -> None:
        """Record the next timestep of the trial under way."""
        if type(reward) is not float:
            reward = float(as_rewards(reward, (), len(self._rewards)))
        if not -MAX_REWARD <= reward <= MAX_REWARD:
            raise InvalidInputError(f"{bad_reward(reward)} at timestep {len(self._rewards)}")
        if duration is not None or self._durations:
            if self._rewards or self._finished:
                check_both_timed(duration, self._durations or self.durations)
            where = f"at timestep {len(self._rewards)}"
            duration = float(checked_durations(duration, (), where))
        if terminated:
            living = np.ones(1, dtype=bool)
            _refuse_unless_it_ends(self.encoding, living, len(self._rewards))
            self.terminated = True
        else:
            self._held.append(self._hold(observation))
        self._rewards.append(reward)
        if duration is not None:
            self._durations.append(duration)
        if taken is not None:
            self._taken.append(taken)

    def end(self) -> None:
        """Finish the trial under way, or raise if it is longer or shorter than the others."""
        n = self.n_timesteps
        if self.t_max is None and self.terminated:
            raise InvalidInputError(
                f"the first trial terminated at timestep {n - 1}, so it does not show how long "
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
        durations = None
        if self._durations:
            durations = np.concatenate((np.asarray(self._durations), np.ones(n_missing)))
        if self._finished:
            check_both_timed(durations, self.durations)
        self.t_max = t_max
        taken = None
        if self._taken:
            parts = (np.concatenate(each) for each in zip(*self._taken, strict=True))
            taken = Taken(*(np.pad(each, (0, n_missing))[:, None] for each in parts))
        states = self.encoding.compact(states)[None]
        times = None if durations is None else durations[None]
        self._finished.append(_kept(states, rewards[None], times, taken))
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
        self._durations = []

    def forget_finished(self) -> None:
        """Forget the finished trials, which have been added up."""
        self._finished = []

    def finished(self) -> KeptTrials:
        """Return the finished trials, encoded."""
        return KeptTrials.together(self._finished)


def _kept(
    states: States, rewards: FloatArray, durations: FloatArray | None, taken: Taken | None
) -> KeptTrials:
    """Return trials with their actions (t_max + 1, n), in the smallest integer type."""
    actions = explored = None
    if taken is not None:
        dtype = np.min_scalar_type(int(taken.action.max()))
        actions = np.ascontiguousarray(taken.action.T, dtype=dtype)
        explored = np.ascontiguousarray(taken.explored.T) if taken.explored.any() else None
    return KeptTrials(states, rewards, None, actions, explored, durations)


def as_rewards(reward: Any, shape: tuple[int, ...], t: int) -> FloatArray:
    """Return the rewards of n trials (n,), or of a single one (), as an array, checked."""
    try:
        rewards = real_array(reward, "rewards")
        if rewards.shape == shape:
            return rewards
    except InvalidInputError:
        pass
    if shape:
        raise InvalidInputError(
            f"the rewards of {shape[0]} trials are {shape[0]} numbers; got {reward!r} at timestep "
            f"{t}"
        )
    raise InvalidInputError(
        f"a reward is one number; got {reward!r} at timestep {t}: have the environment return a "
        "float, for instance by gymnasium.wrappers.TransformReward"
    )


def _refuse_unless_it_ends(encoding: Encoding, terminated: BoolArray, t: int) -> None:
    """Raise `TerminationError` unless the encoding has an end."""
    if not encoding.ends and terminated.any():
        raise TerminationError(
            f"trial {int(np.argmax(terminated))} of the round terminated at timestep {t}: the "
            "evaluator is for continuing tasks, which never terminate. Make the task continuing, "
            "for instance by starting again where it would end (lstd_agent.Restart), or take the "
            "end for an absorbing state without reward, by the agent's option "
            'on_termination="absorb"'
        )
