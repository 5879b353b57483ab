r"""Targets of several steps, followed backwards in time (see `lstd_agent.backups`).

A target is affine in the unknown weights of its window. One pass over the timesteps, from the last
to the first, gives the targets of every row,

.. math:: T_t = r_t - g \tau_t + P_t \left((1-\lambda) v_{t+1} + \lambda T_{t+1}\right) .

Where a window ends, its weights are solved for, and everything by them becomes a number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.backups import LambdaReturn, MultiStep
from lstd_agent.rows.factors import Factor, Gathering
from lstd_agent.rows.layers import Layer, Samples
from lstd_agent.system.minimizer import Minimizer, minimize
from lstd_agent.system.solution import Solved, compressed, opened

SeveralSteps = MultiStep | LambdaReturn


class Targets:
    """Targets of one timestep after the other, backwards.

    The first p columns are coefficients of unknown weights, the others are numbers. Rewards above
    the gains are added to the first of these; any others belong to open directions.

    Parameters
    ----------
    backup : MultiStep or LambdaReturn
    gains : ndarray, shape (q,)
        Of each column of numbers.
    features : ndarray, shape (m, p)
        Of what follows the last timestep.
    n_back : int
        How many timesteps there are to go back: targets of more steps all reach the end.
    """

    def __init__(
        self, backup: SeveralSteps, gains: FloatArray, features: FloatArray, n_back: int
    ) -> None:
        self._backup, self._gains, self.p = backup, gains, features.shape[1]
        self._width = self.p + len(gains)
        self._values = self._unknown(features)
        n_ahead = min(backup.steps, n_back) if isinstance(backup, MultiStep) else 1
        self._worth = np.repeat(self._values[:, None], n_ahead, axis=1)

    def _unknown(self, features: FloatArray) -> FloatArray:
        """Return the values of rows by unknown weights alone."""
        own = np.zeros((len(features), self._width))
        own[:, : self.p] = features
        return own

    def back(self, layer: Layer) -> FloatArray:
        """Go back to a layer, and return its targets (m, width)."""
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
        self._values, self._worth = own, worth
        return np.asarray(worth[:, -1])

    def solve(self, columns: FloatArray) -> None:
        """Make numbers of everything by the weights (p, q) of the window."""
        p, q = self.p, columns.shape[1]

        def solved(x: FloatArray) -> FloatArray:
            known = x[..., :p] @ columns
            known[..., : x.shape[-1] - p] += x[..., p:]
            return np.concatenate((np.zeros((*x.shape[:-1], p)), known), axis=-1)

        self._values, self._worth = solved(self._values), solved(self._worth)
        self._width = p + q

    def turn(self, turn: FloatArray) -> None:
        """Take fewer columns of numbers: the present ones times a matrix."""
        p = self.p

        def turned(x: FloatArray) -> FloatArray:
            return np.concatenate((x[..., :p], x[..., p:] @ turn), axis=-1)

        self._values, self._worth = turned(self._values), turned(self._worth)
        self._width = p + turn.shape[1]

    @property
    def numbers(self) -> FloatArray:
        """The numbers (m', q) in targets, those of fewer steps included."""
        return np.asarray(self._worth[..., self.p :].reshape(-1, self._width - self.p))


class _TargetRows:
    """Adds up targets: those of places by place, since their features are always the same."""

    def __init__(self, source: Samples, groups: Sequence[slice]) -> None:
        self._source, self._groups = source, groups
        self._rows: list[list[FloatArray]] = [[] for _ in groups]
        self._gatherings: list[Gathering] = []
        self._sums: FloatArray | None = None
        self._features, self._weights = np.zeros(0), np.zeros(0)

    def add(self, layer: Layer, targets: FloatArray) -> None:
        """Add a timestep."""
        if self._source.are_places:
            weighted = layer.weights[:, None] * targets
            self._sums = weighted if self._sums is None else self._sums + weighted
            self._weights = self._weights + layer.weights if self._weights.size else layer.weights
            self._features = layer.features
            return
        rows = self._of(layer.features, targets)
        if not self._gatherings:
            q = targets.shape[1] - self._source.p
            self._gatherings = [Gathering(self._source.p, q, True) for _ in self._groups]
        for gathering, group in zip(self._gatherings, self._groups, strict=True):
            gathering.add(rows[group], layer.weights[group])

    def factors(self) -> list[Factor]:
        """Return the factor of each group."""
        if self._sums is not None:
            some = self._weights > 0.0
            weights = self._weights[some]
            targets = self._sums[some] / weights[:, None]
            gathering = Gathering(self._source.p, targets.shape[1] - self._source.p)
            gathering.add(self._of(self._features[some], targets), weights)
            return [gathering.factor()]
        return [gathering.factor() for gathering in self._gatherings]

    def _of(self, features: FloatArray, targets: FloatArray) -> FloatArray:
        p = self._source.p
        return np.hstack((features, features - targets[:, :p], targets[:, p:]))


def linked_by_targets(
    source: Samples,
    anchors: IntArray,
    backup: SeveralSteps,
    gains: FloatArray,
    zeros: FloatArray,
    *,
    group: IntArray | None = None,
    groups: Sequence[slice] = (slice(None),),
    subsets: Callable[[Sequence[Factor]], list[Factor]] = list,
    directions: bool = True,
) -> list[list[Solved]]:
    """Return the windows of linked systems (see `lstd_agent.system.linked`).

    Rows of trials serve several subsets of the trials in one pass: they share the coefficients of
    the last window, and each subset has a column of numbers. Counted states have other frequencies
    in another subset, and serve one ``group`` of batches.

    Parameters
    ----------
    source : Samples
    anchors : ndarray of int, shape (K,)
    backup : MultiStep or LambdaReturn
    gains : ndarray, shape (R,)
        Of each subset.
    zeros : ndarray, shape (R, p)
        Features whose value is 0, of each subset.
    group : ndarray of int, optional
        Batches of counts, by default all.
    groups : sequence of slice
        Runs of trials that are gathered apart.
    subsets : callable
        The factors of groups to those of R subsets.
    directions : bool
        Whether to keep track of what the samples of the first subset leave open.
    """
    n, d = len(gains), source.p - 1
    found: list[list[Solved]] = [[] for _ in range(n)]
    stops = [*anchors[1:].tolist(), source.t_max + 1]
    targets: Targets | None = None
    for start, stop in zip(anchors[::-1].tolist(), stops[::-1], strict=True):
        rows = _TargetRows(source, groups)
        for layer in source.layers(start, stop, None if group is None else [group]):
            if targets is None:
                targets = Targets(backup, gains, layer.following, source.t_max + 1)
            rows.add(layer, targets.back(layer))
        assert targets is not None
        is_last = stop > source.t_max
        factors = subsets(rows.factors())
        n_numbers = factors[0].held.shape[1] - 2 * source.p
        solved = [
            _minimizer(
                source,
                each,
                [j, *range(n, n_numbers * (j == 0))],
                is_last,
                directions and j == 0,
            )
            for j, each in enumerate(factors)
        ]
        first = solved[0].weights
        columns = np.hstack([*(each.weights[:, :1] for each in solved), first[:, 1:]])
        if directions:
            columns = np.hstack((columns, opened(solved[0], source.coordinates)))
        if is_last or not source.constant:
            owner = np.minimum(np.arange(columns.shape[1]), n)  # open directions are the first's
            at_zero = zeros[np.where(owner < n, owner, 0), :d]
            columns = np.vstack((columns, -np.einsum("dq,qd->q", columns, at_zero)))
        targets.solve(columns)
        columns, turn = compressed(columns, source.coordinates, n, _open_numbers(layer, targets))
        targets.turn(turn)
        for j, (each, factor) in enumerate(zip(solved, factors, strict=True)):
            own = columns[:, [j, *range(n, columns.shape[1] * (j == 0))]]
            found[j].append(Solved(own, each.rank, each.condition, round(factor.n)))
    return [each[::-1] for each in found]


def _minimizer(
    source: Samples, factor: Factor, sides: list[int], is_last: bool, directions: bool = True
) -> Minimizer:
    """Return the minimizer of a window, the last one of which has no constant."""
    size = source.p - 1 if is_last or not source.constant else source.p
    equations = factor.reduced(size, source.rcond)
    equations = equations._replace(c=equations.c[:, sides])
    metric = source.coordinates.metric
    return minimize(equations, source.rcond, metric, directions=directions)


def _open_numbers(layer: Layer, targets: Targets) -> FloatArray:
    """Return the numbers in the targets of a window's first timestep, root-weighted."""
    numbers = targets.numbers
    n_ahead = len(numbers) // len(layer.weights)
    root = np.sqrt(layer.weights / max(float(layer.weights.sum()), 1e-300))
    return np.asarray(np.repeat(root, n_ahead)[:, None] * numbers)


def window_by_targets(
    source: Samples, start: int, stop: int, gain: float, backup: SeveralSteps
) -> tuple[Minimizer, float]:
    """Return the minimizer of a window by itself, and its number of samples.

    Its targets run on to the end of the trials.
    """
    targets: Targets | None = None
    rows = _TargetRows(source, [slice(None)])
    for i, layer in enumerate(source.layers(start, source.t_max + 1)):
        if targets is None:
            targets = Targets(backup, np.array([gain]), layer.following, source.t_max + 1)
        target = targets.back(layer)
        if source.t_max - i < stop:
            rows.add(layer, target)
    [factor] = rows.factors()
    return _minimizer(source, factor, [0], True), factor.n


def forever(source: Samples, layer: Layer, gain: float, backup: SeveralSteps) -> Minimizer:
    """Return the minimizer of a layer of places that is its own next one for ever after."""
    decay = backup.decay if isinstance(backup, LambdaReturn) else 0.0
    n = backup.steps if isinstance(backup, MultiStep) else 1
    if decay > 0.0:
        n = int(np.ceil(np.log(1e-17) / np.log(decay))) if decay < 1.0 else 10**6
    targets = Targets(backup, np.array([gain]), layer.following, n)
    rows = _TargetRows(source, [])
    for _ in range(n):
        target = targets.back(layer)
    rows.add(layer, target)
    return _minimizer(source, rows.factors()[0], [0], True)
