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
