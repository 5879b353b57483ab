r"""The gain, estimated from the settled tail: the second half of all timesteps.

The mean reward over timesteps h … T - 1 misses the gain by what their start was worth more than
their end,

.. math:: g = \bar r + \frac{\bar v(T) - \bar v(h)}{T - h},

\bar v(t) being the mean value at timestep t. With v by average-reward LSTD of the tail, a period
does not bias g, nor does what is left of a transient, and along each trial the noise of rewards
is that of a martingale.

v and g are found at once. The tail as one neighbourhood of a linked system, in features
:math:`\tilde f = (f, 1)`, has weights :math:`w = S_r - g S_1 + H w'` where w' are those of what
comes next; and that is the tail again, w' = w. The equation :math:`(I - H) w = S_r - g S_1`
leaves out constants, so that it has a solution for one g only: that for which the right-hand side
is orthogonal to the left null vector of I - H.
"""

from __future__ import annotations

import numpy as np

from lstd_agent.errors import InvalidInputError
from lstd_agent.statistics.equations import thin_svd
from lstd_agent.statistics.interface import SampledStatistics, Statistics
from lstd_agent.system.fit_system import CalibrationName
from lstd_agent.system.krylov import gain_by_iteration
from lstd_agent.system.minimizer import minimize
from lstd_agent.system.sparse import sparse_gain

# What is smaller beside the largest singular value is rounding.
_NULL = 1e-5

# Below this cosine between the null vector and S_1 the equation hardly has g in it.
_SMALLEST_COSINE = 0.02


def mean_tail_reward(statistics: Statistics) -> float:
    """Return the mean reward of the second half of all timesteps."""
    return statistics.mean_reward((statistics.t_max + 1) // 2, statistics.t_max + 1)


def estimate_gain(
    statistics: SampledStatistics, calibration: CalibrationName, rcond: float
) -> float:
    """Return the gain of a linked system, or of one with references.

    The second is the plain mean reward of the settled tail, unless its states are seen to be
    periodic.

    Parameters
    ----------
    statistics : SampledStatistics
    calibration : {"linked", "references"}
    rcond : float
        Relative cutoff of the pseudoinverses.
    """
    classes = statistics.recurrent_classes
    periodic = len(classes) > 0 and classes[0].period > 1
    if calibration == "references" and not periodic:
        return mean_tail_reward(statistics)
    return corrected_gain(statistics, rcond)


def corrected_gain(statistics: Statistics, rcond: float) -> float:
    """Return the mean reward of the settled tail, corrected for its ends.

    Where the tail moves on at the pace of time (a backlog that is still being drained), where
    tasks end, or where there is no more than one timestep, the equation does not determine g,
    and the mean reward is returned.

    Parameters
    ----------
    statistics : Statistics
    rcond : float
        Relative cutoff of the pseudoinverses.
    """
    last = statistics.t_max
    first = (last + 1) // 2
    if first == last:
        return mean_tail_reward(statistics)
    if statistics.sparse_trials is not None and statistics.intercept:
        return gain_by_iteration(statistics.sparse_trials, first, last)
    if statistics.sparse_counts is not None:
        return sparse_gain(statistics.sparse_counts, first, last)
    equations = statistics.linked_equations(np.array([[first, last]]), rcond)
    scale = statistics.feature_scale[:, None]
    solved = minimize(equations, rcond).weights[0] * scale
    rewards, ones, back = solved[:, 0], solved[:, 1], solved[:, 2:] / scale.T
    U, singular, _ = thin_svd(np.eye(len(back)) - back)
    is_null = singular <= _NULL * singular[0]
    null = U[:, -1]
    coefficient = float(null @ ones)
    too_small = abs(coefficient) < _SMALLEST_COSINE * np.linalg.norm(ones)
    if is_null.sum() != 1 or too_small:
        return mean_tail_reward(statistics)
    return float(null @ rewards) / coefficient


def check_gain(gain: float | str | None) -> float | None:
    """Return the option of a gain, or raise `InvalidInputError`."""
    if gain == "per_neighborhood":
        raise InvalidInputError(
            "gain='per_neighborhood' is refused: in the Bellman equation b = r - g + P b the "
            "gain is one number for all states, the long-run average reward. A window before "
            "the chain has settled has another mean reward; with that for g each approximator "
            "would solve another equation, and what transient states earn above the gain, the "
            "very thing wanted, would be subtracted. Give a number, or None to estimate it from "
            "the settled tail"
        )
    if gain is None:
        return None
    if np.ndim(gain) or isinstance(gain, str) or not np.isfinite(gain):
        raise InvalidInputError(f"gain must be a finite number or None; got {gain!r}")
    return float(gain)
