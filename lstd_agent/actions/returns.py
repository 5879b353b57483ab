"""What is kept of trials where actions are counted: their starts, and their rewards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lstd_agent.arrays import FloatArray, States
from lstd_agent.trials.counted import ActionCountRecorder, TrialSample
from lstd_agent.trials.counts import ActionCounts, Taken, together
from lstd_agent.trials.kept import KeptTrials
from lstd_agent.trials.recording import Recording


@dataclass(frozen=True, eq=False)
class Returns:
    """Starts and rewards of trials.

    Attributes
    ----------
    t_max : int
    starts : ndarray, shape (n,) or (n, k)
        States in which they start.
    numbers : ndarray, shape (4, n)
        Mean reward and duration of each trial over the second half of all timesteps, and over all.
    taken : ActionCounts, optional
        What their actions led to.
    """

    t_max: int
    starts: States
    numbers: FloatArray
    taken: ActionCounts | None = None

    @property
    def n_trials(self) -> int:
        """Number of trials."""
        return int(self.numbers.shape[1])

    def __add__(self, other: Returns) -> Returns:
        return Returns(
            self.t_max,
            np.concatenate((self.starts, other.starts)),
            np.concatenate((self.numbers, other.numbers), axis=1),
            together(self.taken, other.taken),
        )


@dataclass(frozen=True, eq=False)
class ReturnRecording(Recording):
    """Trials are recorded by what their actions lead to, their starts and their rewards.

    Attributes
    ----------
    t_max : int
    """

    t_max: int = 0

    def recorder(self, first: int) -> ReturnRecorder:
        """Return what adds up rewards."""
        actions = self.action_recorder(first)
        assert actions is not None
        return ReturnRecorder(self.t_max, actions)


class ReturnRecorder:
    """Adds up the rewards of trials, and counts what their actions lead to."""

    def __init__(self, t_max: int, actions: ActionCountRecorder) -> None:
        self._t_max, self._actions = t_max, actions
        self._first = (t_max + 1) // 2
        self._t = 0
        self._starts: States = np.empty(0)
        self._sums: FloatArray = np.empty((4, 0))

    def record(
        self,
        state: Any,
        reward: FloatArray,
        next_state: Any,
        taken: Taken | None = None,
        duration: FloatArray | None = None,
    ) -> None:
        """Take the next timestep of all trials."""
        if self._t == 0:
            self._starts = state.copy()
            self._sums = np.zeros((4, len(reward)))
        if taken is not None:
            self._actions.record(state, taken, reward, next_state, duration)
        for i, number in ((0, reward), (1, 1.0 if duration is None else duration)):
            if self._t >= self._first:
                self._sums[i] += number
            self._sums[2 + i] += number
        self._t += 1

    def record_whole(self, trials: KeptTrials) -> None:
        """Take whole trials."""
        self._actions.record_whole(trials)
        for t, reward in enumerate(trials.rewards.T):
            time = None if trials.durations is None else trials.durations[:, t]
            self.record(trials.observations[:, t], reward, None, duration=time)

    def portion(self, n_trials: int, sample: TrialSample | None = None) -> Returns:
        """Return what has been recorded of complete trials."""
        length = self._t_max + 1 - self._first
        means = self._sums / np.array([length, length, self._t_max + 1, self._t_max + 1])[:, None]
        return Returns(
            self._t_max, np.asarray(self._starts, dtype=np.int64), means, self._actions.counts()
        )
