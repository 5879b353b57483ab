"""The sampling experiments: errors against the number of trials, on h6 and c10."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from lstd_agent.arrays import IntArray
from lstd_agent.errors import check_choice
from lstd_agent.features.tables import OneHot
from lstd_agent.statistics.counts import CountStatistics
from lstd_agent.study.exact import ExactStatistics
from lstd_agent.study.metrics import StepwiseErrors
from lstd_agent.study.problems import population_counts, random_features, random_problem
from lstd_agent.study.rows import How, Row, RowStore
from lstd_agent.system.distances import MMD, sampled_distance
from lstd_agent.system.fit_system import fit_system
from lstd_agent.system.minimizer import DEFAULT_RCOND
from lstd_agent.system.neighborhoods import TailName, find_anchors
from lstd_agent.system.references import RuleName
from lstd_agent.trials.collect import Request
from lstd_agent.trials.counts import TransitionCounts
from lstd_agent.trials.store import TrialStore
from unichain_gym import MarkovChain

if TYPE_CHECKING:
    from typing_extensions import Unpack

SCHEMES = ("p01", "p02md", "paxmd", "pinf")
KEY = ("env", "n_features", "seed", "n_trials", "scheme")

# How many copies of the environment run at once; the law of the samples does not depend on it.
_NUM_ENVS = 5_000

Engine = Literal["trials", "population"]
Estimator = Literal["quadratic", "linear"]


@dataclass(frozen=True)
class Panel:
    """One panel of the figure: an environment with a number of features."""

    env: str
    n_features: int
    rho: float
    n_anchors_max: int


PANELS = (
    Panel("h6", 1, 0.19, 5),
    Panel("h6", 2, 0.49, 2),
    Panel("c10", 3, 0.33, 3),
    Panel("c10", 4, 0.49, 2),
)
CHECKPOINTS = {
    "h6": tuple(range(1_000, 10_001, 1_000)),
    "c10": tuple(range(5_000, 50_001, 5_000)),
}


@dataclass(frozen=True)
class SamplingSettings:
    """What every row of the sampling study depends on.

    The engine steps environments, or draws all trials' counts at once (`population_counts`). The
    estimator of the MMD is by all pairs of trials, or by the paper's disjoint pairs of at most
    ``n_stored`` trials, which the engine ``"trials"`` alone can give.
    """

    engine: Engine = "trials"
    estimator: Estimator = "quadratic"
    n_stored: int = 2_000
    tail: TailName = "window"
    reference: RuleName = "most_common"
    rcond: float = DEFAULT_RCOND

    def __post_init__(self) -> None:
        check_choice("engine", self.engine, get_args(Engine))
        check_choice("estimator", self.estimator, get_args(Estimator))


@dataclass(frozen=True)
class SamplingTask:
    """One collection: an environment and a seed, and the rows it is to serve."""

    env: str
    seed: int
    checkpoints: tuple[int, ...]
    missing: frozenset[tuple[int, int, str]]
    settings: SamplingSettings


def sampling_rows(task: SamplingTask) -> list[Row]:
    """Collect once, and evaluate every panel and scheme at every checkpoint."""
    chain, distributions = random_problem(task.env, task.seed)
    t_max = len(distributions) - 1
    panels = []
    for panel in PANELS:
        if panel.env == task.env:
            features = random_features(chain.n_states, panel.n_features, task.seed)
            errors = StepwiseErrors(ExactStatistics(chain, features, distributions))
            panels.append((panel, features, errors))
    rows = []
    for counts, trials in cumulative_samples(task, chain, t_max):
        for panel, features, errors in panels:
            statistics = CountStatistics(counts, features, trials)
            for scheme in SCHEMES:
                if (panel.n_features, counts.n_trials, scheme) not in task.missing:
                    continue
                system = fit_system(
                    statistics,
                    scheme_anchors(scheme, statistics, panel.n_anchors_max, task.settings),
                    chain.gain,
                    calibration="references",
                    reference=task.settings.reference,
                    tail=task.settings.tail,
                    rcond=task.settings.rcond,
                )
                rows.append(
                    {
                        "env": task.env,
                        "rho": panel.rho,
                        "n_features": panel.n_features,
                        "seed": task.seed,
                        "n_trials": counts.n_trials,
                        "scheme": scheme,
                        "n_anchors": len(system.anchors),
                        "t_max": t_max,
                        "total_repb": float(errors.repb(system).sum()),
                        "total_rems": float(errors.rems(system).sum()),
                    }
                )
    return rows


def scheme_anchors(
    scheme: str, statistics: CountStatistics, n_anchors_max: int, settings: SamplingSettings
) -> IntArray:
    """Return the anchors of a sampled scheme."""
    n_anchors = {"p01": 1, "p02md": 2, "paxmd": n_anchors_max, "pinf": None}[scheme]
    squared = sampled_distance(MMD(settings.estimator), statistics)
    return find_anchors(squared, statistics.t_max, n_anchors)


def cumulative_samples(
    task: SamplingTask, chain: MarkovChain, t_max: int
) -> Iterator[tuple[TransitionCounts, NDArray[np.unsignedinteger[Any]] | None]]:
    """Yield all counts, and the stored trials, up to each checkpoint."""
    assert chain.policy is not None
    policy, name = chain.policy.argmax(axis=1), f"unichain_gym:Unichain-{task.env}-v0"
    increments = np.diff((0, *task.checkpoints)).tolist()
    seeds = np.random.SeedSequence([task.seed, 1]).spawn(len(increments))
    collector = TrialStore(OneHot(), n_batches=1, n_stored_trials=task.settings.n_stored)
    for increment, seed in zip(increments, seeds, strict=True):
        if task.settings.engine == "population":
            rng = np.random.default_rng(seed)
            collector.add(population_counts(chain, increment, t_max, rng))
        else:
            request = Request(increment, t_max, int(seed.generate_state(1)[0]))
            with closing(gym.make_vec(name, num_envs=min(increment, _NUM_ENVS))) as env:
                collector.collect(env, policy, request)
        yield collector.counts, collector.batches.trials


def run_sampling_study(
    out: Path,
    settings: SamplingSettings,
    *,
    n_seeds: int = 20,
    **how: Unpack[How],
) -> list[Row]:
    """Compute the rows of seeds 0 to n_seeds - 1 that a folder lacks, and return all asked for."""
    store = RowStore(out / "sampling_rows.jsonl", asdict(settings), KEY)
    store.compute(sampling_rows, _missing(store, settings, range(n_seeds)), **how)
    return store.asked(seed=range(n_seeds))


def _missing(
    store: RowStore, settings: SamplingSettings, seeds: Sequence[int]
) -> Iterator[SamplingTask]:
    for env in ("c10", "h6"):  # the longer collections first
        for seed in seeds:
            missing = frozenset(
                (panel.n_features, n_trials, scheme)
                for panel in PANELS
                if panel.env == env
                for n_trials in CHECKPOINTS[env]
                for scheme in SCHEMES
                if (env, panel.n_features, seed, n_trials, scheme) not in store
            )
            if missing:
                last = max(n_trials for _, n_trials, _ in missing)
                checkpoints = tuple(n for n in CHECKPOINTS[env] if n <= last)
                yield SamplingTask(env, seed, checkpoints, missing, settings)
