"""One step of many copies of a `TabularMDP`: their outcomes found at once, in numpy.

The outcome of each copy is found by bisection in a flat table of thresholds whose rows have a
power-of-two width: one gather and one comparison for each halving, log2(outcomes) in all.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from unichain_gym.arrays import FloatArray, IntArray
from unichain_gym.mdp import TabularMDP


class LockstepOutcomes:
    """The outcome table of an MDP, laid out to be searched by ``n`` copies at once."""

    def __init__(self, mdp: TabularMDP, n: int) -> None:
        # Row s * A + a of each table has `width` slots, of which the last are never drawn.
        rows = mdp.outcome_thresholds.reshape(mdp.n_states * mdp.n_actions, -1)
        n_outcomes = int(np.isfinite(rows).sum(axis=1).max()) + 1
        self._n_actions = mdp.n_actions
        self._width = 1 << (n_outcomes - 1).bit_length()
        thresholds = self._widen(rows[:, :n_outcomes], np.inf)
        self._next_state = self._widen(mdp.next_state.reshape(rows.shape)[:, :n_outcomes], 0)
        self._reward = self._widen(mdp.reward.reshape(rows.shape)[:, :n_outcomes], 0.0)
        self._duration: FloatArray | None = None
        if mdp.durations is not None:
            times = mdp.durations.reshape(rows.shape)[:, :n_outcomes]
            self._duration = self._widen(times, 0.0)
        # Whether a draw is past the first `half` slots, from where the search stands, is told
        # by the threshold half - 1 slots on.
        halves = [self._width >> level for level in range(1, self._width.bit_length())]
        self._bisection = [(half, thresholds[half - 1 :]) for half in halves]
        self._threshold = np.empty(n)
        self._slot = np.empty(n, dtype=np.int64)

    def advance(self, states: IntArray, actions: IntArray, draws: FloatArray) -> FloatArray:
        """Move ``states``, in place, to the outcomes that draws select, and return the rewards.

        All have shape (n,). States and actions are in range, which the caller has checked; draws
        are uniform in [0, 1).
        """
        slot, threshold = self._slot, self._threshold
        np.multiply(states, self._n_actions, out=slot)
        np.add(slot, actions, out=slot)
        np.multiply(slot, self._width, out=slot)
        # Slots are in range by construction: mode "clip" only spares numpy the check.
        for half, thresholds in self._bisection:
            thresholds.take(slot, out=threshold, mode="clip")
            np.add(slot, np.multiply(draws >= threshold, half, dtype=np.int64), out=slot)
        self._next_state.take(slot, out=states, mode="clip")
        return self._reward.take(slot, mode="clip")

    def durations(self) -> FloatArray | None:
        """Return how long the last step took, (n,); None if every step takes 1."""
        return None if self._duration is None else self._duration.take(self._slot, mode="clip")

    def _widen(self, rows: NDArray[Any], fill: float) -> NDArray[Any]:
        """Return rows padded to the table's width, flat."""
        padding = ((0, 0), (0, self._width - rows.shape[1]))
        return np.pad(rows, padding, constant_values=fill).ravel()
