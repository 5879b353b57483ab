r"""Linked calibration: the system solved backwards in time (Algorithm ``training_nbwpval``).

The last neighborhood is fitted to all its timesteps. Its offset gives the features
`lstd_agent.rows.layers.Samples.zero` the value 0. Every earlier one is fitted with an intercept. If
a successor belongs to the next neighborhood, the next approximator gives its value. With
:math:`\tilde f = (f, 1)`, neighborhood k solves X_k w = y_k in the Z†-seminorm of Thm
``epb_minimizer``, with

.. math::

    X_k = \sum_{t \in k} \tilde f(s_t)
          \left(\tilde f(s_t) - [t+1 \in k]\, \tilde f(s_{t+1})\right)^T, \quad
    y_k = \sum_{t \in k} \tilde f(s_t)
          \left(r_t - g\tau_t + [t+1 \notin k]\, v_{k+1}(s_{t+1})\right).

A single neighborhood is average-reward LSTD over all timesteps; one for each timestep is fitted
policy evaluation backwards in time. Neighborhoods need not share states.

**What the samples leave open.** Some directions U of the weights change no equation of a window,
but change values at the boundary of the window before. So U is carried backwards in time, as
columns beside the value. The value of x is determined if (f(x), 1) U is 0.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.decompositions import svd
from lstd_agent.rows.factors import Factor, Segments
from lstd_agent.rows.layers import Coordinates, Samples
from lstd_agent.system.minimizer import Minimizer, minimize

# Smaller open directions, for features of size 1, do not matter.
OPEN = 1e-8


class Solved(NamedTuple):
    """A solved window.

    ``columns`` (p, 1 + q) are weights of coordinates and the offset: first the value, then q open
    directions.
    """

    columns: FloatArray
    rank: int
    condition: float
    n_samples: int


class Equations(Protocol):
    """Equations of the windows of R subsets of the trials, computed backwards in time."""

    def window(self, start: int, stop: int) -> list[Factor]:
        """Return the factor of each subset; numbers are R values, then open directions."""

    def close(self, columns: FloatArray) -> FloatArray:
        """Take the window's weights (p, R + q), and return them with fewer open directions."""


class SingleSteps:
    """Equations of single steps, of one subset of the trials."""

    def __init__(self, source: Samples, segments: Segments, gain: float) -> None:
        self._coordinates, self._segments, self._gain = source.coordinates, segments, gain
        self._following: FloatArray | None = None

    def window(self, start: int, stop: int) -> list[Factor]:
        """Return the factor of a window, by the values of the next one."""
        return [self._segments.window(start, stop, self._gain, self._following)]

    def close(self, columns: FloatArray) -> FloatArray:
        """Go on to the window before."""
        self._following, _ = compressed(columns, self._coordinates, 1)
        return self._following


def solve_linked(
    source: Samples,
    equations: Equations,
    anchors: IntArray,
    zeros: FloatArray,
    *,
    directions: bool = True,
) -> list[list[Solved]]:
    """Return the windows of R linked systems, in order of time.

    ``zeros`` (R, p) are features whose value is 0. With ``directions``, the first subset's open
    directions are computed.
    """
    n, d = len(zeros), source.p - 1
    found: list[list[Solved]] = [[] for _ in range(n)]
    stops = [*anchors[1:].tolist(), source.t_max + 1]
    for start, stop in zip(anchors[::-1].tolist(), stops[::-1], strict=True):
        is_last = stop > source.t_max
        factors, solved = equations.window(start, stop), []
        for j, factor in enumerate(factors):
            sides = [j, *range(n, factor.numbers.shape[1] * (j == 0))]
            each = solve_window(source, factor, sides, is_last, directions and j == 0)
            solved.append(each)
        first = solved[0].weights[:, 1:]
        columns = np.hstack([*(each.weights[:, :1] for each in solved), first])
        if directions:
            columns = np.hstack((columns, opened(solved[0], source.coordinates)))
        if is_last or not source.constant:
            owner = np.arange(columns.shape[1])
            at_zero = zeros[np.where(owner < n, owner, 0), :d]  # they are the first's
            columns = np.vstack((columns, -np.einsum("dq,qd->q", columns, at_zero)))
        columns = equations.close(columns)
        for j, (each, factor) in enumerate(zip(solved, factors, strict=True)):
            own = columns[:, [j, *range(n, columns.shape[1] * (j == 0))]]
            found[j].append(Solved(own, each.rank, each.condition, round(factor.n)))
    return [each[::-1] for each in found]


def solve_window(
    source: Samples, factor: Factor, sides: list[int], is_last: bool, directions: bool = True
) -> Minimizer:
    """Return the minimizer of a window for columns of numbers; the last window has no constant."""
    size = source.p - 1 if is_last or not source.constant else source.p
    equations = factor.reduced(size, source.rcond)
    equations = equations._replace(c=equations.c[:, sides])
    return minimize(equations, source.rcond, source.coordinates.metric, directions=directions)


def solve_alone(source: Samples, window: Factor, gain: float) -> Minimizer:
    """Return the minimizer of a window's single steps, with all next values unknown."""
    equations = window.reduced(window.p - 1, source.rcond)
    above = equations.c[:, :1] - gain * equations.c[:, 1:2]
    return minimize(equations._replace(c=above), source.rcond, source.coordinates.metric)


def zero_of(source: Samples, segments: Segments, anchor: int) -> FloatArray:
    """Return the features (p,) whose value is 0: by default the mean of the tail."""
    zero = source.zero(anchor)
    return segments.tail.mean if zero is None else zero


def opened(found: Minimizer, coordinates: Coordinates) -> FloatArray:
    """Return directions (d, q) that equations leave open, orthonormal for features of size 1."""
    d, q = found.null.shape
    if not q:
        return found.null
    p = coordinates.turn.shape[-1] + 1
    scaled = coordinates.scaled(np.vstack((found.null, np.zeros((p - d, q)))))
    R: FloatArray = np.linalg.qr(scaled)[1]
    return np.asarray(np.linalg.solve(R.T, found.null.T).T)


def compressed(
    columns: FloatArray, coordinates: Coordinates, n_values: int, numbers: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return fewer columns, and the matrix (before, after) that makes them.

    The first ``n_values`` stay. Of the open ones after them, those stay that change the window's
    weights or the given numbers (m, before) in targets. None is longer than 1.
    """
    both = coordinates.scaled(columns[:, n_values:])
    if numbers is not None:
        both = np.vstack((both, numbers[:, n_values:]))
    turn = np.eye(columns.shape[1])[:, :n_values]
    if both.shape[1]:
        _, size, Vt = svd(both)
        keep = size > OPEN * max(1.0, size[0])
        turned = Vt[keep].T / np.maximum(size[keep], 1.0)
        zeros = np.zeros((n_values, turned.shape[1]))
        turn = np.hstack((turn, np.vstack((zeros, turned))))
    return columns @ turn, turn
