"""The non-sampling experiments: every scheme on every environment, regime and seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lstd_agent.problems import (
    ENVIRONMENTS,
    RHOS,
    StepwiseErrors,
    random_chain,
    random_features,
    regimes,
)
from lstd_agent.results import How, Row
from study.exact_systems import EXACT_RCOND, SCHEMES, ExactSchemes, Rule, Tail
from study.store import Task, largest_first, open_store

if TYPE_CHECKING:
    from typing_extensions import Unpack

KEY = ("env", "rho", "seed", "scheme")


@dataclass(frozen=True)
class ExactSettings:
    """What every row of the exact study depends on."""

    tail: Tail = "window"
    reference: Rule = "most_common"
    rcond: float = EXACT_RCOND


def exact_rows(task: Task) -> list[Row]:
    """Compute the rows of a task, whose missing rows are (regime, schemes) pairs."""
    chain = random_chain(task.env, task.seed)
    schemes = ExactSchemes(chain)
    rows = []
    for regime, names in task.missing:
        features = random_features(chain.n_states, regime.n_features, task.seed)
        errors = StepwiseErrors(chain, features, schemes.distributions, task.settings.rcond)
        for name in names:
            found = schemes.fit(name, features, regime.n_anchors_max, **asdict(task.settings))
            row = {"env": task.env, "rho": regime.rho, "seed": task.seed, "scheme": name}
            row |= {"n_features": regime.n_features, "n_anchors": len(found.anchors)}
            row |= {"t_max": schemes.t_max, "main_reference": found.main}
            rows.append({**row, **errors.totals(found)})
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
    store = open_store(out, "exact", asdict(settings), KEY)
    tasks = []
    for env, n_states, seed in largest_first(environments, n_seeds):
        lacking = [
            (regime, [n for n in schemes if (env, regime.rho, seed, n) not in store])
            for regime in regimes(n_states, rhos)
        ]
        if work := [(regime, names) for regime, names in lacking if names]:
            tasks.append(Task(env, seed, work, settings))
    store.compute(exact_rows, tasks, **how)
    return store.asked(env=environments, rho=rhos, scheme=schemes, seed=range(n_seeds))
