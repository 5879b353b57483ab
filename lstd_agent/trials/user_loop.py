"""The user's own loop: transitions observed one call at a time, checked, and counted.

Scalars are a trial of their own; batches are trials in lockstep. What is observed must be what
happened: timesteps in order, and each observation the one that followed the last.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lstd_agent.arrays import BoolArray, FloatArray
from lstd_agent.errors import InvalidInputError, check_integer
from lstd_agent.trials.batches import Batches
from lstd_agent.trials.encoding import Domain, States
from lstd_agent.trials.recording import LockstepTrials, SequentialTrials

# Single trials are counted together in rounds of this many.
_TRIALS_PER_ROUND = 25


class ObservedTrials:
    """Trials that a user's loop makes.

    Parameters
    ----------
    domain : Domain
    batches : Batches
        Where finished trials go.
    t_max : int, optional
        The last timestep; without it that of the first finished trial.
    """

    def __init__(self, domain: Domain, batches: Batches, t_max: int | None = None) -> None:
        self._domain = domain
        self._batches = batches
        self._declared_t_max = None if t_max is None else check_integer("t_max", t_max, 0)
        self._sequential = SequentialTrials(domain, None)
        self._lockstep: LockstepTrials | None = None

    @property
    def t_max(self) -> int | None:
        """The last timestep of every trial, if it is known yet."""
        known = (self._batches.t_max, self._sequential.t_max, self._declared_t_max)
        return next((t_max for t_max in known if t_max is not None), None)

    @property
    def n_waiting(self) -> int:
        """Finished trials that are not in the batches yet."""
        return self._sequential.n_finished

    @property
    def under_way(self) -> bool:
        """Whether a trial has started that has not been finished or dropped."""
        return self._lockstep is not None or self._sequential.n_timesteps > 0

    def observe(
        self,
        t: int,
        observation: Any,
        reward: ArrayLike,
        next_observation: Any,
        terminated: ArrayLike = False,
    ) -> None:
        """Record one timestep of a trial (scalars) or of trials in lockstep (batches)."""
        rewards = np.asarray(reward, dtype=np.float64)
        if not np.isfinite(rewards).all():
            raise InvalidInputError(f"rewards must be finite; got {reward!r} at timestep {t}")
        if rewards.ndim:
            self._observe_batch(t, observation, rewards, next_observation, terminated)
            return
        if self._lockstep is not None:
            raise InvalidInputError("trials in lockstep are under way: call end_trial() first")
        encode, trial = self._domain.encode_one, self._sequential
        self._check_timestep(t, trial.n_timesteps)
        state = encode(observation)
        if t == 0:
            trial.start(state)
        elif trial.terminated:
            raise InvalidInputError(
                f"the trial terminated at timestep {t - 1}; call end_trial(), then start another"
            )
        else:
            assert trial.states is not None
            _check_followed(t, state, trial.states, np.ones(1, dtype=bool))
        trial.advance(float(rewards), encode(next_observation), bool(terminated))

    def _observe_batch(
        self,
        t: int,
        observation: Any,
        rewards: FloatArray,
        next_observation: Any,
        terminated: ArrayLike,
    ) -> None:
        if self._sequential.n_timesteps:
            raise InvalidInputError("a single trial is under way: call end_trial() first")
        encode = self._domain.encode
        self._check_timestep(t, self._lockstep.n_timesteps if self._lockstep else 0)
        state, next_state = encode(observation), encode(next_observation)
        n = rewards.size
        shapes = (state.shape[:1], rewards.shape, next_state.shape[:1])
        if n == 0 or shapes != ((n,),) * 3 or np.shape(terminated) not in ((), (n,)):
            raise InvalidInputError(
                "a batch has as many observations, rewards and next observations, at least one; "
                f"got {shapes[0]}, {shapes[1]} and {shapes[2]}, terminated {np.shape(terminated)}"
            )
        if self._lockstep is None:
            self.flush()
            self._lockstep = LockstepTrials(
                self._domain, state, min(n, self._batches.n_stored_missing)
            )
        elif len(self._lockstep.states) != n:
            raise InvalidInputError(
                f"{len(self._lockstep.states)} trials are under way; got observations of {n}"
            )
        else:
            _check_followed(t, state, self._lockstep.states, self._lockstep.living)
        self._lockstep.advance(
            rewards, next_state, np.broadcast_to(np.asarray(terminated, dtype=bool), n)
        )

    def end_trial(self) -> None:
        """Finish what is under way; see `SeminormLSTDAgent.end_trial`."""
        if self._lockstep is not None:
            self._end_lockstep(self._lockstep)
        elif self.under_way:
            self._sequential.t_max = self.t_max
            self._sequential.end()
            if self._sequential.n_finished >= _TRIALS_PER_ROUND:
                self.flush()
        else:
            raise InvalidInputError("no trial is under way: observe its timesteps first")

    def _end_lockstep(self, trials: LockstepTrials) -> None:
        n, t_max = trials.n_timesteps, self.t_max
        if t_max is not None and n <= t_max and not trials.living.any():
            nothing = np.zeros(len(trials.states))
            for _ in range(n, t_max + 1):
                trials.advance(nothing, trials.states)
        elif t_max not in (None, n - 1):
            raise InvalidInputError(
                f"these trials have timesteps 0 to {n - 1}, the others 0 to {t_max}: all trials "
                "must have the same t_max. Drop them with drop_trial()"
            )
        self._batches.add(trials.finish())
        self._lockstep = None

    def drop_trial(self) -> None:
        """Forget what is under way."""
        self._lockstep = None
        self._sequential.drop()

    def flush(self) -> None:
        """Count all finished trials."""
        if self._sequential.n_finished:
            self._batches.add(self._sequential.finish(self._batches.n_stored_missing))

    def _check_timestep(self, t: int, expected: int) -> None:
        if t != expected:
            raise InvalidInputError(
                f"timestep {expected} comes next; got t = {t}. To start another trial, call "
                "end_trial() first, or drop_trial() to forget the one under way"
            )
        if self.t_max is not None and t > self.t_max:
            raise InvalidInputError(
                f"trials have timesteps 0 to {self.t_max}; got t = {t}: call end_trial() after "
                f"timestep {self.t_max}"
            )


def _check_followed(t: int, state: States, expected: States, living: BoolArray) -> None:
    """Raise unless living trials are where their last transition went."""
    same = (state == expected).reshape(len(state), -1).all(axis=1)
    if not (same | ~living).all():
        i = int(np.argmin(same | ~living))
        raise InvalidInputError(
            f"trial {i} is observed elsewhere at timestep {t} than where timestep {t - 1} left "
            "it: was the environment reset within the trial? A trial that ends must be "
            "observed with terminated=True, or dropped with drop_trial()"
        )
