"""Equations of windows from moments of features: X, Z and y as means over samples."""

from __future__ import annotations

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.statistics.equations import Moments
from lstd_agent.statistics.moment_sums import MomentSums
from lstd_agent.statistics.trial_moments import TrialMoments

# Moments of a window that take more than this are refused.
_MAX_WINDOW_BYTES = 2**33


def check_dense(d: int) -> None:
    """Raise `InvalidInputError` unless the moments of d features have room."""
    size = 16 * d**2
    if size > _MAX_WINDOW_BYTES:
        raise InvalidInputError(
            f"the moments of {d} features over a single window take {size / 1e9:.3g} GB: features "
            "that are sparse (CSR, such as those of TileCoding) of trials that are kept (within "
            "max_bytes) need none with calibration='linked' and backup='one_step'; or give fewer"
        )


def samples_in(windows: IntArray, trials_at: IntArray) -> IntArray:
    """Return the number of samples of each window (n, 2), by that of each timestep."""
    before = np.append(0, np.cumsum(trials_at))
    return np.asarray(before[windows[:, 1]] - before[windows[:, 0]])


def window_moments(
    sums: MomentSums | TrialMoments, windows: IntArray, gain: float | None
) -> Moments:
    """Return X, Z and y; without a gain, y of the rewards and of ones."""
    found = sums.over(windows)
    X = found.second_moments - found.successor_moments
    if gain is not None:
        y = found.reward_moments - gain * found.feature_sums
    else:
        y = np.stack((found.reward_moments, found.feature_sums), axis=2)
    return _means(X, found.second_moments, y, samples_in(windows, sums.trials_at))


def open_moments(sums: MomentSums | TrialMoments, windows: IntArray, one: float) -> Moments:
    """Return moments with open ends, of features (f, one); see `Statistics.linked_equations`."""
    last = windows[:, 1] - 1
    inside = sums.over(np.stack((windows[:, 0], last), axis=1))
    end = sums.over(np.stack((last, last + 1), axis=1))
    n_samples = samples_in(windows, sums.trials_at)
    number, n_leaving = n_samples.astype(np.float64), sums.trials_at[last].astype(np.float64)
    after = sums.following
    following = np.stack([after[a : b - 1].sum(axis=0) for a, b in windows.tolist()])
    f = inside.feature_sums + end.feature_sums
    Z = _bordered(inside.second_moments + end.second_moments, f, f, number, one)
    S = _bordered(inside.successor_moments, inside.feature_sums, following, number - n_leaving, one)
    leaving = _bordered(end.successor_moments, end.feature_sums, after[last], n_leaving, one)
    y = np.empty((len(windows), f.shape[1] + 1, 2))
    y[:, :-1, 0] = inside.reward_moments + end.reward_moments
    y[:, -1, 0] = one * (inside.reward_sums + end.reward_sums)
    y[:, :-1, 1] = f
    y[:, -1, 1] = one * number
    return _means(Z - S, Z, np.concatenate((y, leaving), axis=2), n_samples)


def second_moments(sums: MomentSums | TrialMoments, window: IntArray) -> FloatArray:
    """Return the mean of (f, 1) (f, 1)^T over a window (start, stop)."""
    start, stop = window
    # In two parts, which linked equations have asked for already.
    parts = sums.over(np.array([[start, stop - 1], [stop - 1, stop]]))
    f = parts.feature_sums.sum(axis=0)[None]
    number = samples_in(window[None], sums.trials_at).astype(np.float64)
    Z = _bordered(parts.second_moments.sum(axis=0)[None], f, f, number, 1.0)[0]
    return np.asarray(Z / number)


def _bordered(
    products: FloatArray, f: FloatArray, following: FloatArray, number: FloatArray, one: float
) -> FloatArray:
    """Return sums of (f, 1) (f', 1)^T from Σ f f'^T, Σ f, Σ f' and their number."""
    n, d, _ = products.shape
    whole = np.empty((n, d + 1, d + 1))
    whole[:, :d, :d] = products
    whole[:, :d, d] = one * f
    whole[:, d, :d] = one * following
    whole[:, d, d] = one * number
    return whole


def _means(X: FloatArray, Z: FloatArray, y: FloatArray, n_samples: IntArray) -> Moments:
    """Return sums over samples as moments."""
    scale = (1.0 / n_samples)[:, None]
    return Moments(
        X * scale[:, :, None],
        Z * scale[:, :, None],
        y * scale.reshape(scale.shape + (1,) * (y.ndim - 2)),
        n_samples,
    )
