"""The checks of a fit: `lstd_agent.checks` applied to its trials and values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.checks import (
    FEWEST_TRIALS,
    MIN_TRIALS,
    Misfit,
    check_hidden,
    check_own_means,
    check_starts,
    check_tail,
    direct_difference,
    drawn_trials,
    ends_without_support,
    mean_of,
    start_groups,
    trial_weights,
)
from lstd_agent.diagnostics import Diagnostics
from lstd_agent.errors import InvalidInputError, NotFittedError
from lstd_agent.features.rows import dense
from lstd_agent.features.sizes import FeatureSizes
from lstd_agent.fit import Comparison, Fit, of_each
from lstd_agent.trials.counts import TransitionCounts
from lstd_agent.trials.encoding import Encoding
from lstd_agent.trials.kept import NO_TIME, KeptTrials

# Fewer transitions do not show that a class of states is never left.
_ENOUGH_TRANSITIONS = 100

# If a larger share of samples is left out, the others may be biased: the choice depends on
# outcomes.
_MOST_LEFT_OUT = 0.1

# Number of trials that are drawn from counts without trials.
_N_DRAWN = 2000

# An error of the start's value is too large if it is a larger share of E.
_LARGEST_ERROR = 0.25

# An undetermined value needs no warning if returns confirm it with an error below this share of E,
# or if few starts are near the others.
_VOUCHED, _AT_EDGE, _REACH = 0.05, 0.1, 0.5

# Largest numbers of trials, rewards, feature values and feature columns that are checked.
_MOST_TRIALS, _MOST_REWARDS = 4000, 2_000_000
_MOST_NUMBERS, _MOST_COLUMNS = 15_000_000, 20

# Values and features of so many observations are computed at a time.
_CHUNK = 16384


def check_single_class(source: Any, encoding: Encoding) -> None:
    """Raise if trials end in several recurrent classes, which have no common gain."""
    classes = [
        found for found in source.recurrent_classes if found.n_transitions >= _ENOUGH_TRANSITIONS
    ]
    if len(classes) < 2:
        return
    names = []
    for found in classes[:5]:
        states = [str(encoding.decode(state)) for state in found.states[:5]]
        names.append("{" + ", ".join(states) + (", ..." if found.states.size > 5 else "") + "}")
    raise InvalidInputError(
        f"from timestep {(source.t_max + 1) // 2} on the trials stay in {len(classes)} "
        f"separate classes of states: {', '.join(names)}{', ...' if len(classes) > 5 else ''}. "
        "Gain and relative values need a single recurrent class: evaluate the classes one by "
        "one, or, if trials only take long to get from one to another, use a larger t_max"
    )


def check_own_trials(source: Any) -> None:
    """Raise if all transitions of a timestep are exploratory."""
    n_at = source.trials_at
    missing = np.flatnonzero(n_at == 0)
    if missing.size and (np.diff(n_at) > 0).any():
        raise InvalidInputError(
            f"all actions at timestep {missing[0]} were exploratory, so the policy has no "
            "transition there: explore less, or add trials without exploration. Action values "
            "of counted observations need no fit"
        )
    T = len(n_at)
    if T and not source.mean_durations[T // 2 :].any():
        raise InvalidInputError(NO_TIME)


def _mean_duration(source: Any) -> float:
    """Return the mean duration of a step in the tail, the second half of all timesteps."""
    tail = slice(len(source.trials_at) // 2, None)
    n = source.trials_at[tail]
    return float(source.mean_durations[tail] @ n / n.sum())


def diagnose_fit(fit: Fit) -> Diagnostics:
    """Return the checks of the fit; ``print`` them."""
    source, system, states = fit.source, fit.system, fit.source.starts
    neighborhood = system.neighborhood_at(np.zeros(len(states), dtype=np.int64))
    has_errors = fit.n_batches > 1 and not source.is_sparse
    left_out = fit.fitted.left_out
    trials, drawn = _trials_of(fit)
    facts = {
        "gain": system.gain,
        "gain_error": fit.jackknife.gain_error if has_errors else np.nan,
        "gain_share": fit.fitted.gain.share,
        "gain_rows": fit.fitted.gain.rows,
        "mean_duration": _mean_duration(source),
        "starts": [fit.encoding.decode(state) for state in states],
        "start_samples": of_each(fit.samples_of(states), neighborhood),
        "start_determined": fit.states_determined(states, neighborhood),
        "start_error": fit.jackknife.start_value_error if has_errors else np.nan,
        "drawn": drawn,
        "n_trials": source.n_trials,
        "trials_at": source.trials_at,
        "n_recurrent_classes": len(source.recurrent_classes) or None,
        "rank": system.rank,
        "condition": system.condition,
        "choice": fit.choice,
        "features": _feature_sizes(fit),
        "others": (str(left_out),) if left_out and left_out.share > _MOST_LEFT_OUT else (),
    }
    return Diagnostics(**facts, **_checked(fit, trials, facts))


def _checked(fit: Fit, trials: KeptTrials, facts: dict[str, Any]) -> dict[str, Any]:
    """Return the results of the checks, by the names of `Diagnostics`."""
    system, encoding = fit.system, fit.encoding
    few = max(-(-trials.n_trials // _MOST_TRIALS), -(-trials.rewards.size // _MOST_REWARDS))
    trials = trials.take(slice(None, None, few))
    (N, T), lengths = trials.rewards.shape, trials.all_lengths
    T = max(1, int(np.sort(lengths)[-min(MIN_TRIALS, N)]))  # later timesteps have too few trials
    states, first = trials.observations[:, : T + 1], trials.observations[:, 0]
    here = np.arange(T + 1) <= lengths[:, None]
    terminal = -1 if fit.source.terminal is None else fit.source.terminal
    living = np.isfinite(states).all(axis=2) if states.ndim == 3 else states != terminal
    R = np.where(here[:, 1:], trials.rewards[:, :T], np.nan)
    v = np.where(here, 0.0, np.nan)
    trial, t = np.nonzero(here & living)
    chunks = np.array_split(np.arange(len(t)), 1 + len(t) // _CHUNK)
    parts = [(encoding.rows(states[trial[k], t[k]]), system.neighborhood_at(t[k])) for k in chunks]
    v[trial, t] = np.concatenate([system.values(*part) for part in parts])
    skipped = ~living[:, :T]
    if trials.explored is not None:
        skipped |= trials.explored[:, :T]
    every = slice(None, None, -(-N * T * 3 * _MOST_COLUMNS // _MOST_NUMBERS))
    blocks = _watched(states[every], here[every] & living[every], encoding.features)
    moving = [blocks[0], np.concatenate([blocks[1], np.nan_to_num(v[every, :, None])], axis=2)]
    for block in moving:
        block[~here[every]] = np.nan
    groups, time = start_groups(first), facts["mean_duration"]
    tail = check_tail(R, [block[:, :T] for block in moving], groups)
    found, unknown, u = check_starts(
        *(R, v, facts["gain"] * time, groups),
        unit=tail.unit,
        settled=tail.settled,
        skipped=skipped if skipped.any() else None,
        gain_error=facts["gain_error"] * time,
        gain_is_given=facts["gain_rows"] == "given",
    )
    rows, n_in_row = R, 1.0
    if facts["drawn"] and (batches := _means_of_batches(fit)) is not None:
        rows, n_in_row = batches[:, :T], facts["n_trials"] / len(batches)
    middle, value = (T // 2 + T + 1) // 2, float(np.nanmean(v[:, 0]))
    end = v[np.arange(N), np.minimum(lengths, T)]  # may be as undetermined as the start's value
    earned = np.nansum(R, axis=1)
    noise = max(_LARGEST_ERROR * max(tail.unit, earned.std()), 1e-9 * np.abs(earned).max())
    return {
        "tail": tail,
        "tail_rewards": (
            float(mean_of(R[:, T // 2 : middle], (0, 1))) / time,
            float(mean_of(R[:, middle:], (0, 1))) / time,
        ),
        "n_checked": N,
        "stop": T,
        "hidden": check_hidden(
            R, v, facts["gain"] * time, tail.unit, skipped if skipped.any() else None
        ),
        "own_means": check_own_means(rows, tail.unit, n_in_row) / time,
        "start_tolerable": _tolerable(
            fit.source.starts, facts["start_determined"], first, u - end, tail.unit
        ),
        "start_value": value,
        "start_rewards": value + float(u.mean()),
        "start_noise": bool(facts["start_error"] > noise),
        "misfits": _misfits(found, groups, first, encoding.decode),
        "error_unknown": unknown,
        "ends": ends_without_support(lengths[every], blocks[states.ndim == 2][:, :T]),
    }


def _watched(states: Any, here: BoolArray, features: Callable[[Any], Any]) -> list[FloatArray]:
    """Return blocks (M, T + 1, d) that may show movement of states; the first are raw.

    Counted states: their numbers, and an indicator of each state. If there are many, indicators of
    classes, by when states are seen in the first half of the trial. Vectors: their components,
    squares and features, or an evenly spaced choice of them. All are 0 where a trial is over or was
    cut short.
    """
    x = states[here].reshape(int(here.sum()), -1)
    raw = x[:, :: -(-x.shape[1] // _MOST_COLUMNS)].astype(np.float64)
    if states.ndim == 2:
        more = _columns_of_states(x[:, 0], np.nonzero(here)[1], here.shape[1] // 2)
    else:
        chunks = [features(part) for part in np.array_split(x * 1.0, 1 + len(x) // _CHUNK)]
        chosen = slice(None, None, -(-chunks[0].shape[1] // _MOST_COLUMNS))
        parts = [np.asarray(dense(f[:, chosen])) for f in chunks]
        more = np.concatenate([raw**2, np.concatenate(parts)], axis=1)
    blocks = []
    for columns in (raw, more):
        block = np.zeros((*here.shape, columns.shape[1]))
        block[here] = columns
        blocks.append(block)
    return blocks


def _columns_of_states(state: IntArray, t: IntArray, middle: int) -> FloatArray:
    """Return 1 in the column of each state, or of its class, of states (n,) at timesteps (n,)."""
    kinds, kind = np.unique(state, return_inverse=True)
    if len(kinds) > 2 * _MOST_COLUMNS:
        early = t < middle
        seen = np.bincount(kind[early], minlength=len(kinds))
        when = np.bincount(kind[early], t[early], len(kinds)) / np.maximum(seen, 1)
        order = np.argsort(np.where(seen > 0, when, np.inf), kind="stable")
        before = np.cumsum(seen[order]) - seen[order]
        place = np.empty(len(kinds), dtype=np.int64)
        place[order] = before * _MOST_COLUMNS // max(1, int(seen.sum()))
        kind = place[kind]
    return np.asarray(np.eye(int(kind.max()) + 1)[kind])


def _tolerable(
    starts: Any, determined: BoolArray, first: Any, u: FloatArray, unit: float
) -> BoolArray:
    """Return which undetermined starts are confirmed by returns, or are few and near the others."""
    tolerable, some = np.zeros(len(determined), dtype=bool), np.flatnonzero(~determined)
    u, spread = u - u.mean(), float(u.std())
    are_few = starts.ndim == 2 and some.size <= _AT_EDGE * len(starts)
    scale = np.maximum(starts.std(axis=0), 1e-300)
    for i in some:
        mine = u[(first == starts[i]).reshape(len(first), -1).all(axis=1)]
        error = spread / np.sqrt(max(len(mine), 1))
        tolerable[i] = len(mine) and abs(mine.mean()) <= 3 * error and error < _VOUCHED * unit
        if are_few:
            away = np.abs((starts[determined] - starts[i]) / scale).max(axis=1)
            tolerable[i] |= bool(away.min(initial=np.inf) <= _REACH)
    return tolerable


def _misfits(
    found: list[Misfit], groups: list[IntArray], first: Any, decode: Callable[[Any], Any]
) -> list[Misfit]:
    """Return misfits of groups, without groups that contain a smaller misfit."""
    misfits = []
    for each in found:
        group = groups[each.group]
        if any(
            len(groups[e.group]) < len(group) and np.isin(groups[e.group], group).all()
            for e in found
        ):
            continue
        here = first[group]
        x = here.reshape(len(here), -1).astype(np.float64)
        start = here[np.argmin(((x - np.median(x, axis=0)) ** 2).sum(axis=1))]
        name = None if each.group == 0 else decode(start)
        misfits.append(replace(each, start=name, n_starts=len(np.unique(here, axis=0))))
    return misfits


def compare_returns(fit: Fit, a: Any, b: Any) -> Comparison:
    """Return the mean return from a minus the mean return from b; see `Fit.compare`."""
    (difference, error, known), n = _returns_of(fit, a, b)
    if np.any(fit.source.mean_durations != 1.0) and fit.n_batches > 1 and not fit.source.is_sparse:
        # Trials from a and b differ in time, which multiplies the gain's error.
        off = fit.jackknife.gain_error
        (other, *_), _ = _returns_of(fit, a, b, fit.system.gain + off)
        error = float(np.hypot(error, other - difference))
    return Comparison(difference, error if known else np.inf, max(1, n - 1))


def _returns_of(
    fit: Fit, a: Any, b: Any, gain: float | None = None
) -> tuple[tuple[float, float, bool], int]:
    """Return the difference of returns, its error, and whether that is known; numbers of trials."""
    (trials, _), encoding = _trials_of(fit, gain), fit.encoding
    first, lengths = trials.observations[:, 0], trials.all_lengths
    # The longest run of timesteps that half of the trials have.
    T = max(1, int(np.sort(lengths)[len(lengths) // 2]))
    R = np.where(np.arange(T) < lengths[:, None], trials.rewards[:, :T], np.nan)
    of_a, of_b = (trial_weights(first, encoding.encode_any(each)[0]) for each in (a, b))
    _, kind = np.unique(first.reshape(len(first), -1), axis=0, return_inverse=True)
    found = direct_difference(R, of_a, of_b, kind.ravel())
    if not np.isfinite(found[0]):
        raise NotFittedError(
            "compare(by='returns') needs at least two trials that start at, or close to, "
            "each of the observations: collect trials from these starts, or use by='fit'"
        )
    return found, min(int(np.count_nonzero(side)) for side in (of_a, of_b))


def _trials_of(fit: Fit, gain: float | None = None) -> tuple[KeptTrials, bool]:
    """Return whole trials: kept, stored beside counts, or drawn from these; and whether drawn.

    Their rewards are r - g (τ - mean τ), with the fit's gain or another one. So checks of rewards
    per step hold for steps with durations.
    """
    source = fit.source
    gain, mean = fit.system.gain if gain is None else gain, _mean_duration(source)
    trials = source.whole_trials
    if trials is not None and (not source.are_places or trials.n_trials >= MIN_TRIALS):
        if trials.durations is None:
            return trials, False
        rewards = trials.rewards - gain * (trials.durations - mean)
        return replace(trials, rewards=rewards, durations=None), False
    counts = source.total
    n, rng = min(counts.n_trials, _N_DRAWN), np.random.default_rng(0)
    sums = _sums_of_rewards(counts, gain, mean)
    states, rewards = drawn_trials(counts.transition_counts, sums, n, rng)
    return KeptTrials(states, np.nan_to_num(rewards), np.isfinite(rewards).sum(axis=1)), True


def _sums_of_rewards(counts: TransitionCounts, gain: float, mean: float) -> Any:
    """Return the sums (t_max + 1, S) of r - g (τ - mean τ)."""
    N, times = counts.transition_counts, counts.duration_sums
    if times is None:
        return counts.reward_sums
    where = np.repeat(np.arange(N.shape[0]), np.diff(N.indptr)), N.indices // counts.n_states
    visits = sparse.csr_array((N.data, where), shape=times.shape)
    return sparse.csr_array(counts.reward_sums - gain * (times - mean * visits))


def _means_of_batches(fit: Fit) -> FloatArray | None:
    """Return mean rewards of batches, if counts do not keep single trials."""
    if not fit.source.are_places or len(fit.source.batches) < FEWEST_TRIALS:
        return None
    how = fit.system.gain, _mean_duration(fit.source)
    return np.stack(
        [
            _sums_of_rewards(batch, *how).sum(axis=1)
            / np.where(batch.trials_at, batch.trials_at, np.nan)
            for batch in fit.source.batches
        ]
    )


def _feature_sizes(fit: Fit) -> FeatureSizes:
    """Return the feature sizes of candidates that were seen."""
    source, rcond = fit.source, fit.options.rcond
    features = source.candidate_features
    if not source.are_places:  # all were seen
        return FeatureSizes.of(features, 2.0 * np.sqrt(rcond))
    seen = np.flatnonzero((fit.system.occupancy > 0.0).any(axis=0))
    return FeatureSizes.of(features[seen], rcond)
