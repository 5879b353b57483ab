"""`TrialCollector`: what gathers trials for an agent, whichever way they come.

From an environment, which it steps itself; from the user's own loop; as counts or logged trials;
from another agent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from numpy.typing import ArrayLike

from lstd_agent.errors import InvalidInputError, NotFittedError, check_choice, check_integer
from lstd_agent.features.standardized import Standardized
from lstd_agent.features.tables import Features, is_table
from lstd_agent.trials.batches import Batches
from lstd_agent.trials.counting import CountsLike, TransitionCounts
from lstd_agent.trials.encoding import (
    CountedEncoding,
    Encoding,
    ObservationKind,
    States,
    VectorEncoding,
    make_encoding,
)
from lstd_agent.trials.kept_trials import KeptTrials
from lstd_agent.trials.logged import as_logged
from lstd_agent.trials.logged_policy import check_actions
from lstd_agent.trials.logged_rounds import EncodedTrials, implied_space
from lstd_agent.trials.merging import merge_batches
from lstd_agent.trials.moment_sums import MomentSums
from lstd_agent.trials.observations import is_batch
from lstd_agent.trials.policies import Actor, Policy, make_actor
from lstd_agent.trials.recording import RecorderMaker, Round
from lstd_agent.trials.request import Request
from lstd_agent.trials.rollouts import AnyEnv, collect_rounds, single_spaces
from lstd_agent.trials.same_policy import same_policy
from lstd_agent.trials.sharding import EnvSource, collect_shards, make_env
from lstd_agent.trials.storage import Storage
from lstd_agent.trials.user_loop import ObservedTrials

if TYPE_CHECKING:
    from typing_extensions import Self

Termination = Literal["raise", "absorb"]
"""What a trial that terminates is: an error, or one that stays in a terminal state."""

DEFAULT_MAX_BYTES = 2**30


class TrialCollector:
    """Gathers trials into batches of sufficient statistics.

    Parameters
    ----------
    features : Features
        Of observations; see `lstd_agent.features.tables`.
    on_termination : {"raise", "absorb"}
    n_stored_trials, n_batches : int
        How many trials to keep whole, and in how many batches to keep sums apart.
    observations : {"auto", "counted", "vectors"}
        How observations are kept; see `lstd_agent.trials.encoding.make_encoding`.
    max_bytes : int
        Trials of vectors are kept as they are within this, and condensed into moments beyond;
        see `lstd_agent.trials.storage`.
    """

    def __init__(
        self,
        features: Features,
        on_termination: Termination = "raise",
        n_stored_trials: int = 2000,
        n_batches: int = 20,
        observations: ObservationKind = "auto",
        max_bytes: int = DEFAULT_MAX_BYTES,
    ) -> None:
        self.features = features
        self.on_termination = check_choice("on_termination", on_termination, get_args(Termination))
        self.n_stored_trials = check_integer("n_stored_trials", n_stored_trials, 0)
        self.n_batches = check_integer("n_batches", n_batches, 1)
        self.observations = check_choice("observations", observations, get_args(ObservationKind))
        self.max_bytes = check_integer("max_bytes", max_bytes, 1)
        self._forget()

    def _forget(self) -> None:
        self._batches = Batches(self.n_batches, self.n_stored_trials)
        self._storage = Storage(self._batches, self.max_bytes)
        self._encoding: Encoding | None = None
        self._observed: ObservedTrials | None = None
        self._actor: tuple[Actor, np.random.Generator, gym.Space[Any]] | None = None
        # The policy whose trials there are; None where nobody said.
        self._policy: Policy | None = None

    @property
    def n_trials(self) -> int:
        """Number of finished trials so far."""
        waiting = 0 if self._observed is None else self._observed.n_waiting
        return self._batches.n_trials + waiting

    @property
    def counts(self) -> TransitionCounts:
        """The counts of all trials so far, where observations are counted.

        They can be given to another agent's `add`, whatever its features.

        Raises
        ------
        NotFittedError
            Without any trials.
        InvalidInputError
            If observations are vectors.
        """
        total = self._total()
        if not isinstance(total, TransitionCounts):
            raise InvalidInputError(
                "vector observations are not counted: trials are in kept_trials, and merge() adds "
                "another agent's"
            )
        return total

    @property
    def kept_trials(self) -> KeptTrials:
        """All trials so far, where vector observations are kept as they came.

        They can be given to another agent's `add`, whatever its features.

        Raises
        ------
        NotFittedError
            Without any trials.
        InvalidInputError
            If observations are counted, or trials were condensed into moments.
        """
        total = self._total()
        if not isinstance(total, KeptTrials):
            raise InvalidInputError(
                "no trials are kept: counted observations have counts, and vectors beyond "
                "max_bytes have moments only"
            )
        return total

    def _total(self) -> Any:
        self._count_waiting()
        if not self._batches.sums:
            raise NotFittedError("there are no trials yet: call collect or observe first")
        return self._batches.total

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
        is_same_policy: bool = False,
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
            Whether a callable policy takes batches; None finds out, see
            `lstd_agent.trials.policies.CallableActor`.
        progress : bool or None
            Show a progress bar; None shows one on a terminal only.
        workers, executor
            Processes to start, or the `concurrent.futures.Executor` to use instead; see
            `lstd_agent.trials.parallel.run_tasks`. The result does not depend on them.
        shard_size : int, optional
            Trials of a shard; by default at most 50,000, and fewer if that makes 20 shards.
        is_same_policy : bool
            Says that the policy is that of the trials so far, although it looks like another.

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
            If an argument does not fit. Then nothing has changed.
        WorkerError
            If workers keep dying.
        """
        request = Request(n_trials, t_max, seed, batched, progress)
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
        encoding = self._encoding_of(space)
        self._check_policy(policy, is_same_policy)
        self._count_waiting()
        self._batches.check_t_max(request.t_max)
        request = replace(request, n_stored=self._n_to_store(encoding))

        def plan(states: States) -> RecorderMaker:
            return self._storage.plan(encoding, request.n_trials, request.t_max, states)

        def keep(finished: Round) -> None:
            self._storage.add(encoding, finished)
            self._encoding, self._policy = encoding, policy

        collect(encoding, policy, plan, keep, request)
        return self

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
        is_same_policy : bool
            As in `collect`.

        Returns
        -------
        Self
            The agent itself.

        Raises
        ------
        InvalidInputError
            If a trial is under way, or an argument does not fit. Then nothing has changed.
        """
        if not isinstance(env, gym.Env | VectorEnv):
            raise InvalidInputError(f"env must be an Env or a VectorEnv; got {env!r}")
        observation_space, action_space = single_spaces(env)
        encoding = self._encoding_of(observation_space)
        if self._observed is not None and self._observed.under_way:
            raise InvalidInputError(
                "a trial is under way: call end_trial(), or drop_trial() to forget it, first"
            )
        if t_max is not None:
            t_max = check_integer("t_max", t_max, 0)
        if seed is not None:
            seed = check_integer("seed", seed, 0)
        actor = None
        if policy is not None:
            self._check_policy(policy, is_same_policy)
            draws = make_actor(policy, observation_space, action_space, batched)
            actor = (draws, np.random.default_rng(seed), observation_space)
        self._count_waiting()
        if t_max is not None:
            self._batches.check_t_max(t_max)
        self._encoding = encoding
        self._observed = self._observe_with(encoding, t_max)
        if actor is not None:
            self._actor, self._policy = actor, policy
        return self

    def act(self, observation: Any) -> Any:
        """Return the policy's action for an observation, or its actions for a batch.

        Raises
        ------
        NotFittedError
            If `attach` gave no policy.
        """
        if self._actor is None or self._encoding is None:
            raise NotFittedError("the agent has no policy: give one to attach()")
        actor, rng, space = self._actor
        if self._encoding.is_single(observation):
            return actor.one(observation, rng)
        if is_batch(space, observation):
            self._encoding.encode(observation)
            return actor(observation, rng)
        self._encoding.hold(observation)
        return actor.one(observation, rng)

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
            argument does not fit. Whether the numbers of vectors are finite is looked at when
            the trial ends.
        TerminationError
            If the trial terminates and that is not to be absorbed.
        """
        if self._observed is None:
            if self._encoding is None:
                self._encoding = self._implied_encoding()
            self._observed = self._observe_with(self._encoding, None)
        self._observed.observe(t, observation, reward, next_observation, terminated)

    def end_trial(self) -> None:
        """Finish the trial, or the trials in lockstep, that have been observed up to here.

        The first to finish tells ``t_max``, unless `attach` did. One that terminated may be
        shorter.

        Raises
        ------
        InvalidInputError
            If it is not as long as the others, or one of its observations is none.
        """
        if self._observed is None:
            raise InvalidInputError("no trial is under way: observe its timesteps first")
        self._observed.end_trial()

    def drop_trial(self) -> None:
        """Forget the trial, or the trials in lockstep, under way."""
        if self._observed is not None:
            self._observed.drop_trial()

    def add(self, data: CountsLike | KeptTrials | TrialCollector) -> Self:
        """Add trials that somebody else has collected, as one round.

        Parameters
        ----------
        data : TransitionCounts, KeptTrials or agent
            Counts, such as `unichain_gym.simulate_counts` and another agent's `counts` are: of
            states 0 to S - 1 in the order of the observations. Logged trials
            (`KeptTrials.of`): those of countable observations are counted. An agent: as
            `merge` does.

        Returns
        -------
        Self
            The agent itself.

        Raises
        ------
        InvalidInputError
            If they cannot be trials of this task, or are of another length. Then nothing has
            changed.
        """
        if isinstance(data, TrialCollector):
            return self.merge(data)
        if isinstance(data, KeptTrials):
            encoding = self._encoding or self._implied_encoding()
            finished = self._round_of(encoding, data)
        else:
            for name in ("n_states", "n_trials", "transition_counts", "reward_sums"):
                if not hasattr(data, name):
                    raise InvalidInputError(
                        "add() takes TransitionCounts, KeptTrials or another agent; got "
                        f"{data!r}, which has no {name}"
                    )
            counts = TransitionCounts.of(data)
            encoding = self._encoding or self._encoding_of(spaces.Discrete(counts.n_states))
            if not isinstance(encoding, CountedEncoding) or encoding.n_states != counts.n_states:
                n_states = getattr(encoding, "n_states", "no countable")
                terminal = ", the terminal one included" if encoding.ends else ""
                raise InvalidInputError(
                    f"the agent has {n_states} states{terminal}; got counts of {counts.n_states}"
                )
            finished = Round(counts, np.empty(0))
        self._count_waiting()
        self._batches.check_t_max(finished.sums.t_max)
        self._storage.add(encoding, finished)
        self._encoding = encoding
        return self

    def add_trials(
        self,
        observations: Any,
        rewards: Iterable[ArrayLike] | None = None,
        actions: Iterable[ArrayLike] | None = None,
        *,
        terminated: ArrayLike | None = None,
        t_max: int | None = None,
        policy: Policy | None = None,
        batched: bool | None = None,
        is_same_policy: bool = False,
        observation_space: gym.Space[Any] | None = None,
    ) -> Self:
        """Add logged trials, of whatever lengths.

        A trial that is shorter than the longest was cut short, which is no end of the task: its
        transitions count for what they show, and each timestep's equations use the trials that
        have it. Occupancies, mean rewards and the gain are means over the trials that were there:
        one-step equations stay right if trials were cut short for what was observed, while a
        mean over those that were left is one over them alone.

        Parameters
        ----------
        observations : array_like (m, n + 1, ...), list of batches, LoggedTrials or Minari dataset
            As `LoggedTrials.of` takes them: one more than there are rewards, the last one what
            followed the last reward. Tables come by `LoggedTrials.from_frame`.
        rewards : array_like (m, n) or list of array_like (n,)
            ``rewards[i][t]`` is paid on leaving ``observations[i][t]``.
        actions : array_like (m, n, ...) or list of array_like, optional
        terminated : array_like of bool, shape (m,), optional
            Which trials ended with their last transition, with ``on_termination="absorb"``.
        t_max : int, optional
            The last timestep: what was logged beyond is left out. By default the longest trial's,
            or that of the trials so far.
        policy : array_like or callable, optional
            Whose trials they are said to be: refused if it never takes one of the actions, or
            hardly as often. Without it they are taken for those of the policy that is evaluated.
        batched : bool or None
            As in `collect`.
        is_same_policy : bool
            As in `collect`.
        observation_space : Space, optional
            Needed where neither `attach`, `collect`, the log nor the features tell it: vectors of
            floats are unbounded without it.

        Returns
        -------
        Self
            The agent itself.

        Raises
        ------
        InvalidInputError
            If they cannot be trials of this task and policy. Then nothing has changed.
        TerminationError
            If a trial terminated, unless that is to be absorbed.
        """
        trials = as_logged(observations, rewards, actions, terminated)
        space = observation_space or implied_space(trials)
        if self._encoding is not None and observation_space is None:
            encoding = self._encoding
        else:
            encoding = self._implied_encoding() if space is None else self._encoding_of(space)
        if policy is not None:
            self._check_policy(policy, is_same_policy)
            check_actions(policy, trials, encoding.space, batched)
        self._count_waiting()
        encoded = EncodedTrials(encoding, trials, t_max, self._batches.t_max)
        self._batches.check_t_max(encoded.t_max)
        for finished in encoded.rounds(self._batches):
            self._storage.add(encoding, finished)
        self._encoding = encoding
        self._policy = self._policy if policy is None else policy
        return self

    def merge(self, other: TrialCollector) -> Self:
        """Add the trials of another agent, with observations and ``t_max`` like this one's.

        Features need not be the same, except where trials were condensed into their moments.

        Returns
        -------
        Self
            The agent itself, to be fitted (again).

        Raises
        ------
        InvalidInputError
            If the two have other observations, timesteps, policies or moments. Then nothing has
            changed.
        """
        other._count_waiting()
        if other._encoding is None:
            return self
        encoding = self._encoding_of(other._encoding.space)
        if encoding.ends != other._encoding.ends:
            raise InvalidInputError(
                f"agents with on_termination={self.on_termination!r} and "
                f"{other.on_termination!r} do not merge"
            )
        if type(encoding) is not type(other._encoding):
            raise InvalidInputError(
                "one of the agents counts its observations and the other does not: give both the "
                "same observations="
            )
        if not (callable(self._policy) or callable(other._policy)) and other._policy is not None:
            self._check_policy(other._policy, False)
        self._count_waiting()
        merge_batches(self._storage, encoding, other._batches, other._encoding)
        self._encoding = encoding
        self._policy = other._policy if self._policy is None else self._policy
        return self

    def reset(self) -> Self:
        """Forget all trials, observations and policies; the options stay.

        Returns
        -------
        Self
            The agent itself.
        """
        self._forget()
        return self

    def use_features(self, features: Features) -> Self:
        """Use other features from here on, of the trials so far too.

        Parameters
        ----------
        features : Features

        Returns
        -------
        Self
            The agent itself, to be fitted (again).

        Raises
        ------
        InvalidInputError
            If trials were condensed into moments of the features so far, or the features do
            not fit the observations. Then nothing has changed.
        """
        self._count_waiting()
        if self._batches.sums and isinstance(self._batches.sums[0], MomentSums):
            raise InvalidInputError(
                "the trials were condensed into moments of the features so far, which say nothing "
                "of others: collect again, within max_bytes"
            )
        if self._encoding is not None:
            if self._observed is not None and self._observed.under_way:
                raise InvalidInputError("a trial is under way: end or drop it first")
            self._encoding = self._encoding.with_features(features)
            if self._observed is not None:
                self._observed = self._observe_with(self._encoding, self._observed.t_max)
        self.features = features
        return self

    def _encoding_of(self, space: gym.Space[Any]) -> Encoding:
        """Return the encoding of an observation space, which must be that of all trials."""
        if self._encoding is None:
            ends = self.on_termination == "absorb"
            return make_encoding(space, self.features, ends, self.observations)
        if self._encoding.space != space:
            raise InvalidInputError(
                f"the agent has observed {self._encoding.space} so far; got {space}: make a new "
                "agent, or forget what it has observed with reset()"
            )
        return self._encoding

    def _implied_encoding(self) -> Encoding:
        """Return the encoding that a feature table, one row a state, implies."""
        if not is_table(self.features):
            raise NotFittedError(
                "the observation space is not known: call attach(env) before observe() or add()"
            )
        table: Any = self.features
        return self._encoding_of(spaces.Discrete(np.shape(table)[0]))

    def _observe_with(self, encoding: Encoding, t_max: int | None) -> ObservedTrials:
        plan = partial(self._storage.plan, encoding, None, t_max)
        return ObservedTrials(
            encoding, self._batches, plan, partial(self._storage.add, encoding), t_max
        )

    def _n_to_store(self, encoding: Encoding) -> int:
        """Return how many trials to store whole beside sums that do not hold them."""
        return self._batches.n_stored_missing if not self._batches.are_kept else 0

    def _round_of(self, encoding: Encoding, trials: KeptTrials) -> Round:
        """Return logged trials as a round of this agent's own."""
        trials = KeptTrials.of(trials.observations, trials.rewards)
        states = encoding.encode_logged(trials.observations)
        if isinstance(encoding, VectorEncoding):
            return Round(KeptTrials(states, trials.rewards), np.empty(0))
        recorder = self._storage.plan(encoding, None, None, states[:1, 0])()
        sums = recorder.of_whole(states.T, trials.rewards.T)
        return Round(sums, states[: self._batches.n_stored_missing, :-1].astype(encoding.dtype))

    def _check_policy(self, policy: Policy, is_same: bool) -> None:
        if self._policy is None or is_same or not self._batches.sums:
            return
        if not same_policy(self._policy, policy):
            raise InvalidInputError(
                "the trials so far are of another policy, and values are those of one policy: "
                "forget them with reset(), make a new agent, or say that it is the same with "
                "is_same_policy=True"
            )

    def _count_waiting(self) -> None:
        """Add up trials that wait, and measure what features are standardized by."""
        if self._observed is not None:
            self._observed.flush()
        if self._encoding is None:
            return
        encoding, batches = self._encoding, self._batches
        if isinstance(encoding, VectorEncoding) and not encoding.is_measured and batches.are_kept:
            encoding.measure(KeptTrials.together(batches.sums).observations)
        given = encoding.given
        if isinstance(given, Standardized):
            self.features = given
