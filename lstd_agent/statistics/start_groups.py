r"""What trials from like starts earn, beside what they were predicted to be worth.

Of the true values, v, the errors

.. math:: e(h) = \sum_{t < h} (r_t - g) + v(s_h) - v(s_0)

of a trial have mean 0 whatever its start, for every horizon h: they are sums of temporal
differences. So if their mean over the trials from some group of starts is not 0, features do not
tell what these starts are worth. Errors of several starts that cancel each other do not hide, as
long as they are not in one group at every level: groups are the cells of a k-d tree and all that
they are split from. Short horizons have little noise, long ones see all that follows a start.

Trials that are kept are compared one by one. Counts link starts with what follows by the
transitions of each timestep, backwards in time; what those leave out, the states of stored trials
show (`lstd_agent.statistics.stored_trials`). Moments tell of the mean over all trials only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.standard_errors import batch_standard_errors, sums_without_each
from lstd_agent.statistics.backups import counted_step
from lstd_agent.statistics.stored_trials import errors_by_start
from lstd_agent.trials.counting import TransitionCounts
from lstd_agent.trials.kept_trials import KeptTrials
from lstd_agent.trials.moment_sums import MomentSums

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
    predicted = _in_chunks(value_of, start, 0)
    direct = np.empty((len(start), len(horizons)))
    lengths = np.concatenate([batch.all_lengths for batch in batches])
    for k, h in enumerate(horizons.tolist()):
        # A trial that was cut short before is compared with the value where it was.
        until = np.minimum(h, lengths)
        parts = np.split(until, np.cumsum([batch.n_trials for batch in batches])[:-1])
        pairs = list(zip(batches, parts, strict=True))
        reached = np.concatenate([b.observations[np.arange(len(t)), t] for b, t in pairs])
        earned = np.concatenate([_earned(b.rewards[:, :h], t) for b, t in pairs])
        at_end = _in_chunks(value_of, reached.astype(np.float64), until)
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
    values = np.stack(
        [_in_chunks(values_of, f, h) for f, h in zip(features, horizons, strict=True)]
    )
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


def group_counts(
    batches: Sequence[TransitionCounts],
    total: TransitionCounts,
    stored: IntArray | None,
    value_of: StateValues,
    gain: float,
    terminal: int | None,
    matters: Callable[[StartGroups], bool],
) -> StartGroups:
    """Return the groups of counted trials, one for each start that is not rare.

    A part of it are the stored trials from there. Errors are by batches of trials, and computed
    only if what there is without them matters.
    """
    horizons = horizons_to(total.t_max)
    step = counted_step(total, 0, terminal)
    often = step.visits >= MIN_TRIALS
    chosen = step.states[often] if len(step.states) > 1 else step.states[:0]
    value = np.zeros(total.n_states)
    value[step.states] = _in_chunks(value_of, step.states, 0)

    def found(counts: TransitionCounts) -> tuple[FloatArray, FloatArray]:
        """Mean over all trials and each chosen start, predicted (n,) and direct (n, k)."""
        first = counted_step(counts, 0, terminal)
        ahead = _backwards(counts, horizons, value_of, gain, terminal)
        share = first.visits / first.visits.sum()
        ahead[np.setdiff1d(chosen, first.states)] = np.nan
        mean, direct = share @ value[first.states], share @ ahead[first.states]
        return np.append(mean, value[chosen]), np.vstack((direct, ahead[chosen]))

    predicted, direct = found(total)
    start, along, noise = errors_by_start(
        stored, chosen, MIN_TRIALS, total, horizons, value_of, gain, terminal
    )
    whole = 1 + np.searchsorted(chosen, start)
    predicted = np.append(predicted, value[start])
    direct = np.vstack((direct, value[start, None] + along))
    parts = np.ones(len(chosen) + len(start), dtype=np.int64)
    groups = StartGroups(
        example=np.append(chosen, start),
        n_starts=np.append(len(step.states), parts),
        parent=np.concatenate(([-1], 0 * chosen, whole)),
        horizons=horizons,
        predicted=predicted,
        direct=direct,
        error=np.full(direct.shape, np.nan),
        degrees=np.full(len(predicted), max(1, len(batches) - 1)),
    )
    if len(batches) < 2 or not matters(groups):
        return groups
    without = [b - a[:, None] for a, b in map(found, sums_without_each(batches))]
    counted = slice(len(predicted) - len(start))
    error = batch_standard_errors(
        (direct - predicted[:, None])[counted].ravel(),
        np.stack(without).reshape(len(batches), -1),
        np.array([batch.n_trials for batch in batches]),
    )
    groups.error[counted] = error.reshape(-1, len(horizons))
    # Mean rewards along trials are those of counts, noise and all.
    groups.error[counted.stop :] = np.hypot(noise, groups.error[whole])
    return groups


def _backwards(
    counts: TransitionCounts,
    horizons: IntArray,
    value_of: StateValues,
    gain: float,
    terminal: int | None,
) -> FloatArray:
    """Return what states at timestep 0 are worth by what is seen before each horizon, (S, k).

    Rows of states that no trial starts in have no meaning.
    """
    S = counts.n_states
    N = counts.transition_counts.sorted_indices()
    R = counts.reward_sums.sorted_indices()
    ahead = np.zeros((S, len(horizons)))
    left = np.zeros(0, dtype=np.int64) if counts.n_at is not None else None
    for t in range(int(horizons[-1]) - 1, -1, -1):
        here, paid = slice(N.indptr[t], N.indptr[t + 1]), slice(R.indptr[t], R.indptr[t + 1])
        if here.start == here.stop:  # all trials were cut short before
            continue
        state, next_state = np.divmod(N.indices[here].astype(np.int64), S)
        count = N.data[here].astype(np.float64)
        begun = np.flatnonzero(horizons == t + 1)
        if begun.size:
            reached = np.unique(next_state)
            ahead[reached, begun[0]] = _in_chunks(value_of, reached, t + 1)
        on = slice(int(np.searchsorted(horizons, t + 1)), None)
        if left is not None and on.start < len(horizons):
            # What all trials were cut short in is worth its value.
            stopped = np.setdiff1d(next_state, left)
            ahead[stopped, on] = _in_chunks(value_of, stopped, t + 1)[:, None]
        first = np.flatnonzero(np.diff(state, prepend=-1))
        states, visits = state[first], np.add.reduceat(count, first)
        following = np.add.reduceat(count[:, None] * ahead[next_state, on], first)
        rewards = np.zeros(len(states))
        rewards[np.searchsorted(states, R.indices[paid])] = R.data[paid]
        living = states != (-1 if terminal is None else terminal)
        sums = following + (rewards - gain * visits)[:, None]
        ahead[states[living], on] = (sums / visits[:, None])[living]
        left = states if counts.n_at is not None else None
    if horizons[-1] == 0:
        states = counted_step(counts, 0, terminal).states
        ahead[states, 0] = _in_chunks(value_of, states, 0)
    return ahead


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


def _in_chunks(value_of: StateValues, states: Any, t: IntArray | int) -> FloatArray:
    """Return values of states at timesteps, without features of all of them at once."""
    timestep = np.broadcast_to(np.asarray(t), len(states))
    chunks = [slice(i, i + _CHUNK) for i in range(0, len(states), _CHUNK)]
    pieces = [value_of(states[chunk], timestep[chunk]) for chunk in chunks]
    return np.concatenate(pieces) if pieces else np.zeros(0)
