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

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray, svd
from lstd_agent.backups import LambdaReturn, MultiStep
from lstd_agent.rows.factors import (
    Coordinates,
    Factor,
    Layer,
    Segments,
    factor_of_rows,
    stacked,
)
from lstd_agent.system.minimizer import Minimizer, Solved, minimize

# Smaller open directions, for features of size 1, do not matter; rows that are multiplied at once.
OPEN, _ROWS = 1e-8, 1024


class SingleSteps:
    """Equations of single steps of R subsets of the trials, for windows backwards in time."""

    def __init__(self, source: Any, segments: Segments, gains: FloatArray) -> None:
        self._coordinates, self._segments, self._gains = source.coordinates, segments, gains
        self._following: FloatArray | None = None

    def window(self, start: int, stop: int) -> Factor:
        """Return the factors (R, 1): numbers are each one's own, then open directions."""
        factor = self._segments.window(start, stop, self._gains, self._following)
        return factor[:, None]

    def close(self, solved: list[FloatArray]) -> list[FloatArray]:
        """Go on to the window before, by weights (p, R + q) of this one."""
        n = len(self._gains)
        columns, _ = compressed(solved[0], self._coordinates, n)
        own = [[j, *range(n, columns.shape[1])] for j in range(n)]
        self._following = columns.T[own].swapaxes(1, 2)
        return [columns]


class Targets:
    r"""Equations of targets of R subsets of the trials, for windows backwards in time.

    There are K backups: λ-returns, or one of m steps. What is carried back is by how much values
    exceed targets, :math:`D_t = v_t - T_t`, since :math:`D_t = v_t - r_t + g \tau_t - P_t
    (v_{t+1} - \lambda D_{t+1})`. Its first p columns are coefficients of unknown weights, which
    subsets of trials share, the next R numbers with rewards above each one's gain, and the others
    belong to open directions. ``runs`` of trials are gathered separately; ``members`` (R, n) says
    which of them a subset has. Counted states serve one ``group``, since frequencies differ.
    """

    def __init__(
        self,
        source: Any,
        backups: Sequence[MultiStep | LambdaReturn],
        gains: FloatArray,
        *,
        group: IntArray | None = None,
        runs: Sequence[slice] = (slice(None),),
        members: FloatArray | None = None,
    ) -> None:
        self._source, self._gains, self.p, first = source, gains, source.p, backups[0]
        self._groups, self._runs = None if group is None else [group], runs
        self._members = np.ones((1, 1)) if members is None else members
        self._width = self.p + len(gains)
        steps = min(first.steps, source.t_max + 1) if isinstance(first, MultiStep) else 1
        decays = [each.decay for each in backups if isinstance(each, LambdaReturn)]
        self._decays, self._several = np.reshape(decays, (-1, 1, 1, 1)), (len(backups), steps)
        self._values, self._off, self._weights = np.zeros((3, 0))  # of the rows of the last layer

    def window(self, start: int, stop: int) -> Factor:
        """Return the factors (R, K): numbers are each one's own, then open directions."""
        factor = self._gathered(self._followed(start, stop)).combined(self._members)
        n, x = np.arange(len(self._gains)), factor.numbers
        parts = factor.held[..., : 2 * self.p], x[n, ..., n][..., None], x[..., len(n) :]
        return replace(factor, held=np.concatenate(parts, axis=-1))

    def close(self, solved: list[FloatArray]) -> list[FloatArray]:
        """Insert the weights (p, R + q) of the window, by each backup."""
        p, before, each = self.p, self._width, []
        # Open directions matter through the root-weighted targets of the window's first timestep.
        root = np.sqrt(self._weights / max(float(self._weights.sum()), 1e-300))[:, None]
        for columns, off in zip(solved, self._off, strict=True):
            inserted = np.vstack((columns, np.eye(before - p, columns.shape[1])))
            numbers = np.concatenate(root * ((self._values - off) @ inserted))
            how = self._source.coordinates, len(self._gains), numbers
            fewer, turn = compressed(columns, *how)
            each.append((fewer, inserted @ turn))
        self._width = p + max(turn.shape[1] for _, turn in each)
        turns = np.zeros((len(each), 1, before, self._width))
        for place, (_, turn) in zip(turns[:, 0, :, p:], each, strict=True):
            place[:, : turn.shape[1]] = turn
        self._values, self._off = self._values @ turns, self._off @ turns
        return [columns for columns, _ in each]

    def alone(self, start: int, stop: int) -> Factor:
        """Return the factor of a window by itself; targets reach to the end of trials."""
        end = self._source.t_max + 1
        return self._gathered(islice(self._followed(start, end), end - stop, None))[0, 0]

    def _followed(self, start: int, stop: int) -> Iterable[tuple[Layer, FloatArray]]:
        """Go back from before stop to start, and yield layers with their D (K, m, width)."""
        for layer in self._source.layers(start, stop, self._groups):
            if not self._off.size:
                self._values = self._unknown(layer.following)
                self._off = np.zeros((*self._several, *self._values.shape))
            yield layer, self._back(layer)

    def _unknown(self, features: FloatArray) -> FloatArray:
        """Return the values of rows by unknown weights alone."""
        own = np.zeros((len(features), self._width))
        own[:, : self.p] = features
        return own

    def _back(self, layer: Layer) -> FloatArray:
        if self._decays.size:
            off = self._decays * self._off
        else:
            off = np.concatenate((np.zeros_like(self._off[:, :1]), self._off[:, :-1]), axis=1)
        off -= self._values
        off = layer.ahead(off)
        self._values = self._unknown(layer.features)
        off += self._values
        paid = layer.rewards[:, None] - layer.durations[:, None] * self._gains
        off[..., self.p : self.p + len(self._gains)] -= paid
        if not layer.goes_on.all():
            off[..., ~layer.goes_on, :] = 0.0
        self._off, self._weights = off, layer.weights
        return np.asarray(off[:, -1])

    def _gathered(self, steps: Iterable[tuple[Layer, FloatArray]]) -> Factor:
        """Return the factors (n, K) of runs of trials, or of places, summed over time first."""
        p, w, found = self.p, self._width, None
        if self._source.are_places:
            sums, weights = np.zeros((1, w)), np.zeros(1)
            for layer, off in steps:
                sums = sums + layer.weights[:, None] * off
                weights = weights + layer.weights
            mean = sums / np.where(weights > 0.0, weights, 1.0)[:, None]
            found = stacked([factor_of_rows(layer.features, mean, weights)])
        else:
            steps, size = iter(steps), _ROWS * len(self._runs) // self._source.n_trials
            while some := list(islice(steps, max(1, size))):
                each = []
                for run in self._runs:
                    f, n = (
                        np.concatenate([getattr(layer, name)[run] for layer, _ in some])
                        for name in ("features", "weights")
                    )
                    off = np.concatenate([off[:, run] for _, off in some], axis=1)
                    each.append(factor_of_rows(f, off, n, are_products=True))
                more = stacked(each)
                found = more if found is None else found + more
        assert found is not None  # there is a timestep
        sign = np.append(np.ones(2 * p), -np.ones(w - p))  # targets are minus the numbers of D
        return replace(found, held=found.held * sign, sums=found.sums * sign)


def solve_linked(
    source: Any, equations: Any, anchors: IntArray, zeros: FloatArray, with_open: bool = True
) -> list[list[list[Solved]]]:
    """Return the windows of linked systems, by K backups of R subsets, 0 at ``zeros`` (R, p).

    ``equations`` are `SingleSteps` or `Targets`. The first subset has its open directions, too.
    """
    n, d, found = len(zeros), source.p - 1, list[list[list[Solved]]]()
    stops = [*anchors[1:].tolist(), source.t_max + 1]
    for start, stop in zip(anchors[::-1].tolist(), stops[::-1], strict=True):
        is_last, factor = stop > source.t_max, equations.window(start, stop)
        solved, every = solve_window(source, factor, is_last, with_open), []
        n_samples = np.rint(factor.n).astype(int)
        for k in range(n_samples.shape[1]):
            columns = solved.weights[:, k, :, 0].T
            if with_open:
                null = solved.null[0, k][:, int(solved.rank[0, k] - solved.rank.min()) :]
                more = solved.weights[0, k, :, 1:], opened(null, source.coordinates)
                columns = np.hstack((columns, *more))
            if is_last or not source.constant:
                owner = [*range(n), *[0] * (columns.shape[1] - n)]  # open directions: the first's
                at_zero = zeros[owner, :d]
                columns = np.vstack((columns, -np.einsum("dq,qd->q", columns, at_zero)))
            every.append(columns)
        found = found or [[[] for _ in range(n)] for _ in every]
        for k, columns in enumerate(equations.close(every)):
            numbers = (x[:, k].tolist() for x in (solved.rank, solved.condition, n_samples))
            for j, each in enumerate(zip(*numbers, strict=True)):
                own = columns[:, [j, *range(n, columns.shape[1] * (j == 0))]]
                found[k][j].append(Solved(own, *each))
    return [[windows[::-1] for windows in each] for each in found]


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
