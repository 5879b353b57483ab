r"""The mean value of the start: predicted, and as the samples show it without the start's features.

Along trials rewards above the gain add up to what the start was worth more than the end,

.. math:: \bar v(0) \approx \sum_{t=0}^{T-1} (\bar r_t - g) + \bar v(T),

bars being means over trials, and T the last timestep. The left side asks features for the value of
the start, for which they may be too coarse; the right side asks them for that of the end alone,
where most samples are. Rounding, of features that tell states apart, and noise, which both sides
share in part, are all that may set them apart.

Where trials were cut short, those that go on may be worth more or less than all; what the left
side of each timestep's equation lost by that is added where it was lost.
"""

from __future__ import annotations

import numpy as np

from lstd_agent.arrays import FloatArray
from lstd_agent.statistics.interface import SampledStatistics
from lstd_agent.system.approximators import System


def start_bias(system: System, statistics: SampledStatistics) -> float:
    """Return the mean bias of the start: its value less that of the settled tail.

    Unlike a relative value it does not hang on a reference state, so that those of two policies
    compare: with the same gain, the larger is what a start under that policy earns more.
    """
    T = _last(statistics)
    tail = [_mean_value(system, statistics, t) for t in range((T + 1) // 2, T + 1)]
    return _mean_value(system, statistics, 0) - float(np.mean(tail))


def direct_values(system: System, statistics: SampledStatistics) -> FloatArray:
    """Return the mean value of each timestep by the rewards seen, shape (t_max + 1,)."""
    T = _last(statistics)
    above = statistics.mean_rewards[:T] - system.gain + _lost(system, statistics)
    end = _mean_value(system, statistics, T)
    return np.append(np.cumsum(above[::-1])[::-1], 0.0) + end


def deviations(system: System, statistics: SampledStatistics) -> FloatArray:
    """Return what each timestep adds to the difference, predicted less direct, shape (t_max,).

    Mean temporal differences: of the true values they are independent noise.
    """
    T = _last(statistics)
    values = np.array([_mean_value(system, statistics, t) for t in range(T + 1)])
    following = values[1:] + _lost(system, statistics)
    return np.asarray(values[:-1] - following - statistics.mean_rewards[:T] + system.gain)


def _mean_value(system: System, statistics: SampledStatistics, t: int) -> float:
    return _value_of(system, statistics.mean_features(t), t)


def _value_of(system: System, features: FloatArray, t: int) -> float:
    neighborhood = system.neighborhood_at(np.array([t]))
    return float(system.values(features[None], neighborhood)[0])


def _last(statistics: SampledStatistics) -> int:
    """Return the last timestep that any trial has."""
    return int(np.flatnonzero(statistics.trials_at)[-1])


def _lost(system: System, statistics: SampledStatistics) -> FloatArray:
    """Return how much more the next states are worth than those of trials that go on, (last,)."""
    T = _last(statistics)
    lost = np.zeros(T)
    for t in np.flatnonzero(np.diff(statistics.trials_at[: T + 1])).tolist():
        reached = _value_of(system, statistics.mean_following_features(t), t + 1)
        lost[t] = reached - _mean_value(system, statistics, t + 1)
    return lost
