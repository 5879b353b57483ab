"""The Markov chain that a stationary policy induces: P(s, s') = Σ_a π(a|s) p(s'|s, a)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from unichain_gym.arrays import FloatArray
from unichain_gym.chain import MarkovChain
from unichain_gym.interface import OutcomeModel
from unichain_gym.outcomes import read_only
from unichain_gym.policies import action_probabilities


def induce(mdp: OutcomeModel, policy: ArrayLike) -> MarkovChain:
    """Return the chain; see `TabularMDP.induce`."""
    pi = read_only(action_probabilities(policy, mdp.allowed_actions))
    S = mdp.n_states
    # A deterministic policy, the usual case, needs one action's outcomes and not all A. (A
    # largest probability of 1 is not enough: next to it, 1e-17 still makes an edge.)
    weight: FloatArray
    if (np.count_nonzero(pi, axis=1) == 1).all():
        chosen = (np.arange(S), pi.argmax(axis=1))
        weight = mdp.probability[chosen]
        column = mdp.next_state[chosen]
    else:
        weight = (pi[:, :, None] * mdp.probability).reshape(S, -1)
        column = mdp.next_state.reshape(S, -1)
    keep = weight > 0.0
    indptr = np.concatenate(([0], np.cumsum(keep.sum(axis=1))))
    P = sparse.csr_array((weight[keep], column[keep], indptr), shape=(S, S))
    P.sum_duplicates()
    reward = np.einsum("sa,sa->s", pi, mdp.expected_reward)
    return MarkovChain(P, reward, mdp.initial_distribution, mdp=mdp, policy=pi)
