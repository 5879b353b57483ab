"""Linear-time squared MMD between timesteps, from trials in pairs (eq. ``mmd_squared_linear``).

The paper's estimator: with trials (x, y) in disjoint pairs, the mean over pairs of
k(x_a, y_a) + k(x_t, y_t) - k(x_a, y_t) - k(y_a, x_t). It is unbiased, and may be negative.

Of trials that were cut short, the longest are paired with each other, and timestep t is compared
by the pairs that both have it: the same trials then and at the anchor.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.features.kernels import Kernel
from lstd_agent.features.rows import Rows
from lstd_agent.statistics.interface import SquaredDistance

UNCOUNTED = (
    "this distance compares distributions over countable states; vector observations have "
    "distance='mmd' or MMD(estimator='linear')"
)

# A table of the kernel between more states than this is larger than what it saves.
_MOST_OF_GRAM = 4000

# Vectors of so many stored trials are compared that their features are this many numbers.
_N_DISTANCE_NUMBERS = 2**24

PairKernel = Callable[[NDArray[Any], NDArray[Any]], FloatArray]
"""Kernel (p,) between the states of p trials and those of as many others."""


def cut_pairs_discrepancy(
    trials: NDArray[Any], lengths: IntArray, kernel: PairKernel
) -> SquaredDistance:
    """Return the squared MMD between timesteps of trials some of which were cut short.

    Parameters
    ----------
    trials : ndarray, shape (m, t_max + 1, ...)
        Whatever the kernel takes, by trial.
    lengths : ndarray of int, shape (m,)
        How many timesteps each has.
    kernel : callable

    Returns
    -------
    callable
        What no pair has counts like the last timestep that one has.
    """
    order = np.argsort(-lengths, kind="stable")
    n_pairs = len(order) // 2
    first, second = order[0 : 2 * n_pairs : 2], order[1 : 2 * n_pairs : 2]
    common = lengths[second]  # the shorter of each pair; they descend

    def mean(x: IntArray, s: int, y: IntArray, t: int) -> float:
        return float(kernel(trials[x, s], trials[y, t]).mean())

    @lru_cache(maxsize=1)
    def within(t: int, n: int) -> float:
        return mean(first[:n], t, second[:n], t)

    def at(anchor: int, t: int) -> float:
        t = min(t, int(common[0]) - 1)
        anchor = min(anchor, t)
        n = int(np.count_nonzero(common > t))
        x, y = first[:n], second[:n]
        of_both = within(anchor, n) + mean(x, t, y, t)
        return of_both - mean(x, anchor, y, t) - mean(y, anchor, x, t)

    def squared(anchor: int, start: int, stop: int) -> FloatArray:
        return np.array([at(anchor, t) for t in range(start, stop)])

    return squared


def paired_mean_discrepancy(trials: NDArray[np.integer], gram: FloatArray) -> SquaredDistance:
    """Return the squared MMD between timesteps of trials of numbered states.

    Parameters
    ----------
    trials : ndarray of int, shape (m, t_max + 1)
        The states of m trials, taken in pairs; an odd last one is left out.
    gram : ndarray, shape (S, S)
        The kernel between states.
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
    """Return the squared MMD between timesteps of trials of vectors.

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


def state_pairs_discrepancy(
    trials: NDArray[np.integer] | None, features: Rows, kernel: Kernel
) -> SquaredDistance:
    """Return the squared MMD between timesteps of stored trials of numbered states.

    Parameters
    ----------
    trials : ndarray of int, shape (m, t_max + 1), optional
        -1 where a trial was cut short.
    features : ndarray or csr_array, shape (S, d)
    kernel : Kernel
    """
    check_pairs("linear", 0 if trials is None else len(trials))
    assert trials is not None
    kernel = kernel.fit_width(features[:_MOST_OF_GRAM])
    lengths = (trials >= 0).sum(axis=1)
    if (lengths == trials.shape[1]).all() and features.shape[0] <= _MOST_OF_GRAM:
        return paired_mean_discrepancy(trials, kernel(features, features))
    return cut_pairs_discrepancy(
        trials, lengths, lambda x, y: kernel.paired(features[x], features[y])
    )


def vector_pairs_discrepancy(
    trials: FloatArray, features: Callable[[FloatArray], FloatArray], d: int, kernel: Kernel
) -> SquaredDistance:
    """Return the squared MMD between timesteps of stored trials of vectors.

    Parameters
    ----------
    trials : ndarray, shape (m, t_max + 1, k)
        Infinite where a trial was cut short.
    features : callable
        Features (n, d) of vectors (n, k).
    d : int
    kernel : Kernel
        Of features, its width fitted.
    """
    check_pairs("linear", len(trials))
    m = max(2, _N_DISTANCE_NUMBERS // (d * trials.shape[1]))
    lengths = (~np.isinf(trials[:, :, 0])).sum(axis=1)
    states = trials[:m]
    # Where a trial was cut short its start stands in; it is not looked at.
    states = np.where(np.isinf(states), states[:, :1], states).swapaxes(0, 1)
    n_timesteps, m, k = states.shape
    f = features(states.reshape(-1, k)).reshape(n_timesteps, m, -1)
    if (lengths < n_timesteps).any():
        return cut_pairs_discrepancy(f.swapaxes(0, 1), lengths[:m], kernel.paired)
    return paired_vector_discrepancy(f, kernel)


def check_pairs(estimator: str, n_trials: int) -> None:
    """Raise unless there are two trials to compare."""
    if n_trials < 2:
        stored = " stored" if estimator == "linear" else ""
        raise InvalidInputError(
            f"the {estimator} MMD compares different trials and needs at least 2{stored}; got "
            f"{n_trials}: give distance='tv' (countable states), n_anchors=1, or anchors="
        )
