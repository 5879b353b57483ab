"""The paper's tables: ten schemes on exact statistics, in every environment, regime and seed.

The one module of the studies that needs the core; the others use what `lstd_agent` offers publicly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy import sparse

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.errors import check_choice
from lstd_agent.features.rows import Kernel
from lstd_agent.problems import (
    ENVIRONMENTS,
    RHOS,
    ChainRows,
    PiecewiseValues,
    StepwiseErrors,
    random_chain,
    random_features,
    regimes,
    settled_time,
)
from lstd_agent.results import Row
from lstd_agent.rows.factors import factor_of
from lstd_agent.system.approximators import System, system_of, with_offsets
from lstd_agent.system.distances import (
    SquaredDistance,
    mean_discrepancy,
    optimal_transport,
    total_variation,
)
from lstd_agent.system.linked import solve_window
from lstd_agent.system.minimizer import Solved
from lstd_agent.system.neighborhoods import (
    AnchorSearch,
    RuleName,
    TailName,
    neighborhoods_with_references,
)
from study.store import Among, Key, Study, Task
from unichain_gym import MarkovChain

SCHEMES = ("buw", "p01", "p02am", "p02tv", "p02ot", "p02md", "paxtv", "paxot", "paxmd", "pinf")

EXACT_RCOND = 1e-13
"""Relative rank cutoff for exact statistics, whose only error is rounding."""


class ExactSchemes:
    """Fits the schemes to one chain, followed for ten times its mixing time."""

    def __init__(self, chain: MarkovChain) -> None:
        self.chain = chain
        self.t_max = 10 * chain.mixing_time()
        self.distributions = chain.stepwise_distributions(self.t_max, tol=0.0)
        self._settled = settled_time(chain, self.distributions)
        self._searches: dict[str, AnchorSearch] = {}

    def fit(self, scheme: str, features: FloatArray, *how: Any, **options: Any) -> PiecewiseValues:
        """Return the values of one scheme (one of `SCHEMES`); see `system`."""
        return values_of(self.system(scheme, features, *how, **options), features)

    def system(
        self,
        scheme: str,
        features: FloatArray,
        n_anchors_max: int,
        tail: TailName = "window",
        reference: RuleName = "most_common",
        rcond: float = EXACT_RCOND,
    ) -> System:
        """Return the system of one scheme."""
        chain, distributions = self.chain, self.distributions
        if scheme == "buw":
            distributions, tail = np.full((1, chain.n_states), 1.0 / chain.n_states), "window"
        # The cutoff is of features, where rcond is of their squares.
        source = ChainRows(chain, distributions, features, rcond=np.sqrt(rcond))
        anchors = self.anchors(scheme, features, n_anchors_max)
        settled = min(self._settled, source.t_max)
        anchors, windows, references = neighborhoods_with_references(
            source, None, anchors, reference, tail
        )
        # Windows of settled timesteps have the same equations.
        alike = (windows[:, 0] >= settled) & (windows[:, 0] <= source.t_max)
        keys = np.where(alike[:, None], (settled, settled + 1), windows).tolist()
        solved: dict[tuple[int, int], Solved] = {}
        for start, stop in map(tuple, keys):
            if (start, stop) not in solved:
                factor = factor_of(source.merged(start, stop))
                found = solve_window(source, factor.above(chain.gain))
                columns = np.vstack((found.weights, np.zeros((1, 1))))
                solved[start, stop] = Solved(columns, found.rank, found.condition, 0)
        ties = windows, references, source.occupancy(windows)
        each = with_offsets(source, [solved[a, b] for a, b in keys], ties, reference)
        return system_of(source, each, anchors, ties, chain.gain)

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
        return self._search(scheme[-2:], features).find(n_anchors, "doubling")

    def _search(self, metric: str, features: FloatArray) -> AnchorSearch:
        if metric in self._searches and metric != "md":  # which depends on the features
            return self._searches[metric]
        p = self.distributions
        if metric == "md":
            squared = mean_discrepancy(p, Kernel()(features, features))
        elif metric == "tv":
            squared = total_variation(sparse.csr_array(p), np.ones(len(p)))
        else:
            squared = optimal_transport(p, self.chain.bisimulation_distance())
        search = AnchorSearch(until_settled(squared, self._settled), self.t_max)
        self._searches[metric] = search
        return search


def values_of(system: System, features: FloatArray) -> PiecewiseValues:
    """Return the values (n, S) of a system's neighbourhoods."""
    values = system.weights @ features.T + system.offsets[:, None]
    return PiecewiseValues(np.asarray(system.anchors), values, system.references.main)


def until_settled(squared_distance: SquaredDistance, settled: int) -> SquaredDistance:
    """Return the same distances, computed only up to where all distributions are equal."""

    def squared(anchor: int, start: int, stop: int) -> FloatArray:
        anchor, last = min(anchor, settled), min(stop, settled + 1)
        first = min(start, settled)
        distances = squared_distance(anchor, first, max(last, first + 1))
        repeated = stop - start - len(distances)
        return np.concatenate((distances, np.full(repeated, distances[-1])))

    return squared


@dataclass(frozen=True)
class ExactSettings:
    """What every row of the exact study depends on."""

    tail: TailName = "window"
    reference: RuleName = "most_common"
    rcond: float = EXACT_RCOND


def exact_rows(task: Task) -> list[Row]:
    """Compute the rows of a chain."""
    chain = random_chain(task.env, task.seed)
    schemes = ExactSchemes(chain)
    rows = []
    for regime in regimes(chain.n_states, {key[1] for key in task.missing}):
        features = random_features(chain.n_states, regime.n_features, task.seed)
        errors = StepwiseErrors(chain, features, schemes.distributions, task.settings.rcond)
        for name in (name for _, rho, _, name in task.missing if rho == regime.rho):
            found = schemes.fit(name, features, regime.n_anchors_max, **asdict(task.settings))
            row = {"env": task.env, "rho": regime.rho, "seed": task.seed, "scheme": name}
            row |= {"n_features": regime.n_features, "n_anchors": len(found.anchors)}
            row |= {"t_max": schemes.t_max, "main_reference": found.main}
            rows.append({**row, **errors.totals(found)})
    return rows


def _work(
    env: str, n_states: int, seeds: range, among: Among, _: Any
) -> Iterator[tuple[int, list[Key]]]:
    for seed in seeds:
        rhos = [regime.rho for regime in regimes(n_states, among["rho"])]
        yield seed, [(env, rho, seed, scheme) for rho in rhos for scheme in among["scheme"]]


EXACT = Study(
    "exact",
    ExactSettings,
    ("env", "rho", "seed", "scheme"),
    exact_rows,
    _work,
    {"env": ENVIRONMENTS, "rho": RHOS, "scheme": SCHEMES},
)
