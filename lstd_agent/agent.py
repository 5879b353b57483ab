"""`SeminormLSTDAgent`: the model-free evaluator, from trials to calibrated values.

trials → statistics → neighbourhoods → references → weights → offsets → values: Algorithm
``training_nbwpval`` of the paper. The agent holds the options, a collector of trials, and the
latest `Fit`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from concurrent.futures import Executor
from dataclasses import fields
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal

import gymnasium as gym
import numpy as np
from numpy.typing import ArrayLike

from lstd_agent.actions.evidence import ActionEvidence, CountedEvidence, VectorEvidence
from lstd_agent.actions.pair_equations import PairFeatures
from lstd_agent.arrays import BoolArray, FloatArray
from lstd_agent.backups import WantedBackup
from lstd_agent.diagnostics import Diagnostics
from lstd_agent.errors import FitWarning, InvalidInputError, NotFittedError, check_choice
from lstd_agent.features.parameters import same_features
from lstd_agent.features.standardized import Standardized
from lstd_agent.features.tables import Features
from lstd_agent.fit import Comparison, Fit
from lstd_agent.fit_checks import (
    check_own_trials,
    check_single_class,
    compare_returns,
    diagnose_fit,
)
from lstd_agent.fit_options import AgentTailName, CalibrationName, FitOptions
from lstd_agent.html import as_html
from lstd_agent.packing import read, refusing, write
from lstd_agent.persistence import MAKERS, SavedAgent
from lstd_agent.plotting import draw
from lstd_agent.rows.counts import CountRows
from lstd_agent.rows.kept import TrialRows
from lstd_agent.rows.of_trials import rows_of
from lstd_agent.summary import describe
from lstd_agent.system.approximators import Neighborhood, System
from lstd_agent.system.distances import MMD, DistanceName, DistributionDistance
from lstd_agent.system.minimizer import DEFAULT_RCOND
from lstd_agent.system.neighborhoods import SearchName
from lstd_agent.system.references import RuleName
from lstd_agent.system.selection import Choice
from lstd_agent.trials.batches import DEFAULT_MAX_BYTES
from lstd_agent.trials.collect import AnyEnv, Request
from lstd_agent.trials.counts import CountsLike, TransitionCounts
from lstd_agent.trials.encoding import Encoding, ObservationKind
from lstd_agent.trials.exploration import Explore
from lstd_agent.trials.kept import KeptTrials
from lstd_agent.trials.policies import Policy
from lstd_agent.trials.shards import EnvSource
from lstd_agent.trials.store import Termination, TrialStore

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from typing_extensions import Self


class SeminormLSTDAgent:
    """Estimates the relative value of a policy from transient and recurrent states alike.

    Parameters
    ----------
    features : array_like, builder, callable or transformer
        State features; see `lstd_agent.features.tables` and `lstd_agent.features.vectors`.
    n_anchors : int, None or "auto"
        Wanted number of neighbourhoods (at most); None is one for each timestep. ``"auto"`` fits
        1, 2, 4 and 8, and takes the fewest that predict held-out trials as well as any.
    anchors : array_like of int, optional
        The anchors themselves, instead of a search. ``search="exact"`` places none after half of
        the timesteps, so that the last neighbourhood holds the whole tail.
    search : {"exact", "doubling"}
        How the anchors are searched for: as close to the wanted number as can be got, or as in
        the paper, which may jump past it (`lstd_agent.system.neighborhoods.find_anchors`).
    distance : {"mmd", "tv", "ot"}, MMD or callable
        Between the state distributions of two timesteps, for the anchor search. A callable
        gets two distributions (S,). Vector observations have the linear MMD only, by default
        with a kernel of ``width="median"``. ``"mmd"`` is that of the stored trials; of counts
        that were added without any it is the total variation, and `summary` says so.
    calibration : {"linked", "references"}
        How the neighbourhoods' values are tied together: solved backwards in time (see
        `lstd_agent.system.linked`), or by reference states as in the paper.
    reference : {"occupancy", "most_common"}
        Rule for reference states, where there are any; the second is the paper's.
    tail : {"window", "settled"}
        Whether the last neighbourhood is fitted to all its timesteps, or to their second half
        only, with ``calibration="references"``; see `average_reward`.
    backup : {"auto", "one_step", "model"}, MultiStep or LambdaReturn
        How far targets run before they bootstrap (see `lstd_agent.backups`).
        ``"auto"`` chooses by the data, from what predicts held-out trials best (see
        `lstd_agent.system.selection`); with reference states it is one step. ``"model"`` fits
        the values of the transitions of all timesteps, of Discrete observations only, which it
        takes to be Markov states (see `lstd_agent.system.model`).
    gain : float or None
        None estimates it from the second half of all timesteps (`lstd_agent.system.gain`). Per
        unit of time, where steps have durations; else per timestep.
    on_termination : {"raise", "absorb"}
        What a trial that terminates is: an error, since this method is for continuing tasks, or
        one that stays, without reward, in a terminal state whose features and value are 0.
    rcond : float
        Relative cutoff of the pseudoinverses (`lstd_agent.system.minimizer.minimize`). With
        Discrete observations, values from 1e-12 to 1e-8 give the same result, unless a
        neighbourhood's ``condition`` approaches 1/rcond: then its samples hardly determine the
        values, and fewer features or wider neighbourhoods help.
    n_stored_trials : int
        How many counted trials to keep whole, rewards included, for the distance that pairs
        trials and for returns of starts. Which they are does not depend on the order in which
        trials come.
    n_batches : int
        In how many batches to deal the trials, for `standard_errors`. Counts take at most one
        number for each visited (batch, timestep, transition). Standard errors fit the system
        again without each batch; of 10⁵ tiles each such fit takes about half as long as the
        first, so that fewer batches there cost less.
    observations : {"auto", "counted", "vectors"}
        How observations are kept: ``"auto"`` counts those of finite spaces (Discrete ones, and
        others of at most 10,000 elements), and keeps all others as vectors.
    max_bytes : int
        How much memory trials of vectors may take; beyond it they are held in temporary files.
    standardize : bool
        Shorthand for ``Standardized(features)``: functions of standardized observations, whose
        mean and deviation are measured on the samples and kept in files.

    Attributes
    ----------
    collector : TrialStore
        Holds the trials, and how their observations are encoded.
    options : dict
        What the agent was made with.
    n_trials : int
        How many are finished.
    counts, kept_trials : TransitionCounts, KeptTrials
        All trials, where observations are counted, and where they are kept as they came.
    system_, neighborhoods_ : System, list of Neighborhood
        The fitted system of approximators, and its parts in order of time.
    gain_, start_bias_ : float
        The gain used by the fit, given or estimated, and what a trial earns above it in all.
    gain_error_, start_bias_error_ : float
        Their standard errors.
    backup_ : Choice
        The backup used by the fit, and what was tried.
    main_reference_ : observation or None
        Where the value is 0.

    Methods
    -------
    paper(features, n_anchors)
        An agent with exactly the paper's choices.
    average_reward(features), transient(features), stepwise(features)
        The special cases: LSTD of the steady state, of tasks that end, and of each timestep.
    collect(env, policy, n_trials, t_max, seed)
        Run trials in an environment.
    attach(env, policy), act(observation), observe(t, observation, reward, next_observation)
        Begin a loop of one's own, ask for actions in it, and record its transitions.
    end_trial(), drop_trial()
        Finish its trial, or forget it.
    add(data), merge(other), add_trials(observations, rewards)
        Take trials that somebody else has collected, counted or as they were logged.
    use_features(features), reset()
        Use other features, of the trials so far too; forget all trials and fits.
    fit(), predict(observations, t)
        Fit the system to all trials so far; calibrated relative values.
    standard_errors(observations, t), coverage(observations, t), determined(observations, t)
        How far off they may be, how well they were seen, and whether samples determine them.
    action_values(observations, t), action_standard_errors(observations)
        What actions are worth, under any policy, and how far off that may be.
    action_coverage(observations)
        How many transitions tell of each action.
    compare(a, b, t, by)
        A difference of values, or of what trials from two starts earned, with its standard error.
    diagnostics(), summary(), plot()
        How far the fit may be relied on; an account of it as text, and as a figure.
    candidate(index)
        The observation of a candidate reference state.
    save(path), load(path)
        Write a file, and read it.

    Notes
    -----
    Source: Algorithm ``training_nbwpval`` and section ``approxbias``; the calibration by default
    is ours. Methods that change the agent return it, so that calls can be chained. Whatever is
    asked of the fit raises `NotFittedError` before `fit`.

    Examples
    --------
    What the transient states of an environment are worth, which its mean reward does not tell:

    >>> import gymnasium as gym, unichain_gym
    >>> from lstd_agent import OneHot, SeminormLSTDAgent
    >>> env, policy = gym.make_vec("Unichain-h6-v0", num_envs=1000), [1, 1, 1, 0, 0, 0]
    >>> agent = SeminormLSTDAgent(OneHot())
    >>> agent.collect(env, policy, n_trials=10_000, t_max=60, seed=0).fit()
    <SeminormLSTDAgent n_anchors=2, 10000 trials, 2 fitted>
    >>> agent.predict([0, 1, 2], t=0).round(1).tolist()
    [-41.0, -27.3, -13.6]
    >>> chain = env.unwrapped.mdp.induce(policy)  # the exact answers
    >>> chain.relative_value(agent.main_reference_)[:3].round(1).tolist()
    [-41.0, -27.3, -13.7]
    """

    def __init__(
        self,
        features: Features,
        n_anchors: int | Literal["auto"] | None = 2,
        *,
        anchors: ArrayLike | None = None,
        search: SearchName = "exact",
        distance: DistanceName | MMD | DistributionDistance = "mmd",
        calibration: CalibrationName = "linked",
        reference: RuleName = "occupancy",
        tail: AgentTailName = "window",
        backup: WantedBackup = "auto",
        gain: float | None = None,
        on_termination: Termination = "raise",
        rcond: float = DEFAULT_RCOND,
        n_stored_trials: int = 2000,
        n_batches: int = 20,
        observations: ObservationKind = "auto",
        max_bytes: int = DEFAULT_MAX_BYTES,
        standardize: bool = False,
    ) -> None:
        self.n_anchors = n_anchors
        self.anchors = anchors
        self.search = search
        self.distance = distance
        self.calibration = calibration
        self.reference = reference
        self.tail = tail
        self.backup = backup
        self.gain = gain
        self.rcond = rcond
        checked = self._fit_options
        self.n_anchors, self.gain, self.rcond = checked.n_anchors, checked.gain, checked.rcond
        self.standardize = standardize
        features = self._standardized(features)
        self.collector = TrialStore(
            features, on_termination, n_stored_trials, n_batches, observations, max_bytes
        )
        self._fitted: Fit | None = None
        self._diagnostics: Diagnostics | None = None

    @classmethod
    def paper(cls, features: Features, n_anchors: int | None = 2, **options: Any) -> Self:
        """Exactly the paper's choices, where the defaults are ours.

        Doubling search by the linear MMD with a Gaussian kernel of width 1, the most common
        reference states, and a last neighbourhood that averages up to ``t_max``.

        Parameters
        ----------
        features, n_anchors, **options
            Of the agent.
        """
        choices = {
            "search": "doubling",
            "distance": MMD("linear"),
            "calibration": "references",
            "reference": "most_common",
            "tail": "window",
        }
        return cls(features, n_anchors, **{**choices, **options})

    @classmethod
    def average_reward(cls, features: Features, **options: Any) -> Self:
        """Average-reward LSTD on p*: one neighbourhood, fitted once the chain has settled.

        Parameters
        ----------
        features, **options
            Of the agent.

        Notes
        -----
        Source: Yu & Bertsekas (2009), section II.A; section ``unify_existing``, first case. It
        says nothing about transient states.
        """
        return cls(features, 1, calibration="references", tail="settled", **options)

    @classmethod
    def transient(cls, features: Features, **options: Any) -> Self:
        """LSTD of a task that terminates: one neighbourhood, weighted by visits until the end.

        Predictions are total rewards until termination. ``t_max`` must be long enough for
        (nearly) all trials to terminate.

        Parameters
        ----------
        features, **options
            Of the agent.

        Notes
        -----
        Source: Bradtke & Barto (1996), theorem 1, undiscounted; section ``unify_existing``,
        second case. The terminal state's features are zero, so it weighs nothing in X, Z and y.
        """
        choices = {"backup": "one_step", **options}
        return cls(features, 1, gain=0.0, on_termination="absorb", **choices)

    @classmethod
    def stepwise(cls, features: Features, **options: Any) -> Self:
        """One approximator for each timestep (section ``unify_morethantwo``).

        Parameters
        ----------
        features, **options
            Of the agent.
        """
        return cls(features, None, **options)

    @property
    def features(self) -> Features:
        """State features; of `Standardized` ones, measured as soon as there are trials."""
        return self.collector.features

    @property
    def on_termination(self) -> Termination:
        """What a trial that terminates is."""
        return self.collector.on_termination

    @property
    def n_stored_trials(self) -> int:
        """How many trials' observations to keep."""
        return self.collector.n_stored_trials

    @property
    def n_batches(self) -> int:
        """In how many batches to keep the statistics."""
        return self.collector.n_batches

    @property
    def observations(self) -> ObservationKind:
        """How observations are kept."""
        return self.collector.observations

    @property
    def max_bytes(self) -> int:
        """How much memory trials of vectors may take."""
        return self.collector.max_bytes

    @property
    def options(self) -> dict[str, Any]:
        """What it was made with: ``SeminormLSTDAgent(**agent.options)`` is one without trials."""
        return {name: getattr(self, name) for name in signature(SeminormLSTDAgent).parameters}

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
        explore: Explore | None = None,
    ) -> Self:
        """Run trials and add them to what has been collected.

        Finished trials stay even if the collection is interrupted: a plain environment's one
        by one, a vector environment's once all its copies are through, those of workers shard
        by shard. A step takes ``info["duration"]`` where there is one, and else 1; see `observe`.

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
            Whether a callable policy takes batches; None finds out (`lstd_agent.trials.policies`).
        progress : bool or None
            Show a progress bar; None shows one on a terminal only.
        workers, executor
            Processes to start, or the `concurrent.futures.Executor` to use instead; see
            `lstd_agent.trials.workers.run_tasks`. The result does not depend on them.
        shard_size : int, optional
            Trials of a shard; by default at most 50,000, and fewer if that makes 20 shards.
        is_same_policy : bool
            Says that the policy is the one of the trials so far, although it looks like another.
        explore : int, float or callable, optional
            Of Discrete actions: so many exploratory ones a trial at random timesteps, one with
            this probability at each timestep, or those of another policy at all of them; always
            in the first half of a trial only, so that gain and settled tail stay the policy's.
            They are uniform over the actions that there are (``info["action_mask"]``). Such
            transitions are left out of the policy's statistics, and serve `action_values`; with 0
            actions are recorded and none is exploratory.

        Raises
        ------
        TerminationError
            If a trial terminates, unless that is to be absorbed, or is truncated before ``t_max``.
        InvalidInputError
            If an argument does not fit. Then nothing has changed.
        WorkerError
            If workers keep dying.
        """
        how = batched, progress, workers, executor, shard_size, is_same_policy, explore
        self.collector.collect(env, policy, Request(n_trials, t_max, seed, *how))
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
            The last timestep of every trial; by default the last one of the first finished trial.
        seed : int, optional
            Of a stochastic policy's draws.
        batched, is_same_policy : bool
            As in `collect`.

        Raises
        ------
        InvalidInputError
            If a trial is under way, or an argument does not fit. Then nothing has changed.
        """
        self.collector.attach(env, policy, t_max, seed, batched, is_same_policy)
        return self

    def act(self, observation: Any) -> Any:
        """Return the action of the policy that `attach` was given, or its actions for a batch.

        Parameters
        ----------
        observation : one observation, or a batch

        Returns
        -------
        action, or a batch of them
        """
        return self.collector.loop.act(observation)

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
        duration : float or array_like, shape (n,), optional
            How long the step takes, at least 0; then the gain is reward per unit of time. Either
            all steps of all trials have a duration, or none: each takes 1 then.

        Raises
        ------
        InvalidInputError
            If the timestep or the observation is not the one that follows the last, or an
            argument does not fit. Whether the numbers of vectors are finite is looked at when
            the trial ends.
        TerminationError
            If the trial terminates and that is not to be absorbed.
        """
        step = t, observation, reward, next_observation, terminated, duration
        self.collector.loop.observe(*step)

    def end_trial(self) -> None:
        """Finish the trial, or the trials in lockstep, that have been observed up to here.

        The first to finish tells ``t_max``, unless `attach` did. One that terminated may be
        shorter.

        Raises
        ------
        InvalidInputError
            If it is not as long as the others, or one of its observations does not fit.
        """
        self.collector.loop.end_trial()

    def drop_trial(self) -> None:
        """Forget the trial, or the trials in lockstep, under way."""
        self.collector.loop.drop_trial()

    def add(self, data: CountsLike | KeptTrials | SeminormLSTDAgent) -> Self:
        """Add trials that somebody else has collected.

        Parameters
        ----------
        data : TransitionCounts, KeptTrials or agent
            Counts (`unichain_gym.simulate_counts`, another agent's `counts`) of states 0 to S - 1
            in the order of the observations; kept trials (`KeptTrials.of`), of which countable
            observations are counted; or an agent, as `merge` does.

        Raises
        ------
        InvalidInputError
            If they cannot be trials of this task, or are of another length; nothing is added.
        """
        self.collector.add(data.collector if isinstance(data, SeminormLSTDAgent) else data)
        return self

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
        """Add logged trials, of whatever lengths.

        A trial that is shorter than the longest was cut short, which does not mean that the task
        ended: each timestep's equations use the transitions of the trials that have it.
        Occupancies, mean rewards and the gain are those of the trials that were there. Equations
        are of single transitions, and stay right where what was observed decided when trials
        were cut short. Means over the trials that were left are means over these alone.

        Parameters
        ----------
        observations : array_like (m, n + 1, ...), list of batches, LoggedTrials or Minari dataset
            One more than there are rewards, the last one what followed the last reward. Tables
            come by `LoggedTrials.from_frame`.
        rewards, actions, terminated, durations
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
        self.collector.add_trials(
            observations,
            rewards,
            actions,
            terminated,
            durations,
            t_max,
            policy,
            batched,
            is_same_policy,
            observation_space,
            action_space,
        )
        return self

    def merge(self, other: SeminormLSTDAgent) -> Self:
        """Add the trials of another agent, with observations and ``t_max`` like this one's.

        Features need not be the same.

        Parameters
        ----------
        other : SeminormLSTDAgent

        Raises
        ------
        InvalidInputError
            If the two have other observations, timesteps or policies; nothing is added.
        """
        self.collector.merge(other.collector)
        return self

    def use_features(self, features: Features) -> Self:
        """Use other features from here on, of the trials so far too; fit (again) afterwards.

        Parameters
        ----------
        features : Features

        Raises
        ------
        InvalidInputError
            If the features do not fit the observations. Then nothing has changed.
        """
        self.collector.use_features(self._standardized(features))
        return self

    def _standardized(self, features: Features) -> Features:
        """Return features of standardized observations, where they are to be."""
        if not self.standardize or isinstance(features, Standardized):
            return features
        return Standardized(features)

    def reset(self) -> Self:
        """Forget all trials, observations, policies and fits; the options stay."""
        self._fitted = None
        self.collector.reset()
        return self

    @property
    def n_trials(self) -> int:
        """Number of finished trials so far."""
        return self.collector.n_trials

    @property
    def counts(self) -> TransitionCounts:
        """The counts of all trials so far, where observations are counted.

        They can be given to another agent's `add`, whatever its features. Raises `NotFittedError`
        without any trials, and `InvalidInputError` if observations are vectors.
        """
        return self.collector.counts

    @property
    def kept_trials(self) -> KeptTrials:
        """All trials of vectors so far, in the order in which they came.

        They can be given to another agent's `add`, whatever its features. Raises `NotFittedError`
        without any trials, and `InvalidInputError` if they are counted.
        """
        return self.collector.kept_trials

    def fit(self) -> Self:
        """Fit the system of approximators to all trials collected so far.

        Raises
        ------
        NotFittedError
            If nothing has been collected.
        InvalidInputError
            If the trials show more than one recurrent class, or exploratory actions leave none
            of the policy's own at some timestep.

        Warns
        -----
        FitWarning
            If the tail has not settled, the samples do not determine the values of the start, or
            its mean value is not what the rewards seen from there on add up to.
        """
        self._fit()
        if found := self.diagnostics().warnings:
            warnings.warn("; ".join(found), FitWarning, stacklevel=2)
        return self

    def _fit(self) -> None:
        source, encoding = self._source
        check_single_class(source, encoding)
        check_own_trials(source)
        n_batches = self._n_batches_of(source)
        self._fitted = Fit.of(source, encoding, self._fit_options, n_batches)
        self._diagnostics = None

    @property
    def _is_current(self) -> bool:
        """Whether fitting again would give the same: of these trials, features and options."""
        fit, store = self._fitted, self.collector
        return (
            fit is not None
            and fit.encoding is store.encoding
            and fit.source.n_trials == store.n_trials
            and same_features(fit.options, self._fit_options)
        )

    def predict(self, observations: Any, t: ArrayLike | None = None) -> FloatArray:
        """Return calibrated relative values.

        Parameters
        ----------
        observations : one observation, or a batch of m
            Any that the space holds; those never seen too: see `coverage`.
        t : int or array_like of int, shape (m,), optional
            Timesteps at which the observations are made; beyond ``t_max`` the last neighbourhood
            answers. Without it each observation is answered by the neighbourhood that has most
            samples of it, among those in whose bulk it lies.

        Returns
        -------
        ndarray, shape (m,) or ()
            Estimates of b(s) - b(main reference state), in units of reward; in linked systems of
            vectors, of b(s).

        Raises
        ------
        InvalidInputError
            If an observation or a timestep is out of range.
        """
        return self._last_fit.predict(observations, t)

    def coverage(self, observations: Any, t: ArrayLike | None = None) -> FloatArray:
        """Return how well the neighbourhood that predicts has seen the observations.

        Parameters
        ----------
        observations, t
            As in `predict`.

        Returns
        -------
        ndarray, shape (m,) or ()
            The share of the neighbourhood's samples that was at the observation; 0 where it was
            never seen, so that the prediction is all generalization. For vectors the Christoffel
            function says it (see `lstd_agent.rows.christoffel`).
        """
        return self._last_fit.coverage(observations, t)

    def determined(self, observations: Any, t: ArrayLike | None = None) -> BoolArray:
        """Return whether the samples determine the values of observations.

        A value is determined if the neighbourhood that predicts it has seen the observation, and
        what the samples leave open, there and in all later neighbourhoods, hardly changes it. By
        ``backup="model"`` the states that lead to the main reference state tell it.

        Parameters
        ----------
        observations, t
            As in `predict`.

        Returns
        -------
        ndarray of bool, shape (m,) or ()
        """
        return self._last_fit.determined(observations, t)

    def standard_errors(self, observations: Any, t: ArrayLike | None = None) -> FloatArray:
        """Return standard errors of the predictions, by leaving out batches of trials (jackknife).

        The error of the offset and of an estimated gain is included; that of the choice of
        anchors and reference states is not.

        Parameters
        ----------
        observations, t
            As in `predict`.

        Returns
        -------
        ndarray, shape (m,) or ()
            In units of reward. Infinite where the samples do not determine the value, or those of
            a single batch alone do.

        Raises
        ------
        NotFittedError
            If there are fewer than two batches of trials.
        """
        return self._last_fit.standard_errors(observations, t)

    def compare(
        self, a: Any, b: Any, t: ArrayLike | None = None, *, by: Literal["fit", "returns"] = "fit"
    ) -> Comparison:
        """Return how much more the first is worth than the second, with its standard error.

        Values share errors, of the gain above all, so that the difference has a standard error of
        its own.

        Parameters
        ----------
        a, b : one observation, or a batch of which the mean value counts
        t : optional
            As in `predict`, for both.
        by : {"fit", "returns"}
            By the fitted values; or by what trials earned that start at, or close to, these
            observations: noisier, but right whatever features and observations leave out, if the
            tail has settled. `diagnostics` says when to prefer it.

        Returns
        -------
        Comparison
            With ``difference``, ``standard_error`` and ``interval()``.

        Raises
        ------
        NotFittedError
            If there are fewer than two batches of trials; by returns, fewer than two trials.
        """
        check_choice("by", by, ("fit", "returns"))
        if by == "fit":
            return self._last_fit.compare(a, b, t)
        if t is not None and np.any(np.asarray(t) != 0):
            raise InvalidInputError(f"by='returns' compares starts, at timestep 0; got t={t!r}")
        return compare_returns(self._last_fit, a, b)

    def candidate(self, index: int) -> Any:
        """Return the (flat) observation of a candidate reference state.

        Parameters
        ----------
        index : int
            As in `Neighborhood.reference` and along `Neighborhood.occupancy`.

        Returns
        -------
        observation or None
            None for -1 and the terminal state.
        """
        return self._last_fit.candidate(index)

    def action_values(
        self,
        observations: Any,
        t: ArrayLike | None = None,
        *,
        policy: Policy | None = None,
        pair_features: PairFeatures | None = None,
    ) -> FloatArray:
        """Return what actions are worth, with the policy ever after: q(s, a).

        They come from transitions of recorded actions, whoever chose them: see ``explore`` of
        `collect`, and `add_trials`. Of counted observations they are those of the pooled counts
        (see `lstd_agent.actions.chain_values`), whatever the features; of vectors, LSTDQ in
        features of pairs (see `lstd_agent.actions.pair_equations`).

        Parameters
        ----------
        observations : one observation, or a batch of m
        t : int or array_like of int, shape (m,), optional
            Timesteps at which the actions are taken: then successors are valued as `predict`
            values them a timestep later.
        policy : array_like or callable, optional
            Another policy than that of the trials, whose gain is told by the same transitions. A
            function takes batches, and answers alike each time.
        pair_features : callable, optional
            Of vectors (n, k) and actions (n,) from 0, to features of pairs (n, d). By default the
            agent's features and a constant, apart for each action.

        Returns
        -------
        ndarray, shape (m, A) or (A,)
            Relative like the values of `predict`; of another policy, those of its bias. NaN where
            the samples do not tell: of pairs never seen, or of which too much leads to where
            nothing was seen.

        Raises
        ------
        NotFittedError
            If no trials tell actions; before `fit`, unless of a policy that is given here, or as
            an array, which then is relative to a state of its own.
        InvalidInputError
            If an argument does not fit, or a timestep is no integer from 0 on.
        """
        return self._evidence(policy, pair_features).action_values(observations, t)

    def action_standard_errors(
        self,
        observations: Any,
        *,
        policy: Policy | None = None,
        pair_features: PairFeatures | None = None,
    ) -> FloatArray:
        """Return standard errors of `action_values`, by batches of trials (jackknife).

        Those of successors' values and of the gain are part of them. Of counted observations they
        are at least those of the mean of r + v(s') over an action's own transitions, by which
        `PolicyIteration` tells better actions: successors' values are common to all actions.

        Parameters
        ----------
        observations, policy, pair_features
            As in `action_values`.

        Returns
        -------
        ndarray, shape (m, A) or (A,)
            Infinite where the samples do not tell the value, or, of counted observations, those
            of a single batch alone do.

        Raises
        ------
        NotFittedError
            Where `action_values` does; if there are fewer than two batches of trials; of counted
            trials of a function, unless it is given as ``policy``.
        """
        return self._evidence(policy, pair_features).standard_errors(observations)

    def action_coverage(self, observations: Any) -> FloatArray:
        """Return how many transitions tell of each action.

        Parameters
        ----------
        observations : one observation, or a batch of m

        Returns
        -------
        ndarray, shape (m, A) or (A,)
            Numbers of transitions; of vectors, how many what was seen amounts to, by default
            features of pairs.
        """
        return self._evidence().coverage(observations)

    def diagnostics(self) -> Diagnostics:
        """Return how far the fit may be relied on; ``print`` it.

        Returns
        -------
        Diagnostics
        """
        fit = self._last_fit
        if self._diagnostics is None:
            self._diagnostics = diagnose_fit(fit)
        return self._diagnostics

    def plot(self) -> Figure:
        """Return a figure of values, occupancy over time, and neighbourhoods over the trial.

        Values have bars of two standard errors each way, of at most 200 observations in up to ten
        neighbourhoods; where the samples do not determine a value there is none.

        Returns
        -------
        matplotlib.figure.Figure
            Save it with ``figure.savefig(path)``; a notebook shows it.

        Raises
        ------
        MissingDependencyError
            Without matplotlib.
        """
        return draw(self._last_fit)

    def summary(self) -> str:
        """Return an account of the fit, and of how trials are kept, as text.

        Returns
        -------
        str
        """
        return describe(self._last_fit, self.collector.batches.account())

    @property
    def system_(self) -> System:
        """The fitted system of approximators."""
        return self._last_fit.system

    @property
    def neighborhoods_(self) -> list[Neighborhood]:
        """The fitted neighbourhoods, in order of time."""
        return self.system_.neighborhoods

    @property
    def gain_(self) -> float:
        """The gain used by the fit, given or estimated: reward per timestep, or unit of time."""
        return self.system_.gain

    @property
    def gain_error_(self) -> float:
        """Standard error of the gain, by batches of trials; 0 where it was given."""
        return self._last_fit.jackknife.gain_error

    @property
    def start_bias_(self) -> float:
        """The mean bias of the start: what a trial earns above the gain, in all.

        It does not depend on a reference state, so that policies compare by it: n steps from the
        start earn about ``n * gain_ + start_bias_``, n being large enough to settle.
        """
        return self._last_fit.start_bias

    @property
    def start_bias_error_(self) -> float:
        """Standard error of the start's mean bias, by batches of trials."""
        return self._last_fit.jackknife.start_bias_error

    @property
    def backup_(self) -> Choice:
        """The backup used by the fit: asked for, or chosen by the data; ``print`` it."""
        return self._last_fit.choice

    @property
    def main_reference_(self) -> Any:
        """The (flat) observation whose value is 0.

        By the last neighbourhood in linked systems, and before features are fitted to it by
        ``"model"``. None where that is the terminal state, or, in linked systems of vectors, the
        mean over the settled tail.
        """
        return self._last_fit.main_reference

    @property
    def _source(self) -> tuple[CountRows | TrialRows, Encoding]:
        """The rows of all trials, and how observations are encoded."""
        batches, encoding = self.collector.batches, self.collector.encoding
        if encoding is None or not batches.n_trials:
            raise NotFittedError("there are no trials yet: call collect or observe first")
        return rows_of(batches, encoding, self.rcond), encoding

    def _n_batches_of(self, source: Any) -> int:
        n_batches = len(source.batches) if source.are_places else self.n_batches
        return int(min(n_batches, source.n_trials))

    @property
    def _last_fit(self) -> Fit:
        if self._fitted is None:
            raise NotFittedError("the agent is not fitted yet: call fit first")
        return self._fitted

    def _evidence(self, policy: Any = None, pair_features: Any = None) -> ActionEvidence:
        source, _ = self._source
        of_kind = CountedEvidence if source.are_places else VectorEvidence
        known = self.collector, source, self._n_batches_of(source), self._fitted
        return of_kind(*known, policy, pair_features)

    @property
    def _fit_options(self) -> FitOptions:
        """The options of a fit as they are set, checked."""
        return FitOptions(**{each.name: getattr(self, each.name) for each in fields(FitOptions)})

    def __repr__(self) -> str:
        wanted = "stepwise" if self.n_anchors is None else f"n_anchors={self.n_anchors}"
        state = "not fitted" if self._fitted is None else f"{len(self.system_.anchors)} fitted"
        return f"<SeminormLSTDAgent {wanted}, {self.n_trials} trials, {state}>"

    def _repr_html_(self) -> str:
        """Return the summary of the fit for notebooks."""
        return as_html(repr(self)[1:-1], "" if self._fitted is None else self.summary())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the agent to a ``.npz`` file: its options, all trials, and whether it was fitted.

        Functions are not written, but for features of counted observations, as a table: `load`
        takes features and distances again. A trial under way is left out, and so is a fit of
        other trials, features or options than there are: fit again before saving.

        Parameters
        ----------
        path : path
            Written as it is named, all or nothing.

        Raises
        ------
        InvalidInputError
            If features or states are so many that `load` would refuse the file.
        """
        saved = SavedAgent.of(self.options, self.collector, self._is_current)
        saved.check_sizes()
        write(path, saved, MAKERS)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        features: Features | None = None,
        distance: DistributionDistance | None = None,
    ) -> Self:
        """Read an agent from a file that `save` wrote, and fit it again if it was fitted.

        The answers are the same as before. No code of the file runs.

        Parameters
        ----------
        path : path
        features, distance : callable, optional
            Only where they are functions, which a file does not hold.

        Raises
        ------
        InvalidInputError
            If the file is not an agent's, of another format, damaged, or lacks a function.
        """
        saved = read(path, SavedAgent, "agent", MAKERS)
        with refusing(path):
            saved.check_sizes()
            if set(saved.options) != set(signature(SeminormLSTDAgent).parameters):
                raise InvalidInputError(f"its options are {', '.join(map(str, saved.options))}")
        saved = saved.with_functions(path, features=features, distance=distance)
        with refusing(path):
            agent = cls(**saved.options)
            saved.restore(agent.collector)
        if saved.is_fitted:
            with refusing(path, "cannot be fitted again"), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # they were shown when it was fitted
                agent._fit()
        return agent
