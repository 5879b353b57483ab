"""`SeminormLSTDAgent`: the model-free evaluator, from trials to calibrated values.

trials → statistics → neighbourhoods → references → weights → offsets → values: Algorithm
``training_nbwpval`` of the paper. The agent holds the options, a collector of trials, and the
latest `Fit`.
"""

from __future__ import annotations

import os
import warnings
from concurrent.futures import Executor
from dataclasses import fields
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from lstd_agent.actions.evidence import ActionEvidence
from lstd_agent.delegation import chained, delegated
from lstd_agent.diagnostics import Diagnostics, check_own_trials, check_single_class, diagnose
from lstd_agent.errors import FitWarning, NotFittedError
from lstd_agent.features.standardized import Standardized
from lstd_agent.features.tables import Features
from lstd_agent.fit import Fit
from lstd_agent.rows.counts import CountRows
from lstd_agent.rows.kept import TrialRows
from lstd_agent.backups import WantedBackup
from lstd_agent.fit_options import AgentTailName, CalibrationName, FitOptions
from lstd_agent.persistence import SavedAgent, read, save
from lstd_agent.plotting import draw
from lstd_agent.summary import describe
from lstd_agent.system.approximators import Neighborhood, System
from lstd_agent.system.distances import MMD, DistanceName, DistributionDistance
from lstd_agent.system.minimizer import DEFAULT_RCOND
from lstd_agent.system.neighborhoods import SearchName
from lstd_agent.system.references import RuleName
from lstd_agent.system.selection import Choice
from lstd_agent.trials.collector import Termination, TrialCollector
from lstd_agent.trials.counting import CountsLike, TransitionCounts
from lstd_agent.trials.encoding import CountedEncoding, Encoding, ObservationKind
from lstd_agent.trials.exploration import Explore
from lstd_agent.trials.kept_trials import KeptTrials
from lstd_agent.trials.policies import Policy
from lstd_agent.trials.recorders import Sums
from lstd_agent.trials.request import Request
from lstd_agent.trials.rollouts import AnyEnv
from lstd_agent.trials.room import DEFAULT_MAX_BYTES
from lstd_agent.trials.sharding import EnvSource

if TYPE_CHECKING:
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
        The anchors themselves, instead of a search.
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
        How far targets run before they bootstrap (see `lstd_agent.statistics.backups`).
        ``"auto"`` chooses by the data, from what predicts held-out trials best (see
        `lstd_agent.system.selection`); with reference states it is one step. ``"model"`` fits
        the values of the transitions of all timesteps, of Discrete observations only, which it
        takes to be Markov states (see `lstd_agent.statistics.pooled`). Vector observations need
        their trials for more than one step, which are kept up to ``max_bytes``.
    gain : float or None
        None estimates it from the second half of all timesteps (`lstd_agent.system.gain`).
    on_termination : {"raise", "absorb"}
        What a trial that terminates is: an error, since this method is for continuing tasks, or
        one that stays, without reward, in a terminal state whose features and value are 0.
    rcond : float
        Relative cutoff of the pseudoinverses (`lstd_agent.system.minimizer.minimize`). With
        Discrete observations nothing hangs on it from 1e-12 to 1e-8, unless a neighbourhood's
        ``condition`` comes near its inverse: then its samples hardly determine the values, and
        fewer features or wider neighbourhoods help.
    n_stored_trials : int
        How many trials' observations to keep, each (t_max + 1) k numbers, for the distance that
        pairs trials and, with vector observations, for reference states.
    n_batches : int
        In how many batches to keep the statistics, for `standard_errors`. With vector
        observations of d features they take n_batches (t_max + 1) (2 d² + 2 d + 1) numbers;
        with Discrete ones at most one for each visited (batch, timestep, transition).
        Standard errors fit the system again without each batch; of 10⁵ tiles each such fit takes
        about half as long as the first, so that fewer batches there cost less.
    observations : {"auto", "counted", "vectors"}
        How observations are kept: ``"auto"`` counts those of finite spaces (Discrete ones, and
        others of at most 10,000 elements), and keeps all others as vectors.
    max_bytes : int
        How much memory trials of vectors may take before they are condensed into moments of
        the features, which cannot change any more then.
    standardize : bool
        Shorthand for ``Standardized(features)``: functions of standardized observations, whose
        mean and deviation are measured on the samples and kept in files.

    Attributes
    ----------
    collector : TrialCollector
        Holds the trials, and how their observations are encoded.
    options : dict
        What the agent was made with.
    n_trials : int
        How many are finished.
    counts, kept_trials : TransitionCounts, KeptTrials
        All trials, where observations are counted, and where they are kept as they came.
    statistics, fitted_statistics_ : SampledStatistics
        What is asked of all trials, and of those that the last fit was made of.
    system_, neighborhoods_ : System, list of Neighborhood
        The fitted system of approximators, and its parts in order of time.
    gain_, start_bias_ : float
        The gain used by the fit, given or estimated, and what a trial earns above it in all.
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
    compare(a, b, t)
        A difference of values, with its own standard error.
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
    [-39.7, -26.0, -12.3]
    >>> chain = env.unwrapped.mdp.induce(policy)  # the exact answers
    >>> chain.relative_value(agent.main_reference_)[:3].round(1).tolist()
    [-39.7, -26.0, -12.3]
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
        vars(self).update(vars(self._fit_options))  # numbers as Python's own
        self.standardize = standardize
        features = self._standardized(features)
        self.collector = TrialCollector(
            features, on_termination, n_stored_trials, n_batches, observations, max_bytes
        )
        self._fitted: Fit | None = None

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
            Whether a callable policy takes batches; None finds out (`lstd_agent.trials.policies`).
        progress : bool or None
            Show a progress bar; None shows one on a terminal only.
        workers, executor
            Processes to start, or the `concurrent.futures.Executor` to use instead; see
            `lstd_agent.trials.parallel.run_tasks`. The result does not depend on them.
        shard_size : int, optional
            Trials of a shard; by default at most 50,000, and fewer if that makes 20 shards.
        is_same_policy : bool
            Says that the policy is that of the trials so far, although it looks like another.
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

    attach = chained(TrialCollector.attach, to="collector")

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
        self.collector.loop.observe(t, observation, reward, next_observation, terminated)

    end_trial = delegated(TrialCollector.end_trial, to="collector")
    drop_trial = delegated(TrialCollector.drop_trial, to="collector")

    def add(self, data: CountsLike | KeptTrials | SeminormLSTDAgent) -> Self:
        """Add trials that somebody else has collected, as one round.

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

    add_trials = chained(TrialCollector.add_trials, to="collector")

    def merge(self, other: SeminormLSTDAgent) -> Self:
        """Add the trials of another agent, with observations and ``t_max`` like this one's.

        Features need not be the same, except where trials were condensed into their moments.

        Parameters
        ----------
        other : SeminormLSTDAgent

        Raises
        ------
        InvalidInputError
            If the two have other observations, timesteps, policies or moments; nothing is added.
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
            If trials were condensed into moments of the features so far, or the features do
            not fit the observations. Then nothing has changed.
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
        """The counts of all trials so far; see `TrialCollector.counts`."""
        return self.collector.counts

    @property
    def kept_trials(self) -> KeptTrials:
        """All trials of vectors so far; see `TrialCollector.kept_trials`."""
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
        source, encoding = self._source
        check_single_class(source, encoding)
        check_own_trials(source)
        self._fitted = Fit.of(source, encoding, self._fit_options, self._n_batches_of(source))
        if found := self.diagnostics().warnings:
            warnings.warn("; ".join(found), FitWarning, stacklevel=2)
        return self

    # What is asked of the fit, the trials and their actions is described where it is answered.
    predict = delegated(Fit.predict, to="_last_fit")
    coverage = delegated(Fit.coverage, to="_last_fit")
    determined = delegated(Fit.determined, to="_last_fit")
    standard_errors = delegated(Fit.standard_errors, to="_last_fit")
    compare = delegated(Fit.compare, to="_last_fit")
    candidate = delegated(Fit.candidate, to="_last_fit")

    action_values = delegated(ActionEvidence.action_values, to="_action_evidence")
    action_standard_errors = delegated(ActionEvidence.action_standard_errors, to="_action_evidence")
    action_coverage = delegated(ActionEvidence.action_coverage, to="_action_evidence")

    diagnostics = delegated(diagnose, to="_last_fit")
    plot = delegated(draw, to="_last_fit")

    def summary(self) -> str:
        """Return an account of the fit, and of how trials are kept, as text.

        Returns
        -------
        str
        """
        return describe(self._last_fit, self.collector.account)

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
        """The gain used by the fit: given, or estimated."""
        return self.system_.gain

    @property
    def start_bias_(self) -> float:
        """The mean bias of the start: what a trial earns above the gain, in all.

        It hangs on no reference state, so that policies compare by it: n steps from the start
        earn about ``n * gain_ + start_bias_``, n being large enough to settle.
        """
        return self._last_fit.start_bias

    @property
    def gain_error_(self) -> float:
        return self._last_fit.jackknife.gain_error

    @property
    def start_bias_error_(self) -> float:
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
        """The rows of all trials, and what is observed."""
        batches, encoding = self.collector.batches, self.collector.encoding
        if encoding is None or not batches.sums:
            raise NotFittedError("there are no trials yet: call collect or observe first")
        if isinstance(encoding, CountedEncoding):
            terminal = encoding.terminal if encoding.ends else None
            sample = None
            if batches.trials is not None and len(batches.trials):
                st=batches.trials; L=(st>=0).sum(axis=1)
                sample = KeptTrials(np.concatenate((st, st[:, -1:]),axis=1), np.zeros(st.shape), None if (L==st.shape[1]).all() else L)
            return CountRows(batches.sums, encoding.table_rows, terminal, sample=sample, rcond=self.rcond), encoding
        total = batches.total
        order = np.random.default_rng(0).permutation(total.n_trials)
        total = KeptTrials(*(None if x is None else x[order] for x in (total.observations,total.rewards,total.lengths,total.actions,total.explored)))
        return TrialRows(total, encoding.rows, encoding.ends, self.max_bytes, self.rcond), encoding

    def _n_batches_of(self, source: Any) -> int:
        if source.are_places:
            return len(source.batches)
        return min(self.n_batches, source.n_trials)

    @property
    def _last_fit(self) -> Fit:
        if self._fitted is None:
            raise NotFittedError("the agent is not fitted yet: call fit first")
        return self._fitted

    @property
    def _action_evidence(self) -> ActionEvidence:
        source, _ = self._source
        return ActionEvidence(self.collector, source, self._n_batches_of(source), self._fitted)

    @property
    def _fit_options(self) -> FitOptions:
        """The options of a fit as they are set, checked."""
        return FitOptions(**{each.name: getattr(self, each.name) for each in fields(FitOptions)})

    def __repr__(self) -> str:
        wanted = "stepwise" if self.n_anchors is None else f"n_anchors={self.n_anchors}"
        state = "not fitted" if self._fitted is None else f"{len(self.system_.anchors)} fitted"
        return f"<SeminormLSTDAgent {wanted}, {self.n_trials} trials, {state}>"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the agent to a ``.npz`` file, trials' statistics and fit included.

        Functions are not written, but for features of counted observations, as a table: `load`
        takes features and distances again. A trial under way is left out.

        Parameters
        ----------
        path : path
            Written as it is named, all or nothing.
        """
        save(path, self.options, self.collector, self._fitted)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        features: Features | None = None,
        distance: DistributionDistance | None = None,
    ) -> Self:
        """Read an agent from a file that `save` wrote. Runs no code from it.

        Parameters
        ----------
        path : path
        features, distance : callable, optional
            Only where they are functions, which a file does not hold.

        Raises
        ------
        InvalidInputError
            If the file is not an agent's, of a newer format, or lacks a function.
        """
        saved = SavedAgent(path, *read(path))
        agent = cls(**saved.options(features, distance))
        saved.restore(agent.collector)
        if fitted := saved.fitted():
            agent._fitted = Fit(*agent._samples, agent._fit_options, *fitted)
        return agent
