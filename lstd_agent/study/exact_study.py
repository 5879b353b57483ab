"""The non-sampling experiments: every scheme on every environment, regime and seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lstd_agent.study.metrics import StepwiseErrors
from lstd_agent.study.problems import largest_first, random_chain, random_features
from lstd_agent.study.rows import How, Row, RowStore
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

if TYPE_CHECKING:
    from typing_extensions import Unpack

KEY = ("env", "rho", "seed", "scheme")


@dataclass(frozen=True)
class ExactSettings:
    """What every row of the exact study depends on."""

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
            system = schemes.fit(name, statistics, regime.n_anchors_max, **asdict(settings))
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
    **how: Unpack[How],
) -> list[Row]:
    """Compute the rows of seeds 0 to n_seeds - 1 that a folder lacks, and return all asked for."""
    store = RowStore(out / "exact_rows.jsonl", asdict(settings), KEY)
    store.compute(
        exact_rows, _missing(store, settings, environments, rhos, schemes, n_seeds), **how
    )
    return store.asked(env=environments, rho=rhos, scheme=schemes, seed=range(n_seeds))


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
