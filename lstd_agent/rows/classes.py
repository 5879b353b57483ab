"""Recurrent classes and their periods, by observed transitions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import sparse

from lstd_agent.arrays import IntArray


class RecurrentClass(NamedTuple):
    """States that were never seen to be left, and the number of transitions between them."""

    states: IntArray
    period: int
    n_transitions: int


def recurrent_classes(transitions: sparse.csr_array) -> list[RecurrentClass]:
    """Return the closed classes of a matrix of transition counts, the most visited one first."""
    found = []
    for states in closed_classes(transitions):
        within = transitions[states][:, states]
        found.append(RecurrentClass(states, _period(within), int(within.sum())))
    return sorted(found, key=lambda each: -each.n_transitions)


def closed_classes(transitions: sparse.csr_array) -> list[IntArray]:
    """Return the classes of states that are never left, by numbers or frequencies (S, S).

    A state without transitions is of no class: its trials were over.
    """
    from scipy.sparse.csgraph import connected_components  # takes long to import

    n_classes, label = connected_components(transitions, directed=True, connection="strong")
    origin, target = transitions.nonzero()
    is_open = np.ones(n_classes, dtype=bool)
    is_open[label[origin]] = False
    is_open[label[origin[label[origin] != label[target]]]] = True
    return [np.flatnonzero(label == number) for number in np.flatnonzero(~is_open)]


def _period(transitions: sparse.csr_array) -> int:
    """Return the period of an irreducible matrix: gcd of level(s) + 1 - level(s') over edges."""
    from scipy.sparse.csgraph import breadth_first_order

    order, before = breadth_first_order(transitions, 0)
    level = np.zeros(transitions.shape[0], dtype=np.int64)
    for state in order[1:]:
        level[state] = level[before[state]] + 1
    origin, target = transitions.nonzero()
    return int(np.gcd.reduce(level[origin] + 1 - level[target]))
