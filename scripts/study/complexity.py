"""How many trials it takes to feed how many neighbourhoods.

Errors of linked systems, of one neighbourhood up to one for each timestep, by backup, from 10² to
10⁶ trials. An error is the total rems over that of the best constant, so that 1 needs no trials.
The projection limit of the same neighbourhoods is the error with infinitely many trials.

`study.rule` looks for a rule of thumb in some environments and tests it in others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lstd_agent import LambdaReturn
from lstd_agent.problems import population_counts, random_problem, regimes
from lstd_agent.results import How, Row
from study.sampled import sampled_regimes
from study.store import Task, generator, largest_first, open_store

if TYPE_CHECKING:
    from typing_extensions import Unpack

KEY = ("env", "rho", "seed", "n_trials", "wanted", "backup")

FINDING = ("h6", "c10", "h36c", "c35c")
CHECKING = ("h36", "c35", "r20b", "g20b")
ENVIRONMENTS = (*FINDING, *CHECKING)
"""The rule of thumb is found in the first four, and checked in the others."""

RHOS = (0.33, 0.19)  # two of the paper's
STEPWISE = "stepwise"
WANTED = ("1", "2", "4", "8", "16", "32", STEPWISE)
BACKUPS: dict[str, Any] = {"one step": "one_step", "λ = 0.9": LambdaReturn(0.9), "model": "model"}

# Targets of several steps take a hundred times as long as others: few neighbourhoods have them.
_WITH_LAMBDA = ("1", "2", "8")
COMBINATIONS = [
    (wanted, backup)
    for wanted in WANTED
    for backup in BACKUPS
    if backup != "λ = 0.9" or wanted in _WITH_LAMBDA
]


@dataclass(frozen=True)
class ComplexitySettings:
    """Which numbers of trials, and what every row depends on: the rank cutoff."""

    n_trials: tuple[int, ...] = (100, 1_000, 10_000, 100_000, 1_000_000)
    rcond: float = 1e-10


def complexity_rows(task: Task) -> list[Row]:
    """Draw counts once, of a number of trials, and fit all systems."""
    chain, p = random_problem(task.env, task.seed)
    n_trials, t_max = task.missing, len(p) - 1
    counts = population_counts(chain, n_trials, t_max, generator(task.seed, 4, n_trials))
    variance = p @ chain.bias**2 - (p @ chain.bias) ** 2
    of_constant = float(np.sqrt(np.maximum(variance, 0.0)).sum())
    rows = []
    for sampled in sampled_regimes(chain, [counts], p, task.seed, RHOS):
        anchors = {
            wanted: None if wanted == STEPWISE else sampled.anchors(int(wanted))
            for wanted in WANTED
        }
        limits: dict[str, float] = {}
        for wanted, backup in COMBINATIONS:
            options = {"backup": BACKUPS[backup], "rcond": task.settings.rcond}
            agent = sampled.fit(n_anchors=None, anchors=anchors[wanted], **options)
            found = sampled.values(agent)
            if wanted not in limits:  # it does not depend on the backup
                limits[wanted] = sampled.errors.limit(found)
            row = {"env": task.env, "rho": sampled.regime.rho, "seed": task.seed}
            row |= {"n_trials": n_trials, "wanted": wanted, "backup": backup}
            row |= {"n_features": sampled.regime.n_features, "n_anchors": len(found.anchors)}
            row |= {"error": sampled.total_rems(found) / of_constant}
            rows.append({**row, "limit": limits[wanted] / of_constant})
    return rows


def run_complexity_study(
    out: Path,
    settings: ComplexitySettings,
    *,
    environments: Sequence[str] = ENVIRONMENTS,
    n_seeds: int = 5,
    **how: Unpack[How],
) -> list[Row]:
    """Compute the rows of seeds 0 to n_seeds - 1 that a folder lacks, and return all asked for."""
    # Rows depend on the rank cutoff alone, so that more numbers of trials add rows.
    store = open_store(out, "complexity", {"rcond": settings.rcond}, KEY)
    tasks = [
        Task(env, seed, n_trials, settings)
        for env, n_states, seed in largest_first(environments, n_seeds)
        for n_trials in settings.n_trials
        if store.lacks(
            (env, regime.rho, seed, n_trials, *combination)
            for regime in regimes(n_states, RHOS)
            for combination in COMBINATIONS
        )
    ]
    store.compute(complexity_rows, tasks, **how)
    return store.asked(env=environments, seed=range(n_seeds), n_trials=settings.n_trials)
