"""Differences of starts by the returns of their trials, without values."""

from __future__ import annotations

from typing import Any

import numpy as np

import lstd_agent.checks as checks
from lstd_agent.arrays import FloatArray, IntArray, partial_sums
from lstd_agent.errors import NotFittedError
from lstd_agent.fit_checks import mean_and_noise, trials_of
from lstd_agent.standard_errors import Comparison

# So many trials within so many standard deviations stand for an unseen start.
_ENOUGH_NEAR, _NEAR = 10, 0.25


def compare_returns(fit: Any, a: Any, b: Any, conflict: float) -> Comparison:
    """Return the mean return of trials from a minus that of trials from b."""
    difference, error, n = _returns_of(fit, a, b)
    if np.any(fit.source.mean_durations != 1.0):
        # Trials from a and b differ in time, which multiplies the gain's error.
        is_known = fit.n_batches > 1 or fit.options.gain is not None
        of_gain = fit.jackknife.gain_error if fit.n_batches > 1 else 0.0 if is_known else 1.0
        more = _returns_of(fit, a, b, fit.system.gain + max(of_gain, conflict))[0] - difference
        error = float(np.hypot(error, more)) if is_known or not more else np.inf
    return Comparison(difference, error, max(1, n - 1))


def _returns_of(fit: Any, a: Any, b: Any, gain: float | None = None) -> tuple[float, float, int]:
    """Return the difference of returns, its error, and the smaller number of trials."""
    (trials, _), encode = trials_of(fit, gain), fit.encoding.encode_any
    first, lengths = trials.observations[:, 0], trials.all_lengths
    T = max(1, int(np.sort(lengths)[len(lengths) // 2]))  # half of the trials have these timesteps
    R = np.where(np.arange(T) < lengths[:, None], trials.rewards[:, :T], np.nan)
    of_a, of_b = (trial_weights(first, encode(each)[0]) for each in (a, b))
    kind = np.unique(first.reshape(len(first), -1), axis=0, return_inverse=True)[1].ravel()
    difference, error = direct_difference(R, of_a, of_b, kind)
    if not np.isfinite(difference):
        whole, sides = np.isfinite(R).all(axis=1), (("a", a, of_a), ("b", b, of_b))
        few = [f"{n} = {x!r:.60}" for n, x, w in sides if np.count_nonzero(w[whole]) < 2]
        raise NotFittedError(
            "compare(by='returns') needs at least two trials that start at, or close to, each "
            f"observation, and there are fewer for {' and '.join(few)}: collect trials from these "
            "starts, or use by='fit'"
        )
    return difference, error, int(min(np.count_nonzero(of_a), np.count_nonzero(of_b)))


def trial_weights(starts: Any, wanted: Any) -> FloatArray:
    """Return weights (N,) of trials for a mean over starts (n[, k]), or those near vectors.

    All are 0 if some start has no trial. A start may have neighbors on one side: a regression on
    them gives its mean.
    """
    x = np.asarray(starts, dtype=np.float64).reshape(len(starts), -1)
    scale = np.maximum(x.std(axis=0), 1e-300)
    weights = np.zeros(len(x))
    for start in np.asarray(wanted, dtype=np.float64).reshape(len(wanted), -1):
        away = (np.abs(x - start) / scale).max(axis=1)
        mine, near = away == 0.0, away <= _NEAR
        enough = max(_ENOUGH_NEAR, 2 * x.shape[1] + 2)
        if not mine.any() and np.ndim(starts) > 1 and near.sum() >= enough:
            mine = near
        if not mine.any():
            return np.zeros(len(x))
        linear = np.column_stack([np.ones(mine.sum()), x[mine] - start])  # 1/n each, if at start
        weights[mine] += np.linalg.pinv(linear)[0] / len(wanted)
    return weights


def direct_difference(
    R: FloatArray, a: FloatArray, b: FloatArray, kind: IntArray
) -> tuple[float, float]:
    """Return the reward of trials from a minus trials from b, by weights (N,), and its error.

    The error is infinite if few trials make it up. From the horizon on, no sum differs by more than
    its error; sums up to twice the horizon are averaged: a periodic chain's oscillate for ever.
    """
    whole = np.isfinite(R).all(axis=1)
    C, T, number = partial_sums(R[whole] - np.nanmean(R)), R.shape[1], kind[whole]
    sides = [np.asarray(w, dtype=np.float64)[whole] for w in (a, b)]
    if min(np.count_nonzero(w) for w in sides) < 2:
        return np.nan, np.inf
    sides = [w / w.sum() for w in sides]
    grid = np.unique(np.geomspace(1, T, 16).astype(int)).tolist()
    rounding = 1e-9 * float(np.abs(C).max())
    for horizon in grid:
        # Compare with the error up to here: noise of later rewards must not hide a difference.
        most = mean_and_noise(C[:, horizon], sides, number)[1] + rounding
        later = [C[:, K] - C[:, horizon] for K in grid if horizon < K]
        if all(abs(mean_and_noise(x, sides, number)[0]) <= most for x in later):
            break
    settled = C[:, min(horizon, 3 * T // 4) : 2 * horizon + 1]
    total = np.average(settled, axis=1, weights=np.hanning(settled.shape[1] + 2)[1:-1])
    difference, error = mean_and_noise(total, sides, number)
    few = any(checks.few_events(total[w != 0.0]) for w in sides)
    return difference, np.inf if few else error
