"""The effect of linked calibration, its backups and the occupancy rule, on the same samples.

Every error is also given as a multiple of the projection limit (`lstd_agent.problems`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lstd_agent.problems import ENVIRONMENTS, population_counts, random_problem
from lstd_agent.results import How, Row
from study.sampled import rows_by_regime, sampled_regimes
from study.store import Task, generator

if TYPE_CHECKING:
    from typing_extensions import Unpack

KEY = ("env", "rho", "seed", "scheme", "calibration", "reference", "backup")

COMBINATIONS = {
    ("linked", "none", "auto"): "linked, backup by the data",
    ("linked", "none", "one_step"): "linked, one step",
    ("references", "occupancy", "one_step"): "references, occupancy",
    ("references", "most_common", "one_step"): "references, most_common",
}
"""Calibration, rule for reference states and backup, with a name; the agent's default comes first,
the paper's rules last."""


@dataclass(frozen=True)
class ReferenceSettings:
    """What every row depends on: number of trials and rank cutoff."""

    n_trials: int = 10_000
    rcond: float = 1e-10


def reference_rows(task: Task) -> list[Row]:
    """Simulate once, and compare all combinations in every regime."""
    chain, distributions = random_problem(task.env, task.seed)
    n_trials, rcond = task.settings.n_trials, task.settings.rcond
    counts = population_counts(chain, n_trials, len(distributions) - 1, generator(task.seed, 2))
    rows = []
    for sampled in sampled_regimes(chain, [counts], distributions, task.seed):
        for scheme, anchors in sampled.anchors_by_scheme.items():
            for calibration, rule, backup in COMBINATIONS:
                agent = sampled.fit(
                    anchors=anchors,
                    calibration=calibration,
                    reference="occupancy" if rule == "none" else rule,
                    backup=backup,
                    rcond=rcond,
                )
                found = sampled.values(agent)
                row = {"env": task.env, "rho": sampled.regime.rho, "seed": task.seed}
                row |= {"scheme": scheme, "calibration": calibration, "reference": rule}
                row |= {"backup": backup, "n_anchors": len(found.anchors)}
                row |= {"main_reference": found.main, **sampled.errors.totals(found)}
                rows.append({**row, "limit": sampled.errors.limit(found)})
    return rows


def run_reference_study(
    out: Path,
    settings: ReferenceSettings,
    *,
    environments: Sequence[str] = ENVIRONMENTS,
    n_seeds: int = 20,
    **how: Unpack[How],
) -> list[Row]:
    """Return the rows of `lstd_agent` with each of the combinations; see `rows_by_regime`."""
    what = out, "reference", settings, KEY, reference_rows, COMBINATIONS
    return rows_by_regime(*what, environments, n_seeds, **how)
