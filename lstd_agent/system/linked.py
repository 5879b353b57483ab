r"""Linked calibration: the system solved backwards in time.

The last neighbourhood is fitted to all its timesteps, and gets the offset that makes its value 0
where `lstd_agent.rows.layers.Samples.zero` says. Every earlier one is fitted with an intercept, and
where a sample's successor falls into the next neighbourhood, the successor's value is a number, by
the next approximator. With :math:`\tilde f = (f, 1)`, neighbourhood k solves X_k w = y_k in the
Z†-seminorm of Thm ``epb_minimizer``, with

.. math::

    X_k = \sum_{t \in k} \tilde f(s_t)
          \left(\tilde f(s_t) - [t+1 \in k]\, \tilde f(s_{t+1})\right)^T, \quad
    y_k = \sum_{t \in k} \tilde f(s_t)
          \left(r_t - g\tau_t + [t+1 \notin k]\, v_{k+1}(s_{t+1})\right).

One neighbourhood is average-reward LSTD over all timesteps; one a timestep is fitted policy
evaluation backwards in time. Nothing need be shared between neighbourhoods.
"""

from __future__ import annotations

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.rows.factors import Factor, Segments, total
from lstd_agent.rows.layers import Samples
from lstd_agent.system.minimizer import Minimizer, minimize
from lstd_agent.system.solution import Solved, compressed, opened


def solve_linked(
    source: Samples,
    segments: Segments,
    anchors: IntArray,
    gain: float,
    zero: FloatArray,
    *,
    directions: bool = True,
) -> list[Solved]:
    """Solve the linked system of single steps.

    Parameters
    ----------
    source : Samples
    segments : Segments
        Of the trials to fit.
    anchors : ndarray of int, shape (K,)
    gain : float
    zero : ndarray, shape (p,)
        Features whose value is 0.
    directions : bool
        Whether to keep track of what the samples leave open.

    Returns
    -------
    list of Solved
        Of each window, in order of time.
    """
    coordinates = source.coordinates
    stops = [*anchors[1:].tolist(), source.t_max + 1]
    solved: list[Solved] = []
    for start, stop in zip(anchors[::-1].tolist(), stops[::-1], strict=True):
        if not solved:
            factor = total(segments.between(start, stop))
            found = solve_alone(source, factor, gain, directions)
            columns = found.weights
        else:
            factor = segments.window(start, stop)
            size = source.p if source.constant else source.p - 1
            equations = factor.reduced(size, source.rcond)
            found = minimize(equations, source.rcond, coordinates.metric, directions=directions)
            columns = found.weights[:, 2:] @ solved[-1].columns
            columns[:, 0] += found.weights[:, 0] - gain * found.weights[:, 1]
        if directions:
            columns = np.hstack((columns, opened(found, coordinates)))
        if not solved or not source.constant:
            columns = np.vstack((columns, -zero[:-1] @ columns))
        columns, _ = compressed(columns, coordinates, 1)
        solved.append(Solved(columns, found.rank, found.condition, round(factor.n)))
    return solved[::-1]


def solve_alone(source: Samples, window: Factor, gain: float, directions: bool = True) -> Minimizer:
    """Return the minimizer of a window by itself: all next features are unknown, f has no 1."""
    equations = window.reduced(window.p - 1, source.rcond)
    above = equations.c[:, :1] - gain * equations.c[:, 1:2]
    equations = equations._replace(c=above)
    metric = source.coordinates.metric
    return minimize(equations, source.rcond, metric, directions=directions)


def zero_of(source: Samples, segments: Segments, anchor: int) -> FloatArray:
    """Return the features (p,) whose value is 0: by default the mean of the tail."""
    zero = source.zero(anchor)
    if zero is not None:
        return zero
    tail = total(segments.between((source.t_max + 1) // 2, source.t_max + 1))
    return np.asarray(tail.sums[: tail.p] / max(tail.n, 1.0))
