r"""Held-out trials: how far predictions are from the excess returns that other trials show.

One half of the trials is fitted, the other one holds the prediction of every timestep against what
came after it,

.. math:: G_t = \sum_{u \ge t} (r_u - g) + v(s_{t_{max} + 1}),

and then the halves change places. Returns are noisy but unbiased, whatever observations leave out
and however values are found, so that of two systems the one nearer to the returns is the nearer one
to the truth, by their difference and its standard error. Of counts, returns are means over the
trials that meet in a state, by the transitions of each timestep.

The mean square of :math:`v(s_t) - G_t` is taken over the trials of each timestep, and over all
timesteps with weights of 1/(t + 1): transients are short, and the bias of their states is what is
wanted. By how much the mean value of the start misses the mean return is told besides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, Protocol, TypeVar

import numpy as np
from scipy import sparse

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.features.rows import Rows, RowsOf
from lstd_agent.statistics.blocks import Block
from lstd_agent.trials.counting import TransitionCounts
from lstd_agent.trials.kept_trials import KeptTrials
from lstd_agent.trials.lengths import trials_at

Fitted = TypeVar("Fitted")
FittedTo = TypeVar("FittedTo", covariant=True)

N_GROUPS = 8
"""Into so many groups counts are divided, half of them for each half of the trials."""


@dataclass(frozen=True, eq=False)
class Approximators:
    """Approximators of all neighbourhoods.

    Attributes
    ----------
    weights : ndarray, shape (n, d)
    offsets : ndarray, shape (n,)
    windows : ndarray of int, shape (n, 2)
        Timesteps (start, stop), one after the other.
    """

    weights: FloatArray
    offsets: FloatArray
    windows: IntArray


class Holdout(Protocol[FittedTo]):
    """A half of the trials to fit, and the other to hold predictions against."""

    @property
    def fitted(self) -> FittedTo:
        """Statistics of the half to fit."""

    def errors(self, system: Approximators, gain: float) -> FloatArray:
        """Return mean square errors and mean errors of the start (m, 2), by groups of trials."""


@dataclass(frozen=True, eq=False)
class CountHoldout(Generic[Fitted]):
    """Held-out counts, in groups.

    Attributes
    ----------
    fitted : statistics
    groups : sequence of TransitionCounts
    features : ndarray, shape (S, d)
    terminal : int or None
    """

    fitted: Fitted
    groups: Sequence[TransitionCounts]
    features: Rows
    terminal: int | None

    def errors(self, system: Approximators, gain: float) -> FloatArray:
        """Return mean square errors and mean errors of the start (m, 2)."""
        values = system.weights @ self.features.T + system.offsets[:, None]
        if self.terminal is not None:
            values[:, self.terminal] = 0.0
        return np.array([each.errors(values, system.windows, gain) for each in self._returns])

    @cached_property
    def _returns(self) -> list[_Returns]:
        return [_Returns(counts, self.terminal) for counts in self.groups]


class _Returns:
    """Mean returns of all timesteps by counts, and how far predictions are from them."""

    def __init__(self, counts: TransitionCounts, terminal: int | None) -> None:
        self._block = Block.of(counts, 0, counts.t_max + 1, terminal)
        self._solve = self._block.solver(1.0)

    def errors(self, values: FloatArray, windows: IntArray, gain: float) -> tuple[float, float]:
        """Return both errors of values (n, S) of neighbourhoods."""
        block = self._block
        after = values[_neighborhood(windows, block.reached_t), block.reached]
        returns = self._solve(block.rewards - gain + block.outer @ after)
        error = values[_neighborhood(windows, block.t), block.state] - returns
        share = block.visits / np.bincount(block.t, weights=block.visits)[block.t]
        weights = _weights(block.stop)
        start = block.t == 0
        return float((weights[block.t] * share) @ error**2), float(share[start] @ error[start])


def _weights(n: int) -> FloatArray:
    """Return the weights of n timesteps."""
    weights = 1.0 / np.arange(1, n + 1)
    return np.asarray(weights / weights.sum())


def _neighborhood(windows: IntArray, t: IntArray) -> IntArray:
    return np.asarray(np.searchsorted(windows[:, 0], t, side="right") - 1)


@dataclass(frozen=True, eq=False)
class TrialHoldout(Generic[Fitted]):
    """Held-out trials of vectors, each of them a group.

    Attributes
    ----------
    fitted : statistics
    trials : KeptTrials
    rows : callable
        Features of observations, (n, k) to (n, d), dense or CSR.
    """

    fitted: Fitted
    trials: KeptTrials
    rows: RowsOf

    def errors(self, system: Approximators, gain: float) -> FloatArray:
        """Return mean square errors and mean errors of the start (m, 2)."""
        trials, windows, own = self.trials, system.windows, self.trials.own
        n_at, weights = trials_at(trials), _weights(trials.t_max + 1)
        returns = self._values(system, trials.t_max + 1, len(windows) - 1)
        squares = np.zeros(trials.n_trials)
        error = squares
        for k in reversed(range(len(windows))):
            for t in reversed(range(*windows[k])):
                values = self._values(system, t, k)
                ended = np.isnan(trials.observations[:, t]).any(axis=1)
                returns = returns + np.where(ended, 0.0, trials.rewards[:, t] - gain)
                # Of a transition that is missing, or none of the policy's, nothing can be said.
                returns = returns if own is None else np.where(own[:, t], returns, values)
                error = values - returns
                squares += weights[t] * trials.n_trials / max(n_at[t], 1) * error**2
        return np.stack((squares, error), axis=1)

    def _values(self, system: Approximators, t: int, k: int) -> FloatArray:
        """Return values (m,) of all trials at a timestep, by neighbourhood k."""
        f = self.rows(self.trials.observations[:, t])
        return np.asarray(f @ system.weights[k] + system.offsets[k])


def count_holdouts(
    make: Callable[[TransitionCounts], Fitted],
    batches: Sequence[TransitionCounts],
    features: Rows,
    terminal: int | None,
) -> list[CountHoldout[Fitted]]:
    """Return each half of counts, by batches of trials where there are enough, with the other.

    Otherwise transitions are dealt out at random, always alike: those of Markov states are as
    independent as trials.
    """
    if len(batches) >= N_GROUPS:
        groups = [_total(batches[g::N_GROUPS]) for g in range(N_GROUPS)]
    else:
        groups = _dealt(_total(batches), N_GROUPS, np.random.default_rng(0))
    if not all(np.diff(group.transition_counts.indptr).all() for group in groups):
        return []  # some group has nothing to say of some timestep
    halves = groups[::2], groups[1::2]
    return [
        CountHoldout(make(_total(own)), other, features, terminal)
        for own, other in (halves, halves[::-1])
    ]


def trial_holdouts(
    make: Callable[[KeptTrials], Fitted], trials: KeptTrials, rows: RowsOf
) -> list[TrialHoldout[Fitted]]:
    """Return each half of kept trials, at least two, with the other."""
    halves = [trials.every(2, i) for i in range(2)]
    if not all(trials_at(half).all() for half in halves):
        return []  # a half has nothing to say of some timestep
    return [TrialHoldout(make(own), other, rows) for own, other in (halves, halves[::-1])]


def _total(batches: Sequence[TransitionCounts]) -> TransitionCounts:
    return sum(batches[1:], batches[0])


def _dealt(counts: TransitionCounts, n: int, rng: np.random.Generator) -> list[TransitionCounts]:
    """Deal transitions out to n groups, and rewards with the visits that they were paid for."""
    N, R, S = counts.transition_counts, counts.reward_sums, counts.n_states
    dealt = rng.multinomial(N.data, np.full(n, 1.0 / n)).T
    t = np.repeat(np.arange(N.shape[0]), np.diff(N.indptr))
    rows, row = np.unique(t * S + N.indices // S, return_inverse=True)
    paid = np.repeat(np.arange(R.shape[0]), np.diff(R.indptr)) * S + R.indices
    place = np.searchsorted(rows, paid)
    visits = np.bincount(row, weights=N.data).astype(np.float64)
    groups = []
    for part in dealt:
        share = np.bincount(row, weights=part)[place] / visits[place]
        # Zeros are taken out in place, so that what the counts are made of is copied first.
        transitions = sparse.csr_array((part, N.indices, N.indptr), shape=N.shape, copy=True)
        rewards = sparse.csr_array((R.data * share, R.indices, R.indptr), shape=R.shape, copy=True)
        transitions.eliminate_zeros()
        rewards.eliminate_zeros()
        n_at = np.asarray(transitions.sum(axis=1))
        groups.append(TransitionCounts(S, int(n_at.max()), transitions, rewards, n_at))
    return groups
