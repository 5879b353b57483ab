r"""The mean value of the start: predicted, and as the samples show it without the start's features.

Along trials rewards above the gain add up to what the start was worth more than the end,

.. math:: \bar v(0) \approx \sum_{t=0}^{T-1} (\bar r_t - g) + \bar v(T),

bars being means over trials, and T the last timestep. The left side asks features for the value of
the start, for which they may be too coarse; the right side asks them for that of the end alone,
where most samples are. Rounding, of features that tell states apart, and noise, which both sides
share in part, are all that may set them apart.
"""

from __future__ import annotations

import numpy as np

from lstd_agent.arrays import FloatArray
from lstd_agent.statistics.interface import SampledStatistics
from lstd_agent.system.fit_system import System


def direct_values(system: System, statistics: SampledStatistics) -> FloatArray:
    """Return the mean value of each timestep by the rewards seen, shape (t_max + 1,)."""
    above = statistics.mean_rewards[:-1] - system.gain
    end = _mean_value(system, statistics, statistics.t_max)
    return np.append(np.cumsum(above[::-1])[::-1], 0.0) + end


def deviations(system: System, statistics: SampledStatistics) -> FloatArray:
    """Return what each timestep adds to the difference, predicted less direct, shape (t_max,).

    Mean temporal differences: of the true values they are independent noise.
    """
    values = np.array([_mean_value(system, statistics, t) for t in range(statistics.t_max + 1)])
    return np.asarray(values[:-1] - values[1:] - statistics.mean_rewards[:-1] + system.gain)


def _mean_value(system: System, statistics: SampledStatistics, t: int) -> float:
    neighborhood = system.neighborhood_at(np.array([t]))
    return float(system.values(statistics.mean_features(t)[None], neighborhood)[0])
