"""`Predictor`: what can be asked of a fitted system of approximators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.errors import InvalidInputError, NotFittedError
from lstd_agent.features.tables import Features
from lstd_agent.standard_errors import batch_standard_errors, sums_without_each
from lstd_agent.statistics.counts import SampledStatistics
from lstd_agent.statistics.moments import BoxStatistics
from lstd_agent.system.fit_system import Neighborhood, System
from lstd_agent.trials.collector import Termination, TrialCollector
from lstd_agent.trials.encoding import CountedEncoding, ObservationKind, States
from lstd_agent.trials.recording import Sums


@dataclass(frozen=True, eq=False)
class Fit:
    """A system, and what it was fitted to: batches of sums, and the statistics of them all."""

    system: System
    batches: list[Sums]
    statistics: SampledStatistics | BoxStatistics


class Predictor(TrialCollector):
    """Answers for the states and timesteps of trials that a system was fitted to.

    `SeminormLSTDAgent` fits it and documents the parameters.
    """

    def __init__(
        self,
        features: Features,
        on_termination: Termination,
        n_stored_trials: int,
        n_batches: int,
        observations: ObservationKind,
        max_bytes: int,
    ) -> None:
        super().__init__(
            features, on_termination, n_stored_trials, n_batches, observations, max_bytes
        )
        self._fitted: Fit | None = None
        # The same system fitted to all batches but each, once standard errors are asked for.
        self._batch_systems: list[System] | None = None

    def _refit(self, sums: Sums) -> System:
        """Fit the system's windows and reference states to other sums of trials."""
        raise NotImplementedError

    def predict(self, observations: Any, t: ArrayLike | None = None) -> FloatArray:
        """Return calibrated relative values.

        Parameters
        ----------
        observations : one observation, or a batch of m
            Any that the space holds; those never seen too: see `coverage`.
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
        states, neighborhood, shape = self._answering(observations, t)
        return self.system_.values(self._features_of(states), neighborhood).reshape(shape)

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
            never seen and the prediction is all generalization. For vector observations the
            kernel mean embedding (see `lstd_agent.statistics.moments`): the share about there.
        """
        states, neighborhood, shape = self._answering(observations, t)
        occupancy = self.fitted_statistics_.occupancy_at(self.system_.windows, states)
        return np.asarray(occupancy[neighborhood, np.arange(len(states))].reshape(shape))

    def standard_errors(self, observations: Any, t: ArrayLike | None = None) -> FloatArray:
        """Return standard errors of the predictions, by batches of trials (jackknife).

        The error of the offset and of an estimated gain is included; that of the choice of
        anchors and reference states is not. Trials are batched by rounds of collection.

        Parameters
        ----------
        observations, t
            As in `predict`.

        Returns
        -------
        ndarray, shape (m,) or ()

        Raises
        ------
        NotFittedError
            Before `fit`, or if there are fewer than two batches of trials.
        """
        states, neighborhood, shape = self._answering(observations, t)
        batches = self._last_fit.batches
        if len(batches) < 2:
            raise NotFittedError(
                f"standard errors compare batches of trials, and there is {len(batches)}: with "
                "n_batches > 1, collect in several rounds (several calls, or a vector "
                "environment with fewer copies than trials; 20 rounds are good), then fit"
            )
        if self._batch_systems is None:
            self._batch_systems = [self._refit(others) for others in sums_without_each(batches)]
        features = self._features_of(states)
        values = self.system_.values(features, neighborhood)
        without = np.stack([s.values(features, neighborhood) for s in self._batch_systems])
        n_trials = np.array([sums.n_trials for sums in batches])
        return batch_standard_errors(values, without, n_trials).reshape(shape)

    @property
    def system_(self) -> System:
        """The fitted system of approximators."""
        return self._last_fit.system

    @property
    def fitted_statistics_(self) -> SampledStatistics | BoxStatistics:
        """The statistics that the system was fitted to."""
        return self._last_fit.statistics

    @property
    def neighborhoods_(self) -> list[Neighborhood]:
        """The fitted neighbourhoods, in order of time."""
        return self.system_.neighborhoods

    @property
    def gain_(self) -> float:
        """The gain used by the fit: given, or estimated."""
        return self.system_.gain

    @property
    def main_reference_(self) -> Any:
        """The (flat) observation whose relative value is 0; None for the terminal state."""
        return self.candidate(self.system_.references.main)

    def candidate(self, index: int) -> Any:
        """Return the (flat) observation of a candidate reference state, None for the terminal one.

        Parameters
        ----------
        index : int
            As in `Neighborhood.reference` and along `Neighborhood.occupancy`.
        """
        statistics = self.fitted_statistics_
        if index == statistics.terminal:
            return None
        if isinstance(statistics, BoxStatistics):
            return statistics.candidates[index]
        assert isinstance(self._encoding, CountedEncoding)
        return self._encoding.decode(index)

    @property
    def _last_fit(self) -> Fit:
        if self._fitted is None:
            raise NotFittedError("the agent is not fitted yet: call fit first")
        return self._fitted

    def _answering(
        self, observations: Any, t: ArrayLike | None
    ) -> tuple[States, IntArray, tuple[int, ...]]:
        """Return states, the neighbourhood that predicts each, and the shape of the answer."""
        system, encoding = self.system_, self._encoding
        assert encoding is not None
        states, shape = encoding.encode_any(observations)
        if t is None:
            occupancy = self.fitted_statistics_.occupancy_at(system.windows, states)
            visits = occupancy * np.maximum(system.n_samples, 1)[:, None]
            return states, np.asarray(np.argmax(visits, axis=0)), shape
        position = np.arange(len(states)).reshape(shape)
        neighborhood = system.neighborhood_at(np.asarray(t))
        try:
            position, neighborhood = np.broadcast_arrays(position, neighborhood)
        except ValueError:
            raise InvalidInputError(
                f"observations and timesteps must broadcast; got {shape} observations and "
                f"timesteps of shape {neighborhood.shape}"
            ) from None
        return states[position.ravel()], neighborhood.ravel(), position.shape

    def _features_of(self, states: States) -> FloatArray:
        assert self._encoding is not None
        return self._encoding.features(states)
