"""Rows about the evaluator: collection, own loops, fits, populations, and the README's jobs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np

from benchmark.processes import processor_seconds
from benchmark.timing import Row, Setting, Work, against_limit, compare
from benchmark.work import (
    ENV,
    VECTOR,
    actions_of,
    bare_fits,
    collect_work,
    fitting,
    one_hot_fits,
    policy_of,
    random_numbers,
)
from lstd_agent import (
    MMD,
    GaussianFeatures,
    LambdaReturn,
    OneHot,
    PolicyIteration,
    SeminormLSTDAgent,
)
from lstd_agent.problems import random_chain, random_features
from unichain_gym import UnichainVectorEnv, simulate_counts


def collection(setting: Setting) -> Iterator[Row]:
    """Compare collecting trials, to the last count, with drawing a double a sample."""
    n_steps = 40 if setting.quick else 400
    samples = (float(VECTOR * n_steps),) * 2
    for n_states in (100, 1_000, 10_000):
        envs = UnichainVectorEnv(VECTOR, f"h{n_states}")
        yield compare(
            f"collect() on h{n_states}, as a multiple of drawing a double",
            collect_work(envs, policy_of(n_states), VECTOR, n_steps - 1),
            random_numbers(VECTOR, n_steps),
            setting,
            samples=samples,
            target="<= 10" if n_states == 100 else "",
        )
    if setting.quick:
        return
    n, policy = 1_000_000, policy_of(100)

    def sharded(workers: int) -> Work:
        return lambda: SeminormLSTDAgent(GaussianFeatures(10)).collect(
            "unichain_gym:Unichain-h100-v0", policy, n_trials=n, t_max=199, seed=0, workers=workers
        )

    yield compare(f"{n} trials, two workers against one", sharded(2), sharded(1), setting)


def loops(setting: Setting) -> Iterator[Row]:
    """Compare a step of one's own loop, and of `collect`, with a bare step of the environment."""
    n_trials, t_max = 20 if setting.quick else 100, 99
    env: Any = gym.make("unichain_gym:Unichain-h100-v0").unwrapped
    policy = policy_of(100)

    def bare() -> None:
        for _ in range(n_trials):
            state, _ = env.reset()
            for _ in range(t_max + 1):
                state, *_ = env.step(policy[state])

    def own() -> None:
        agent = SeminormLSTDAgent(OneHot()).attach(env, policy)
        for _ in range(n_trials):
            state, _ = env.reset()
            for t in range(t_max + 1):
                following, reward, *_ = env.step(policy[state])
                agent.observe(t, state, reward, following)
                state = following
            agent.end_trial()

    def collect() -> None:
        SeminormLSTDAgent(OneHot()).collect(env, policy, n_trials=n_trials, t_max=t_max, seed=0)

    samples = (float(n_trials * (t_max + 1)),) * 2
    for name, work in (("own loop", own), ("collect()", collect)):
        title = f"a step of {name}, as a multiple of the environment's"
        yield compare(title, work, bare, setting, samples=samples)


def fits(setting: Setting) -> Iterator[Row]:
    """Compare fits by default with one bare solve of the same features."""
    for kind, size in (("dense", 10), ("dense", 100), ("tiles", 1_000)):
        what = "cosines" if kind == "dense" else kind
        name = f"fit(), {size:,} {what}, as a multiple of a bare solve"
        yield compare(name, *bare_fits(kind, size), setting)
    name = "fit(), 1,000 one-hot states, as a multiple of a bare solve"
    yield compare(name, *one_hot_fits(1_000), setting)


def backups(setting: Setting) -> Iterator[Row]:
    """Compare fits by longer returns, and by a choice of the data, with fits by single steps."""
    t_max, d = 500 if setting.quick else 5_000, 49
    counts = simulate_counts(random_chain(ENV, 0), 10_000, t_max, np.random.default_rng(0))

    def fit(backup: Any) -> Work:
        features, distance = random_features(100, d, 0), MMD("quadratic")
        return fitting(SeminormLSTDAgent(features, distance=distance, backup=backup).add(counts))

    one = fit("one_step")
    choices = {"lambda = 0.9": LambdaReturn(0.9), "the model": "model", "a choice": "auto"}
    for name, backup in choices.items():
        title = f"fit() by {name}, as a multiple of single steps: {t_max + 1:,} t, d = {d}"
        target = "<= 3" if name.startswith("lambda") else ""
        yield compare(title, fit(backup), one, setting, target=target)


def population(setting: Setting) -> Iterator[Row]:
    """Compare drawing all trials' counts at once with stepping every trial."""
    chain = random_chain(ENV, 0)
    policy, t_max = actions_of(chain), 19

    def simulate(n: int, t_max: int) -> Work:
        return lambda: simulate_counts(chain, n, t_max, np.random.default_rng(0))

    for power in range(3, 7 if setting.quick else 8):
        n = 10**power
        collect = collect_work(UnichainVectorEnv(min(n, VECTOR), ENV), policy, n, t_max)
        name = f"{n} trials by counts, times faster than trial by trial"
        yield compare(name, simulate(n, t_max), collect, setting, faster=True)
    name = "10^7 trials by counts, as a multiple of 10^4"
    yield compare(name, simulate(10**7, 500), simulate(10**4, 500), setting, target="<= 1.5")


def improvement(setting: Setting) -> Iterator[Row]:
    """Compare an iteration of policy iteration with evaluating a policy once."""
    n, t_max = 2_000, 40 if setting.quick else 400
    envs = UnichainVectorEnv(n, ENV)

    def iterate() -> None:
        search = PolicyIteration(envs, t_max=t_max, n_trials=n, policy=policy_of(100), seed=0)
        search.iterate(progress=False)

    def evaluate() -> None:
        agent = SeminormLSTDAgent(OneHot())
        agent.collect(envs, policy_of(100), n_trials=n, t_max=t_max, seed=0, explore=1).fit()
        agent.action_values(range(100))

    name = f"an iteration on {ENV}, {n:,} trials, {t_max + 1} t, as a multiple of collect and fit"
    yield compare(name, iterate, evaluate, setting, target="<= 1")


def jobs(setting: Setting) -> Iterator[Row]:
    """Compare the README's two jobs, each in a process of its own, with five seconds."""
    commands = {
        "evaluate h36c": ["-m", "lstd_agent", "evaluate", "h36c", "--quiet"],
        "queue backlog": ["examples/queue_backlog.py"],
    }
    for name, command in commands.items():
        times = [processor_seconds(command) for _ in range(setting.repeats)]
        yield against_limit(f"README: {name}", times, 5.0, "s of the processor, of 5 s", "")
