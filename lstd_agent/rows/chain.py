"""Rows of an exact Markov chain: a row is a state, and n its probability at a timestep."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.rows.layers import Coordinates, Layer


class ChainRows:
    """Rows of a chain of S states; see `lstd_agent.rows.layers.Samples`.

    From its distributions (t_max + 1, S), transition matrix, expected rewards (S,) and mean
    durations (S,) of steps, and a table (S, d) of features. Timesteps after ``t_max`` stand for
    p*, ``stationary``.
    """

    are_places = True
    is_sparse = False
    n_trials = 0
    support_threshold = 1e-8
    """States with a larger mean probability are in a window's support."""

    def __init__(
        self,
        distributions: FloatArray,
        P: Any,
        rewards: FloatArray,
        table: FloatArray,
        *,
        terminal: int | None = None,
        durations: FloatArray | None = None,
        stationary: FloatArray | None = None,
        rcond: float = 1e-10,
    ) -> None:
        self.distributions, self.P, self._rewards = distributions, P, rewards
        self.t_max, self.rcond = len(distributions) - 1, rcond
        self.terminal = self._main = terminal
        self.constant = float(terminal is None)
        self._lives = np.arange(len(rewards)) != terminal
        self._durations = np.ones(len(rewards)) if durations is None else durations
        self._stationary = stationary
        self.table = self.candidate_features = np.asarray(table, dtype=np.float64)
        seen = distributions.any(axis=0)
        while (more := seen | (P.T @ seen.astype(np.float64) > 0.0)).sum() > seen.sum():
            seen = more
        self.coordinates = Coordinates.of_places(self.table[seen], rcond)
        rows = self.coordinates.of(self.table, self.constant)
        self.rows = rows * (self._lives & seen)[:, None]
        self.p = self.rows.shape[1]

    def layer(self, weights: FloatArray) -> Layer:
        """Return all states with weights (S,)."""
        numbers = weights, self._rewards, self._durations
        return Layer(self.rows, *numbers, self._lives, self.rows, self.P)

    def weights(self, start: int, stop: int) -> FloatArray:
        """Return the summed distributions (S,) of a run of timesteps."""
        if start > self.t_max:
            assert self._stationary is not None
            return self._stationary
        return np.asarray(self.distributions[start:stop].sum(axis=0))

    def merged(self, start: int, stop: int, group: Any = None) -> Iterator[Layer]:
        """Yield one layer."""
        yield self.layer(self.weights(start, stop))

    def layers(self, start: int, stop: int, groups: Any = None) -> Iterator[Layer]:
        """Yield timesteps backwards."""
        yield from (self.layer(self.distributions[t]) for t in reversed(range(start, stop)))

    def groups(self, n: int) -> list[Any]:
        """Return one group: the chain is exact."""
        return [None]

    def zero(self, anchor: int) -> FloatArray | None:
        """Return the row of the main state."""
        return np.asarray(self.rows[self.main_state(anchor)])

    def main_state(self, anchor: int) -> int:
        """Return the state whose value is 0."""
        if self._main is None:
            self._main = int(np.argmax(self.weights(anchor, self.t_max + 1)))
        return self._main

    def occupancy(self, windows: IntArray, segments: Any = None) -> FloatArray:
        """Return the mean distribution of each window, shape (n, S)."""
        return np.stack([self.weights(a, b) / (b - a) for a, b in windows.tolist()])
