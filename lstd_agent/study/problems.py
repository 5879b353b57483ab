"""The random problems of the study: one policy and one feature table per seed."""

from __future__ import annotations

import numpy as np

from lstd_agent.features import GaussianFeatures
from lstd_agent.seminorm_lstd import FloatArray
from unichain_gym import MarkovChain, make_mdp


def random_chain(environment: str, seed: int) -> MarkovChain:
    """Return the chain of a deterministic policy drawn uniformly at random.

    Parameters
    ----------
    environment : str
        A mnemonic.
    seed : int
    """
    mdp = make_mdp(environment)
    policy_seed, _ = np.random.SeedSequence(seed).spawn(2)
    rng = np.random.default_rng(policy_seed)
    return mdp.induce(rng.integers(mdp.n_actions, size=mdp.n_states))


def random_features(n_states: int, n_features: int, seed: int) -> FloatArray:
    """Return the paper's Gaussian features (section ``state_fea_ker``), shape (S, d)."""
    _, feature_seed = np.random.SeedSequence(seed).spawn(2)
    return GaussianFeatures(n_features, int(feature_seed.generate_state(1)[0])).table(n_states)
