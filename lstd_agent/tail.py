r"""Whether the tail has settled, so that there is one gain, and it is the tail's.

A last timestep that comes too early is the common mistake: gain and values then are those of a
transient, and nothing in them tells. So the mean rewards of three windows of L timesteps, the last
of all, are compared by batches of trials: :math:`r_1, r_2, r_3`. If the last two differ by more
than chance explains, what is left of a transient that falls by the same share from window to window
adds up, after the last timestep, to

.. math:: L |r_3 - r_2| \left(\frac{\rho}{1 - \rho}\right)^2,
          \quad \rho = \left|\frac{r_3 - r_2}{r_2 - r_1}\right|,

which matters if it is a share of the range of values. Where it falls too slowly for that, ρ is
about 1, and all may be still to come. Nor has a tail settled whose mean reward is not the gain that
the fit makes of it (`lstd_agent.system.gain`): then its mean value moves by the difference a step.

Trials may also settle each by itself, in different classes of states or with parameters drawn at
their start, or take far longer than they last to forget where they began. Then the mean rewards of
four parts of the tail are all alike from batch to batch, where those of one recurrent class are
independent.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.fit import Fit
from lstd_agent.standard_errors import errors_of_means, most_by_chance
from lstd_agent.statistics.interface import SampledStatistics

# Chance of judging the halves of a settled tail unlike.
_LEVEL = 1e-4

# What is left of a transient matters if it is a larger share of the values' span.
_SHARE = 0.05

# What is smaller beside rewards is rounding.
_ROUNDING = 1e-9

# Mean rewards of successive timesteps are alike: their number tells half as much, and less.
_AUTOCORRELATION = 2.0

# Trials do not mix if parts of the tail are more correlated, by two standard errors.
_CORRELATION, _DEVIATIONS = 0.5, 2.0

# A lag is a period if mean rewards differ by a smaller share of how much neighbors differ.
_PERIODIC = 0.5


class TailCheck(NamedTuple):
    """What `lstd_agent.Diagnostics` tells of the last timesteps, in two halves of whole periods."""

    settled: bool
    tail: tuple[int, int, int]
    tail_rewards: tuple[float, float]
    tail_error: float
    tail_correlation: float


def check_tail(fit: Fit) -> TailCheck:
    """Compare parts of the tail."""
    statistics = fit.statistics
    stop = statistics.t_max + 1
    longest = (stop - stop // 2) // 2
    half = longest - longest % _period(statistics, longest)
    if half == 0:
        reward = statistics.mean_reward(stop // 2, stop)
        # A period that is longer than that is one of a class that was never left.
        return TailCheck(longest > 0, (stop // 2, stop, stop), (reward, reward), np.nan, 0.0)
    parts = [statistics.of(sums) for sums in fit.batches] if len(fit.batches) > 1 else []
    # A batch whose trials were all cut short before tells nothing of it.
    parts = [part for part in parts if part.trials_at[stop - half :].any()]
    middle = stop - half
    before, first, second = _means(statistics, np.arange(stop - 3 * half, stop + 1, half))
    difference, rounding = abs(second - first), _ROUNDING * np.abs(statistics.mean_rewards).max()
    error, degrees = _error_of_difference(statistics, parts, half)
    span = float(np.ptp(_seen_values(fit)))
    left = half * difference * _still_to_come(first - before, second - first)
    chance = max(float(most_by_chance(degrees, _LEVEL)) * error, rounding)
    from_gain = abs((first + second) / 2.0 - fit.system.gain) if fit.options.gain is None else 0.0
    moves = (difference > chance and left > _SHARE * span) or (
        from_gain > chance and 2 * half * from_gain > _SHARE * span
    )
    least = max(rounding, _SHARE * span / (2 * half))
    return TailCheck(
        settled=not moves,
        tail=(middle - half, middle, stop),
        tail_rewards=(first, second),
        tail_error=error,
        tail_correlation=_lasting_correlation(parts, half, least),
    )


def _still_to_come(earlier: float, later: float) -> float:
    """Return what a transient may add yet, in units of the later difference; at least 1."""
    if abs(later) >= abs(earlier):
        return np.inf
    ratio = abs(later / earlier)
    return max(1.0, (ratio / (1.0 - ratio)) ** 2)


def _period(statistics: SampledStatistics, longest: int) -> int:
    """Return the period that states show, or else mean rewards."""
    classes = statistics.recurrent_classes
    if classes and classes[0].period > 1:
        return classes[0].period
    rewards = statistics.mean_rewards[statistics.t_max + 1 - 2 * longest :]
    change = [np.abs(rewards[lag:] - rewards[:-lag]).mean() for lag in range(1, longest + 1)]
    best = int(np.argmin(change)) if change else 0
    return best + 1 if change and change[best] < _PERIODIC * change[0] else 1


def _means(statistics: SampledStatistics, edges: IntArray) -> list[float]:
    """Return the mean rewards between timesteps."""
    return [
        statistics.mean_reward(start, stop)
        for start, stop in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    ]


def _error_of_difference(
    statistics: SampledStatistics, parts: list[SampledStatistics], half: int
) -> tuple[float, int]:
    """Return the standard error, by batches or else by timesteps, and its degrees of freedom."""
    stop = statistics.t_max + 1
    if len(parts) < 2:
        halves = statistics.mean_rewards[stop - 2 * half :].reshape(2, half)
        error = _AUTOCORRELATION * np.sqrt(halves.var(axis=1).sum() / half)
        return float(error), max(1, 2 * half - 2)
    edges = np.arange(stop - 2 * half, stop + 1, half)
    differences = np.diff([_means(part, edges) for part in parts])[:, 0]
    error = errors_of_means(differences, np.array([part.n_trials for part in parts]))
    return float(error), len(parts) - 1


def _lasting_correlation(parts: list[SampledStatistics], half: int, least: float) -> float:
    """Return the correlation of the tail's quarters if trials keep mean rewards of their own.

    By more than the least that matters.
    """
    if half < 2 or not parts:
        return 0.0
    stop = parts[0].t_max + 1
    edges = np.linspace(stop - 2 * half, stop, 5).astype(np.int64)
    parts = [part for part in parts if part.trials_at[edges[3] :].any()]
    if len(parts) <= 3:
        return 0.0
    quarters = np.array([_means(part, edges) for part in parts]).T
    n_trials = float(np.mean([part.n_trials for part in parts]))
    covariance = np.cov(quarters)
    deviation = np.sqrt(np.diag(covariance))
    lasting = float(covariance.min()) * n_trials
    if lasting <= least**2:
        return 0.0
    correlation = min(float((covariance / np.outer(deviation, deviation)).min()), 1.0)
    surely = np.arctanh(_CORRELATION) + _DEVIATIONS / np.sqrt(len(parts) - 3)
    return correlation if correlation >= np.tanh(surely) else 0.0


def _seen_values(fit: Fit) -> FloatArray:
    """Return the values at the candidates that each neighbourhood has seen."""
    seen = enumerate(fit.system.occupancy > 0.0)
    found = np.concatenate([fit.candidate_values(k)[where] for k, where in seen])
    return found if found.size else np.zeros(1)
