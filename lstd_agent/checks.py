r"""Checks of trials and of the values fitted to them, in units of earned rewards.

No check is scaled by predicted values, so that a wild fit cannot silence its own alarm. The unit E
is the largest range, over groups of starts, of cumulative mean rewards above the last quarter's.
Most tests ask whether u, one number a trial, has mean 0, by

.. math:: S(u) = \sum_i u_i \Big/ \sqrt{\sum_i u_i^2} .

If u is symmetric about 0, |S| exceeds x with a probability of at most 2 exp(-x²/2), for any number
of trials and any tails (Hoeffding). S² is at most the number of nonzero u, so a few rare events
never alarm. Where nothing is wrong, the six checks alarm with a probability of 4 % or less.

Arrays: rewards R (N, T), NaN after a trial was cut short; features (M, T, d) of some of the trials;
values (N, T + 1); surprises (N, T); groups of trials with like starts, all trials first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray, partial_sums

# Probability of a false alarm by one check; fewest trials of a group with an error, and of any.
LEVEL, MIN_TRIALS, FEWEST_TRIALS = 0.03 / 5, 24, 12

# Missing rewards matter beyond this share of E; probability of this for an alarm, for "not known".
# States have not settled if they will still move by more standard deviations than _MOVES.
_MISSING, _SURE, _MAYBE, _MOVES = 0.15, 0.8, 0.1, 0.25

# The share of the correlation that is left after a quarter of the trial where trials mix; of E
# beyond which own means matter; rows from which S decides; share of whole trials for late rewards.
_LASTING, _OWN, _FEW_ROWS, _WHOLE = 0.5, 0.05, 50, 0.9

# Share of E beyond which misfits, and deviations between groups, matter; smallest correlation of
# surprises that matters; their smallest deviation as a share of E; number of classes of values.
MISFIT, _ALIKE, _SPREAD, _CLASSES = 0.05, 0.05, 0.1, 32

# Fewest effective trials of a standard error, and of any; share of E beyond which an event matters;
# rounding, as shares of the spread of rewards, and of their size.
_EVENTS, _LONE, _RARE, _TINY, _ROUNDING, _OFFSET = 10.0, 2.0, 0.1, 1e-300, 1e-9, 1e-12


def in_a_line(observation: Any) -> str:
    """Return an observation in a line, shortened if it is large."""
    if isinstance(observation, np.ndarray):
        return np.array2string(observation, 10**4, 4, threshold=8, edgeitems=2)
    return "terminal" if observation is None else str(observation)


@dataclass(frozen=True)
class TailCheck:
    """Whether the rewards and the states of the last timesteps have settled."""

    missing: float  # reward above the gain after the last timestep
    missing_error: float
    unit: float  # E, by how much the start changes the total reward
    rewards_settled: bool
    states_settled: bool
    known: bool  # whether trials show if rewards have settled
    moving: float  # further movement of states, in standard deviations

    @property
    def settled(self) -> bool:
        """Whether both rewards and states have settled."""
        return self.rewards_settled and self.states_settled


@dataclass(frozen=True)
class Misfit:
    """A group of starts (0: all trials) whose mean value contradicts the rewards of its trials."""

    group: int
    predicted: float  # mean value by the fit
    direct: float  # by rewards above the gain of ``horizon`` timesteps, and the value after these
    error: float  # standard error of the difference
    horizon: int
    start: Any = None  # one of ``n_starts`` different starts; None for all trials
    n_starts: int = 0

    def __str__(self) -> str:
        who = f"the mean value of {self.n_starts} starts about {in_a_line(self.start)}"
        if self.start is None:
            who = "the mean value of the start"
        elif self.n_starts == 1:
            who = f"the value of start {in_a_line(self.start)}"
        return (
            f"{who} is {self.predicted:.6g} by the features, and {self.direct:.6g} by the rewards "
            f"of the next {self.horizon} timesteps and the value there "
            f"(difference {self.predicted - self.direct:.3g}, standard error {self.error:.2g})"
        )


def critical(n_tests: float) -> float:
    """Return the |S| that n tests exceed with probability `LEVEL`; one-sided ones count half."""
    return float(np.sqrt(2.0 * np.log(2.0 * max(n_tests, 0.5) / LEVEL)))


def self_normalized(u: FloatArray) -> FloatArray:
    """Return S along the first axis, without NaN; 0 where all u are 0."""
    u = np.where(np.isfinite(u), u, 0.0)
    size = np.sqrt((u * u).sum(axis=0))
    enough = size > _ROUNDING * max(float(np.abs(u).max(initial=0.0)), _TINY)
    return np.asarray(np.divide(u.sum(axis=0), size, out=np.zeros_like(size), where=enough))


def few_events(u: FloatArray, few: float = _EVENTS) -> bool:
    """Return whether too few trials make up the variance: N/3 of normal u, k of k rare events."""
    w = (u - u.mean()) ** 2
    return bool(w.sum() ** 2 < min(few, len(u) / 6) * max(float((w * w).sum()), _TINY))


def mean_of(x: FloatArray, axis: int | tuple[int, ...] = 0) -> FloatArray:
    """Return means without NaN; 0 where all are NaN."""
    seen = np.isfinite(x)
    n = np.maximum(seen.sum(axis=axis), 1)
    return np.asarray(np.where(seen, x, 0.0).sum(axis=axis) / n)


def rounding_of(R: FloatArray) -> float:
    """Return the size of rounding in mean rewards; an offset has little."""
    spread, largest = np.nanmax(R) - np.nanmin(R), np.nanmax(np.abs(R))
    return float(_ROUNDING * spread + _OFFSET * largest)


def still_missing(R: FloatArray, length: int, least: float = 0.0) -> tuple[float, float, float]:
    """Return the reward after the last timestep, L b q^K/(1-q), its error, P(its size > ``least``).

    m_k = a + b q^k with q = exp(-L/τ) are mean rewards of K windows of L timesteps from a quarter
    of the trial on, for 24 time constants τ, each of weight exp(-χ²/2).
    """
    from scipy.special import ndtr  # takes long to import

    T, L = R.shape[1], length
    K = min(max(3, int(0.75 * T / L)), T // L)
    w = R[:, T - K * L :].reshape(len(R), K, L).mean(axis=2)
    w = w[np.isfinite(w).all(axis=1)]
    if K < 3 or len(w) < 8:
        return 0.0, np.inf, 0.0
    m, V = w.mean(axis=0), np.cov(w.T) / len(w)
    size = max(float(np.trace(V)) / K, 1e-18 * float((m**2).mean()))
    if size == 0.0:
        return 0.0, 0.0, 0.0
    W = np.linalg.inv(V + 1e-6 * size * np.eye(K))
    q = np.exp(-L / np.geomspace(L / 3, 2 * T, 24))
    X = np.stack([np.ones((24, K)), q[:, None] ** np.arange(K)], axis=2)
    G = np.linalg.inv(X.transpose(0, 2, 1) @ W @ X)
    b = (G @ X.transpose(0, 2, 1) @ W @ m[:, None])[:, :, 0]
    e = m - (X @ b[:, :, None])[:, :, 0]
    chi = np.einsum("ij,jk,ik->i", e, W, e)
    factor = L * q**K / (1 - q)
    M, error = factor * b[:, 1], factor * np.sqrt(G[:, 1, 1])
    p = np.exp(-(chi - chi.min()) / 2 / max(1.0, float(chi.min()) / max(K - 3, 1)))
    p /= p.sum()
    sure = float(p @ ndtr((np.abs(M) - least) / np.maximum(error, _TINY)))
    mean = float(p @ M)
    return mean, float(np.sqrt(p @ (error**2 + (M - mean) ** 2))), sure


def large(groups: Sequence[IntArray]) -> list[IntArray]:
    """Return the group of all trials, and groups of at least `MIN_TRIALS`."""
    return [*groups[:1], *(group for group in groups[1:] if len(group) >= MIN_TRIALS)]


def unit_of(R: FloatArray, groups: Sequence[IntArray]) -> float:
    """Return E."""
    last = float(mean_of(R[:, -max(1, R.shape[1] // 4) :], axis=(0, 1)))
    return max(float(np.ptp(np.append(0, np.cumsum(mean_of(R[k]) - last)))) for k in groups)


def check_tail(
    R: FloatArray, blocks: Sequence[FloatArray], groups: Sequence[IntArray]
) -> TailCheck:
    """Compare the first with the last L timesteps of the tail, the second half.

    L runs from a quarter to a half of the tail, so no period of up to a quarter of the trial shows
    at every L: only a true movement of rewards, or of features of a block, does.
    """
    groups = large(groups)
    T, h, E = R.shape[1], R.shape[1] // 2, unit_of(R, groups)
    few, most = max(1, -(-(T - h) // 4)), max(1, (T - h) // 2)
    every = np.arange(max(few, most - 48), most + 1)
    lengths = np.unique(np.append(every, np.linspace(few, most, 16).astype(int)))
    C = partial_sums(R)
    D = (C[:, [T]] - C[:, T - lengths] - C[:, h + lengths] + C[:, [h]]) / lengths
    D[np.abs(D) < rounding_of(R)] = 0.0
    missing, error, sure = 0.0, np.inf, -1.0
    for group in groups:
        S = np.abs(self_normalized(D[group]))
        L, moves = int(min(lengths[S.argmin()], max(1, T // 3))), S.min() > critical(len(groups))
        found = still_missing(R[group], L, _MISSING * E) if moves or sure < 0.0 else (0.0,) * 3
        if (surely := found[2] if moves else 0.0) > sure:
            missing, error, sure = *found[:2], surely
    moving = max(_movement_left(F, lengths, critical(len(blocks) / 2)) for F in blocks)
    known = T >= 4 and len(R) >= FEWEST_TRIALS and not _MAYBE < sure <= _SURE
    return TailCheck(missing, error, E, sure <= _SURE, moving <= _MOVES, known, moving)


def _movement_left(F: FloatArray, lengths: IntArray, z: float) -> float:
    """Return the smallest movement left over lengths, in standard deviations.

    Each half of the trials is projected on a direction by the other: mean D/sd² of large S.
    """
    T, h, N = F.shape[1], F.shape[1] // 2, len(F)
    tail = np.ascontiguousarray(F[:, h:][np.isfinite(F[:, h:, 0])].T)
    largest = np.fmax.reduce(np.abs(tail), axis=1, initial=_TINY)
    sd = tail.std(axis=1) if tail.size else np.zeros(F.shape[2])
    keep = sd > 1e-6 * largest
    if not keep.any() or N < FEWEST_TRIALS:
        return 0.0
    F, sd, V = F if keep.all() else F[:, :, keep], sd[keep], np.atleast_2d(np.cov(tail[keep]))
    C = partial_sums(F)
    rounding, least = _ROUNDING * largest[keep], np.inf
    for L in lengths[::-1].tolist():
        windows = [C[:, T - j * L] - C[:, T - (j + 1) * L] for j in range(min(3, T // L))]
        D = (windows[0] - (C[:, h + L] - C[:, h])) / L
        D[np.abs(D) < rounding] = 0.0
        u, m = np.zeros(N), []
        for half in (0, 1):
            one, other = slice(half, None, 2), slice(1 - half, None, 2)
            w = np.where(np.abs(self_normalized(D[one])) > 2.0, mean_of(D[one]), 0.0) / sd**2
            if w.any():
                w /= max(float(np.sqrt(w @ V @ w)), _TINY)
                u[other] = D[other] @ w
                means = [float(mean_of(x[other]) @ w) / L for x in windows]
                m.append([abs(float(mean_of(u[other]))), *-np.diff(means)])
        if self_normalized(u) <= z:
            return 0.0  # other lengths cannot change this
        moved, *steps = np.mean(m, axis=0).tolist()
        q = min(abs(steps[0]) / max(abs(steps[1]), _TINY), 0.95) if len(steps) > 1 else 0.95
        least = min(least, moved, abs(steps[0]) * q / (1 - q))
        if least <= _MOVES:
            break
    return float(least)


def check_own_means(R: FloatArray, unit: float, total: float = 1.0) -> float:
    """Return the standard deviation of trials' own mean rewards; 0 if they share one.

    x0, x1, x2 are normal scores of trials' mean rewards over L timesteps from a quarter of the
    trial, from its middle, and before its end. Where a quarter of the trial suffices to mix, the
    mean of u = x0 x2 - (x0 x1 + x1 x2)/4 is not positive. S(u) must be critical at L = T/4 and a
    quarter of that down to L = T/8, or it is a period. A row is the mean of ``total`` trials.
    """
    from scipy.special import ndtri  # takes long to import

    T, C, least, first, sd = R.shape[1], partial_sums(R), rounding_of(R), 0.0, 0.0
    longest = max(1, T // 4)
    for n in range(longest, max(1, T // 8) - 1, -max(1, T // 256)):
        m = np.stack([C[:, b + n] - C[:, b] for b in (T // 4, T // 2, T - n)], axis=1) / n
        m = m[np.isfinite(m).all(axis=1)]
        if T < 4 or len(m) < 8 or (np.ptp(m, axis=0) <= least).any():
            return 0.0
        x, y = m.T, np.sort(m, axis=0).T
        ranks = [
            np.searchsorted(y[i], x[i]) + np.searchsorted(y[i], x[i], "right") for i in range(3)
        ]
        x = ndtri((np.transpose(ranks) + 1) / (2 * len(m) + 2))  # normal scores; ties are equal
        u = x[:, 0] * x[:, 2] - 0.5 * _LASTING * (x[:, 0] * x[:, 1] + x[:, 1] * x[:, 2])
        size = float(self_normalized(u))
        if len(m) < _FEW_ROWS:  # S cannot be critical: take the correlation itself
            r = float(np.clip(np.corrcoef(m.T), -0.999, 0.999).min())
            sure = np.arctanh(r) > np.arctanh(_LASTING) + 2.0 / np.sqrt(len(m) - 3)
            size = 2.0 * critical(0.5) if sure else 0.0
        if n == longest:
            first, sd = size, np.sqrt(total * max(0.0, float(np.cov(m[:, 0], m[:, 2])[0, 1])))
        if size <= first / 4 or first <= critical(0.5) or sd * T <= _OWN * unit:
            return 0.0
    return float(sd)


def check_hidden(delta: FloatArray, values: FloatArray, unit: float) -> float:
    """Return the correlation of surprises in adjacent timesteps; 0 where it does not matter.

    If observations are Markov states and values are right, a surprise, r_t - g + v(s_{t+1}) -
    v(s_t), has mean 0 given the past. A lasting hidden state makes adjacent ones correlated. So do
    wrong values of observed states: the mean surprise where values are alike is taken off.
    """
    seen = np.isfinite(delta)
    x, order = delta[seen], np.argsort(values[:, :-1][seen], kind="stable")
    for alike in np.array_split(order, min(_CLASSES, len(order))):
        x[alike] -= x[alike].mean()
    delta = np.zeros(delta.shape)
    delta[seen] = x
    one, other = delta[:, :-1], delta[:, 1:]
    u, square = (one * other).sum(axis=1), float((one**2 + other**2).sum()) / 2
    correlation = float(u.sum()) / max(square, _TINY)
    amount = np.sqrt(max(0.0, 2.0 * float(u.mean())))
    surely = float(self_normalized(u)) > critical(0.5) and not few_events(u)
    return correlation if surely and correlation > _ALIKE and amount > _SPREAD * unit else 0.0


def late_surprises(delta: FloatArray) -> FloatArray:
    """Return numbers (N,), whose mean and noise tell by how much the tail contradicts the gain."""
    late = delta[:, delta.shape[1] // 2 :]
    total, n = np.nansum(late, axis=1), np.isfinite(late).sum(axis=1)
    mean = total.sum() / max(int(n.sum()), 1)
    return np.asarray(mean + (total - mean * n) / max(float(n.mean()), _TINY))


def check_gain(R: FloatArray, gain: float, error: float, unit: float) -> float:
    """Return the mean reward of late timesteps less the gain (0 if alike), given the gain's error.

    The last L timesteps of whole trials are compared, L from an eighth to a half of the trial, and
    the smallest difference counts (periods of up to T/4 divide one L). If many were cut short, 0.
    """
    T, C = R.shape[1], partial_sums(R)
    C = C[np.isfinite(C[:, T])]
    if T < 4 or len(C) < max(MIN_TRIALS, _WHOLE * len(R)):
        return 0.0
    L = np.arange(max(1, T // 8), T // 2 + 1)
    u = (C[:, [T]] - C[:, T - L]) / L - gain
    off = u.mean(axis=0)
    noise = critical(0.5) * np.hypot(np.linalg.norm(u, axis=0) / len(u), error)
    nearest = float(off[np.abs(off).argmin()])
    least = max(_MISSING * unit / T, rounding_of(R))
    return nearest if (np.abs(off) > noise).all() and abs(nearest) > least else 0.0


def check_starts(
    R: FloatArray,
    values: FloatArray,
    delta: FloatArray,
    groups: Sequence[IntArray],
    unit: float,
    earned: FloatArray,
    late: FloatArray,
    start_error: float = 0.0,
) -> tuple[list[Misfit], float]:
    """Compare the values of starts with the rewards of their trials.

    u(H), the sum of the first H surprises, has mean 0 from any start if values are right; NaN is
    left out. A wrong gain adds the same amount to all trials: groups are tested without it; all
    trials less their `late_surprises`, with the standard error of the fitted values. These tests,
    and that of differences between groups, share the level. ``earned`` (N,) is the reward of each
    trial less the mean one.

    Returns misfits by group, at the longest horizon, most significant first; and how much one trial
    changes the start's mean value, if few rare rewards may hide a misfit or are all noise, else 0.
    """
    from scipy.special import stdtrit  # takes long to import

    T, taken = R.shape[1], np.isfinite(delta)
    rare, decides = few_events(earned), few_events(earned, _LONE)
    C, n = (partial_sums(np.where(taken, x, 0.0)) for x in (delta, 1.0))
    horizons = sorted({max(1, T // 8), max(1, T // 4), max(1, T // 2), T})
    level = LEVEL / 3 / len(horizons)
    n_groups = max(1, len(large(groups)) - 1)
    least = max(MISFIT * unit, T * rounding_of(R))
    found: dict[int, Misfit] = {}
    between = None

    def misfit(i: int, mean: float, error: float) -> Misfit:
        predicted = float(values[groups[i], 0].mean())
        return Misfit(i, predicted, predicted + mean, error, H)

    for H in horizons:
        u, steps, ok = C[:, H], n[:, H], n[:, H] > 0
        rate = steps / max(float(steps[ok].sum()), 1.0)
        u0 = np.where(ok, u - rate * u[ok].sum(), 0.0)
        kept = [(i, group[ok[group]]) for i, group in enumerate(groups)]
        kept = [(i, group) for i, group in kept if len(group) > 1]
        if worst := _between(u0, kept[1:], least, level):
            between = misfit(*worst)
        errors = _errors_of_groups(u0, rate, [group for _, group in kept])
        for (i, group), error in zip(kept, errors, strict=True):
            if len(group) < MIN_TRIALS:
                continue
            x = noise = u0[group]
            if i == 0:
                x = noise = u[group] - steps[group].mean() * late[group]
                error = float(np.hypot(noise.std() / np.sqrt(len(noise)), start_error))
            p = level / 2 / (n_groups if i else 1)
            z, room = -float(stdtrit(len(group) - 1, p)), 0.0
            if rare or few_events(noise):
                # A Poisson count of -log(p) is 0 with probability p: so many events may be lacking.
                room = -np.log(p) * float(np.abs(noise).max()) / len(group)
            beyond = abs(x.mean()) - max(z * error, least)
            decides |= rare and 0.0 < beyond <= room
            if beyond > room:
                # Longer horizons overwrite shorter ones: they depend less on fitted values.
                found[i] = misfit(i, float(x.mean()), error)
    if between:
        found.setdefault(between.group, between)
    share = float(np.abs(earned).max()) / len(earned) * decides
    if share > 0.0:  # the rare rewards must not make up E
        others = np.arange(len(R)) != np.abs(earned).argmax()
        unit = unit_of(np.where(others[:, None], R, np.nan), large(groups))
    sureness = {m: abs(m.direct - m.predicted) / max(m.error, _TINY) for m in found.values()}
    return sorted(sureness, key=lambda m: -sureness[m]), float(share * (share > _RARE * unit))


def _between(
    u: FloatArray, groups: Sequence[tuple[int, IntArray]], least: float, level: float
) -> tuple[int, float, float] | None:
    """If groups differ significantly, return the most deviating one, its mean u and error.

    The F test of Brown and Forsythe allows groups different variances, and detects differences that
    small groups do not show alone. Groups that contain smaller ones are left out.
    """
    from scipy.special import fdtrc  # takes long to import

    number = np.full(len(u), -1)
    for i, group in groups:
        number[group] = i
    x = u[number >= 0]
    names, k, n = np.unique(number[number >= 0], return_inverse=True, return_counts=True)
    if len(names) < 2 or n.min() < 2 or len(x) - len(names) < FEWEST_TRIALS:
        return None
    x = x - x.mean()
    means, f = np.bincount(k, x) / n, n / len(x)
    rest = x - means[k]
    variance = np.bincount(k, rest**2) / (n - 1)
    parts = (1 - f) * variance
    expected = max(float(parts.sum()), _TINY)
    F = float(n @ means**2) / expected
    spreads = variance @ variance + (f @ variance) ** 2 - 2 * f @ variance**2
    upper = expected**2 / max(float(spreads), _TINY)
    lower = expected**2 / max(float((parts**2 / (n - 1)).sum()), _TINY)
    spread = np.sqrt(max(0.0, float(n @ means**2) - expected) / len(x))
    if fdtrc(upper, lower, F) >= level or spread <= least or few_events(rest):
        return None
    j = int(np.argmax(n * means**2))
    return int(names[j]), float(means[j]), float(np.sqrt(variance[j] / n[j]))


def _errors_of_groups(u: FloatArray, rate: FloatArray, groups: Sequence[IntArray]) -> list[float]:
    """Return standard errors of groups' mean u, less shares ``rate`` (N,) of the total u.

    Jumps beyond 6 median deviations count in groups that happen to lack them, too.
    """
    jumps, rest = np.zeros(len(u)), u.copy()
    for group in groups[1:] or groups:
        away = np.abs(u[group] - np.median(u[group]))
        jumps[group] = np.maximum(away - 6 * 1.4826 * np.median(away), 0.0)
        rest[group] = u[group] - u[group].mean()
    errors = []
    for k in groups:
        lacked = max(0.0, float((jumps**2).mean() - (jumps[k] ** 2).mean()))
        own = (float(u[k].var(ddof=1)) + lacked) / len(k)
        others = float(rest @ rest - rest[k] @ rest[k])
        errors.append(float(np.sqrt(own + max(others, 0.0) * float(rate[k].mean()) ** 2)))
    return errors
