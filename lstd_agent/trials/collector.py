"""`TrialCollector`: what gathers trials for an agent, whichever way they come.

From an environment, which it steps itself; from the user's own loop; as counts or logged trials;
from another agent. `SeminormLSTDAgent` holds one, and says what its methods take.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from numpy.typing import ArrayLike

from lstd_agent.arrays import States
from lstd_agent.delegation import delegated
from lstd_agent.errors import InvalidInputError, NotFittedError, check_choice, check_integer
from lstd_agent.features.standardized import Standardized
from lstd_agent.features.tables import Features, is_table
from lstd_agent.trials.action_counts import ActionCounts
from lstd_agent.trials.batches import Batches
from lstd_agent.trials.counting import CountsLike, TransitionCounts
from lstd_agent.trials.encoding import Encoding, ObservationKind, make_encoding
from lstd_agent.trials.exploration import discrete_actions
from lstd_agent.trials.kept_trials import KeptTrials
from lstd_agent.trials.logged import as_logged
from lstd_agent.trials.logged_actions import action_numbers, check_actions
from lstd_agent.trials.logged_rounds import EncodedTrials, implied_space
from lstd_agent.trials.merging import (
    check_same_kind,
    counts_of,
    merge_batches,
    round_of_counts,
    round_of_trials,
)
from lstd_agent.trials.policies import Policy, make_actor
from lstd_agent.trials.recorders import RecorderMaker, Round, Sums
from lstd_agent.trials.request import Request
from lstd_agent.trials.rollouts import AnyEnv, single_spaces
from lstd_agent.trials.room import DEFAULT_MAX_BYTES
from lstd_agent.trials.same_policy import StatedPolicy
from lstd_agent.trials.sharding import EnvSource, runner_of, spaces_of
from lstd_agent.trials.user_loop import UserLoop

Termination = Literal["raise", "absorb"]
"""What a trial that terminates is: an error, or one that stays in a terminal state."""


class TrialCollector:
    """Gathers trials into batches of sufficient statistics.

    Parameters
    ----------
    features, on_termination, n_stored_trials, n_batches, observations, max_bytes
        As of `SeminormLSTDAgent`.

    Attributes
    ----------
    batches : Batches
        All finished trials, in batches.
    n_trials : int
        Their number.
    counts, kept_trials : TransitionCounts, KeptTrials
        All of them, where they are counted, and where they are kept as they came.
    account : str
        How trials of vectors are kept.
    encoding : Encoding or None
        Of observations; None until their space is known.
    actions : tuple of int or None
        How many Discrete actions there are, and the first of them, once that is known.
    policy : policy or None
        Whose trials they are; None where nobody said.
    loop : UserLoop
        The user's own loop.

    Methods
    -------
    collect, attach, act, observe, end_trial, drop_trial, add, add_trials, merge, use_features,
    reset
        As of the agent.
    restore
        Take what a file holds.

    Notes
    -----
    Whatever raises `InvalidInputError` has changed nothing.

    Examples
    --------
    >>> import unichain_gym
    >>> from lstd_agent import OneHot, TrialCollector
    >>> collector = TrialCollector(OneHot())
    >>> collector.collect("Unichain-h6-v0", [0] * 6, Request(n_trials=100, t_max=20, seed=0))
    >>> collector.counts.transition_counts.sum(axis=1).tolist() == [100] * 21
    True
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
        self.reset()

    def reset(self) -> None:
        """Forget all trials, observations and policies; the options stay."""
        self._batches = Batches(self.n_batches, self.n_stored_trials, self.max_bytes)
        self.loop = UserLoop(self._batches, self._known_encoding)
        self._stated: StatedPolicy | None = None
        self.encoding: Encoding | None = None
        self.actions: tuple[int, int] | None = None

    @property
    def batches(self) -> Batches:
        """All finished trials, in batches."""
        self._count_waiting()
        return self._batches

    @property
    def policy(self) -> Policy | None:
        """The policy whose trials there are; None where nobody said."""
        return None if self._stated is None else self._stated.policy

    @property
    def n_trials(self) -> int:
        """Number of finished trials so far."""
        return self._batches.n_trials + self.loop.n_waiting

    @property
    def counts(self) -> TransitionCounts:
        """The counts of all trials so far, where observations are counted.

        They can be given to another agent's `add`, whatever its features. Raises `NotFittedError`
        without any trials, and `InvalidInputError` if observations are vectors.
        """
        counts = self._total().counts
        if counts is None:
            raise InvalidInputError(
                "vector observations are not counted: trials are in kept_trials, and merge() adds "
                "another agent's"
            )
        return counts

    @property
    def kept_trials(self) -> KeptTrials:
        """All trials so far, where vector observations are kept as they came.

        They can be given to another agent's `add`, whatever its features. Raises `NotFittedError`
        without any trials, and `InvalidInputError` if they are counted or condensed into moments.
        """
        kept = self._total().kept
        if kept is None:
            raise InvalidInputError(
                "no trials are kept: counted observations have counts, and vectors beyond "
                "max_bytes have moments only"
            )
        return kept

    @property
    def account(self) -> str:
        """How trials of vectors are kept, as text; empty where they are counted."""
        return "" if self.encoding is None else self.batches.account(self.encoding)

    def _total(self) -> Sums:
        if not self.batches.sums:
            raise NotFittedError("there are no trials yet: call collect or observe first")
        return self._batches.total

    def collect(self, env: AnyEnv | EnvSource, policy: Policy, request: Request) -> None:
        """Run trials and add them; see `SeminormLSTDAgent.collect`."""
        run = runner_of(env, request)
        space, action_space = spaces_of(env)
        encoding = self._encoding_of(space)
        stated = self._check_policy(policy, request.is_same_policy)
        self._count_waiting()
        self._batches.check_t_max(request.t_max)
        if not self._batches.are_kept:
            request = replace(request, n_stored=self._batches.n_stored_missing)

        def plan(states: States) -> RecorderMaker:
            return self._batches.plan(encoding, request.n_trials, request.t_max, states)

        def keep(finished: Round) -> None:
            self._batches.add(finished, encoding)
            self.encoding, self._stated = encoding, stated
            if isinstance(action_space, spaces.Discrete):
                self.actions = discrete_actions(action_space)

        run(encoding, stated.policy, plan, keep, request)

    def attach(
        self,
        env: AnyEnv,
        policy: Policy | None = None,
        *,
        t_max: int | None = None,
        seed: int | None = None,
        batched: bool | None = None,
        is_same_policy: bool = False,
    ) -> None:
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
        batched, is_same_policy : bool
            As in `collect`.

        Raises
        ------
        InvalidInputError
            If a trial is under way, or an argument does not fit. Then nothing has changed.
        """
        if not isinstance(env, gym.Env | VectorEnv):
            raise InvalidInputError(f"env must be an Env or a VectorEnv; got {env!r}")
        observation_space, action_space = single_spaces(env)
        encoding = self._encoding_of(observation_space)
        if self.loop.under_way:
            raise InvalidInputError(
                "a trial is under way: call end_trial(), or drop_trial() to forget it, first"
            )
        if t_max is not None:
            t_max = check_integer("t_max", t_max, 0)
        if seed is not None:
            seed = check_integer("seed", seed, 0)
        actor, stated = None, self._stated
        if policy is not None:
            stated = self._check_policy(policy, is_same_policy)
            actor = make_actor(stated.policy, observation_space, action_space, batched)
        self._count_waiting()
        if t_max is not None:
            self._batches.check_t_max(t_max)
        self.encoding, self._stated = encoding, stated
        self.loop.begin(encoding, t_max)
        if actor is not None:
            self.loop.act_by(actor, np.random.default_rng(seed))

    act = delegated(UserLoop.act, to="loop")
    observe = delegated(UserLoop.observe, to="loop")
    end_trial = delegated(UserLoop.end_trial, to="loop")
    drop_trial = delegated(UserLoop.drop_trial, to="loop")

    def add(self, data: CountsLike | KeptTrials | TrialCollector) -> None:
        """Add trials that somebody else has collected; see `SeminormLSTDAgent.add`."""
        if isinstance(data, TrialCollector):
            self.merge(data)
            return
        if isinstance(data, KeptTrials):
            encoding = self._encoding_of(None)
            finished = round_of_trials(self._batches, encoding, data)
        else:
            counts = counts_of(data)
            encoding = self.encoding or self._encoding_of(spaces.Discrete(counts.n_states))
            finished = round_of_counts(encoding, counts)
        self._count_waiting()
        sums = finished.sums
        self._batches.check_t_max(sums.t_max)
        if isinstance(sums, KeptTrials):
            start = sums.observations[:1, 0]
            self._batches.check_room(encoding, sums.n_trials, sums.t_max, start)
        self._batches.add(finished, encoding)
        self.encoding = encoding
        actions = getattr(sums, "actions", None)
        if actions is not None and self.actions is None:
            self.actions = max(1, int(actions.max()) + 1), 0

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
        action_space: gym.Space[Any] | None = None,
    ) -> None:
        """Add logged trials, of whatever lengths.

        A trial that is shorter than the longest was cut short, which is no end of the task: its
        transitions count for what they show, and each timestep's equations use the trials that
        have it. Occupancies, mean rewards and the gain are those of the trials that were there.
        Equations stay right if trials were cut short for what was observed, since they are of
        single transitions; means over those that were left are means over them alone.

        Parameters
        ----------
        observations : array_like (m, n + 1, ...), list of batches, LoggedTrials or Minari dataset
            One more than there are rewards, the last one what followed the last reward. Tables
            come by `LoggedTrials.from_frame`.
        rewards, actions, terminated
            As `LoggedTrials.of` takes them. Discrete actions serve `action_values`, whoever chose
            them; trials may end with ``on_termination="absorb"``.
        t_max : int, optional
            The last timestep: what was logged beyond is left out. By default the longest trial's,
            or that of the trials so far.
        policy : array_like or callable, optional
            Whose trials they are said to be: refused if it never takes one of the actions, or
            hardly as often. Without it they are taken for those of the evaluated policy.
        batched, is_same_policy : bool
            As in `collect`.
        observation_space : Space, optional
            Needed where neither `attach`, `collect`, the log nor the features tell it: vectors of
            floats are unbounded without it.
        action_space : Space, optional
            Without one, integers are Discrete actions from 0 to the largest that was logged.

        Raises
        ------
        InvalidInputError
            If they cannot be trials of this task and policy. Then nothing has changed.
        TerminationError
            If a trial terminated, unless that is to be absorbed.
        """
        trials = as_logged(observations, rewards, actions, terminated, action_space)
        space = observation_space
        if space is None and self.encoding is None:
            space = implied_space(trials)
        encoding = self._encoding_of(space)
        stated = self._stated
        if policy is not None:
            stated = self._check_policy(policy, is_same_policy)
            check_actions(stated.policy, trials, encoding.space, batched)
        self._count_waiting()
        numbers = action_numbers(trials, self.actions, policy)
        encoded = EncodedTrials(encoding, trials, t_max, self._batches.t_max, numbers)
        self._batches.check_t_max(encoded.t_max)
        for finished in encoded.rounds(self._batches):
            self._batches.add(finished, encoding)
        self.encoding = encoding
        self._stated, self.actions = stated, numbers

    def merge(self, other: TrialCollector) -> None:
        """Add the trials of another agent's collector; see `SeminormLSTDAgent.merge`."""
        theirs = other.batches
        if other.encoding is None:
            return
        encoding = self._encoding_of(other.encoding.space)
        check_same_kind(encoding, other.encoding)
        if not (callable(self.policy) or callable(other.policy)) and other.policy is not None:
            self._check_policy(other.policy, False)
        self._count_waiting()
        merge_batches(self._batches, encoding, theirs, other.encoding)
        self.encoding = encoding
        self._stated = other._stated if self._stated is None else self._stated
        self.actions = self.actions or other.actions

    def use_features(self, features: Features) -> None:
        """Use other features, of the trials so far too; see `SeminormLSTDAgent.use_features`."""
        if self.batches.are_moments:
            raise InvalidInputError(
                "the trials were condensed into moments of the features so far, which say nothing "
                "of others: collect again, within max_bytes"
            )
        if self.encoding is not None:
            if self.loop.under_way:
                raise InvalidInputError("a trial is under way: end or drop it first")
            self.encoding = self.encoding.with_features(features)
            self.loop.begin(self.encoding, self.loop.t_max)
        self.features = features

    def restore(
        self,
        space: gym.Space[Any] | None,
        batches: list[Sums],
        trials: States | None = None,
        policy: Policy | None = None,
        taken: Sequence[ActionCounts | None] | None = None,
        actions: tuple[int, int] | None = None,
    ) -> None:
        """Take what another collector held, such as a file does, into one without trials.

        Parameters
        ----------
        space : Space or None
            Of its observations, if it was known.
        batches, trials, taken
            Sums of its trials, those that it kept whole beside them, and what actions led to,
            batch by batch.
        policy, actions
            As the attributes.

        Raises
        ------
        InvalidInputError
            If they do not belong together.
        """
        if space is not None:
            self.encoding = self._encoding_of(space)
        self._batches.restore(batches, [None] * len(batches) if taken is None else taken, trials)
        self._stated = None if policy is None else StatedPolicy.of(policy)
        self.actions = actions

    def _encoding_of(self, space: gym.Space[Any] | None) -> Encoding:
        """Return the encoding of an observation space, which must be that of all trials.

        Without a space it is what is known, or what a table, of one row a state, implies.
        """
        if self.encoding is not None:
            if space not in (None, self.encoding.space):
                raise InvalidInputError(
                    f"the agent has observed {self.encoding.space} so far; got {space}: make a "
                    "new agent, or forget what it has observed with reset()"
                )
            return self.encoding
        if space is None:
            if not is_table(self.features):
                raise NotFittedError(
                    "the observation space is not known: call attach(env) before observe() or "
                    "add(), or give add_trials() an observation_space"
                )
            table: Any = self.features
            space = spaces.Discrete(np.shape(table)[0])
        ends = self.on_termination == "absorb"
        return make_encoding(space, self.features, ends, self.observations)

    def _known_encoding(self) -> Encoding:
        """Return the encoding of a loop that nothing was attached to."""
        self.encoding = self._encoding_of(None)
        return self.encoding

    def _check_policy(self, policy: Policy, is_same: bool) -> StatedPolicy:
        """Return the policy of trials to come, or raise unless it is that of the trials so far."""
        stated = StatedPolicy.of(policy)
        if self._stated is not None and not is_same and self._batches.sums:
            stated.check_same(self._stated)
        return stated

    def _count_waiting(self) -> None:
        """Add up trials that wait, and measure what features are standardized by."""
        self.loop.flush()
        if self.encoding is None:
            return
        self._batches.measure(self.encoding)
        if isinstance(self.encoding.given, Standardized):
            self.features = self.encoding.given
