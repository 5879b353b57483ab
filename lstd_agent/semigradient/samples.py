"""Samples of a round, timestep by timestep, as semi-gradient steps take them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from scipy import sparse

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.features.rows import with_ones
from lstd_agent.trials.counting import TransitionCounts
from lstd_agent.trials.encoding import Encoding
from lstd_agent.trials.kept_trials import KeptTrials
from lstd_agent.trials.recorders import Sums


class Timestep(NamedTuple):
    """Samples of a timestep: those of a state together, or a row each.

    Attributes
    ----------
    here, there : ndarray, shape (k, d + 1)
        Features (f, 1), and the mean ones of what follows.
    rewards, share : ndarray, shape (k,)
        Mean rewards, and the number of samples beside that of all trials.
    """

    here: FloatArray
    there: FloatArray
    rewards: FloatArray
    share: FloatArray


Reader: TypeAlias = Callable[[int], Timestep]


def reader(encoding: Encoding, sums: Sums) -> Reader:
    """Return a function of t that returns a timestep's samples.

    Raises
    ------
    InvalidInputError
        If the trials are not there any more, as they came.
    """
    if sums.counts is not None:
        states = np.arange(sums.counts.n_states)
        return _of_counts(sums.counts, with_ones(encoding.features(states)))
    if sums.kept is not None:
        return _of_trials(sums.kept, encoding)
    raise InvalidInputError(
        "the trials were condensed into moments, and one pass needs them as they came: hand "
        "over fewer at a time, or raise max_bytes"
    )


def _of_counts(counts: TransitionCounts, table: FloatArray) -> Reader:
    S, N, R = counts.n_states, counts.transition_counts, counts.reward_sums

    def at(t: int) -> Timestep:
        moves = slice(N.indptr[t], N.indptr[t + 1])
        state, successor = np.divmod(N.indices[moves].astype(np.int64), S)
        seen, row = np.unique(state, return_inverse=True)
        n = N.data[moves].astype(np.float64)
        visits = np.bincount(row, n)
        following = sparse.csr_array((n / visits[row], (row, successor)), shape=(seen.size, S))
        paid = slice(R.indptr[t], R.indptr[t + 1])
        rewards = np.bincount(R.indices[paid], R.data[paid], S)[seen] / visits
        return Timestep(
            table[seen], np.asarray(following @ table), rewards, visits / counts.n_trials
        )

    return at


def _of_trials(trials: KeptTrials, encoding: Encoding) -> Reader:
    def features(t: int, which: IntArray) -> FloatArray:
        return with_ones(encoding.features(trials.observations[which, t]))

    own = trials.own

    def at(t: int) -> Timestep:
        which = np.arange(trials.n_trials) if own is None else np.flatnonzero(own[:, t])
        share = np.full(which.size, 1.0 / trials.n_trials)
        return Timestep(features(t, which), features(t + 1, which), trials.rewards[which, t], share)

    return at


def some_timesteps(t_max: int) -> range:
    """Return some twenty timesteps."""
    return range(0, t_max + 1, max(1, t_max // 20))


def sampled_values(at: Reader, solved: FloatArray, t_max: int) -> FloatArray:
    """Return values of some samples, by the weights (n, d + 1) of each neighbourhood, (m, n)."""
    return np.concatenate([at(t).here for t in some_timesteps(t_max)]) @ solved.T
