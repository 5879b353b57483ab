r"""What a system of approximators is worth beside what else there is, on the same samples.

Every environment and ρ of the paper, two neighbourhoods (``p02md``) and as many as features allow
(``paxmd``). Errors are total rems, as multiples of the projection limit of the linked system's
neighbourhoods (`lstd_agent.study.reference_study.projection_limit`). Below 1 they may come since
a limit is that of mean squares over each neighbourhood, and the error a sum of roots. Estimators
with one approximator have one error, and are held against either limit.

Everybody gets the exact gain, and values are relative to the state that the last neighbourhood
visits most. TD is given the best of several numbers of updates, which nobody knows beforehand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lstd_agent.arrays import FloatArray
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
from lstd_agent.statistics.counts import CountStatistics
from lstd_agent.study.exact import ExactStatistics, full_distributions
from lstd_agent.study.metrics import StepwiseErrors
from lstd_agent.study.problems import (
    largest_first,
    population_counts,
    random_chain,
    random_features,
)
from lstd_agent.study.reference_study import projection_limit
from lstd_agent.study.rows import How, Row, RowStore
from lstd_agent.study.schemes import ENVIRONMENTS, regimes
from lstd_agent.system.distances import MMD, sampled_distance
from lstd_agent.system.fit_system import System, fit_system
from lstd_agent.system.minimizer import DEFAULT_RCOND
from lstd_agent.system.neighborhoods import find_anchors
from lstd_agent.system.selection import backup_name, choose_backup
from lstd_agent.trials.counting import TransitionCounts
from unichain_gym import MarkovChain

if TYPE_CHECKING:
    from typing_extensions import Unpack

KEY = ("env", "rho", "seed", "scheme", "estimator")
SCHEMES = ("p02md", "paxmd")
LINKED: tuple[Backup, ...] = ("one_step", "model", LambdaReturn(0.9))
DEFAULTS = "ours: defaults, backup by the data"
OURS = (
    DEFAULTS,
    *(f"ours: linked, {backup_name(backup)}" for backup in LINKED),
    "ours: paper's rules",
)
CERTAINTY = "certainty equivalence, tabular"
BASELINES = (
    "LSTD(0)",
    "LSTD(0.9)",
    "TD(0)",
    "TD(0.9)",
    "discounted LSTD, 0.9",
    "discounted LSTD, 0.99",
    "discounted LSTD, 0.999",
    "Monte Carlo regression",
    CERTAINTY,
)
ESTIMATORS = (*OURS, *BASELINES)

_N_UPDATES = tuple(10**k for k in range(2, 8))


@dataclass(frozen=True)
class EstimatorSettings:
    """What every row depends on.

    Attributes
    ----------
    n_trials : int
    n_batches : int
        In which they are drawn, for choices that the agent makes by held-out batches.
    rcond : float
    """

    n_trials: int = 10_000
    n_batches: int = 20
    rcond: float = DEFAULT_RCOND


@dataclass(frozen=True)
class EstimatorTask:
    """One set of samples: an environment and a seed."""

    env: str
    seed: int
    settings: EstimatorSettings


@dataclass(frozen=True, eq=False)
class _Problem:
    """One chain with its samples and features, and how to tell errors."""

    chain: MarkovChain
    batches: list[TransitionCounts]
    counts: TransitionCounts
    distributions: FloatArray
    features: FloatArray
    statistics: CountStatistics

    @property
    def exact(self) -> ExactStatistics:
        return ExactStatistics(self.chain, self.features, self.distributions)

    def total_rems(self, values: FloatArray, main: int) -> float:
        """Return that of values (S,) for all timesteps; what is unknown counts as the mean."""
        known = np.nan_to_num(values - values[main])
        error = known - self.chain.relative_value(main)
        return float(np.sqrt(self.distributions @ error**2).sum())


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


def estimator_rows(task: EstimatorTask) -> list[Row]:
    """Draw samples once, and give them to all estimators in every regime."""
    settings = task.settings
    chain = random_chain(task.env, task.seed)
    t_max = 10 * chain.mixing_time()
    distributions = full_distributions(chain, t_max)
    batches = draw_batches(chain, task.seed, settings.n_trials, settings.n_batches, t_max)
    counts = reduce(add, batches)
    rows = []
    for regime in regimes(chain.n_states):
        F = random_features(chain.n_states, regime.n_features, task.seed)
        statistics = CountStatistics(counts, F)
        problem = _Problem(chain, batches, counts, distributions, F, statistics)
        main, _ = statistics.zero(np.array([0, t_max + 1]))
        alone = baseline_errors(problem, main)
        for scheme, n_anchors in zip(SCHEMES, (2, regime.n_anchors_max), strict=True):
            errors, limit = _system_errors(problem, n_anchors, settings.rcond)
            rows += [
                {
                    "env": task.env,
                    "rho": regime.rho,
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
    problem: _Problem, n_anchors: int, rcond: float
) -> tuple[dict[str, float], float]:
    """Return the total rems of our systems, and the projection limit."""
    statistics, gain = problem.statistics, problem.chain.gain
    squared = sampled_distance(MMD("quadratic"), statistics)
    t_max = statistics.t_max
    anchors = find_anchors(squared, t_max, n_anchors)

    def linked(backup: Backup) -> System:
        return fit_system(statistics, anchors, gain, rcond=rcond, backup=backup)

    by_backup = {backup: linked(backup) for backup in LINKED}
    chosen = choose_backup(statistics, problem.batches, anchors, gain, rcond).backup
    by_rules = fit_system(
        statistics,
        find_anchors(squared, t_max, n_anchors, "doubling"),
        gain,
        calibration="references",
        reference="most_common",
        rcond=rcond,
    )
    default = by_backup[chosen] if chosen in by_backup else linked(chosen)
    systems = dict(zip(OURS, (default, *by_backup.values(), by_rules), strict=True))
    exact = problem.exact
    errors = StepwiseErrors(exact)
    limit = float(errors.rems(projection_limit(default, exact)).sum())
    return {name: float(errors.rems(each).sum()) for name, each in systems.items()}, limit


def baseline_errors(problem: _Problem, main: int) -> dict[str, float]:
    """Return the total rems of `BASELINES`."""
    counts, F, gain = problem.counts, problem.features, problem.chain.gain
    values = {
        "LSTD(0)": average_reward_lstd(counts, F, gain)(F),
        "LSTD(0.9)": average_reward_lstd(counts, F, gain, decay=0.9)(F),
        **{f"discounted LSTD, {g}": discounted_lstd(counts, F, g)(F) for g in (0.9, 0.99, 0.999)},
        "Monte Carlo regression": monte_carlo(counts, F, gain)(F),
        CERTAINTY: certainty_equivalence(counts, gain),
    }
    errors = {name: problem.total_rems(each, main) for name, each in values.items()}
    for decay, name in ((0.0, "TD(0)"), (0.9, "TD(0.9)")):
        means = TraceMeans.of(counts, F, decay)
        errors[name] = min(problem.total_rems(v, main) for v in _td_values(means, F, gain))
    return errors


def _td_values(means: TraceMeans, features: FloatArray, gain: float) -> Iterator[FloatArray]:
    """Yield the values that TD has come to, until it diverges."""
    for n_updates in (0, *_N_UPDATES):
        try:
            yield mean_td_path(means, gain, 0.1, n_updates)(features)
        except EvaluationError:
            return


def run_estimator_study(
    out: Path,
    settings: EstimatorSettings,
    *,
    environments: Sequence[str] = ENVIRONMENTS,
    n_seeds: int = 20,
    **how: Unpack[How],
) -> list[Row]:
    """Compute the rows of seeds 0 to n_seeds - 1 that a folder lacks, and return all asked for.

    See `lstd_agent.study.rows.How` for the other arguments.
    """
    store = RowStore(out / "estimator_rows.jsonl", asdict(settings), KEY)
    store.compute(estimator_rows, _missing(store, settings, environments, n_seeds), **how)
    return store.asked(env=environments, seed=range(n_seeds))


def _missing(
    store: RowStore, settings: EstimatorSettings, environments: Sequence[str], n_seeds: int
) -> Iterator[EstimatorTask]:
    for env, n_states, seed in largest_first(environments, n_seeds):
        keys = (
            (env, regime.rho, seed, scheme, estimator)
            for regime in regimes(n_states)
            for scheme in SCHEMES
            for estimator in ESTIMATORS
        )
        if not all(key in store for key in keys):
            yield EstimatorTask(env, seed, settings)
