"""Whether an MDP is unichain: whether every deterministic policy has one recurrent class.

An *end component* is a set of states with some actions for each state. These actions never leave
the set, and by them every state can reach every other. The recurrent classes of policies are end
components, and in every end component some policy has a recurrent class. So an MDP is unichain
exactly if no two of its end components are disjoint.

This decision is NP-hard in general, but usually easy in practice. In this order:

1. There are two maximal end components: not unichain.
2. There is one. Take out one of its states. If no end component is left, all contain that state:
   unichain. If two maximal ones are left: not unichain.
3. The policies inside it are enumerated, where they are few. Of the actions of a state only
   actions with a smallest set of successors matter: a smaller set keeps closed sets closed.

Otherwise the answer is unknown.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from unichain_gym.interface import BoolArray, IntArray
from unichain_gym.structure import find_structure, outcome_graph

MAX_REMOVALS = 200
MAX_VISITED = 50_000_000  # outcomes, over all removals
MAX_ENUMERATED = 2_000_000


def is_unichain(next_state: IntArray, possible: BoolArray) -> bool | None:
    """Decide from the outcomes (S, A, K) and the mask of possible ones; None if unknown.

    A state lacks an action without possible outcomes.
    """
    label = maximal_end_components(next_state, possible, np.any(possible, axis=2))
    if label.max() > 0:
        return False
    # That end component alone, its states numbered from 0; actions that leave it are not allowed.
    inside, place = label == 0, np.full(label.size, -1)
    place[inside] = np.arange(np.count_nonzero(inside))
    next_state, possible = place[next_state[inside]], possible[inside]
    allowed = np.all(~possible | (next_state >= 0), axis=2) & possible.any(axis=2)
    next_state, possible = np.maximum(next_state, 0), possible & allowed[:, :, None]
    n = len(next_state)
    entering = np.bincount(next_state[possible], minlength=n)
    n_removals = min(MAX_REMOVALS, max(1, MAX_VISITED // next_state.size))
    for state in np.argsort(-entering, kind="stable")[:n_removals]:
        without = allowed & (np.arange(n) != state)[:, None]
        n_left = maximal_end_components(next_state, possible, without).max() + 1
        if n_left != 1:
            return bool(n_left == 0)
    return enumerate_policies(next_state, possible, allowed)


def maximal_end_components(
    next_state: IntArray, possible: BoolArray, allowed: BoolArray
) -> IntArray:
    """Return the number of each state's maximal end component, (S,); -1 if it is in none.

    Outcomes are (S, A, K), allowed actions (S, A); states without an action are in none.
    """
    S = len(next_state)
    alive = allowed.any(axis=1)
    label = np.where(alive, 0, -1)
    n_labels, n_alive = 1, int(alive.sum())
    while True:
        # Keep actions that stay within a part, and split each part into connected components.
        stays = (~possible | (label[next_state] == label[:, None, None])).all(axis=2)
        stays &= allowed & (label >= 0)[:, None]
        graph = outcome_graph(next_state, possible & stays[:, :, None])
        _, component = connected_components(graph, connection="strong")
        alive = stays.any(axis=1)
        label = np.full(S, -1)
        parts, label[alive] = np.unique(component[alive], return_inverse=True)
        if (parts.size, int(alive.sum())) == (n_labels, n_alive):
            return label
        n_labels, n_alive = int(parts.size), int(alive.sum())


def enumerate_policies(
    next_state: IntArray, possible: BoolArray, allowed: BoolArray
) -> bool | None:
    """Try all policies that differ in their sets of successors; None if they are too many."""
    n, A, K = next_state.shape
    if n * A * n > MAX_ENUMERATED:
        return None
    successors = np.zeros((n, A, n), dtype=np.int64)
    state, action, k = np.nonzero(possible)
    successors[state, action, next_state[state, action, k]] = 1
    shared = np.einsum("sax,sbx->sab", successors, successors)
    size = successors.sum(axis=2)
    # b makes a redundant if its successors are a proper subset of a's, or equal and b is first.
    is_part = shared == size[:, None, :]
    is_first = np.arange(A)[None, :] < np.arange(A)[:, None]
    needless = is_part & allowed[:, None, :] & ((size[:, None, :] < size[:, :, None]) | is_first)
    useful = allowed & ~needless.any(axis=2)
    n_choices = useful.sum(axis=1)
    n_policies = int(np.prod(n_choices.astype(object)))
    if n_policies * n * K > MAX_ENUMERATED:
        return None
    chosen = np.tile(useful.argmax(axis=1), (n_policies, 1))
    free = np.flatnonzero(n_choices > 1)
    if free.size:
        choice = np.stack(np.unravel_index(np.arange(n_policies), n_choices[free]), axis=1)
        ranked = np.argsort(~useful[free], axis=1, kind="stable")
        chosen[:, free] = ranked[np.arange(free.size), choice]
    # One chain of all policies side by side: unichain if it has one class for each.
    policy, state, k = np.nonzero(possible[np.arange(n), chosen])
    successor = next_state[state, chosen[policy, state], k]
    chains = sparse.csr_array(
        (np.ones(policy.size), (policy * n + state, policy * n + successor)),
        shape=(n_policies * n, n_policies * n),
    )
    return find_structure(chains).n_classes == n_policies
