"""`UserLoop`: transitions of the user's own loop, observed one call at a time, checked and counted.

Scalars are a trial of their own; batches are trials in lockstep. What is observed must be what
happened: timesteps in order, and each observation the one that followed the last.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lstd_agent.arrays import BoolArray, States
from lstd_agent.errors import InvalidInputError, NotFittedError
from lstd_agent.trials.batches import Batches
from lstd_agent.trials.encoding import Encoding
from lstd_agent.trials.observations import is_batch
from lstd_agent.trials.policies import Actor
from lstd_agent.trials.recorders import Recorder, RecorderMaker, TrialRecorder
from lstd_agent.trials.recording import LockstepTrials, SequentialTrials, round_size
from lstd_agent.trials.rollouts import as_rewards


class UserLoop:
    """What a policy does in a user's loop, and the trials that the loop makes.

    Parameters
    ----------
    batches : Batches
        Takes finished trials, and tells how long trials are.
    known : callable
        Returns the encoding of observations where nothing was attached, or raises.
    """

    def __init__(self, batches: Batches, known: Callable[[], Encoding]) -> None:
        self._batches = batches
        self._known = known
        self._policy: tuple[Actor, np.random.Generator, Encoding] | None = None
        self._sequential: SequentialTrials | None = None

    def begin(self, encoding: Encoding, t_max: int | None = None) -> SequentialTrials:
        """Observe trials from here on, none of which is under way or waits.

        Parameters
        ----------
        encoding : Encoding
        t_max : int, optional
            The last timestep; without it that of the first finished trial.
        """
        self._sequential = SequentialTrials(encoding, None)
        self._declared_t_max = t_max
        self._lockstep: LockstepTrials | None = None
        self._make_recorder: RecorderMaker | None = None
        # How far timesteps need no closer look.
        self._longest: float = -1
        return self._sequential

    def act_by(self, actor: Actor, rng: np.random.Generator) -> None:
        """Have a policy act on the observations from here on."""
        self._policy = actor, rng, self._trial.encoding

    @property
    def _trial(self) -> SequentialTrials:
        return self._sequential or self.begin(self._known())

    @property
    def t_max(self) -> int | None:
        """The last timestep of every trial, if it is known yet."""
        known = (self._batches.t_max, self._trial.t_max, self._declared_t_max)
        return next((t_max for t_max in known if t_max is not None), None)

    @property
    def n_waiting(self) -> int:
        """Finished trials that are not in the batches yet."""
        return 0 if self._sequential is None else self._sequential.n_finished

    @property
    def under_way(self) -> bool:
        """Whether a trial has started that has not been finished or dropped."""
        trial = self._sequential
        return trial is not None and (self._lockstep is not None or trial.n_timesteps > 0)

    def act(self, observation: Any) -> Any:
        """Return the policy's action, or its actions; see `SeminormLSTDAgent.act`."""
        if self._policy is None:
            raise NotFittedError("the agent has no policy: give one to attach()")
        actor, rng, encoding = self._policy
        if encoding.is_single(observation):
            return actor.one(observation, rng)
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
    ) -> None:
        """Record a transition, or transitions in lockstep; see `SeminormLSTDAgent.observe`."""
        trial = self._sequential or self.begin(self._known())
        if type(reward) is not float and np.ndim(reward):
            self._observe_batch(t, observation, reward, next_observation, terminated)
            return
        if self._lockstep is not None:
            raise InvalidInputError("trials in lockstep are under way: call end_trial() first")
        if t != trial.n_timesteps or t == 0 or t > self._longest:
            self._check_timestep(t, trial.n_timesteps)
            self._longest = math.inf if self.t_max is None else self.t_max
        if t == 0:
            trial.start(observation)
            self._plan_once(trial)
        elif trial.terminated:
            raise InvalidInputError(
                f"the trial terminated at timestep {t - 1}; call end_trial(), then start another"
            )
        elif not trial.encoding.is_held(trial.last, observation):
            raise _elsewhere(0, t)
        trial.advance(reward, next_observation, bool(terminated))

    def _plan_once(self, trial: SequentialTrials) -> None:
        """Decide how single trials are recorded, once the first has started."""
        if self._make_recorder is None:
            try:
                states = trial.encoding.encode_held([trial.last])
                self._make_recorder = self._batches.plan(trial.encoding, None, None, states)
            except BaseException:
                trial.drop()
                raise

    def _observe_batch(
        self,
        t: int,
        observation: Any,
        reward: Any,
        next_observation: Any,
        terminated: ArrayLike,
    ) -> None:
        rewards = as_rewards(reward, len(reward), t)
        if self._trial.n_timesteps:
            raise InvalidInputError("a single trial is under way: call end_trial() first")
        encoding = self._trial.encoding
        self._check_timestep(t, self._lockstep.n_timesteps if self._lockstep else 0)
        state, next_state = encoding.encode(observation), encoding.encode(next_observation)
        n = rewards.size
        shapes = (state.shape[:1], rewards.shape, next_state.shape[:1])
        if n == 0 or shapes != ((n,),) * 3 or np.shape(terminated) not in ((), (n,)):
            raise InvalidInputError(
                "a batch has as many observations, rewards and next observations, at least one; "
                f"got {shapes[0]}, {shapes[1]} and {shapes[2]}, terminated {np.shape(terminated)}"
            )
        if self._lockstep is None:
            self.flush()
            recorder = self._batches.plan(encoding, n, self.t_max, state)()
            n_stored = min(n, self._n_to_store(recorder))
            self._lockstep = LockstepTrials(encoding, recorder, state, n_stored)
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
        """Finish the trial, or the trials in lockstep, that have been observed up to here.

        The first to finish tells ``t_max``, unless `attach` did. One that terminated may be
        shorter.

        Raises
        ------
        InvalidInputError
            If it is not as long as the others, or one of its observations is none.
        """
        if not self.under_way:
            raise InvalidInputError("no trial is under way: observe its timesteps first")
        if self._lockstep is not None:
            self._end_lockstep(self._lockstep)
            return
        self._trial.t_max = self.t_max
        self._trial.end()
        self._longest = -1
        t_max = self._trial.t_max
        assert t_max is not None
        if self.n_waiting >= round_size(self._batches.n_trials, t_max):
            self.flush()

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
        self._batches.add(trials.finish(), self._trial.encoding)
        self._lockstep = None

    def drop_trial(self) -> None:
        """Forget the trial, or the trials in lockstep, under way."""
        if self.under_way:
            self._lockstep = None
            self._trial.drop()

    def flush(self) -> None:
        """Add up all finished trials."""
        if self.n_waiting:
            assert self._make_recorder is not None
            recorder, self._make_recorder = self._make_recorder(), None
            finished = self._trial.finish(recorder, self._n_to_store(recorder))
            self._batches.add(finished, self._trial.encoding)

    def _n_to_store(self, recorder: Recorder) -> int:
        """Return how many trials to store whole beside sums that do not hold them."""
        return 0 if isinstance(recorder, TrialRecorder) else self._batches.n_stored_missing

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
        raise _elsewhere(int(np.argmin(same | ~living)), t)


def _elsewhere(trial: int, t: int) -> InvalidInputError:
    return InvalidInputError(
        f"trial {trial} is observed elsewhere at timestep {t} than where timestep {t - 1} left "
        "it: was the environment reset within the trial? A trial that ends must be "
        "observed with terminated=True, or dropped with drop_trial()"
    )
