r"""Linked calibration: the system solved backwards in time (Algorithm ``training_nbwpval``).

The last neighborhood is fitted to all its timesteps. Its offset gives the features ``zero`` of
`lstd_agent.rows.factors.Samples` the value 0. Every earlier one is fitted with an intercept. If a
successor belongs to the next neighborhood, the next approximator gives its value. With
:math:`\tilde f = (f, 1)`, neighborhood k solves X_k w = y_k in the Z†-seminorm of Thm
``epb_minimizer``, with

.. math::

    X_k = \sum_{t \in k} \tilde f(s_t)
          \left(\tilde f(s_t) - [t+1 \in k]\, \tilde f(s_{t+1})\right)^T, \quad
    y_k = \sum_{t \in k} \tilde f(s_t)
          \left(r_t - g\tau_t + [t+1 \notin k]\, v_{k+1}(s_{t+1})\right).

**What the samples leave open.** Some directions U of the weights change no equation of a window,
but change values at the boundary of the window before. So U is carried backwards in time, as
columns beside the value. The value of x is determined if (f(x), 1) U is 0.

**Several steps** (see `lstd_agent.backups`). A target is affine in the unknown weights of its
window. One pass backwards over the timesteps gives the targets of every row,

.. math:: T_t = r_t - g \tau_t + P_t \left((1-\lambda) v_{t+1} + \lambda T_{t+1}\right) ,

and at the start of a window its weights are solved and inserted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray, svd
from lstd_agent.backups import LambdaReturn, MultiStep
from lstd_agent.rows.factors import Coordinates, Factor, Gathering, Layer, Segments, stacked
from lstd_agent.system.minimizer import Minimizer, Solved, minimize

OPEN = 1e-8  # smaller open directions, for features of size 1, do not matter


class SingleSteps:
    """Equations of single steps of R subsets of the trials, for windows backwards in time."""

    def __init__(self, source: Any, segments: Segments, gains: FloatArray) -> None:
        self._coordinates, self._segments, self._gains = source.coordinates, segments, gains
        self._following: FloatArray | None = None

    def window(self, start: int, stop: int) -> Factor:
        """Return the factors of a window: numbers are each one's own, then open directions."""
        return self._segments.window(start, stop, self._gains, self._following)

    def close(self, columns: FloatArray) -> FloatArray:
        """Go on to the window before, by weights (p, R + q) of this one."""
        n = len(self._gains)
        columns, _ = compressed(columns, self._coordinates, n)
        own = [[j, *range(n, columns.shape[1])] for j in range(n)]
        self._following = columns.T[own].swapaxes(1, 2)
        return columns


class Targets:
    """Equations of targets of R subsets of the trials, for windows backwards in time.

    The first p columns of targets are coefficients of unknown weights, which subsets of trials
    share, the next R numbers with rewards above each one's gain, and the others belong to open
    directions. ``runs`` of trials are gathered separately, and ``subsets`` combines their factors.
    Counted states serve one ``group`` of batches, since frequencies differ.
    """

    def __init__(
        self,
        source: Any,
        backup: MultiStep | LambdaReturn,
        gains: FloatArray,
        *,
        group: IntArray | None = None,
        runs: Sequence[slice] = (slice(None),),
        subsets: Callable[[Sequence[Factor]], list[Factor]] = list,
    ) -> None:
        self._source, self._backup, self._gains, self.p = source, backup, gains, source.p
        self._groups, self._runs = None if group is None else [group], runs
        self._subsets, self._width = subsets, self.p + len(gains)
        self._values, self._worth, self._weights = np.zeros((3, 0))

    def window(self, start: int, stop: int) -> Factor:
        """Return the factor of each subset: numbers are each one's own, then open directions."""
        factor = stacked(self._subsets(self._gathered(self._followed(start, stop))))
        n, x = np.arange(len(self._gains)), factor.numbers
        parts = factor.held[..., : 2 * self.p], x[n, :, n, None], x[..., len(n) :]
        return replace(factor, held=np.concatenate(parts, axis=-1))

    def close(self, columns: FloatArray) -> FloatArray:
        """Insert the weights (p, R + q) of the window."""
        p, q = self.p, columns.shape[1]
        inserted = np.vstack((columns, np.eye(self._width - p, q)))
        values, worth = self._values @ inserted, self._worth @ inserted
        # Open directions matter through the root-weighted targets of the window's first timestep.
        root = np.sqrt(self._weights / max(float(self._weights.sum()), 1e-300))
        numbers = np.repeat(root, worth.shape[1])[:, None] * worth.reshape(-1, q)
        columns, turn = compressed(columns, self._source.coordinates, len(self._gains), numbers)
        self._width = p + turn.shape[1]
        self._values, self._worth = (
            np.concatenate((np.zeros((*x.shape[:-1], p)), x @ turn), axis=-1)
            for x in (values, worth)
        )
        return columns

    def alone(self, start: int, stop: int) -> Factor:
        """Return the factor of a window by itself; targets reach to the end of trials."""
        end = self._source.t_max + 1
        return self._gathered(islice(self._followed(start, end), end - stop, None))[0]

    def _followed(self, start: int, stop: int) -> Iterable[tuple[Layer, FloatArray]]:
        """Go back from before stop to start, and yield layers with their targets (m, width)."""
        for layer in self._source.layers(start, stop, self._groups):
            if not self._worth.size:
                self._values = self._unknown(layer.following)
                steps = self._backup.steps if isinstance(self._backup, MultiStep) else 1
                steps = min(steps, self._source.t_max + 1)  # more steps all reach the end
                self._worth = np.repeat(self._values[:, None], steps, axis=1)
            yield layer, self._back(layer)

    def _unknown(self, features: FloatArray) -> FloatArray:
        """Return the values of rows by unknown weights alone."""
        own = np.zeros((len(features), self._width))
        own[:, : self.p] = features
        return own

    def _back(self, layer: Layer) -> FloatArray:
        if isinstance(self._backup, MultiStep):
            after = np.concatenate((self._values[:, None], self._worth[:, :-1]), axis=1)
        else:
            decay = self._backup.decay
            after = (1.0 - decay) * self._values[:, None] + decay * self._worth
        worth = layer.ahead(after)
        paid = layer.rewards[:, None] - layer.durations[:, None] * self._gains
        worth[:, :, self.p : self.p + len(self._gains)] += paid[:, None]
        own = self._unknown(layer.features)
        if not layer.goes_on.all():
            worth[~layer.goes_on] = own[~layer.goes_on, None]
        self._values, self._worth, self._weights = own, worth, layer.weights
        return np.asarray(worth[:, -1])

    def _gathered(self, steps: Iterable[tuple[Layer, FloatArray]]) -> list[Factor]:
        """Return the factor of each run of trials, or of places, whose targets are summed first."""
        p, q = self.p, self._width - self.p
        are_places = self._source.are_places
        gatherings = [Gathering(p, q, not are_places) for _ in self._runs]

        def add(features: FloatArray, targets: FloatArray, weights: FloatArray) -> None:
            rows = np.hstack((features, features - targets[:, :p], targets[:, p:]))
            for gathering, run in zip(gatherings, self._runs, strict=True):
                gathering.add(rows[run], weights[run])

        sums, weights, layer = np.zeros((1, p + q)), np.zeros(1), None
        for layer, targets in steps:
            if are_places:
                sums = sums + layer.weights[:, None] * targets
                weights = weights + layer.weights
            else:
                add(layer.features, targets, layer.weights)
        if are_places and layer is not None:
            some = weights > 0.0
            add(layer.features[some], sums[some] / weights[some, None], weights[some])
        return [gathering.factor() for gathering in gatherings]


def solve_linked(
    source: Any, equations: Any, anchors: IntArray, zeros: FloatArray, with_open: bool = True
) -> list[list[Solved]]:
    """Return the windows of R linked systems, whose values at ``zeros`` (R, p) are 0.

    ``equations`` are `SingleSteps` or `Targets`. The first system has its open directions, too.
    """
    n, d = len(zeros), source.p - 1
    found: list[list[Solved]] = [[] for _ in range(n)]
    stops = [*anchors[1:].tolist(), source.t_max + 1]
    for start, stop in zip(anchors[::-1].tolist(), stops[::-1], strict=True):
        is_last, factor = stop > source.t_max, equations.window(start, stop)
        solved = solve_window(source, factor, is_last, with_open)
        columns = solved.weights[:, :, 0].T
        if with_open:
            null = solved.null[0][:, int(solved.rank[0] - solved.rank.min()) :]
            more = solved.weights[0, :, 1:], opened(null, source.coordinates)
            columns = np.hstack((columns, *more))
        if is_last or not source.constant:
            owner = [*range(n), *[0] * (columns.shape[1] - n)]  # open directions are the first's
            at_zero = zeros[owner, :d]
            columns = np.vstack((columns, -np.einsum("dq,qd->q", columns, at_zero)))
        columns = equations.close(columns)
        numbers = solved.rank.tolist(), solved.condition.tolist(), np.rint(factor.n).astype(int)
        for j, each in enumerate(zip(*numbers, strict=True)):
            own = columns[:, [j, *range(n, columns.shape[1] * (j == 0))]]
            found[j].append(Solved(own, *each))
    return [each[::-1] for each in found]


def solve_window(
    source: Any, factor: Factor, is_last: bool = True, with_open: bool = True
) -> Minimizer:
    """Return the minimizer of a window for all numbers; the last window has no constant."""
    size = source.p - 1 if is_last or not source.constant else source.p
    equations = factor.reduced(size, source.rcond)
    return minimize(equations, source.rcond, source.coordinates.metric, with_open)


def zero_of(source: Any, segments: Segments, anchor: int) -> FloatArray:
    """Return the features (..., p) whose value is 0: by default the mean of the tail."""
    zero, own = source.zero(anchor), segments.mean_of_tail[..., : source.p]
    return own if zero is None else np.broadcast_to(zero, own.shape)


def opened(null: FloatArray, coordinates: Coordinates) -> FloatArray:
    """Return the directions of a null space (d, q), orthonormal for features of size 1."""
    d, q = null.shape
    more = np.zeros((coordinates.turn.shape[-1] + 1 - d, q))
    R = np.linalg.qr(coordinates.scaled(np.vstack((null, more))))[1]
    return np.asarray(np.linalg.solve(R.T, null.T).T) if q else null


def compressed(
    columns: FloatArray, coordinates: Coordinates, n_values: int, numbers: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return fewer columns, and the matrix (before, after) that makes them.

    Open ones, after the first ``n_values``, stay if they change the window's weights or the given
    numbers (m, before) in targets. None is longer than 1.
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
