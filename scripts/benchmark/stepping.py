"""Rows about stepping: beside Gymnasium, envpool, QuantEcon and the machine's limit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np

from benchmark.timing import Row, Setting, Work, compare, need
from benchmark.work import ENV, VECTOR, actions_of, random_numbers, stepper
from lstd_agent.problems import random_chain
from unichain_gym import UnichainVectorEnv


def stepping(setting: Setting) -> Iterator[Row]:
    """Compare steps per second with Gymnasium's loop, and with drawing random numbers."""
    budget = 1_000_000 if setting.quick else 10_000_000
    single = gym.make("unichain_gym:Unichain-h100-v0").unwrapped
    frozen = gym.make("FrozenLake-v1", disable_env_checker=True).unwrapped

    def step(env: gym.Env[Any, Any]) -> Work:
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
        theirs = lake, 5_000 // n_copies
        yield _faster(n, "SyncVectorEnv", n_steps, theirs, setting, ">= 500" * (n == VECTOR))
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
        steps = max(20, 1_000_000 // n), (theirs, max(2, 100_000 // n), np.int32)
        yield _faster(n, "envpool NChain-v0", *steps, setting, ">= 50" * (n == VECTOR))


def _faster(
    n: int, name: str, n_steps: int, theirs: tuple[Any, ...], setting: Setting, target: str
) -> Row:
    """Compare so many copies with another vector environment and its number of steps."""
    return compare(
        f"{n} environments, times faster than {name}",
        stepper(UnichainVectorEnv(n, ENV), n_steps),
        stepper(*theirs),
        setting,
        samples=(float(n * n_steps), float(theirs[0].num_envs * theirs[1])),
        faster=True,
        target=target,
    )


def quantecon(setting: Setting) -> Iterator[Row]:
    """Compare with QuantEcon's compiled simulation of the policy's chain."""
    qe = need("quantecon")
    chain = random_chain(ENV, 0)
    policy, n_steps = actions_of(chain), 20 if setting.quick else 200
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
