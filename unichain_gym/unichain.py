"""End components: whether an MDP is unichain, and which actions optimal policies take.

An MDP is unichain if every deterministic policy has one recurrent class.

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

**Optimal actions.** With y* the terms of an n-discount optimal policy (see
`unichain_gym.policy_iteration`), call an action *conserving* to n if it is among the best of its
state in all terms up to y*_n. A deterministic policy is n-discount optimal exactly if its actions
are conserving to n everywhere and to n + 1 in its own recurrent states. (From P* (r + P y*_0 -
y*_0) = P* r, and likewise for higher terms.)

So an optimal policy may take an action that conserves to n but not to n + 1 if the state can then
be transient. A *refuge* of the state is a set of other states that actions conserving to n + 1 need
never leave. The state can be transient if conserving actions lead from an outcome to a refuge
without a return to the state. If the state is outside all such sets, dominators decide whether
every path to a refuge passes the state.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from unichain_gym.errors import ModelTooLargeError
from unichain_gym.interface import BoolArray, IntArray
from unichain_gym.structure import (
    edges,
    find_structure,
    keep_edges,
    outcome_graph,
    path_sums,
    search_breadth_first,
)

MAX_REMOVALS = 200
MAX_VISITED = 50_000_000  # outcomes, over all removals
MAX_ENUMERATED = 2_000_000
MAX_SEARCHED = 10**10


def is_unichain(next_state: IntArray, possible: BoolArray) -> bool | None:
    """Decide from the outcomes (S, A, K) and the mask of possible ones; None if unknown."""
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
    """Return each state's maximal end component (S,), -1 if none; `allowed` is (S, A)."""
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


def taken_by_optimal_policies(
    next_state: IntArray, possible: BoolArray, conserving: BoolArray, best: BoolArray
) -> BoolArray:
    """Return the actions that some optimal deterministic policy takes, shape (S, A).

    Outcomes are (S, A, K). ``best`` actions also conserve the next term, at least one in each
    state. Raises a `ModelTooLargeError` if too many states have ties.
    """
    S = len(next_state)
    refuge = maximal_end_components(next_state, possible, best)
    state, action, k = np.nonzero(possible & conserving[:, :, None])
    successor = next_state[state, action, k]
    graph = sparse.csr_array((np.ones(state.size), (successor, state)), shape=(S, S))
    # An outcome helps if it is another state with a path to a refuge that avoids this state.
    helps = (successor != state) & (refuge[state] < 0)
    helps[helps] = ~_dominates(graph, np.flatnonzero(refuge >= 0), state[helps], successor[helps])
    taken = best.copy()
    taken[state[helps], action[helps]] = True

    open_states = np.flatnonzero((conserving & ~taken).any(axis=1) & (refuge >= 0))
    open_states = open_states[
        ~_has_one_refuge(graph, next_state, possible, best, refuge)[open_states]
    ]
    if open_states.size * state.size > MAX_SEARCHED:
        raise ModelTooLargeError(
            f"whether optimal policies take the other actions of {open_states.size} recurrent "
            f"states, with ties in their classes, would take {open_states.size} searches of "
            f"{state.size} outcomes; policy, gain and bias are known without"
        )
    row, column = edges(graph)
    for s in open_states.tolist():
        without = best & (np.arange(S) != s)[:, None]
        safe = np.flatnonzero(maximal_end_components(next_state, possible, without) >= 0)
        if safe.size:
            others = keep_edges(graph, (row != s) & (column != s))
            depth, _ = search_breadth_first(others, safe)
            out = (state == s) & (successor != s) & (depth[successor] >= 0)
            taken[s, action[out]] = True
    return taken


def _has_one_refuge(
    graph: sparse.csr_array,
    next_state: IntArray,
    possible: BoolArray,
    best: BoolArray,
    refuge: IntArray,
) -> BoolArray:
    """Whether a state's refuge, with one best action in each state, is unique in its component."""
    stays = best & (~possible | (refuge[next_state] == refuge[:, None, None])).all(axis=2)
    inside = np.flatnonzero(refuge >= 0)
    _, part = connected_components(graph, directed=False)
    n_refuges, is_loose = np.zeros((2, part.max() + 1), dtype=np.int64)
    _, representative = np.unique(refuge[inside], return_index=True)
    np.add.at(n_refuges, part[inside[representative]], 1)
    np.maximum.at(is_loose, part[inside], np.count_nonzero(stays[inside], axis=1) > 1)
    alone: BoolArray = ((n_refuges == 1) & (is_loose == 0))[part]
    return alone


def _dominates(
    graph: sparse.csr_array, sources: IntArray, node: IntArray, other: IntArray
) -> BoolArray:
    """Whether every path from the sources to `other` passes `node`, pair by pair.

    The dominator tree: in it, the parent of a node is the lowest common ancestor of all nodes with
    an edge to it. Starting from a tree of shortest paths, repeated updates of all parents only move
    nodes up, and end in the dominator tree.
    """
    S = graph.shape[0]
    root = S
    depth, parent = search_breadth_first(graph, sources)
    reached = depth >= 0
    parent = np.append(np.where(reached, parent, root), root)
    parent[sources] = root
    tail, head = edges(graph)
    inner = reached[tail] & (depth[head] > 0)
    tail, head = tail[inner], head[inner]
    while True:
        lift, level = _ancestors(parent)
        meet = _lowest_common_ancestor(lift, level, tail, parent[head])
        moved = np.flatnonzero(level[meet] < level[parent[head]])
        if not moved.size:
            break
        # They lie on the path from the parent to the root; the nearest one is written last.
        moved = moved[np.argsort(-level[meet[moved]], kind="stable")]
        parent[head[moved]] = meet[moved]
    lift, level = _ancestors(parent)
    answer: BoolArray = _lowest_common_ancestor(lift, level, node, other) == node
    return answer | ~reached[other]


def _ancestors(parent: IntArray) -> tuple[list[IntArray], IntArray]:
    """Return the 2^i-th ancestors of all nodes, and the nodes' levels."""
    root, lift = parent.size - 1, [parent]
    while (lift[-1] != root).any():
        lift.append(lift[-1][lift[-1]])
    return lift, path_sums(parent, (np.arange(parent.size) != root).astype(np.int64))


def _lowest_common_ancestor(
    lift: list[IntArray], level: IntArray, a: IntArray, b: IntArray
) -> IntArray:
    """Return the lowest common ancestor of nodes pair by pair, either of them included."""
    deep, other = np.where(level[a] >= level[b], a, b), np.where(level[a] >= level[b], b, a)
    excess = level[deep] - level[other]
    for i, ancestor in enumerate(lift):
        deep = np.where(excess >> i & 1, ancestor[deep], deep)
    for ancestor in reversed(lift):
        apart = ancestor[deep] != ancestor[other]
        deep, other = np.where(apart, ancestor[deep], deep), np.where(apart, ancestor[other], other)
    answer: IntArray = np.where(deep == other, deep, lift[0][deep])
    return answer
