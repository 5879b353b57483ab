"""The rows in groups: generators of rows by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lstd_agent.benchmarks.environments import envpool, quantecon, stepping
from lstd_agent.benchmarks.evaluator import (
    backups,
    collection,
    population,
    statistics_group,
    study,
)
from lstd_agent.benchmarks.model import exact, growth_group
from lstd_agent.benchmarks.optimal import optimal
from lstd_agent.benchmarks.processes import imports, memory
from lstd_agent.benchmarks.solvers import solvers
from lstd_agent.benchmarks.timing import Row, Setting
from lstd_agent.benchmarks.vectors import vectors

GROUPS: dict[str, Callable[[Setting], Iterator[Row]]] = {
    "stepping": stepping,
    "envpool": envpool,
    "quantecon": quantecon,
    "collection": collection,
    "statistics": statistics_group,
    "population": population,
    "backups": backups,
    "exact": exact,
    "optimal": optimal,
    "study": study,
    "solvers": solvers,
    "growth": growth_group,
    "imports": imports,
    "memory": memory,
    "vectors": vectors,
}
