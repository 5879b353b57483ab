r"""Standard errors by leaving out batches of trials (jackknife).

The same system, with the same windows and reference states, is fitted without batch b, for each of
B batches. Batch b has n_b of N trials. Its pseudo-value, with v the value of all trials,

.. math:: v_b = v + \frac{N - n_b}{n_b} (v - v_{-b}),

is the batch's own mean if v is a mean. It has variance σ²/n_b if v has σ²/N. Therefore

.. math:: \widehat{se}^2 = \frac{1}{(B - 1) N} \sum_b n_b (v_b - \bar v)^2,
          \quad \bar v = \sum_b \frac{n_b}{N} v_b .

Trials are independent; transitions are not. Offsets and an estimated gain are part of v, so that
the error of a value includes theirs. An error of few batches is itself uncertain: intervals take
Student's t with B - 1 degrees of freedom.

Source: Busing, Meijer & van der Leeden (1999), the delete-m_j jackknife.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from lstd_agent.arrays import BoolArray, FloatArray, IntArray, States
from lstd_agent.errors import NotFittedError
from lstd_agent.fit_options import (
    FitOptions,
    Fitted,
    calibrated,
    in_features,
    with_offsets,
)
from lstd_agent.rows.factors import Factor, Segments, total
from lstd_agent.rows.layers import Layer
from lstd_agent.system.approximators import System
from lstd_agent.system.gain import Gain, mean_reward
from lstd_agent.system.linked import Solved
from lstd_agent.system.model import PooledModel, pooled_model, solve_model
from lstd_agent.system.selection import OPEN_TOLERANCE
from lstd_agent.system.solve import Kind, Subsets
from lstd_agent.system.sparse import (
    SparseRows,
    SparseSystem,
    gains_without_each,
    solve_sparse,
)


def batch_standard_errors(
    values: FloatArray, without: FloatArray, n_trials: IntArray
) -> FloatArray:
    """Return standard errors (m,) of values (m,) from values without each batch (B, m)."""
    weight = n_trials / n_trials.sum()
    means = values + (1.0 / weight - 1.0)[:, None] * (values - without)
    deviation = means - weight @ means
    return np.asarray(np.sqrt(weight @ deviation**2 / (len(means) - 1)))


def quantile_of_t(level: float, degrees: int) -> float:
    """Return how many standard errors a two-sided interval of a level spans to each side."""
    from scipy.special import stdtrit  # takes long to import

    return float(stdtrit(degrees, 0.5 + level / 2.0))


def start_bias(
    solved: Sequence[Solved], anchors: IntArray, segments: Segments, gain: Gain
) -> float:
    """Return the mean value of the start minus the mean value of the long run.

    The long run is the mean over the rows that determine the gain or, for a given gain, over the
    tail, weighted by samples.
    """
    T = int(segments.edges[-1]) - 1

    def mean(start: int, stop: int) -> float:
        i, j = np.searchsorted(segments.edges, (start, stop))
        value, n = 0.0, 0.0
        for t, run in zip(segments.edges[i:j].tolist(), segments.factors[i:j], strict=True):
            k = int(np.searchsorted(anchors, t, side="right")) - 1
            for factor in run:
                value += float(factor.sums[: factor.p] @ solved[k].columns[:, 0])
                n += factor.n
        return value / max(n, 1.0)

    if gain.settled is not None:
        return mean(0, 1) - float(gain.settled @ solved[-1].columns[:, 0])
    return mean(0, 1) - mean((T + 1) // 2, T + 1)


@dataclass(frozen=True, eq=False)
class Jackknife:
    """A fitted system without each batch of the trials of a source."""

    fitted: Fitted
    source: Any
    options: FitOptions
    n_batches: int

    @cached_property
    def subsets(self) -> Subsets:
        """The batches without each one."""
        self._check_batches()
        assert self.fitted.subsets is not None
        return self.fitted.subsets.those("others")

    def _check_batches(self) -> None:
        if self.n_batches < 2:
            raise NotFittedError(
                f"standard errors compare batches of trials, and there is {self.n_batches}: with "
                "n_batches > 1, collect several trials, or add counts in several portions (20 are "
                "good), then fit"
            )

    @cached_property
    def n_trials(self) -> IntArray:
        """Of each batch, shape (B,)."""
        return np.asarray(self.source.sizes(self.source.groups(self.n_batches)))

    @cached_property
    def _gains(self) -> list[Gain]:
        """The gain without each batch, by the rows that gave the gain of all trials."""
        gain, subsets = self.fitted.gain, self.subsets
        if self.options.gain is not None:
            return [gain] * self.n_batches
        if gain.rows == "given" or gain.rows == "mean":
            means = [mean_reward(each) for each in subsets.segments]
            return [Gain(each, "mean") for each in means]
        return subsets.gains(gain.rows)

    @cached_property
    def gains(self) -> list[float]:
        """The gain without each batch."""
        return [gain.value for gain in self._gains]

    @cached_property
    def solved(self) -> list[list[Solved]]:
        """The windows without each batch."""
        system, subsets = self.fitted.system, self.subsets
        if self.options.calibration == "references":
            return [
                self.options.solve_windows(self.source, segments, system.windows, gain)
                for segments, gain in zip(subsets.segments, self.gains, strict=True)
            ]
        return subsets.solve(
            system.anchors, self.gains, self.fitted.choice.backup, directions=False
        )

    @cached_property
    def systems(self) -> list[System]:
        """The system without each batch."""
        found = []
        for solved, gain in zip(self.solved, self.gains, strict=True):
            columns = np.stack([in_features(self.source, each.columns)[:, 0] for each in solved])
            system = replace(
                self.fitted.system, weights=columns[:, :-1], offsets=columns[:, -1], gain=gain
            )
            if self.options.calibration == "references":
                system = calibrated(system, self.source, self.options.reference)
            found.append(system)
        return found

    def errors(self, estimate: Callable[[System], FloatArray]) -> FloatArray:
        """Return standard errors (m,) of an estimate from a system."""
        without = np.stack([estimate(system) for system in self.systems])
        return batch_standard_errors(estimate(self.fitted.system), without, self.n_trials)

    @property
    def gain_error(self) -> float:
        """Standard error of the gain; 0 where it was given."""
        return self._error(self.fitted.gain.value, self.gains)

    @property
    def _whole(self) -> Segments:
        """The factors of all trials."""
        assert self.fitted.segments is not None
        return self.fitted.segments

    @property
    def start_bias(self) -> float:
        """The mean value of the start minus the mean value of the tail."""
        fitted = self.fitted
        return start_bias(fitted.solved, fitted.system.anchors, self._whole, fitted.gain)

    @property
    def start_bias_error(self) -> float:
        """Standard error of the start's mean bias."""
        anchors = self.fitted.system.anchors
        without = [
            start_bias(solved, anchors, segments, gain)
            for solved, segments, gain in zip(
                self._calibrated, self.subsets.segments, self._gains, strict=True
            )
        ]
        return self._error(self.start_bias, without)

    @property
    def start_value_error(self) -> float:
        """Standard error of the mean value of the start."""
        # The starts of all trials: a batch may have other starts.
        first = total(self._whole.between(0, 1))
        mean = first.sums[: first.p] / max(first.n, 1.0)
        without = [float(mean @ solved[0].columns[:, 0]) for solved in self._calibrated]
        return self._error(float(mean @ self.fitted.solved[0].columns[:, 0]), without)

    @property
    def _calibrated(self) -> list[list[Solved]]:
        """The windows without each batch, with the offsets of systems."""
        return [
            with_offsets(solved, system.offsets)
            for solved, system in zip(self.solved, self.systems, strict=True)
        ]

    def _error(self, whole: float, without: Sequence[float]) -> float:
        found = batch_standard_errors(np.array([whole]), np.array(without)[:, None], self.n_trials)
        return float(found[0])

    def seen_without_each(self, states: States, neighborhood: IntArray) -> BoolArray:
        """Whether states (m,) were seen in more than one batch."""
        windows, place = self.fitted.system.windows, np.arange(len(states))
        seen = np.ones(len(states), dtype=bool)
        for by, group in self._parts:
            samples = self.source.samples_of(windows, by, group)
            seen &= samples(states)[neighborhood, place] > 0.0
        if self.fitted.choice.backup == "model":
            for source, gain in zip(self._sources, self.gains, strict=True):
                seen &= self.model(source, gain).open_share[states] <= OPEN_TOLERANCE
        return seen

    @property
    def _parts(self) -> list[tuple[Any, Any]]:
        """The evidence without each batch and, for counts, the other batches."""
        windows, subsets = self.fitted.system.windows, self.subsets
        if not all(_has_each_window(segments, windows) for segments in subsets.segments):
            return [(segments, np.zeros(0, dtype=np.int64)) for segments in subsets.segments]
        return list(zip(subsets.segments, subsets.groups, strict=True))

    @cached_property
    def _sources(self) -> list[Any]:
        """Counts without each batch."""
        return [self.subsets.part(b) for b in range(self.n_batches)]

    def model(self, source: Any, gain: float) -> PooledModel:
        """Return the pooled model of counts, relative to the main state of all trials."""
        return pooled_model(
            source, gain, self.source.main_state(int(self.fitted.system.anchors[-1]))
        )


class SparseJackknife(Jackknife):
    """The jackknife of many sparse features."""

    @cached_property
    def _gains(self) -> list[Gain]:
        self._check_batches()
        gain = self.fitted.gain
        if self.options.gain is not None:
            return [gain] * self.n_batches
        if self.fitted.sparse is not None:
            rows = self.fitted.sparse[0]
        else:
            rows = SparseRows(self.source, self.fitted.system.anchors.tolist(), self.n_batches)
        return gains_without_each(rows, gain)

    @cached_property
    def _solved_sparsely(self) -> list[SparseSystem]:
        assert self.fitted.sparse is not None
        rows, whole = self.fitted.sparse
        return [solve_sparse(rows, gain, whole, b) for b, gain in enumerate(self.gains)]

    @cached_property
    def solved(self) -> list[list[Solved]]:
        """The windows without each batch."""
        if self.fitted.sparse is not None:
            return [system.solved for system in self._solved_sparsely]
        windows = self.fitted.system.windows
        return [
            solve_model(source, windows, self.model(source, gain))
            for source, gain in zip(self._sources, self.gains, strict=True)
        ]

    @cached_property
    def _by_batch(self) -> Segments:
        """Sums of features, with a final 1 for the offset."""
        half, T = (self.source.t_max + 1) // 2, self.source.t_max
        edges = np.unique([*self.fitted.system.anchors.tolist(), 0, 1, half, T + 1])
        groups = self.source.groups(self.n_batches)
        factors = [
            [_sums_of(self.source.merged(a, b, group)) for group in groups]
            for a, b in pairwise(edges.tolist())
        ]
        return Segments(edges, factors)

    @cached_property
    def _whole(self) -> Segments:
        return self._of_batches("whole").segments[0]

    @cached_property
    def subsets(self) -> Subsets:
        """The batches without each one."""
        self._check_batches()
        return self._of_batches("others")

    def _of_batches(self, kind: Kind) -> Subsets:
        factors = self._by_batch
        return Subsets(self.source, factors.edges, self.n_batches, kind, factors)

    @property
    def _parts(self) -> list[tuple[Any, Any]]:
        if self.fitted.sparse is not None and not self.source.are_places:
            return [(system, None) for system in self._solved_sparsely]
        return [(None, group) for group in self.subsets.groups]


def _sums_of(layers: Iterable[Layer]) -> Factor:
    """Return the weighted sum of features, and of weights, without any products."""
    total, n = np.zeros(0), 0.0
    for layer in layers:
        f = np.asarray(layer.features.T @ layer.weights)
        total, n = f if not total.size else total + f, n + float(layer.weights.sum())
    sums = np.append(total, n)
    return Factor(np.zeros((0, len(sums))), False, len(sums), sums, n)


def _has_each_window(segments: Segments, windows: IntArray) -> bool:
    """Whether some trial has each window."""
    return all(total(segments.between(a, b)).n > 0.0 for a, b in windows.tolist())
