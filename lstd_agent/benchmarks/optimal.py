"""Rows on optimal policies."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
from scipy import sparse

from lstd_agent.benchmarks.timing import Row, Setting, compare, need
from unichain_gym import TabularMDP

N_ACTIONS, N_OUTCOMES, DISCOUNT = 4, 4, 0.999


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
