"""How many trials it takes to feed how many neighbourhoods.

Errors of linked systems, of one neighbourhood up to one a timestep, by backup, from 10² to 10⁶
trials whose counts are drawn all at once. An error is the total rems over that of the best
constant, so that 1 is what one knows without any trials, and is given beside the projection limit
of the same neighbourhoods, which is what is left with infinitely many.

A rule of thumb is looked for in some environments and held against others
(`lstd_agent.study.complexity_tables`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lstd_agent.arrays import FloatArray
from lstd_agent.statistics.backups import Backup, LambdaReturn
from lstd_agent.study.problems import SampleTask, largest_first, population_counts, random_problem
from lstd_agent.study.rows import How, Row, RowStore
from lstd_agent.study.sampled import sampled_regimes
from lstd_agent.study.schemes import regimes
from lstd_agent.system.fit_system import fit_system
from lstd_agent.system.minimizer import DEFAULT_RCOND

if TYPE_CHECKING:
    from typing_extensions import Unpack

KEY = ("env", "rho", "seed", "n_trials", "wanted", "backup")

FINDING = ("h6", "c10", "h36c", "c35c")
"""Environments in which the rule of thumb is looked for."""

CHECKING = ("h36", "c35", "r20b", "g20b")
"""Environments that it is held against."""

ENVIRONMENTS = (*FINDING, *CHECKING)
RHOS = (0.33, 0.19)  # two of the paper's
STEPWISE = "stepwise"
WANTED = ("1", "2", "4", "8", "16", "32", STEPWISE)
BACKUPS: dict[str, Backup] = {
    "one step": "one_step",
    "λ = 0.9": LambdaReturn(0.9),
    "model": "model",
}

# Targets of several steps take a hundred times as long as others: a few neighbourhoods have them.
_WITH_LAMBDA = ("1", "2", "8")


@dataclass(frozen=True)
class ComplexitySettings:
    """Which numbers of trials, and what every row depends on: the rank cutoff."""

    n_trials: tuple[int, ...] = (100, 1_000, 10_000, 100_000, 1_000_000)
    rcond: float = DEFAULT_RCOND


@dataclass(frozen=True)
class ComplexityTask(SampleTask[ComplexitySettings]):
    """One environment, seed and number of trials."""

    n_trials: int


def combinations() -> Iterator[tuple[str, str]]:
    """Yield the wanted number of neighbourhoods and the name of the backup of all systems."""
    for wanted in WANTED:
        for backup in BACKUPS:
            if backup != "λ = 0.9" or wanted in _WITH_LAMBDA:
                yield wanted, backup


def complexity_rows(task: ComplexityTask) -> list[Row]:
    """Draw counts once, and fit all systems."""
    chain, distributions = random_problem(task.env, task.seed)
    t_max = len(distributions) - 1
    rng = np.random.default_rng(np.random.SeedSequence([task.seed, 4, task.n_trials]))
    counts = population_counts(chain, task.n_trials, t_max, rng)
    constant = _total_rems_of_constants(distributions, chain.bias)
    rows = []
    for sampled in sampled_regimes(chain, counts, distributions, task.seed, RHOS):
        anchors = {
            wanted: np.arange(t_max + 1) if wanted == STEPWISE else sampled.anchors(int(wanted))
            for wanted in WANTED
        }
        limits: dict[str, float] = {}
        for wanted, backup in combinations():
            system = fit_system(
                sampled.statistics,
                anchors[wanted],
                chain.gain,
                rcond=task.settings.rcond,
                backup=BACKUPS[backup],
            )
            if wanted not in limits:  # no backup changes it
                limits[wanted] = sampled.limit(system)
            rows.append(
                {
                    "env": task.env,
                    "rho": sampled.regime.rho,
                    "seed": task.seed,
                    "n_trials": task.n_trials,
                    "wanted": wanted,
                    "backup": backup,
                    "n_features": sampled.regime.n_features,
                    "n_anchors": len(system.anchors),
                    "error": sampled.total_rems(system) / constant,
                    "limit": limits[wanted] / constant,
                }
            )
    return rows


def _total_rems_of_constants(distributions: FloatArray, bias: FloatArray) -> float:
    """Return the sum of the standard deviations of the bias over timesteps."""
    mean = distributions @ bias
    return float(np.sqrt(np.maximum(distributions @ bias**2 - mean**2, 0.0)).sum())


def run_complexity_study(
    out: Path,
    settings: ComplexitySettings,
    *,
    environments: Sequence[str] = ENVIRONMENTS,
    n_seeds: int = 5,
    **how: Unpack[How],
) -> list[Row]:
    """Compute the rows of seeds 0 to n_seeds - 1 that a folder lacks, and return all asked for."""
    # What is kept hangs on the rank cutoff alone, so that more numbers of trials add rows.
    kept = {"rcond": settings.rcond}
    store = RowStore(out / "complexity_rows.jsonl", kept, KEY)
    tasks = (
        ComplexityTask(env, seed, settings, n_trials)
        for env, n_states, seed in largest_first(environments, n_seeds)
        for n_trials in settings.n_trials
        if store.lacks(
            (env, regime.rho, seed, n_trials, wanted, backup)
            for regime in regimes(n_states, RHOS)
            for wanted, backup in combinations()
        )
    )
    store.compute(complexity_rows, tasks, **how)
    return store.asked(env=environments, seed=range(n_seeds), n_trials=settings.n_trials)
