"""`TrialCollector`: the part of the agent that gathers trials, whichever way they come.

From an environment, which it steps itself; from the user's own loop; from another agent.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from numpy.typing import ArrayLike

from lstd_agent.errors import InvalidInputError, NotFittedError, check_integer
from lstd_agent.features.tables import Features, is_table
from lstd_agent.trials.batches import Batches
from lstd_agent.trials.encoding import Domain, States, VectorDomain, make_domain
from lstd_agent.trials.observations import as_batch, is_batch, take
from lstd_agent.trials.policies import Actor, Policy, make_actor
from lstd_agent.trials.rollouts import AnyEnv, collect_rounds, single_spaces
from lstd_agent.trials.sharding import EnvSource, collect_shards, make_env
from lstd_agent.trials.user_loop import ObservedTrials

if TYPE_CHECKING:
    from typing_extensions import Self


class TrialCollector:
    """Gathers trials into batches of sufficient statistics.

    `SeminormLSTDAgent` documents the parameters.
    """

    def __init__(
        self, features: Features, on_termination: str, n_stored_trials: int, n_batches: int
    ) -> None:
        self.features = features
        self.on_termination = on_termination
        self.n_stored_trials = check_integer("n_stored_trials", n_stored_trials, 0)
        self.n_batches = check_integer("n_batches", n_batches, 1)
        self._batches = Batches(self.n_batches, self.n_stored_trials)
        self._domain: Domain | None = None
        self._observed: ObservedTrials | None = None
        self._actor: tuple[Actor, np.random.Generator, gym.Space[Any]] | None = None

    @property
    def n_trials(self) -> int:
        """Number of finished trials so far."""
        waiting = 0 if self._observed is None else self._observed.n_waiting
        return self._batches.n_trials + waiting

    def collect(
        self,
        env: AnyEnv | EnvSource,
        policy: Policy,
        n_trials: int,
        t_max: int,
        seed: int | None = None,
        *,
        batched: bool | None = None,
        progress: bool | None = False,
        workers: int = 1,
        executor: Executor | None = None,
        shard_size: int | None = None,
    ) -> Self:
        """Run trials and add them to what has been collected.

        Finished trials stay even if the collection is interrupted: a plain environment's one
        by one, a vector environment's once all its copies are through, those of workers shard
        by shard.

        Parameters
        ----------
        env : Env, VectorEnv, str or callable
            A continuing task. The more copies a vector environment has, the faster. An id, or
            a picklable function that makes an environment, has the work cut into shards that
            workers share.
        policy : array_like or callable
            An action a state (S,), action probabilities (S, A), or a function of observations.
        n_trials, t_max : int
            Number of trials, each over timesteps 0 to t_max. Collecting again must keep t_max.
        seed : int, optional
            The same seed, environment and policy give the same trials.
        batched : bool or None
            Whether a callable policy takes batches; None tries it on the first batch.
        progress : bool or None
            Show a progress bar; None shows one on a terminal only.
        workers, executor
            Processes to start, or the `concurrent.futures.Executor` to use instead; see
            `lstd_agent.trials.parallel.run_tasks`. The result does not depend on them.
        shard_size : int, optional
            Trials of a shard; by default at most 50,000, and fewer if that makes 20 shards.

        Returns
        -------
        Self
            The agent itself.

        Raises
        ------
        TerminationError
            If a trial terminates (unless that is to be absorbed), or is truncated before
            ``t_max``.
        InvalidInputError
            If an argument does not fit.
        WorkerError
            If workers keep dying.
        """
        collect: Callable[..., None]
        if isinstance(env, gym.Env | VectorEnv):
            if workers != 1 or executor is not None or shard_size is not None:
                raise InvalidInputError(
                    "workers make their own environments: pass an id, or a function that makes "
                    f"an environment, instead of {env}"
                )
            space, _ = single_spaces(env)
            collect = partial(collect_rounds, env)
        else:
            with closing(make_env(env, 1)) as sample:
                space, _ = single_spaces(sample)
            options: dict[str, Any] = {
                "workers": workers,
                "executor": executor,
                "shard_size": shard_size,
            }
            collect = partial(collect_shards, env, **options)
        domain = self._make_domain(space)
        self._count_waiting()
        self._batches.check_t_max(t_max)
        collect(
            domain,
            policy,
            self._batches.add,
            n_trials=n_trials,
            t_max=t_max,
            seed=seed,
            n_stored=self._batches.n_stored_missing,
            batched=batched,
            progress=progress,
        )
        return self

    def attach(
        self,
        env: AnyEnv,
        policy: Policy | None = None,
        *,
        t_max: int | None = None,
        seed: int | None = None,
        batched: bool | None = None,
    ) -> Self:
        """Tell what `observe` will see, and what `act` shall do, in the user's own loop.

        Parameters
        ----------
        env : Env or VectorEnv
            Only its spaces are used.
        policy : array_like or callable, optional
            As in `collect`.
        t_max : int, optional
            The last timestep of every trial; without it that of the first finished one.
        seed : int, optional
            Of a stochastic policy's draws.
        batched : bool or None
            As in `collect`.

        Returns
        -------
        Self
            The agent itself.

        Raises
        ------
        InvalidInputError
            If a trial is under way, or an argument does not fit.
        """
        observation_space, action_space = single_spaces(env)
        domain = self._make_domain(observation_space)
        if self._observed is not None and self._observed.under_way:
            raise InvalidInputError(
                "a trial is under way: call end_trial(), or drop_trial() to forget it, first"
            )
        self._count_waiting()
        self._observed = ObservedTrials(domain, self._batches, t_max)
        if policy is not None:
            actor = make_actor(policy, observation_space, action_space, batched)
            self._actor = (actor, np.random.default_rng(seed), observation_space)
        return self

    def act(self, observation: Any) -> Any:
        """Return the policy's action for an observation, or its actions for a batch.

        Raises
        ------
        NotFittedError
            If `attach` gave no policy.
        """
        if self._actor is None:
            raise NotFittedError("the agent has no policy: give one to attach()")
        actor, rng, space = self._actor
        self._make_domain(space).encode_any(observation)
        if is_batch(space, observation):
            return actor(observation, rng)
        return take(actor(as_batch(observation), rng), 0)

    def observe(
        self,
        t: int,
        observation: Any,
        reward: ArrayLike,
        next_observation: Any,
        terminated: ArrayLike = False,
    ) -> None:
        """Record a transition of one trial (scalars), or of trials in lockstep (batches).

        Parameters
        ----------
        t : int
            The timestep, from 0, within the trial.
        observation, next_observation : observation or batch of n
            At t, and what followed it before any reset.
        reward : float or array_like, shape (n,)
            Its shape tells a batch from a single trial.
        terminated : bool or array_like, shape (n,)
            With ``on_termination="absorb"``: whether the trial ended with this transition.
            What is observed of a trial of the batch after that does not matter.

        Raises
        ------
        InvalidInputError
            If the timestep or the observation is not the one that follows the last, or an
            argument does not fit.
        TerminationError
            If the trial terminates and that is not to be absorbed.
        """
        if self._observed is None:
            domain = self._domain or self._implied_domain()
            self._observed = ObservedTrials(domain, self._batches)
        self._observed.observe(t, observation, reward, next_observation, terminated)

    def end_trial(self) -> None:
        """Finish the trial, or the trials in lockstep, that have been observed up to here.

        The first to finish tells ``t_max``, unless `attach` did. One that terminated may be
        shorter.

        Raises
        ------
        InvalidInputError
            If it is not as long as the others.
        """
        if self._observed is None:
            raise InvalidInputError("no trial is under way: observe its timesteps first")
        self._observed.end_trial()

    def drop_trial(self) -> None:
        """Forget the trial, or the trials in lockstep, under way."""
        if self._observed is not None:
            self._observed.drop_trial()

    def merge(self, other: TrialCollector) -> Self:
        """Add the trials of another agent, collected with equal features and ``t_max``.

        Returns
        -------
        Self
            The agent itself, to be fitted (again).

        Raises
        ------
        InvalidInputError
            If the two have other observations, features of vectors, or timesteps.
        """
        other._count_waiting()
        if other._domain is not None:
            domain = self._make_domain(other._domain.space)
            if domain.ends != other._domain.ends:
                raise InvalidInputError(
                    f"agents with on_termination={self.on_termination!r} and "
                    f"{other.on_termination!r} do not merge"
                )
            self._count_waiting()
            if isinstance(domain, VectorDomain) and other._batches.trials is not None:
                _check_equal_features(domain, other._domain, other._batches.trials[0])
            self._batches.merge(other._batches)
        return self

    def _make_domain(self, space: gym.Space[Any]) -> Domain:
        """Return the domain, made for this observation space by whatever comes first."""
        if self._domain is None:
            self._domain = make_domain(space, self.features, self.on_termination == "absorb")
        elif self._domain.space != space:
            raise InvalidInputError(
                f"the agent has observed {self._domain.space} so far; got {space}: make a new agent"
            )
        return self._domain

    def _implied_domain(self) -> Domain:
        """Return the domain that a feature table, one row a state, implies."""
        if not is_table(self.features):
            raise NotFittedError(
                "the observation space is not known: call attach(env) before observe()"
            )
        n_states = len(np.asarray(self.features))
        return self._make_domain(spaces.Discrete(n_states))

    def _count_waiting(self) -> None:
        if self._observed is not None:
            self._observed.flush()


def _check_equal_features(domain: Domain, other: Domain, states: States) -> None:
    """Raise unless two domains have equal features: moments of others do not add up."""
    mine, theirs = domain.features(states), other.features(states)
    if mine.shape == theirs.shape and not np.allclose(mine, theirs):
        raise InvalidInputError(
            f"the two agents have different features, such as {mine[0]} and {theirs[0]} of "
            f"observation {states[0]}: moments of different features do not add up"
        )
