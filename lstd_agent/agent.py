"""`SeminormLSTDAgent`, a `TrialStore` with a `Fit`: Algorithm ``training_nbwpval`` of the paper.

Trials → rows → neighbourhoods → references → weights → offsets → values.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import fields
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from lstd_agent.actions.evidence import ActionEvidence, CountedEvidence, VectorEvidence
from lstd_agent.actions.pair_equations import PairFeatures
from lstd_agent.arrays import BoolArray, FloatArray
from lstd_agent.backups import WantedBackup
from lstd_agent.diagnostics import Diagnostics
from lstd_agent.errors import FitWarning, InvalidInputError, NotFittedError, check_choice
from lstd_agent.features.tables import Features
from lstd_agent.fit import Fit
from lstd_agent.fit_checks import check_own_trials, check_single_class
from lstd_agent.fit_options import AgentTailName, CalibrationName, FitOptions
from lstd_agent.packing import read, refusing, write
from lstd_agent.persistence import MAKERS, SavedAgent
from lstd_agent.plotting import draw
from lstd_agent.returns import compare_returns
from lstd_agent.rows.kept import rows_of
from lstd_agent.standard_errors import Comparison
from lstd_agent.summary import as_html, describe
from lstd_agent.system.approximators import Neighborhood, System
from lstd_agent.system.distances import MMD, DistanceName, DistributionDistance
from lstd_agent.system.minimizer import DEFAULT_RCOND
from lstd_agent.system.neighborhoods import RuleName, SearchName
from lstd_agent.system.selection import Choice
from lstd_agent.trials.encoding import Encoding, ObservationKind
from lstd_agent.trials.policies import Policy, as_given
from lstd_agent.trials.store import DEFAULT_MAX_BYTES, Termination, TrialStore

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from typing_extensions import Self


class SeminormLSTDAgent(TrialStore):
    """Estimates the relative value of a policy from transient and recurrent states alike.

    Parameters
    ----------
    features : array_like, builder, callable or transformer
        State features; see `lstd_agent.features.tables` and `lstd_agent.features.vectors`.
    n_anchors : int, None or "auto"
        Largest number of neighbourhoods (vectors have one if single steps hold throughout), None
        for one a timestep; ``"auto"``: the fewest of 1, 2, 4 and 8 that predict trials as well.
    anchors : array_like of int, optional
        The anchors themselves, instead of a search.
    search : {"exact", "doubling"}
        As many anchors as possible in the first half of the timesteps; or the paper's search.
    distance : {"mmd", "tv", "ot"}, MMD or callable
        Distance between the state distributions (S,) of two timesteps. Vectors need the linear MMD,
        by default of median width; counts without stored trials use ``"tv"``.
    calibration : {"linked", "references"}
        How neighbourhoods are linked: backwards in time, or by reference states as in the paper.
    reference : {"occupancy", "most_common"}
        Rule for reference states; ``"most_common"`` is the paper's.
    tail : {"window", "settled"}
        By reference states, fit the last neighbourhood to all its timesteps, or their second half.
    backup : {"auto", "one_step", "model"}, MultiStep or LambdaReturn
        How far targets run before they bootstrap: ``"auto"`` as predicts held-out trials best
        (with reference states, one step). ``"model"`` takes Discrete observations as Markov states.
    gain : float or None
        Reward per timestep, or unit of time; None estimates it from the second half of trials.
    on_termination : {"raise", "absorb"}
        A trial that terminates is an error, or stays in a state without reward and value.
    rcond : float
        Relative cutoff of the pseudoinverses. If a neighbourhood's ``condition`` approaches
        1/rcond, use fewer features or wider neighbourhoods.
    n_stored_trials : int
        How many counted trials to keep whole, for the MMD and for returns of starts.
    n_batches : int
        Batches of trials for `standard_errors`: 1 (no errors), or at least 20 (2 to 19 mean 20).
    observations : {"auto", "counted", "vectors"}
        ``"auto"`` counts finite spaces (Discrete, or up to 10,000 elements); others are vectors.
    max_bytes : int
        Memory for trials of vectors; further trials are held in temporary files.
    standardize : bool
        Shorthand for ``Standardized(features)``.

    Notes
    -----
    Trials come from `collect`, the user's own loop (`attach`, `act`, `observe`, `end_trial`,
    `drop_trial`), or elsewhere (`add`, `add_trials`, `merge`). An invalid argument raises
    `InvalidInputError` and changes nothing; results before `fit` raise `NotFittedError`.

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
        kept = on_termination, n_stored_trials, n_batches, observations, max_bytes, standardize
        super().__init__(features, *kept)

    def reset(self) -> Self:
        """Forget all trials, observations, policies and fits; the options stay."""
        self._fitted: Fit | None = None
        self._diagnostics: Diagnostics | None = None
        return super().reset()

    @classmethod
    def paper(cls, features: Features, n_anchors: int | None = 2, **options: Any) -> Self:
        """Return an agent with the paper's choices: doubling search, linear MMD, references."""
        how: dict[str, Any] = {"search": "doubling", "distance": MMD("linear")}
        how |= {"calibration": "references", "reference": "most_common", **options}
        return cls(features, n_anchors, **how)

    @classmethod
    def average_reward(cls, features: Features, **options: Any) -> Self:
        """Average-reward LSTD on p*, without values of transient states (Yu & Bertsekas 2009)."""
        return cls(features, 1, calibration="references", tail="settled", **options)

    @classmethod
    def transient(cls, features: Features, **options: Any) -> Self:
        """LSTD of a task that terminates, nearly always by ``t_max`` (Bradtke & Barto 1996)."""
        options = {"backup": "one_step", **options}
        return cls(features, 1, gain=0.0, on_termination="absorb", **options)

    @classmethod
    def stepwise(cls, features: Features, **options: Any) -> Self:
        """One approximator for each timestep (section ``unify_morethantwo``)."""
        return cls(features, None, **options)

    @property
    def options(self) -> dict[str, Any]:
        """All options: ``SeminormLSTDAgent(**agent.options)`` is the same agent without trials."""
        return {name: getattr(self, name) for name in signature(SeminormLSTDAgent).parameters}

    def fit(self) -> Self:
        """Fit the system of approximators to all trials collected so far.

        It raises `InvalidInputError` if the trials show several recurrent classes, or only
        exploratory actions at some timestep, and warns by `FitWarning` of what `diagnostics` finds.
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
            Any of the space, also unseen ones (see `coverage`); None for the end of a task that
            absorbs, of value 0. The values of observations at the end are generalizations.
        t : int or array_like of int, shape (m,), optional
            Timesteps; without t, the neighbourhood with most samples of the observation predicts.

        Returns
        -------
        ndarray, shape (m,) or ()
            Estimates of b(s) - b(main reference state); in linked systems of vectors, of b(s).
        """
        return self._last_fit.answer(Fit.values, observations, t)

    def coverage(self, observations: Any, t: ArrayLike | None = None) -> FloatArray:
        """Return the share of samples at observations; where it is 0, values are generalizations.

        For vectors by the Christoffel function. For arguments see `SeminormLSTDAgent.predict`.
        """
        return self._last_fit.answer(Fit.share_of_samples, observations, t)

    def determined(self, observations: Any, t: ArrayLike | None = None) -> BoolArray:
        """Return whether the samples determine the values of observations.

        The neighbourhood must have samples of the observation, and weights that no sample decides
        hardly change the value. For arguments, see `SeminormLSTDAgent.predict`.
        """
        return self._last_fit.answer(Fit.states_determined, observations, t)

    def standard_errors(self, observations: Any, t: ArrayLike | None = None) -> FloatArray:
        """Return standard errors of the predictions, by leaving out batches of trials (jackknife).

        They include errors of the offset and the gain, and are infinite where the samples without a
        batch do not determine the value. For arguments, see `SeminormLSTDAgent.predict`.
        """
        return self._last_fit.answer(Fit.errors_of_states, observations, t)

    def compare(
        self, a: Any, b: Any, t: ArrayLike | None = None, *, by: Literal["fit", "returns"] = "fit"
    ) -> Comparison:
        """Return the value of a minus that of b; its error is at least what trials contradict.

        Parameters
        ----------
        a, b, t
            As in `predict`; a batch stands for its mean value.
        by : {"fit", "returns"}
            By fitted values, or by returns of trials that start at, or close to, a and b: noisier,
            but right for any features if the tail has settled. `diagnostics` says when to use them.

        Raises
        ------
        InvalidInputError
            By returns, with another timestep than 0; if a counted task that absorbs may end at a or
            b, since no trial goes on from there.
        """
        if check_choice("by", by, ("fit", "returns")) == "fit":
            encoding = self._last_fit.encoding
            for side in (a, b) if encoding.ends and encoding.is_counted else ():
                if side is not None and not self.coverage(side).all():
                    told = f"no trial goes on from {side!r}: if the task ends there, ask for None, "
                    raise InvalidInputError(f"{told}of value 0; otherwise collect trials of it")
            return self._last_fit.compare(a, b, t, self.diagnostics())
        if t is not None and np.any(np.asarray(t) != 0):
            raise InvalidInputError(f"by='returns' compares starts, at timestep 0; got t={t!r}")
        return compare_returns(self._last_fit, a, b, self.diagnostics().gain_conflict)

    def candidate(self, index: int) -> Any:
        """Return the (flat) observation at ``index`` of `Neighborhood.occupancy`, or None."""
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

        All recorded actions count: see ``explore`` of `collect`, and `add_trials`. Vectors use
        LSTDQ. The agent must be fitted, unless the policy is given here or is an array.

        Parameters
        ----------
        observations, t
            As in `predict`; at timesteps t, successors have the values of t + 1.
        policy : array_like, callable or OptimalPolicy, optional
            Another policy than the trials', with a gain by the same transitions. A function takes
            batches, and must always give the same answer.
        pair_features : callable, optional
            Features (n, d) of vectors (n, k) and actions (n,) from 0. By default the agent's
            features and a constant, separately for each action.

        Returns
        -------
        ndarray, shape (m, A) or (A,)
            Relative like `predict`; for another policy, its bias. NaN where the samples do not
            determine the value.
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

        They include errors of successors' values and the gain, and are infinite where the samples
        do not determine the value. A function that chose actions of counted trials must be given as
        ``policy``. For other arguments see `SeminormLSTDAgent.action_values`.
        """
        return self._evidence(policy, pair_features).standard_errors(observations)

    def action_coverage(self, observations: Any) -> FloatArray:
        """Return (effective) numbers of transitions by action; see `SeminormLSTDAgent.predict`."""
        return self._evidence().coverage(observations)

    def diagnostics(self) -> Diagnostics:
        """Return the checks of the fit and their warnings; ``print`` them."""
        if self._diagnostics is None:
            self._diagnostics = Diagnostics(self._last_fit)
        return self._diagnostics

    def plot(self) -> Figure:
        """Return a figure of values with two standard errors, occupancy, and neighbourhoods."""
        return draw(self._last_fit)

    def summary(self) -> str:
        """Return an account of the fit, and of how trials are kept, as text."""
        return describe(self._last_fit, str(self.diagnostics()), self.batches.account())

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
        """The gain of the fit, given or estimated: reward per timestep, or unit of time."""
        return self.system_.gain

    @property
    def gain_error_(self) -> float:
        """Standard error of the gain, as of `compare`; 0 if it was given and trials agree."""
        return float(max(self._last_fit.jackknife.gain_error, self.diagnostics().gain_conflict))

    @property
    def start_bias_(self) -> float:
        """The mean bias of the start: n steps from there earn about ``n * gain_ + start_bias_``."""
        return self._last_fit.jackknife.start_bias

    @property
    def start_bias_error_(self) -> float:
        """Standard error of the start's mean bias, as of `compare`."""
        of_batches = self._last_fit.jackknife.start_bias_error
        return float(max(of_batches, self.diagnostics().start_conflict))

    @property
    def backup_(self) -> Choice:
        """The backup of the fit, given or chosen by the data; ``print`` it."""
        return self._last_fit.fitted.choice

    @property
    def main_reference_(self) -> Any:
        """The (flat) observation with value 0 in the last neighbourhood.

        None is the terminal state, or, in linked systems of vectors, the mean over the tail.
        """
        return self._last_fit.candidate(self.system_.references.main)

    @property
    def _source(self) -> tuple[Any, Encoding, int]:
        """The rows of all trials, their encoding, and the number of batches."""
        batches, encoding = self._some_batches(), self.encoding
        assert encoding is not None
        source: Any = rows_of(batches, encoding, self.rcond)
        n_batches = source.batches.n_batches if source.are_places else self.n_batches
        return source, encoding, int(min(n_batches, source.n_trials))

    @property
    def _last_fit(self) -> Fit:
        if self._fitted is None:
            raise NotFittedError("the agent is not fitted yet: call fit first")
        return self._fitted

    def _evidence(self, policy: Any = None, pair_features: Any = None) -> ActionEvidence:
        source, _, n_batches = self._source
        of_kind = CountedEvidence if source.are_places else VectorEvidence
        return of_kind(self, source, n_batches, self._fitted, as_given(policy), pair_features)

    @property
    def _fit_options(self) -> FitOptions:
        """The options of a fit as they are set, checked."""
        return FitOptions(**{each.name: getattr(self, each.name) for each in fields(FitOptions)})

    def __repr__(self) -> str:
        wanted = "stepwise" if self.n_anchors is None else f"n_anchors={self.n_anchors}"
        state = "not fitted" if self._fitted is None else f"{len(self.system_.anchors)} fitted"
        return f"<SeminormLSTDAgent {wanted}, {self.n_trials} trials, {state}>"

    def _repr_html_(self) -> str:
        return as_html(repr(self)[1:-1], "" if self._fitted is None else self.summary())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the agent to a ``.npz`` file, whole or not at all: options, trials, whether fitted.

        Functions are not written to ``path``, except features of counted observations, as a table:
        pass the others to `load`. Nor are a trial under way, and a fit of other trials or options.
        """
        fit, is_fitted, checked = self._fitted, False, vars(self._fit_options)
        if fit is not None and fit.encoding is self.encoding:
            options = vars(fit.options).items()
            is_fitted = all(np.array_equal(each, checked[name]) for name, each in options)
            is_fitted = is_fitted and fit.source.n_trials == self.n_trials
        write(path, SavedAgent.of(self.options, self, is_fitted), MAKERS)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        features: Features | None = None,
        distance: DistributionDistance | None = None,
    ) -> Self:
        """Read an agent from the ``path`` of a file that `save` wrote; fit it if it was fitted.

        No code of the file runs. ``features`` and ``distance`` are needed if they are functions.

        Raises
        ------
        InvalidInputError
            If the file is not an agent's, of another format, damaged, or lacks a function.
        """
        saved = read(path, SavedAgent, "agent", MAKERS)
        saved = saved.with_functions(path, features=features, distance=distance)
        with refusing(path):
            agent = cls(**saved.options)
            agent._restore(saved)
        if saved.is_fitted:
            with refusing(path, "cannot be fitted again"):
                agent._fit()  # its warnings were shown when it was fitted
        return agent
