"""Recording: from steps, one by one or in lockstep, to a portion of trials.

`LockstepTrials` run together, one call a timestep. `SequentialTrials` run one after the other. Both
check each step. A trial that terminates stays in the terminal state for the rest of its timesteps.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lstd_agent.arrays import BoolArray, FloatArray, IntArray, States
from lstd_agent.errors import InvalidInputError, TerminationError
from lstd_agent.trials.counted import Portion, Recording, TrialSample
from lstd_agent.trials.encoding import Encoding
from lstd_agent.trials.kept import (
    KeptTrials,
    bad_reward,
    check_rewards,
    check_timed,
    checked_durations,
    padded,
)
from lstd_agent.trials.spaces import MAX_REWARD, real_array

# Timesteps are counted together until there are this many transitions.
_BLOCK = 2**13


class Taken(NamedTuple):
    """Actions of n trials (n,), from 0, and which were exploratory."""

    action: IntArray
    explored: BoolArray


class LockstepTrials:
    """Trials that are observed together, from encoded states (n, ...) on.

    The first trial has number ``first``; ``n_stored`` counted trials are kept whole.
    """

    def __init__(
        self, recording: Recording, states: States, first: int = 0, n_stored: int = 0
    ) -> None:
        recording.encoding.check_features(states)
        self.n_timesteps, self.states = 0, states
        self.living: BoolArray = np.ones(len(states), dtype=bool)
        self.is_timed: bool | None = None  # not known before the first step
        self._encoding, self._counter = recording.encoding, recording.counter(first)
        self._n_whole = len(states) if self._counter is None else min(n_stored, len(states))
        # Timesteps that wait to be counted: states, rewards, durations, actions, exploratory ones.
        self._states: list[States] = [states]
        self._waiting: list[tuple[Any, ...]] = []
        self._whole: list[list[Any]] = []  # the same, of trials that are kept whole

    def advance(
        self,
        reward: FloatArray,
        next_state: States,
        terminated: BoolArray | None = None,
        taken: Taken | None = None,
        duration: Any = None,
    ) -> None:
        """Record the next timestep of n trials; trials that have terminated are ignored."""
        living, have_ended = self.living, self._encoding.ends and not self.living.all()
        if have_ended:
            reward = np.where(living, reward, 0.0)
            if np.shape(duration) == reward.shape:
                duration = np.where(living, duration, 1.0)
        where = f"at timestep {self.n_timesteps} of trial {{0}} of the round"
        check_rewards(reward, where)
        if duration is not None:
            duration = np.array(checked_durations(duration, reward.shape, where))
        check_timed(self.is_timed, duration)
        if terminated is not None and terminated.any():
            _refuse_unless_it_ends(self._encoding, living & terminated, self.n_timesteps)
            self.living, have_ended = living & ~terminated, True
        if have_ended:
            next_state = next_state.copy()
            next_state[~self.living] = self._encoding.terminal
        self._states.append(next_state)
        # A copy: an environment may write its next rewards into the same array.
        self._waiting.append((np.array(reward), duration, *(taken or (None, None))))
        self.states, self.is_timed = next_state, duration is not None
        self.n_timesteps += 1
        if self._counter is not None and len(self._waiting) * len(reward) >= _BLOCK:
            self._count()

    def _count(self) -> None:
        """Count the waiting timesteps, and keep those of some trials."""
        columns = [self._states, *zip(*self._waiting, strict=True)]
        parts: list[Any] = [c[-1] if c[-1] is None else np.stack(c).swapaxes(0, 1) for c in columns]
        if self._counter is not None:
            states, rewards, durations, actions, explored = parts
            self._counter.count(KeptTrials(states, rewards, None, actions, explored, durations))
        if n := self._n_whole:
            some: list[Any] = [part if part is None else part[:n].copy() for part in parts]
            some[0] = self._encoding.compact(some[0][:, 1 if self._whole else 0 :])
            self._whole.append(some)
        self._states, self._waiting = self._states[-1:], []

    def end(self, t_max: int | None) -> None:
        """Let trials that have all terminated rest until t_max; others must have got there."""
        n = self.n_timesteps
        if t_max is not None and n <= t_max and not self.living.any():
            nothing, times = np.zeros(len(self.states)), 1.0 if self.is_timed else None
            for _ in range(n, t_max + 1):
                self.advance(nothing, self.states, None, None, times)
        elif t_max not in (None, n - 1):
            raise InvalidInputError(
                f"these trials have timesteps 0 to {n - 1}, the others 0 to {t_max}: all trials "
                "must have the same t_max. Drop them with drop_trial()"
            )

    def finish(self) -> Portion:
        """Return the trials, all of them over the same timesteps."""
        if self._waiting:
            self._count()
        whole = sample = None
        if self._whole:
            columns = zip(*self._whole, strict=True)
            parts: list[Any] = [
                c[0] if c[0] is None else np.ascontiguousarray(np.concatenate(c, axis=1))
                for c in columns
            ]
            states, rewards, durations, action, explored = parts
            if action is not None:
                action = action.astype(np.min_scalar_type(int(action.max())))
                explored = explored if explored.any() else None
            whole = KeptTrials(states, rewards, None, action, explored, durations)
        if self._counter is None:
            assert whole is not None
            return whole
        if whole is not None:
            sample = TrialSample.of(whole, self._n_whole)
        return self._counter.portion(len(self.states), sample)


class SequentialTrials:
    """Trials that are observed one after the other, up to t_max.

    Without ``t_max`` the first finished trial sets it to its last timestep.
    """

    def __init__(self, encoding: Encoding, t_max: int | None) -> None:
        self.encoding, self.t_max = encoding, t_max
        self._hold, self._is_checked = encoding.hold, False
        # States, rewards, durations, actions, and whether it terminated, of each finished trial.
        self.finished: list[tuple[Any, ...]] = []
        self.drop()

    @property
    def n_timesteps(self) -> int:
        """Timesteps of the trial under way so far."""
        return len(self._rewards)

    @property
    def last(self) -> Any:
        """The last held observation of the trial under way."""
        return self._held[-1]

    def start(self, observation: Any, is_timed: bool | None = None) -> None:
        """Start a trial with an observation; drop any trial under way.

        ``is_timed`` says whether steps of other trials have durations, if that is known. The first
        observation of all shows whether features can be computed.
        """
        self.drop()
        held: Any = self._hold(observation)
        if not self._is_checked:
            self.encoding.check_features(self.encoding.encode_held([held]))
            self._is_checked = True
        self._held.append(held)
        if is_timed is None and self.finished:
            is_timed = bool(self.finished[0][2])
        self._is_timed = is_timed

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
        if duration is not None or self._is_timed:
            check_timed(self._is_timed, duration)
            where = f"at timestep {len(self._rewards)}"
            duration = float(checked_durations(duration, (), where))
        if terminated:
            _refuse_unless_it_ends(self.encoding, np.ones(1, dtype=bool), len(self._rewards))
            self.terminated = True
        else:
            self._held.append(self._hold(observation))
        self._rewards.append(reward)
        self._is_timed = duration is not None
        if self._is_timed:
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
        if n > t_max + 1 or (n < t_max + 1 and not self.terminated):
            raise InvalidInputError(
                f"this trial has timesteps 0 to {n - 1}, the others 0 to {t_max}: all "
                "trials must have the same t_max (was it truncated? then raise the "
                "environment's max_episode_steps). Drop it with drop_trial()"
            )
        states = self.encoding.compact(self._encode_held())
        if self.terminated:  # one more state, as in trials that go on
            states = np.append(states, states[-1:], axis=0)
        self.finished.append((states, self._rewards, self._durations, self._taken, self.terminated))
        self.t_max = t_max
        self.drop()

    def whole(self) -> KeptTrials:
        """Return the finished trials."""
        states, rewards, durations, taken, ended = zip(*self.finished, strict=True)
        lengths, ends = np.array([len(each) for each in rewards]), np.array(ended)
        flat: dict[str, Any] = {"rewards": np.concatenate(rewards)}
        if durations[0]:
            flat["durations"] = np.concatenate(durations)
        if taken[0]:
            steps = (step for each in taken for step in each)
            action, explored = (np.concatenate(c) for c in zip(*steps, strict=True))
            flat.update(actions=action, explored=explored if explored.any() else None)
        assert self.t_max is not None
        how = self.t_max, self.encoding.terminal
        return padded(np.concatenate(states), lengths, ends, *how, **flat)

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
        self.terminated, self._is_timed = False, None
        self._held: list[Any] = []
        self._rewards: list[float] = []
        self._durations: list[float] = []
        self._taken: list[Taken] = []


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
