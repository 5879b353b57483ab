"""What a system of approximators is worth beside what else there is, on the same samples.

Every environment and ρ of the paper, two neighbourhoods (``p02md``) and as many as features allow
(``paxmd``). Errors are total rems, as multiples of the projection limit of the linked system's
neighbourhoods (`lstd_agent.study.sampled`). Estimators with one approximator have one error, and
are held against either limit.

Everybody gets the exact gain, and values are relative to the state that the last neighbourhood
visits most. TD is given the best of several numbers of updates, which nobody knows beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial, reduce
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.baselines import (
    average_reward_lstd,
    certainty_equivalence,
    discounted_lstd,
    monte_carlo,
)
from lstd_agent.baselines.estimators import mean_td_path
from lstd_agent.baselines.traces import TraceMeans
from lstd_agent.errors import EvaluationError
from lstd_agent.statistics.backups import Backup, LambdaReturn
from lstd_agent.study.problems import SampleTask, largest_first, population_counts, random_problem
from lstd_agent.study.rows import How, Row, RowStore
from lstd_agent.study.sampled import SCHEMES, SampledRegime, sampled_regimes
from lstd_agent.study.schemes import ENVIRONMENTS, regimes
from lstd_agent.system.approximators import System
from lstd_agent.system.fit_system import fit_system
from lstd_agent.system.minimizer import DEFAULT_RCOND
from lstd_agent.system.selection import backup_name, choose_backup
from lstd_agent.trials.counts import TransitionCounts
from unichain_gym import MarkovChain

if TYPE_CHECKING:
    from typing_extensions import Unpack

KEY = ("env", "rho", "seed", "scheme", "estimator")
LINKED: tuple[Backup, ...] = ("one_step", "model", LambdaReturn(0.9))
DEFAULTS = "ours: defaults, backup by the data"
OURS = (
    DEFAULTS,
    *(f"ours: linked, {backup_name(backup)}" for backup in LINKED),
    "ours: paper's rules",
)
# Updates of TD after which it is looked at, beside its start from 0.
_N_UPDATES = tuple(10**k for k in range(2, 8))


def _td_values(
    counts: TransitionCounts, features: FloatArray, gain: float, decay: float
) -> Iterator[FloatArray]:
    """Yield the values that TD has come to, until it diverges."""
    means = TraceMeans.of(counts, features, decay)
    for n_updates in (0, *_N_UPDATES):
        try:
            yield mean_td_path(means, gain, 0.1, n_updates)(features)
        except EvaluationError:
            return


CERTAINTY = "certainty equivalence, tabular"
BASELINES: dict[str, Callable[[TransitionCounts, FloatArray, float], Iterable[FloatArray]]] = {
    "LSTD(0)": lambda counts, F, g: [average_reward_lstd(counts, F, g)(F)],
    "LSTD(0.9)": lambda counts, F, g: [average_reward_lstd(counts, F, g, decay=0.9)(F)],
    "TD(0)": partial(_td_values, decay=0.0),
    "TD(0.9)": partial(_td_values, decay=0.9),
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
    rcond: float = DEFAULT_RCOND


def draw_batches(
    chain: MarkovChain, seed: int, n_trials: int, n_batches: int, t_max: int
) -> list[TransitionCounts]:
    """Return the counts of trials that are drawn in independent batches of (nearly) one size."""
    seeds = np.random.SeedSequence([seed, 3]).spawn(n_batches)
    sizes = np.diff(np.linspace(0, n_trials, n_batches + 1).astype(int))
    return [
        population_counts(chain, int(size), t_max, np.random.default_rng(each))
        for size, each in zip(sizes, seeds, strict=True)
    ]


def estimator_rows(task: SampleTask[EstimatorSettings]) -> list[Row]:
    """Draw samples once, and give them to all estimators in every regime."""
    settings = task.settings
    chain, distributions = random_problem(task.env, task.seed)
    t_max = len(distributions) - 1
    batches = draw_batches(chain, task.seed, settings.n_trials, settings.n_batches, t_max)
    counts = reduce(add, batches)
    rows = []
    for sampled in sampled_regimes(chain, counts, distributions, task.seed):
        alone = baseline_errors(sampled, counts)
        for scheme, anchors in sampled.anchors_by_scheme.items():
            errors, limit = _system_errors(sampled, batches, anchors, settings.rcond)
            rows += [
                {
                    "env": task.env,
                    "rho": sampled.regime.rho,
                    "seed": task.seed,
                    "scheme": scheme,
                    "estimator": estimator,
                    "total_rems": error,
                    "limit": limit,
                }
                for estimator, error in (errors | alone).items()
            ]
    return rows


def _system_errors(
    sampled: SampledRegime, batches: Sequence[TransitionCounts], anchors: IntArray, rcond: float
) -> tuple[dict[str, float], float]:
    """Return the total rems of our systems, and the projection limit."""
    statistics, gain = sampled.statistics, sampled.exact.chain.gain

    def linked(backup: Backup) -> System:
        return fit_system(statistics, anchors, gain, rcond=rcond, backup=backup)

    by_backup = {backup: linked(backup) for backup in LINKED}
    chosen = choose_backup(statistics, batches, anchors, gain, rcond).backup
    by_rules = fit_system(
        statistics, anchors, gain, calibration="references", reference="most_common", rcond=rcond
    )
    default = by_backup[chosen] if chosen in by_backup else linked(chosen)
    systems = (default, *by_backup.values(), by_rules)
    errors = {name: sampled.total_rems(s) for name, s in zip(OURS, systems, strict=True)}
    return errors, sampled.limit(default)


def baseline_errors(sampled: SampledRegime, counts: TransitionCounts) -> dict[str, float]:
    """Return the total rems of `BASELINES`; what is unknown counts as the mean."""
    statistics, exact = sampled.statistics, sampled.exact
    F, gain = exact.features, exact.chain.gain
    main, _ = statistics.zero(np.array([0, statistics.t_max + 1]))

    def total_rems(values: FloatArray) -> float:
        error = np.nan_to_num(values - values[main]) - exact.chain.relative_value(main)
        return float(np.sqrt(exact.distributions @ error**2).sum())

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
    """Compute the rows of seeds 0 to n_seeds - 1 that a folder lacks, and return all asked for."""
    store = RowStore(out / "estimator_rows.jsonl", asdict(settings), KEY)
    tasks = (
        SampleTask(env, seed, settings)
        for env, n_states, seed in largest_first(environments, n_seeds)
        if store.lacks(
            (env, regime.rho, seed, scheme, estimator)
            for regime in regimes(n_states)
            for scheme in SCHEMES
            for estimator in ESTIMATORS
        )
    )
    store.compute(estimator_rows, tasks, **how)
    return store.asked(env=environments, seed=range(n_seeds))
