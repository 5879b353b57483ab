"""The diameter of an MDP (Jaksch, Ortner & Auer, 2010, J. Mach. Learn. Res. 11, definition 1).

    D = max_{s ≠ s'} min_π E[steps from s until s' is reached under π]

It is finite exactly if the MDP is communicating: if every state can be reached from every other
one. For each target the inner minimum is a stochastic shortest path, found by policy iteration
from a policy of shortest ways: such a policy reaches the target for sure, and so do all better
ones (Bertsekas & Tsitsiklis, 1991, Math. Oper. Res. 16).
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from unichain_gym.arrays import FloatArray, IntArray
from unichain_gym.errors import ModelTooLargeError
from unichain_gym.inducing import induce
from unichain_gym.interface import OutcomeModel
from unichain_gym.linear import find_solver
from unichain_gym.structure import row_sums, search_breadth_first

MAX_STATES = 1_000
# A policy is only changed for what is more than rounding.
IMPROVEMENT = 1e-10


def find_diameter(mdp: OutcomeModel) -> float:
    """Return the diameter, in steps; infinite if some state cannot be reached from another.

    Raises
    ------
    ModelTooLargeError
        Beyond 1,000 states: each is a target of its own.
    """
    S = mdp.n_states
    if S > MAX_STATES:
        raise ModelTooLargeError(
            f"the diameter takes a policy iteration for each of {S} target states; the limit is "
            f"{MAX_STATES} states. For one target and one policy there is chain.hitting_time"
        )
    state, action, k = np.nonzero(mdp.probability > 0.0)
    backward = sparse.csr_array(
        (np.ones(state.size), (mdp.next_state[state, action, k], state)), shape=(S, S)
    )
    largest = 0.0
    for target in range(S):
        largest = max(largest, float(_shortest_times(mdp, backward, target).max()))
        if np.isinf(largest):
            break
    return largest


def _shortest_times(mdp: OutcomeModel, backward: sparse.csr_array, target: int) -> FloatArray:
    """Return the least expected number of steps to a target state, shape (S,)."""
    S = mdp.n_states
    depth, _ = search_breadth_first(backward, np.array([target]))
    if (depth < 0).any():
        return np.full(S, np.inf)
    others = np.flatnonzero(np.arange(S) != target)
    possible, allowed = mdp.probability > 0.0, mdp.allowed_actions
    nearest = np.where(possible, depth[mdp.next_state], S).min(axis=2)
    policy = nearest.argmin(axis=1)
    while True:
        times = np.zeros(S)
        times[others] = _times(mdp, policy, target, others)
        ahead = np.einsum("sak,sak->sa", mdp.probability, times[mdp.next_state])
        ahead = np.where(allowed, ahead, np.inf)
        own = ahead[np.arange(S), policy]
        better = ahead.min(axis=1) < own - IMPROVEMENT * own
        better[target] = False
        if not better.any():
            return times
        policy = np.where(better, ahead.argmin(axis=1), policy)


def _times(mdp: OutcomeModel, policy: IntArray, target: int, others: IntArray) -> FloatArray:
    """Return the expected number of steps to the target under a policy, from the other states."""
    if not others.size:
        return np.zeros(0)
    P = induce(mdp, policy).transition_matrix[others]
    leave = row_sums(P[:, np.array([target])])
    return find_solver(P[:, others], leave).solve(np.ones(others.size))
