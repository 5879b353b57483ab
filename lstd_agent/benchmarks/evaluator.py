"""Rows about the evaluator: collection, statistics, populations, and a cell of the study."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator

import numpy as np

from lstd_agent import GaussianFeatures, LambdaReturn, OneHot, PolicyIteration, SeminormLSTDAgent
from lstd_agent.benchmarks.timing import Row, Setting, Work, against_limit, compare, seconds
from lstd_agent.benchmarks.work import (
    ENV,
    VECTOR,
    actions_of,
    collect_work,
    policy_of,
    random_numbers,
    sampled,
    stepwise,
)
from lstd_agent.errors import FitWarning
from lstd_agent.statistics.backups import WantedBackup
from lstd_agent.study.exact_study import ExactSettings, ExactTask, exact_rows
from lstd_agent.study.problems import random_chain, random_features
from lstd_agent.study.schemes import SCHEMES, regimes
from lstd_agent.system.distances import MMD
from lstd_agent.system.fit_system import solve_windows
from unichain_gym import UnichainVectorEnv
from unichain_gym.population import simulate_counts


def collection(setting: Setting) -> Iterator[Row]:
    """Compare collecting trials, to the last count, with drawing a double a sample."""
    n_steps = 40 if setting.quick else 400
    samples = (float(VECTOR * n_steps),) * 2
    for mnemonic, n_states in (("h100", 100), ("h1000", 1_000), ("h10000", 10_000)):
        envs = UnichainVectorEnv(VECTOR, mnemonic)
        yield compare(
            f"collect() on {mnemonic}, as a multiple of drawing a double",
            collect_work(envs, policy_of(n_states), VECTOR, n_steps - 1),
            random_numbers(VECTOR, n_steps),
            setting,
            samples=samples,
            target="<= 10" if mnemonic == ENV else "",
        )
    if setting.quick:
        return
    n, policy = 1_000_000, policy_of(100)

    def sharded(workers: int) -> Work:
        return lambda: SeminormLSTDAgent(GaussianFeatures(10)).collect(
            "unichain_gym:Unichain-h100-v0", policy, n, 199, seed=0, workers=workers
        )

    yield compare(f"{n} trials, two workers against one", sharded(2), sharded(1), setting)


def statistics_group(setting: Setting) -> Iterator[Row]:
    """Compare all X, Z, y from counts with gathering features at every timestep."""
    n_trials, t_max, d = 10_000, 100 if setting.quick else 500, 49
    statistics_ = sampled(ENV, n_trials, t_max, d)
    features = statistics_.features
    states = np.random.default_rng(0).integers(100, size=(t_max + 2, n_trials))

    def gather() -> None:
        for t in range(t_max + 1):
            f, following = features[states[t]], features[states[t + 1]]
            f.T @ (f - following), f.T @ f, f.T @ np.ones(n_trials)

    name = f"X, Z, y of {t_max + 1} timesteps, times faster than by gathering"
    yield compare(
        name, lambda: statistics_.moments(stepwise(t_max), 0.0), gather, setting, faster=True
    )


def backups(setting: Setting) -> Iterator[Row]:
    """Compare fits by longer returns, and by a choice of the data, with those by single steps."""
    t_max, d = 500 if setting.quick else 5_000, 49
    chain = random_chain(ENV, 0)
    counts = simulate_counts(chain, 10_000, t_max, np.random.default_rng(0))

    def fit(backup: WantedBackup) -> Work:
        agent = SeminormLSTDAgent(
            random_features(100, d, 0), distance=MMD("quadratic"), backup=backup
        ).add(counts)

        def work() -> None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FitWarning)  # features are coarse
                agent.fit()

        return work

    one = fit("one_step")
    choices: tuple[tuple[str, WantedBackup], ...] = (
        ("lambda = 0.9", LambdaReturn(0.9)),
        ("the model", "model"),
        ("a choice by the data", "auto"),
    )
    for name, backup in choices:
        yield compare(
            f"fit() by {name}, as a multiple of single steps: {t_max + 1:,} t, d = {d}",
            fit(backup),
            one,
            setting,
            target="<= 3" if isinstance(backup, LambdaReturn) else "",
        )


def population(setting: Setting) -> Iterator[Row]:
    """Compare drawing all trials' counts at once with stepping every trial."""
    chain = random_chain(ENV, 0)
    policy, t_max = actions_of(chain), 19

    def simulate(n: int, t_max: int) -> Work:
        return lambda: simulate_counts(chain, n, t_max, np.random.default_rng(0))

    for power in range(3, 7 if setting.quick else 8):
        n = 10**power
        envs = UnichainVectorEnv(min(n, VECTOR), ENV)
        name = f"{n} trials by counts, times faster than trial by trial"
        collect = collect_work(envs, policy, n, t_max)
        yield compare(name, simulate(n, t_max), collect, setting, faster=True)
    name = "10^7 trials by counts, as a multiple of 10^4"
    yield compare(name, simulate(10**7, 500), simulate(10**4, 500), setting, target="<= 1.5")

    def pipeline() -> None:
        statistics_ = sampled(ENV, 50_000, 5_000, 49)
        statistics_.moments(stepwise(5_000), chain.gain)
        solve_windows(statistics_, stepwise(5_000), chain.gain, 1e-10)

    times = [seconds(pipeline, time.process_time) for _ in range(setting.repeats)]
    name = "simulate, X, Z, y, minimizers: 100 states, 5,001 t, d = 49"
    yield against_limit(name, times, 2.0, "s of the processor; the yardstick is a limit of 2 s")


def improvement(setting: Setting) -> Iterator[Row]:
    """Compare an iteration of policy iteration with evaluating a policy once."""
    n, t_max = 2_000, 40 if setting.quick else 400
    envs = UnichainVectorEnv(n, ENV)

    def iterate() -> None:
        PolicyIteration(envs, t_max, n, policy=policy_of(100), seed=0).iterate(progress=False)

    def evaluate() -> None:
        agent = SeminormLSTDAgent(OneHot())
        agent.collect(envs, policy_of(100), n, t_max, seed=0, explore=1).fit()
        agent.action_values(range(100))

    name = f"an iteration on {ENV}, {n:,} trials, {t_max + 1} t, as a multiple of collect and fit"
    yield compare(name, iterate, evaluate, setting, target="<= 1")


def study(setting: Setting) -> Iterator[Row]:
    """Compare one cell of the exact study with one eigendecomposition for each timestep."""
    env = "h36c" if setting.quick else ENV
    chain = random_chain(env, 0)
    regime = regimes(chain.n_states)[0]
    task = ExactTask(env, 0, ((regime, SCHEMES),), ExactSettings())
    t_max, d = 10 * chain.mixing_time(), regime.n_features
    Z = np.broadcast_to(np.cov(np.random.default_rng(0).random((d, 4 * d))), (t_max + 1, d, d))
    name = f"all schemes on {env}, d = {d}, as a multiple of eigh for each t"
    yield compare(name, lambda: exact_rows(task), lambda: np.linalg.eigh(Z), setting)
