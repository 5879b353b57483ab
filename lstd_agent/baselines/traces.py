r"""Means over all samples of features and their traces, of counts or of kept trials.

Along a trial the trace is :math:`e_t = f(s_t) + \lambda e_{t-1}`. Counts hold no trials: there the
trace of a state is the mean over those that come to it,

.. math:: e_t(s') = f(s') + \lambda \sum_s \frac{N_{t-1}(s, s')}{N_t(s')} e_{t-1}(s),

which is its conditional expectation in the chain of each timestep's frequencies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from lstd_agent.arrays import FloatArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.features.rows import as_rows, dense
from lstd_agent.statistics.backups import Step
from lstd_agent.statistics.counted_steps import counted_step
from lstd_agent.statistics.equations import FeatureBasis
from lstd_agent.system.minimizer import DEFAULT_RCOND
from lstd_agent.trials.counting import TransitionCounts
from lstd_agent.trials.kept_trials import KeptTrials

Samples: TypeAlias = TransitionCounts | KeptTrials
SampleFeatures: TypeAlias = Any
"""A table (S, d) for the states of counts, or a function of the observations (n, k) of trials."""


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
        """Go through all timesteps once; features after the last one do not enter traces."""
        last = samples.t_max if last is None else last
        first_of_tail = (samples.t_max + 1) // 2
        V, timesteps = _timesteps(samples, features)
        size = V.shape[1] + 1
        second, here, there = (np.zeros((size, size)) for _ in range(3))
        trace, paid, drift, tail = (np.zeros(size) for _ in range(4))
        reward = tail_reward = n = n_entering = n_tail = 0.0
        coming: FloatArray | float = 0.0
        for t, step in enumerate(timesteps):
            u, visits = step.features, step.visits
            e = coming + (u if t <= last else 0.0 * u)
            weighted = (visits[:, None] * e).T
            here += weighted @ u
            there += weighted @ step.successors
            trace += weighted.sum(axis=1)
            paid += weighted @ step.rewards
            drift += visits @ (u - step.successors)
            reward += float(visits @ step.rewards)
            n += visits.sum()
            if t <= last:
                second += (visits[:, None] * u).T @ u
                n_entering += visits.sum()
            if t >= first_of_tail:
                tail += visits @ u
                tail_reward += float(visits @ step.rewards)
                n_tail += visits.sum()
            coming = step.arrive(decay * e)
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
class _Timestep:
    """Samples of one timestep: a row each, or one for all those in a state.

    Attributes
    ----------
    features, successors : ndarray, shape (k, r + 1)
        Of (u, 1), the mean over successors.
    rewards, visits : ndarray, shape (k,)
    arrive : callable
        Turns what each row holds (k, ...) into what the rows of the next timestep come with.
    """

    features: FloatArray
    successors: FloatArray
    rewards: FloatArray
    visits: FloatArray
    arrive: Callable[[FloatArray], FloatArray]


def _timesteps(
    samples: Samples, features: SampleFeatures
) -> tuple[FloatArray, Iterator[_Timestep]]:
    """Return V of `TraceMeans`, and all timesteps in their order."""
    if isinstance(samples, TransitionCounts):
        if callable(features):
            raise InvalidInputError("the features of counts are a table (S, d); got a function")
        table = as_rows(np.asarray(features), samples.n_states)
        seen = np.zeros(samples.n_states, dtype=bool)
        for states in np.divmod(samples.transition_counts.indices, samples.n_states):
            seen[states] = True
        basis = FeatureBasis.of(table * seen[:, None], DEFAULT_RCOND)
        return basis.V / basis.singular, _counted(samples, _with_ones(basis.U))
    if not callable(features):
        raise InvalidInputError("the features of trials are a function of observations (n, k)")
    if np.isnan(samples.observations).any():
        raise InvalidInputError("baselines are for continuing tasks, and some trials terminate")
    d = features(samples.observations[:1, 0]).shape[1]
    return np.eye(d), _along(samples, features)


def _counted(counts: TransitionCounts, table: FloatArray) -> Iterator[_Timestep]:
    for t in range(counts.t_max + 1):
        step = counted_step(counts, t, None)
        yield _Timestep(
            table[step.states],
            step.transitions @ table,
            step.rewards,
            step.visits,
            partial(_mean_of_arrivals, step),
        )


def _mean_of_arrivals(step: Step, held: FloatArray) -> FloatArray:
    """Return the mean of what trials hold, by the states in which they arrive, in their order."""
    back = step.transitions.T
    arrivals = back @ step.visits
    reached = np.flatnonzero(arrivals)
    return np.asarray((back @ (step.visits[:, None] * held))[reached] / arrivals[reached, None])


def _along(trials: KeptTrials, features: Callable[[Any], Any]) -> Iterator[_Timestep]:
    def rows(t: int) -> FloatArray:
        return _with_ones(dense(as_rows(features(trials.observations[:, t]), trials.n_trials)))

    here, ones = rows(0), np.ones(trials.n_trials)
    for t in range(trials.t_max + 1):
        there = rows(t + 1)
        yield _Timestep(here, there, trials.rewards[:, t], ones, lambda held: held)
        here = there


def _with_ones(u: FloatArray) -> FloatArray:
    return np.column_stack((u, np.ones(len(u))))
