"""One step of many copies of a `TabularMDP`, vectorized in numpy.

Bisection in a flat table of thresholds finds the outcome of each copy. Rows have a power-of-two
width, so a step takes log2(outcomes) halvings of one gather and one comparison each.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from unichain_gym.arrays import FloatArray, IntArray
from unichain_gym.mdp import TabularMDP


class LockstepOutcomes:
    """The outcome table of an MDP, laid out for a search by ``n`` copies at once."""

    def __init__(self, mdp: TabularMDP, n: int) -> None:
        # Row s * A + a of each table has `width` slots; the padding at its end is never drawn.
        rows = mdp.outcome_thresholds.reshape(mdp.n_states * mdp.n_actions, -1)
        n_outcomes = int(np.isfinite(rows).sum(axis=1).max()) + 1
        self._n_actions = mdp.n_actions
        self._width = 1 << (n_outcomes - 1).bit_length()

        def widen(table: NDArray[Any], fill: float) -> NDArray[Any]:
            padding = ((0, 0), (0, self._width - n_outcomes))
            kept = table.reshape(rows.shape)[:, :n_outcomes]
            return np.pad(kept, padding, constant_values=fill).ravel()

        thresholds = widen(rows, np.inf)
        self._next_state, self._reward = widen(mdp.next_state, 0), widen(mdp.reward, 0.0)
        self._duration = None if mdp.durations is None else widen(mdp.durations, 0.0)
        # A draw is past the first `half` slots if it reaches the threshold half - 1 slots on.
        halves = [self._width >> level for level in range(1, self._width.bit_length())]
        self._bisection = [(half, thresholds[half - 1 :]) for half in halves]
        self._threshold = np.empty(n)
        self._slot = np.empty(n, dtype=np.int64)

    def advance(self, states: IntArray, actions: IntArray, draws: FloatArray) -> FloatArray:
        """Move ``states`` (n,), in place, to the outcomes that draws select; return the rewards.

        The caller has checked states and actions; draws are in [0, 1).
        """
        slot, threshold = self._slot, self._threshold
        np.multiply(states, self._n_actions, out=slot)
        np.add(slot, actions, out=slot)
        np.multiply(slot, self._width, out=slot)
        # Slots are in range by construction; mode "clip" only saves numpy's check.
        for half, thresholds in self._bisection:
            thresholds.take(slot, out=threshold, mode="clip")
            np.add(slot, np.multiply(draws >= threshold, half, dtype=np.int64), out=slot)
        self._next_state.take(slot, out=states, mode="clip")
        return self._reward.take(slot, mode="clip")

    def durations(self) -> FloatArray | None:
        """Return how long the last step took, (n,); None if every step takes 1."""
        return None if self._duration is None else self._duration.take(self._slot, mode="clip")
