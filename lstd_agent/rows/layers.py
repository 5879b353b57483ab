r"""Layers: the rows of a timestep, and the interface of samples.

A *layer* has one row for each counted state, trial, or state of an exact chain. A row has features
(f, 1), a weight n, a mean reward r, a mean duration τ, and a row-stochastic map P to the rows of
the next timestep. Every sum of this package is a weighted sum over rows: equations of windows,
targets of several steps, mean rewards, occupancies.

A terminal state is a row of zeros. A transition that was not recorded, or of an exploratory action,
has weight 0 and does not go on: its target is its own value.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from lstd_agent.arrays import BoolArray, FloatArray, IntArray, svd


@dataclass(frozen=True, eq=False)
class Layer:
    """Rows of one timestep, or of several."""

    features: Any  # (m, p) coordinates, the constant last, or sparse features without a constant
    weights: FloatArray
    rewards: FloatArray
    durations: FloatArray
    goes_on: BoolArray  # (m,) which rows have a known successor
    following: Any  # (l, p) the next rows
    P: Any  # (m, l) transition probabilities; None is the identity

    def ahead(self, values: Any) -> Any:
        """Return the mean (m, ...) of values (l, ...) of the rows that come next."""
        if self.P is None:
            return values
        if values.ndim == 2:
            return self.P @ values
        mean = self.P @ values.reshape(len(values), -1)
        return mean.reshape(-1, *values.shape[1:])


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Coordinates f @ turn, or f * turn, of features f (d,), in which equations are solved."""

    turn: FloatArray
    sizes: FloatArray  # root mean squares of features: open shares refer to features of size 1
    metric: FloatArray | None = None  # open weights are the smallest by it, or in coordinates

    @classmethod
    def of_places(cls, features: FloatArray, rcond: float) -> Coordinates:
        """Return coordinates that make columns of features (n, d) orthonormal."""
        _, singular, Vt = svd(features)
        keep = singular > rcond * singular[0]
        turn = np.asarray(Vt[keep].T / singular[keep])
        sizes = np.sqrt((features**2).sum(axis=0) / max(len(features), 1))
        # Tiny features, such as bumps far from all samples, count as 0.
        return cls(turn, np.where(sizes > 1e-100, sizes, 1.0), turn)

    def of(self, features: FloatArray, constant: float) -> FloatArray:
        """Return coordinates and a constant (..., r + 1) of features (..., d)."""
        turned = features * self.turn if self.turn.ndim == 1 else features @ self.turn
        return np.concatenate((turned, np.full((*turned.shape[:-1], 1), constant)), axis=-1)

    def of_features(self, weights: FloatArray) -> FloatArray:
        """Return weights of features and offset (d + 1, q), given those of coordinates."""
        turn, inner = self.turn, weights[:-1]
        return np.vstack((turn[:, None] * inner if turn.ndim == 1 else turn @ inner, weights[-1:]))

    def scaled(self, weights: FloatArray) -> FloatArray:
        """Return the weights for features of size 1."""
        return np.asarray(self.of_features(weights) * np.append(self.sizes, 1.0)[:, None])


class Samples:
    """A source of layers of ``p`` `coordinates`, the constant included, for timesteps 0 to t_max.

    ``constant`` is the 1 of (f, 1), or 0 in tasks that end. ``rcond`` is the relative cutoff of the
    size of features. If ``are_places``, the rows of each timestep stand for the same states, else
    for trials. ``n_trials`` is 0 where all is exact; ``trials_at`` (t_max + 1,) have each timestep.
    If ``is_sparse``, features are many and sparse: see `lstd_agent.system.sparse`. Candidate
    reference states of an occupancy above ``support_threshold`` are in a window's support.

    ``groups(n)`` deals trials into n groups. ``merged(start, stop, group)`` yields layers of all
    rows of these timesteps, of one group or of all. ``layers(start, stop, groups)`` yields
    timesteps backwards: every place, for each given group, or every trial is a row.
    ``zero(anchor)`` are the features (p,) of value 0; None is the mean of the tail.
    ``sums_at(name)`` are sums of ``"rewards"`` or ``"durations"``; None if all are 1.
    """

    t_max: int
    rcond: float
    sums_at: Any
    trials_at: IntArray
    support_threshold: float = 0.0

    @cached_property
    def mean_rewards(self) -> FloatArray:
        """Mean reward of each timestep, shape (t_max + 1,)."""
        return np.asarray(self.sums_at("rewards") / np.maximum(self.trials_at, 1))

    @cached_property
    def mean_durations(self) -> FloatArray:
        """Mean duration of each timestep, shape (t_max + 1,)."""
        sums = self.sums_at("durations")
        n = np.maximum(self.trials_at, 1)
        return np.ones(len(n)) if sums is None else np.asarray(sums / n)
