"""Classes of states, by the graph of their transitions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lstd_agent.arrays import BoolArray, FloatArray, IntArray

_SMALL_CLASS = 0.01  # a class has few samples if it has a smaller share of the largest class's


class RecurrentClass(NamedTuple):
    """States that were never seen to be left, and the number of transitions between them."""

    states: IntArray
    period: int
    n_transitions: int


def recurrent_classes(transitions: Any) -> list[RecurrentClass]:
    """Return the closed classes of a matrix of transition counts, the most visited one first."""
    from scipy.sparse.csgraph import dijkstra  # takes long to import

    found = []
    for states in closed_classes(transitions):
        within = transitions[states][:, states]
        [level] = dijkstra(within, indices=[0], unweighted=True).astype(np.int64)
        origin, target = within.nonzero()
        period = int(np.gcd.reduce(level[origin] + 1 - level[target]))
        found.append(RecurrentClass(states, period, int(within.sum())))
    return sorted(found, key=lambda each: -each.n_transitions)


def _classes(graph: Any) -> Any:
    """Return the class (n,) of each node, and which classes have links, and which are left."""
    from scipy.sparse.csgraph import connected_components

    m, label = connected_components(graph, connection="strong")
    origin, target = label[np.stack(graph.nonzero())]
    linked, left = np.zeros((2, m), dtype=bool)
    linked[origin], left[origin[origin != target]] = True, True
    return label, linked, left


def closed_classes(transitions: Any) -> list[IntArray]:
    """Return the classes of states that are never left, by numbers or frequencies (S, S).

    A state without transitions is of no class: its trials were over.
    """
    label, linked, left = _classes(transitions)
    return [np.flatnonzero(label == number) for number in np.flatnonzero(linked & ~left)]


def main_class(graph: Any, samples: FloatArray) -> BoolArray:
    """Return which nodes (n,) are in the class of most samples, of those that are never left.

    A closed class of few samples is the end of few trials.
    """
    label, _, left = _classes(graph)
    number = np.bincount(label, samples)
    ends = np.where(left, 0.0, number)
    number = ends if ends.max() >= _SMALL_CLASS * number.max() else number
    return np.asarray(label == label[np.argmax(number[label])])
