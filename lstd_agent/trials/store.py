"""`TrialStore`: an agent's trials, from any source.

They come from an environment, from the user's own loop, as counts or logged trials, or from another
agent. `SeminormLSTDAgent` has a store, and describes what its methods take.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any, Literal, get_args

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from lstd_agent.errors import InvalidInputError, NotFittedError, check_choice, check_integer
from lstd_agent.features.tables import Features, Standardized, is_table
from lstd_agent.trials.collect import AnyEnv, Request, single_spaces
from lstd_agent.trials.counted import Batches, CountedTrials, Portion
from lstd_agent.trials.counts import CountsLike, TransitionCounts
from lstd_agent.trials.encoded_logs import (
    action_numbers,
    as_logged,
    check_actions,
    encoded_trials,
    implied_space,
)
from lstd_agent.trials.encoding import Encoding, ObservationKind, make_encoding
from lstd_agent.trials.kept import KeptTrials
from lstd_agent.trials.loop import UserLoop
from lstd_agent.trials.policies import (
    ActionNumbers,
    Policy,
    StatedPolicy,
    discrete_actions,
    make_actor,
)
from lstd_agent.trials.recording import Recording
from lstd_agent.trials.workers import EnvSource, collect, spaces_of

Termination = Literal["raise", "absorb"]
"""A trial that terminates raises an error, or stays in a terminal state."""

DEFAULT_MAX_BYTES = 2**30

# Standard errors of fewer batches are too uncertain.
_FEWEST_BATCHES, _MOST_BATCHES = 10, 100_000

# Standardized features are measured on at most so many numbers.
_MOST_MEASURED = 2**26


class TrialStore:
    """Gathers the trials of an agent in batches; options are those of `SeminormLSTDAgent`.

    Threads may share it: a lock serializes changes. A call that raises `InvalidInputError` changes
    nothing. ``encoding`` is None until the space of observations is known, and ``actions`` are the
    number of Discrete actions and the first one, once known.
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
        n = check_integer("n_batches", n_batches, 1)
        if n > _MOST_BATCHES:
            raise InvalidInputError(f"n_batches is at most {_MOST_BATCHES}; got {n_batches}")
        self.n_batches = n if n == 1 else max(n, _FEWEST_BATCHES)
        self.observations = check_choice("observations", observations, get_args(ObservationKind))
        self.max_bytes = check_integer("max_bytes", max_bytes, 1)
        self._lock = Lock()
        self.reset()

    def reset(self) -> None:
        """Forget all trials, observations and policies; the options stay."""
        with self._lock:
            self._batches = Batches(self.n_batches, self.n_stored_trials, self.max_bytes)
            self.encoding: Encoding | None = None
            self.actions: ActionNumbers | None = None
            self._stated: StatedPolicy | None = None
            self.loop = UserLoop(self._batches, self._encoding_of_loop, self._lock)

    @property
    def batches(self) -> Batches:
        """All finished trials, in batches."""
        with self._lock:
            self._add_waiting()
            return self._batches

    @property
    def policy(self) -> Policy | None:
        """The policy of the trials; None if not given."""
        return None if self._stated is None else self._stated.policy

    @property
    def n_trials(self) -> int:
        """Number of finished trials so far."""
        return self._batches.n_trials + self.loop.n_waiting

    @property
    def counts(self) -> TransitionCounts:
        """The counts of all trials; see `SeminormLSTDAgent.counts`."""
        return reduce(add, self._some_batches(are_kept=False).sums)

    @property
    def kept_trials(self) -> KeptTrials:
        """All kept trials; see `SeminormLSTDAgent.kept_trials`."""
        return self._some_batches(are_kept=True).kept

    def _some_batches(self, are_kept: bool) -> Batches:
        batches = self.batches
        if not batches.n_trials:
            raise NotFittedError("there are no trials yet: call collect or observe first")
        if batches.are_kept != are_kept:
            which = ("counted", "counts") if are_kept else ("kept", "kept_trials")
            raise InvalidInputError("trials of these observations are {}: see {}".format(*which))
        return batches

    def collect(self, env: AnyEnv | EnvSource, policy: Policy, request: Request) -> None:
        """Run trials and add them; see `SeminormLSTDAgent.collect`."""
        space, action_space = spaces_of(env)
        with self._lock:
            encoding = self._encoding_of(space)
            stated = self._check_policy(policy, request.is_same_policy)
            self._add_waiting()
            self._batches.check_t_max(request.t_max)
            n_actions = 0 if request.explore is None else discrete_actions(action_space)[0]
            recording = Recording(encoding, self.n_batches, n_actions)

            def keep(finished: Portion) -> None:
                self._batches.add(finished)
                self.encoding, self._stated = encoding, stated
                if isinstance(action_space, spaces.Discrete):
                    self.actions = discrete_actions(action_space)

            how = replace(request, n_stored=self.n_stored_trials, first=self._batches.n_trials)
            collect(env, recording, stated.policy, keep, how)

    def attach(
        self,
        env: AnyEnv,
        policy: Policy | None,
        t_max: int | None,
        seed: int | None,
        batched: bool | None,
        is_same_policy: bool,
    ) -> None:
        """Set the spaces and the policy of the user's loop; see `SeminormLSTDAgent.attach`."""
        if not isinstance(env, gym.Env | VectorEnv):
            raise InvalidInputError(f"env must be an Env or a VectorEnv; got {env!r}")
        observation_space, action_space = single_spaces(env)
        with self._lock:
            encoding = self._encoding_of(observation_space)
            if self.loop.under_way:
                raise InvalidInputError(
                    "a trial is under way: call end_trial(), or drop_trial() to forget it, first"
                )
            seed = None if seed is None else check_integer("seed", seed, 0)
            actor, stated = None, self._stated
            if policy is not None:
                stated = self._check_policy(policy, is_same_policy)
                actor = make_actor(stated.policy, observation_space, action_space, batched)
            t_max = None if t_max is None else check_integer("t_max", t_max, 0)
            self._add_waiting()
            if t_max is not None:
                self._batches.check_t_max(t_max)
            self.encoding, self._stated = encoding, stated
            self.loop.begin(encoding, t_max)
            if actor is not None:
                self.loop.policy = actor, np.random.default_rng(seed), encoding

    def add(self, data: CountsLike | KeptTrials | TrialStore) -> None:
        """Add trials from elsewhere; see `SeminormLSTDAgent.add`."""
        if isinstance(data, TrialStore):
            self.merge(data)
            return
        if isinstance(data, KeptTrials):
            with self._lock:
                self._add_kept(data)
            return
        for name in ("n_states", "n_trials", "transition_counts", "reward_sums"):
            if not hasattr(data, name):
                raise InvalidInputError(
                    f"add() takes counts, KeptTrials or an agent; {data!r} has no {name}"
                )
        counts = TransitionCounts.of(data)
        with self._lock:
            encoding = self.encoding or self._encoding_of(spaces.Discrete(counts.n_states))
            if encoding.n_states != counts.n_states:
                terminal = ", the terminal one included" if encoding.ends else ""
                n_states = encoding.n_states or "no countable"
                raise InvalidInputError(
                    f"the agent has {n_states} states{terminal}; got counts of {counts.n_states}"
                )
            self._add_waiting()
            self._batches.add_counts([(counts, None)])
            self.encoding = encoding

    def _add_kept(self, trials: KeptTrials) -> None:
        encoding = self._encoding_of(None)
        # Copies: the given arrays may change.
        parts = [(name, part) for name, part in vars(trials).items() if part is not None]
        copies = {name: np.array(part) for name, part in parts if name != "observations"}
        trials = KeptTrials.of(trials.observations, **copies)
        trials = replace(trials, observations=encoding.encode_logged(trials.observations))
        actions = self.actions
        if actions is None and trials.actions is not None:
            actions = max(1, int(trials.actions.max()) + 1), 0
        self._add_waiting()
        self._add_whole(encoding, trials, actions)

    def _add_whole(
        self, encoding: Encoding, trials: KeptTrials, actions: ActionNumbers | None
    ) -> None:
        """Add encoded trials."""
        recording = Recording(encoding, self.n_batches, actions[0] if actions else 0)
        how = self._batches.n_trials, self.n_stored_trials
        self._batches.add(recording.portion_of(trials, *how))
        self.encoding, self.actions = encoding, actions

    def add_trials(
        self,
        observations: Any,
        rewards: Any,
        actions: Any,
        terminated: Any,
        durations: Any,
        t_max: int | None,
        policy: Policy | None,
        batched: bool | None,
        is_same_policy: bool,
        observation_space: gym.Space[Any] | None,
        action_space: gym.Space[Any] | None,
    ) -> None:
        """Add logged trials; see `SeminormLSTDAgent.add_trials`."""
        trials = as_logged(observations, rewards, actions, terminated, durations, action_space)
        with self._lock:
            space = observation_space
            if space is None and self.encoding is None:
                space = implied_space(trials)
            encoding = self._encoding_of(space)
            stated = self._stated
            if policy is not None:
                stated = self._check_policy(policy, is_same_policy)
                check_actions(stated.policy, trials, encoding, batched)
            self._add_waiting()
            numbers = action_numbers(trials, self.actions, policy)
            found = encoded_trials(encoding, trials, t_max, self._batches.t_max, numbers)
            self._add_whole(encoding, found, numbers)
            self._stated = stated

    def merge(self, other: TrialStore) -> None:
        """Add the trials of another agent's store; see `SeminormLSTDAgent.merge`."""
        theirs = other.batches
        if other.encoding is None:
            return
        with self._lock:
            encoding = self._encoding_of(other.encoding.space)
            if encoding.ends != other.encoding.ends:
                options = ["absorb" if e.ends else "raise" for e in (encoding, other.encoding)]
                raise InvalidInputError(
                    f"agents with on_termination={options[0]!r} and {options[1]!r} do not merge"
                )
            if encoding.is_counted != other.encoding.is_counted:
                raise InvalidInputError(
                    "one of the agents counts its observations: give both the same observations="
                )
            if not (callable(self.policy) or callable(other.policy)) and other.policy is not None:
                self._check_policy(other.policy, False)
            self._add_waiting()
            self._batches.merge(theirs)
            self.encoding = encoding
            self._stated = self._stated or other._stated
            self.actions = self.actions or other.actions

    def use_features(self, features: Features) -> None:
        """Use other features; see `SeminormLSTDAgent.use_features`."""
        with self._lock:
            self._add_waiting()
            if (known := self.encoding) is not None:
                if self.loop.under_way:
                    raise InvalidInputError("a trial is under way: end or drop it first")
                self.encoding = make_encoding(known.space, features, known.ends, self.observations)
                self.loop.begin(self.encoding, self.loop.t_max)
            self.features = features

    def restore(
        self,
        space: gym.Space[Any] | None,
        actions: ActionNumbers | None,
        policy: NDArray[Any] | None,
        trials: CountedTrials | KeptTrials | None,
    ) -> None:
        """Put the checked content of a file into a store without trials."""
        if space is None:
            if any(each is not None for each in (actions, policy, trials)):
                raise InvalidInputError("it has trials or actions, but no observation space")
            return
        encoding = self._encoding_of(space)
        if actions is not None:
            n_actions, first = (check_integer("actions", each, -(2**62)) for each in actions)
            actions = discrete_actions(spaces.Discrete(n_actions, start=first))
        if policy is not None:
            seen = (int(np.ptp(policy)) + 1, int(policy.min())) if policy.ndim == 1 else None
            n, first = actions or seen or (policy.shape[-1], 0)
            make_actor(policy, encoding.space, spaces.Discrete(n, start=first), None)
            self._stated = StatedPolicy.of(policy)
        self.encoding, self.actions = encoding, actions
        if isinstance(trials, KeptTrials):
            if encoding.is_counted:
                raise InvalidInputError("its trials of counted observations are not counted")
            self._add_kept(trials)
        elif trials is not None:
            if encoding.n_states != trials.n_states:
                raise InvalidInputError(f"counts of {trials.n_states} states are not of {space}")
            if len(trials.n_by_batch) != self.n_batches:
                raise InvalidInputError(f"there are not {self.n_batches} batches of trials")
            n_actions = 0 if actions is None else actions[0]
            if trials.taken is not None and trials.taken.n_actions != n_actions:
                raise InvalidInputError(f"the action counts are not of {n_actions} actions")
            self._batches.add(trials)
            self._add_waiting()

    def _encoding_of(self, space: gym.Space[Any] | None) -> Encoding:
        """Return the encoding of an observation space, which all trials must share.

        Without a space it is the known one, or follows from the rows of a table of features.
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

    def _encoding_of_loop(self) -> Encoding:
        self.encoding = self._encoding_of(None)
        return self.encoding

    def _check_policy(self, policy: Policy, is_same: bool) -> StatedPolicy:
        """Return the policy of the next trials, or raise unless earlier trials share it."""
        stated = StatedPolicy.of(policy)
        if self._stated is not None and not is_same and self.n_trials:
            stated.check_same(self._stated)
        return stated

    def _add_waiting(self) -> None:
        """Add up waiting trials, and measure standardized features."""
        self.loop.flush()
        encoding: Any = self.encoding
        if encoding is None:
            return
        if not encoding.is_measured and self._batches.are_kept:
            seen = self._batches.total.observations
            encoding.measure(seen[: max(1, _MOST_MEASURED // seen[0].size)])
        if isinstance(encoding.given, Standardized):
            self.features = encoding.given


class Lock:
    """A reentrant lock; copies and pickles are fresh ones."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[type[Lock], tuple[()]]:
        return Lock, ()
