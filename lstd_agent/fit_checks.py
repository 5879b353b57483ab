"""What the checks need of a fit: trials, and what they show of states and starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

import lstd_agent.checks as checks
from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.specification import MOST_COLUMNS
from lstd_agent.standard_errors import quantile_of_t
from lstd_agent.trials.counted import CountedTrials
from lstd_agent.trials.counts import TransitionCounts
from lstd_agent.trials.encoding import Encoding
from lstd_agent.trials.kept import NO_TIME, KeptTrials, drawn_trials

# Fewer transitions do not show that a class of states is never left. An undetermined value needs no
# warning if returns confirm it with an error below this share of E, or if few starts are near the
# others.
_ENOUGH_TRANSITIONS, _VOUCHED, _AT_EDGE, _REACH = 100, 0.05, 0.1, 0.5

# Numbers of drawn trials, and of observations at a time. Up to
# _FEW_STARTS distinct starts are a group each; more are put into about _GROUPS.
_N_DRAWN, CHUNK, _FEW_STARTS, _GROUPS = 2000, 16384, 40, 16


def conflict(u: FloatArray, sides: Sequence[FloatArray], least: float) -> float:
    """Return the size of the mean of u (N,) by weights (N,), less that by others; 0 if it is noise.

    The mean is as surely not 0 as for an alarm. Means up to ``least`` are rounding.
    """
    n = min(int(np.count_nonzero(w)) for w in sides)
    if n < 2 or len(u) < checks.FEWEST_TRIALS:
        return 0.0
    off, noise = mean_and_noise(u, sides, np.zeros(len(u), dtype=np.int64))
    most = max(quantile_of_t(1.0 - checks.LEVEL, n - 1) * noise, least)
    return abs(off) if abs(off) > most else 0.0


def mean_and_noise(
    x: FloatArray, sides: Sequence[FloatArray], kind: IntArray
) -> tuple[float, float]:
    """Return the mean of x (N,) by weights (N,), less that by others, and its standard error.

    The spread of means of the ``kind`` (N,) is no error.
    """
    total, noise = 0.0, np.zeros(len(x))
    for w, sign in zip(sides, (1.0, -1.0), strict=False):
        n, share = np.bincount(kind, w != 0.0), np.bincount(kind, w)
        mean = np.bincount(kind, w * x) / np.where(share == 0.0, 1.0, share)
        centre = np.where(n > 1, mean, w @ x)[kind]
        lost = np.where(n > 1, n / np.maximum(n - 1, 1), 1.0)[kind]
        noise += sign * w * (x - centre) * np.sqrt(lost)
        total += sign * float(w @ x)
    return total, float(np.linalg.norm(noise))


def check_single_class(source: Any, encoding: Encoding) -> None:
    """Raise if trials end in several recurrent classes, which have no common gain."""
    n = [each.n_transitions >= _ENOUGH_TRANSITIONS for each in source.recurrent_classes].count(True)
    if n < 2:
        return
    names = []
    for states, *_ in source.recurrent_classes[: min(n, 5)]:  # the most visited come first
        shown = ", ".join(str(encoding.decode(x)) for x in states[:5])
        names.append(f"{{{shown}{', ...' * (states.size > 5)}}}")
    raise InvalidInputError(
        f"from timestep {(source.t_max + 1) // 2} on the trials stay in {n} separate classes of "
        f"states: {', '.join(names)}{', ...' * (n > 5)}. Gain and relative values need a single "
        "recurrent class: evaluate the classes one by one, or, if trials only take long to get "
        "from one to another, use a larger t_max"
    )


def check_own_trials(source: Any) -> None:
    """Raise if all transitions of a timestep are exploratory, or no step of the tail takes time."""
    n_at = source.trials_at
    missing = np.flatnonzero(n_at == 0)
    if missing.size and (np.diff(n_at) > 0).any():
        raise InvalidInputError(
            f"all actions at timestep {missing[0]} were exploratory, so the policy has no "
            "transition there: explore less, or add trials without exploration. Action values "
            "of counted observations need no fit"
        )
    if len(n_at) and not source.mean_durations[len(n_at) // 2 :].any():
        raise InvalidInputError(NO_TIME)


def mean_duration(source: Any) -> float:
    """Return the mean duration of a step in the tail, the second half of all timesteps."""
    tail = slice(len(source.trials_at) // 2, None)
    return float(np.average(source.mean_durations[tail], weights=source.trials_at[tail]))


def watched(states: Any, alive: BoolArray, values: FloatArray, features: FloatArray) -> list[Any]:
    """Return two blocks (M, T + 1, d) that may show movement of states; 0 where a trial is over.

    Like ``features``, they lie timestep by timestep. They are NaN where ``values`` (M, T + 1) are.
    """
    alive, x = alive.T, states.reshape(*alive.shape, -1).swapaxes(0, 1)
    raw = x[:, :, :: -(-x.shape[2] // MOST_COLUMNS)].astype(np.float64)
    if states.ndim == 2:
        columns = _columns_of_states(x[alive][:, 0], np.nonzero(alive)[0], len(alive) // 2)
        more = [np.zeros((*alive.shape, columns.shape[1]))]
        more[0][alive] = columns
    else:
        more = [raw**2, features]
    every = np.concatenate((raw, *more, values.T[..., None]), axis=2)
    every[~alive] = 0.0
    every[np.isnan(values.T)] = np.nan
    return np.split(every.swapaxes(0, 1), [raw.shape[2]], axis=2)


def _columns_of_states(state: IntArray, t: IntArray, middle: int) -> FloatArray:
    """Return indicators of states (n,) at timesteps (n,); of many, of classes by when early."""
    kinds, kind = np.unique(state, return_inverse=True)
    if len(kinds) > 2 * MOST_COLUMNS:
        early = t < middle
        seen = np.bincount(kind[early], minlength=len(kinds))
        when = np.bincount(kind[early], t[early], len(kinds)) / np.maximum(seen, 1)
        order = np.argsort(np.where(seen > 0, when, np.inf), kind="stable")
        before = np.cumsum(seen[order]) - seen[order]
        kind = (before * MOST_COLUMNS // max(1, int(seen.sum())))[np.argsort(order)[kind]]
    return np.asarray(np.eye(int(kind.max()) + 1)[kind])


def start_groups(starts: Any) -> list[IntArray]:
    """Return groups of trials with like starts (N,) or (N, k): all trials first.

    Many distinct starts are halved along the direction in which they vary most, and again.
    """
    x, groups = np.asarray(starts, float).reshape(len(starts), -1), [np.arange(len(starts))]
    kinds, kind, n = np.unique(x, axis=0, return_inverse=True, return_counts=True)
    if len(kinds) <= _FEW_STARTS:
        some = np.flatnonzero((n >= 2) & (n < len(x)))
        return groups + [np.flatnonzero(kind.ravel() == i) for i in some]
    x = (x - x.mean(axis=0)) / np.maximum(x.std(axis=0), 1e-300)
    smallest = max(2 * checks.MIN_TRIALS, len(x) // (_GROUPS // 2))
    for group in groups:  # the list grows in the loop
        if len(group) < smallest:
            continue
        here = x[group] - x[group].mean(axis=0)
        p = here @ np.linalg.eigh(here.T @ here)[1][:, -1]
        low = p < np.median(p)
        if low.sum() < checks.MIN_TRIALS:
            low = p <= np.median(p)
        if min(low.sum(), (~low).sum()) >= checks.MIN_TRIALS:
            groups += [group[low], group[~low]]
    return groups


def ends_without_support(lengths: IntArray, states: FloatArray) -> float:
    """Return the share of ended trials whose last state hardly any other trial left.

    Then fewer than .1 % of states (N, T, k) with a successor are as extreme in some component.
    """
    T = states.shape[1]
    ended = np.flatnonzero(lengths < T)
    if len(ended) < 10:
        return 0.0
    on = states[np.arange(T) < lengths[:, None]]
    last, alone = states[ended, lengths[ended]], np.full(len(ended), not len(on))
    for j in range(states.shape[2]):
        x = np.sort(on[:, j])
        below = np.searchsorted(x, last[:, j], side="right")
        above = len(x) - np.searchsorted(x, last[:, j], side="left")
        alone |= np.minimum(below, above) < 1e-3 * len(x)
    return float(alone.mean())


def tolerable(
    starts: Any, determined: BoolArray, first: Any, u: FloatArray, unit: float
) -> BoolArray:
    """Return which undetermined starts are confirmed by returns, or are few and near the others."""
    tolerable, some = np.zeros(len(determined), dtype=bool), np.flatnonzero(~determined)
    u, spread = u - u.mean(), float(u.std())
    are_few = starts.ndim == 2 and some.size <= _AT_EDGE * len(starts)
    starts, scale = starts.astype(float), np.maximum(starts.std(axis=0, dtype=float), 1e-300)
    for i in some:
        mine = u[(first == starts[i]).reshape(len(first), -1).all(axis=1)]
        error = spread / np.sqrt(max(len(mine), 1))
        tolerable[i] = len(mine) and abs(mine.mean()) <= 3 * error and error < _VOUCHED * unit
        if are_few:
            away = np.abs((starts[determined] - starts[i]) / scale).max(axis=1)
            tolerable[i] |= bool(away.min(initial=np.inf) <= _REACH)
    return tolerable


def named_misfits(
    found: list[checks.Misfit], groups: list[IntArray], first: Any, decode: Callable[[Any], Any]
) -> list[checks.Misfit]:
    """Return misfits with their starts, without groups that contain a smaller misfit."""
    misfits = []
    for each in found:
        group, others = groups[each.group], [groups[other.group] for other in found]
        if any(len(k) < len(group) and np.isin(k, group).all() for k in others):
            continue
        here = first[group]
        x = here.reshape(len(here), -1).astype(np.float64)
        start = here[np.argmin(((x - np.median(x, axis=0)) ** 2).sum(axis=1))]
        name = None if each.group == 0 else decode(start)
        misfits.append(replace(each, start=name, n_starts=len(np.unique(here, axis=0))))
    return misfits


def trials_of(fit: Any, gain: float | None = None) -> tuple[KeptTrials, bool]:
    """Return whole trials: kept, stored beside counts, or drawn from these; and whether drawn.

    Their rewards are r - g (τ - mean τ), so that checks of rewards per step hold.
    """
    source = fit.source
    gain, mean = fit.system.gain if gain is None else gain, mean_duration(source)
    trials = source.whole_trials
    if trials is not None and (not source.are_places or trials.n_trials >= checks.MIN_TRIALS):
        if trials.durations is None:
            return trials, False
        rewards = trials.rewards - gain * (trials.durations - mean)
        return replace(trials, rewards=rewards, durations=None), False
    counts, rng = source.batches.total, np.random.default_rng(0)
    sums, n = _sums_of_rewards(counts, gain, mean), min(counts.n_trials, _N_DRAWN)
    states, rewards = drawn_trials(counts.transition_counts, sums, n, rng)
    return KeptTrials(states, np.nan_to_num(rewards), np.isfinite(rewards).sum(axis=1)), True


def _sums_of_rewards(counts: TransitionCounts | CountedTrials, gain: float, mean: float) -> Any:
    """Return the sums (t_max + 1, S) of r - g (τ - mean τ)."""
    N, times = counts.transition_counts, counts.duration_sums
    if times is None:
        return counts.reward_sums
    where = np.repeat(np.arange(N.shape[0]), np.diff(N.indptr)), N.indices // counts.n_states
    visits = sparse.csr_array((N.data, where), shape=times.shape)
    return sparse.csr_array(counts.reward_sums - gain * (times - mean * visits))


def means_of_batches(fit: Any) -> FloatArray | None:
    """Return mean rewards of batches, if counts do not keep single trials."""
    if not fit.source.are_places or fit.source.batches.n_batches < checks.FEWEST_TRIALS:
        return None
    how, batches = (fit.system.gain, mean_duration(fit.source)), fit.source.batches
    n = np.where(batches.trials_at, batches.trials_at, np.nan)
    return np.asarray(_sums_of_rewards(batches, *how).sum(axis=1).reshape(n.shape) / n).T
