"""Cyclic classes: what a periodic chain visits in turn.

A recurrent class of period d falls into d *cyclic classes*, each of which leads to the next
(Kemeny & Snell, 1960, Finite Markov Chains, section 2.2; Seneta, 1981, Non-negative Matrices and
Markov Chains, chapter 1).
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from unichain_gym.arrays import IntArray
from unichain_gym.outcomes import read_only
from unichain_gym.structure import Structure, search_breadth_first


def cyclic_classes(
    P: sparse.csr_array, structure: Structure, periods: IntArray
) -> list[list[IntArray]]:
    """Return the cyclic classes of each recurrent class, in the order in which they follow.

    Two states of a class of period d are in one cyclic class if their distances from a third
    agree modulo d. The first is that of the lowest state.
    """
    firsts = np.array([states[0] for states in structure.classes])
    depth, _ = search_breadth_first(P, firsts)
    result = []
    for states, period in zip(structure.classes, periods, strict=True):
        phase = depth[states] % period
        ends = np.cumsum(np.bincount(phase, minlength=int(period)))[:-1]
        parts = np.split(states[np.argsort(phase, kind="stable")], ends)
        result.append([read_only(part) for part in parts])
    return result
