"""Rows about exact answers, and how time grows with each size."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from scipy import sparse
from scipy.sparse.linalg import splu

import unichain_gym
from benchmark.processes import probe
from benchmark.timing import Row, Setting, Work, against_limit, compare, growth
from benchmark.work import ENV, collect_work, policy_of, solve_policy
from unichain_gym import UnichainVectorEnv


def exact(setting: Setting) -> Iterator[Row]:
    """Compare gain, bias and stationary distribution with one LU factorization, and memory."""
    for power in range(2, 6 if setting.quick else 7):
        S = 10**power
        mdp = unichain_gym.make_mdp(f"h{S}")
        policy = policy_of(S)
        P = mdp.induce(policy).transition_matrix
        # Nearly I - P: that one is singular.
        matrix = sparse.csc_array(sparse.eye_array(S) - (1.0 - 1e-9) * P)
        name = f"{S} states: gain, bias, stationary, as a multiple of splu"
        ours, largest = partial(solve_policy, mdp, policy), S == 10**6
        yield compare(name, ours, partial(splu, matrix), setting, target="<= 3" * largest)
        name = f"{S} states: peak memory, as a multiple of 1 GB"
        yield against_limit(name, [probe("exact", S)["peak"]], 1e3, "MB", "<= 1" * largest)


def growth_group(setting: Setting) -> Iterator[Row]:
    """Fit the growth of time with each size; the theoretical exponent is 1, with 0.2 for noise."""
    scale = 1 if setting.quick else 4
    envs, policy = UnichainVectorEnv(10_000, ENV), policy_of(100)

    def trials_work(n: int) -> Work:
        return collect_work(envs, policy, n, 20)

    def timesteps_work(t_max: int) -> Work:
        return collect_work(envs, policy, 10_000, t_max)

    def chain_work(S: int) -> Work:
        return partial(solve_policy, unichain_gym.make_mdp(f"h{S}"), policy_of(S))

    for name, work, first in (
        ("collect(), trials", trials_work, 100_000),
        ("collect(), timesteps", timesteps_work, 200),
        ("exact model, states", chain_work, 20_000),
    ):
        sizes = [scale * first * 2**i for i in range(4)]
        yield growth(name, work, sizes, setting, "<= 1.2")
