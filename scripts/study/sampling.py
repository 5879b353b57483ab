"""The sampling experiments: errors against the number of trials, on h6 and c10."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Literal, get_args

import gymnasium as gym
import numpy as np

from lstd_agent import MMD, OneHot, SeminormLSTDAgent
from lstd_agent.errors import FitWarning, InvalidInputError, check_choice
from lstd_agent.fit_options import AgentTailName
from lstd_agent.problems import PiecewiseValues, StepwiseErrors, random_features, random_problem
from lstd_agent.results import Row
from lstd_agent.system.neighborhoods import RuleName
from study.store import Among, Key, Study, Task
from unichain_gym import MarkovChain, simulate_counts

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

    def n_anchors(self, scheme: str) -> int | None:
        """Return the wanted number of anchors of one of `SCHEMES`."""
        return {"p01": 1, "p02md": 2, "paxmd": self.n_anchors_max, "pinf": None}[scheme]


SCHEMES = ("p01", "p02md", "paxmd", "pinf")
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

    The engine steps environments, or draws the counts of all trials at once. The MMD is estimated
    by all pairs of trials, or by the paper's disjoint pairs of at most ``n_stored`` trials, for
    which the engine must be ``"trials"``.
    """

    engine: Engine = "trials"
    estimator: Estimator = "quadratic"
    n_stored: int = 2_000
    tail: AgentTailName = "window"
    reference: RuleName = "most_common"
    rcond: float = 1e-10

    def __post_init__(self) -> None:
        check_choice("engine", self.engine, get_args(Engine))
        check_choice("estimator", self.estimator, get_args(Estimator))
        if self.engine == "population" and self.estimator == "linear":
            raise InvalidInputError("the linear estimator pairs single trials: step environments")


def sampling_rows(task: Task) -> list[Row]:
    """Collect once, and evaluate every panel and scheme at every checkpoint."""
    chain, distributions = random_problem(task.env, task.seed)
    t_max, settings = len(distributions) - 1, task.settings
    tables = {
        panel: random_features(chain.n_states, panel.n_features, task.seed)
        for panel in PANELS
        if panel.env == task.env
    }
    errors = {panel: StepwiseErrors(chain, F, distributions) for panel, F in tables.items()}
    rows = []
    for samples in cumulative_samples(task, chain, t_max):
        for panel, features in tables.items():
            for scheme in SCHEMES:
                key = task.env, panel.n_features, task.seed, samples.n_trials, scheme
                if key not in task.missing:
                    continue
                options = {"tail": settings.tail, "reference": settings.reference}
                options |= {"rcond": settings.rcond, "n_stored_trials": settings.n_stored}
                options |= {"gain": chain.gain, "distance": MMD(settings.estimator)}
                agent = SeminormLSTDAgent.paper(features, panel.n_anchors(scheme), **options)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", FitWarning)  # errors tell more
                    agent.merge(samples).fit()
                found = PiecewiseValues.of(agent, chain.n_states)
                row = {"env": task.env, "rho": panel.rho, "n_features": panel.n_features}
                row |= {"seed": task.seed, "n_trials": samples.n_trials, "scheme": scheme}
                row |= {"n_anchors": len(found.anchors), "t_max": t_max}
                row |= {"total_repb": float(errors[panel].repb(found).sum())}
                rows.append({**row, "total_rems": float(errors[panel].rems(found).sum())})
    return rows


def cumulative_samples(task: Task, chain: MarkovChain, t_max: int) -> Iterator[SeminormLSTDAgent]:
    """Yield an agent that holds all trials up to each checkpoint."""
    assert chain.policy is not None
    policy, name = chain.policy.argmax(axis=1), f"unichain_gym:Unichain-{task.env}-v0"
    last = max(key[3] for key in task.missing)
    checkpoints = [n for n in CHECKPOINTS[task.env] if n <= last]
    increments = np.diff([0, *checkpoints]).tolist()
    seeds = np.random.SeedSequence([task.seed, 1]).spawn(len(increments))
    agent = SeminormLSTDAgent(OneHot(), n_batches=2, n_stored_trials=task.settings.n_stored)
    for increment, seed in zip(increments, seeds, strict=True):
        if task.settings.engine == "population":
            agent.add(simulate_counts(chain, increment, t_max, np.random.default_rng(seed)))
        else:
            with closing(gym.make_vec(name, num_envs=min(increment, _NUM_ENVS))) as env:
                drawn = int(seed.generate_state(1)[0])
                agent.collect(env, policy, n_trials=increment, t_max=t_max, seed=drawn)
        yield agent


def _work(env: str, _: int, seeds: range, __: Among, ___: Any) -> Iterator[tuple[int, list[Key]]]:
    numbers = [panel.n_features for panel in PANELS if panel.env == env]
    columns = [(n, scheme) for n in CHECKPOINTS[env] for scheme in SCHEMES]
    for seed in seeds:
        yield seed, [(env, d, seed, *column) for d in numbers for column in columns]


SAMPLING = Study(
    "sampling",
    SamplingSettings,
    ("env", "n_features", "seed", "n_trials", "scheme"),
    sampling_rows,
    _work,
    {"env": [*CHECKPOINTS]},
)
