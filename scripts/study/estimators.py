"""A system of approximators and established estimators, on the same samples.

Every environment and ρ of the paper, two neighbourhoods (``p02md``) and as many as features allow
(``paxmd``). Errors are total rems, as multiples of the projection limit of the linked system's
neighbourhoods. Estimators with one approximator have one error, compared with both limits.

All get the exact gain, and values are relative to the state that is visited most. TD gets the best
of several numbers of updates, which is unknown in practice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lstd_agent import LambdaReturn, TransitionCounts
from lstd_agent.arrays import FloatArray
from lstd_agent.baselines import (
    average_reward_lstd,
    certainty_equivalence,
    differential_td,
    discounted_lstd,
    monte_carlo,
)
from lstd_agent.errors import EvaluationError
from lstd_agent.problems import ENVIRONMENTS, PiecewiseValues, population_counts, random_problem
from lstd_agent.results import How, Row
from study.sampled import SampledRegime, rows_by_regime, sampled_regimes
from study.store import Task
from unichain_gym import MarkovChain

if TYPE_CHECKING:
    from typing_extensions import Unpack

KEY = ("env", "rho", "seed", "scheme", "estimator")

DEFAULTS = "ours: defaults, backup by the data"
_LINKED = {"one step": "one_step", "model": "model", "λ = 0.9": LambdaReturn(0.9)}
OURS: dict[str, dict[str, Any]] = {
    DEFAULTS: {"backup": "auto"},
    **{f"ours: linked, {name}": {"backup": backup} for name, backup in _LINKED.items()},
    "ours: paper's rules": {"calibration": "references", "reference": "most_common"},
}
"""Options of the agent."""


def _td(counts: TransitionCounts, F: FloatArray, gain: float, decay: float) -> Iterator[FloatArray]:
    """Yield the values of TD after 0, 100, …, 10⁷ updates, until it diverges."""
    for n_updates in (0, *(10**k for k in range(2, 8))):
        try:
            yield differential_td(counts, F, gain, decay=decay, n_updates=n_updates)(F)
        except EvaluationError:
            return


CERTAINTY = "certainty equivalence, tabular"
BASELINES: dict[str, Callable[[TransitionCounts, FloatArray, float], Iterable[FloatArray]]] = {
    "LSTD(0)": lambda counts, F, g: [average_reward_lstd(counts, F, g)(F)],
    "LSTD(0.9)": lambda counts, F, g: [average_reward_lstd(counts, F, g, decay=0.9)(F)],
    "TD(0)": partial(_td, decay=0.0),
    "TD(0.9)": partial(_td, decay=0.9),
    "discounted LSTD, 0.9": lambda counts, F, _: [discounted_lstd(counts, F, 0.9)(F)],
    "discounted LSTD, 0.99": lambda counts, F, _: [discounted_lstd(counts, F, 0.99)(F)],
    "discounted LSTD, 0.999": lambda counts, F, _: [discounted_lstd(counts, F, 0.999)(F)],
    "Monte Carlo regression": lambda counts, F, g: [monte_carlo(counts, F, g)(F)],
    CERTAINTY: lambda counts, F, g: [certainty_equivalence(counts, g)],
}
"""Values (S,) by counts, features and gain: one, or several of which the best is taken."""

ESTIMATORS = (*OURS, *BASELINES)


@dataclass(frozen=True)
class EstimatorSettings:
    """What every row depends on."""

    n_trials: int = 10_000
    n_batches: int = 20  # for choices that the agent makes by held-out batches
    rcond: float = 1e-10


def draw_batches(
    chain: MarkovChain, seed: int, n_trials: int, n_batches: int, t_max: int
) -> list[TransitionCounts]:
    """Return the counts of trials, drawn in independent batches of nearly the same size."""
    seeds = np.random.SeedSequence([seed, 3]).spawn(n_batches)
    sizes = np.diff(np.linspace(0, n_trials, n_batches + 1).astype(int))
    return [
        population_counts(chain, int(size), t_max, np.random.default_rng(each))
        for size, each in zip(sizes, seeds, strict=True)
    ]


def estimator_rows(task: Task) -> list[Row]:
    """Draw samples once, and give them to all estimators in every regime."""
    settings = task.settings
    chain, p = random_problem(task.env, task.seed)
    batches = draw_batches(chain, task.seed, settings.n_trials, settings.n_batches, len(p) - 1)
    rows = []
    for sampled in sampled_regimes(chain, batches, p, task.seed):
        alone = baseline_errors(sampled)
        for scheme, anchors in sampled.anchors_by_scheme.items():
            ours = {
                name: sampled.values(sampled.fit(anchors=anchors, rcond=settings.rcond, **options))
                for name, options in OURS.items()
            }
            limit = sampled.errors.limit(ours[DEFAULTS])
            errors = {name: sampled.total_rems(found) for name, found in ours.items()} | alone
            row = {"env": task.env, "rho": sampled.regime.rho, "seed": task.seed, "scheme": scheme}
            rows += [
                {**row, "estimator": estimator, "total_rems": error, "limit": limit}
                for estimator, error in errors.items()
            ]
    return rows


def baseline_errors(sampled: SampledRegime) -> dict[str, float]:
    """Return the total rems of `BASELINES`; an unknown value counts as the mean."""
    counts, F, gain = sampled.counts, sampled.features, sampled.errors.chain.gain
    moves = counts.transition_counts
    main = int(np.argmax(np.bincount(moves.indices // counts.n_states, weights=moves.data)))

    def total_rems(values: FloatArray) -> float:
        relative = np.nan_to_num(values - values[main])
        found = PiecewiseValues(np.zeros(1, dtype=np.int64), relative[None], main)
        return sampled.total_rems(found)

    return {
        name: min(map(total_rems, values(counts, F, gain))) for name, values in BASELINES.items()
    }


def run_estimator_study(
    out: Path,
    settings: EstimatorSettings,
    *,
    environments: Sequence[str] = ENVIRONMENTS,
    n_seeds: int = 20,
    **how: Unpack[How],
) -> list[Row]:
    """Return the rows of all estimators; see `rows_by_regime`."""
    what = out, "estimator", settings, KEY, estimator_rows, [(name,) for name in ESTIMATORS]
    return rows_by_regime(*what, environments, n_seeds, **how)
