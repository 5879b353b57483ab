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
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy import sparse

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.features.rows import Rows, RowsOf
from lstd_agent.statistics.blocks import Block
from lstd_agent.statistics.trial_moments import TrialMoments
from lstd_agent.trials.counts import TransitionCounts
from lstd_agent.trials.kept import KeptTrials

N_GROUPS = 8
"""Into so many groups counts are divided, half of them for each half of the trials."""

# Of fewer trials none are held out.
_FEWEST_HELD_OUT = 8


class Approximators(NamedTuple):
    """Weights (n, d) and offsets (n,) of neighbourhoods, and their successive windows (n, 2)."""

    weights: FloatArray
    offsets: FloatArray
    windows: IntArray


ErrorsOf: TypeAlias = Callable[[Sequence[Approximators], float], list[FloatArray]]


class Holdout(NamedTuple):
    """Statistics of a half of the trials, and what holds predictions against the other.

    It returns mean square errors and mean errors of the start (m, 2), by groups of trials, of
    each of some approximators, with a gain.
    """

    fitted: Any
    errors: ErrorsOf


def count_holdouts(
    make: Callable[[TransitionCounts], Any],
    batches: Sequence[TransitionCounts],
    features: Rows,
    terminal: int | None,
) -> list[Holdout]:
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
        Holdout(make(_total(own)), _count_errors(other, features, terminal))
        for own, other in (halves, halves[::-1])
    ]


def _count_errors(
    groups: Sequence[TransitionCounts], features: Rows, terminal: int | None
) -> ErrorsOf:
    """Return errors of predictions by groups of counts."""
    blocks = [Block.of(counts, 0, counts.t_max + 1, terminal) for counts in groups]
    solvers = [block.solver(1.0) for block in blocks]

    def errors_of(system: Approximators, gain: float) -> FloatArray:
        values = system.weights @ features.T + system.offsets[:, None]
        if terminal is not None:
            values[:, terminal] = 0.0
        found = []
        for block, solve in zip(blocks, solvers, strict=True):
            after = values[_neighborhood(system.windows, block.reached_t), block.reached]
            returns = solve(block.rewards - gain + block.outer @ after)
            error = values[_neighborhood(system.windows, block.t), block.state] - returns
            share = block.visits / np.bincount(block.t, weights=block.visits)[block.t]
            weights, start = _weights(block.stop), block.t == 0
            found.append(((weights[block.t] * share) @ error**2, share[start] @ error[start]))
        return np.array(found)

    return lambda systems, gain: [errors_of(system, gain) for system in systems]


def trial_holdouts(
    make: Callable[[TrialMoments], Any],
    moments: TrialMoments | None,
    decays: tuple[float, ...],
) -> list[Holdout]:
    """Return each half of kept trials, with the other, where there are enough.

    λ-returns of all these decays are going to be asked for, or of none.

    Raises
    ------
    InvalidInputError
        If there are no kept trials of dense features.
    """
    if moments is None:
        raise InvalidInputError(
            "n_anchors='auto' compares predictions of held-out trials, and sums of features do not "
            "hold any: raise max_bytes, take dense features, or give a number"
        )
    trials, rows = moments.kept, moments.features
    halves = [trials.take(slice(i, None, 2)) for i in range(2)]
    if trials.n_trials < _FEWEST_HELD_OUT or not all(half.trials_at.all() for half in halves):
        return []  # a half has nothing to say of some timestep
    return [
        Holdout(
            make(TrialMoments.of(own, rows, 2, decays=decays)), partial(_trial_errors, other, rows)
        )
        for own, other in (halves, halves[::-1])
    ]


def _trial_errors(
    trials: KeptTrials, rows: RowsOf, systems: Sequence[Approximators], gain: float
) -> list[FloatArray]:
    """Return errors of predictions, each trial a group."""
    n_at, weights, own = trials.trials_at, _weights(trials.t_max + 1), trials.own

    def values_at(t: int) -> FloatArray:
        places = [_neighborhood(system.windows, t) for system in systems]
        w = np.stack([s.weights[k] for s, k in zip(systems, places, strict=True)], axis=1)
        offsets = [s.offsets[k] for s, k in zip(systems, places, strict=True)]
        return np.asarray(rows(trials.observations[:, t]) @ w + offsets)

    returns = values_at(trials.t_max + 1)
    squares, error = np.zeros(returns.shape), np.zeros(returns.shape)
    for t in reversed(range(trials.t_max + 1)):
        values = values_at(t)
        ended = np.isnan(trials.observations[:, t]).any(axis=1)
        returns = returns + np.where(ended, 0.0, trials.rewards[:, t] - gain)[:, None]
        # Of a transition that is missing, or none of the policy's, nothing can be said.
        returns = returns if own is None else np.where(own[:, t, None], returns, values)
        error = values - returns
        squares += weights[t] * trials.n_trials / max(n_at[t], 1) * error**2
    return list(np.stack((squares, error), axis=2).swapaxes(0, 1))


def _weights(n: int) -> FloatArray:
    """Return the weights of n timesteps."""
    weights = 1.0 / np.arange(1, n + 1)
    return np.asarray(weights / weights.sum())


def _neighborhood(windows: IntArray, t: IntArray | int) -> IntArray:
    return np.asarray(np.searchsorted(windows[:, 0], t, side="right") - 1)


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
