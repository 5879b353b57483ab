"""What is kept of trials where actions are counted: their starts, and their rewards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray, States
from lstd_agent.trials.action_counts import Taken


@dataclass(frozen=True, eq=False)
class Returns:
    """Starts and rewards of trials.

    Attributes
    ----------
    t_max : int
    starts : ndarray, shape (n,) or (n, k)
        States in which they start.
    tail_rewards : ndarray, shape (n,)
        Mean reward of each trial over the second half of all timesteps.
    rewards : ndarray, shape (n,)
        Mean reward of each trial over all timesteps.
    """

    t_max: int
    starts: States
    tail_rewards: FloatArray
    rewards: FloatArray

    @property
    def n_trials(self) -> int:
        """Number of trials."""
        return len(self.tail_rewards)

    def __add__(self, other: Returns) -> Returns:
        return Returns(
            self.t_max,
            np.concatenate((self.starts, other.starts)),
            np.concatenate((self.tail_rewards, other.tail_rewards)),
            np.concatenate((self.rewards, other.rewards)),
        )


class ReturnRecorder:
    """Adds up the rewards of trials."""

    def __init__(self, t_max: int) -> None:
        self._t_max = t_max
        self._first = (t_max + 1) // 2
        self._t = 0
        self._starts: States = np.empty(0)
        self._tails: FloatArray = np.empty(0)
        self._sums: FloatArray = np.empty(0)

    def record(
        self, state: Any, reward: FloatArray, next_state: Any, taken: Taken | None = None
    ) -> None:
        """Take the next timestep of all trials."""
        if self._t == 0:
            self._starts = state.copy()
            self._tails, self._sums = np.zeros(len(reward)), np.zeros(len(reward))
        if self._t >= self._first:
            self._tails += reward
        self._sums += reward
        self._t += 1

    def sums(self, n_trials: int) -> Returns:
        """Return what has been recorded of complete trials."""
        length = self._t_max + 1 - self._first
        return Returns(
            self._t_max, self._starts, self._tails / length, self._sums / (self._t_max + 1)
        )

    def of_whole(
        self, states: IntArray, rewards: FloatArray, taken: Taken | None = None
    ) -> Returns:
        """Return that of whole trials: states (t_max + 2, n), rewards (t_max + 1, n)."""
        return Returns(
            self._t_max,
            states[0].copy(),
            rewards[self._first :].mean(axis=0),
            rewards.mean(axis=0),
        )
