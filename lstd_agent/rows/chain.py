"""Rows of an exact Markov chain: a row is a state, and n its probability at a timestep."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.rows.counts import CountRows
from lstd_agent.rows.layers import Layer


class ChainRows(CountRows):
    """Rows of a chain of S states, from its distributions (t_max + 1, S) and a table of features.

    ``rewards`` and ``durations`` (S,) of steps are means. Timesteps after ``t_max`` stand for p*,
    ``stationary``.
    """

    support_threshold = 1e-8
    is_sparse, n_trials = False, 0

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
        self.table = self.candidate_features = np.asarray(table, dtype=np.float64)
        self._chain = rewards, np.ones(len(rewards)) if durations is None else durations, P
        self._stationary: Any = stationary
        seen: Any = distributions.any(axis=0)
        while (more := seen | (P.T @ seen > 0.0)).sum() > seen.sum():
            seen = more
        self._set_seen(seen, terminal)

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
        inside = [self.visits[a:b].sum(axis=0) for a, b in windows.tolist()]
        late = windows[:, :1] > self.t_max
        return np.asarray(np.where(late, self._stationary, inside) if late.any() else inside)
