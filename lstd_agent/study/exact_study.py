"""The non-sampling experiments: every scheme on every environment, regime and seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from pathlib import Path

from lstd_agent.study.metrics import StepwiseErrors
from lstd_agent.study.problems import largest_first, random_chain, random_features
from lstd_agent.study.rows import Row, RowStore
from lstd_agent.study.schemes import (
    ENVIRONMENTS,
    EXACT_RCOND,
    RHOS,
    SCHEMES,
    ExactSchemes,
    Regime,
    regimes,
)
from lstd_agent.system.neighborhoods import TailName
from lstd_agent.system.references import RuleName

KEY = ("env", "rho", "seed", "scheme")


@dataclass(frozen=True)
class ExactSettings:
    """What every row of the exact study depends on.

    Attributes
    ----------
    tail : {"window", "settled", "stationary"}
    reference : {"most_common", "occupancy"}
    rcond : float
    """

    tail: TailName = "window"
    reference: RuleName = "most_common"
    rcond: float = EXACT_RCOND


@dataclass(frozen=True)
class ExactTask:
    """What is to be computed of one environment and seed: (regime, schemes) pairs."""

    env: str
    seed: int
    work: tuple[tuple[Regime, tuple[str, ...]], ...]
    settings: ExactSettings


def exact_rows(task: ExactTask) -> list[Row]:
    """Compute the rows of a task."""
    settings = task.settings
    chain = random_chain(task.env, task.seed)
    schemes = ExactSchemes(chain)
    rows = []
    for regime, names in task.work:
        features = random_features(chain.n_states, regime.n_features, task.seed)
        statistics = schemes.statistics(features)
        errors = StepwiseErrors(statistics, settings.rcond)
        for name in names:
            system = schemes.fit(
                name,
                statistics,
                regime.n_anchors_max,
                tail=settings.tail,
                reference=settings.reference,
                rcond=settings.rcond,
            )
            rows.append(
                {
                    "env": task.env,
                    "rho": regime.rho,
                    "seed": task.seed,
                    "scheme": name,
                    "n_features": regime.n_features,
                    "n_anchors": len(system.anchors),
                    "t_max": schemes.t_max,
                    "main_reference": system.references.main,
                    **errors.totals(system),
                }
            )
    return rows


def run_exact_study(
    out: Path,
    settings: ExactSettings,
    *,
    environments: Sequence[str] = ENVIRONMENTS,
    rhos: Sequence[float] = RHOS,
    schemes: Sequence[str] = SCHEMES,
    n_seeds: int = 20,
    workers: int = 1,
    executor: Executor | None = None,
    progress: bool | None = None,
) -> list[Row]:
    """Compute the rows that ``out`` lacks and return all that were asked for.

    Parameters
    ----------
    out : Path
        Folder of ``exact_rows.jsonl``.
    settings : ExactSettings
    environments, rhos, schemes : sequence
    n_seeds : int
        Seeds 0 to n_seeds - 1.
    workers, executor
        See `lstd_agent.trials.parallel.run_tasks`.
    progress : bool or None
        See `lstd_agent.progress.progress_bar`.
    """
    store = RowStore(out / "exact_rows.jsonl", asdict(settings), KEY)
    tasks = list(_missing(store, settings, environments, rhos, schemes, n_seeds))
    store.compute(exact_rows, tasks, workers=workers, executor=executor, progress=progress)
    return [
        row
        for row in store.rows
        if row["env"] in environments
        and row["rho"] in rhos
        and row["scheme"] in schemes
        and row["seed"] < n_seeds
    ]


def _missing(
    store: RowStore,
    settings: ExactSettings,
    environments: Sequence[str],
    rhos: Sequence[float],
    schemes: Sequence[str],
    n_seeds: int,
) -> Iterator[ExactTask]:
    """Yield a task for each environment and seed that lacks rows, the largest first."""
    for env, n_states, seed in largest_first(environments, n_seeds):
        work = []
        for regime in regimes(n_states):
            if regime.rho in rhos:
                names = [n for n in schemes if (env, regime.rho, seed, n) not in store]
                if names:
                    work.append((regime, tuple(names)))
        if work:
            yield ExactTask(env, seed, tuple(work), settings)
