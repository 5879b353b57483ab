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

from unichain_gym.action_values import expected_ahead
from unichain_gym.arrays import FloatArray
from unichain_gym.errors import ModelTooLargeError
from unichain_gym.hitting import solver_until
from unichain_gym.interface import OutcomeModel
from unichain_gym.policies import induce
from unichain_gym.structure import outcome_graph, search_breadth_first

MAX_STATES = 1_000
# A policy is only changed for what is more than rounding.
IMPROVEMENT = 1e-10


def find_diameter(mdp: OutcomeModel) -> float:
    """Return the diameter of an MDP: how many steps the longest way takes at best, in expectation.

    Parameters
    ----------
    mdp : TabularMDP

    Returns
    -------
    float
        Infinite if some state cannot be reached from another.

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
    if S == 1:
        return 0.0
    backward = sparse.csr_array(outcome_graph(mdp.next_state, mdp.probability > 0.0).T)
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
    nearest = np.where(mdp.probability > 0.0, depth[mdp.next_state], S).min(axis=2)
    policy = nearest.argmin(axis=1)
    while True:
        times = np.zeros(S)
        rows = induce(mdp, policy).transition_matrix[others]
        times[others] = solver_until(rows, others, np.array([target])).solve(np.ones(S - 1))
        ahead = np.where(mdp.allowed_actions, expected_ahead(mdp, times), np.inf)
        own = ahead[np.arange(S), policy]
        better = ahead.min(axis=1) < own - IMPROVEMENT * own
        better[target] = False
        if not better.any():
            return times
        policy = np.where(better, ahead.argmin(axis=1), policy)
