"""`Fit`: a fitted system of approximators, and everything that can be asked of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.errors import InvalidInputError, NotFittedError
from lstd_agent.standard_errors import batch_standard_errors, sums_without_each
from lstd_agent.statistics.backups import WantedBackup
from lstd_agent.statistics.interface import SampledStatistics
from lstd_agent.statistics.start_groups import StartGroups
from lstd_agent.system.fit_system import CalibrationName, System, fit_system, refit
from lstd_agent.system.gain import estimate_gain
from lstd_agent.system.neighborhoods import TailName
from lstd_agent.system.references import RuleName
from lstd_agent.system.selection import (
    OPEN_TOLERANCE,
    Choice,
    choose_backup,
    choose_number,
)
from lstd_agent.system.solvers import SolverName
from lstd_agent.trials.encoding import Encoding, States
from lstd_agent.trials.recording import Sums


@dataclass(frozen=True)
class FitOptions:
    """How a system is fitted; see `lstd_agent.agent.SeminormLSTDAgent`."""

    calibration: CalibrationName
    reference: RuleName
    tail: TailName
    gain: float | None
    rcond: float
    backup: WantedBackup = "auto"
    solver: SolverName = "svd"


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


class _Refit(NamedTuple):
    """The same system fitted to other trials, and its occupancies."""

    system: System
    occupancy_of: Callable[[States], FloatArray]


@dataclass(frozen=True, eq=False)
class Fit:
    """A system, what it was fitted to, and how: predictions, coverage, standard errors.

    Attributes
    ----------
    system : System
    statistics : SampledStatistics
        Of all trials.
    batches : list of sums
        The same trials in batches, for standard errors.
    encoding : Encoding
        Of the observations.
    options : FitOptions
    choice : Choice
        Of the backup: asked for, or by the data.
    """

    system: System
    statistics: SampledStatistics
    batches: Sequence[Sums]
    encoding: Encoding
    options: FitOptions
    choice: Choice

    @classmethod
    def of(
        cls,
        statistics: SampledStatistics,
        anchors: IntArray | Sequence[IntArray],
        batches: Sequence[Sums],
        encoding: Encoding,
        options: FitOptions,
    ) -> Fit:
        """Fit a system with these anchors, or with those of several that the data choose."""
        gain = _gain(statistics, options)
        if isinstance(anchors, np.ndarray):
            choice = _choice(statistics, anchors, batches, gain, options)
        else:
            anchors, choice = choose_number(statistics, batches, anchors, gain, options.rcond)
        system = fit_system(
            statistics,
            anchors,
            gain,
            calibration=options.calibration,
            reference=options.reference,
            tail=options.tail,
            rcond=options.rcond,
            backup=choice.backup,
            solver=options.solver,
        )
        return cls(system, statistics, batches, encoding, options, choice)

    def predict(self, observations: Any, t: ArrayLike | None = None) -> FloatArray:
        """Return calibrated relative values; see `SeminormLSTDAgent.predict`."""
        states, neighborhood, shape = self._answering(observations, t)
        return self.system.values(self.encoding.rows(states), neighborhood).reshape(shape)

    def coverage(self, observations: Any, t: ArrayLike | None = None) -> FloatArray:
        """Return the occupancies of observations; see `SeminormLSTDAgent.coverage`."""
        states, neighborhood, shape = self._answering(observations, t)
        return _of_each(self.occupancy_of(states), neighborhood).reshape(shape)

    def determined(self, observations: Any, t: ArrayLike | None = None) -> BoolArray:
        """Return whether the samples determine the values of observations.

        A value is determined if the neighbourhood that predicts it has seen the observation, and
        what the samples leave open, there and in all later neighbourhoods, hardly changes it.
        """
        states, neighborhood, shape = self._answering(observations, t)
        return self.states_determined(states, neighborhood).reshape(shape)

    def standard_errors(self, observations: Any, t: ArrayLike | None = None) -> FloatArray:
        """Return standard errors of predictions; see `SeminormLSTDAgent.standard_errors`."""
        states, neighborhood, shape = self._answering(observations, t)
        return self.errors_of_states(states, neighborhood).reshape(shape)

    def errors_of_states(self, states: States, neighborhood: IntArray) -> FloatArray:
        """Return `standard_errors` of encoded observations (m,) for neighbourhoods (m,)."""
        features = self.encoding.rows(states)
        errors = self._jackknife(lambda system: system.values(features, neighborhood))
        errors = np.hypot(errors, self._unseen_outcomes(states, neighborhood))
        return np.where(self._robust(states, neighborhood), errors, np.inf)

    def compare(self, a: Any, b: Any, t: ArrayLike | None = None) -> Comparison:
        """Return the difference of two values or mean values; see `SeminormLSTDAgent.compare`."""
        sides = [self._answering(observations, t)[:2] for observations in (a, b)]
        features = [self.encoding.rows(states) for states, _ in sides]

        def difference(system: System) -> FloatArray:
            first, second = (
                system.values(f, neighborhood).mean()
                for f, (_, neighborhood) in zip(features, sides, strict=True)
            )
            return np.array([first - second])

        error = float(self._jackknife(difference)[0])
        for states, neighborhood in sides:
            unseen = self._unseen_outcomes(states, neighborhood)
            error = float(np.hypot(error, np.linalg.norm(unseen) / len(states)))
            if not self._robust(states, neighborhood).all():
                error = np.inf
        return Comparison(float(difference(self.system)[0]), error)

    @property
    def main_reference(self) -> Any:
        """The observation whose value is 0; see `SeminormLSTDAgent.main_reference_`."""
        return self.candidate(self.system.references.main)

    def candidate(self, index: int) -> Any:
        """Return a candidate reference state as an observation, None for -1 or the terminal one."""
        if index in (-1, self.statistics.terminal):
            return None
        return self.encoding.decode(self.statistics.candidate(index))

    def _answering(
        self, observations: Any, t: ArrayLike | None
    ) -> tuple[States, IntArray, tuple[int, ...]]:
        """Return states, the neighbourhood that predicts each, and the shape of the answer."""
        states, shape = self.encoding.encode_any(observations)
        if t is None:
            samples = self.occupancy_of(states) * np.maximum(self.system.n_samples, 1)[:, None]
            return states, np.asarray(np.argmax(samples, axis=0)), shape
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

    @cached_property
    def occupancy_of(self) -> Callable[[States], FloatArray]:
        """Occupancies (n, m) of encoded observations (m,) in the windows."""
        return self.statistics.occupancy_of(self.system.windows)

    @cached_property
    def _independent_samples(self) -> Callable[[States], FloatArray]:
        if self.choice.backup != "model":
            return self.statistics.independent_samples(self.system.windows)
        # Values are those of all timesteps' transitions.
        whole = np.array([[0, self.system.t_max + 1]])
        samples = self.statistics.independent_samples(whole)
        n = len(self.system.windows)
        return lambda states: np.repeat(samples(states), n, axis=0)

    def states_determined(self, states: States, neighborhood: IntArray) -> BoolArray:
        """Return `determined` of encoded observations (m,) for neighbourhoods (m,)."""
        seen = _of_each(self.occupancy_of(states), neighborhood) > 0.0
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
        return _determined_by_model(self.statistics, self.system)

    def _robust(self, states: States, neighborhood: IntArray) -> BoolArray:
        """Whether values are determined, and by more than the trials of a single batch."""
        robust = self.states_determined(states, neighborhood)
        for other in self._without_each:
            robust &= _of_each(other.occupancy_of(states), neighborhood) > 0.0
        return robust

    def _unseen_outcomes(self, states: States, neighborhood: IntArray) -> FloatArray:
        """Return what outcomes that were never seen may add to standard errors.

        An outcome that n samples did not show may still have a probability of 3/n (at 95 %, two
        standard errors); what it would change, the values of the other states that the
        neighbourhood visits tell.
        """
        occupancy, candidates = self.system.occupancy, self.statistics.candidate_features
        n: FloatArray = np.maximum(_of_each(self._independent_samples(states), neighborhood), 1.0)
        values = self.system.values(self.encoding.rows(states), neighborhood)
        spread: FloatArray = np.zeros(len(states))
        for k in np.unique(neighborhood):
            weight = occupancy[k] / max(occupancy[k].sum(), 1e-300)
            others = self.system.values(candidates, np.full(candidates.shape[0], k))
            mean = weight @ others
            here = neighborhood == k
            spread[here] = np.sqrt(weight @ (others - mean) ** 2 + (values[here] - mean) ** 2)
        return 1.5 * spread / n

    def _jackknife(self, estimate: Callable[[System], FloatArray]) -> FloatArray:
        without = np.stack([estimate(other.system) for other in self._without_each])
        return batch_standard_errors(estimate(self.system), without, self._batch_sizes)

    @property
    def _batch_sizes(self) -> IntArray:
        return np.array([sums.n_trials for sums in self.batches])

    @property
    def gains_without_each(self) -> list[float]:
        """The gain by all batches but each."""
        return [other.system.gain for other in self._without_each]

    def start_error(self) -> float:
        """Return the standard error of the start's mean value as it is predicted."""
        features = self.statistics.mean_features(0)[None]
        first = np.zeros(1, dtype=np.int64)
        return float(self._jackknife(lambda system: system.values(features, first))[0])

    def start_groups(self, matters: Callable[[StartGroups], bool]) -> StartGroups:
        """Return what trials from like starts earn; see `lstd_agent.statistics.start_groups`."""
        system = self.system

        def values_of(features: FloatArray, t: IntArray) -> FloatArray:
            return system.values(features, system.neighborhood_at(t))

        return self.statistics.start_groups(self.batches, values_of, system.gain, matters)

    @cached_property
    def _without_each(self) -> list[_Refit]:
        """The same system fitted to all batches but each."""
        if len(self.batches) < 2:
            raise NotFittedError(
                f"standard errors compare batches of trials, and there is {len(self.batches)}: "
                "with n_batches > 1, collect in several rounds (several calls, or a vector "
                "environment with fewer copies than trials; 20 rounds are good), then fit"
            )
        portions = self.statistics.portions(self.batches)
        return [self._refitted(others) for others in sums_without_each(portions)]

    def _refitted(self, sums: Sums) -> _Refit:
        statistics = self.statistics.of(sums, self.system.references.main)
        if _lacks_a_window(statistics, self.system.windows):
            return _Refit(self.system, lambda states: self.occupancy_of(states) * 0.0)
        system = refit(
            self.system,
            statistics,
            _gain(statistics, self.options),
            calibration=self.options.calibration,
            reference=self.options.reference,
            rcond=self.options.rcond,
            backup=self.choice.backup,
            solver=self.options.solver,
        )
        occupancy_of = statistics.occupancy_of(system.windows)
        if self.choice.backup == "model":
            occupancy_of = _where(_determined_by_model(statistics, system), occupancy_of)
        return _Refit(system, occupancy_of)


def _lacks_a_window(statistics: SampledStatistics, windows: IntArray) -> bool:
    """Whether all trials were cut short before a window, or before the tail that tells the gain."""
    before = np.append(0, np.cumsum(statistics.trials_at))
    tail = [[(statistics.t_max + 1) // 2, statistics.t_max + 1]]
    start, stop = np.concatenate((windows, tail)).T
    return bool((before[stop] == before[start]).any())


def _where(
    determined: BoolArray, occupancy_of: Callable[[States], FloatArray]
) -> Callable[[States], FloatArray]:
    """Return occupancies that are 0 at the states that are not determined."""
    return lambda states: occupancy_of(states) * determined[states]


def _of_each(by_neighborhood: FloatArray, neighborhood: IntArray) -> FloatArray:
    """Return of an array (n, m) the entries of neighbourhoods (m,)."""
    return np.asarray(by_neighborhood[neighborhood, np.arange(len(neighborhood))])


def _determined_by_model(statistics: SampledStatistics, system: System) -> BoolArray:
    """Return of which states the pooled transitions determine the values."""
    model = statistics.counted().pooled(system.gain, system.references.main)
    return np.asarray(model.open_share <= OPEN_TOLERANCE)


def _choice(
    statistics: SampledStatistics,
    anchors: IntArray,
    batches: Sequence[Sums],
    gain: float,
    options: FitOptions,
) -> Choice:
    """Return the backup that was asked for, or choose it by the data."""
    if options.backup != "auto":
        return Choice(options.backup, "asked for")
    if options.calibration == "references":
        return Choice("one_step", "reference states are for single steps, as in the paper")
    return choose_backup(statistics, batches, anchors, gain, options.rcond)


def _gain(statistics: SampledStatistics, options: FitOptions) -> float:
    """Return the gain that was given, or estimate it."""
    if options.gain is not None:
        return options.gain
    return estimate_gain(statistics, options.calibration, options.rcond)
