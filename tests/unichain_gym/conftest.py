"""Random chains of every structure, for property tests."""

from __future__ import annotations

import numpy as np
import pytest

from unichain_gym import MarkovChain

KINDS = ("dense", "sparse", "periodic", "several classes", "transient", "slow")


@pytest.fixture(params=[(kind, seed) for kind in KINDS for seed in range(3)], ids=str)
def chain(request: pytest.FixtureRequest) -> MarkovChain:
    """A random chain of 1 to 24 states, its states in random order."""
    kind, seed = request.param
    rng = np.random.default_rng((KINDS.index(kind), seed))
    n = 1 if seed == 0 else int(rng.integers(2, 25))
    weight = rng.random((n, n)) + 0.01
    if kind == "sparse":
        weight *= rng.random((n, n)) < min(1.0, 2.0 / n)
    elif kind == "periodic":
        level = np.arange(n) % min(n, 2 + seed % 3)
        weight *= level[None, :] == (level[:, None] + 1) % (level.max() + 1)
    elif kind == "several classes":
        block = rng.integers(0, 4, size=n)
        weight *= (block[:, None] == block) | (block[:, None] == 0)
    elif kind == "transient":
        weight = np.triu(weight) * (rng.random((n, n)) < 0.4)
    elif kind == "slow":
        weight = 1e-4 * weight + np.eye(n)
    stuck = weight.sum(axis=1) == 0.0
    weight[stuck] = np.eye(n)[stuck]
    order = rng.permutation(n)
    P = (weight / weight.sum(axis=1, keepdims=True))[order][:, order]
    return MarkovChain(P, rng.normal(size=n), rng.dirichlet(np.ones(n)))
