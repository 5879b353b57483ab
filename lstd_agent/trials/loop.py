"""`UserLoop`: the spaces and the policy of an agent, and the trials of a user's own loop.

Scalars belong to a single trial, batches to trials in lockstep. Timesteps must come in order, and
each observation must be the one that the last transition led to.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from threading import get_ident
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from numpy.typing import ArrayLike

from lstd_agent.arrays import BoolArray
from lstd_agent.errors import InvalidInputError, NotFittedError, check_integer
from lstd_agent.features.tables import Features, Standardized, is_table
from lstd_agent.trials.collect import AnyEnv, single_spaces
from lstd_agent.trials.counted import Batches
from lstd_agent.trials.encoding import Encoding, ObservationKind, make_encoding
from lstd_agent.trials.kept import check_timed
from lstd_agent.trials.policies import Actor, Policy, StatedPolicy, make_actor
from lstd_agent.trials.recording import LockstepTrials, Recording, SequentialTrials, as_rewards
from lstd_agent.trials.spaces import is_batch, plain_array

if TYPE_CHECKING:
    from typing_extensions import Self

# Most timesteps of finished single trials that are added up together, a few megabytes; most numbers
# on which standardized features are measured.
_MOST_WAITING, _MOST_MEASURED = 2**18, 2**26


class UserLoop:
    """Observes the trials of a user's loop; while one is under way, other threads are refused."""

    on_termination: str
    observations: ObservationKind
    _features: Features
    _encoding: Encoding | None
    _stated: StatedPolicy | None
    _batches: Batches
    _lock: AbstractContextManager[Any]

    _actor: tuple[Actor, np.random.Generator, Encoding] | None = None
    _sequential: SequentialTrials | None = None
    _lockstep: LockstepTrials | None = None
    _thread = 0

    def attach(
        self,
        env: AnyEnv,
        policy: Policy | None = None,
        *,
        t_max: int | None = None,
        seed: int | None = None,
        batched: bool | None = None,
        is_same_policy: bool = False,
    ) -> Self:
        """Set the spaces and the policy for a loop of the user's own.

        Parameters
        ----------
        env : Env or VectorEnv
            Only its spaces are used.
        policy, seed, batched, is_same_policy : optional
            As in `collect`; the seed is for a stochastic policy.
        t_max : int, optional
            The last timestep of every trial; by default the last one of the first finished trial.
        """
        if not isinstance(env, gym.Env | VectorEnv):
            raise InvalidInputError(f"env must be an Env or a VectorEnv; got {env!r}")
        observation_space, action_space = single_spaces(env)
        with self._lock:
            encoding = self._encoding_of(observation_space)
            if self._under_way:
                told = "a trial is under way: call end_trial(), or drop_trial() to forget it, first"
                raise InvalidInputError(told)
            seed = None if seed is None else check_integer("seed", seed, 0)
            actor, stated = None, self._stated
            if policy is not None:
                stated = self._check_policy(policy, is_same_policy)
                actor = make_actor(stated.policy, observation_space, action_space, batched)
            t_max = None if t_max is None else check_integer("t_max", t_max, 0)
            self._add_waiting()
            if t_max is not None:
                self._batches.check_t_max(t_max)
            self._encoding, self._stated = encoding, stated
            self._begin(t_max)
            if actor is not None:
                self._actor = actor, np.random.default_rng(seed), encoding
        return self

    def act(self, observation: Any) -> Any:
        """Return the action for an ``observation``, or a batch, of the policy of `attach`."""
        if self._actor is None:
            raise NotFittedError("the agent has no policy: give one to attach()")
        actor, rng, encoding = self._actor
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
        *,
        duration: ArrayLike | None = None,
    ) -> None:
        """Record a transition of one trial (scalars), or of trials in lockstep (batches).

        Vectors are checked for finite numbers when the trial ends.

        Parameters
        ----------
        t : int
            The timestep, from 0, within the trial.
        observation, next_observation : observation or batch of n
            At t, and the next one, before any reset.
        reward, terminated : number or array_like, shape (n,)
            The reward's shape tells a batch. A trial that terminates raises `TerminationError`, or
            with ``on_termination="absorb"`` its later observations are ignored.
        duration : float or array_like, shape (n,), optional
            At least 0, of all steps of all trials or of none; the gain is then per unit of time.
        """
        trial = self._sequential or self._begin()
        if type(reward) is not float and plain_array(reward, "a reward").ndim:
            self._observe_batch(t, observation, reward, next_observation, terminated, duration)
            return
        if self._lockstep is not None:
            raise InvalidInputError("trials in lockstep are under way: call end_trial() first")
        most = trial.t_max
        if type(t) is not int or t != trial.n_timesteps or (most is not None and t > most):
            t = self._checked_timestep(t, trial.n_timesteps)
        if t == 0:
            trial.t_max, self._thread = self._t_max, get_ident()
            trial.start(observation, self._batches.is_timed)
        elif get_ident() != self._thread:
            raise _other_thread()
        elif trial.terminated:
            told = f"the trial terminated at timestep {t - 1}; call end_trial(), then start another"
            raise InvalidInputError(told)
        elif not trial.encoding.is_held(trial.last, observation):
            raise _elsewhere(0, t)
        if terminated is not False:
            terminated = bool(_flags(terminated, ()))
        trial.advance(reward, next_observation, terminated, None, duration)

    def _observe_batch(
        self, t: Any, observation: Any, reward: Any, following: Any, terminated: Any, duration: Any
    ) -> None:
        rewards, (n, *_) = as_rewards(reward, (len(reward),), t), np.shape(reward)
        single, trials = self._sequential or self._begin(), self._lockstep
        if single.n_timesteps:
            raise InvalidInputError("a single trial is under way: call end_trial() first")
        t = self._checked_timestep(t, trials.n_timesteps if trials else 0)
        if trials is not None and get_ident() != self._thread:
            raise _other_thread()
        state, next_state = map(single.encoding.encode, (observation, following))
        shapes = (state.shape[:1], rewards.shape, next_state.shape[:1])
        if n == 0 or shapes != ((n,),) * 3:
            told = f"a batch has as many observations, rewards and next observations; got {shapes}"
            raise InvalidInputError(told)
        ended = _flags(terminated, (n,))
        if trials is None:
            self._flush()
            check_timed(self._batches.is_timed, duration)
            self._thread = get_ident()
            how = self._batches.n_trials, self._batches.n_stored_trials
            trials = LockstepTrials(single.recording, state, *how)
        if len(trials.states) != n:
            told = f"{len(trials.states)} trials are under way; got observations of {n}"
            raise InvalidInputError(told)
        same = (state == trials.states).reshape(n, -1).all(axis=1) | ~trials.living
        if t > 0 and not same.all():
            raise _elsewhere(int(np.argmin(same)), t)
        trials.advance(rewards, next_state, ended, None, duration)
        self._lockstep = trials

    def end_trial(self) -> None:
        """Finish the trial, or those in lockstep; the first sets ``t_max``, unless `attach` did."""
        trial = self._sequential
        if trial is None or not self._under_way:
            raise InvalidInputError("no trial is under way: observe its timesteps first")
        if get_ident() != self._thread:
            raise _other_thread()
        if self._lockstep is not None:
            with self._lock:
                self._batches.add(self._lockstep.finish(self._t_max))
                self._lockstep = None
            return
        trial.t_max = self._t_max
        trial.end()
        if self._n_waiting * (1 + (trial.t_max or 0)) >= _MOST_WAITING:
            self._flush()

    def drop_trial(self) -> None:
        """Forget the unfinished trial, or the trials in lockstep."""
        self._lockstep = None
        if self._sequential is not None:
            self._sequential.drop()

    def _begin(self, t_max: int | None = None) -> SequentialTrials:
        """Observe trials up to t_max, by default the last timestep of the first finished one."""
        encoding = self._encoding = self._encoding_of(None)
        recording = Recording(encoding, self._batches.n_batches)
        self._sequential, self._lockstep = SequentialTrials(recording, t_max), None
        return self._sequential

    @property
    def _t_max(self) -> int | None:
        """The last timestep of every trial, if it is known yet."""
        observed = None if self._sequential is None else self._sequential.t_max
        return observed if self._batches.t_max is None else self._batches.t_max

    @property
    def _n_waiting(self) -> int:
        """Finished trials that have not been added yet."""
        return 0 if self._sequential is None else len(self._sequential.finished)

    @property
    def _under_way(self) -> bool:
        """Whether a trial has started, and not finished or been dropped."""
        trial = self._sequential
        return trial is not None and (self._lockstep is not None or trial.n_timesteps > 0)

    def _flush(self) -> None:
        """Add up all finished trials."""
        with self._lock:
            if self._sequential is not None and self._sequential.finished:
                how = self._batches.n_trials, self._batches.n_stored_trials
                self._batches.add(self._sequential.portion(*how))
                self._sequential.finished = []

    def _add_waiting(self) -> None:
        """Add up waiting trials, and measure standardized features."""
        self._flush()
        encoding: Any = self._encoding
        if encoding is None:
            return
        if not encoding.is_measured and self._batches.are_kept:
            seen = self._batches.total.observations
            encoding.measure(seen[: max(1, _MOST_MEASURED // seen[0].size)])
        if isinstance(encoding.given, Standardized):
            self._features = encoding.given

    def _encoding_of(self, space: gym.Space[Any] | None) -> Encoding:
        """Return the encoding of the space of all observations, None if features show it."""
        if self._encoding is not None:
            if space not in (None, self._encoding.space):
                raise InvalidInputError(
                    f"the agent has observed {self._encoding.space} so far; got {space}: reset() it"
                )
            return self._encoding
        if space is None:
            if not is_table(self._features):
                told = "the observation space is not known: call attach(env), or give it"
                raise NotFittedError(told)
            space = spaces.Discrete(np.shape(self._features)[0])  # type: ignore[arg-type]
        ends = self.on_termination == "absorb"
        return make_encoding(space, self._features, ends, self.observations)

    def _check_policy(self, policy: Policy, is_same: bool) -> StatedPolicy:
        """Return the policy of the next trials, or raise unless earlier trials share it."""
        stated = StatedPolicy(policy)
        if self._stated is not None and not is_same and self._batches.n_trials + self._n_waiting:
            stated.check_same(self._stated)
        return stated

    def _checked_timestep(self, t: object, expected: int) -> int:
        """Return a timestep that comes next, or raise."""
        timestep = check_integer("t", t, 0)
        if timestep != expected:
            told = f"timestep {expected} comes next; got t = {t}: end_trial() or drop_trial() first"
            raise InvalidInputError(told)
        if self._t_max is not None and timestep > self._t_max:
            told = f"trials have timesteps 0 to {self._t_max}; got t = {t}: call end_trial() before"
            raise InvalidInputError(told)
        return timestep


def _flags(terminated: Any, shape: tuple[int, ...]) -> BoolArray:
    """Return whether trials terminated, as an array of a shape, checked."""
    flags = plain_array(terminated, "terminated")
    if flags.shape not in ((), shape) or flags.dtype.kind not in "biu":
        told = f"terminated is a bool, one for each trial of a batch; got {terminated!r}"
        raise InvalidInputError(told)
    return np.broadcast_to(flags.astype(bool), shape)


def _elsewhere(trial: int, t: int) -> InvalidInputError:
    told = f"trial {trial} is observed elsewhere at timestep {t} than where timestep {t - 1} left "
    told += "it: was the environment reset? A trial ends by end_trial(), or drop_trial() forgets it"
    return InvalidInputError(told)


def _other_thread() -> InvalidInputError:
    return InvalidInputError(
        "another thread has a trial under way: take an agent a thread, and merge() them"
    )
