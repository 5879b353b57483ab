r"""Means over all samples of features and their traces, of counts or of kept trials.

Along a trial the trace is :math:`e_t = f(s_t) + \lambda e_{t-1}`. Counts hold no trials: there the
trace of a state is the mean over those that come to it,

.. math:: e_t(s') = f(s') + \lambda \sum_s \frac{N_{t-1}(s, s')}{N_t(s')} e_{t-1}(s),

which is its conditional expectation in the chain of each timestep's frequencies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from scipy import sparse

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.features.rows import as_rows, dense, with_ones
from lstd_agent.rows.layers import orthonormal
from lstd_agent.system.minimizer import DEFAULT_RCOND
from lstd_agent.trials.counts import TransitionCounts
from lstd_agent.trials.kept import KeptTrials

TIMED = "these learners are for steps of 1 unit of time, and the environment tells durations"
"""What is wrong with an environment whose ``info`` has a duration."""

Samples: TypeAlias = TransitionCounts | KeptTrials
SampleFeatures: TypeAlias = Any
"""A table (S, d) for the states of counts, or a function of the observations (n, k) of trials."""


# Working arrays of samples hold about this many numbers.
_CHUNK_SIZE = 2**22


@dataclass(frozen=True, eq=False)
class LinearValue:
    """An estimate f(s)·weights + offset of the bias.

    Attributes
    ----------
    weights : ndarray, shape (d,)
    offset : float
    """

    weights: FloatArray
    offset: float

    def __call__(self, features: FloatArray) -> FloatArray:
        """Return the values (m,) of features (m, d)."""
        return np.asarray(features @ self.weights + self.offset)


@dataclass(frozen=True, eq=False)
class TraceMeans:
    """Means over all samples, of features u (or ones, where it says so) with f = u V⁻¹.

    The features of counts are orthonormal here, so that nothing hangs on how alike they are.

    Attributes
    ----------
    V : ndarray, shape (d, r)
        Turns weights of u into weights of f, as u = f V.
    second : ndarray, shape (r + 1, r + 1)
        E[(u, 1) (u, 1)ᵀ], over the timesteps whose features enter traces.
    here, there : ndarray, shape (r + 1, r + 1)
        E[e (u, 1)ᵀ] of traces e of (u, 1), with the features of states and of successors.
    trace, paid : ndarray, shape (r + 1,)
        E[e] and E[e r].
    drift : ndarray, shape (r + 1,)
        E[(u, 1) - (u', 1)], successors less, and ...
    reward : float
        ... E[r].
    tail : ndarray, shape (r + 1,)
        Mean of (u, 1) over the second half of all timesteps, and ...
    tail_reward : float
        ... of the rewards.
    n_samples : int
    """

    V: FloatArray
    second: FloatArray
    here: FloatArray
    there: FloatArray
    trace: FloatArray
    paid: FloatArray
    drift: FloatArray
    reward: float
    tail: FloatArray
    tail_reward: float
    n_samples: int

    @classmethod
    def of(
        cls, samples: Samples, features: SampleFeatures, decay: float, last: int | None = None
    ) -> TraceMeans:
        """Add up all samples once; features after the last timestep do not enter traces."""
        last = samples.t_max if last is None else last
        V, portions = _portions(samples, features, decay, last)
        size = V.shape[1] + 1
        second, here, there = (np.zeros((size, size)) for _ in range(3))
        trace, paid, drift, tail = (np.zeros(size) for _ in range(4))
        reward = tail_reward = n = n_entering = n_tail = 0.0
        for part in portions:
            u, visits = part.features, part.visits
            weighted = (visits[:, None] * part.traces).T
            here += weighted @ u
            there += weighted @ part.successors
            trace += weighted.sum(axis=1)
            paid += weighted @ part.rewards
            drift += visits @ (u - part.successors)
            reward += float(visits @ part.rewards)
            n += visits.sum()
            entering = np.where(part.t <= last, visits, 0.0)
            second += (entering[:, None] * u).T @ u
            n_entering += entering.sum()
            settled = np.where(part.t >= (samples.t_max + 1) // 2, visits, 0.0)
            tail += settled @ u
            tail_reward += float(settled @ part.rewards)
            n_tail += settled.sum()
        return cls(
            V=V,
            second=second / n_entering,
            here=here / n_entering,
            there=there / n_entering,
            trace=trace / n_entering,
            paid=paid / n_entering,
            drift=drift / n,
            reward=float(reward / n),
            tail=tail / n_tail,
            tail_reward=float(tail_reward / n_tail),
            n_samples=round(n),
        )

    def value(self, weights: FloatArray) -> LinearValue:
        """Return the value with weights (r,) of u, moved to have mean 0 in the tail."""
        return LinearValue(self.V @ weights, -float(self.tail[:-1] @ weights))


@dataclass(frozen=True, eq=False)
class _Portion:
    """Samples: a row each, or one for all those of a timestep in a state.

    Attributes
    ----------
    t : ndarray of int, shape (k,)
    features, successors, traces : ndarray, shape (k, r + 1)
        Of (u, 1), the means over successors and over trials that come there.
    rewards, visits : ndarray, shape (k,)
    """

    t: IntArray
    features: FloatArray
    successors: FloatArray
    traces: FloatArray
    rewards: FloatArray
    visits: FloatArray


def check_has_no_durations(samples: Samples) -> None:
    """Raise `InvalidInputError` if steps take time: baselines know rewards per step alone."""
    held = samples.durations if samples.counts is None else samples.counts.duration_sums
    if held is not None:
        raise InvalidInputError(
            "baselines are for steps of 1 unit of time, and these have durations: use "
            "SeminormLSTDAgent"
        )


def _portions(
    samples: Samples, features: SampleFeatures, decay: float, last: int
) -> tuple[FloatArray, Iterator[_Portion]]:
    """Return V of `TraceMeans`, and all samples."""
    check_has_no_durations(samples)
    if samples.counts is not None:
        if callable(features):
            raise InvalidInputError("the features of counts are a table (S, d); got a function")
        table = as_rows(np.asarray(features), samples.n_states)
        seen = np.zeros(samples.n_states, dtype=bool)
        for states in np.divmod(samples.transition_counts.indices, samples.n_states):
            seen[states] = True
        turn = orthonormal(table[seen], DEFAULT_RCOND)
        return turn, _counted(samples, with_ones((table @ turn) * seen[:, None]), decay, last)
    if not callable(features):
        raise InvalidInputError("the features of trials are a function of observations (n, k)")
    if np.isnan(samples.observations).any():
        raise InvalidInputError("baselines are for continuing tasks, and some trials terminate")
    d = features(samples.observations[:1, 0]).shape[1]
    return np.eye(d), _along(samples, features, decay, last)


def _counted(
    counts: TransitionCounts, table: FloatArray, decay: float, last: int
) -> Iterator[_Portion]:
    """Yield portions of whole timesteps; a visit (t, s) is numbered t S + s, in order."""
    S, N, R = counts.n_states, counts.transition_counts, counts.reward_sums
    state, successor = np.divmod(N.indices.astype(np.int64), S)
    timestep = np.repeat(np.arange(counts.t_max + 1), np.diff(N.indptr))
    visit, row = np.unique(timestep * S + state, return_inverse=True)
    visits = np.bincount(row, weights=N.data).astype(np.float64)
    paid_at = np.repeat(np.arange(counts.t_max + 1), np.diff(R.indptr)) * S + R.indices
    rewards = np.bincount(np.searchsorted(visit, paid_at), R.data, len(visit)) / visits
    moves = sparse.csr_array((N.data / visits[row], (row, successor)), shape=(len(visit), S))
    onward = timestep < counts.t_max
    arrival = np.searchsorted(visit, (timestep[onward] + 1) * S + successor[onward])
    share = N.data[onward] / visits[arrival]
    arrivals = sparse.csr_array((share, (arrival, row[onward])), shape=(len(visit),) * 2)

    first_of_timestep = np.searchsorted(visit, np.arange(counts.t_max + 2) * S)
    held: FloatArray = np.zeros((0, table.shape[1]))
    start = before = 0
    while start < len(visit):
        # As many timesteps as fit, at least one.
        fits = np.searchsorted(first_of_timestep, start + _CHUNK_SIZE // table.shape[1], "right")
        stop = max(first_of_timestep[fits - 1], first_of_timestep[visit[start] // S + 1])
        here = slice(start, stop)
        t, states = np.divmod(visit[here], S)
        traces = np.where((t <= last)[:, None], table[states], 0.0)
        if decay > 0.0:
            traces += decay * (arrivals[here, before:start] @ held)
            traces = _forward(decay * arrivals[here, here], traces)
        successors = np.asarray(moves[here] @ table)
        yield _Portion(t, table[states], successors, traces, rewards[here], visits[here])
        held, before, start = traces, start, stop


def _forward(arriving: sparse.csr_array, entering: FloatArray) -> FloatArray:
    """Return e = entering + arriving @ e, where what arrives is from earlier rows."""
    from scipy.sparse.linalg import splu  # takes long to import

    triangular = sparse.csc_array(sparse.eye_array(len(entering)) - arriving)
    # Already triangular: any other order, or pivots off the diagonal, would fill it in.
    factors = splu(triangular, permc_spec="NATURAL", diag_pivot_thresh=0.0)
    return np.asarray(factors.solve(entering))


def _along(
    trials: KeptTrials, features: Callable[[Any], Any], decay: float, last: int
) -> Iterator[_Portion]:
    """Yield timesteps, with a row for each trial."""
    here, ones = _rows(trials, features, 0), np.ones(trials.n_trials)
    traces = np.zeros_like(here)
    for t in range(trials.t_max + 1):
        there = _rows(trials, features, t + 1)
        traces = decay * traces + (here if t <= last else 0.0)
        timestep = np.full(trials.n_trials, t)
        yield _Portion(timestep, here, there, traces, trials.rewards[:, t], ones)
        here = there


def _rows(trials: KeptTrials, features: Callable[[Any], Any], t: int) -> FloatArray:
    observed = trials.observations[:, t].astype(np.float64)
    return with_ones(dense(as_rows(features(observed), trials.n_trials)))
