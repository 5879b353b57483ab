"""The rows of `benchmark.py`, in groups: generators of rows by name."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import gymnasium as gym
import numpy as np
from benchmark_timing import Row, Setting, Work, compare, growth, need, probe, seconds
from scipy import sparse
from scipy.sparse.linalg import splu

import unichain_gym
from lstd_agent import MMD, GaussianFeatures, SeminormLSTDAgent
from lstd_agent.statistics.counts import CountStatistics
from lstd_agent.study.exact_study import ExactSettings, ExactTask, exact_rows
from lstd_agent.study.problems import population_counts, random_chain, random_features
from lstd_agent.study.schemes import SCHEMES, regimes
from lstd_agent.system.distances import sampled_distance
from lstd_agent.system.fit_system import fit_system
from lstd_agent.system.neighborhoods import find_anchors
from unichain_gym import MarkovChain, UnichainVectorEnv
from unichain_gym.population import simulate_counts

ENV = "h100"
VECTOR = 50_000


def policy_of(n_states: int) -> np.ndarray:
    """Return a random deterministic policy for two actions."""
    return np.random.default_rng(0).integers(2, size=n_states)


def stepper(env: gym.vector.VectorEnv, n_steps: int, dtype: type = np.int64) -> Work:
    """Return the work of stepping a vector environment with the same actions."""
    env.reset()
    actions = np.ones(env.num_envs, dtype=dtype)

    def work() -> None:
        for _ in range(n_steps):
            env.step(actions)

    return work


def random_numbers(n: int, n_steps: int) -> Work:
    """Return the work of drawing a double a step for n environments: the machine's limit."""
    rng, out = np.random.default_rng(0), np.empty(n)

    def work() -> None:
        for _ in range(n_steps):
            rng.random(out=out)

    return work


def stepping(setting: Setting) -> Iterator[Row]:
    """Compare steps per second with Gymnasium's loop, and with drawing random numbers."""
    budget = 1_000_000 if setting.quick else 10_000_000
    single = gym.make("unichain_gym:Unichain-h100-v0").unwrapped
    frozen = gym.make("FrozenLake-v1", disable_env_checker=True).unwrapped

    def step(env: gym.Env) -> Work:
        def work() -> None:
            for _ in range(5_000):
                if env.step(1)[2]:
                    env.reset()

        env.reset(seed=0)
        return work

    name = "single environment, times faster than FrozenLake-v1"
    yield compare(name, step(single), step(frozen), setting, samples=(5e3, 5e3), faster=True)
    for n in (1, 64, 1_024, VECTOR):
        # Its speed does not grow any more after 64 copies.
        n_copies, n_steps = min(n, 64), min(2_000, max(20, budget // n))
        lake = gym.make_vec("FrozenLake-v1", num_envs=n_copies, vectorization_mode="sync")
        yield compare(
            f"{n} environments, times faster than SyncVectorEnv",
            stepper(UnichainVectorEnv(n, ENV), n_steps),
            stepper(lake, 5_000 // n_copies),
            setting,
            samples=(float(n * n_steps), float(5_000 // n_copies * n_copies)),
            faster=True,
            target=">= 500" if n == VECTOR else "",
        )
    n_steps = budget // VECTOR
    ours = stepper(UnichainVectorEnv(VECTOR, ENV), n_steps)
    samples = (float(VECTOR * n_steps),) * 2
    name = f"{VECTOR} environments, as a multiple of drawing a double"
    yield compare(name, ours, random_numbers(VECTOR, n_steps), setting, samples=samples)


def envpool(setting: Setting) -> Iterator[Row]:
    """Compare steps per second with envpool's C++."""
    pool = need("envpool")
    for n in (64, 1_024, VECTOR):
        theirs = pool.make("NChain-v0", env_type="gymnasium", num_envs=n)
        n_ours, n_theirs = max(20, 1_000_000 // n), max(2, 100_000 // n)
        yield compare(
            f"{n} environments, times faster than envpool NChain-v0",
            stepper(UnichainVectorEnv(n, ENV), n_ours),
            stepper(theirs, n_theirs, np.int32),
            setting,
            samples=(float(n * n_ours), float(n * n_theirs)),
            faster=True,
            target=">= 50" if n == VECTOR else "",
        )


def quantecon(setting: Setting) -> Iterator[Row]:
    """Compare with QuantEcon's compiled simulation of the policy's chain."""
    qe = need("quantecon")
    chain = random_chain(ENV, 0)
    policy, n_steps = chain.policy.argmax(axis=1), 20 if setting.quick else 200
    theirs = qe.MarkovChain(chain.transition_matrix.toarray())
    start = np.zeros(VECTOR, dtype=np.int64)
    envs = UnichainVectorEnv(VECTOR, ENV)

    def simulate() -> None:
        observation, _ = envs.reset(seed=0)
        for _ in range(n_steps):
            observation, *_ = envs.step(policy[observation])

    yield compare(
        f"{VECTOR} trials under a policy, times faster than simulate()",
        simulate,
        lambda: theirs.simulate_indices(n_steps + 1, init=start, random_state=0),
        setting,
        samples=(float(VECTOR * n_steps),) * 2,
        faster=True,
        target=">= 1",
    )


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


def collect_work(envs: gym.vector.VectorEnv, policy: np.ndarray, n: int, t_max: int) -> Work:
    """Return the work of collecting trials into a fresh agent."""
    return lambda: SeminormLSTDAgent(GaussianFeatures(10)).collect(envs, policy, n, t_max, seed=0)


def sampled(env: str, n_trials: int, t_max: int, n_features: int) -> CountStatistics:
    """Return the statistics of a simulated population."""
    chain = random_chain(env, 0)
    counts = population_counts(chain, n_trials, t_max, np.random.default_rng(0))
    return CountStatistics(counts, random_features(chain.n_states, n_features, 0))


def stepwise(t_max: int) -> np.ndarray:
    """Return one window for each timestep."""
    return np.arange(t_max + 1)[:, None] + [0, 1]


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


def population(setting: Setting) -> Iterator[Row]:
    """Compare drawing all trials' counts at once with stepping every trial."""
    chain = random_chain(ENV, 0)
    policy, t_max = chain.policy.argmax(axis=1), 19

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
        statistics_.minimize(stepwise(5_000), chain.gain, 1e-10)

    times = [seconds(pipeline, time.process_time) for _ in range(setting.repeats)]
    yield Row(
        "simulate, X, Z, y, minimisers: 100 states, 5,001 t, d = 49",
        *(f(times) / 2.0 for f in (statistics.median, min, max)),
        statistics.median(times),
        2.0,
        "s of the processor; the yardstick is a limit of 2 s",
        "<= 1",
    )


def exact(setting: Setting) -> Iterator[Row]:
    """Compare gain, bias and stationary distribution with one LU factorisation, and memory."""
    for power in range(2, 6 if setting.quick else 7):
        S = 10**power
        mdp = unichain_gym.make_mdp(f"h{S}")
        policy = policy_of(S)
        P = mdp.induce(policy).transition_matrix
        # Nearly I - P: that one is singular.
        matrix = sparse.csc_array(sparse.eye_array(S) - (1.0 - 1e-9) * P)
        name = f"{S} states: gain, bias, stationary, as a multiple of splu"
        target = "<= 3" if S == 10**6 else ""
        yield compare(
            name,
            lambda mdp=mdp, policy=policy: solve(mdp.induce(policy)),
            lambda matrix=matrix: splu(matrix),
            setting,
            target=target,
        )
        peak = probe("exact", S)["peak"]
        name = f"{S} states: peak memory, as a multiple of 1 GB"
        yield Row(name, *(peak / 1e3,) * 3, peak, 1e3, "MB", "<= 1" if S == 10**6 else "")


def solve(chain: MarkovChain) -> None:
    """Compute what the exact rows compare."""
    assert np.isfinite(chain.gain + chain.bias.sum() + chain.stationary_distribution.sum())


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


def growth_group(setting: Setting) -> Iterator[Row]:
    """Fit how time grows with each size.

    The targets are what the theory says, and 0.2 for the noise of a busy machine where that is 1.
    """
    scale = 1 if setting.quick else 4
    envs, policy = UnichainVectorEnv(10_000, ENV), policy_of(100)
    sizes = [scale * 100_000 * 2**i for i in range(4)]

    def trials_work(n: int) -> Work:
        return collect_work(envs, policy, n, 20)

    def timesteps_work(t_max: int) -> Work:
        return collect_work(envs, policy, 10_000, t_max)

    yield growth("collect(), trials", trials_work, sizes, setting, "<= 1.2")
    sizes = [scale * 200 * 2**i for i in range(4)]
    yield growth("collect(), timesteps", timesteps_work, sizes, setting, "<= 1.2")

    def chain_work(S: int) -> Work:
        mdp, policy = unichain_gym.make_mdp(f"h{S}"), policy_of(S)
        return lambda: solve(mdp.induce(policy))

    sizes = [scale * 20_000 * 2**i for i in range(4)]
    yield growth("exact model, states", chain_work, sizes, setting, "<= 1.2")

    def minimize_work(d: int) -> Work:
        statistics_ = sampled(ENV, 10_000, 200, d)
        return lambda: statistics_.minimize(stepwise(100), 0.0, 1e-10)

    yield growth("stepwise minimisers, features", minimize_work, [12, 24, 48, 96], setting, "<= 3")

    statistics_ = sampled(ENV, 10_000, 4_000, 10)

    def anchors_work(n_anchors: int) -> Work:
        def work() -> None:
            squared = sampled_distance(MMD("quadratic"), statistics_)
            fit_system(statistics_, find_anchors(squared, 4_000, n_anchors), 0.0)

        return work

    yield growth("anchor search and fit, anchors", anchors_work, [4, 16, 64, 256], setting, "<= 1")


def imports(setting: Setting) -> Iterator[Row]:
    """Compare the time to import each package with half a second."""
    for package in ("unichain_gym", "lstd_agent"):
        # Of the processor, so that what else the machine does is not counted.
        code = f"import {package}, time; print(time.process_time())"

        def measure(code: str = code) -> float:
            command = [sys.executable, "-c", code]
            return float(subprocess.run(command, check=True, capture_output=True).stdout)

        measure()
        times = [measure() for _ in range(setting.repeats)]
        yield Row(
            f"import {package}",
            *(f(times) / 0.5 for f in (statistics.median, min, max)),
            statistics.median(times),
            0.5,
            "s of the processor, Python's start included; the yardstick is a limit of 0.5 s",
            "<= 1",
        )


def memory(setting: Setting) -> Iterator[Row]:
    """Compare the peak memory of collecting with 300 MB, and with that of a tenth of the trials."""
    n, t_max = (100_000, 99) if setting.quick else (1_000_000, 999)
    tenth, peak = (probe("collect", m, t_max)["peak"] for m in (n // 10, n))
    name = f"collect() of {n} trials, {t_max + 1} t: memory, of 300 MB"
    yield Row(name, *(peak / 300,) * 3, peak, 300.0, "MB", "<= 1")
    name = f"collect() of {n} trials: memory, of a tenth as many"
    yield Row(name, *(peak / tenth,) * 3, peak, tenth, "MB", "<= 1.5")


def probe_exact(S: int) -> dict[str, float]:
    """Solve a chain of S states."""
    solve(unichain_gym.make_mdp(f"h{S}").induce(policy_of(S)))
    return {"peak": peak_memory()}


def probe_collect(n_trials: int, t_max: int) -> dict[str, float]:
    """Collect trials."""
    agent = SeminormLSTDAgent(GaussianFeatures(10))
    agent.collect(UnichainVectorEnv(10_000, ENV), policy_of(100), n_trials, t_max, seed=0)
    return {"peak": peak_memory()}


def peak_memory() -> float:
    """Return this process's peak memory in MB."""
    status = Path("/proc/self/status")
    if status.exists():  # where ru_maxrss counts the memory of the process that started this one
        peak = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(peak.split()[1]) / 1e3
    unit = 1e6 if sys.platform == "darwin" else 1e3
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


PROBES: dict[str, Callable[..., dict[str, float]]] = {
    "exact": probe_exact,
    "collect": probe_collect,
}
GROUPS: dict[str, Callable[[Setting], Iterator[Row]]] = {
    "stepping": stepping,
    "envpool": envpool,
    "quantecon": quantecon,
    "collection": collection,
    "statistics": statistics_group,
    "population": population,
    "exact": exact,
    "study": study,
    "growth": growth_group,
    "imports": imports,
    "memory": memory,
}
