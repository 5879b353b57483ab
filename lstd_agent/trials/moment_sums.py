"""Moment sums: the sufficient statistic of vector observations.

Per timestep t, over all trials, Σ f(s_t) f(s_t)^T, Σ f(s_t) f(s_{t+1})^T, Σ r_t f(s_t), Σ f(s_t)
and Σ r_t: (t_max + 1) (2 d² + 2 d + 1) numbers, however many trials there are, and they add up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lstd_agent.arrays import FloatArray
from lstd_agent.errors import InvalidInputError

VectorFeatures = Callable[[FloatArray], FloatArray]
"""Features (n, d) of flattened observations (n, k)."""


@dataclass(frozen=True, eq=False)
class MomentSums:
    """Sums over independent trials, per timestep.

    Attributes
    ----------
    n_trials : int
    second_moments, successor_moments : ndarray, shape (t_max + 1, d, d)
        Σ f f^T and Σ f f'^T.
    reward_moments, feature_sums : ndarray, shape (t_max + 1, d)
        Σ r f and Σ f.
    reward_sums : ndarray, shape (t_max + 1,)
    """

    n_trials: int
    second_moments: FloatArray
    successor_moments: FloatArray
    reward_moments: FloatArray
    feature_sums: FloatArray
    reward_sums: FloatArray

    def check_adds(self, other: MomentSums) -> None:
        """Raise `InvalidInputError` unless the other has as many timesteps and features."""
        if other.second_moments.shape != self.second_moments.shape:
            raise InvalidInputError(
                f"moments of shape {self.second_moments.shape} (timesteps, features, features) "
                f"do not add to moments of shape {other.second_moments.shape}"
            )

    def __add__(self, other: MomentSums) -> MomentSums:
        self.check_adds(other)
        return MomentSums(
            self.n_trials + other.n_trials,
            self.second_moments + other.second_moments,
            self.successor_moments + other.successor_moments,
            self.reward_moments + other.reward_moments,
            self.feature_sums + other.feature_sums,
            self.reward_sums + other.reward_sums,
        )

    @property
    def t_max(self) -> int:
        """The last timestep."""
        return len(self.reward_sums) - 1


class MomentRecorder:
    """Sums the moments of trials that run in lockstep, timestep by timestep."""

    def __init__(self, features: VectorFeatures) -> None:
        self._features = features
        self._sums: list[tuple[FloatArray, FloatArray, FloatArray, FloatArray, float]] = []
        self._following: tuple[FloatArray, FloatArray] | None = None

    def record(self, state: FloatArray, reward: FloatArray, next_state: FloatArray) -> None:
        """Add the next timestep's transitions of all trials, arrays of n rows."""
        # The state is nearly always the very array that came next a timestep ago.
        if self._following is not None and state is self._following[0]:
            f = self._following[1]
        else:
            f = self._features(state)
        successor = self._features(next_state)
        self._following = (next_state, successor)
        self._sums.append(
            (f.T @ f, f.T @ successor, reward @ f, f.sum(axis=0), float(reward.sum()))
        )

    def counts(self, n_trials: int) -> MomentSums:
        """Return what has been recorded of ``n_trials`` complete trials."""
        return MomentSums(n_trials, *(np.array(sums) for sums in zip(*self._sums, strict=True)))
