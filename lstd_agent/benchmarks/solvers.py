"""Rows about the solvers of least squares: time and memory by number of features."""

from __future__ import annotations

from collections.abc import Iterator

from lstd_agent.benchmarks.processes import probe
from lstd_agent.benchmarks.timing import Row, Setting, Work, against_limit, compare
from lstd_agent.benchmarks.work import moments_of
from lstd_agent.statistics.equations import Moments
from lstd_agent.system.minimizer import minimize
from lstd_agent.system.solvers import SOLVERS, SolverName


def solvers(setting: Setting) -> Iterator[Row]:
    """Compare solvers with the default one, for one neighbourhood of d features."""
    for d in (10, 100) if setting.quick else (10, 50, 200, 1_000):
        moments = moments_of(d)

        def solve(name: SolverName, moments: Moments = moments) -> Work:
            return lambda: minimize(moments, solver=name)

        for name in SOLVERS[1:]:
            title = f"{name}, {d} features, times faster than svd"
            yield compare(title, solve(name), solve("svd"), setting, faster=True)
    if setting.quick:
        return
    for name in SOLVERS[1:]:  # singular values take minutes here
        measured = probe(name, 5_000)
        seconds = [measured["seconds"]]
        yield against_limit(f"{name}, 5000 features: time", seconds, 300.0, "s")
        yield against_limit(f"{name}, 5000 features: memory", [measured["peak"]], 4_000.0, "MB")
