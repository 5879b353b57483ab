"""Classes of states, by the graph of their transitions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import sparse

from lstd_agent.arrays import BoolArray, FloatArray, IntArray

# A class has few samples if it has a smaller share of the largest class's.
_SMALL_CLASS = 0.01


class RecurrentClass(NamedTuple):
    """States that were never seen to be left, and the number of transitions between them."""

    states: IntArray
    period: int
    n_transitions: int


def recurrent_classes(transitions: sparse.csr_array) -> list[RecurrentClass]:
    """Return the closed classes of a matrix of transition counts, the most visited one first."""
    from scipy.sparse.csgraph import breadth_first_order  # takes long to import

    found = []
    for states in closed_classes(transitions):
        within = transitions[states][:, states]
        order, before = breadth_first_order(within, 0)
        level = np.zeros(len(states), dtype=np.int64)
        for state in order[1:]:
            level[state] = level[before[state]] + 1
        origin, target = within.nonzero()
        period = int(np.gcd.reduce(level[origin] + 1 - level[target]))
        found.append(RecurrentClass(states, period, int(within.sum())))
    return sorted(found, key=lambda each: -each.n_transitions)


def closed_classes(transitions: sparse.csr_array) -> list[IntArray]:
    """Return the classes of states that are never left, by numbers or frequencies (S, S).

    A state without transitions is of no class: its trials were over.
    """
    from scipy.sparse.csgraph import connected_components

    n_classes, label = connected_components(transitions, directed=True, connection="strong")
    origin, target = label[np.stack(transitions.nonzero())]
    is_closed = np.isin(np.arange(n_classes), origin)
    is_closed[origin[origin != target]] = False
    return [np.flatnonzero(label == number) for number in np.flatnonzero(is_closed)]


def main_class(graph: sparse.csr_array, samples: FloatArray) -> BoolArray:
    """Return which nodes (n,) are in the class of most samples, of those that are never left.

    A closed class with few samples is left out: it is the end of few trials.
    """
    from scipy.sparse.csgraph import connected_components

    m, label = connected_components(graph, connection="strong")
    row, column = graph.nonzero()
    number = np.bincount(label, samples, m)
    ends = number.copy()
    ends[label[row][label[row] != label[column]]] = 0.0  # classes that are left
    number = ends if ends.max() >= _SMALL_CLASS * number.max() else number
    return np.asarray(label == label[np.argmax(number[label])])
