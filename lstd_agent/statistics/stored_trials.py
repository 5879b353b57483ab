r"""What stored trials show of starts that counts cannot.

Counts link what comes before a state with what comes after it as if nothing but the state told
what follows. Observations that leave out part of the state do not, at any timestep; but along a
trial

.. math:: e(h) = \sum_{t < h} (\bar r_t(s_t) - g) + v(s_h) - v(s_0)

still is what it is. The states of some of the counted trials are stored; their rewards are not, and
mean rewards of states at timesteps stand for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.trials.counting import TransitionCounts

MOST_STORED = 1000
"""What more of them would tell is little."""


def errors_by_start(
    trials: IntArray | None,
    starts: IntArray,
    least: int,
    total: TransitionCounts,
    horizons: IntArray,
    value_of: Callable[[Any, IntArray], FloatArray],
    gain: float,
    terminal: int | None,
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return starts (n,), the means of e(h) over trials from each, and their errors (n, k).

    Parameters
    ----------
    trials : ndarray of int, shape (m, t_max + 1), optional
        States; -1 where a trial was cut short.
    starts : ndarray of int, shape (s,)
        All that are asked for.
    least : int
        Those of fewer trials are left out.
    total : TransitionCounts
        Of all trials.
    horizons : ndarray of int, shape (k,)
    value_of : callable
        Values of states (m,) at timesteps (m,).
    gain : float
    terminal : int, optional
        Nothing is earned there.
    """
    if trials is None or starts.size == 0:
        return starts[:0], np.zeros((0, len(horizons))), np.zeros((0, len(horizons)))
    states, n = np.unique(trials[:, 0], return_counts=True)
    often = (n >= least) & np.isin(states, starts)
    start, n = states[often], n[often]
    trials = trials[np.isin(trials[:, 0], start)]
    group = np.searchsorted(start, trials[:, 0])
    # A trial that was cut short before is compared with the value where it was.
    until = np.minimum(horizons, (trials >= 0).sum(axis=1)[:, None] - 1)
    m, k = until.shape
    here = np.arange(m)[:, None]
    at_end = value_of(trials[here, until].ravel(), until.ravel()).reshape(m, k)
    at_start = value_of(trials[:, 0], np.zeros(m, dtype=np.int64))
    living = (trials >= 0) & (trials != (-1 if terminal is None else terminal))
    earned = np.where(living, _mean_rewards(trials, total) - gain, 0.0)
    before = np.append(np.zeros((m, 1)), np.cumsum(earned, axis=1), axis=1)
    error = before[here, until] + at_end - at_start[:, None]
    mean = np.zeros((len(start), k))
    np.add.at(mean, group, error)
    mean /= n[:, None]
    squares = np.zeros((len(start), k))
    np.add.at(squares, group, (error - mean[group]) ** 2)
    return start, mean, np.sqrt(squares / ((n - 1) * n)[:, None])


def _mean_rewards(trials: IntArray, total: TransitionCounts) -> FloatArray:
    """Return the mean rewards of states (m, t_max + 1) at their timesteps, over all trials."""
    S, N, R = total.n_states, total.transition_counts, total.reward_sums
    t = np.repeat(np.arange(N.shape[0]), np.diff(N.indptr))
    seen, place = np.unique(t * S + N.indices.astype(np.int64) // S, return_inverse=True)
    visits = np.bincount(place, weights=N.data)
    rewards = np.zeros(len(seen))
    t = np.repeat(np.arange(R.shape[0]), np.diff(R.indptr))
    rewards[np.searchsorted(seen, t * S + R.indices)] = R.data
    wanted = np.arange(trials.shape[1]) * S + np.maximum(trials, 0)
    return np.asarray((rewards / visits)[np.searchsorted(seen, wanted).clip(max=len(seen) - 1)])
