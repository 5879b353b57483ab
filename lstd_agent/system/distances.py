r"""Squared distances between the state distributions of two timesteps.

Three work on distributions p^t, exact or empirical:

- total variation, ½ ‖p - q‖₁ = 1 - Σ min(p, q), squared;
- optimal transport, the smallest mean cost of moving p onto q, squared;
- maximum mean discrepancy, ‖μ_p - μ_q‖² in the kernel's space (eq. ``mean_embedding``).

The fourth is the paper's unbiased estimator of the squared MMD, in linear time, from trials in
disjoint pairs (x, y) (eq. ``mmd_squared_linear``): the mean over pairs of k(x_a, y_a) + k(x_t, y_t)
- k(x_a, y_t) - k(y_a, x_t). It may be negative. Trials are paired by length.
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
from lstd_agent.errors import InvalidInputError, check_choice
from lstd_agent.features.rows import Kernel, dense

DistanceName = Literal["mmd", "tv", "ot"]

# Squared distances from the distribution at ``anchor`` to those at ``start`` up to ``stop``; and a
# distance between two distributions p, q (S,).
SquaredDistance = Callable[[int, int, int], FloatArray]
DistributionDistance = Callable[[FloatArray, FloatArray], float]


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

    estimator: Literal["linear", "quadratic"] = "linear"
    kernel: Kernel = field(default_factory=Kernel)

    def __post_init__(self) -> None:
        check_choice("MMD estimator", self.estimator, ("linear", "quadratic"))


# Largest numbers of states whose kernel table fits into memory, and saves time; of feature values.
_MOST_OF_GRAM, _MOST_TABULATED, _MOST_NUMBERS = 10_000, 4000, 2**22


def total_variation(visits: sparse.csr_array, n_at: FloatArray | IntArray) -> SquaredDistance:
    """Return squared total variation by visits (t_max + 1, S) of n_at (t_max + 1,) trials."""
    p = sparse.csr_array(sparse.diags_array(1.0 / np.maximum(n_at, 1)) @ visits)

    def squared(anchor: int, start: int, stop: int) -> FloatArray:
        here = p[np.full(stop - start, anchor)]
        return np.asarray(np.square(1.0 - here.minimum(p[start:stop]).sum(axis=1)))

    return squared


def mean_discrepancy(
    distributions: FloatArray, gram: FloatArray, n_trials: IntArray | int | None = None
) -> SquaredDistance:
    """Return the squared MMD between rows of distributions (t_max + 1, S), by k(s, s') (S, S).

    For frequencies over ``n_trials``, means within timesteps leave out pairs of a trial with
    itself, so they are unbiased. The cross mean keeps them, a bias of order 1/n.
    """
    embedding = distributions @ gram
    norm = np.einsum("ts,ts->t", embedding, distributions)
    if n_trials is not None:
        unbiased = n_trials * norm - distributions @ np.diagonal(gram)
        norm = np.where(n_trials > 1, unbiased / np.maximum(n_trials - 1, 1), norm)

    def squared(anchor: int, start: int, stop: int) -> FloatArray:
        cross = embedding[start:stop] @ distributions[anchor]
        return np.asarray(norm[anchor] + norm[start:stop] - 2.0 * cross)

    return squared


def optimal_transport(distributions: FloatArray, cost: FloatArray) -> SquaredDistance:
    """Return squared optimal-transport distances between rows of distributions (t_max + 1, S).

    The cost (S, S) is a (pseudo-)metric, so common mass stays in place.
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
        masses = supply / moved, demand / demand.sum()
        between = np.ascontiguousarray(cost[np.ix_(source, sink)])
        return float(moved * ot.emd2(*masses, between, check_marginals=False))

    return _pairwise(distributions, distance)


def _pairwise(distributions: FloatArray, distance: DistributionDistance) -> SquaredDistance:
    """Return the square of any distance between two distributions, row by row."""

    def squared(anchor: int, start: int, stop: int) -> FloatArray:
        p = distributions[anchor]
        found = np.array([distance(p, q) for q in distributions[start:stop]], dtype=np.float64)
        if (found < 0.0).any():
            raise InvalidInputError(f"a distance is a number of at least 0; got {found.min()}")
        return found**2

    return squared


def paired_discrepancy(
    seen: NDArray[Any], lengths: IntArray, kernel: Callable[[Any, Any], FloatArray]
) -> SquaredDistance:
    """Return the linear-time squared MMD between timesteps, from trials in pairs.

    ``seen`` (m, t_max + 1, ...) are valid for the first ``lengths`` (m,) timesteps. The kernel
    compares arrays (p, n, ...) and returns (p, n). Timesteps without a pair get the last distance.
    """
    order = np.argsort(-lengths, kind="stable")
    n_pairs = len(order) // 2
    seen = seen if (np.diff(order) == 1).all() else seen[order]
    x, y = seen[0 : 2 * n_pairs : 2], seen[1 : 2 * n_pairs : 2]
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
    """Return the squared distance between timesteps of `CountRows` or `TrialRows`.

    ``"ot"`` moves mass between features, and ``"mmd"`` is linear, or ``"tv"`` without whole trials.
    """
    if str(distance) == "mmd":
        distance = "tv" if falls_back(observed) else MMD(kernel=observed.default_kernel)
    if isinstance(distance, MMD) and distance.estimator == "linear":
        return _linear_mmd(distance.kernel, observed)
    if not (isinstance(distance, MMD) or str(distance) in ("tv", "ot") or callable(distance)):
        kinds = "'mmd', 'tv', 'ot', an MMD or a function of two distributions"
        raise InvalidInputError(f"distance must be {kinds}; got {distance!r}")
    if observed.visits is None:
        raise InvalidInputError(
            "this distance compares distributions over countable states; vector observations have "
            "distance='mmd' or MMD(estimator='linear')"
        )
    if distance == "tv":
        return total_variation(observed.visits, observed.trials_at)
    features = observed.candidate_features
    if isinstance(distance, MMD) and features.shape[0] > _MOST_OF_GRAM:
        raise InvalidInputError(
            f"the quadratic MMD compares all pairs of states, here {features.shape[0]}², and takes "
            f"at most {_MOST_OF_GRAM}: use MMD('linear') or distance='tv'"
        )
    visits = observed.visits.toarray()
    distributions = visits / visits.sum(axis=1, keepdims=True)
    if isinstance(distance, MMD):
        n_at, kernel = observed.trials_at, distance.kernel.fit_width(features)
        _check_pairs("quadratic MMD compares different trials and needs at least 2", n_at.max())
        return mean_discrepancy(distributions, kernel(features, features), n_at)
    if callable(distance):
        return _pairwise(distributions, distance)
    from scipy.spatial.distance import cdist  # takes long to import

    features = dense(features)
    return optimal_transport(distributions, np.asarray(cdist(features, features)))


def falls_back(observed: Any) -> bool:
    """Whether counts have no stored trials to pair, so that ``"mmd"`` is the total variation."""
    return observed.visits is not None and not len(observed.trial_features(1)[1])


def _linear_mmd(kernel: Kernel, observed: Any) -> SquaredDistance:
    seen, lengths = observed.trial_features(_MOST_NUMBERS)
    _check_pairs("linear MMD compares different trials and needs at least 2 stored", len(lengths))
    features = observed.candidate_features
    kernel = kernel.fit_width(features[:_MOST_TABULATED])
    if observed.visits is None:
        return paired_discrepancy(seen, lengths, kernel.paired)
    if features.shape[0] <= _MOST_TABULATED:
        gram = kernel(features, features)
        return paired_discrepancy(seen, lengths, lambda x, y: gram[x, y])

    def between(x: IntArray, y: IntArray) -> FloatArray:
        x, y = np.broadcast_arrays(x, y)
        return kernel.paired(features[x.ravel()], features[y.ravel()]).reshape(x.shape)

    return paired_discrepancy(seen, lengths, between)


def _check_pairs(name: str, n_trials: int) -> None:
    """Raise unless there are two trials to compare."""
    if n_trials < 2:
        told = f"the {name}; got {n_trials}: cut one long run into trials of T steps, by end_trial "
        told += "or add_trials([x[i : i + T + 1] for i in range(0, n, T)], [r[i : i + T] for i in "
        told += "range(0, n, T)]), or give distance='tv' (countable states) or n_anchors=1"
        raise InvalidInputError(told)
