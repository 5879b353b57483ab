"""`SeminormLSTDAgent`: the model-free evaluator, from trials to calibrated values.

trials → statistics → neighbourhoods → references → weights → offsets → values: Algorithm
``training_nbwpval`` of the paper.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import ArrayLike

from lstd_agent.collection import Round, collect_rounds, single_spaces
from lstd_agent.distances import MMD, DistributionDistance, sampled_distance
from lstd_agent.errors import InvalidInputError, NotFittedError
from lstd_agent.features import Features, feature_table
from lstd_agent.neighborhoods import check_anchors, find_anchors
from lstd_agent.policies import Policy
from lstd_agent.references import RULES
from lstd_agent.seminorm_lstd import DEFAULT_RCOND, FloatArray, IntArray
from lstd_agent.statistics import SampledStatistics, TransitionCounts
from lstd_agent.system import Neighborhood, System, best_neighborhood, fit_system


class SeminormLSTDAgent:
    """Estimates the relative value of a policy from transient and recurrent states alike.

    Parameters
    ----------
    features : array_like, builder, callable or transformer
        State features; see `lstd_agent.features`.
    n_anchors : int or None
        Wanted number of neighbourhoods (at most); None is one for each timestep.
    anchors : array_like of int, optional
        The anchors themselves, instead of a search.
    distance : {"mmd", "tv", "ot"}, MMD or callable
        Between the state distributions of two timesteps, for the anchor search. A callable
        gets two distributions (S,).
    reference : {"occupancy", "most_common"}
        Rule for reference states; the second is the paper's.
    tail : {"settled", "window"}
        Whether the last neighbourhood is fitted to its second half only, by when the chain has
        settled, or to all of it.
    gain : float or None
        The gain; None estimates it as the mean reward of the second half of all timesteps.
    rcond : float
        Relative cutoff of the pseudoinverses.
    n_stored_trials : int
        How many trials' states to keep for the distance that pairs trials.

    Attributes
    ----------
    neighborhoods_ : list of Neighborhood
        After `fit`.
    gain_ : float
        After `fit`: the gain used.

    Notes
    -----
    Source: Algorithm ``training_nbwpval`` and section ``approxbias``.
    """

    def __init__(
        self,
        features: Features,
        n_anchors: int | None = 2,
        *,
        anchors: ArrayLike | None = None,
        distance: str | MMD | DistributionDistance = "mmd",
        reference: str = "occupancy",
        tail: str = "settled",
        gain: float | None = None,
        rcond: float = DEFAULT_RCOND,
        n_stored_trials: int = 2000,
    ) -> None:
        if n_anchors is not None and n_anchors < 1:
            raise InvalidInputError(
                f"n_anchors must be at least 1, or None for one per timestep; got {n_anchors}"
            )
        if reference not in RULES:
            raise InvalidInputError(f"reference must be one of {RULES}; got {reference!r}")
        if tail not in ("settled", "window"):
            raise InvalidInputError(f"tail must be 'settled' or 'window'; got {tail!r}")
        self.features = features
        self.n_anchors = n_anchors
        self.anchors = anchors
        self.distance = distance
        self.reference = reference
        self.tail = tail
        self.gain = gain
        self.rcond = rcond
        self.n_stored_trials = n_stored_trials
        self._first_state = 0
        self._counts: TransitionCounts | None = None
        self._trials: list[Any] = []
        self._table: FloatArray | None = None
        self._system: System | None = None

    @property
    def n_trials(self) -> int:
        """Number of trials collected so far."""
        return 0 if self._counts is None else self._counts.n_trials

    def collect(
        self,
        env: gym.Env[Any, Any] | VectorEnv[Any, Any, Any],
        policy: Policy,
        n_trials: int,
        t_max: int,
        seed: int | None = None,
        *,
        batched: bool | None = None,
        progress: bool | None = False,
    ) -> SeminormLSTDAgent:
        """Run trials and add them to what has been collected.

        Parameters
        ----------
        env : Env or VectorEnv
            A continuing task with Discrete observations. The more copies a vector environment
            has, the faster.
        policy : array_like or callable
            An action a state (S,), action probabilities (S, A), or a function of observations.
        n_trials, t_max : int
            Number of trials, each over timesteps 0 to t_max. Collecting again must keep t_max.
        seed : int, optional
            The same seed, environment and policy give the same trials.
        batched : bool or None
            Whether a callable policy takes batches; None tries it on the first batch.
        progress : bool or None
            Show a progress bar; None shows one on a terminal only.

        Returns
        -------
        SeminormLSTDAgent
            The agent itself.

        Raises
        ------
        TerminationError
            If a trial terminates, or is truncated before ``t_max``.
        InvalidInputError
            If an argument does not fit.
        """
        space, _ = single_spaces(env)
        if not isinstance(space, gym.spaces.Discrete):
            raise InvalidInputError(f"observations must be Discrete; got {space}")
        if self._counts is not None and self._counts.t_max != t_max:
            raise InvalidInputError(
                f"the trials collected so far have t_max = {self._counts.t_max}; got {t_max}. "
                "Collect with the same t_max, or make a new agent"
            )
        self._first_state = int(space.start)
        self._table = feature_table(self.features, int(space.n), self._first_state)
        n_stored = max(0, self.n_stored_trials - sum(len(states) for states in self._trials))
        collect_rounds(
            env,
            policy,
            self._keep,
            n_trials=n_trials,
            t_max=t_max,
            seed=seed,
            n_stored=n_stored,
            batched=batched,
            progress=progress,
        )
        return self

    def _keep(self, finished: Round) -> None:
        """Add a finished round to what has been collected."""
        self._counts = finished.counts if self._counts is None else self._counts + finished.counts
        if len(finished.states):
            self._trials.append(finished.states)

    def fit(self) -> SeminormLSTDAgent:
        """Fit the system of approximators to all trials collected so far.

        Returns
        -------
        SeminormLSTDAgent
            The agent itself.

        Raises
        ------
        NotFittedError
            If nothing has been collected.
        """
        statistics = self.statistics
        t_max = statistics.t_max
        if self.anchors is not None:
            anchors = check_anchors(self.anchors, t_max)
        else:
            squared_distance = sampled_distance(self.distance, statistics)
            anchors = find_anchors(squared_distance, t_max, self.n_anchors)
        gain = self.gain
        if gain is None:
            gain = statistics.mean_reward((t_max + 1) // 2, t_max + 1)
        self._system = fit_system(
            statistics,
            anchors,
            gain,
            reference=self.reference,
            tail=self.tail,
            rcond=self.rcond,
        )
        return self

    @property
    def statistics(self) -> SampledStatistics:
        """The sufficient statistics of all trials collected so far."""
        if self._counts is None or self._table is None:
            raise NotFittedError("there are no trials yet: call collect first")
        trials = np.concatenate(self._trials) if self._trials else None
        return SampledStatistics(self._counts, self._table, trials)

    def predict(self, observations: ArrayLike, t: ArrayLike | None = None) -> FloatArray:
        """Return calibrated relative values.

        Parameters
        ----------
        observations : array_like of int, shape (m,) or ()
        t : int or array_like of int, shape (m,), optional
            Timesteps at which the observations are made; beyond ``t_max`` the last
            neighbourhood answers. Without it each state is answered by the neighbourhood
            that has visited it most often.

        Returns
        -------
        ndarray, shape (m,) or ()
            Estimates of b(s) - b(main reference state).

        Raises
        ------
        NotFittedError
            Before `fit`.
        InvalidInputError
            If an observation or a timestep is out of range.
        """
        state = self._state_index(observations)
        if t is None:
            neighborhood = best_neighborhood(self.system_, state.ravel()).reshape(state.shape)
        else:
            neighborhood = self.system_.neighborhood_at(np.asarray(t))
            state, neighborhood = np.broadcast_arrays(state, neighborhood)
        assert self._table is not None
        values = self.system_.values(self._table[state.ravel()], neighborhood.ravel())
        return values.reshape(state.shape)

    def _state_index(self, observations: ArrayLike) -> IntArray:
        """Turn observations into rows of the feature table."""
        if self._table is None:
            raise NotFittedError("there are no trials yet: call collect and fit first")
        observed = np.asarray(observations)
        n = len(self._table)
        state = observed - self._first_state
        if not np.issubdtype(observed.dtype, np.integer) or ((state < 0) | (state >= n)).any():
            raise InvalidInputError(
                f"observations must be integers from {self._first_state} to "
                f"{self._first_state + n - 1}; got {observations!r}"
            )
        return np.asarray(state, dtype=np.int64)

    @property
    def system_(self) -> System:
        """The fitted system of approximators."""
        if self._system is None:
            raise NotFittedError("the agent is not fitted yet: call fit first")
        return self._system

    @property
    def neighborhoods_(self) -> list[Neighborhood]:
        """The fitted neighbourhoods, in order of time."""
        return self.system_.neighborhoods

    @property
    def gain_(self) -> float:
        """The gain used by the fit: given, or estimated."""
        return self.system_.gain

    @property
    def main_reference_(self) -> int:
        """The observation whose relative value is 0."""
        return self.system_.references.main + self._first_state
