r"""Squared distances between the state distributions of two timesteps.

Every distance here is a function ``squared(anchor, start, stop)`` of the kind that
`lstd_agent.system.neighborhoods` searches with. Three work on distributions p^t, exact or
empirical:

- total variation, ½ ‖p - q‖₁, squared;
- optimal transport, the smallest mean cost of moving p onto q, squared;
- maximum mean discrepancy, ‖μ_p - μ_q‖² in the kernel's space (eq. ``mean_embedding``).

The fourth is the paper's estimator of the squared MMD that pairs trials; see
`lstd_agent.statistics.pairs`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from scipy import sparse

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.features.kernels import Kernel
from lstd_agent.features.rows import dense
from lstd_agent.statistics.interface import SampledStatistics, SquaredDistance
from lstd_agent.statistics.pairs import UNCOUNTED, check_pairs

DistanceName = Literal["mmd", "tv", "ot"]
EstimatorName = Literal["linear", "quadratic"]

DistributionDistance = Callable[[FloatArray, FloatArray], float]
"""A distance between two distributions p, q (S,)."""


@dataclass(frozen=True)
class MMD:
    """Maximum mean discrepancy, as an argument of the agent.

    Parameters
    ----------
    estimator : {"linear", "quadratic"}
        The paper's pairs of trials (from the stored sample of trials), or all pairs (from
        counts: uses every trial, costs O(S²) whatever their number).
    kernel : Kernel

    Examples
    --------
    >>> from lstd_agent import MMD, Kernel, OneHot, SeminormLSTDAgent
    >>> distance = MMD("quadratic", Kernel(width="median"))
    >>> SeminormLSTDAgent(OneHot(), distance=distance).distance.estimator
    'quadratic'
    """

    estimator: EstimatorName = "linear"
    kernel: Kernel = field(default_factory=Kernel)

    def __post_init__(self) -> None:
        if self.estimator not in ("linear", "quadratic"):
            raise InvalidInputError(
                f"MMD estimator must be 'linear' or 'quadratic'; got {self.estimator!r}"
            )


# Larger tables of the kernel between states than this squared do not fit.
_MOST_OF_GRAM = 10_000


def total_variation(distributions: FloatArray) -> SquaredDistance:
    """Return squared total variation between rows of ``distributions`` (t_max + 1, S)."""

    def squared(anchor: int, start: int, stop: int) -> FloatArray:
        difference = distributions[start:stop] - distributions[anchor]
        return np.asarray(np.square(0.5 * np.abs(difference).sum(axis=1)))

    return squared


def sampled_total_variation(visits: sparse.csr_array, n_at: IntArray) -> SquaredDistance:
    """Return the same by visits (t_max + 1, S) of n_at trials, without a dense distribution.

    ½ Σ |p - q| = 1 - Σ min(p, q), of which only states that both visit are part.
    """
    anchor_share = np.zeros(visits.shape[1])

    def squared(anchor: int, start: int, stop: int) -> FloatArray:
        here, there = visits[[anchor]], visits[start:stop]
        # As many trials there as here, where some were cut short in between.
        scale = n_at[anchor] / n_at[start:stop]
        anchor_share[here.indices] = here.data
        seen = there.data * np.repeat(scale, np.diff(there.indptr))
        common = np.minimum(seen, anchor_share[there.indices])
        anchor_share[here.indices] = 0.0
        shared = sparse.csr_array((common, there.indices, there.indptr), shape=there.shape)
        return np.asarray(np.square(1.0 - shared.sum(axis=1) / n_at[anchor]))

    return squared


def mean_discrepancy(
    distributions: FloatArray, gram: FloatArray, n_trials: IntArray | int | None = None
) -> SquaredDistance:
    """Return the squared MMD between rows of ``distributions`` (t_max + 1, S).

    Parameters
    ----------
    distributions : ndarray, shape (t_max + 1, S)
    gram : ndarray, shape (S, S)
        k(s, s').
    n_trials : int or ndarray of int, shape (t_max + 1,), optional
        Where the distributions are frequencies over so many trials: leaves the pairs of a
        trial with itself out of the two within-timestep means, which makes them unbiased. The
        cross mean keeps its n pairs within a trial among n², a bias of order 1/n.
    """
    embedding = distributions @ gram
    norm = np.einsum("ts,ts->t", embedding, distributions)
    if n_trials is not None:
        n = np.broadcast_to(n_trials, norm.shape)
        unbiased = (n * norm - distributions @ np.diagonal(gram)) / np.maximum(n - 1, 1)
        norm = np.where(n > 1, unbiased, norm)

    def squared(anchor: int, start: int, stop: int) -> FloatArray:
        cross = embedding[start:stop] @ distributions[anchor]
        return np.asarray(norm[anchor] + norm[start:stop] - 2.0 * cross)

    return squared


def optimal_transport(distributions: FloatArray, cost: FloatArray) -> SquaredDistance:
    """Return squared optimal-transport distances between rows of ``distributions``.

    Parameters
    ----------
    distributions : ndarray, shape (t_max + 1, S)
    cost : ndarray, shape (S, S)
        A (pseudo-)metric between states. Because it satisfies the triangle inequality, mass
        that both distributions share stays where it is, and only the rest is transported.
    """
    # POT imports every array framework it can find unless told not to.
    for backend in ("TORCH", "JAX", "CUPY", "TENSORFLOW"):
        os.environ.setdefault(f"POT_BACKEND_DISABLE_{backend}", "1")
    import ot

    def distance(p: FloatArray, q: FloatArray) -> float:
        surplus = p - q
        source, sink = np.flatnonzero(surplus > 0.0), np.flatnonzero(surplus < 0.0)
        supply, demand = surplus[source], -surplus[sink]
        moved = supply.sum()
        if moved <= 1e-15 or demand.sum() == 0.0:
            return 0.0
        # The solver insists on equal masses to the last digit.
        plan_cost = ot.emd2(
            supply / moved,
            demand / demand.sum(),
            np.ascontiguousarray(cost[np.ix_(source, sink)]),
            check_marginals=False,
        )
        return float(moved * plan_cost)

    return pairwise(distributions, distance)


def pairwise(distributions: FloatArray, distance: DistributionDistance) -> SquaredDistance:
    """Return the square of any distance between two distributions, row by row."""

    def squared(anchor: int, start: int, stop: int) -> FloatArray:
        p = distributions[anchor]
        return np.array([distance(p, q) ** 2 for q in distributions[start:stop]])

    return squared


def sampled_distance(
    distance: DistanceName | MMD | DistributionDistance, statistics: SampledStatistics
) -> SquaredDistance:
    """Return the squared distance between timesteps of sampled statistics.

    Parameters
    ----------
    distance : {"mmd", "tv", "ot"}, MMD or callable
        ``"ot"`` moves mass at the Euclidean distance between features; ``"mmd"`` is the linear
        MMD, or the total variation of counts of which no trial is stored.
    statistics : SampledStatistics
        Vector observations have the linear MMD only.

    Raises
    ------
    InvalidInputError
        If the name is unknown, the statistics have no such distance, or there are fewer than two
        trials for the MMD.
    """
    if distance == "mmd" and not falls_back(statistics):
        return statistics.paired_discrepancy(statistics.default_kernel)
    if isinstance(distance, MMD):
        if distance.estimator == "linear":
            return statistics.paired_discrepancy(distance.kernel)
        return _quadratic_mmd(distance.kernel, statistics)
    if distance in ("mmd", "tv"):
        counted = statistics.counted(UNCOUNTED)
        return sampled_total_variation(counted.visits, statistics.trials_at)
    if distance == "ot":
        from scipy.spatial.distance import cdist  # takes long to import

        features = dense(statistics.candidate_features)
        cost = np.asarray(cdist(features, features))
        return optimal_transport(statistics.distributions, cost)
    if callable(distance):
        return pairwise(statistics.distributions, distance)
    raise InvalidInputError(
        f"distance must be 'mmd', 'tv', 'ot', an MMD or a function of two distributions; got "
        f"{distance!r}"
    )


def falls_back(statistics: SampledStatistics) -> bool:
    """Whether there are no stored trials to pair, so that ``"mmd"`` is the total variation."""
    return statistics.trials is None or len(statistics.trials) == 0


def _quadratic_mmd(kernel: Kernel, statistics: SampledStatistics) -> SquaredDistance:
    distributions, features = statistics.distributions, statistics.candidate_features
    n = features.shape[0]
    if n > _MOST_OF_GRAM:
        raise InvalidInputError(
            f"the quadratic MMD compares all pairs of states, here {n}², and takes at "
            f"most {_MOST_OF_GRAM}: use MMD('linear') or distance='tv'"
        )
    check_pairs("quadratic", statistics.n_trials)
    kernel = kernel.fit_width(features)
    return mean_discrepancy(distributions, kernel(features, features), statistics.trials_at)
