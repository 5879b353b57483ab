r"""Means over all samples of features and their traces, of counts or of kept trials.

Along a trial the trace is :math:`e_t = f(s_t) + \lambda e_{t-1}`. Sums of products with traces are
sums of products with features, seen from the other end:

.. math:: \sum_t e_t x_t^T = \sum_k f(s_k) b_k^T, \quad b_k = x_k + \lambda b_{k+1},

so that one pass backwards over the layers of rows gives them. Counts hold no trials: there b of a
state is the mean over the states that follow it, which is its conditional expectation in the chain
of each timestep's frequencies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from lstd_agent.arrays import FloatArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.features.rows import as_rows, dense
from lstd_agent.rows.counts import CountRows
from lstd_agent.rows.kept import TrialRows
from lstd_agent.trials.counts import TransitionCounts
from lstd_agent.trials.kept import KeptTrials

TIMED = "these learners are for steps of 1 unit of time, and the environment tells durations"
"""What is wrong with an environment whose ``info`` has a duration."""

Samples: TypeAlias = TransitionCounts | KeptTrials
SampleFeatures: TypeAlias = Any
"""A table (S, d) for the states of counts, or a function of the observations (n, k) of trials."""


TIMED = (
    "this method is for steps of 1 unit of time, and these have durations: use SeminormLSTDAgent "
    "or PolicyIteration"
)


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
    """Means over all samples, of the rows' coordinates (u, 1), u = f V.

    Attributes
    ----------
    V : ndarray, shape (d, r)
        Turns weights of u into weights of f.
    second : ndarray, shape (r + 1, r + 1)
        E[(u, 1) (u, 1)ᵀ], over the timesteps whose features enter traces.
    here, there : ndarray, shape (r + 1, r + 1)
        E[e (u, 1)ᵀ] of traces e of (u, 1), with the features of states and of successors.
    trace, paid : ndarray, shape (r + 1,)
        E[e τ] of durations τ, and E[e r].
    drift : ndarray, shape (r + 1,)
        E[(u, 1) - (u', 1)], successors less, and ...
    duration, reward : float
        ... E[τ] and E[r].
    tail : ndarray, shape (r + 1,)
        Mean of (u, 1) over the second half of all timesteps, and ...
    tail_reward : float
        ... mean reward per unit of time there.
    n_samples : int
    """

    V: FloatArray
    second: FloatArray
    here: FloatArray
    there: FloatArray
    trace: FloatArray
    paid: FloatArray
    drift: FloatArray
    duration: float
    reward: float
    tail: FloatArray
    tail_reward: float
    n_samples: int

    @classmethod
    def of(
        cls, samples: Samples, features: SampleFeatures, decay: float, last: int | None = None
    ) -> TraceMeans:
        """Add up all samples once; features after the last timestep do not enter traces."""
        source = _rows(samples, features)
        T, p = source.t_max, source.p
        last = T if last is None else last
        traced, products = np.zeros((p, 2 * p + 2)), np.zeros((p, p))
        every, late, ahead = np.zeros(2 * p + 2), np.zeros(2 * p + 2), np.zeros(0)
        n = n_entering = n_late = 0.0
        for i, layer in enumerate(source.layers(0, T + 1)):
            t, u, weights = T - i, layer.features, layer.weights
            following = layer.ahead(layer.following)
            x = np.column_stack((u, following, layer.durations, layer.rewards))
            ahead = x + decay * layer.ahead(ahead) if i else x
            ahead[weights == 0.0] = 0.0  # what was not seen, or after a trial's end
            sums, number = weights @ x, float(weights.sum())
            every, n = every + sums, n + number
            if t >= (T + 1) // 2:
                late, n_late = late + sums, n_late + number
            if t <= last:
                weighted = (weights[:, None] * u).T
                traced += weighted @ ahead
                products += weighted @ u
                n_entering += number
        every, late, traced = every / n, late / n_late, traced / n_entering
        turn = source.coordinates.turn
        return cls(
            V=np.diag(turn) if turn.ndim == 1 else turn,
            second=products / n_entering,
            here=traced[:, :p],
            there=traced[:, p : 2 * p],
            trace=traced[:, -2],
            paid=traced[:, -1],
            drift=every[:p] - every[p : 2 * p],
            duration=float(every[-2]),
            reward=float(every[-1]),
            tail=late[:p],
            tail_reward=float(late[-1] / late[-2]),
            n_samples=round(n),
        )

    def value(self, weights: FloatArray) -> LinearValue:
        """Return the value with weights (r,) of u, moved to have mean 0 in the tail."""
        return LinearValue(self.V @ weights, -float(self.tail[:-1] @ weights))


def _rows(samples: Samples, features: SampleFeatures) -> CountRows | TrialRows:
    """Return the rows of samples, or raise unless the features fit them."""
    if samples.counts is not None:
        if callable(features):
            raise InvalidInputError("the features of counts are a table (S, d); got a function")
        source = CountRows([samples.counts], as_rows(np.asarray(features), samples.n_states))
        source.is_sparse = False
        return source
    if not callable(features):
        raise InvalidInputError("the features of trials are a function of observations (n, k)")
    if np.isnan(samples.observations).any():
        raise InvalidInputError("baselines are for continuing tasks, and some trials terminate")

    def rows(observations: Any) -> FloatArray:
        return dense(as_rows(features(observations.astype(np.float64)), len(observations)))

    return TrialRows(samples, rows)
