r"""Squared distances between the state distributions of two timesteps.

Every distance here is a function ``squared(anchor, start, stop)`` of the kind that
`lstd_agent.system.neighborhoods` searches with. Three work on distributions p^t, exact or
empirical:

- total variation, ½ ‖p - q‖₁, squared;
- optimal transport, the smallest mean cost of moving p onto q, squared;
- maximum mean discrepancy, ‖μ_p - μ_q‖² in the kernel's space (eq. ``mean_embedding``).

The fourth is the paper's estimator of the squared MMD that pairs trials (eq.
``mmd_squared_linear``). It is unbiased, takes linear time, and may be negative.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lstd_agent.arrays import FloatArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.features.kernels import Kernel
from lstd_agent.statistics.counts import SampledStatistics
from lstd_agent.statistics.moments import BoxStatistics
from lstd_agent.system.neighborhoods import SquaredDistance

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
    """

    estimator: str = "linear"
    kernel: Kernel = field(default_factory=Kernel)

    def __post_init__(self) -> None:
        if self.estimator not in ("linear", "quadratic"):
            raise InvalidInputError(
                f"MMD estimator must be 'linear' or 'quadratic'; got {self.estimator!r}"
            )


def total_variation(distributions: FloatArray) -> SquaredDistance:
    """Return squared total variation between rows of ``distributions`` (t_max + 1, S)."""

    def squared(anchor: int, start: int, stop: int) -> FloatArray:
        difference = distributions[start:stop] - distributions[anchor]
        return np.asarray(np.square(0.5 * np.abs(difference).sum(axis=1)))

    return squared


def mean_discrepancy(
    distributions: FloatArray, gram: FloatArray, n_trials: int | None = None
) -> SquaredDistance:
    """Return the squared MMD between rows of ``distributions`` (t_max + 1, S).

    Parameters
    ----------
    distributions : ndarray, shape (t_max + 1, S)
    gram : ndarray, shape (S, S)
        k(s, s').
    n_trials : int, optional
        Where the distributions are frequencies over this many trials: leaves the pairs of a
        trial with itself out of the two within-timestep means, which makes them unbiased. The
        cross mean keeps its n pairs within a trial among n², a bias of order 1/n.
    """
    embedding = distributions @ gram
    norm = np.einsum("ts,ts->t", embedding, distributions)
    if n_trials is not None:
        norm = (n_trials * norm - distributions @ np.diagonal(gram)) / (n_trials - 1)

    def squared(anchor: int, start: int, stop: int) -> FloatArray:
        cross = embedding[start:stop] @ distributions[anchor]
        return np.asarray(norm[anchor] + norm[start:stop] - 2.0 * cross)

    return squared


def paired_mean_discrepancy(trials: NDArray[np.integer], gram: FloatArray) -> SquaredDistance:
    """Return the linear-time estimator of the squared MMD (eq. ``mmd_squared_linear``).

    Parameters
    ----------
    trials : ndarray of int, shape (m, t_max + 1)
        The states of m trials, taken in pairs; an odd last one is left out.
    gram : ndarray, shape (S, S)
    """
    n_pairs = len(trials) // 2
    first = np.ascontiguousarray(trials[0 : 2 * n_pairs : 2].T)
    second = np.ascontiguousarray(trials[1 : 2 * n_pairs : 2].T)

    def squared(anchor: int, start: int, stop: int) -> FloatArray:
        x, y = first[start:stop], second[start:stop]
        within = gram[x, y].mean(axis=1) + gram[first[anchor], second[anchor]].mean()
        # Gathering from the anchor's rows of the Gram matrix keeps the look-ups local.
        cross = gram[first[anchor], y].mean(axis=1) + gram[second[anchor], x].mean(axis=1)
        return np.asarray(within - cross)

    return squared


def paired_vector_discrepancy(features: FloatArray, kernel: Kernel) -> SquaredDistance:
    """Return the linear-time estimator of the squared MMD between vectors.

    Parameters
    ----------
    features : ndarray, shape (t_max + 1, m, d)
        Features of the states of m trials, taken in pairs; an odd last one is left out.
    kernel : Kernel
    """
    n_pairs = features.shape[1] // 2
    first, second = features[:, 0 : 2 * n_pairs : 2], features[:, 1 : 2 * n_pairs : 2]
    within = kernel.paired(first, second).mean(axis=1)

    def squared(anchor: int, start: int, stop: int) -> FloatArray:
        cross = kernel.paired(first[anchor], second[start:stop])
        cross += kernel.paired(second[anchor], first[start:stop])
        return np.asarray(within[anchor] + within[start:stop] - cross.mean(axis=1))

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


def feature_cost(features: FloatArray) -> FloatArray:
    """Return Euclidean distances between state features, shape (S, S)."""
    from scipy.spatial.distance import cdist  # takes long to import

    return np.asarray(cdist(features, features))


def sampled_distance(
    distance: str | MMD | DistributionDistance, statistics: SampledStatistics | BoxStatistics
) -> SquaredDistance:
    """Return the squared distance between timesteps of sampled statistics.

    Parameters
    ----------
    distance : {"mmd", "tv", "ot"}, MMD or callable
        ``"ot"`` moves mass at the Euclidean distance between features.
    statistics : SampledStatistics or BoxStatistics
        Vector observations have the linear MMD only.

    Raises
    ------
    InvalidInputError
        If the name is unknown, or there are fewer than two trials for the MMD.
    """
    if isinstance(statistics, BoxStatistics):
        return _vector_mmd(distance, statistics)
    if distance == "tv":
        return total_variation(statistics.distributions)
    if distance == "ot":
        return optimal_transport(statistics.distributions, feature_cost(statistics.features))
    if distance == "mmd":
        distance = MMD()
    if isinstance(distance, MMD):
        return _sampled_mmd(distance, statistics)
    if callable(distance):
        return pairwise(statistics.distributions, distance)
    raise InvalidInputError(
        f"distance must be 'mmd', 'tv', 'ot', an MMD or a function of two distributions; got "
        f"{distance!r}"
    )


def _vector_mmd(
    distance: str | MMD | DistributionDistance, statistics: BoxStatistics
) -> SquaredDistance:
    mmd = MMD() if distance == "mmd" else distance
    if not isinstance(mmd, MMD) or mmd.estimator != "linear":
        raise InvalidInputError(
            f"distance {distance!r} compares distributions over countable states; vector "
            "observations have distance='mmd' or MMD(estimator='linear')"
        )
    _check_pairs("linear", len(statistics.trials))
    return paired_vector_discrepancy(statistics.distance_features, statistics.kernel)


def _sampled_mmd(mmd: MMD, statistics: SampledStatistics) -> SquaredDistance:
    features = statistics.features
    n_trials = statistics.counts.n_trials
    if mmd.estimator == "linear":
        trials = statistics.trials
        n_trials = 0 if trials is None else len(trials)
    _check_pairs(mmd.estimator, n_trials)
    kernel = mmd.kernel.fit_width(features)
    gram = kernel(features, features)
    if mmd.estimator == "linear":
        assert trials is not None
        return paired_mean_discrepancy(trials, gram)
    return mean_discrepancy(statistics.distributions, gram, n_trials)


def _check_pairs(estimator: str, n_trials: int) -> None:
    if n_trials < 2:
        raise InvalidInputError(
            f"the {estimator} MMD compares different trials and needs at least 2"
            f"{' stored' if estimator == 'linear' else ''}; got {n_trials}"
        )
