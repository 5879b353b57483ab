r"""What linked calibration, its backups and the occupancy rule buy, on the same samples.

Every error is also given as a multiple of the *projection limit*: the total rems of the best
weights and offset of each neighbourhood, by least squares on the exact values weighted by the
neighbourhood's distribution. With these features and neighbourhoods it can be beaten only where
the least mean square is not the least sum of roots.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from lstd_agent.statistics.backups import Backup
from lstd_agent.statistics.counts import CountStatistics
from lstd_agent.study.exact import ExactStatistics, full_distributions
from lstd_agent.study.metrics import StepwiseErrors, best_linear
from lstd_agent.study.problems import (
    largest_first,
    population_counts,
    random_chain,
    random_features,
)
from lstd_agent.study.rows import How, Row, RowStore
from lstd_agent.study.schemes import ENVIRONMENTS, regimes
from lstd_agent.system.distances import MMD, sampled_distance
from lstd_agent.system.fit_system import CalibrationName, System, fit_system
from lstd_agent.system.minimizer import DEFAULT_RCOND
from lstd_agent.system.neighborhoods import find_anchors
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


@dataclass(frozen=True)
class ReferenceTask:
    """One set of samples: an environment and a seed."""

    env: str
    seed: int
    settings: ReferenceSettings


def projection_limit(system: System, statistics: ExactStatistics) -> System:
    """Return the system with the best weights and offset of each neighbourhood.

    Least squares on the exact relative values, weighted by the neighbourhood's mean p^t.

    Parameters
    ----------
    system : System
        Gives the neighbourhoods and the main reference state.
    statistics : ExactStatistics
    """
    values = statistics.chain.relative_value(system.references.main)
    weights, offsets = np.empty_like(system.weights), np.empty_like(system.offsets)
    for k, neighborhood in enumerate(system.neighborhoods):
        window = np.array([[neighborhood.anchor, neighborhood.stop]])
        best = best_linear(statistics.features, values, statistics.occupancy(window)[0])
        weights[k], offsets[k] = best[:-1], best[-1]
    return replace(system, weights=weights, offsets=offsets)


def reference_rows(task: ReferenceTask) -> list[Row]:
    """Simulate once and compare all combinations in every regime."""
    settings = task.settings
    chain = random_chain(task.env, task.seed)
    t_max = 10 * chain.mixing_time()
    distributions = full_distributions(chain, t_max)
    rng = np.random.default_rng(np.random.SeedSequence([task.seed, 2]))
    counts = population_counts(chain, settings.n_trials, t_max, rng)
    rows = []
    for regime in regimes(chain.n_states):
        features = random_features(chain.n_states, regime.n_features, task.seed)
        exact = ExactStatistics(chain, features, distributions)
        errors = StepwiseErrors(exact)
        statistics = CountStatistics(counts, features)
        squared = sampled_distance(MMD("quadratic"), statistics)
        for scheme, n_anchors in (("p02md", 2), ("paxmd", regime.n_anchors_max)):
            anchors = find_anchors(squared, t_max, n_anchors)
            for calibration, rule, wanted in COMBINATIONS:
                backup: Backup = "one_step"
                if wanted == "auto":
                    backup = choose_backup(
                        statistics, [counts], anchors, chain.gain, settings.rcond
                    ).backup
                system = fit_system(
                    statistics,
                    anchors,
                    chain.gain,
                    calibration=calibration,
                    reference="most_common" if rule == "most_common" else "occupancy",
                    rcond=settings.rcond,
                    backup=backup,
                )
                limit = projection_limit(system, exact)
                rows.append(
                    {
                        "env": task.env,
                        "rho": regime.rho,
                        "seed": task.seed,
                        "scheme": scheme,
                        "calibration": calibration,
                        "reference": rule,
                        "backup": wanted,
                        "chosen_backup": backup_name(backup),
                        "n_anchors": len(system.anchors),
                        "main_reference": system.references.main,
                        **errors.totals(system),
                        "limit": float(errors.rems(limit).sum()),
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
    """Compute the rows of seeds 0 to n_seeds - 1 that a folder lacks, and return all asked for.

    See `lstd_agent.study.rows.How` for the other arguments.
    """
    store = RowStore(out / "reference_rows.jsonl", asdict(settings), KEY)
    store.compute(reference_rows, _missing(store, settings, environments, n_seeds), **how)
    return store.asked(env=environments, seed=range(n_seeds))


def _missing(
    store: RowStore, settings: ReferenceSettings, environments: Sequence[str], n_seeds: int
) -> Iterator[ReferenceTask]:
    for env, n_states, seed in largest_first(environments, n_seeds):
        keys = (
            (env, regime.rho, seed, scheme, *combination)
            for regime in regimes(n_states)
            for scheme in ("p02md", "paxmd")
            for combination in COMBINATIONS
        )
        if not all(key in store for key in keys):
            yield ReferenceTask(env, seed, settings)


def markdown_comparison(rows: Sequence[Row]) -> str:
    """Write the comparison: multiples of the limit by row, and where the default loses.

    Quartiles are over seeds; the combination named first in `COMBINATIONS` is the default of
    the agent, the last one the paper's.
    """
    multiples = _multiples(rows)
    medians = median_multiples(rows)
    default, paper = COMBINATIONS[0], COMBINATIONS[-1]
    lost = [line for line, m in medians.items() if m[default] > m[paper]]
    beaten = [line for line, m in medians.items() if m[default] > 1.05 * min(m.values())]
    heads = [combination_name(combination) for combination in COMBINATIONS]
    lines = [
        "Total rems as a multiple of the projection limit: median (lower to upper quartile) over "
        "seeds, on the same samples.",
        "",
        "| scheme | env | ρ | " + " | ".join(heads) + " |",
        "|---|---|---|" + "---|" * len(heads),
    ]
    for (scheme, env, rho), by_combination in sorted(multiples.items()):
        cells = []
        for combination in COMBINATIONS:
            low, middle, high = np.quantile(by_combination[combination], (0.25, 0.5, 0.75))
            cells.append(f"{middle:.3g} ({low:.3g} to {high:.3g})")
        lines.append(f"| {scheme} | {env} | {rho} | " + " | ".join(cells) + " |")
    overall = [
        f"{head} {np.median([m[c] for m in medians.values()]):.3g}"
        for head, c in zip(heads, COMBINATIONS, strict=True)
    ]
    lines += [
        "",
        f"Median over the {len(medians)} rows: {'; '.join(overall)}.",
        "",
        f"The default ({heads[0]}) has the larger median than the paper's ({heads[-1]}) in "
        f"{len(lost)} of {len(medians)} rows{_listed(lost)}.",
        "",
        f"Another combination is better than the default by more than 5 % in {len(beaten)} rows"
        f"{_listed(beaten)}.",
    ]
    return "\n".join(lines) + "\n"


Line = tuple[str, str, float]
"""Scheme, environment and ρ."""


def _multiples(rows: Sequence[Row]) -> dict[Line, dict[Combination, list[float]]]:
    """Return total rems over the limit, by line and combination, one for each seed."""
    multiples: dict[Line, dict[Combination, list[float]]] = {}
    for row in rows:
        line = multiples.setdefault((row["scheme"], row["env"], row["rho"]), {})
        combination = (row["calibration"], row["reference"], row["backup"])
        line.setdefault(combination, []).append(row["total_rems"] / row["limit"])
    return multiples


def median_multiples(rows: Sequence[Row]) -> dict[Line, dict[Combination, float]]:
    """Return the medians over seeds of total rems over the limit, by line and combination."""
    return {
        line: {c: float(np.median(values)) for c, values in by_combination.items()}
        for line, by_combination in _multiples(rows).items()
    }


def _listed(lines: Sequence[Line]) -> str:
    names = [f"{scheme} {env} ρ={rho}" for scheme, env, rho in sorted(lines)]
    return f": {'; '.join(names)}" if names else ""
