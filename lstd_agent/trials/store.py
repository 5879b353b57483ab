"""`TrialStore`: an agent's trials, from any source.

They come from an environment, from the user's own loop, as counts or logged trials, or from another
agent. `SeminormLSTDAgent` is a store that evaluates its trials.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from concurrent.futures import Executor
from dataclasses import replace
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal, get_args

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike

import lstd_agent.trials.encoded_logs as logs
from lstd_agent.errors import InvalidInputError, NotFittedError, check_choice, check_integer
from lstd_agent.features.tables import Features, Standardized
from lstd_agent.trials.collect import AnyEnv, Explore, Request
from lstd_agent.trials.counted import Batches, Portion
from lstd_agent.trials.counts import TransitionCounts
from lstd_agent.trials.encoding import Encoding, ObservationKind, make_encoding
from lstd_agent.trials.kept import KeptTrials
from lstd_agent.trials.loop import UserLoop
from lstd_agent.trials.policies import (
    ActionNumbers,
    Policy,
    StatedPolicy,
    discrete_actions,
)
from lstd_agent.trials.recording import Recording
from lstd_agent.trials.workers import EnvSource, collect, spaces_of

if TYPE_CHECKING:
    from typing_extensions import Self

Termination = Literal["raise", "absorb"]
"""A trial that terminates raises an error, or stays in a terminal state."""

DEFAULT_MAX_BYTES = 2**30

# Standard errors of fewer batches are too uncertain.
_FEWEST_BATCHES, _MOST_BATCHES = 20, 100_000


class TrialStore(UserLoop):
    """Gathers the trials of an agent in batches; options are those of `SeminormLSTDAgent`.

    Threads may share it: a lock serializes changes. A call that raises `InvalidInputError` changes
    nothing.
    """

    _actions: ActionNumbers | None

    def __init__(
        self,
        features: Features,
        on_termination: Termination = "raise",
        n_stored_trials: int = 2000,
        n_batches: int = 20,
        observations: ObservationKind = "auto",
        max_bytes: int = DEFAULT_MAX_BYTES,
        standardize: bool = False,
    ) -> None:
        if not isinstance(standardize, bool | np.bool_):
            raise InvalidInputError(f"standardize must be True or False; got {standardize!r}")
        self.standardize = standardize
        self._features = self._standardized(features)
        self.on_termination = check_choice("on_termination", on_termination, get_args(Termination))
        self.n_stored_trials = check_integer("n_stored_trials", n_stored_trials, 0)
        n = check_integer("n_batches", n_batches, 1)
        if n > _MOST_BATCHES:
            raise InvalidInputError(f"n_batches is at most {_MOST_BATCHES}; got {n_batches}")
        self.n_batches = n if n == 1 else max(n, _FEWEST_BATCHES)
        self.observations = check_choice("observations", observations, get_args(ObservationKind))
        self.max_bytes = check_integer("max_bytes", max_bytes, 1)
        self._lock = threading.RLock()
        self.reset()

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _STAY and "_batches" in vars(self):
            how = "call use_features()" if name == "features" else "make another agent"
            raise AttributeError(f"{name} decides how trials are kept and cannot be set: {how}")
        super().__setattr__(name, value)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_lock": None}  # a copy has a lock of its own

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.RLock())

    def reset(self) -> Self:
        """Forget all trials, observations, policies and fits; the options stay."""
        with self._lock:
            self._batches = Batches(self.n_batches, self.n_stored_trials, self.max_bytes)
            self._encoding = self._actions = None
            self._stated = self._actor = self._sequential = self._lockstep = None
        return self

    @property
    def batches(self) -> Batches:
        """All finished trials, in batches."""
        with self._lock:
            self._add_waiting()
            return self._batches

    @property
    def features(self) -> Features:
        """The features, as given or measured: `use_features` takes others."""
        return self._features

    @property
    def encoding(self) -> Encoding | None:
        """How observations are encoded, once known."""
        return self._encoding

    @property
    def actions(self) -> ActionNumbers | None:
        """The number of Discrete actions and the first one, once known."""
        return self._actions

    @property
    def policy(self) -> Policy | None:
        """The policy of the trials; None if not given."""
        return None if self._stated is None else self._stated.policy

    @property
    def n_trials(self) -> int:
        """Number of finished trials so far."""
        return self._batches.n_trials + self._n_waiting

    @property
    def counts(self) -> TransitionCounts:
        """The counts of all trials so far, for `add` of another agent; not of vectors."""
        return self._some_batches(are_kept=False).filled.total

    @property
    def kept_trials(self) -> KeptTrials:
        """All trials of vectors so far, for `add` of another agent."""
        return self._some_batches(are_kept=True).kept

    def _some_batches(self, are_kept: bool | None = None) -> Batches:
        batches = self.batches
        if not batches.n_trials:
            how = "end_trial()" if self._under_way else "collect or observe"
            raise NotFittedError(f"there are no trials yet: call {how} first")
        if are_kept not in (None, batches.are_kept):
            which = ("counted", "counts") if are_kept else ("kept", "kept_trials")
            raise InvalidInputError("trials of these observations are {}: see {}".format(*which))
        return batches

    def collect(
        self,
        env: AnyEnv | EnvSource,
        policy: Policy,
        n_trials: int,
        t_max: int | None = None,
        seed: int | None = None,
        *,
        batched: bool | None = None,
        progress: bool | None = False,
        workers: int = 1,
        executor: Executor | None = None,
        shard_size: int | None = None,
        is_same_policy: bool = False,
        explore: Explore | None = None,
    ) -> Self:
        """Run trials and add them to the trials so far.

        An interrupt keeps finished trials of a plain environment, and finished rounds or shards of
        others. A trial that terminates raises `TerminationError`, unless
        ``on_termination="absorb"``, and so does one that is truncated early.

        Parameters
        ----------
        env : Env, VectorEnv, str or callable
            A continuing task; ``info["duration"]`` may give a step's time. Trials of an id, or of a
            picklable function that makes an environment, run in shards that workers share.
        policy : array_like, callable or OptimalPolicy
            An action a state (S,), action probabilities (S, A), or a function of observations.
        n_trials, t_max : int
            Number of trials, each over timesteps 0 to t_max, the same in every collection: by
            default the trials' so far.
        seed : int, optional
            The same seed, environment, policy and size of shards give the same trials.
        batched : bool or None
            Whether a callable policy takes batches; None finds out (`lstd_agent.trials.policies`).
        progress : bool or None
            Show a progress bar; None shows one on a terminal only.
        workers, executor
            Processes to start, or the `concurrent.futures.Executor` to use instead.
        shard_size : int, optional
            Trials of a shard; by default at most 50,000, and fewer to make 20 shards.
        is_same_policy : bool
            Asserts that this is the policy of the trials so far, although it looks like another.
        explore : int, float or callable, optional
            For `action_values` of Discrete actions: a number of random actions per trial, their
            probability at each timestep, or another policy, in the first half of a trial. Random
            actions are uniform over ``info["action_mask"]``. The policy's statistics leave them
            out. 0 records actions alone.
        """
        how = batched, progress, workers, executor, shard_size, explore
        if (t_max := self._t_max if t_max is None else t_max) is None:
            raise InvalidInputError("the first trials need t_max, the last timestep of each")
        request = Request(n_trials, t_max, seed, *how)
        space, action_space = spaces_of(env)
        with self._lock:
            encoding = self._encoding_of(space)
            stated = self._check_policy(policy, is_same_policy)
            self._add_waiting()
            self._batches.check_t_max(request.t_max)
            n_actions = 0 if explore is None else discrete_actions(action_space)[0]
            recording = Recording(encoding, self.n_batches, n_actions)

            def keep(finished: Portion) -> None:
                self._batches.add(finished)
                self._encoding, self._stated = encoding, stated
                if isinstance(action_space, spaces.Discrete):
                    self._actions = discrete_actions(action_space)

            first = self._batches.n_trials
            request = replace(request, n_stored=self.n_stored_trials, first=first)
            collect(env, recording, stated.policy, keep, request)
        return self

    def add(self, data: Any) -> Self:
        """Add trials of the same task and length from elsewhere.

        Parameters
        ----------
        data : TransitionCounts, KeptTrials or agent
            Counts (`unichain_gym.simulate_counts`) of states 0 to S - 1 in the order of the
            observations; kept trials (`KeptTrials.of`), which are counted if observations are; or
            an agent, as `merge` does.
        """
        if isinstance(data, TrialStore):
            return self.merge(data)
        if isinstance(data, KeptTrials):
            with self._lock:
                self._add_kept(data)
            return self
        try:
            counts = TransitionCounts.of(data)
        except AttributeError as error:
            raise InvalidInputError(f"add() takes counts, trials or an agent: {error}") from None
        with self._lock:
            encoding = self.encoding or self._encoding_of(spaces.Discrete(counts.n_states))
            if encoding.n_states != counts.n_states:
                terminal = ", the terminal one included" if encoding.ends else ""
                n_states = encoding.n_states or "no countable"
                told = f"the agent has {n_states} states{terminal}; got counts of {counts.n_states}"
                raise InvalidInputError(told)
            self._add_waiting()
            self._batches.add_counts([(counts, None)])
            self._encoding = encoding
        return self

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

    def _add_whole(self, encoding: Encoding, trials: KeptTrials, actions: Any) -> None:
        """Add encoded trials."""
        recording = Recording(encoding, self.n_batches, actions[0] if actions else 0)
        how = self._batches.n_trials, self.n_stored_trials
        self._batches.add(recording.portion_of(trials, *how))
        self._encoding, self._actions = encoding, actions

    def add_trials(
        self,
        observations: Any,
        rewards: Iterable[ArrayLike] | None = None,
        actions: Iterable[ArrayLike] | None = None,
        *,
        terminated: ArrayLike | None = None,
        durations: Iterable[ArrayLike] | None = None,
        t_max: int | None = None,
        policy: Policy | None = None,
        batched: bool | None = None,
        is_same_policy: bool = False,
        observation_space: gym.Space[Any] | None = None,
        action_space: gym.Space[Any] | None = None,
    ) -> Self:
        """Add logged trials of any lengths.

        A shorter trial counts as cut short, not as ended. Values stay right even if observations
        decide when trials are cut, because equations are of single transitions. Occupancies, mean
        rewards and the gain are means over the trials that reach a timestep.

        Parameters
        ----------
        observations : array_like (m, n + 1, ...), list of batches, LoggedTrials or Minari dataset
            One more than rewards. For tables see `LoggedTrials.from_frame`.
        rewards, actions, terminated, durations
            See `LoggedTrials.of`. Discrete actions of any policy serve `action_values`.
        t_max : int, optional
            The last timestep to use; by default of the trials so far, or of the longest trial.
        policy, batched, is_same_policy : optional
            The policy that chose the actions, as in `collect`; refused if it never takes one of
            them, or far less often than the log.
        observation_space, action_space : Space, optional
            Needed if `attach`, `collect`, the log and the features leave them open. Vectors of
            floats are unbounded by default; integers are Discrete actions from 0 to the largest.
        """
        trials = logs.as_logged(observations, rewards, actions, terminated, durations, action_space)
        with self._lock:
            space = observation_space
            if space is None and self.encoding is None:
                space = logs.implied_space(trials)
            encoding = self._encoding_of(space)
            stated = self._stated
            if policy is not None:
                stated = self._check_policy(policy, is_same_policy)
                policy = stated.policy
                logs.check_actions(policy, trials, encoding, batched)
            self._add_waiting()
            numbers = logs.action_numbers(trials, self.actions, policy)
            found = logs.encoded_trials(encoding, trials, t_max, self._batches.t_max, numbers)
            self._add_whole(encoding, found, numbers)
            self._stated = stated
        return self

    def merge(self, other: TrialStore) -> Self:
        """Add the trials of an ``other`` agent, of the same observations, ``t_max`` and policy."""
        theirs = other.batches
        if other.encoding is None:
            return self
        with self._lock:
            encoding = self._encoding_of(other.encoding.space)
            ours, others = ((e.ends, e.is_counted) for e in (encoding, other.encoding))
            if ours != others:
                raise InvalidInputError(
                    f"agents do not merge: whether trials absorb, and are counted: {ours}, {others}"
                )
            if not (callable(self.policy) or callable(other.policy)) and other.policy is not None:
                self._check_policy(other.policy, False)
            self._add_waiting()
            self._batches.merge(theirs)
            self._encoding, self._actions = encoding, self.actions or other.actions
            self._stated = self._stated or other._stated
        return self

    def use_features(self, features: Features) -> Self:
        """Use other ``features``, for the trials so far too; call `fit` afterwards."""
        features = self._standardized(features)
        with self._lock:
            self._add_waiting()
            if (known := self.encoding) is not None:
                if self._under_way:
                    raise InvalidInputError("a trial is under way: end or drop it first")
                how = known.space, features, known.ends, self.observations
                self._encoding = make_encoding(*how)
                self._begin(self._t_max)
            self._features = features
        return self

    def _standardized(self, features: Features) -> Features:
        """Return features, of standardized observations if the agent standardizes."""
        if not self.standardize or isinstance(features, Standardized):
            return features
        return Standardized(features)

    def _restore(self, saved: Any) -> None:
        """Put a `lstd_agent.persistence.SavedAgent` into a new agent."""
        if saved.space is None:
            return
        self._encoding, self._actions = self._encoding_of(saved.space), saved.actions
        self._stated = None if saved.policy is None else StatedPolicy(saved.policy)
        if isinstance(saved.trials, KeptTrials):
            self._batches.add(saved.trials)
        elif saved.trials:
            self._batches.add_counts(saved.trials, saved.sample)
        self._add_waiting()


_STAY = frozenset((*signature(TrialStore).parameters, "encoding", "actions"))
