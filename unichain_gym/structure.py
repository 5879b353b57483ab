"""The structure of a chain: recurrent classes, periods and cyclic classes.

Two states communicate when each can reach the other. A set of communicating states that no
transition leaves is a recurrent class; all other states are transient. The period of a class is the
greatest common divisor of the lengths of its cycles; a class of period d has d *cyclic classes*,
each of which leads to the next. Only the graph of possible transitions matters, not the
probabilities.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import breadth_first_order, connected_components

from unichain_gym.interface import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class Structure:
    """The recurrent class of each state, (S,), -1 if transient; and how many classes there are."""

    class_label: IntArray
    n_classes: int

    @property
    def recurrent(self) -> IntArray:
        """All recurrent states, sorted."""
        return np.flatnonzero(self.class_label >= 0)

    @property
    def transient(self) -> IntArray:
        """All transient states, sorted."""
        return np.flatnonzero(self.class_label < 0)

    def classes_among(self, states: IntArray) -> IntArray:
        """Return the numbers of the classes that some states belong to, sorted."""
        labels = np.unique(self.class_label[states])
        return labels[labels >= 0]

    @property
    def classes(self) -> list[IntArray]:
        """The states of each recurrent class, sorted."""
        return group(self.recurrent, self.class_label[self.recurrent], self.n_classes)


def find_structure(P: sparse.csr_array) -> Structure:
    """Find the recurrent classes of a transition matrix (S, S) without stored zeros."""
    if P.nnz == P.shape[0] ** 2:
        return Structure(np.zeros(P.shape[0], dtype=np.int64), 1)
    n, component = connected_components(P, connection="strong")
    row, column = edges(P)
    is_left = np.zeros(n, dtype=bool)
    is_left[component[row[component[row] != component[column]]]] = True
    first_state = np.full(n, P.shape[0])
    np.minimum.at(first_state, component, np.arange(P.shape[0]))
    closed = np.flatnonzero(~is_left)
    closed = closed[np.argsort(first_state[closed])]
    label = np.full(n, -1)
    label[closed] = np.arange(closed.size)
    return Structure(label[component].astype(np.int64), int(closed.size))


def edges(P: sparse.csr_array) -> tuple[IntArray, IntArray]:
    """Return the row and the column of every stored entry, row by row."""
    row = np.repeat(np.arange(P.shape[0], dtype=np.int64), np.diff(P.indptr))
    return row, P.indices.astype(np.int64)


def outcome_graph(next_state: IntArray, possible: BoolArray) -> sparse.csr_array:
    """Return the graph (S, S) of the possible outcomes (S, A, K)."""
    S = len(next_state)
    state, action, k = np.nonzero(possible)
    place = state, next_state[state, action, k]
    return sparse.csr_array((np.ones(state.size), place), shape=(S, S))


def off_diagonal(N: sparse.csr_array) -> sparse.csr_array:
    """Return a matrix without its diagonal."""
    row, column = edges(N)
    return keep_edges(N, row != column)


def keep_edges(N: sparse.csr_array, keep: BoolArray) -> sparse.csr_array:
    """Return a matrix of some of the stored entries, in the order of `edges`."""
    if keep.all():
        return N
    indptr = np.concatenate(([0], np.cumsum(keep)))[N.indptr]
    return sparse.csr_array((N.data[keep], N.indices[keep], indptr), shape=N.shape)


def keep_states(N: sparse.csr_array, states: IntArray) -> sparse.csr_array:
    """Return the transitions of a square matrix between some states, sorted."""
    if states.size == N.shape[0]:
        return N
    return N[states][:, states]


def grounded_matrix(N: sparse.csr_array, exit_rate: FloatArray) -> sparse.csr_array:
    """Return A = diag(N 1 + e) - N; the diagonal of N is ignored."""
    N = off_diagonal(N)
    return sparse.csr_array(sparse.diags_array(row_sums(N) + exit_rate) - N)


def divide_rows(N: sparse.csr_array, scale: FloatArray) -> sparse.csr_array:
    """Return diag(1/scale) N."""
    data = N.data / np.repeat(scale, np.diff(N.indptr))
    return sparse.csr_array((data, N.indices, N.indptr), shape=N.shape)


def row_sums(P: sparse.csr_array) -> FloatArray:
    """Return P 1."""
    return np.asarray(P.sum(axis=1), dtype=np.float64)


def group(values: IntArray, label: NDArray[np.integer[Any]], n_groups: int) -> list[IntArray]:
    """Return the values of each label, in their order."""
    ends = np.cumsum(np.bincount(label, minlength=n_groups))[:-1]
    return np.split(values[np.argsort(label, kind="stable")], ends)


def group_sums(label: NDArray[np.integer[Any]], values: FloatArray, n_groups: int) -> FloatArray:
    """Return the sum of the values of each label, shape (n_groups,)."""
    return np.bincount(label, weights=values, minlength=n_groups).astype(np.float64, copy=False)


def first_of_each(label: IntArray, keys: tuple[NDArray[Any], ...], n_labels: int) -> IntArray:
    """Return for each label the index of its smallest keys; the last key is the primary one."""
    order = np.lexsort((*keys, label))
    return np.asarray(order[np.searchsorted(label[order], np.arange(n_labels))])


def search_breadth_first(P: sparse.csr_array, sources: IntArray) -> tuple[IntArray, IntArray]:
    """Search a graph, an entry (s, s') being an edge, from several sources at once.

    Returns, each (S,), the number of edges on a shortest path from a source, -1 without a path; and
    the previous state on it, which is no state for sources and without a path.
    """
    S = P.shape[0]
    # A root with an edge to every source turns many searches into one.
    graph = sparse.csr_array(
        (
            np.ones(P.indices.size + sources.size),
            np.concatenate((P.indices, sources)),
            np.concatenate((P.indptr, [P.indices.size + sources.size])),
        ),
        shape=(S + 1, S + 1),
    )
    order, predecessor = breadth_first_order(graph, S, return_predecessors=True)
    parent = np.full(S + 1, S, dtype=np.int64)
    parent[order[1:]] = predecessor[order[1:]]
    step = np.full(S + 1, -1, dtype=np.int64)
    step[order] = 1
    step[S] = 0
    depth = path_sums(parent, step)[:S]
    depth[depth > 0] -= 1  # the edge of the root
    return depth, predecessor[:S].astype(np.int64)


def path_sums(parent: IntArray, values: NDArray[Any]) -> NDArray[Any]:
    """Return sums of values (n,) from each node to the root, its own parent, of value 0.

    By pointer doubling: each pass adds the sum of the ancestor reached so far.
    """
    sums, ancestor = values, parent
    while (ancestor != (further := ancestor[ancestor])).any():
        sums, ancestor = sums + sums[ancestor], further
    return sums


def find_periods(P: sparse.csr_array, structure: Structure) -> IntArray:
    """Return the period of each recurrent class.

    With any spanning tree of a class, the period is the greatest common divisor, over the edges
    (s, s') of the class, of depth(s) + 1 - depth(s'). (Denardo, 1977, Math. Oper. Res. 2.)
    """
    label = structure.class_label
    recurrent = structure.recurrent
    _, first = np.unique(label[recurrent], return_index=True)
    depth, _ = search_breadth_first(P, recurrent[first])
    row, column = edges(P)
    excess, inside = np.abs(depth[row] + 1 - depth[column]), label[row] >= 0
    periods = np.zeros(structure.n_classes, dtype=np.int64)
    np.gcd.at(periods, label[row[inside]], excess[inside])
    return periods


def common_period(periods: IntArray) -> int:
    """Return the least multiple of all periods, however large."""
    return int(np.lcm.reduce(periods.astype(object)))


def cyclic_classes(
    P: sparse.csr_array, structure: Structure, periods: IntArray
) -> list[list[IntArray]]:
    """Return the cyclic classes of each recurrent class, in cyclic order.

    Two states of a class of period d are in one cyclic class if their distances from a third agree
    modulo d. The first contains the lowest state. (Kemeny & Snell, 1960, Finite Markov Chains,
    section 2.2; Seneta, 1981, Non-negative Matrices and Markov Chains, chapter 1.)
    """
    firsts = np.array([states[0] for states in structure.classes])
    depth, _ = search_breadth_first(P, firsts)
    pairs = zip(structure.classes, periods.tolist(), strict=True)
    return [group(states, depth[states] % period, period) for states, period in pairs]
