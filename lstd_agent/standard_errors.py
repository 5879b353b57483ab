r"""Standard errors by leaving out batches of trials (jackknife).

The same system, with the same windows and reference states, is fitted without batch b, for each of
B batches. Batch b has n_b of N trials. Its pseudo-value, with v the value of all trials,

.. math:: v_b = v + \frac{N - n_b}{n_b} (v - v_{-b}),

is the batch's own mean if v is a mean. It has variance σ²/n_b if v has σ²/N. Therefore

.. math:: \widehat{se}^2 = \frac{1}{(B - 1) N} \sum_b n_b (v_b - \bar v)^2,
          \quad \bar v = \sum_b \frac{n_b}{N} v_b .

Offsets and an estimated gain are part of v, so that the error of a value includes theirs. Intervals
take Student's t with B - 1 degrees of freedom.

Source: Busing, Meijer & van der Leeden (1999), the delete-m_j jackknife.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from lstd_agent.arrays import BoolArray, FloatArray, IntArray, States
from lstd_agent.errors import NotFittedError
from lstd_agent.fit_options import FitOptions, Fitted
from lstd_agent.rows.factors import Segments, total
from lstd_agent.system.approximators import System, values_in_features
from lstd_agent.system.gain import Gain
from lstd_agent.system.linked import Solved
from lstd_agent.system.model import pooled_model
from lstd_agent.system.selection import OPEN_TOLERANCE
from lstd_agent.system.solve import Subsets


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

    The long run is that of the rows of the gain or, for a given gain, the tail.
    """
    edges, n_timesteps = segments.edges, int(segments.edges[-1])

    def mean(start: int, stop: int) -> float:
        i, j = np.searchsorted(edges, (start, stop))
        windows = np.searchsorted(anchors, edges[i:j], side="right") - 1
        runs, w = map(total, segments.factors[i:j]), (solved[k].columns[:, 0] for k in windows)
        sums = [(x.sums[: x.p] @ each, x.n) for x, each in zip(runs, w, strict=True)]
        return float(sum(x for x, _ in sums) / max(sum(n for _, n in sums), 1.0))

    if gain.settled is not None:
        return mean(0, 1) - float(gain.settled @ solved[-1].columns[:, 0])
    return mean(0, 1) - mean(n_timesteps // 2, n_timesteps)


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
        if self.n_batches < 2:
            raise NotFittedError(
                f"standard errors compare batches of trials, and there is {self.n_batches}: with "
                "n_batches > 1, collect several trials, or add counts in several portions (20 are "
                "good), then fit"
            )
        return replace(self.fitted.subsets, kind="others")

    @cached_property
    def n_trials(self) -> IntArray:
        """Of each batch, shape (B,)."""
        return np.asarray(self.source.sizes(self.source.groups(self.n_batches)))

    @cached_property
    def _gains(self) -> list[Gain]:
        """The gain without each batch, by the rows that gave the gain of all trials."""
        gain = self.fitted.gain
        if self.options.gain is not None:
            return [gain] * self.n_batches
        return self.subsets.gains("mean" if gain.rows == "given" else gain.rows)

    @cached_property
    def gains(self) -> list[float]:
        """The gain without each batch."""
        return [gain.value for gain in self._gains]

    @cached_property
    def solved(self) -> list[list[Solved]]:
        """The windows without each batch."""
        fitted, system, subsets = self.fitted, self.fitted.system, self.subsets
        if self.options.calibration == "references":
            how = system.windows, system.references, system.occupancy
            each = zip(subsets.segments, self.gains, strict=True)
            return [self.options.solve_windows(self.source, x, *how, gain) for x, gain in each]
        return subsets.solve(system.anchors, self.gains, fitted.choice.backup, fitted.solved)

    @cached_property
    def systems(self) -> list[System]:
        """The system without each batch."""
        columns = [values_in_features(self.source, solved) for solved in self.solved]
        return [
            replace(self.fitted.system, weights=x[:, :-1], offsets=x[:, -1], gain=gain)
            for x, gain in zip(columns, self.gains, strict=True)
        ]

    def errors(self, estimate: Callable[[System], FloatArray]) -> FloatArray:
        """Return standard errors (m,) of an estimate from a system."""
        without = np.stack([estimate(system) for system in self.systems])
        return batch_standard_errors(estimate(self.fitted.system), without, self.n_trials)

    @property
    def gain_error(self) -> float:
        """Standard error of the gain; 0 where it was given."""
        return self._error(self.fitted.gain.value, self.gains)

    @property
    def start_bias(self) -> float:
        """The mean value of the start minus the mean value of the tail."""
        fitted = self.fitted
        return start_bias(fitted.solved, fitted.system.anchors, fitted.segments, fitted.gain)

    @property
    def start_bias_error(self) -> float:
        """Standard error of the start's mean bias."""
        anchors = self.fitted.system.anchors
        each = zip(self.solved, self.subsets.segments, self._gains, strict=True)
        return self._error(self.start_bias, [start_bias(x, anchors, s, g) for x, s, g in each])

    @property
    def start_value_error(self) -> float:
        """Standard error of the mean value of the start."""
        # The starts of all trials: a batch may have other starts.
        mean = total(self.fitted.segments.between(0, 1)).mean
        windows = [solved[0] for solved in (self.fitted.solved, *self.solved)]
        values = [float(mean @ window.columns[:, 0]) for window in windows]
        return self._error(values[0], values[1:])

    def _error(self, whole: float, without: Sequence[float]) -> float:
        found = batch_standard_errors(np.array([whole]), np.array(without)[:, None], self.n_trials)
        return float(found[0])

    def seen_without_each(self, states: States, neighborhood: IntArray) -> BoolArray:
        """Whether states (m,) were seen in more than one batch."""
        system, subsets, source = self.fitted.system, self.subsets, self.source
        seen, windows = np.ones(len(states), dtype=bool), system.windows
        for segments in subsets.segments:
            if not all(total(segments.between(a, b)).n for a, b in windows.tolist()):
                return ~seen  # without this batch a window has no samples
        evidence: Any = self.solved if source.is_sparse else subsets.segments
        for by, group in zip(evidence, subsets.groups, strict=True):
            samples = source.samples_of(windows, by, group)(states)
            seen &= samples[neighborhood, np.arange(len(states))] > 0.0
        if self.fitted.choice.backup == "model":
            main = source.main_state(int(system.anchors[-1]))
            for part, gain in zip(subsets.parts, self.gains, strict=True):
                seen &= pooled_model(part, gain, main).open_share[states] <= OPEN_TOLERANCE
        return seen
