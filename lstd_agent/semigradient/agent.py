r"""`SeminormTDAgent`: a linked system whose weights start somewhere, and move.

The system is that of `lstd_agent.system.linked`. Section ``prelim`` of the paper says that
semi-gradient TD comes to the same solution as LSTD, and its conclusion what it has beyond it:
*initial weights*, which can be those of the policy before, where policies are improved in turn.
`lstd_agent.semigradient.steps` moves them with samples that are seen once,
`lstd_agent.semigradient.sweeps` with samples at hand.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.errors import (
    EvaluationError,
    FitWarning,
    InvalidInputError,
    NotFittedError,
    check_integer,
)
from lstd_agent.features.rows import with_ones
from lstd_agent.features.tables import Features
from lstd_agent.semigradient.samples import Reader, reader, sampled_values, some_timesteps
from lstd_agent.semigradient.steps import StepPath, coordinates
from lstd_agent.semigradient.sweeps import check_direction, sweep_backwards
from lstd_agent.statistics.interface import SampledStatistics
from lstd_agent.statistics.making import make_statistics
from lstd_agent.system.approximators import System
from lstd_agent.system.gain import check_gain, estimate_gain
from lstd_agent.system.minimizer import DEFAULT_RCOND
from lstd_agent.system.neighborhoods import check_anchors, neighborhood_windows
from lstd_agent.trials.batches import Batches
from lstd_agent.trials.collector import TrialCollector
from lstd_agent.trials.counting import CountsLike
from lstd_agent.trials.encoding import Encoding

if TYPE_CHECKING:
    from typing_extensions import Self

# Values this many times larger than all rewards of a trial together are none.
_FAR_OFF = 1e3

# The first round is looked at in the square of the features, which of more are too many.
_MOST_CHECKED = 300


class SeminormTDAgent:
    """Evaluates a policy by semi-gradient steps from initial weights.

    Parameters
    ----------
    features : array_like, builder, callable or transformer
        As of `SeminormLSTDAgent`.
    anchors : array_like of int
        First timesteps of the neighbourhoods, the first of them 0.
    gain : float, optional
        By default estimated: by `partial_fit` as the mean reward of the second half of all
        timesteps so far, by `fit` as `SeminormLSTDAgent` does.
    initial : System or SeminormTDAgent, optional
        Whose weights to begin with, such as ``system_`` of an agent that evaluated the policy
        before, with the same features. Without it weights begin with 0, and those of earlier
        neighbourhoods with what the next one has come to.
    seed : int
        Of the order of timesteps.

    Attributes
    ----------
    weights_ : ndarray, shape (n, d)
    offsets_ : ndarray, shape (n,)
        Neighbourhood k's values are f(s)·weights + offset. Their mean over the second half of all
        timesteps, as far as it is in the last neighbourhood, is 0, as is the bias in the steady
        state.
    gain_ : float
    n_trials : int
        Trials that `partial_fit` has taken.
    n_sweeps_ : int
        Steps that the last `fit` took, over all neighbourhoods.

    Methods
    -------
    partial_fit(trials)
        Take a round of trials, once, and forget them.
    fit(trials)
        Move until the samples have nothing more to say.
    predict(observations, t)
        Values at a timestep.

    Notes
    -----
    Source: Tsitsiklis & Van Roy (1999), "Average cost temporal-difference learning", for one
    neighbourhood; the conclusion of the paper for a system.

    `partial_fit` remembers a step size for each feature and nothing of how features go together.
    One-hot features and groups of states are at the LSTD solution after a pass, but for noise.
    Dense ones come to it as slowly as rare states are seen, whose differences no single feature
    has for itself: in h36c with 7 Gaussian features, two neighbourhoods and 8,000 trials a fifth
    of the values' standard deviation is missing in the first one, and most of it in the last.
    Steps that lead away from the solution, where X has an eigenvalue with a real part below 0,
    are warned of by the first round's trials (of up to 300 features). `fit` ends in the solution,
    with any features, or says why it does not.

    Examples
    --------
    >>> import unichain_gym
    >>> from lstd_agent import OneHot, SeminormTDAgent
    >>> chain = unichain_gym.make_mdp("h6").induce([0, 0, 0, 1, 1, 1])
    >>> agent = SeminormTDAgent(OneHot(), anchors=[0, 20])
    >>> for seed in range(30):  # rounds of trials, each forgotten before the next
    ...     _ = agent.partial_fit(unichain_gym.simulate_counts(chain, 100, 60, seed))
    ...
    >>> agent.n_trials
    3000
    >>> bool(abs(agent.predict([0], t=0)[0] / chain.bias[0] - 1) < 0.05)  # of -145.4
    True
    """

    def __init__(
        self,
        features: Features,
        anchors: ArrayLike,
        *,
        gain: float | None = None,
        initial: System | SeminormTDAgent | None = None,
        seed: int = 0,
    ) -> None:
        if initial is not None and not isinstance(initial, System | SeminormTDAgent):
            raise InvalidInputError(
                "initial weights are those of a System (an agent's system_) or of another "
                f"SeminormTDAgent; got {type(initial).__name__}"
            )
        self.features = features
        self.anchors = np.asarray(anchors)
        self.gain = check_gain(gain)
        self.initial = initial
        self.seed = check_integer("seed", seed, 0)
        self.n_trials = self.n_sweeps_ = 0
        self.gain_ = np.nan
        self._rng = np.random.default_rng(self.seed)
        self._encoding: Encoding | None = None
        self._t_max: int | None = None
        self._path: StepPath | None = None
        self._solved: FloatArray | None = None
        self._begun_with = 0.0

    def partial_fit(self, trials: CountsLike | TrialCollector) -> Self:
        """Take a step a timestep with a round of trials, which need not be kept.

        Of as many trials, small rounds make more steps, which a start from 0 needs, and large ones
        less noisy steps, which serve a start near the solution.

        Parameters
        ----------
        trials : TransitionCounts or TrialCollector
            Counts, or what has collected trials of any kind (an agent's ``collector``).

        Raises
        ------
        InvalidInputError
            If the trials do not fit those before, or are not there as they came.
        EvaluationError
            If weights diverge. Then the agent is of no further use.

        Warns
        -----
        FitWarning
            If by the first round's trials the steps of a neighbourhood lead away from its
            solution, which it may take hundreds of rounds to see by weights.
        """
        batches, encoding, t_max = self._collected(trials)
        sums = batches.total
        at = reader(encoding, sums)
        self._t_max = t_max
        if self._path is None:
            windows = neighborhood_windows(self.anchors, t_max, "window")
            self._warn_of_direction(make_statistics(encoding, sums, batches.trials), windows)
            initial = self._begin_with
            self._path = StepPath(*coordinates(encoding, at), windows, initial)
            if initial is not None:
                self._begun_with = float(np.abs(sampled_values(at, initial, t_max)).max())
        self._encoding = encoding
        self._path.take(at, sums.n_trials, self.gain, self._rng)
        self.n_trials += sums.n_trials
        self.gain_ = self._path.reward if self.gain is None else self.gain
        self._solved = self._path.solved
        self._check_bounded(at, t_max)
        return self

    def fit(self, trials: CountsLike | TrialCollector) -> Self:
        """Sweep over trials until steps are next to nothing; begin where the weights are.

        Parameters
        ----------
        trials : TransitionCounts or TrialCollector
            All of them: what `partial_fit` has taken is remembered by weights alone.

        Raises
        ------
        InvalidInputError
            If the trials do not fit those before.
        EvaluationError
            If the steps of a neighbourhood lead away from its solution, or hardly towards it.
        """
        batches, encoding, t_max = self._collected(trials)
        statistics, gain = make_statistics(encoding, batches.total, batches.trials), self.gain
        if gain is None:
            gain = estimate_gain(statistics, "linked", DEFAULT_RCOND)
        windows = neighborhood_windows(self.anchors, t_max, "window")
        self._solved, self.n_sweeps_ = sweep_backwards(
            statistics, windows, gain, DEFAULT_RCOND, self._begin_with
        )
        self.gain_ = gain
        self._encoding, self._t_max, self._path = encoding, t_max, None
        return self

    def _warn_of_direction(self, statistics: SampledStatistics, windows: IntArray) -> None:
        if len(statistics.feature_scale) > _MOST_CHECKED:
            return
        try:
            check_direction(statistics, windows, DEFAULT_RCOND)
        except EvaluationError as error:
            warnings.warn(f"by the trials of the first round, {error}", FitWarning, stacklevel=3)

    @property
    def weights_(self) -> FloatArray:
        """Weights of the neighbourhoods, shape (n, d)."""
        return self._weights()[:, :-1]

    @property
    def offsets_(self) -> FloatArray:
        """The offset of each neighbourhood, shape (n,)."""
        return self._weights()[:, -1]

    def predict(self, observations: Any, t: ArrayLike) -> FloatArray:
        """Return values at a timestep, or at one for each observation.

        Parameters
        ----------
        observations : one observation, or a batch
        t : int or array_like of int

        Returns
        -------
        ndarray
            In units of the reward.

        Raises
        ------
        NotFittedError
            If there are no weights yet.
        InvalidInputError
            If a timestep is no integer from 0 on, or an observation is not of the task.
        """
        solved = self._weights()
        assert self._encoding is not None
        states, shape = self._encoding.encode_any(observations)
        timestep = np.asarray(t)
        if timestep.dtype.kind not in "iu" or (timestep < 0).any():
            raise InvalidInputError(f"a timestep is an integer from 0; got {t!r}")
        k = np.searchsorted(self.anchors, np.broadcast_to(timestep, shape).ravel(), "right") - 1
        rows = with_ones(self._encoding.features(states))
        return np.asarray(np.einsum("md,md->m", rows, solved[k]).reshape(shape))

    def _weights(self) -> FloatArray:
        if self._solved is None:
            raise NotFittedError("there are no weights yet: call partial_fit or fit first")
        return self._solved

    def _collected(self, trials: CountsLike | TrialCollector) -> tuple[Batches, Encoding, int]:
        """Return trials, their encoding with this agent's features, and their last timestep."""
        if isinstance(trials, TrialCollector):
            collector = trials
        else:
            collector = TrialCollector(self.features)
            collector.add(trials)
        t_max = collector.batches.total.t_max if collector.n_trials else None
        if t_max is None:
            raise InvalidInputError("there are no trials in the collector: collect some first")
        if self._t_max not in (None, t_max):
            raise InvalidInputError(f"trials so far have t_max = {self._t_max}; got {t_max}")
        self.anchors = check_anchors(self.anchors, t_max)
        found, known = collector.encoding, self._encoding
        assert found is not None
        if found.ends:
            raise InvalidInputError("semi-gradient steps are for tasks that do not terminate")
        if known is not None and known.space != found.space:
            raise InvalidInputError(f"trials so far are of {known.space}; got {found.space}")
        encoding = found.with_features(self.features) if known is None else known
        return collector.batches, encoding, t_max

    @property
    def _begin_with(self) -> FloatArray | None:
        """The weights (n, d + 1) to begin with: so far, or initial ones of the neighbourhoods."""
        if self._solved is not None or self.initial is None:
            return self._solved
        if isinstance(self.initial, SeminormTDAgent):
            given, anchors = self.initial._weights(), self.initial.anchors
        else:
            given = np.column_stack((self.initial.weights, self.initial.offsets))
            anchors = self.initial.anchors
        return np.asarray(given[np.searchsorted(anchors, self.anchors, "right") - 1])

    def _check_bounded(self, at: Reader, t_max: int) -> None:
        """Raise unless values are such as rewards may add up to."""
        assert self._solved is not None
        rewards = max(
            float(np.abs(at(t).rewards - self.gain_).max()) for t in some_timesteps(t_max)
        )
        most = _FAR_OFF * max((t_max + 1) * rewards, self._begun_with)
        far_off = ~(np.abs(sampled_values(at, self._solved, t_max)).max(axis=0) <= most)
        if far_off.any():
            raise EvaluationError(
                "semi-gradient steps diverge in the neighborhood that begins at timestep "
                f"{self.anchors[np.flatnonzero(far_off)[-1]]}: its visits are too far from "
                "stationary. Let the last one start later, run longer trials, or use "
                "SeminormLSTDAgent, which solves the same equations at once"
            )
