"""Speed of the exact side beside QuantEcon and SuperLU, on the same models in one run.

CPU time, the least of several repetitions. QuantEcon's policy iteration has the discount .999,
since it has no average-reward criterion. Ratios above 1 say that ours is slower.

    OPENBLAS_NUM_THREADS=1 python scripts/benchmark/optimal.py [--states 100 1000] [--rows policies]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from time import process_time
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import splu

from unichain_gym import MarkovChain, TabularMDP

DISCOUNT = 0.999
MAX_DENSE = 1_000


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


MODELS: dict[str, Callable[[int], TabularMDP]] = {
    "queue": queue,
    "grid": grid,
    "sparse": lambda n: random(n, 5),
    "dense": lambda n: random(n, n),
}


def seconds(work: Callable[[], object], most: float = 1.0, n_most: int = 15) -> float:
    """Return the least CPU time of up to ``n_most`` runs in about ``most`` seconds."""
    times: list[float] = []
    while len(times) < n_most and (len(times) < 2 or sum(times) < most):
        start = process_time()
        work()
        times.append(process_time() - start)
    return min(times)


def quantecon_model(mdp: TabularMDP, discount: float) -> Any:
    """Return the model in QuantEcon's form, by pairs of state and action."""
    import quantecon

    S, A, K = mdp.next_state.shape
    if S == K:
        return quantecon.markov.DiscreteDP(mdp.expected_reward, mdp.probability, discount)
    place = np.repeat(np.arange(S * A), K), mdp.next_state.ravel()
    Q = sparse.csr_matrix((mdp.probability.ravel(), place), shape=(S * A, S))
    state, action = np.divmod(np.arange(S * A), A)
    return quantecon.markov.DiscreteDP(mdp.expected_reward.ravel(), Q, discount, state, action)


def show(what: str, name: str, n: int, ours: float, theirs: float, counts: str = "") -> None:
    """Print a row: seconds of CPU time, and their ratio."""
    times = f"{1e3 * ours:10.2f} ms {1e3 * theirs:10.2f} ms {ours / theirs:8.2f}"
    print(f"{what:20} {name:8} {n:6} {times} {counts}", flush=True)


def policy_rows(name: str, n: int) -> None:
    """Compare optimal policies by gain and by discounted value."""
    mdp = MODELS[name](n)
    ddp = quantecon_model(mdp, DISCOUNT)
    # Policy iteration would take minutes where elimination fills in.
    method = "modified_policy_iteration" if name == "sparse" and n > 3_000 else "policy_iteration"
    theirs = seconds(lambda: ddp.solve(method=method))
    n_theirs = ddp.solve(method=method).num_iter
    finders: tuple[tuple[str, Callable[[], Any]], ...] = (
        ("gain-optimal", partial(mdp.optimal_policy, "gain")),
        ("discounted-optimal", partial(mdp.optimal_policy, "discounted", DISCOUNT)),
    )
    for what, find in finders:
        show(what, name, n, seconds(find), theirs, f"{find().n_iterations} and {n_theirs}")


def chain_rows(name: str, n: int) -> None:
    """Compare gain and bias of a chain with one solution by SuperLU, and mixing with stepping."""
    mdp = MODELS[name](n)
    chain = mdp.induce(np.ones(mdp.n_states, dtype=int))
    P, r, start = chain.transition_matrix, chain.reward, np.eye(mdp.n_states)[0]

    def solve() -> Any:
        # The equations of gain and bias, the value of state 0 replaced by the gain.
        A = sparse.eye_array(P.shape[0], format="csc") - P.tocsc()
        ones = sparse.csc_array(np.ones((P.shape[0], 1)))
        A = sparse.csc_array(sparse.hstack([ones, A[:, 1:]]))
        return splu(A).solve(r)

    def step() -> int:
        p, t, backward = start, 0, P.T.tocsr()
        limit = MarkovChain(P, r, start).stationary_distribution
        while 0.5 * np.abs(p - limit).sum() > 1e-10:
            p, t = backward @ p, t + 1
        return t

    def bias() -> object:
        fresh = MarkovChain(P, r, start)
        return fresh.gain, fresh.bias

    show("gain and bias", name, n, seconds(bias), seconds(solve))
    if name != "grid" and n < 10_000:
        mixing = seconds(lambda: MarkovChain(P, r, start).mixing_time())
        show("mixing time", name, n, mixing, seconds(step))


def path_rows(name: str, n: int, n_steps: int = 100_000) -> None:
    """Compare one simulated path."""
    import quantecon

    mdp = MODELS[name](n)
    P = mdp.induce(np.ones(mdp.n_states, dtype=int)).transition_matrix
    chain = MarkovChain(P, np.zeros(mdp.n_states), mdp.initial_distribution)
    theirs = quantecon.MarkovChain(sparse.csr_matrix(P))
    theirs.simulate(10, init=0)
    other = seconds(lambda: theirs.simulate(n_steps + 1, init=0, random_state=0))
    show("path of 10^5 steps", name, n, seconds(lambda: chain.simulate(n_steps, seed=0)), other)


ROWS = {"policies": policy_rows, "chains": chain_rows, "paths": path_rows}


def main() -> None:
    """Print a row for each model, size and question."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--states", type=int, nargs="+", default=[100, 1_000, 10_000])
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--rows", nargs="+", default=list(ROWS), choices=list(ROWS))
    options = parser.parse_args()
    print(f"{'':20} {'model':8} {'states':>6} {'ours':>13} {'theirs':>13} {'ratio':>8} iterations")
    for rows in options.rows:
        for name in options.models:
            for n in options.states:
                if name == "dense" and n > MAX_DENSE:
                    continue  # an outcome table of 10 GB
                if name == "sparse" and n > 3_000 and rows == "chains":
                    continue  # SuperLU takes minutes
                ROWS[rows](name, n)


if __name__ == "__main__":
    main()
