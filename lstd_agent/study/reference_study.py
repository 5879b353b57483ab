"""What linked calibration, its backups and the occupancy rule buy, on the same samples.

Every error is also given as a multiple of the projection limit (`lstd_agent.study.sampled`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from lstd_agent.statistics.backups import Backup
from lstd_agent.study.multiples import Line, line_name, medians, multiples, multiples_table
from lstd_agent.study.problems import SampleTask, largest_first, population_counts, random_problem
from lstd_agent.study.rows import How, Row, RowStore
from lstd_agent.study.sampled import SCHEMES, sampled_regimes
from lstd_agent.study.schemes import ENVIRONMENTS, regimes
from lstd_agent.system.fit_system import CalibrationName, fit_system
from lstd_agent.system.minimizer import DEFAULT_RCOND
from lstd_agent.system.selection import backup_name, choose_backup

if TYPE_CHECKING:
    from typing_extensions import Unpack

KEY = ("env", "rho", "seed", "scheme", "calibration", "reference", "backup")

Combination: TypeAlias = tuple[CalibrationName, str, Literal["auto", "one_step"]]
"""Calibration, rule for reference states and backup."""

COMBINATIONS: tuple[Combination, ...] = (
    ("linked", "none", "auto"),
    ("linked", "none", "one_step"),
    ("references", "occupancy", "one_step"),
    ("references", "most_common", "one_step"),
)


def combination_name(combination: Combination) -> str:
    """Return how tables and figures call a combination."""
    calibration, rule, backup = combination
    if calibration == "references":
        return f"references, {rule}"
    return "linked, backup by the data" if backup == "auto" else "linked, one step"


@dataclass(frozen=True)
class ReferenceSettings:
    """What every row depends on: number of trials and rank cutoff."""

    n_trials: int = 10_000
    rcond: float = DEFAULT_RCOND


def reference_rows(task: SampleTask[ReferenceSettings]) -> list[Row]:
    """Simulate once and compare all combinations in every regime."""
    settings = task.settings
    chain, distributions = random_problem(task.env, task.seed)
    rng = np.random.default_rng(np.random.SeedSequence([task.seed, 2]))
    counts = population_counts(chain, settings.n_trials, len(distributions) - 1, rng)
    rows = []
    for sampled in sampled_regimes(chain, counts, distributions, task.seed):
        statistics = sampled.statistics
        for scheme, anchors in sampled.anchors_by_scheme.items():
            for calibration, rule, wanted in COMBINATIONS:
                backup: Backup = "one_step"
                if wanted == "auto":
                    choice = choose_backup(
                        statistics, [counts], anchors, chain.gain, settings.rcond
                    )
                    backup = choice.backup
                system = fit_system(
                    statistics,
                    anchors,
                    chain.gain,
                    calibration=calibration,
                    reference="most_common" if rule == "most_common" else "occupancy",
                    rcond=settings.rcond,
                    backup=backup,
                )
                rows.append(
                    {
                        "env": task.env,
                        "rho": sampled.regime.rho,
                        "seed": task.seed,
                        "scheme": scheme,
                        "calibration": calibration,
                        "reference": rule,
                        "backup": wanted,
                        "chosen_backup": backup_name(backup),
                        "n_anchors": len(system.anchors),
                        "main_reference": system.references.main,
                        **sampled.errors.totals(system),
                        "limit": sampled.limit(system),
                    }
                )
    return rows


def run_reference_study(
    out: Path,
    settings: ReferenceSettings,
    *,
    environments: Sequence[str] = ENVIRONMENTS,
    n_seeds: int = 20,
    **how: Unpack[How],
) -> list[Row]:
    """Compute the rows of seeds 0 to n_seeds - 1 that a folder lacks, and return all asked for."""
    store = RowStore(out / "reference_rows.jsonl", asdict(settings), KEY)
    tasks = (
        SampleTask(env, seed, settings)
        for env, n_states, seed in largest_first(environments, n_seeds)
        if store.lacks(
            (env, regime.rho, seed, scheme, *combination)
            for regime in regimes(n_states)
            for scheme in SCHEMES
            for combination in COMBINATIONS
        )
    )
    store.compute(reference_rows, tasks, **how)
    return store.asked(env=environments, seed=range(n_seeds))


def _combination(row: Row) -> Combination:
    return (row["calibration"], row["reference"], row["backup"])


def median_multiples(rows: Sequence[Row]) -> dict[Line, dict[Combination, float]]:
    """Return the medians over seeds of total rems over the limit, by line and combination."""
    return medians(multiples(rows, _combination))


def markdown_comparison(rows: Sequence[Row]) -> str:
    """Write the comparison: multiples of the limit by row, and where the default loses.

    Quartiles are over seeds; the combination named first in `COMBINATIONS` is the default of
    the agent, the last one the paper's.
    """
    by_line = median_multiples(rows)
    heads = {combination: combination_name(combination) for combination in COMBINATIONS}
    (default, default_name), *_, (paper, paper_name) = heads.items()
    lost = [line for line, m in by_line.items() if m[default] > m[paper]]
    beaten = [line for line, m in by_line.items() if m[default] > 1.05 * min(m.values())]
    overall = [
        f"{head} {np.median([m[c] for m in by_line.values()]):.3g}" for c, head in heads.items()
    ]
    parts = [
        "Total rems as a multiple of the projection limit: median (lower to upper quartile) over "
        "seeds, on the same samples.",
        multiples_table(multiples(rows, _combination), heads, "l"),
        f"Median over the {len(by_line)} rows: {'; '.join(overall)}.",
        f"The default ({default_name}) has the larger median than the paper's ({paper_name}) in "
        f"{len(lost)} of {len(by_line)} rows{_listed(lost)}.",
        f"Another combination is better than the default by more than 5 % in {len(beaten)} rows"
        f"{_listed(beaten)}.",
    ]
    return "\n\n".join(parts) + "\n"


def _listed(lines: Sequence[Line]) -> str:
    return f": {'; '.join(map(line_name, sorted(lines)))}" if lines else ""
