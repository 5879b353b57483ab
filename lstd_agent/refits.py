"""`Refits`: a system fitted again to all batches of trials but each, for standard errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import add
from typing import NamedTuple

import numpy as np

from lstd_agent.arrays import BoolArray, FloatArray, IntArray, States
from lstd_agent.errors import NotFittedError
from lstd_agent.features.rows import Rows
from lstd_agent.fit_options import FitOptions
from lstd_agent.standard_errors import batch_standard_errors, sums_without_each
from lstd_agent.statistics.backups import Backup
from lstd_agent.statistics.interface import SampledStatistics
from lstd_agent.system.approximators import System
from lstd_agent.system.downdates import systems_without_each
from lstd_agent.system.selection import OPEN_TOLERANCE
from lstd_agent.trials.batches import Sums

Occupancies = Callable[[States], FloatArray]
"""Occupancies (n, m) of encoded observations (m,) in the windows of n neighbourhoods."""


class Refit(NamedTuple):
    """The same system fitted to other trials, and its occupancies."""

    system: System
    occupancy_of: Occupancies


@dataclass(frozen=True, eq=False)
class Refits:
    """What the trials without each batch tell of a fitted system.

    Attributes
    ----------
    system : System
    statistics : SampledStatistics
        Of all trials.
    batches : sequence of sums
        The same trials in batches.
    options : FitOptions
    backup : Backup
        Of the system.
    """

    system: System
    statistics: SampledStatistics
    batches: Sequence[Sums]
    options: FitOptions
    backup: Backup

    @cached_property
    def without_each(self) -> list[Refit]:
        """The system fitted to all batches but each."""
        if len(self.batches) < 2:
            raise NotFittedError(
                f"standard errors compare batches of trials, and there is {len(self.batches)}: "
                "with n_batches > 1, collect in several rounds (several calls, or a vector "
                "environment with fewer copies than trials; 20 rounds are good), then fit"
            )
        near = self._near
        if near is not None:
            return near
        portions = self.statistics.portions(self.batches)
        return [self._refit(others) for others in sums_without_each(portions)]

    @property
    def _near(self) -> list[Refit] | None:
        """The same found from the system of all trials, where that is faster and they are near."""
        system, whole, options = self.system, self.statistics, self.options
        if self.backup != "one_step" or options.calibration != "linked":
            return None
        others = whole.without_each(self.batches)
        if others is None or any(_lacks_a_window(other, system.windows) for other in others):
            return None
        found = systems_without_each(
            system, whole, others, options.rcond, gain_is_given=options.gain is not None
        )
        return [
            self._refit_to(other) if each is None else Refit(each, other.occupancy_of(each.windows))
            for each, other in zip(found, others, strict=True)
        ]

    def _refit(self, sums: Sums) -> Refit:
        return self._refit_to(self.statistics.of(sums, self.system.references.main))

    def _refit_to(self, statistics: SampledStatistics) -> Refit:
        if _lacks_a_window(statistics, self.system.windows):
            n = len(self.system.windows)
            return Refit(self.system, lambda states: np.zeros((n, len(states))))
        system = self.options.refit(self.system, statistics, self.backup)
        occupancy_of = statistics.occupancy_of(system.windows)
        if self.backup != "model":
            return Refit(system, occupancy_of)
        determined = determined_by_model(statistics, system)
        return Refit(system, lambda states: occupancy_of(states) * determined[states])

    def of_fewer(self, n: int) -> Refits:
        """Return what leaving out each of n groups of batches tells, which takes fewer fits."""
        groups = np.array_split(np.arange(len(self.batches)), min(n, len(self.batches)))
        parts = [reduce(add, self.batches[group[0] : group[-1] + 1]) for group in groups]
        return replace(self, batches=parts)

    def jackknife(self, estimate: Callable[[System], FloatArray]) -> FloatArray:
        """Return standard errors (m,) of what is estimated from a system."""
        without = np.stack([estimate(other.system) for other in self.without_each])
        n_trials = np.array([sums.n_trials for sums in self.batches])
        return batch_standard_errors(estimate(self.system), without, n_trials)

    def seen_without_each(self, states: States, neighborhood: IntArray) -> BoolArray:
        """Whether more than the trials of a single batch have seen states (m,)."""
        seen = np.ones(len(states), dtype=bool)
        for other in self.without_each:
            seen &= of_each(other.occupancy_of(states), neighborhood) > 0.0
        return seen

    def unseen_outcomes(self, features: Rows, states: States, neighborhood: IntArray) -> FloatArray:
        """Return what outcomes that were never seen may add to standard errors of values (m,).

        An outcome that n samples did not show may still have a probability of 3/n (at 95 %, two
        standard errors); what it would change, the values of the other states that the
        neighbourhood visits tell.
        """
        occupancy, candidates = self.system.occupancy, self.statistics.candidate_features
        values = self.system.values(features, neighborhood)
        n: FloatArray = np.maximum(of_each(self._independent_samples(states), neighborhood), 1.0)
        spread: FloatArray = np.zeros(len(states))
        for k in np.unique(neighborhood):
            weight = occupancy[k] / max(occupancy[k].sum(), 1e-300)
            others = self.system.values(candidates, np.full(candidates.shape[0], k))
            mean = weight @ others
            here = neighborhood == k
            spread[here] = np.sqrt(weight @ (others - mean) ** 2 + (values[here] - mean) ** 2)
        return 1.5 * spread / n

    @cached_property
    def _independent_samples(self) -> Callable[[States], FloatArray]:
        windows = self.system.windows
        if self.backup != "model":
            return self.statistics.independent_samples(windows)
        # Values are those of all timesteps' transitions.
        samples = self.statistics.independent_samples(np.array([[0, self.system.t_max + 1]]))
        return lambda states: np.repeat(samples(states), len(windows), axis=0)


def _lacks_a_window(statistics: SampledStatistics, windows: IntArray) -> bool:
    """Whether all trials were cut short before a window, or before the tail that tells the gain."""
    before = np.append(0, np.cumsum(statistics.trials_at))
    tail = [[(statistics.t_max + 1) // 2, statistics.t_max + 1]]
    start, stop = np.concatenate((windows, tail)).T
    return bool((before[stop] == before[start]).any())


def of_each(by_neighborhood: FloatArray, neighborhood: IntArray) -> FloatArray:
    """Return of an array (n, m) the entries of neighbourhoods (m,)."""
    return np.asarray(by_neighborhood[neighborhood, np.arange(len(neighborhood))])


def determined_by_model(statistics: SampledStatistics, system: System) -> BoolArray:
    """Return of which states the pooled transitions determine the values."""
    model = statistics.counted().pooled(system.gain, system.references.main)
    return np.asarray(model.open_share <= OPEN_TOLERANCE)
