r"""What crosses from one neighbourhood of a linked system into the one before it.

Targets of several steps are affine in weights that are unknown until their window is solved; then
they become numbers, with a column for the value and one for each direction that is left open.
Two ways to the equations of a window, and to those numbers:

- `WalkedTargets` follow the targets themselves over the rows of a walk
  (`lstd_agent.statistics.walks`);
- `SummedTargets` are λ-returns along kept trials, of which whatever hangs on no number is summed
  once (`lstd_agent.statistics.return_moments`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.statistics.backups import LambdaReturn, MultiStep, Targets
from lstd_agent.statistics.blocks import Block
from lstd_agent.statistics.equations import Equations, FeatureBasis, Moments
from lstd_agent.statistics.interface import Statistics, Walk, WindowSums
from lstd_agent.statistics.return_moments import ReturnMoments, ReturnSums

# Blocks of timesteps have no more numbers than this, if all states were visited at each.
_MOST_AT_ONCE = 2**24


class Crossing(Protocol):
    """The windows of a linked system, one after the other backwards in time."""

    def equations(self, window: IntArray) -> Equations:
        """Return the equations of the next window, with numbers for what comes after it."""

    def solve(self, columns: FloatArray) -> FloatArray:
        """Make targets numbers, by the window's weights as columns (d + 1, q).

        Returns those of the first timestep's samples (k, q), weighted like them.
        """

    def cross(self, columns: FloatArray, turn: FloatArray) -> None:
        """Go on to the window before, with columns (d + 1, p) that are turned by (q, p)."""


def crossing_of(
    statistics: Statistics,
    backup: MultiStep | LambdaReturn,
    gain: float,
    rcond: float,
) -> Crossing:
    """Return the way for a backup."""
    walk = statistics.walk(rcond)
    if isinstance(backup, LambdaReturn) and walk.returns is not None:
        return SummedTargets(walk.returns, statistics, backup.decay, gain)
    return WalkedTargets(walk, statistics, backup, gain)


class WalkedTargets:
    """Targets that are followed over the rows of a walk."""

    def __init__(
        self, walk: Walk, statistics: Statistics, backup: MultiStep | LambdaReturn, gain: float
    ) -> None:
        self._walk, self._intercept = walk, statistics.intercept
        self._basis, self._n_columns = walk.basis(intercept=False), 1
        end = statistics.t_max + 1
        # Of what comes after a window: at the end of trials, too, targets are those of the window.
        self._values = walk.unknown(end, self._basis, 1)
        self._targets = Targets(backup, gain, self._values, self._basis.U.shape[1], end)

    def equations(self, window: IntArray) -> Equations:
        """Return the equations of a window; see `Crossing`."""
        sums = self._walk.sums(self._basis, self._values.shape[1])
        self._first = go_back(
            self._walk, self._targets, window, self._values, self._basis, self._n_columns, [sums]
        )
        return sums.equations()

    def solve(self, columns: FloatArray) -> FloatArray:
        """Make targets numbers; see `Crossing`."""
        self._worth = _numbers(self._targets.worth, columns, self._basis, self._intercept)
        n = self._first.n_first
        states, visits = self._first.state[:n], self._first.visits[:n]
        root = np.sqrt(visits / visits.sum())[:, None]
        return np.asarray((root * self._worth[:, states]).reshape(-1, self._worth.shape[-1]))

    def cross(self, columns: FloatArray, turn: FloatArray) -> None:
        """Go on to the window before; see `Crossing`."""
        if len(self._basis.V) < len(columns):
            self._basis = self._walk.basis(intercept=True)
        basis, self._n_columns = self._basis, columns.shape[1]
        self._targets.restart(_after_unknowns(self._worth @ turn, basis), basis.U.shape[1])
        linear = self._walk.features(self._first.start) @ columns[:-1]
        self._values = _after_unknowns(linear + self._intercept * columns[-1], basis)


class SummedTargets:
    """λ-returns along kept trials, by the sums of their batches."""

    def __init__(
        self, parts: Sequence[ReturnMoments], statistics: Statistics, decay: float, gain: float
    ) -> None:
        self._parts, self._decay, self._gain = parts, decay, gain
        self._scale, self._intercept = statistics.feature_scale, statistics.intercept
        self._beyond: FloatArray | None = None
        """What trials are worth beyond the window, (m, q); the last window has nothing beyond."""

    def equations(self, window: IntArray) -> Moments:
        """Return the equations of a window; see `Crossing`."""
        start, stop = window.tolist()
        beyond, is_last = self._beyond, self._beyond is None
        sums = self._sums = ReturnSums.together(
            [
                part.over(start, stop, self._decay, self._intercept, is_last=is_last)
                for part in self._parts
            ]
        )
        y = (sums.y @ [1.0, -self._gain])[:, None]
        if beyond is not None:
            carried = sums.carried.T @ beyond
            y = np.hstack((y + carried[:, :1], carried[:, 1:]))
        r, n = len(y) - is_last, sums.n_samples
        X, Z, y = sums.X[:r, :r] / n, sums.Z[:r, :r] / n, y[:r] / n
        return Moments(X[None], Z[None], y[None], np.array([n]), self._scale[:r])

    def solve(self, columns: FloatArray) -> FloatArray:
        """Make targets numbers; see `Crossing`."""
        sums = self._sums
        worth = sums.inside @ columns
        worth[:, 0] += sums.paid @ [1.0, -self._gain]
        if self._beyond is not None:
            worth[:, : self._beyond.shape[1]] += sums.share[:, None] * self._beyond
        self._beyond = worth
        return np.asarray(worth[sums.begins] / np.sqrt(sums.begins.sum()))

    def cross(self, columns: FloatArray, turn: FloatArray) -> None:
        """Go on to the window before; see `Crossing`."""
        assert self._beyond is not None
        self._beyond = self._beyond @ turn


def go_back(
    walk: Walk,
    targets: Targets,
    window: IntArray,
    values: FloatArray,
    basis: FeatureBasis,
    n_columns: int,
    sums: Sequence[WindowSums],
) -> Block:
    """Add the targets of timesteps to sums, from values after them; return the first block."""
    size = max(1, _MOST_AT_ONCE // values.size)
    start, stop = window.tolist()
    while True:
        block = walk.block(max(start, stop - size), stop)
        unknown = walk.unknown(block.start, basis, n_columns)
        worth = targets.go_back(block, values, unknown)
        for each in sums:
            each.add(block, worth)
        values, stop = unknown, block.start
        if stop == start:
            return block


def _numbers(
    worth: FloatArray, columns: FloatArray, basis: FeatureBasis, intercept: float
) -> FloatArray:
    """Return targets, which are affine in weights of the basis, as numbers of columns (d + 1, q).

    The offset of the last window is none of those weights.
    """
    d, r = basis.V.shape
    worth_of_weights = worth[..., :r] @ (basis.singular[:, None] * (basis.V.T @ columns[:d]))
    known = np.zeros(worth_of_weights.shape)
    known[..., : worth.shape[-1] - r] = worth[..., r:]
    if d < len(columns):
        return np.asarray(worth_of_weights + known + intercept * columns[-1])
    return np.asarray(worth_of_weights + known)


def _after_unknowns(numbers: FloatArray, basis: FeatureBasis) -> FloatArray:
    """Put numbers behind coefficients of unknowns, which are zero."""
    return np.concatenate((np.zeros((*numbers.shape[:-1], basis.U.shape[1])), numbers), axis=-1)
