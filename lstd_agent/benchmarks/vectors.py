"""Rows about fits to trials of vectors: time, memory and growth by features and trials."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator

from lstd_agent.benchmarks.processes import probe
from lstd_agent.benchmarks.timing import Row, Setting, against_limit, need

_QUICK = {"dense": (10, 100), "tiles": (1_000, 3_000), "trials": (100, 1_000)}
_SIZES = {
    "dense": (10, 100, 1_000, 5_000),
    "tiles": (1_000, 10_000, 100_000),
    "trials": (100, 1_000, 10_000, 100_000),
}


def vectors(setting: Setting) -> Iterator[Row]:
    """Compare fits with a ridge regression on the same features, each in a process of its own."""
    need("sklearn")
    for kind, sizes in (_QUICK if setting.quick else _SIZES).items():
        what = "dense features" if kind == "dense" else kind
        times = []
        for size in sizes:
            found = probe(kind, size)
            times.append(found["seconds"])
            ratio = found["seconds"] / found["ridge"]
            numbers = (ratio, ratio, ratio, found["seconds"], found["ridge"])
            name = f"fit(), {size:,} {what}, as a multiple of Ridge"
            yield Row(name, *numbers, "s of the processor")
            name = f"fit(), {size:,} {what}: memory, of 4 GB"
            yield against_limit(name, [found["peak"]], 4_000.0, "MB")
        x, y = [math.log(size) for size in sizes], [math.log(t) for t in times]
        steps = [(y[i + 1] - y[i]) / (x[i + 1] - x[i]) for i in range(len(x) - 1)]
        exponent = statistics.linear_regression(x, y).slope
        unit = f"s of the processor, {sizes[-1]:,} and {sizes[0]:,}; the ratio is an exponent"
        extremes = (min(steps), max(steps), times[-1], times[0])
        yield Row(f"growth of fit() with the number of {what}", exponent, *extremes, unit)
