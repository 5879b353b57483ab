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
from lstd_agent.fit import Fit
from lstd_agent.fit_checks import (
    check_own_trials,
    check_single_class,
    compare_returns,
)
from lstd_agent.fit_options import AgentTailName, CalibrationName, FitOptions
from lstd_agent.html import as_html
from lstd_agent.packing import read, refusing, write
from lstd_agent.persistence import MAKERS, SavedAgent
from lstd_agent.plotting import draw
from lstd_agent.rows.kept import rows_of
from lstd_agent.standard_errors import Comparison
from lstd_agent.summary import describe
from lstd_agent.system.approximators import Neighborhood, System
from lstd_agent.system.distances import MMD, DistanceName, DistributionDistance
from lstd_agent.system.minimizer import DEFAULT_RCOND
from lstd_agent.system.neighborhoods import RuleName, SearchName
from lstd_agent.system.selection import Choice
from lstd_agent.trials.collect import AnyEnv, Explore, Request
from lstd_agent.trials.counts import CountsLike, TransitionCounts
from lstd_agent.trials.encoding import Encoding, ObservationKind
from lstd_agent.trials.kept import KeptTrials
from lstd_agent.trials.policies import Policy
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
        As close to the wanted number as possible, with anchors in the first half of the timesteps;
        or the paper's search, which may find fewer.
    distance : {"mmd", "tv", "ot"}, MMD or callable
        Distance between the state distributions (S,) of two timesteps. Vectors need the linear MMD,
        by default with ``width="median"``. Counts without stored trials use the total variation
        instead of ``"mmd"``, and `summary` says so.
    calibration : {"linked", "references"}
        How neighbourhoods are linked: backwards in time, or by reference states as in the paper.
    reference : {"occupancy", "most_common"}
        Rule for reference states; ``"most_common"`` is the paper's.
    tail : {"window", "settled"}
        By reference states, fit the last neighbourhood to all its timesteps, or their second half.
    backup : {"auto", "one_step", "model"}, MultiStep or LambdaReturn
        How far targets run before they bootstrap. ``"auto"`` takes the backup that predicts
        held-out trials best; with reference states, one step. ``"model"`` assumes that Discrete
        observations are Markov states.
    gain : float or None
        Reward per timestep, or per unit of time where steps have durations. None estimates it from
        the second half of all timesteps.
    on_termination : {"raise", "absorb"}
        A trial that terminates is an error, or stays without reward in a terminal state whose
        features and value are 0.
    rcond : float
        Relative cutoff of the pseudoinverses. With Discrete observations, values from 1e-12 to 1e-8
        give the same result, unless a neighbourhood's ``condition`` approaches 1/rcond: then use
        fewer features or wider neighbourhoods.
    n_stored_trials : int
        How many counted trials to keep whole, for the MMD and for returns of starts. The choice
        does not depend on the order of trials.
    n_batches : int
        Number of batches of trials for `standard_errors`: 1 (no errors) or at least 10; 2 to 9 mean
        10. Each batch costs memory, and one more fit.
    observations : {"auto", "counted", "vectors"}
        ``"auto"`` counts observations of finite spaces (Discrete, or of at most 10,000 elements),
        and keeps all others as vectors.
    max_bytes : int
        Memory for trials of vectors; further trials are held in temporary files.
    standardize : bool
        Shorthand for ``Standardized(features)``.

    Attributes
    ----------
    collector : TrialStore
        The trials, and how their observations are encoded.

    Notes
    -----
    Trials come from `collect`, from the user's own loop (`attach`, `act`, `observe`, `end_trial`,
    `drop_trial`), or from elsewhere (`add`, `add_trials`, `merge`). Methods that change the agent
    return it. An invalid argument raises `InvalidInputError` and changes nothing; results before
    `fit` raise `NotFittedError`. Source: Algorithm ``training_nbwpval`` and section ``approxbias``;
    the default calibration is ours.

    Examples
    --------
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
        self.n_anchors, self.anchors, self.search = n_anchors, anchors, search
        self.distance, self.calibration, self.reference = distance, calibration, reference
        self.tail, self.backup, self.gain, self.rcond = tail, backup, gain, rcond
        checked = self._fit_options
        self.n_anchors, self.gain, self.rcond = checked.n_anchors, checked.gain, checked.rcond
        self.standardize = standardize
        kept = on_termination, n_stored_trials, n_batches, observations, max_bytes
        self.collector = TrialStore(self._standardized(features), *kept)
        self._fitted: Fit | None = None
        self._diagnostics: Diagnostics | None = None

    @classmethod
    def paper(cls, features: Features, n_anchors: int | None = 2, **options: Any) -> Self:
        """Return an agent with the paper's choices instead of our defaults.

        Doubling search by the linear MMD with a Gaussian kernel of width 1, the most common
        reference states, and a last neighbourhood that averages up to ``t_max``.
        """
        choices: dict[str, Any] = {"search": "doubling", "distance": MMD("linear")}
        choices |= {"calibration": "references", "reference": "most_common", **options}
        return cls(features, n_anchors, **choices)

    @classmethod
    def average_reward(cls, features: Features, **options: Any) -> Self:
        """Average-reward LSTD on p*: one neighbourhood, fitted once the chain has settled.

        It gives no values of transient states. Source: Yu & Bertsekas (2009), section II.A; section
        ``unify_existing``, first case.
        """
        return cls(features, 1, calibration="references", tail="settled", **options)

    @classmethod
    def transient(cls, features: Features, **options: Any) -> Self:
        """LSTD of a task that terminates: one neighbourhood, weighted by visits until the end.

        Predictions are total rewards until termination; ``t_max`` must be long enough for (nearly)
        all trials to terminate. Source: Bradtke & Barto (1996), theorem 1, undiscounted; section
        ``unify_existing``, second case.
        """
        choices = {"backup": "one_step", **options}
        return cls(features, 1, gain=0.0, on_termination="absorb", **choices)

    @classmethod
    def stepwise(cls, features: Features, **options: Any) -> Self:
        """One approximator for each timestep (section ``unify_morethantwo``)."""
        return cls(features, None, **options)

    # The store keeps and checks the options of trials.
    features = property(lambda self: self.collector.features)
    on_termination = property(lambda self: self.collector.on_termination)
    n_stored_trials = property(lambda self: self.collector.n_stored_trials)
    n_batches = property(lambda self: self.collector.n_batches)
    observations = property(lambda self: self.collector.observations)
    max_bytes = property(lambda self: self.collector.max_bytes)

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
        """Run trials and add them to the trials so far.

        An interrupt keeps finished trials of a plain environment, finished rounds of a vector
        environment, and finished shards. A trial that terminates raises `TerminationError`, unless
        ``on_termination="absorb"``, and so does one that is truncated early.

        Parameters
        ----------
        env : Env, VectorEnv, str or callable
            A continuing task; ``info["duration"]`` may give a step's time. Trials of an id, or of a
            picklable function that makes an environment, run in shards that workers share.
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
            Trials of a shard; by default at most 50,000, and fewer to make 20 shards.
        is_same_policy : bool
            Asserts that this is the policy of the trials so far, although it looks like another.
        explore : int, float or callable, optional
            For `action_values` of Discrete actions: a number of random actions per trial, their
            probability at each timestep, or another policy, in the first half of a trial. Random
            actions are uniform over ``info["action_mask"]``. The policy's statistics leave them
            out. 0 records actions alone.
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
        self.collector.attach(env, policy, t_max, seed, batched, is_same_policy)
        return self

    def act(self, observation: Any) -> Any:
        """Return the action for an ``observation``, or a batch, of the policy of `attach`."""
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

        Vectors are checked for finite numbers when the trial ends.

        Parameters
        ----------
        t : int
            The timestep, from 0, within the trial.
        observation, next_observation : observation or batch of n
            At t, and the next one, before any reset.
        reward, terminated : number or array_like, shape (n,)
            The reward's shape distinguishes a batch from a single trial. Without
            ``on_termination="absorb"``, a trial that terminates raises `TerminationError`; with it,
            its later observations are ignored.
        duration : float or array_like, shape (n,), optional
            At least 0, of all steps of all trials or of none; the gain is then per unit of time.
        """
        step = t, observation, reward, next_observation, terminated, duration
        self.collector.loop.observe(*step)

    def end_trial(self) -> None:
        """Finish the observed trial, or the trials in lockstep.

        The first one sets ``t_max``, unless `attach` did. A terminated trial may be shorter.
        """
        self.collector.loop.end_trial()

    def drop_trial(self) -> None:
        """Forget the unfinished trial, or the trials in lockstep."""
        self.collector.loop.drop_trial()

    def add(self, data: CountsLike | KeptTrials | SeminormLSTDAgent) -> Self:
        """Add trials of the same task and length from elsewhere.

        Parameters
        ----------
        data : TransitionCounts, KeptTrials or agent
            Counts (`unichain_gym.simulate_counts`) of states 0 to S - 1 in the order of the
            observations; kept trials (`KeptTrials.of`), which are counted if observations are; or
            an agent, as `merge` does.
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
        """Add logged trials of any lengths.

        A shorter trial counts as cut short, not as ended. Values stay right even if observations
        decide when trials are cut, because equations are of single transitions. Occupancies, mean
        rewards and the gain are means over the trials that reach a timestep.

        Parameters
        ----------
        observations : array_like (m, n + 1, ...), list of batches, LoggedTrials or Minari dataset
            One more than rewards. For tables see `LoggedTrials.from_frame`.
        rewards, actions, terminated, durations
            See `LoggedTrials.of`. Discrete actions of any policy serve `action_values`. A trial
            that ends raises `TerminationError`, unless ``on_termination="absorb"``.
        t_max : int, optional
            The last timestep to use; by default of the trials so far, or of the longest trial.
        policy, batched, is_same_policy : optional
            The policy that chose the actions, as in `collect`; refused if it never takes one of
            them, or far less often than the log.
        observation_space, action_space : Space, optional
            Needed if `attach`, `collect`, the log and the features leave them open. Vectors of
            floats are unbounded by default; integers are Discrete actions from 0 to the largest.
        """
        self.collector.add_trials(
            *(observations, rewards, actions, terminated, durations, t_max),
            *(policy, batched, is_same_policy, observation_space, action_space),
        )
        return self

    def merge(self, other: SeminormLSTDAgent) -> Self:
        """Add the trials of an ``other`` agent, of the same observations, ``t_max`` and policy."""
        self.collector.merge(other.collector)
        return self

    def use_features(self, features: Features) -> Self:
        """Use other ``features``, for the trials so far too; call `fit` afterwards."""
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
        """The counts of all trials so far, for `add` of another agent; not of vectors."""
        return self.collector.counts

    @property
    def kept_trials(self) -> KeptTrials:
        """All trials of vectors so far, for `add` of another agent."""
        return self.collector.kept_trials

    def fit(self) -> Self:
        """Fit the system of approximators to all trials collected so far.

        It raises `InvalidInputError` if the trials show more than one recurrent class, or all
        actions at some timestep are exploratory. It warns by `FitWarning` if the tail has not
        settled, the samples do not determine the values of the start, or its mean value contradicts
        the observed rewards.
        """
        self._fit()
        if found := self.diagnostics().warnings:
            warnings.warn("; ".join(found), FitWarning, stacklevel=2)
        return self

    def _fit(self) -> None:
        source, encoding, n_batches = self._source
        check_single_class(source, encoding)
        check_own_trials(source)
        self._fitted = Fit.of(source, encoding, self._fit_options, n_batches)
        self._diagnostics = None

    def predict(self, observations: Any, t: ArrayLike | None = None) -> FloatArray:
        """Return calibrated relative values.

        Parameters
        ----------
        observations : one observation, or a batch of m
            Any of the space, also unseen ones (see `coverage`).
        t : int or array_like of int, shape (m,), optional
            Timesteps of the observations; beyond ``t_max`` the last neighbourhood predicts. Without
            t, the neighbourhood with most samples of the observation predicts.

        Returns
        -------
        ndarray, shape (m,) or ()
            Estimates of b(s) - b(main reference state), in units of reward; in linked systems of
            vectors, of b(s).
        """
        return self._last_fit.answer(Fit.values, observations, t)

    def coverage(self, observations: Any, t: ArrayLike | None = None) -> FloatArray:
        """Return the share of samples at the observations, in the neighbourhood that predicts.

        For vectors by the Christoffel function (`lstd_agent.rows.factors`). A prediction where
        it is 0 is pure generalization. For arguments see `SeminormLSTDAgent.predict`.
        """
        return self._last_fit.answer(Fit.share_of_samples, observations, t)

    def determined(self, observations: Any, t: ArrayLike | None = None) -> BoolArray:
        """Return whether the samples determine the values of observations.

        The neighbourhood that predicts must have samples of the observation. Weights that the
        samples leave open, in this and later neighbourhoods, must hardly change the value. With
        ``backup="model"`` the state must lead to the main reference state. For arguments,
        see `SeminormLSTDAgent.predict`.
        """
        return self._last_fit.answer(Fit.states_determined, observations, t)

    def standard_errors(self, observations: Any, t: ArrayLike | None = None) -> FloatArray:
        """Return standard errors of the predictions, by leaving out batches of trials (jackknife).

        They include the errors of the offset and of an estimated gain, not of the choice of anchors
        and reference states. They are infinite where the samples do not determine the value, or
        would not without one of the batches. For arguments, see `SeminormLSTDAgent.predict`.
        """
        return self._last_fit.answer(Fit.errors_of_states, observations, t)

    def compare(
        self, a: Any, b: Any, t: ArrayLike | None = None, *, by: Literal["fit", "returns"] = "fit"
    ) -> Comparison:
        """Return the value of a minus the value of b, with its standard error.

        Values share errors, above all the gain's, so a difference has its own standard error.

        Parameters
        ----------
        a, b : one observation, or a batch (its mean value)
        t : optional
            As in `predict`, for both; returns are of starts, at timestep 0.
        by : {"fit", "returns"}
            By the fitted values, or by the returns of trials that start at, or close to, these
            observations. Returns are noisier, but right for any features and hidden states if the
            tail has settled. `diagnostics` says when to prefer them.

        Raises
        ------
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

        ``index`` is as in `Neighborhood.reference` and along `Neighborhood.occupancy`. None is
        returned for -1 and the terminal state.
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
        """Return action values q(s, a): first the action, then the policy.

        All recorded actions count: see ``explore`` of `collect`, and `add_trials`. Counted
        observations need no features; vectors use LSTDQ in features of pairs. The agent must be
        fitted, unless the policy is given here or is an array (then values are relative to a state
        of its own).

        Parameters
        ----------
        observations : one observation, or a batch of m
        t : int or array_like of int, shape (m,), optional
            Timesteps of the actions: successors then have the values of `predict` at t + 1.
        policy : array_like or callable, optional
            Another policy than the trials'; its gain comes from the same transitions. A function
            takes batches, and must always give the same answer.
        pair_features : callable, optional
            Features (n, d) of vectors (n, k) and actions (n,) from 0. By default the agent's
            features and a constant, separately for each action.

        Returns
        -------
        ndarray, shape (m, A) or (A,)
            Relative like `predict`; for another policy, its bias. NaN where the samples do not
            determine the value: for unseen pairs, and pairs that too often lead to unseen states.
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

        They include the errors of successors' values and of the gain. For counted observations they
        are at least the error of the mean of r + v(s') over the action's transitions. They are
        infinite where the samples do not determine the value or, for counted observations, would
        not without one of the batches. For arguments see `SeminormLSTDAgent.action_values`; a
        function that chose actions of counted trials must be given as ``policy``.
        """
        return self._evidence(policy, pair_features).standard_errors(observations)

    def action_coverage(self, observations: Any) -> FloatArray:
        """Return the number of transitions with each action, shape (m, A) or (A,).

        For vectors it is an effective number in the default features of pairs. For arguments,
        see `SeminormLSTDAgent.action_values`.
        """
        return self._evidence().coverage(observations)

    def diagnostics(self) -> Diagnostics:
        """Return the checks of the fit and their warnings; ``print`` them."""
        fit = self._last_fit
        if self._diagnostics is None:
            self._diagnostics = Diagnostics(fit)
        return self._diagnostics

    def plot(self) -> Figure:
        """Return a figure of values, occupancy over time, and neighbourhoods over the trial.

        Bars are two standard errors each way, of up to 200 determined values in each of up to ten
        neighbourhoods.
        """
        return draw(self._last_fit)

    def summary(self) -> str:
        """Return an account of the fit, and of how trials are kept, as text."""
        return describe(self._last_fit, str(self.diagnostics()), self.collector.batches.account())

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
        """The mean bias of the start: the total reward of a trial above the gain.

        For large n, n steps from the start earn about ``n * gain_ + start_bias_``. No reference
        state enters, so this number compares policies.
        """
        return self._last_fit.jackknife.start_bias

    @property
    def start_bias_error_(self) -> float:
        """Standard error of the start's mean bias, by batches of trials."""
        return self._last_fit.jackknife.start_bias_error

    @property
    def backup_(self) -> Choice:
        """The backup of the fit, given or chosen by the data; ``print`` it."""
        return self._last_fit.choice

    @property
    def main_reference_(self) -> Any:
        """The (flat) observation that has value 0 in the last neighbourhood.

        With ``"model"`` its value is 0 before features are fitted. None is the terminal state, or,
        in linked systems of vectors, the mean over the settled tail.
        """
        return self._last_fit.candidate(self.system_.references.main)

    @property
    def _source(self) -> tuple[Any, Encoding, int]:
        """The rows of all trials, how observations are encoded, and the number of batches."""
        batches, encoding = self.collector.batches, self.collector.encoding
        if encoding is None or not batches.n_trials:
            raise NotFittedError("there are no trials yet: call collect or observe first")
        source: Any = rows_of(batches, encoding, self.rcond)
        n_batches = len(source.batches) if source.are_places else self.n_batches
        return source, encoding, int(min(n_batches, source.n_trials))

    @property
    def _last_fit(self) -> Fit:
        if self._fitted is None:
            raise NotFittedError("the agent is not fitted yet: call fit first")
        return self._fitted

    def _evidence(self, policy: Any = None, pair_features: Any = None) -> ActionEvidence:
        source, _, n_batches = self._source
        of_kind = CountedEvidence if source.are_places else VectorEvidence
        return of_kind(self.collector, source, n_batches, self._fitted, policy, pair_features)

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
        """Write the agent to a ``.npz`` file, whole or not at all: options, trials, whether fitted.

        Functions are not written to ``path``, except features of counted observations, as a table:
        pass the others to `load`. Not saved are a trial under way, and a fit of other trials,
        features or options than the present ones.
        """
        fit, store = self._fitted, self.collector
        is_fitted = (
            fit is not None
            and fit.encoding is store.encoding
            and fit.source.n_trials == store.n_trials
            and same_features(fit.options, self._fit_options)
        )
        saved = SavedAgent.of(self.options, store, is_fitted)
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
        """Read an agent from the ``path`` of a file that `save` wrote; fit it if it was fitted.

        The answers are the same as before. No code of the file runs. ``features`` and ``distance``
        are needed if they are functions, which a file does not hold.

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
            with refusing(path, "cannot be fitted again"):
                agent._fit()  # its warnings were shown when it was fitted
        return agent
