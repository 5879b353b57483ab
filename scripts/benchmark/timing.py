"""How the benchmark measures: interleaved pairs of times, peaks of processes, exponents."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

Work = Callable[[], object]


HEAD = f"{'':58} {'ratio':>9} {'lowest':>9} {'highest':>9} {'ours':>10} {'yardstick':>10}  unit"


class Skipped(Exception):  # noqa: N818  (not an error)
    """A competitor is not installed."""


@dataclass(frozen=True)
class Setting:
    """How large and how often to measure."""

    quick: bool
    repeats: int


@dataclass(frozen=True)
class Row:
    """One row of the table: a ratio with its extremes, and the medians of what it compares."""

    name: str
    ratio: float
    low: float
    high: float
    ours: float
    yardstick: float
    unit: str
    target: str = ""  # such as ">= 500"

    @property
    def met(self) -> bool | None:
        """Whether the ratio meets the target; None without one."""
        if not self.target:
            return None
        relation, bound = self.target.split()
        return self.ratio >= float(bound) if relation == ">=" else self.ratio <= float(bound)

    def __str__(self) -> str:
        numbers = " ".join(f"{x:9.4g}" for x in (self.ratio, self.low, self.high))
        sizes = " ".join(f"{x:10.4g}" for x in (self.ours, self.yardstick))
        verdict = {None: "", True: f" (target {self.target})", False: f" MISSED {self.target}"}
        return f"{self.name:58} {numbers} {sizes}  {self.unit}{verdict[self.met]}"


def seconds(work: Work, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return how long the work takes; `time.process_time` does not count other processes."""
    start = clock()
    work()
    return clock() - start


def compare(
    name: str,
    ours: Work,
    yardstick: Work,
    setting: Setting,
    *,
    samples: tuple[float, float] = (1.0, 1.0),
    faster: bool = False,
    target: str = "",
) -> Row:
    """Time two pieces of work in turns, and compare their times.

    With numbers of samples, times are per sample, in ns. The ratio is our time over the
    yardstick's; with ``faster`` its inverse.
    """
    ours(), yardstick()  # warm up
    pairs = [(seconds(ours) / samples[0], seconds(yardstick) / samples[1])
             for _ in range(setting.repeats)]  # fmt: skip
    ratios = [b / a if faster else a / b for a, b in pairs]
    scale, unit = (1.0, "s") if samples == (1.0, 1.0) else (1e9, "ns/sample")
    a, b = (scale * statistics.median(column) for column in zip(*pairs, strict=True))
    middle = statistics.median(ratios)
    return Row(name, middle, min(ratios), max(ratios), a, b, unit, target)


def against_limit(
    name: str, values: Sequence[float], limit: float, unit: str, target: str = "<= 1"
) -> Row:
    """Compare the median of measured values with a limit."""
    middle = statistics.median(values)
    ratios = (middle / limit, min(values) / limit, max(values) / limit)
    return Row(name, *ratios, middle, limit, unit, target)


def growth(
    name: str, make_work: Callable[[int], Work], sizes: Sequence[int], setting: Setting, target: str
) -> Row:
    """Fit time = c · size^exponent; the extremes are of neighboring sizes."""
    works = [make_work(size) for size in sizes]
    times = [
        statistics.median(seconds(work, time.process_time) for _ in range(setting.repeats))
        for work in works
    ]
    return growth_of(name, times, sizes, target)


def growth_of(name: str, times: Sequence[float], sizes: Sequence[int], target: str = "") -> Row:
    """Fit an exponent to times that were measured elsewhere."""
    x, y = [math.log(size) for size in sizes], [math.log(t) for t in times]
    exponent = statistics.linear_regression(x, y).slope
    steps = [(y[i + 1] - y[i]) / (x[i + 1] - x[i]) for i in range(len(x) - 1)]
    span = f"s of the processor, {sizes[-1]:,} and {sizes[0]:,}; the ratio is an exponent"
    return Row(name, exponent, min(steps), max(steps), times[-1], times[0], span, target)


def need(module: str) -> Any:
    """Import a competitor."""
    try:
        return import_module(module)
    except ImportError:
        raise Skipped(f"{module} is not installed") from None
