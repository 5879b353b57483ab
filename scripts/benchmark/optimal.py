"""Rows about the exact side beside QuantEcon and SuperLU, on the same models in one run.

QuantEcon's policy iteration has the discount .999, since it has no average-reward criterion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from time import process_time
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import splu

from benchmark import timing
from benchmark.timing import Row, Setting, need
from unichain_gym import MarkovChain, TabularMDP

DISCOUNT = 0.999
MAX_DENSE, MAX_SPARSE = 1_000, 3_000


def queue(n: int) -> TabularMDP:
    """Serve a queue of up to n - 1 customers at one of three speeds, the faster the dearer."""
    s = np.arange(n)
    to = np.stack([np.minimum(s + 1, n - 1), s, np.maximum(s - 1, 0)], axis=1)
    p = np.array([[0.4, 0.2, 0.4], [0.4, 0.1, 0.5], [0.4, 0.0, 0.6]])
    reward = -0.01 * s[:, None] - np.array([0.0, 0.3, 1.0])
    shape = n, 3, 3
    return TabularMDP(
        np.broadcast_to(to[:, None], shape),
        np.broadcast_to(p, shape),
        np.broadcast_to(reward[:, :, None], shape),
        np.full(n, 1.0 / n),
    )


def grid(n: int) -> TabularMDP:
    """Walk on a square to a corner, and from there to anywhere; 1 in 5 steps goes astray."""
    m = int(n**0.5)
    y, x = np.divmod(np.arange(m * m), m)
    moves = np.array([(-1, 0), (0, 1), (1, 0), (0, -1)])
    row, column = (np.clip(z[:, None] + d, 0, m - 1) for z, d in zip((y, x), moves.T, strict=True))
    ahead = row * m + column
    to = np.stack([ahead, np.roll(ahead, 1, axis=1), np.roll(ahead, -1, axis=1)], axis=2)
    p = np.broadcast_to([0.8, 0.1, 0.1], to.shape).copy()
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


# Some of this takes a millisecond: other processes must not count.
compare = partial(timing.compare, clock=process_time)

MODELS: dict[str, Callable[[int], TabularMDP]] = {
    "queue": queue,
    "grid": grid,
    "sparse": lambda n: random(n, 5),
    "dense": lambda n: random(n, n),
}


def quantecon_model(mdp: TabularMDP, discount: float) -> Any:
    """Return the model in QuantEcon's form, by pairs of state and action."""
    quantecon = need("quantecon")
    S, A, K = mdp.next_state.shape
    if S == K:
        return quantecon.markov.DiscreteDP(mdp.expected_reward, mdp.probability, discount)
    place = np.repeat(np.arange(S * A), K), mdp.next_state.ravel()
    Q = sparse.csr_matrix((mdp.probability.ravel(), place), shape=(S * A, S))
    state, action = np.divmod(np.arange(S * A), A)
    return quantecon.markov.DiscreteDP(mdp.expected_reward.ravel(), Q, discount, state, action)


def rows(setting: Setting) -> Iterator[Row]:
    """Compare optimal policies, gain and bias of a chain, and one simulated path."""
    for name, model in MODELS.items():
        for n in (100, 1_000) if setting.quick else (100, 1_000, 10_000):
            if name == "dense" and n > MAX_DENSE:
                continue  # an outcome table of 10 GB
            mdp = model(n)
            yield from policy_rows(f"{name}, {n} states", mdp, setting)
            if not (name == "sparse" and n > MAX_SPARSE):  # SuperLU takes minutes
                yield from chain_rows(f"{name}, {n} states", mdp, setting)
            yield path_row(f"{name}, {n} states", mdp, setting)


def policy_rows(name: str, mdp: TabularMDP, setting: Setting) -> Iterator[Row]:
    """Compare optimal policies by gain and by discounted value."""
    # Policy iteration would take minutes where elimination fills in.
    is_modified = name.startswith("sparse") and mdp.n_states > MAX_SPARSE
    method = "modified_policy_iteration" if is_modified else "policy_iteration"
    target = "" if is_modified else "<= 2"
    theirs = partial(quantecon_model(mdp, DISCOUNT).solve, method=method)
    ours = partial(mdp.optimal_policy, "gain")
    yield compare(f"{name}: gain-optimal policy", ours, theirs, setting, target=target)
    discounted = partial(mdp.optimal_policy, "discounted", DISCOUNT)
    yield compare(f"{name}: discounted-optimal", discounted, theirs, setting, target=target)


def chain_rows(name: str, mdp: TabularMDP, setting: Setting) -> Iterator[Row]:
    """Compare gain and bias of a chain with one solution by SuperLU, and mixing with stepping."""
    n = mdp.n_states
    chain = mdp.induce(np.ones(n, dtype=int))
    P, r, start = chain.transition_matrix, chain.reward, np.eye(n)[0]

    def solve() -> Any:
        # The equations of gain and bias, the value of state 0 replaced by the gain.
        A = sparse.eye_array(n, format="csc") - P.tocsc()
        ones = sparse.csc_array(np.ones((n, 1)))
        return splu(sparse.csc_array(sparse.hstack([ones, A[:, 1:]]))).solve(r)

    def step() -> int:
        p, t, backward = start, 0, P.T.tocsr()
        limit = MarkovChain(P, r, start).stationary_distribution
        while 0.5 * np.abs(p - limit).sum() > 1e-10:
            p, t = backward @ p, t + 1
        return t

    def bias() -> object:
        fresh = MarkovChain(P, r, start)
        return fresh.gain, fresh.bias

    target = "<= 3" if n >= 900 else ""
    yield compare(f"{name}: gain and bias", bias, solve, setting, target=target)
    if not name.startswith("grid") and n < 10_000:
        mixing = lambda: MarkovChain(P, r, start).mixing_time()  # noqa: E731
        yield compare(f"{name}: mixing time", mixing, step, setting)


def path_row(name: str, mdp: TabularMDP, setting: Setting, n_steps: int = 100_000) -> Row:
    """Compare one simulated path."""
    P = mdp.induce(np.ones(mdp.n_states, dtype=int)).transition_matrix
    chain = MarkovChain(P, np.zeros(mdp.n_states), mdp.initial_distribution)
    theirs = need("quantecon").MarkovChain(sparse.csr_matrix(P))
    path = partial(theirs.simulate, n_steps + 1, init=0, random_state=0)
    ours = partial(chain.simulate, n_steps, seed=0)
    return compare(f"{name}: path of {n_steps} steps", ours, path, setting, target="<= 2")
