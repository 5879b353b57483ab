"""`UserLoop`: transitions of the user's own loop, observed one call at a time and checked.

Scalars belong to a single trial, batches to trials in lockstep. Timesteps must come in order, and
each observation must be the one that the last transition led to.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from threading import get_ident
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lstd_agent.arrays import BoolArray
from lstd_agent.errors import InvalidInputError, NotFittedError, check_integer
from lstd_agent.trials.encoding import Encoding
from lstd_agent.trials.kept import check_timed
from lstd_agent.trials.policies import Actor
from lstd_agent.trials.recording import LockstepTrials, Recording, SequentialTrials, as_rewards
from lstd_agent.trials.spaces import is_batch, plain_array

# Number of timesteps of finished single trials that are added up together: a few megabytes.
_MOST_WAITING = 2**18


class UserLoop:
    """The policy and the trials of a user's loop.

    While a trial is under way, other threads are refused. Finished trials are ``gathered`` in an
    agent's `Batches`, under the lock. ``known`` returns the encoding of observations if nothing was
    attached, or raises.
    """

    def __init__(
        self, gathered: Any, known: Callable[[], Encoding], lock: AbstractContextManager[Any]
    ) -> None:
        self._gathered, self._known, self._lock = gathered, known, lock
        self.policy: tuple[Actor, np.random.Generator, Encoding] | None = None
        self._sequential: SequentialTrials | None = None
        self._thread = 0

    def begin(self, encoding: Encoding, t_max: int | None = None) -> SequentialTrials:
        """Observe trials up to t_max, by default the last timestep of the first finished one."""
        recording = Recording(encoding, self._gathered.n_batches)
        self._sequential = SequentialTrials(recording, None)
        self._declared_t_max = t_max
        self._lockstep: LockstepTrials | None = None
        self._longest: float = -1  # up to this timestep only the order of timesteps is checked
        return self._sequential

    @property
    def _trial(self) -> SequentialTrials:
        return self._sequential or self.begin(self._known())

    @property
    def t_max(self) -> int | None:
        """The last timestep of every trial, if it is known yet."""
        known = (self._gathered.t_max, self._trial.t_max, self._declared_t_max)
        return next((t_max for t_max in known if t_max is not None), None)

    @property
    def n_waiting(self) -> int:
        """Finished trials that have not been added yet."""
        return 0 if self._sequential is None else len(self._sequential.finished)

    @property
    def under_way(self) -> bool:
        """Whether a trial has started, and not finished or been dropped."""
        trial = self._sequential
        return trial is not None and (self._lockstep is not None or trial.n_timesteps > 0)

    def act(self, observation: Any) -> Any:
        """Return the policy's action, or its actions; see `SeminormLSTDAgent.act`."""
        if self.policy is None:
            raise NotFittedError("the agent has no policy: give one to attach()")
        actor, rng, encoding = self.policy
        if not encoding.is_single(observation):
            if is_batch(encoding.space, observation):
                encoding.encode(observation)
                return actor(observation, rng)
            encoding.hold(observation)
        return actor.one(observation, rng)

    def observe(
        self,
        t: int,
        observation: Any,
        reward: ArrayLike,
        next_observation: Any,
        terminated: ArrayLike = False,
        duration: ArrayLike | None = None,
    ) -> None:
        """Record a transition, or transitions in lockstep; see `SeminormLSTDAgent.observe`."""
        trial = self._sequential or self.begin(self._known())
        if type(reward) is not float and plain_array(reward, "a reward").ndim:
            self._observe_batch(t, observation, reward, next_observation, terminated, duration)
            return
        if self._lockstep is not None:
            raise InvalidInputError("trials in lockstep are under way: call end_trial() first")
        if t != trial.n_timesteps or t == 0 or t > self._longest or type(t) is not int:
            t = self._checked_timestep(t, trial.n_timesteps)
            self._longest = math.inf if self.t_max is None else self.t_max
        if t == 0:
            self._thread = get_ident()
            trial.start(observation, self._gathered.is_timed)
        elif get_ident() != self._thread:
            raise _other_thread()
        elif trial.terminated:
            raise InvalidInputError(
                f"the trial terminated at timestep {t - 1}; call end_trial(), then start another"
            )
        elif not trial.encoding.is_held(trial.last, observation):
            raise _elsewhere(0, t)
        if terminated is not False:
            terminated = bool(_flags(terminated, ()))
        trial.advance(reward, next_observation, terminated, None, duration)

    def _observe_batch(
        self, t: Any, observation: Any, reward: Any, following: Any, terminated: Any, duration: Any
    ) -> None:
        """Record transitions in lockstep."""
        rewards, (n, *_) = as_rewards(reward, (len(reward),), t), np.shape(reward)
        if self._trial.n_timesteps:
            raise InvalidInputError("a single trial is under way: call end_trial() first")
        encoding, trials = self._trial.encoding, self._lockstep
        t = self._checked_timestep(t, trials.n_timesteps if trials else 0)
        if trials is not None and get_ident() != self._thread:
            raise _other_thread()
        state, next_state = encoding.encode(observation), encoding.encode(following)
        shapes = (state.shape[:1], rewards.shape, next_state.shape[:1])
        if n == 0 or shapes != ((n,),) * 3:
            raise InvalidInputError(
                "a batch has as many observations, rewards and next observations, at least one; "
                f"got {shapes[0]}, {shapes[1]} and {shapes[2]}"
            )
        ended = _flags(terminated, (n,))
        if trials is None:
            self.flush()
            check_timed(self._gathered.is_timed, duration)
            self._thread = get_ident()
            how = self._gathered.n_trials, self._gathered.n_stored_trials
            trials = LockstepTrials(self._trial.recording, state, *how)
        if len(trials.states) != n:
            raise InvalidInputError(
                f"{len(trials.states)} trials are under way; got observations of {n}"
            )
        same = (state == trials.states).reshape(n, -1).all(axis=1) | ~trials.living
        if t > 0 and not same.all():
            raise _elsewhere(int(np.argmin(same)), t)
        trials.advance(rewards, next_state, ended, None, duration)
        self._lockstep = trials

    def end_trial(self) -> None:
        """Finish the trial, or the trials in lockstep; see `SeminormLSTDAgent.end_trial`."""
        if not self.under_way:
            raise InvalidInputError("no trial is under way: observe its timesteps first")
        if get_ident() != self._thread:
            raise _other_thread()
        if self._lockstep is not None:
            self._lockstep.end(self.t_max)
            with self._lock:
                self._gathered.add(self._lockstep.finish())
                self._lockstep = None
            return
        trial = self._trial
        trial.t_max = self.t_max
        trial.end()
        self._longest = -1
        if self.n_waiting * (1 + (trial.t_max or 0)) >= _MOST_WAITING:
            self.flush()

    def drop_trial(self) -> None:
        """Forget the trial, or the trials in lockstep, under way."""
        if self.under_way:
            self._lockstep = None
            self._trial.drop()

    def flush(self) -> None:
        """Add up all finished trials."""
        with self._lock:
            if self.n_waiting:
                how = self._gathered.n_trials, self._gathered.n_stored_trials
                self._gathered.add(self._trial.portion(*how))
                self._trial.finished = []

    def _checked_timestep(self, t: object, expected: int) -> int:
        """Return a timestep that comes next, or raise."""
        timestep = check_integer("t", t, 0)
        if timestep != expected:
            raise InvalidInputError(
                f"timestep {expected} comes next; got t = {t}. To start another trial, call "
                "end_trial() first, or drop_trial() to forget the one under way"
            )
        if self.t_max is not None and timestep > self.t_max:
            raise InvalidInputError(
                f"trials have timesteps 0 to {self.t_max}; got t = {t}: call end_trial() after "
                f"timestep {self.t_max}"
            )
        return timestep


def _flags(terminated: Any, shape: tuple[int, ...]) -> BoolArray:
    """Return whether trials terminated, as an array of a shape, checked."""
    flags = plain_array(terminated, "terminated")
    if flags.shape not in ((), shape) or flags.dtype.kind not in "biu":
        raise InvalidInputError(
            f"terminated is a bool, one for each trial of a batch; got {terminated!r}"
        )
    return np.broadcast_to(flags.astype(bool), shape)


def _elsewhere(trial: int, t: int) -> InvalidInputError:
    return InvalidInputError(
        f"trial {trial} is observed elsewhere at timestep {t} than where timestep {t - 1} left "
        "it: was the environment reset within the trial? A trial that ends must be "
        "observed with terminated=True, or dropped with drop_trial()"
    )


def _other_thread() -> InvalidInputError:
    return InvalidInputError(
        "another thread has a trial under way: observe the trials of each thread by an agent of "
        "its own, and merge() them"
    )
