"""Rows about exact answers, optimal policies, least squares, and how time grows with each size."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import splu

import unichain_gym
from lstd_agent.benchmarks.processes import probe
from lstd_agent.benchmarks.timing import Row, Setting, Work, against_limit, compare, growth, need
from lstd_agent.benchmarks.work import (
    ENV,
    collect_work,
    moments_of,
    policy_of,
    sampled,
    solve_policy,
    stepwise,
)
from lstd_agent.statistics.equations import Moments
from lstd_agent.system.distances import MMD, sampled_distance
from lstd_agent.system.fit_system import fit_system, solve_windows
from lstd_agent.system.minimizer import minimize
from lstd_agent.system.neighborhoods import find_anchors
from lstd_agent.system.solvers import SOLVERS, SolverName
from unichain_gym import TabularMDP, UnichainVectorEnv

# Of random MDPs; QuantEcon has no average-reward solver, so that its discount is near 1.
N_ACTIONS, N_OUTCOMES, DISCOUNT = 4, 4, 0.999


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
        ours, largest = partial(solve_policy, mdp, policy), S == 10**6
        yield compare(name, ours, partial(splu, matrix), setting, target="<= 3" * largest)
        name = f"{S} states: peak memory, as a multiple of 1 GB"
        yield against_limit(name, [probe("exact", S)["peak"]], 1e3, "MB", "<= 1" * largest)


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

    yield growth("stepwise minimizers, features", minimize_work, [12, 24, 48, 96], setting, "<= 3")

    statistics_ = sampled(ENV, 10_000, 4_000, 10)

    def anchors_work(n_anchors: int) -> Work:
        def work() -> None:
            squared = sampled_distance(MMD("quadratic"), statistics_)
            fit_system(statistics_, find_anchors(squared, 4_000, n_anchors), 0.0)

        return work

    yield growth("anchor search and fit, anchors", anchors_work, [4, 16, 64, 256], setting, "<= 1")


def random_mdp(n_states: int) -> TabularMDP:
    """Return an MDP with random outcomes, their probabilities and rewards."""
    rng = np.random.default_rng(0)
    shape = (n_states, N_ACTIONS, N_OUTCOMES)
    next_state = rng.integers(n_states, size=shape)
    probability = rng.dirichlet(np.ones(N_OUTCOMES), size=shape[:2])
    reward = np.repeat(rng.normal(size=(*shape[:2], 1)), N_OUTCOMES, axis=2)
    return TabularMDP(next_state, probability, reward, np.full(n_states, 1.0 / n_states))


def optimal(setting: Setting) -> Iterator[Row]:
    """Compare a gain-optimal policy with QuantEcon's at a discount near 1, on the same MDP."""
    markov = need("quantecon").markov
    for n_states in (1_000,) if setting.quick else (1_000, 3_000, 10_000):
        mdp = random_mdp(n_states)
        row = np.repeat(np.arange(n_states * N_ACTIONS), N_OUTCOMES)
        entries = (mdp.probability.ravel(), (row, mdp.next_state.ravel()))
        Q = sparse.csr_matrix(entries, shape=(n_states * N_ACTIONS, n_states))
        state, action = np.divmod(np.arange(n_states * N_ACTIONS), N_ACTIONS)
        theirs = markov.DiscreteDP(mdp.expected_reward.ravel(), Q, DISCOUNT, state, action)
        yield compare(
            f"gain-optimal, {n_states} states, times QuantEcon at {DISCOUNT}",
            mdp.optimal_policy,
            partial(theirs.solve, method="policy_iteration"),
            setting,
        )


def solvers(setting: Setting) -> Iterator[Row]:
    """Compare solvers with the default one, for one neighbourhood of d features."""
    for d in (10, 100) if setting.quick else (10, 50, 200, 1_000):
        moments = moments_of(d)

        def solve(name: SolverName, moments: Moments = moments) -> Work:
            return lambda: minimize(moments, solver=name)

        for name in SOLVERS[1:]:
            title = f"{name}, {d} features, times faster than svd"
            yield compare(title, solve(name), solve("svd"), setting, faster=True)
    if setting.quick:
        return
    for name in SOLVERS[1:]:  # singular values take minutes here
        measured = probe(name, 5_000)
        seconds = [measured["seconds"]]
        yield against_limit(f"{name}, 5000 features: time", seconds, 300.0, "s")
        yield against_limit(f"{name}, 5000 features: memory", [measured["peak"]], 4_000.0, "MB")
