"""Rows about the exact model, and how time grows with each size."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from scipy import sparse
from scipy.sparse.linalg import splu

import unichain_gym
from lstd_agent.benchmarks.processes import probe
from lstd_agent.benchmarks.timing import Row, Setting, Work, against_limit, compare, growth
from lstd_agent.benchmarks.work import ENV, collect_work, policy_of, sampled, solve_policy, stepwise
from lstd_agent.system.distances import MMD, sampled_distance
from lstd_agent.system.fit_system import fit_system, solve_windows
from lstd_agent.system.neighborhoods import find_anchors
from unichain_gym import UnichainVectorEnv


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
            partial(solve_policy, mdp, policy),
            partial(splu, matrix),
            setting,
            target=target,
        )
        name = f"{S} states: peak memory, as a multiple of 1 GB"
        target = "<= 1" if S == 10**6 else ""
        yield against_limit(name, [probe("exact", S)["peak"]], 1e3, "MB", target)


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
        return partial(solve_policy, unichain_gym.make_mdp(f"h{S}"), policy_of(S))

    sizes = [scale * 20_000 * 2**i for i in range(4)]
    yield growth("exact model, states", chain_work, sizes, setting, "<= 1.2")

    def minimize_work(d: int) -> Work:
        statistics_ = sampled(ENV, 10_000, 200, d)
        return lambda: solve_windows(statistics_, stepwise(100), 0.0, 1e-10)

    yield growth("stepwise minimisers, features", minimize_work, [12, 24, 48, 96], setting, "<= 3")

    statistics_ = sampled(ENV, 10_000, 4_000, 10)

    def anchors_work(n_anchors: int) -> Work:
        def work() -> None:
            squared = sampled_distance(MMD("quadratic"), statistics_)
            fit_system(statistics_, find_anchors(squared, 4_000, n_anchors), 0.0)

        return work

    yield growth("anchor search and fit, anchors", anchors_work, [4, 16, 64, 256], setting, "<= 1")
