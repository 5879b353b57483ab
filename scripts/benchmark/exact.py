"""Rows about exact answers: how time grows, and beside QuantEcon and SuperLU on the same models.

QuantEcon's policy iteration has the discount .999, since it has no average-reward criterion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import splu

import unichain_gym
from benchmark.processes import probe
from benchmark.timing import Row, Setting, Work, against_limit, compare, growth, need
from benchmark.work import ENV, collect_work, policy_of, solve_policy
from unichain_gym import MarkovChain, TabularMDP, UnichainVectorEnv

DISCOUNT = 0.999


def queue(n: int) -> TabularMDP:
    """Serve a queue of up to n - 1 customers at one of three speeds, the faster the dearer."""
    s = np.arange(n)
    to = np.stack([np.minimum(s + 1, n - 1), s, np.maximum(s - 1, 0)], axis=1)
    p = np.array([[0.4, 0.2, 0.4], [0.4, 0.1, 0.5], [0.4, 0.0, 0.6]])
    reward = -0.01 * s[:, None] - np.array([0.0, 0.3, 1.0])
    to, p, reward = (np.broadcast_to(x, (n, 3, 3)) for x in (to[:, None], p, reward[:, :, None]))
    return TabularMDP(to, p, reward, np.full(n, 1.0 / n))


def grid(n: int) -> TabularMDP:
    """Walk on a square to a corner, and from there to anywhere; 1 in 5 steps goes astray."""
    m = int(n**0.5)
    y, x = np.divmod(np.arange(m * m), m)
    moves = np.array([(-1, 0), (0, 1), (1, 0), (0, -1)])
    row, column = (np.clip(z[:, None] + d, 0, m - 1) for z, d in zip((y, x), moves.T, strict=True))
    ahead = row * m + column
    to = np.stack([ahead, np.roll(ahead, 1, axis=1), np.roll(ahead, -1, axis=1)], axis=2)
    p = np.broadcast_to([0.8, 0.1, 0.1], to.shape)
    reward = np.broadcast_to(-1.0 - np.random.default_rng(0).random((m * m, 1, 1)), to.shape).copy()
    to[-1], reward[-1] = np.array([0, m // 2, m * m // 2]), 0.0
    return TabularMDP(to, p, reward, np.full(m * m, 1.0 / (m * m)))


def random(n: int, n_outcomes: int, n_actions: int = 4) -> TabularMDP:
    """Transitions to random states, of random probabilities and rewards."""
    rng = np.random.default_rng(n)
    shape = n, n_actions, n_outcomes
    to = rng.integers(n, size=shape) if n_outcomes < n else np.broadcast_to(np.arange(n), shape)
    reward = np.broadcast_to(rng.random((n, n_actions, 1)), shape)
    return TabularMDP(to, rng.dirichlet(np.ones(n_outcomes), shape[:2]), reward, np.full(n, 1 / n))


MODELS: dict[str, Callable[[int], TabularMDP]] = {
    "queue": queue,
    "grid": grid,
    "sparse": lambda n: random(n, 5),
    "dense": lambda n: random(n, n),
}


def optimal(setting: Setting) -> Iterator[Row]:
    """Compare policies, chains and paths of each model at each size."""
    qe = need("quantecon")
    for name, make in MODELS.items():
        for n in (100, 1_000) if setting.quick else (100, 1_000, 10_000):
            if name == "dense" and n > 1_000:
                continue  # an outcome table of 10 GB
            mdp, title = make(n), f"{name} of {n:,} states"
            chain = mdp.induce(np.ones(mdp.n_states, dtype=int))
            # Their policy iteration would take minutes where elimination fills in.
            large = name == "sparse" and n > 3_000
            method = "modified_policy_iteration" if large else "policy_iteration"
            theirs = partial(quantecon_model(qe, mdp).solve, method=method)
            for criterion in ("gain", "discounted"):
                of: Any = (criterion,) if criterion == "gain" else (criterion, DISCOUNT)
                what = f"{title}: {criterion}-optimal policy, as a multiple of QuantEcon's"
                yield compare(what, partial(mdp.optimal_policy, *of), theirs, setting)
            if name != "sparse" or n <= 1_000:  # SuperLU takes minutes
                yield compare(f"{title}: gain and bias, of splu", *of_chain(chain), setting)
            if name != "grid" and n <= 1_000:  # a walk on a large grid mixes for minutes
                yield compare(f"{title}: mixing time, of stepping", *of_mixing(chain), setting)
            matrix = sparse.csr_matrix(chain.transition_matrix)
            fresh = partial(MarkovChain, matrix, chain.reward, np.eye(1, chain.n_states)[0])
            chain, path, their = fresh(), qe.MarkovChain(matrix), {"init": 0, "random_state": 0}
            for power in (4, 5, 6):
                simulate = partial(path.simulate, 10**power + 1, **their)
                what = f"{title}: a path of 10^{power} steps, as a multiple of QuantEcon's"
                yield compare(what, partial(chain.simulate, 10**power, seed=0), simulate, setting)
            what = f"{title}: a first path of 10^5 steps, as a multiple of QuantEcon's"
            theirs = partial(first_path, partial(qe.MarkovChain, matrix), 10**5 + 1, **their)
            yield compare(what, partial(first_path, fresh, 10**5, seed=0), theirs, setting)


def quantecon_model(qe: Any, mdp: TabularMDP) -> Any:
    """Return the model in QuantEcon's form, by pairs of state and action."""
    S, A, K = mdp.next_state.shape
    if S == K:
        return qe.markov.DiscreteDP(mdp.expected_reward, mdp.probability, DISCOUNT)
    place = np.repeat(np.arange(S * A), K), mdp.next_state.ravel()
    Q = sparse.csr_matrix((mdp.probability.ravel(), place), shape=(S * A, S))
    state, action = np.divmod(np.arange(S * A), A)
    return qe.markov.DiscreteDP(mdp.expected_reward.ravel(), Q, DISCOUNT, state, action)


def of_chain(chain: MarkovChain) -> tuple[Work, Work]:
    """Return the work of computing gain and bias, by the package and by one SuperLU."""
    P, r, start = chain.transition_matrix, chain.reward, chain.initial_distribution

    def ours() -> object:
        fresh = MarkovChain(P, r, start)
        return fresh.gain, fresh.bias

    def solve() -> object:
        # The equations of gain and bias, the value of state 0 replaced by the gain.
        A = sparse.eye_array(P.shape[0], format="csc") - P.tocsc()
        ones = sparse.csc_array(np.ones((P.shape[0], 1)))
        return splu(sparse.csc_array(sparse.hstack([ones, A[:, 1:]]))).solve(r)

    return ours, solve


def of_mixing(chain: MarkovChain) -> tuple[Work, Work]:
    """Return the work of finding the mixing time from state 0, by the package and by stepping."""
    P, r, start = chain.transition_matrix, chain.reward, np.eye(1, chain.n_states)[0]
    fresh = partial(MarkovChain, P, r, start)

    def step() -> int:
        p, t, backward, limit = start, 0, P.T.tocsr(), fresh().stationary_distribution
        while 0.5 * np.abs(p - limit).sum() > 1e-10:
            p, t = backward @ p, t + 1
        return t

    return lambda: fresh().mixing_time(), step


def first_path(make: Callable[[], Any], n_steps: int, **options: int) -> object:
    """Draw a path of a new chain, which includes its tables."""
    return make().simulate(n_steps, **options)


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

    def solving(S: int) -> Work:
        return partial(solve_policy, unichain_gym.make_mdp(f"h{S}"), policy_of(S))

    works: tuple[tuple[str, Callable[[int], Work], int], ...] = (
        ("collect(), trials", lambda n: collect_work(envs, policy, n, 20), 100_000),
        ("collect(), timesteps", lambda t_max: collect_work(envs, policy, 10_000, t_max), 200),
        ("exact model, states", solving, 20_000),
    )
    for name, work, first in works:
        sizes = [scale * first * 2**i for i in range(4)]
        yield growth(name, work, sizes, setting, "<= 1.2")
