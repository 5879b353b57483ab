"""The ten approximation schemes and six feature regimes (section ``xprmt_scheme``)."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.errors import check_choice
from lstd_agent.features.kernels import Kernel
from lstd_agent.study.exact import (
    ExactStatistics,
    full_distributions,
    settled_time,
    until_settled,
)
from lstd_agent.system.approximators import System
from lstd_agent.system.distances import mean_discrepancy, optimal_transport, total_variation
from lstd_agent.system.fit_system import fit_system
from lstd_agent.system.neighborhoods import AnchorSearch, TailName
from lstd_agent.system.references import RuleName
from unichain_gym import MarkovChain

ENVIRONMENTS = ("h6", "h36", "h36c", "h70", "h100", "c10", "c35", "c35c", "c75", "c100")
RHOS = (0.49, 0.33, 0.19, 0.09, 0.06, 0.03)
SCHEMES = ("buw", "p01", "p02am", "p02tv", "p02ot", "p02md", "paxtv", "paxot", "paxmd", "pinf")

EXACT_RCOND = 1e-13
"""Relative rank cutoff for exact statistics, whose only error is rounding."""


@dataclass(frozen=True)
class Regime:
    """A feature regime: ρ, its number of features and its largest number of anchors."""

    rho: float
    n_features: int
    n_anchors_max: int


def regimes(n_states: int, among: Container[float] = RHOS) -> list[Regime]:
    """Return the regimes that an environment is studied in (eq. ``nfea_nanchor_tuples``).

    A ρ is left out where it gives no feature, or as many as the next smaller ρ; and those that are
    not ``among`` the wanted ones.
    """
    # A little slack keeps, say, 0.29 · 100 from falling below 29.
    n_features = [int(rho * n_states + 1e-9) for rho in RHOS]
    return [
        Regime(rho, d, int(1.0 / rho))
        for rho, d, smaller in zip(RHOS, n_features, (*n_features[1:], 0), strict=True)
        if d > smaller and rho in among
    ]


class ExactSchemes:
    """Fits the schemes to one chain, for any features, computing nothing twice.

    Parameters
    ----------
    chain : MarkovChain
        Followed for ten times its mixing time.
    """

    def __init__(self, chain: MarkovChain) -> None:
        self.chain = chain
        self.t_max = 10 * chain.mixing_time()
        self.distributions = full_distributions(chain, self.t_max)
        self._settled = settled_time(chain, self.distributions)
        self._searches: dict[str, AnchorSearch] = {}

    def statistics(self, features: FloatArray) -> ExactStatistics:
        """Return the exact statistics for features (S, d)."""
        return ExactStatistics(self.chain, features, self.distributions)

    def fit(
        self,
        scheme: str,
        statistics: ExactStatistics,
        n_anchors_max: int,
        *,
        tail: TailName = "window",
        reference: RuleName = "most_common",
        rcond: float = EXACT_RCOND,
    ) -> System:
        """Fit the system of one scheme (one of `SCHEMES`)."""
        if scheme == "buw":
            S = self.chain.n_states
            uniform = np.full((1, S), 1.0 / S)
            statistics = ExactStatistics(self.chain, statistics.features, uniform)
            tail = "window"
        return fit_system(
            statistics,
            self.anchors(scheme, statistics.features, n_anchors_max),
            self.chain.gain,
            calibration="references",
            reference=reference,
            tail=tail,
            rcond=rcond,
        )

    def anchors(self, scheme: str, features: FloatArray, n_anchors_max: int) -> IntArray:
        """Return the anchors of a scheme."""
        check_choice("scheme", scheme, SCHEMES)
        if scheme in ("buw", "p01"):
            return np.zeros(1, dtype=np.int64)
        if scheme == "p02am":
            return np.unique([0, min(self.chain.max_absorption_time(), self.t_max)])
        if scheme == "pinf":
            return np.arange(self.t_max + 1)
        n_anchors = 2 if scheme.startswith("p02") else n_anchors_max
        return self._search(scheme[-2:], features).doubling(n_anchors)

    def _search(self, metric: str, features: FloatArray) -> AnchorSearch:
        if metric in self._searches:
            return self._searches[metric]
        if metric == "md":
            squared = mean_discrepancy(self.distributions, Kernel()(features, features))
        elif metric == "tv":
            squared = total_variation(self.distributions)
        else:
            squared = optimal_transport(self.distributions, self.chain.bisimulation_distance())
        search = AnchorSearch(until_settled(squared, self._settled), self.t_max)
        if metric != "md":  # the others do not depend on the features
            self._searches[metric] = search
        return search
