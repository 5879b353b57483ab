r"""What counted trials from each start earn, beside what they were predicted to be worth.

Counts link starts with what follows by the transitions of each timestep, backwards in time, as if
nothing but the state told what follows. Observations that leave out part of the state do not, at
any timestep; but along a trial

.. math:: e(h) = \sum_{t < h} (\bar r_t(s_t) - g) + v(s_h) - v(s_0)

still is what it is. The states of some of the counted trials are stored; their rewards are not, and
mean rewards of states at timesteps stand for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.standard_errors import batch_standard_errors, sums_without_each
from lstd_agent.statistics.blocks import Block
from lstd_agent.statistics.start_groups import (
    MIN_TRIALS,
    StartGroups,
    StateValues,
    horizons_to,
    in_chunks,
)
from lstd_agent.trials.counts import TransitionCounts

MOST_STORED = 1000
"""What more of them would tell is little."""


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
    first = Block.of(total, 0, 1, terminal)
    often = first.visits >= MIN_TRIALS
    chosen = first.state[often] if len(first.state) > 1 else first.state[:0]
    value = np.zeros(total.n_states)
    value[first.state] = in_chunks(value_of, first.state, 0)

    def found(counts: TransitionCounts) -> tuple[FloatArray, FloatArray]:
        """Mean over all trials and each chosen start, predicted (n,) and direct (n, k)."""
        begun = Block.of(counts, 0, 1, terminal)
        ahead = _backwards(counts, horizons, value_of, gain, terminal)
        share = begun.visits / begun.visits.sum()
        ahead[np.setdiff1d(chosen, begun.state)] = np.nan
        mean, direct = share @ value[begun.state], share @ ahead[begun.state]
        return np.append(mean, value[chosen]), np.vstack((direct, ahead[chosen]))

    predicted, direct = found(total)
    start, along, noise = _errors_along(stored, chosen, total, horizons, value_of, gain, terminal)
    whole = 1 + np.searchsorted(chosen, start)
    predicted = np.append(predicted, value[start])
    direct = np.vstack((direct, value[start, None] + along))
    groups = StartGroups(
        example=np.append(chosen, start),
        n_starts=np.append(len(first.state), np.ones(len(predicted) - 1, dtype=np.int64)),
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
            ahead[reached, begun[0]] = in_chunks(value_of, reached, t + 1)
        on = slice(int(np.searchsorted(horizons, t + 1)), None)
        if left is not None and on.start < len(horizons):
            # What all trials were cut short in is worth its value.
            stopped = np.setdiff1d(next_state, left)
            ahead[stopped, on] = in_chunks(value_of, stopped, t + 1)[:, None]
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
        states = Block.of(counts, 0, 1, terminal).state
        ahead[states, 0] = in_chunks(value_of, states, 0)
    return ahead


def _errors_along(
    trials: IntArray | None,
    starts: IntArray,
    total: TransitionCounts,
    horizons: IntArray,
    value_of: StateValues,
    gain: float,
    terminal: int | None,
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return starts (n,), the means of e(h) over trials from each, and their errors (n, k).

    Of stored trials (m, t_max + 1), -1 where they were cut short; starts of few are left out.
    """
    if trials is None or starts.size == 0:
        return starts[:0], np.zeros((0, len(horizons))), np.zeros((0, len(horizons)))
    states, n = np.unique(trials[:, 0], return_counts=True)
    often = (n >= MIN_TRIALS) & np.isin(states, starts)
    start, n = states[often], n[often]
    trials = trials[np.isin(trials[:, 0], start)]
    group = np.searchsorted(start, trials[:, 0])
    # A trial that was cut short before is compared with the value where it was.
    until = np.minimum(horizons, (trials >= 0).sum(axis=1)[:, None] - 1)
    m, k = until.shape
    here = np.arange(m)[:, None]
    at_end = in_chunks(value_of, trials[here, until].ravel(), until.ravel()).reshape(m, k)
    at_start = in_chunks(value_of, trials[:, 0], 0)
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
    rows, S = Block.of(total, 0, total.t_max + 1, None), total.n_states
    wanted = np.arange(trials.shape[1]) * S + np.maximum(trials, 0)
    place = np.searchsorted(rows.t * S + rows.state, wanted)
    return np.asarray(rows.rewards[place.clip(max=len(rows.t) - 1)])
