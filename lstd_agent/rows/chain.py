"""Rows of an exact Markov chain: a row is a state, and n its probability at a timestep."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.rows.counts import CountRows
from lstd_agent.rows.layers import Layer


class ChainRows(CountRows):
    """Rows of a chain of S states.

    From its distributions (t_max + 1, S), transition matrix, expected rewards (S,) and mean
    durations (S,) of steps, and a table (S, d) of features. Timesteps after ``t_max`` stand for
    p*, ``stationary``.
    """

    support_threshold = 1e-8

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
        self.visits: Any = distributions
        self.t_max, self.rcond = len(distributions) - 1, rcond
        self.terminal = self._main = terminal
        self.constant, self.is_sparse, self.n_trials = float(terminal is None), False, 0
        self._lives = np.arange(len(rewards)) != terminal
        times = np.ones(len(rewards)) if durations is None else durations
        self._chain, self._stationary = (rewards, times, P), stationary
        self.table = self.candidate_features = np.asarray(table, dtype=np.float64)
        seen: Any = distributions.any(axis=0)
        while (more := seen | (P.T @ seen > 0.0)).sum() > seen.sum():
            seen = more
        self.seen = seen

    def merged(self, start: int, stop: int, group: Any = None) -> Iterator[Layer]:
        """Yield one layer."""
        rewards, times, P = self._chain
        [visits] = self._visits_in(np.array([[start, stop]]))
        yield Layer(self.rows, visits, rewards, times, self._lives, self.rows, P)

    def layers(self, start: int, stop: int, groups: Any = None) -> Iterator[Layer]:
        """Yield timesteps backwards."""
        for t in reversed(range(start, stop)):
            yield from self.merged(t, t + 1)

    def groups(self, n: int) -> list[Any]:
        """Return one group: the chain is exact."""
        return [None]

    def _visits_in(self, windows: IntArray, group: Any = None) -> FloatArray:
        return np.stack(
            [
                np.asarray(self._stationary if a > self.t_max else self.visits[a:b].sum(axis=0))
                for a, b in windows.tolist()
            ]
        )
