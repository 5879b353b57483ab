r"""Layers: the rows of a timestep, and the two questions that algorithms ask of samples.

A *layer* has one row for everything that a timestep tells apart: a state that was counted, a trial,
a state of an exact chain. A row has features (f, 1), a weight n, a mean reward r, a mean duration
τ, and a row-stochastic map P to the rows of the next timestep. Every sum of this package is a
weighted sum over rows: equations of windows, targets of several steps, mean rewards, occupancies.

A terminal state is a row of zeros. A transition that was not recorded, or that an exploratory
action made, has weight 0 and does not go on: its target is its own value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.decompositions import svd


@dataclass(frozen=True, eq=False)
class Layer:
    """Rows of one timestep, or of several.

    Attributes
    ----------
    features : ndarray, shape (m, p), or csr_array
        Of each row, in coordinates, the constant last. Sparse features have no constant.
    weights, rewards, durations : ndarray, shape (m,)
        Number of samples, their mean reward, and the mean time that a step takes.
    goes_on : ndarray of bool, shape (m,)
        Whether it is known what comes next.
    following : ndarray, shape (l, p), or csr_array
        Features of the rows that come next.
    P : ndarray or csr_array, shape (m, l), or None
        Where the rows lead; None is the identity.
    """

    features: Any
    weights: FloatArray
    rewards: FloatArray
    durations: FloatArray
    goes_on: BoolArray
    following: Any
    P: Any

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
    """Coordinates of features f (d,), in which equations are solved.

    Attributes
    ----------
    turn : ndarray, shape (d, r) or (d,)
        Coordinates are f @ turn, or f * turn.
    are_smallest_of_features : bool
        Whether weights that the samples leave open are the smallest of the features' own weights;
        else the smallest of the coordinates'.
    sizes : ndarray, shape (d,)
        Root mean squares of features. How far a value is open is judged on features of size 1.
    """

    turn: FloatArray
    are_smallest_of_features: bool
    sizes: FloatArray

    @property
    def metric(self) -> FloatArray | None:
        """The turn, if weights are to be the smallest of the features' own."""
        return self.turn if self.are_smallest_of_features else None

    def of(self, features: FloatArray, constant: float) -> FloatArray:
        """Return coordinates and a constant (..., r + 1) of features (..., d)."""
        turned = features * self.turn if self.turn.ndim == 1 else features @ self.turn
        return np.concatenate((turned, np.full((*turned.shape[:-1], 1), constant)), axis=-1)

    def of_features(self, weights: FloatArray) -> FloatArray:
        """Return weights of features and offset (d + 1, q) from those of coordinates (r + 1, q)."""
        inner = weights[:-1]
        inner = self.turn[:, None] * inner if self.turn.ndim == 1 else self.turn @ inner
        return np.vstack((inner, weights[-1:]))

    def scaled(self, weights: FloatArray) -> FloatArray:
        """Return the same for features of size 1."""
        return np.asarray(self.of_features(weights) * np.append(self.sizes, 1.0)[:, None])


def orthonormal(features: FloatArray, rcond: float) -> FloatArray:
    """Return the matrix (d, r) that makes orthonormal columns of features (n, d)."""
    _, size, Vt = svd(features)
    keep = size > rcond * size[0]
    return np.asarray(Vt[keep].T / size[keep])


def root_mean_squares(features: Any, n: int) -> FloatArray:
    """Return sizes (d,) of features over n rows, none 0."""
    squares = features.power(2) if hasattr(features, "power") else features**2
    size = np.sqrt(np.asarray(squares.sum(axis=0)).ravel() / max(n, 1))
    # Features that are next to nothing, such as bumps far from all that was seen, count as 0.
    return np.where(size > 1e-100, size, 1.0)


class Samples(Protocol):
    """A source of layers.

    Attributes
    ----------
    t_max : int
        The last timestep.
    p : int
        Number of coordinates, the constant included.
    coordinates : Coordinates
    constant : float
        The 1 of (f, 1), or 0 in tasks that end.
    rcond : float
        Relative cutoff of the size of features.
    are_places : bool
        Whether the rows of a timestep stand for the same states at each timestep; else for trials.
    n_trials : int
        0 where all is exact.
    """

    t_max: int
    p: int
    coordinates: Coordinates
    constant: float
    rcond: float
    are_places: bool
    n_trials: int

    def merged(self, start: int, stop: int, group: Any = None) -> Iterator[Layer]:
        """Yield layers of all rows from timestep start up to stop, in whatever order.

        Of one group of trials, as `groups` gives it, or of all.
        """

    def layers(self, start: int, stop: int, groups: Any = None) -> Iterator[Layer]:
        """Yield the timesteps before stop, down to start: every place or trial is a row.

        Places come once for each group that is given; trials are always all.
        """

    def groups(self, n: int) -> list[Any]:
        """Return n groups of trials, of about the same number, that make up all of them."""

    def sizes(self, groups: list[Any]) -> IntArray:
        """Return how many trials each group has."""

    def zero(self, anchor: int) -> FloatArray | None:
        """Return the features (p,) whose value is 0, or None: the mean of the tail.

        Given the last anchor, whose most visited state it is where states are counted.
        """
