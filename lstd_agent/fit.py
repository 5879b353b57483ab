"""`Fit`: a fitted system of approximators, and everything that can be asked of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lstd_agent.arrays import BoolArray, FloatArray, IntArray, States
from lstd_agent.errors import InvalidInputError
from lstd_agent.fit_options import FitOptions
from lstd_agent.refits import Occupancies, Refits, determined_by_model, of_each
from lstd_agent.statistics.interface import SampledStatistics
from lstd_agent.statistics.start_groups import StartGroups
from lstd_agent.system.approximators import System
from lstd_agent.system.selection import OPEN_TOLERANCE, Choice
from lstd_agent.trials.batches import Sums
from lstd_agent.trials.encoding import Encoding

# Of the noise of a start, which is only looked at for being too large, so many groups tell.
_N_GROUPS = 4


@dataclass(frozen=True)
class Comparison:
    """A difference of values, with its own standard error.

    Attributes
    ----------
    difference : float
        Value of the first less that of the second.
    standard_error : float

    Examples
    --------
    >>> print(Comparison(difference=-27.371, standard_error=0.2))
    -27.37 ± 0.20
    """

    difference: float
    standard_error: float

    def __str__(self) -> str:
        error = self.standard_error
        if not 1e-6 < error < np.inf:
            return f"{self.difference:.6g} ± {error:.2g}"
        places = max(0, 1 - int(np.floor(np.log10(error))))  # two digits of the error
        return f"{self.difference:.{places}f} ± {error:.{places}f}"


@dataclass(frozen=True, eq=False)
class Fit:
    """A system, what it was fitted to, and how: predictions, coverage, standard errors.

    Attributes
    ----------
    statistics : SampledStatistics
        Of all trials.
    batches : list of sums
        The same trials in batches, for standard errors.
    encoding : Encoding
        Of the observations.
    options : FitOptions
    system : System
    choice : Choice
        Of the backup: asked for, or by the data.
    """

    statistics: SampledStatistics
    batches: Sequence[Sums]
    encoding: Encoding
    options: FitOptions
    system: System
    choice: Choice

    @classmethod
    def of(
        cls,
        statistics: SampledStatistics,
        batches: Sequence[Sums],
        encoding: Encoding,
        options: FitOptions,
    ) -> Fit:
        """Fit a system to trials."""
        return cls(statistics, batches, encoding, options, *options.fit(statistics, batches))

    def predict(self, observations: Any, t: ArrayLike | None = None) -> FloatArray:
        """Return calibrated relative values.

        Parameters
        ----------
        observations : one observation, or a batch of m
            Any that the space holds; those never seen too: see `coverage`.
        t : int or array_like of int, shape (m,), optional
            Timesteps at which the observations are made; beyond ``t_max`` the last
            neighbourhood answers. Without it each state is answered by the neighbourhood
            that has most samples of it.

        Returns
        -------
        ndarray, shape (m,) or ()
            Estimates of b(s) - b(main reference state); in linked systems of vectors, of b(s).

        Raises
        ------
        InvalidInputError
            If an observation or a timestep is out of range.
        """
        states, neighborhood, shape = self._answering(observations, t)
        return self.system.values(self.encoding.rows(states), neighborhood).reshape(shape)

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
            never seen and the prediction is all generalization. For vector observations what
            the Christoffel function says of it (see `lstd_agent.statistics.moments`).
        """
        states, neighborhood, shape = self._answering(observations, t)
        return of_each(self.occupancy_of(states), neighborhood).reshape(shape)

    def determined(self, observations: Any, t: ArrayLike | None = None) -> BoolArray:
        """Return whether the samples determine the values of observations.

        A value is determined if the neighbourhood that predicts it has seen the observation, and
        what the samples leave open, there and in all later neighbourhoods, hardly changes it. Of
        that a linked system keeps track; by ``backup="model"`` it is told by which states lead to
        the main reference state.

        Parameters
        ----------
        observations, t
            As in `predict`.

        Returns
        -------
        ndarray of bool, shape (m,) or ()
        """
        states, neighborhood, shape = self._answering(observations, t)
        return self.states_determined(states, neighborhood).reshape(shape)

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
            Infinite where the samples do not determine the value, or those of a single batch
            alone do.

        Raises
        ------
        NotFittedError
            If there are fewer than two batches of trials.
        """
        states, neighborhood, shape = self._answering(observations, t)
        return self.errors_of_states(states, neighborhood).reshape(shape)

    def compare(self, a: Any, b: Any, t: ArrayLike | None = None) -> Comparison:
        """Return how much more the first is worth than the second, with its standard error.

        Values share errors, of the gain above all, so that a difference's own standard error is
        not what theirs add up to.

        Parameters
        ----------
        a, b : one observation, or a batch of which the mean value counts
        t : optional
            As in `predict`, for both.

        Returns
        -------
        Comparison
            With ``difference`` and ``standard_error``.
        """
        sides = [self._answering(observations, t)[:2] for observations in (a, b)]
        features = [self.encoding.rows(states) for states, _ in sides]

        def difference(system: System) -> FloatArray:
            first, second = (
                system.values(f, neighborhood).mean()
                for f, (_, neighborhood) in zip(features, sides, strict=True)
            )
            return np.array([first - second])

        error = float(self._refits.jackknife(difference)[0])
        for f, (states, neighborhood) in zip(features, sides, strict=True):
            unseen = self._refits.unseen_outcomes(f, states, neighborhood)
            error = float(np.hypot(error, np.linalg.norm(unseen) / len(states)))
            if not self._robust(states, neighborhood).all():
                error = np.inf
        return Comparison(float(difference(self.system)[0]), error)

    def candidate(self, index: int) -> Any:
        """Return the (flat) observation of a candidate reference state.

        Parameters
        ----------
        index : int
            As in `Neighborhood.reference` and along `Neighborhood.occupancy`; None for -1 and
            the terminal state.

        Returns
        -------
        observation or None
        """
        if index in (-1, self.statistics.terminal):
            return None
        return self.encoding.decode(self.statistics.candidate(index))

    @property
    def main_reference(self) -> Any:
        """The observation whose value is 0; see `SeminormLSTDAgent.main_reference_`."""
        return self.candidate(self.system.references.main)

    def _answering(
        self, observations: Any, t: ArrayLike | None
    ) -> tuple[States, IntArray, tuple[int, ...]]:
        """Return states, the neighbourhood that predicts each, and the shape of the answer."""
        states, shape = self.encoding.encode_any(observations)
        if t is None:
            return states, self.most_sampled(states), shape
        position = np.arange(len(states)).reshape(shape)
        neighborhood = self.system.neighborhood_at(np.asarray(t))
        try:
            position, neighborhood = np.broadcast_arrays(position, neighborhood)
        except ValueError:
            raise InvalidInputError(
                f"observations and timesteps must broadcast; got {shape} observations and "
                f"timesteps of shape {neighborhood.shape}"
            ) from None
        return states[position.ravel()], neighborhood.ravel(), position.shape

    def most_sampled(self, states: States) -> IntArray:
        """Return the neighbourhoods (m,) that have most samples of encoded observations (m,)."""
        samples = self.occupancy_of(states) * np.maximum(self.system.n_samples, 1)[:, None]
        return np.asarray(np.argmax(samples, axis=0))

    def candidate_values(self, k: int) -> FloatArray:
        """Return the values (M,) of the candidate reference states by neighbourhood k."""
        features = self.statistics.candidate_features
        return self.system.values(features, np.full(features.shape[0], k))

    @cached_property
    def occupancy_of(self) -> Occupancies:
        """Occupancies (n, m) of encoded observations (m,) in the windows."""
        return self.statistics.occupancy_of(self.system.windows)

    def states_determined(self, states: States, neighborhood: IntArray) -> BoolArray:
        """Return `determined` of encoded observations (m,) for neighbourhoods (m,)."""
        seen = of_each(self.occupancy_of(states), neighborhood) > 0.0
        if self.choice.backup == "model":
            return np.asarray(seen & self._determined_by_model[states])
        if self.system.open_directions.size == 0:
            return seen
        features = self.encoding.features(states)
        one = np.full((len(features), 1), self.statistics.intercept)
        scaled = np.hstack((features, one)) / self.statistics.feature_scale
        share = self.system.open_share(scaled, neighborhood)
        return np.asarray(seen & (share <= OPEN_TOLERANCE))

    @cached_property
    def _determined_by_model(self) -> BoolArray:
        return determined_by_model(self.statistics, self.system)

    @cached_property
    def _refits(self) -> Refits:
        return Refits(self.system, self.statistics, self.batches, self.options, self.choice.backup)

    @cached_property
    def _start_refits(self) -> Refits:
        """Those that tell of the start: of many sparse features a few, since each takes long."""
        many = self.statistics.sparse_trials is not None
        return self._refits.of_fewer(_N_GROUPS) if many else self._refits

    def errors_of_states(self, states: States, neighborhood: IntArray) -> FloatArray:
        """Return `standard_errors` of encoded observations (m,) for neighbourhoods (m,)."""
        features = self.encoding.rows(states)
        errors = self._refits.jackknife(lambda system: system.values(features, neighborhood))
        errors = np.hypot(errors, self._refits.unseen_outcomes(features, states, neighborhood))
        return np.where(self._robust(states, neighborhood), errors, np.inf)

    def _robust(self, states: States, neighborhood: IntArray) -> BoolArray:
        """Whether values are determined, and by more than the trials of a single batch."""
        seen = self._refits.seen_without_each(states, neighborhood)
        return np.asarray(seen & self.states_determined(states, neighborhood))

    @property
    def gains_without_each(self) -> list[float]:
        """The gain by all batches but each."""
        return [other.system.gain for other in self._refits.without_each]

    def start_error(self) -> float:
        """Return the standard error of the start's mean value as it is predicted."""
        features = self.statistics.mean_features(0)[None]
        first = np.zeros(1, dtype=np.int64)
        error = self._start_refits.jackknife(lambda system: system.values(features, first))
        return float(error[0])

    def start_groups(self, matters: Callable[[StartGroups], bool]) -> StartGroups:
        """Return what trials from like starts earn; see `lstd_agent.statistics.start_groups`."""
        system = self.system

        def values_of(features: FloatArray, t: IntArray) -> FloatArray:
            return system.values(features, system.neighborhood_at(t))

        return self.statistics.start_groups(self.batches, values_of, system.gain, matters)
