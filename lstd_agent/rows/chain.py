"""Rows of an exact Markov chain: a row is a state, and n its probability at a timestep."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.rows.layers import Coordinates, Layer, orthonormal, root_mean_squares


class ChainRows:
    """Rows of a chain; see `lstd_agent.rows.layers.Samples`.

    Parameters
    ----------
    distributions : ndarray, shape (t_max + 1, S)
        The distribution over states at each timestep.
    P : csr_array or ndarray, shape (S, S)
        Transition matrix.
    rewards : ndarray, shape (S,)
        Expected reward of a step from each state.
    table : ndarray, shape (S, d)
        Features.
    terminal : int, optional
        The terminal state, where the task ends.
    main : int, optional
        The state whose value is 0; by default the one that the last window visits most.
    durations : ndarray, shape (S,), optional
        Mean time that a step takes; 1 by default.
    stationary : ndarray, shape (S,), optional
        p*, which timesteps after ``t_max`` stand for.
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
        main: int | None = None,
        durations: FloatArray | None = None,
        stationary: FloatArray | None = None,
        rcond: float = 1e-10,
    ) -> None:
        self.distributions, self.P, self._rewards = distributions, P, rewards
        self.t_max = len(distributions) - 1
        self.terminal, self._main = terminal, main if terminal is None else terminal
        self.constant, self.rcond = float(terminal is None), rcond
        self._lives = np.arange(len(rewards)) != terminal
        self._durations = np.ones(len(rewards)) if durations is None else durations
        self._stationary = stationary
        table = np.asarray(table, dtype=np.float64)
        seen = distributions.any(axis=0)
        while (more := seen | (P.T @ seen.astype(np.float64) > 0.0)).sum() > seen.sum():
            seen = more
        self.table = table
        self.coordinates = Coordinates(
            orthonormal(table[seen], rcond), True, root_mean_squares(table[seen], int(seen.sum()))
        )
        rows = self.coordinates.of(table, self.constant)
        self.rows = rows * (self._lives & seen)[:, None]
        self.p = self.rows.shape[1]

    def layer(self, weights: FloatArray) -> Layer:
        """Return all states with weights (S,)."""
        return Layer(
            self.rows, weights, self._rewards, self._durations, self._lives, self.rows, self.P
        )

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
        """Return one group: nothing is left to chance."""
        return [None]

    def sizes(self, groups: list[Any]) -> IntArray:
        """Return no trials."""
        return np.zeros(len(groups), dtype=np.int64)

    def zero(self, anchor: int) -> FloatArray | None:
        """Return the row of the main state."""
        return np.asarray(self.rows[self.main_state(anchor)])

    def main_state(self, anchor: int) -> int:
        """Return the state whose value is 0."""
        if self._main is None:
            self._main = int(np.argmax(self.weights(anchor, self.t_max + 1)))
        return self._main

    @property
    def candidate_features(self) -> FloatArray:
        """Features (S, d) of candidate reference states: of all states."""
        return self.table

    def occupancy(self, windows: IntArray, segments: Any = None) -> FloatArray:
        """Return the mean distribution of each window, shape (n, S)."""
        found = np.stack([self.weights(a, b) / (b - a) for a, b in windows.tolist()])
        return np.asarray(found)
