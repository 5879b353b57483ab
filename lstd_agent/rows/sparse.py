"""Transitions with many sparse features, such as tiles or one feature a state."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.rows.layers import Layer, Samples


class Steps(NamedTuple):
    """Transitions: features f (n, d), the next features g (n, d), and numbers (n,).

    ``t`` is the first timestep of the run of timesteps that a transition comes from.
    """

    f: Any
    g: Any
    weight: FloatArray
    reward: FloatArray
    duration: FloatArray
    group: IntArray
    t: IntArray

    @classmethod
    def of(cls, layer: Layer, group: int, t: int) -> Steps:
        """Return a row for each pair of a layer's row and what follows it."""
        n = len(layer.weights)
        pairs = sparse.coo_array(sparse.eye_array(n) if layer.P is None else layer.P)
        weight = layer.weights[pairs.row] * pairs.data * layer.goes_on[pairs.row]
        row, column, weight = (each[weight > 0.0] for each in (pairs.row, pairs.col, weight))
        f, g = sparse.csr_array(layer.features)[row], sparse.csr_array(layer.following)[column]
        labels = (np.full(len(row), each) for each in (group, t))
        return cls(f, g, weight, layer.rewards[row], layer.durations[row], *labels)

    def at(self, kept: Any) -> Steps:
        """Return some transitions."""
        return Steps(*(each[kept] for each in self))

    def sized(self, d: int) -> Steps:
        """Return transitions with d features; an additional one is a constant."""
        return self._replace(f=resized(self.f, d), g=resized(self.g, d))


class SparseRows:
    """Transitions of a source in groups of trials, by runs of timesteps, which are read once."""

    def __init__(self, source: Samples, anchors: IntArray, n_groups: int = 20) -> None:
        T = source.t_max
        self.source, self.t_max, self.ends = source, T, source.constant == 0.0
        self.groups, self.half = source.groups(n_groups), (T + 1) // 2
        inner = [edge for a in anchors for edge in (a, a - 1)]
        edges = sorted({0, self.half, max(T, 1), T, T + 1, *inner} - {-1})
        parts = [
            Steps.of(layer, i, a)
            for a, b in pairwise(edges)
            for i, group in enumerate(self.groups)
            for layer in source.merged(a, b, group)
        ]
        f, g, *numbers = zip(*parts, strict=True)
        joined: list[Any] = [sparse.csr_array(sparse.vstack(each)) for each in (f, g)]
        self.steps = Steps(*joined, *(np.concatenate(each) for each in numbers))
        total = self.steps.f.sum(axis=1)
        same = bool(total.size) and total[0] != 0.0 and np.allclose(total, total[0], rtol=1e-12)
        self.has_constant = bool(same) and not self.ends
        """Whether features can represent a constant."""

    def between(self, start: int, stop: int) -> Steps:
        """Return transitions of timesteps start to stop - 1."""
        return self.steps.at(np.flatnonzero((self.steps.t >= start) & (self.steps.t < stop)))


def resized(features: Any, d: int) -> sparse.csr_array:
    """Return features with or without a constant 1, according to d."""
    x: sparse.csr_array = sparse.csr_array(features)
    if x.shape[1] > d:
        x = sparse.csr_array(x[:, :d])
    elif x.shape[1] < d:
        x = sparse.csr_array(sparse.hstack((x, sparse.csr_array(np.ones((x.shape[0], 1))))))
    return x
