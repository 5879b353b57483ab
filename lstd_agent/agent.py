"""`SeminormLSTDAgent`: the model-free evaluator, from trials to calibrated values.

trials → rows → neighbourhoods → references → weights → offsets → values: Algorithm
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
from lstd_agent.features.tables import Features, Standardized, same_features
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
from lstd_agent.rows.kept import TrialRows, rows_of
from lstd_agent.summary import describe
from lstd_agent.system.approximators import Neighborhood, System
from lstd_agent.system.distances import MMD, DistanceName, DistributionDistance
from lstd_agent.system.minimizer import DEFAULT_RCOND
from lstd_agent.system.neighborhoods import SearchName
from lstd_agent.system.references import RuleName
from lstd_agent.system.selection import Choice
from lstd_agent.trials.collect import AnyEnv, Request
from lstd_agent.trials.counts import CountsLike, TransitionCounts
from lstd_agent.trials.encoding import Encoding, ObservationKind
from lstd_agent.trials.kept import KeptTrials
from lstd_agent.trials.policies import Explore, Policy
from lstd_agent.trials.store import DEFAULT_MAX_BYTES, Termination, TrialStore
from lstd_agent.trials.workers import EnvSource

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
        Largest number of neighbourhoods; None is one for each timestep. ``"auto"`` fits 1, 2, 4
        and 8, and takes the fewest that predict held-out trials as well as any.
    anchors : array_like of int, optional
        The anchors themselves, instead of a search.
    search : {"exact", "doubling"}
        How anchors are searched for: as close to the wanted number as possible, none after half of
        the timesteps; or as in the paper, which may jump past the number
        (`lstd_agent.system.neighborhoods.find_anchors`).
    distance : {"mmd", "tv", "ot"}, MMD or callable
        Between the state distributions (S,) of two timesteps, for the search. Vector observations
        have the linear MMD only, by default of ``width="median"``. Counts that were added without
        trials have no ``"mmd"``: they take the total variation, and `summary` says so.
    calibration : {"linked", "references"}
        How values of neighbourhoods are tied together: solved backwards in time
        (`lstd_agent.system.linked`), or by reference states as in the paper.
    reference : {"occupancy", "most_common"}
        Rule for reference states, where there are any; the second is the paper's.
    tail : {"window", "settled"}
        With ``calibration="references"``: whether the last neighbourhood is fitted to all its
        timesteps or to their second half.
    backup : {"auto", "one_step", "model"}, MultiStep or LambdaReturn
        How far targets run before they bootstrap (`lstd_agent.backups`). ``"auto"`` takes what
        predicts held-out trials best (`lstd_agent.system.selection`), and one step with reference
        states. ``"model"`` assumes that Discrete observations are Markov states
        (`lstd_agent.system.model`).
    gain : float or None
        Reward per timestep, or per unit of time where steps have durations. None estimates it from
        the second half of all timesteps (`lstd_agent.system.gain`).
    on_termination : {"raise", "absorb"}
        A trial that terminates is an error, since this method is for continuing tasks; or it stays,
        without reward, in a terminal state whose features and value are 0.
    rcond : float
        Relative cutoff of the pseudoinverses (`lstd_agent.system.minimizer.minimize`). With
        Discrete observations, values from 1e-12 to 1e-8 give the same result, unless a
        neighbourhood's ``condition`` approaches 1/rcond: then use fewer features or wider
        neighbourhoods.
    n_stored_trials : int
        How many counted trials to keep whole, for the distance between trials and for returns of
        starts. The order in which trials come does not decide which are kept.
    n_batches : int
        Into how many batches trials are dealt, for `standard_errors`: 1 for no errors, or at least
        10; 2 to 9 mean 10, because the error of few batches is itself uncertain. Each batch costs
        memory for its counts, and a fit without its trials.
    observations : {"auto", "counted", "vectors"}
        How observations are kept: ``"auto"`` counts those of finite spaces (Discrete ones, and
        others of at most 10,000 elements), and keeps all others as vectors.
    max_bytes : int
        Memory that trials of vectors may take; beyond it they are held in temporary files.
    standardize : bool
        Shorthand for ``Standardized(features)``.

    Attributes
    ----------
    collector : TrialStore
        The trials, and how their observations are encoded.

    Notes
    -----
    Trials come by `collect`; by a loop of one's own (`attach`, `act`, `observe`, `end_trial`,
    `drop_trial`); or from elsewhere (`add`, `add_trials`, `merge`). After `fit`, answers are
    `predict`, `standard_errors`, `coverage`, `determined`, `compare` and `action_values`; the fit
    itself is shown by `diagnostics`, `summary`, `plot` and the names that end in ``_``.

    Source: Algorithm ``training_nbwpval`` and section ``approxbias``; the default calibration is
    ours. Methods that change the agent return it, so that calls can be chained. An argument that
    does not fit raises `InvalidInputError`, and nothing has changed. Asking for results before
    `fit` raises `NotFittedError`.

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
            As of the class.
        """
        choices = {
            "search": "doubling",
            "distance": MMD("linear"),
            "calibration": "references",
            "reference": "most_common",
        }
        return cls(features, n_anchors, **{**choices, **options})

    @classmethod
    def average_reward(cls, features: Features, **options: Any) -> Self:
        """Average-reward LSTD on p*: one neighbourhood, fitted once the chain has settled.

        It says nothing about transient states.

        Parameters
        ----------
        features, **options
            As of the class.

        Notes
        -----
        Source: Yu & Bertsekas (2009), section II.A; section ``unify_existing``, first case.
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
            As of the class.

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
            As of the class.
        """
        return cls(features, None, **options)

    @property
    def features(self) -> Features:
        """State features; `Standardized` ones are measured as soon as there are trials."""
        return self.collector.features

    @property
    def on_termination(self) -> Termination:
        """What a trial that terminates is."""
        return self.collector.on_termination

    @property
    def n_stored_trials(self) -> int:
        """How many counted trials are kept whole."""
        return self.collector.n_stored_trials

    @property
    def n_batches(self) -> int:
        """Into how many batches trials are dealt."""
        return self.collector.n_batches

    @property
    def observations(self) -> ObservationKind:
        """How observations are kept."""
        return self.collector.observations

    @property
    def max_bytes(self) -> int:
        """Memory that trials of vectors may take."""
        return self.collector.max_bytes

    @property
    def options(self) -> dict[str, Any]:
        """All options: ``SeminormLSTDAgent(**agent.options)`` is the same agent without trials."""
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

        Finished trials stay even if the collection is interrupted: a plain environment's one by
        one, a vector environment's once all its copies are through, those of workers shard by
        shard. A step takes ``info["duration"]`` where there is one, and else 1; see `observe`.

        Parameters
        ----------
        env : Env, VectorEnv, str or callable
            A continuing task. The more copies a vector environment has, the faster. The trials of
            an id, or of a picklable function that makes an environment, are cut into shards that
            workers share.
        policy : array_like or callable
            An action a state (S,), action probabilities (S, A), or a function of observations.
        n_trials, t_max : int
            Number of trials, each over timesteps 0 to t_max, the same in every collection.
        seed : int, optional
            The same seed, environment and policy give the same trials.
        batched : bool or None
            Whether a callable policy takes batches; None finds out (`lstd_agent.trials.policies`).
        progress : bool or None
            Show a progress bar; None shows one on a terminal only.
        workers, executor
            Processes to start, or the `concurrent.futures.Executor` to use instead. The result
            does not depend on them.
        shard_size : int, optional
            Trials of a shard; by default at most 50,000, and fewer if that makes 20 shards.
        is_same_policy : bool
            Says that the policy is the one of the trials so far, although it looks like another.
        explore : int, float or callable, optional
            For `action_values`, of Discrete actions: so many exploratory actions a trial at random
            timesteps; with this probability at each timestep; or another policy at all timesteps.
            They come in the first half of a trial only, so gain and settled tail stay the policy's,
            and are uniform over the available actions (``info["action_mask"]``). The policy's
            statistics leave them out. With 0 actions are recorded and none is exploratory.

        Raises
        ------
        TerminationError
            If a trial terminates, unless ``on_termination="absorb"``, or is truncated early.
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
        """Begin a loop of the user's own: set what `observe` sees and what `act` does.

        Parameters
        ----------
        env : Env or VectorEnv
            Only its spaces are used.
        policy, batched, is_same_policy : optional
            As in `collect`.
        t_max : int, optional
            The last timestep of every trial; by default the last one of the first finished trial.
        seed : int, optional
            Of a stochastic policy's draws.
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
            With ``on_termination="absorb"``: whether the trial ended with this transition. Later
            observations of that trial are ignored.
        duration : float or array_like, shape (n,), optional
            How long the step takes, at least 0; then the gain is reward per unit of time. Either
            all steps of all trials have a duration, or none: each takes 1 then.

        Raises
        ------
        InvalidInputError
            If the timestep or observation does not follow the last, or an argument does not fit.
            Vectors are checked for finite numbers when the trial ends.
        TerminationError
            If the trial terminates, unless ``on_termination="absorb"``.
        """
        step = t, observation, reward, next_observation, terminated, duration
        self.collector.loop.observe(*step)

    def end_trial(self) -> None:
        """Finish the trial, or the trials in lockstep, that have been observed up to here.

        The first to finish sets ``t_max``, unless `attach` did. One that terminated may be shorter.
        """
        self.collector.loop.end_trial()

    def drop_trial(self) -> None:
        """Forget the trial, or the trials in lockstep, that have not ended."""
        self.collector.loop.drop_trial()

    def add(self, data: CountsLike | KeptTrials | SeminormLSTDAgent) -> Self:
        """Add trials from elsewhere; if they are of another task or length, nothing is added.

        Parameters
        ----------
        data : TransitionCounts, KeptTrials or agent
            Counts (`unichain_gym.simulate_counts`, another agent's `counts`) of states 0 to S - 1
            in the order of the observations; kept trials (`KeptTrials.of`), which are counted if
            observations are; or an agent, as `merge` does.
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

        A trial shorter than the longest was cut short; the task did not end. Each timestep uses the
        transitions of the trials that have it. Equations are of single transitions, so they stay
        right where observations decided when trials were cut. Occupancies, mean rewards and the
        gain are means over the trials that were left.

        Parameters
        ----------
        observations : array_like (m, n + 1, ...), list of batches, LoggedTrials or Minari dataset
            One more than there are rewards: the last follows the last reward. Tables come by
            `LoggedTrials.from_frame`.
        rewards, actions, terminated, durations
            As `LoggedTrials.of` takes them. Discrete actions serve `action_values`, whoever chose
            them; trials may end with ``on_termination="absorb"``.
        t_max : int, optional
            The last timestep: later ones are left out. By default that of the trials so far, or of
            the longest trial.
        policy : array_like or callable, optional
            Whose trials they are said to be: refused if it never, or hardly as often, takes one of
            the actions. By default they are taken for trials of the evaluated policy.
        batched, is_same_policy : bool
            As in `collect`.
        observation_space : Space, optional
            Needed where neither `attach`, `collect`, the log nor the features tell it: vectors of
            floats are unbounded without it.
        action_space : Space, optional
            Without one, integers are Discrete actions from 0 to the largest that was logged.

        Raises
        ------
        TerminationError
            If a trial terminated, unless ``on_termination="absorb"``.
        """
        self.collector.add_trials(
            *(observations, rewards, actions, terminated, durations, t_max),
            *(policy, batched, is_same_policy, observation_space, action_space),
        )
        return self

    def merge(self, other: SeminormLSTDAgent) -> Self:
        """Add the trials of another agent, of the same observations, ``t_max`` and policy.

        Parameters
        ----------
        other : SeminormLSTDAgent
            Its features may be others.
        """
        self.collector.merge(other.collector)
        return self

    def use_features(self, features: Features) -> Self:
        """Use other features from here on, of the trials so far too; fit (again) afterwards.

        Parameters
        ----------
        features : Features
        """
        self.collector.use_features(self._standardized(features))
        return self

    def _standardized(self, features: Features) -> Features:
        """Return features, of standardized observations if the agent standardizes."""
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
        """The counts of all trials so far, for `add` of any agent, where observations are counted.

        Raises `NotFittedError` without any trials, and `InvalidInputError` if observations are
        vectors.
        """
        return self.collector.counts

    @property
    def kept_trials(self) -> KeptTrials:
        """All trials of vectors so far, in their order, for `add` of any agent.

        Raises `NotFittedError` without any trials, and `InvalidInputError` if they are counted.
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
            The share of the neighbourhood's samples at the observation, for vectors by the
            Christoffel function (`lstd_agent.rows.christoffel`). Where it is 0 the prediction is
            all generalization.
        """
        return self._last_fit.coverage(observations, t)

    def determined(self, observations: Any, t: ArrayLike | None = None) -> BoolArray:
        """Return whether the samples determine the values of observations.

        The neighbourhood that predicts must have seen the observation, and the weights that samples
        leave open, there and in all later neighbourhoods, must hardly change the value. With
        ``backup="model"`` the state must lead to the main reference state.

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

        They include the errors of the offset and of an estimated gain, not the choice of anchors
        and reference states.

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

        Values share errors, above all that of the gain, so a difference needs its own.

        Parameters
        ----------
        a, b : one observation, or a batch of which the mean value counts
        t : optional
            As in `predict`, for both.
        by : {"fit", "returns"}
            By the fitted values; or by what trials earned that start at, or close to, these
            observations: noisier, but right whatever features and observations leave out, if the
            tail has settled. `diagnostics` says when to prefer it.

        Raises
        ------
        NotFittedError
            If there are fewer than two batches of trials; by returns, fewer than two trials.
        InvalidInputError
            By returns, with another timestep than 0.
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

        All transitions of recorded actions count, whoever chose them: see ``explore`` of `collect`,
        and `add_trials`. Values of counted observations come from pooled counts, whatever the
        features (`lstd_agent.actions.chain_values`); values of vectors from LSTDQ in features of
        pairs (`lstd_agent.actions.pair_equations`).

        Parameters
        ----------
        observations : one observation, or a batch of m
        t : int or array_like of int, shape (m,), optional
            Timesteps of the actions: then successors have the values of `predict` a timestep later.
        policy : array_like or callable, optional
            Another policy than that of the trials; its gain comes from the same transitions. A
            function takes batches, and must answer alike each time.
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
            If no trials have actions; before `fit`, unless the policy is given here, or is an
            array: its values are then relative to a state of its own.
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

        They include the errors of successors' values and of the gain. Those of counted observations
        are at least the error of the mean of r + v(s') over an action's own transitions, by which
        `PolicyIteration` compares actions: successors' values are common to all actions.

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
            Where `action_values` does; if there are fewer than two batches of trials; for counted
            trials of a function, unless it is given as ``policy``.
        """
        return self._evidence(policy, pair_features).standard_errors(observations)

    def action_coverage(self, observations: Any) -> FloatArray:
        """Return how many transitions there are of each action.

        Parameters
        ----------
        observations : one observation, or a batch of m

        Returns
        -------
        ndarray, shape (m, A) or (A,)
            Of vectors an effective number, by the default features of pairs.
        """
        return self._evidence().coverage(observations)

    def diagnostics(self) -> Diagnostics:
        """Return how far the fit may be relied on; ``print`` it."""
        fit = self._last_fit
        if self._diagnostics is None:
            self._diagnostics = diagnose_fit(fit)
        return self._diagnostics

    def plot(self) -> Figure:
        """Return a figure of values, occupancy over time, and neighbourhoods over the trial.

        ``figure.savefig(path)`` saves it; a notebook shows it. Determined values have bars of two
        standard errors each way, of at most 200 observations in up to ten neighbourhoods.

        Raises
        ------
        MissingDependencyError
            Without matplotlib.
        """
        return draw(self._last_fit)

    def summary(self) -> str:
        """Return an account of the fit, and of how trials are kept, as text."""
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

        n steps from the start, for large n, earn about ``n * gain_ + start_bias_``. It depends on
        no reference state, so policies compare by it.
        """
        return self._last_fit.jackknife.start_bias

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
        """The (flat) observation whose value is 0 by the last neighbourhood.

        With ``"model"`` its value is 0 before features are fitted. None is the terminal state, or,
        in linked systems of vectors, the mean over the settled tail.
        """
        return self._last_fit.candidate(self.system_.references.main)

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
        takes features and distances again. Left out are a trial under way, and a fit of other
        trials, features or options than the present ones: fit again before saving.

        Parameters
        ----------
        path : path
            Written as it is named, all or nothing.
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
