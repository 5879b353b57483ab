"""Rows about fits to trials of vectors: time, memory and growth by features and trials."""

from __future__ import annotations

from collections.abc import Iterator

from lstd_agent.benchmarks.processes import probe
from lstd_agent.benchmarks.timing import Row, Setting, against_limit, growth_of, need

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
        yield growth_of(f"growth of fit() with the number of {what}", times, sizes)
