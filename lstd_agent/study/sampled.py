r"""Systems from samples, held to the exact values: errors, and the limit of features.

The *projection limit* is the total rems of the best weights and offset of each neighbourhood, by
least squares on the exact values weighted by the neighbourhood's distribution. With these features
and neighbourhoods it can be beaten only where the least mean square is not the least sum of roots.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.statistics.counts import CountStatistics
from lstd_agent.statistics.interface import SquaredDistance
from lstd_agent.study.exact import ExactStatistics
from lstd_agent.study.metrics import StepwiseErrors, best_linear
from lstd_agent.study.problems import random_features
from lstd_agent.study.schemes import RHOS, Regime, regimes
from lstd_agent.system.approximators import System
from lstd_agent.system.distances import MMD, sampled_distance
from lstd_agent.system.neighborhoods import find_anchors
from lstd_agent.trials.counts import TransitionCounts
from unichain_gym import MarkovChain

SCHEMES = ("p02md", "paxmd")
"""Two neighbourhoods, and as many as features allow; both by the MMD."""


def projection_limit(system: System, statistics: ExactStatistics) -> System:
    """Return the system with the best weights and offset of each of its neighbourhoods."""
    values = statistics.chain.relative_value(system.references.main)
    weights, offsets = np.empty_like(system.weights), np.empty_like(system.offsets)
    for k, neighborhood in enumerate(system.neighborhoods):
        window = np.array([[neighborhood.anchor, neighborhood.stop]])
        best = best_linear(statistics.features, values, statistics.occupancy(window)[0])
        weights[k], offsets[k] = best[:-1], best[-1]
    return replace(system, weights=weights, offsets=offsets)


@dataclass(frozen=True, eq=False)
class SampledRegime:
    """Samples of a chain in one feature regime, and what their systems are held to."""

    regime: Regime
    statistics: CountStatistics
    exact: ExactStatistics
    errors: StepwiseErrors

    @property
    def anchors_by_scheme(self) -> dict[str, IntArray]:
        """The anchors of each of `SCHEMES`."""
        numbers = (2, self.regime.n_anchors_max)
        return {s: self.anchors(n) for s, n in zip(SCHEMES, numbers, strict=True)}

    @cached_property
    def _squared_distance(self) -> SquaredDistance:
        return sampled_distance(MMD("quadratic"), self.statistics)

    def anchors(self, n_anchors: int) -> IntArray:
        """Return anchors by the MMD of the samples."""
        return find_anchors(self._squared_distance, self.statistics.t_max, n_anchors)

    def total_rems(self, system: System) -> float:
        """Return the total rems of a system."""
        return float(self.errors.rems(system).sum())

    def limit(self, system: System) -> float:
        """Return the projection limit of a system's neighbourhoods."""
        return self.total_rems(projection_limit(system, self.exact))


def sampled_regimes(
    chain: MarkovChain,
    counts: TransitionCounts,
    distributions: FloatArray,
    seed: int,
    rhos: Container[float] = RHOS,
) -> Iterator[SampledRegime]:
    """Yield the samples in every regime of the environment, with features drawn by the seed."""
    for regime in regimes(chain.n_states, rhos):
        features = random_features(chain.n_states, regime.n_features, seed)
        exact = ExactStatistics(chain, features, distributions)
        statistics = CountStatistics(counts, features)
        yield SampledRegime(regime, statistics, exact, StepwiseErrors(exact))
