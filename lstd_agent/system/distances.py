r"""Squared distances between the state distributions of two timesteps.

Every distance here is a function ``squared(anchor, start, stop)`` of the kind that
`lstd_agent.system.neighborhoods` searches with. Three work on distributions p^t, exact or
empirical:

- total variation, ½ ‖p - q‖₁, squared;
- optimal transport, the smallest mean cost of moving p onto q, squared;
- maximum mean discrepancy, ‖μ_p - μ_q‖² in the kernel's space (eq. ``mean_embedding``).

The fourth is the paper's estimator of the squared MMD, in linear time, from trials in pairs
(eq. ``mmd_squared_linear``): with disjoint pairs (x, y) of trials, the mean over pairs of
k(x_a, y_a) + k(x_t, y_t) - k(x_a, y_t) - k(y_a, x_t). It is unbiased, and may be negative. Of
trials that were cut short, the longest are paired with each other, and timestep t is compared by
the pairs that both have it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.features.kernels import Kernel
from lstd_agent.features.rows import dense

DistanceName = Literal["mmd", "tv", "ot"]
EstimatorName = Literal["linear", "quadratic"]

SquaredDistance = Callable[[int, int, int], FloatArray]
"""``squared(anchor, start, stop)``: squared distances from the distribution at ``anchor`` to those
at ``start`` up to ``stop``."""

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

# A table of the kernel between more states than this takes longer than what it saves.
_MOST_TABULATED = 4000

# Features of single trials are compared up to so many numbers.
_MOST_NUMBERS = 2**22

_UNCOUNTED = (
    "this distance compares distributions over countable states; vector observations have "
    "distance='mmd' or MMD(estimator='linear')"
)


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


def paired_discrepancy(
    seen: NDArray[Any], lengths: IntArray, kernel: Callable[[Any, Any], FloatArray]
) -> SquaredDistance:
    """Return the linear-time squared MMD between timesteps, from trials in pairs.

    Parameters
    ----------
    seen : ndarray, shape (m, t_max + 1, ...)
        What the kernel takes, of each trial and timestep; anything where a trial was cut short.
    lengths : ndarray of int, shape (m,)
        How many timesteps each trial has.
    kernel : callable
        Between corresponding observations of two arrays (p, n, ...), shape (p, n).

    Returns
    -------
    callable
        Timesteps that no pair has count like the last one that a pair has.
    """
    order = np.argsort(-lengths, kind="stable")
    n_pairs = len(order) // 2
    x, y = seen[order[0 : 2 * n_pairs : 2]], seen[order[1 : 2 * n_pairs : 2]]
    common = lengths[order[1 : 2 * n_pairs : 2]]  # the shorter of each pair; they descend
    last = int(common[0]) - 1

    @lru_cache(maxsize=1)
    def within(t: int) -> FloatArray:
        """Return the mean kernel within the first 1, 2, 3 … pairs."""
        sums = np.cumsum(kernel(x[:, t : t + 1], y[:, t : t + 1])[:, 0])
        return np.asarray(sums / np.arange(1, n_pairs + 1))

    def squared(anchor: int, start: int, stop: int) -> FloatArray:
        a = min(anchor, last)
        t = np.arange(min(start, last), min(stop, last + 1))
        n = np.searchsorted(-common, -t, side="left")  # pairs that have timestep t
        both = slice(t[0], t[-1] + 1)
        terms = kernel(x[:, both], y[:, both])
        terms -= kernel(x[:, a : a + 1], y[:, both])
        terms -= kernel(y[:, a : a + 1], x[:, both])
        terms[np.arange(n_pairs)[:, None] >= n] = 0.0
        found = terms.sum(axis=0) / n + within(a)[n - 1]
        return np.append(found, np.full(stop - start - len(t), found[-1]))

    return squared


def sampled_distance(
    distance: DistanceName | MMD | DistributionDistance, observed: Any
) -> SquaredDistance:
    """Return the squared distance between timesteps of samples.

    Parameters
    ----------
    distance : {"mmd", "tv", "ot"}, MMD or callable
        ``"ot"`` moves mass at the Euclidean distance between features; ``"mmd"`` is the linear
        MMD, or the total variation of counts of which no trial is stored.
    observed : CountRows or TrialRows
        Vector observations have the linear MMD only.

    Raises
    ------
    InvalidInputError
        If the name is unknown, the samples have no such distance, or there are fewer than two
        trials for the MMD.
    """
    if distance == "mmd" and not falls_back(observed):
        return _linear_mmd(observed.default_kernel, observed)
    if isinstance(distance, MMD):
        of = _linear_mmd if distance.estimator == "linear" else _quadratic_mmd
        return of(distance.kernel, observed)
    if isinstance(distance, str) and distance in ("mmd", "tv"):
        return sampled_total_variation(_visits(observed), observed.trials_at)
    if isinstance(distance, str) and distance == "ot":
        from scipy.spatial.distance import cdist  # takes long to import

        features = dense(observed.candidate_features)
        return optimal_transport(_distributions(observed), np.asarray(cdist(features, features)))
    if callable(distance):
        return pairwise(_distributions(observed), distance)
    raise InvalidInputError(
        f"distance must be 'mmd', 'tv', 'ot', an MMD or a function of two distributions; got "
        f"{distance!r}"
    )


def falls_back(observed: Any) -> bool:
    """Whether counts have no stored trials to pair, so that ``"mmd"`` is the total variation."""
    return observed.visits is not None and not len(observed.trial_features(1)[1])


def _visits(observed: Any) -> sparse.csr_array:
    if observed.visits is None:
        raise InvalidInputError(_UNCOUNTED)
    visits: sparse.csr_array = observed.visits
    return visits


def _distributions(observed: Any) -> FloatArray:
    visits = _visits(observed).toarray()
    return np.asarray(visits / visits.sum(axis=1, keepdims=True))


def _linear_mmd(kernel: Kernel, observed: Any) -> SquaredDistance:
    seen, lengths = observed.trial_features(_MOST_NUMBERS)
    _check_pairs("linear", len(lengths))
    features = observed.candidate_features
    kernel = kernel.fit_width(features[:_MOST_TABULATED])
    if observed.visits is None:
        return paired_discrepancy(seen, lengths, kernel.paired)
    if features.shape[0] <= _MOST_TABULATED:
        gram = kernel(features, features)
        return paired_discrepancy(seen, lengths, lambda x, y: np.asarray(gram[x, y]))

    def between(x: IntArray, y: IntArray) -> FloatArray:
        shape = np.broadcast_shapes(x.shape, y.shape)
        x, y = (np.broadcast_to(each, shape).ravel() for each in (x, y))
        return kernel.paired(features[x], features[y]).reshape(shape)

    return paired_discrepancy(seen, lengths, between)


def _quadratic_mmd(kernel: Kernel, observed: Any) -> SquaredDistance:
    distributions, features = _distributions(observed), observed.candidate_features
    n = features.shape[0]
    if n > _MOST_OF_GRAM:
        raise InvalidInputError(
            f"the quadratic MMD compares all pairs of states, here {n}², and takes at "
            f"most {_MOST_OF_GRAM}: use MMD('linear') or distance='tv'"
        )
    _check_pairs("quadratic", int(observed.trials_at.max()))
    kernel = kernel.fit_width(features)
    return mean_discrepancy(distributions, kernel(features, features), observed.trials_at)


def _check_pairs(estimator: str, n_trials: int) -> None:
    """Raise unless there are two trials to compare."""
    if n_trials < 2:
        stored = " stored" if estimator == "linear" else ""
        raise InvalidInputError(
            f"the {estimator} MMD compares different trials and needs at least 2{stored}; got "
            f"{n_trials}: give distance='tv' (countable states), n_anchors=1, or anchors="
        )
