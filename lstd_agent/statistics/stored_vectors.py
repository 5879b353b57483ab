"""What stored trials of vectors stand for: candidate reference states, and the starts of all."""

from __future__ import annotations

import numpy as np

from lstd_agent.arrays import BoolArray, FloatArray

N_CANDIDATES = 200
"""How many stored observations are candidate reference states."""

# The share of starts that may be undetermined, and what is close beside the usual distance from one
# start to the nearest.
_TOLERATED = 0.1
_REACH = 12.0


def choose_candidates(trials: FloatArray) -> FloatArray:
    """Choose candidate reference states (M, k) from trials (m, t_max + 1, k), each in turn.

    Half of them are at evenly spaced timesteps and half at logarithmically spaced ones, since
    transients are short. The terminal state (NaN), if any, comes first.
    """
    m, n_timesteps, _ = trials.shape
    n = min(N_CANDIDATES, m * n_timesteps)
    even = np.linspace(0, n_timesteps - 1, n - n // 2)
    early = np.geomspace(1, n_timesteps, n // 2) - 1
    timestep = np.concatenate((even, early)).astype(np.int64)
    chosen = trials[np.arange(n) % m, timestep]
    # What is infinite is of timesteps that a trial does not have. What occurs twice is kept once.
    living = np.unique(chosen[np.isfinite(chosen).all(axis=1)], axis=0)
    ended = trials[np.isnan(trials).any(axis=2)]
    return np.concatenate((ended[:1], living))


def are_at_edge(starts: FloatArray, undetermined: BoolArray) -> BoolArray:
    """Return which undetermined starts (n, k) are at the edge of all, where it is always thin.

    No two starts need be alike. A tenth may be undetermined, if each is linked to one that is
    not by starts close together.
    """
    from scipy.sparse.csgraph import connected_components  # takes long to import
    from scipy.spatial.distance import cdist

    if np.mean(undetermined) > _TOLERATED:
        return np.zeros(len(undetermined), dtype=bool)
    deviation = starts.std(axis=0)
    scaled = starts / np.where(deviation > 0.0, deviation, 1.0)
    distance = cdist(scaled, scaled)
    nearest = np.partition(distance, 1, axis=1)[:, 1] if len(starts) > 1 else np.zeros(1)
    _, group = connected_components(distance <= _REACH * np.median(nearest))
    return np.asarray(undetermined & np.isin(group, group[~undetermined]))
