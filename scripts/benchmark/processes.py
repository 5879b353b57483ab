"""Rows about whole processes: import times, peaks of memory, and fits to trials of vectors."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import unichain_gym
from benchmark.timing import Row, Setting, against_limit, growth_of, need, seconds
from benchmark.work import ENV, policy_of, solve_policy, vector_fits
from lstd_agent import GaussianFeatures, SeminormLSTDAgent
from unichain_gym import UnichainVectorEnv

_QUICK = {"dense": (10, 100), "tiles": (1_000, 3_000), "trials": (100, 1_000)}
_SIZES = {
    "dense": (10, 100, 1_000, 5_000),
    "tiles": (1_000, 10_000, 100_000),
    "trials": (100, 1_000, 10_000, 100_000),
}


def imports(setting: Setting) -> Iterator[Row]:
    """Compare the time to import each package with half a second."""
    for package in ("unichain_gym", "lstd_agent"):
        command = ["-c", f"from {package} import *"]
        processor_seconds(command)
        times = [processor_seconds(command) for _ in range(setting.repeats)]
        unit = "s of the processor, Python's start included; the yardstick is a limit of 0.5 s"
        yield against_limit(f"import {package}", times, 0.5, unit)


def memory(setting: Setting) -> Iterator[Row]:
    """Compare the peak memory of collecting with 300 MB, and with that of a tenth of the trials."""
    n, t_max = (100_000, 99) if setting.quick else (1_000_000, 999)
    tenth, peak = (probe("collect", m, t_max)["peak"] for m in (n // 10, n))
    name = f"collect() of {n} trials, {t_max + 1} t: memory, of 300 MB"
    yield against_limit(name, [peak], 300.0, "MB")
    name = f"collect() of {n} trials: memory, of a tenth as many"
    yield against_limit(name, [peak], tenth, "MB", "<= 1.5")


def vectors(setting: Setting) -> Iterator[Row]:
    """Compare fits with a ridge regression on the same features, each in a process of its own."""
    need("sklearn")
    for kind, sizes in (_QUICK if setting.quick else _SIZES).items():
        what = "dense features" if kind == "dense" else kind
        times = []
        for size in sizes:
            found = probe(kind, size)
            times.append(found["seconds"])
            ratio = found["seconds"] / found["ridge"]
            numbers = (ratio, ratio, ratio, found["seconds"], found["ridge"])
            name = f"fit(), {size:,} {what}, as a multiple of Ridge"
            yield Row(name, *numbers, "s of the processor")
            name = f"fit(), {size:,} {what}: memory, of 4 GB"
            yield against_limit(name, [found["peak"]], 4_000.0, "MB")
        yield growth_of(f"growth of fit() with the number of {what}", times, sizes)


def probe(name: str, *numbers: int) -> dict[str, float]:
    """Measure in a process of its own, which `--probe` runs."""
    script = str(Path(__file__).parent)
    command = [sys.executable, script, "--probe", name, *map(str, numbers)]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    measured: dict[str, float] = json.loads(result.stdout)
    return measured


def processor_seconds(command: list[str]) -> float:
    """Return the processor's seconds of a Python command, run in the folder of the checkout."""
    import resource  # not on Windows

    root = Path(__file__).resolve().parents[2]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *command], check=True, capture_output=True, cwd=root)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def probe_exact(S: int) -> dict[str, float]:
    """Solve a chain of S states."""
    solve_policy(unichain_gym.make_mdp(f"h{S}"), policy_of(S))
    return {"peak": peak_memory()}


def probe_collect(n_trials: int, t_max: int) -> dict[str, float]:
    """Collect trials."""
    agent, envs = SeminormLSTDAgent(GaussianFeatures(10)), UnichainVectorEnv(10_000, ENV)
    agent.collect(envs, policy_of(100), n_trials=n_trials, t_max=t_max, seed=0)
    return {"peak": peak_memory()}


def probe_vectors(kind: str, size: int) -> dict[str, float]:
    """Fit to trials of vectors."""
    fit, regress = vector_fits(kind, size)
    ours, peak = seconds(fit, time.process_time), peak_memory()
    return {"peak": peak, "seconds": ours, "ridge": seconds(regress, time.process_time)}


def peak_memory() -> float:
    """Return this process's peak memory in MB."""
    status = Path("/proc/self/status")
    if status.exists():  # where ru_maxrss counts the memory of the process that started this one
        lines = status.read_text(encoding="utf-8").splitlines()
        peak = next(line for line in lines if line.startswith("VmHWM"))
        return int(peak.split()[1]) / 1e3
    import resource  # not on Windows

    unit = 1e6 if sys.platform == "darwin" else 1e3
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit)


PROBES: dict[str, Callable[..., dict[str, float]]] = {
    "exact": probe_exact,
    "collect": probe_collect,
    "dense": partial(probe_vectors, "dense"),
    "tiles": partial(probe_vectors, "tiles"),
    "trials": partial(probe_vectors, "trials"),
}
