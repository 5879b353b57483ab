r"""Targets of several steps, followed backwards in time (see `lstd_agent.backups`).

A target is affine in the unknown weights of its window. One pass over the timesteps, from the last
to the first, gives the targets of every row,

.. math:: T_t = r_t - g \tau_t + P_t \left((1-\lambda) v_{t+1} + \lambda T_{t+1}\right) .

At the start of a window its weights are solved, and every term with them becomes a number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.backups import LambdaReturn, MultiStep
from lstd_agent.rows.factors import Factor, Gathering
from lstd_agent.rows.layers import Layer, Samples
from lstd_agent.system.linked import compressed, solve_window
from lstd_agent.system.minimizer import Minimizer

SeveralSteps = MultiStep | LambdaReturn


class Targets:
    """Equations of targets of R subsets of the trials (see `lstd_agent.system.linked.Equations`).

    Rows of trials serve several subsets in one pass: subsets share coefficients, and each has its
    own gain and column of numbers. ``runs`` of trials are gathered separately, and ``subsets``
    combines their factors. Counted states serve one ``group`` of batches, since frequencies differ
    between subsets.

    The first p columns of targets are coefficients of unknown weights, the next R numbers with
    rewards above the gains. The other columns belong to open directions.
    """

    def __init__(
        self,
        source: Samples,
        backup: SeveralSteps,
        gains: FloatArray,
        *,
        group: IntArray | None = None,
        runs: Sequence[slice] = (slice(None),),
        subsets: Callable[[Sequence[Factor]], list[Factor]] = list,
    ) -> None:
        self._source, self._backup, self._gains, self.p = source, backup, gains, source.p
        self._groups, self._runs = None if group is None else [group], runs
        self._subsets = subsets
        self._width = self.p + len(gains)
        self._values, self._worth, self._weights = np.zeros((3, 0))

    def window(self, start: int, stop: int) -> list[Factor]:
        """Return the factor of each subset."""
        return self._subsets(self._gathered(self._followed(start, stop)))

    def close(self, columns: FloatArray) -> FloatArray:
        """Insert the weights (p, R + q) of the window."""
        p, q = self.p, columns.shape[1]

        def solved(x: FloatArray) -> FloatArray:
            known = x[..., :p] @ columns
            known[..., : x.shape[-1] - p] += x[..., p:]
            return known

        values, worth = solved(self._values), solved(self._worth)
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
        """Return the factor of a window by itself, with targets up to the end of trials."""
        T = self._source.t_max
        [factor] = self._gathered(islice(self._followed(start, T + 1), T + 1 - stop, None))
        return factor

    def _followed(self, start: int, stop: int) -> Iterable[tuple[Layer, FloatArray]]:
        """Go back from before stop to start, and yield layers with their targets (m, width)."""
        for layer in self._source.layers(start, stop, self._groups):
            if not self._worth.size:
                self._values = self._unknown(layer.following)
                steps = self._backup.steps if isinstance(self._backup, MultiStep) else 1
                n_ahead = min(steps, self._source.t_max + 1)  # more steps all reach the end
                self._worth = np.repeat(self._values[:, None], n_ahead, axis=1)
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
        worth = np.array(layer.ahead(after)) if layer.P is None else layer.ahead(after)
        paid = layer.rewards[:, None] - layer.durations[:, None] * self._gains
        worth[:, :, self.p : self.p + len(self._gains)] += paid[:, None]
        own = self._unknown(layer.features)
        if not layer.goes_on.all():
            worth[~layer.goes_on] = own[~layer.goes_on, None]
        self._values, self._worth, self._weights = own, worth, layer.weights
        return np.asarray(worth[:, -1])

    def _gathered(self, steps: Iterable[tuple[Layer, FloatArray]]) -> list[Factor]:
        """Return the factor of each run of trials, or the one of places.

        Places have the same features at each timestep, so their targets are summed by place.
        """
        p, q = self.p, self._width - self.p
        are_trials = not self._source.are_places
        gatherings = [Gathering(p, q, are_trials) for _ in (self._runs if are_trials else [0])]

        def rows(features: FloatArray, targets: FloatArray) -> FloatArray:
            return np.hstack((features, features - targets[:, :p], targets[:, p:]))

        sums, weights, layer = np.zeros((1, p + q)), np.zeros(1), None
        for layer, targets in steps:
            if are_trials:
                found = rows(layer.features, targets)
                for gathering, run in zip(gatherings, self._runs, strict=True):
                    gathering.add(found[run], layer.weights[run])
            else:
                sums = sums + layer.weights[:, None] * targets
                weights = weights + layer.weights
        if not are_trials and layer is not None:
            some = weights > 0.0
            targets = sums[some] / weights[some, None]
            gatherings[0].add(rows(layer.features[some], targets), weights[some])
        return [gathering.factor() for gathering in gatherings]


def window_by_targets(
    source: Samples, start: int, stop: int, gain: float, backup: SeveralSteps
) -> tuple[Minimizer, float]:
    """Return the minimizer of a window by itself, and its number of samples."""
    factor = Targets(source, backup, np.array([gain])).alone(start, stop)
    return solve_window(source, factor, [0], True), factor.n
