r"""What trials from like starts earn, beside what they were predicted to be worth.

Of the true values, v, the errors

.. math:: e(h) = \sum_{t < h} (r_t - g) + v(s_h) - v(s_0)

of a trial have mean 0 whatever its start, for every horizon h: they are sums of temporal
differences. So if their mean over the trials from some group of starts is not 0, features do not
tell what these starts are worth. Errors of several starts that cancel each other do not hide, as
long as they are not in one group at every level: groups are the cells of a k-d tree and all that
they are split from. Short horizons have little noise, long ones see all that follows a start.

Trials that are kept are compared one by one, and moments tell of the mean over all trials only.
Of counts see `lstd_agent.statistics.counted_starts`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.statistics.moment_sums import MomentSums
from lstd_agent.trials.kept import KeptTrials

ValuesOf = Callable[[FloatArray, IntArray], FloatArray]
"""Values (n,) by features (n, d) at timesteps (n,)."""

StateValues = Callable[[Any, IntArray], FloatArray]
"""Values (n,) of encoded observations (n, ...) at timesteps (n,)."""

MIN_TRIALS = 20
"""Groups of fewer trials are not looked at: their standard errors tell little."""

# There are at most so many cells.
_MOST_CELLS = 100

# In how many components, those that vary most, a place to split at is looked for.
_COMPONENTS = 8

# Values of about this many observations are computed at a time.
_CHUNK = 4096


@dataclass(frozen=True, eq=False)
class StartGroups:
    """Trials by groups of starts; the first group is of all of them.

    Attributes
    ----------
    example : ndarray, shape (n, ...)
        An encoded start from the middle of each group but the first.
    n_starts : ndarray of int, shape (n,)
        How many different ones each has; 0 where that is not known.
    parent : ndarray of int, shape (n,)
        The group that each is a part of; -1 of the first.
    horizons : ndarray of int, shape (k,)
        The last is ``t_max``.
    predicted : ndarray, shape (n,)
        Mean value of the starts.
    direct : ndarray, shape (n, k)
        Mean of the rewards above the gain before each horizon, and of the value there.
    error : ndarray, shape (n, k)
        Standard error of their difference, the approximator taken as given; NaN where unknown.
    degrees : ndarray of int, shape (n,)
        Degrees of freedom of the errors.
    """

    example: Any
    n_starts: IntArray
    parent: IntArray
    horizons: IntArray
    predicted: FloatArray
    direct: FloatArray
    error: FloatArray
    degrees: IntArray


def horizons_to(t_max: int) -> IntArray:
    """Return the powers of 2 below t_max, and t_max."""
    powers = 2 ** np.arange(t_max.bit_length())
    return np.append(powers[powers < t_max], t_max)


def group_trials(batches: Sequence[KeptTrials], value_of: StateValues, gain: float) -> StartGroups:
    """Return the groups of kept trials."""
    horizons = horizons_to(batches[0].t_max)
    start = np.concatenate([batch.observations[:, 0] for batch in batches]).astype(np.float64)
    predicted = in_chunks(value_of, start, 0)
    direct = np.empty((len(start), len(horizons)))
    lengths = np.concatenate([batch.all_lengths for batch in batches])
    for k, h in enumerate(horizons.tolist()):
        # A trial that was cut short before is compared with the value where it was.
        until = np.minimum(h, lengths)
        parts = np.split(until, np.cumsum([batch.n_trials for batch in batches])[:-1])
        pairs = list(zip(batches, parts, strict=True))
        reached = np.concatenate([b.observations[np.arange(len(t)), t] for b, t in pairs])
        earned = np.concatenate([_earned(b.rewards[:, :h], t) for b, t in pairs])
        at_end = in_chunks(value_of, reached.astype(np.float64), until)
        direct[:, k] = earned - gain * until + at_end
    cells, parent = cells_of(start)
    difference = direct - predicted[:, None]
    n = np.array([len(cell) for cell in cells])
    deviation = [difference[cell].std(axis=0, ddof=min(1, len(cell) - 1)) for cell in cells]
    # Of one trial nothing is known.
    error = np.where(n[:, None] > 1, np.stack(deviation) / np.sqrt(n)[:, None], np.nan)
    return StartGroups(
        example=np.stack([_middle(start[cell]) for cell in cells[1:]]) if cells[1:] else start[:0],
        n_starts=np.array([len(np.unique(start[cell], axis=0)) for cell in cells]),
        parent=parent,
        horizons=horizons,
        predicted=np.array([predicted[cell].mean() for cell in cells]),
        direct=np.stack([direct[cell].mean(axis=0) for cell in cells]),
        error=error,
        degrees=n - 1,
    )


def _earned(rewards: FloatArray, until: IntArray) -> FloatArray:
    """Return sums of the rewards (m, h) before timesteps (m,)."""
    return np.asarray((rewards * (np.arange(rewards.shape[1]) < until[:, None])).sum(axis=1))


def group_moments(batches: Sequence[MomentSums], values_of: ValuesOf, gain: float) -> StartGroups:
    """Return the one group that moments tell of; errors are by batches."""
    horizons = np.append(0, horizons_to(batches[0].t_max))
    n_trials = np.array([batch.n_trials for batch in batches])
    weight = n_trials / n_trials.sum()
    features = [np.stack([b.feature_sums[h] / b.n_trials for b in batches]) for h in horizons]
    values = np.stack([in_chunks(values_of, f, h) for f, h in zip(features, horizons, strict=True)])
    earned = np.array([np.append(0.0, np.cumsum(b.reward_sums))[horizons] for b in batches])
    direct = values.T + earned / n_trials[:, None] - gain * horizons
    deviation = direct - direct[:, :1]
    deviation -= weight @ deviation
    error = np.full(len(horizons), np.nan)
    if len(batches) > 1:
        error = np.sqrt(weight @ deviation**2 / (len(batches) - 1))
    mean = weight @ direct
    if any(batch.n_at is not None for batch in batches):
        mean[1:] = np.nan  # trials that go on may be of other starts than those that do not
    return StartGroups(
        example=np.empty((0, 1)),
        n_starts=np.zeros(1, dtype=np.int64),
        parent=np.array([-1]),
        horizons=horizons[1:],
        predicted=mean[:1],
        direct=mean[None, 1:],
        error=error[None, 1:],
        degrees=np.array([max(1, len(batches) - 1)]),
    )


def cells_of(vectors: FloatArray) -> tuple[list[IntArray], IntArray]:
    """Return the cells of a k-d tree, indices into vectors (m, k), and the parent of each.

    From all to the smallest. Equal vectors are never split, and all cells but the first have at
    least `MIN_TRIALS`.
    """
    smallest = max(MIN_TRIALS, len(vectors) // _MOST_CELLS)
    deviation = vectors.std(axis=0)
    scaled = vectors / np.where(deviation > 0.0, deviation, 1.0)
    cells: list[IntArray] = [np.arange(len(vectors))]
    parent = [-1]
    for i, cell in enumerate(cells):  # which grow on the way
        halves = _split(scaled, cell, smallest)
        cells.extend(halves)
        parent.extend([i] * len(halves))
    return cells, np.array(parent)


def _split(vectors: FloatArray, cell: IntArray, smallest: int) -> list[IntArray]:
    """Return two halves of a cell, as nearly as may be, or nothing."""
    if len(cell) < 2 * smallest:
        return []
    here = vectors[cell]
    spread = here.std(axis=0)
    for component in np.argsort(-spread)[:_COMPONENTS]:
        order = np.argsort(here[:, component], kind="stable")
        ordered = here[order, component]
        cut = np.flatnonzero(ordered[1:] > ordered[:-1]) + 1
        cut = cut[(cut >= smallest) & (cut <= len(cell) - smallest)]
        if cut.size:
            middle = cut[np.argmin(np.abs(cut - len(cell) / 2))]
            return [cell[order[:middle]], cell[order[middle:]]]
    return []


def _middle(vectors: FloatArray) -> FloatArray:
    """Return the vector nearest to the mean of vectors."""
    return np.asarray(vectors[np.argmin(((vectors - vectors.mean(axis=0)) ** 2).sum(axis=1))])


def in_chunks(value_of: StateValues, states: Any, t: IntArray | int) -> FloatArray:
    """Return values of states at timesteps, without features of all of them at once."""
    timestep = np.broadcast_to(np.asarray(t), len(states))
    chunks = [slice(i, i + _CHUNK) for i in range(0, len(states), _CHUNK)]
    pieces = [value_of(states[chunk], timestep[chunk]) for chunk in chunks]
    return np.concatenate(pieces) if pieces else np.zeros(0)
