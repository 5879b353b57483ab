"""Moment sums: the sufficient statistic of vector observations.

Per timestep t, over all trials, Σ f(s_t) f(s_t)^T, Σ f(s_t) f(s_{t+1})^T, Σ r_t f(s_t), Σ f(s_t)
and Σ r_t: (t_max + 1) (2 d² + 2 d + 1) numbers, however many trials there are, and they add up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.errors import InvalidInputError, check_integer
from lstd_agent.features.rows import Rows, dense
from lstd_agent.trials.action_counts import Taken
from lstd_agent.trials.lengths import add_lengths, check_lengths, trials_at


def moment_bytes(t_max: int, d: int) -> int:
    """Return how much memory the moments of d features over timesteps 0 to t_max take."""
    return 8 * (t_max + 1) * (2 * d**2 + 2 * d + 1)


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
    successor_sums : ndarray, shape (t_max + 1, d), optional
        Σ f', where some trials were cut short: else it is Σ f a timestep later.
    n_at : ndarray of int, shape (t_max + 1,), optional
        How many trials have each timestep, where some were cut short.
    """

    n_trials: int
    second_moments: FloatArray
    successor_moments: FloatArray
    reward_moments: FloatArray
    feature_sums: FloatArray
    reward_sums: FloatArray
    successor_sums: FloatArray | None = None
    n_at: IntArray | None = None

    @classmethod
    def of(cls, sums: MomentSums) -> MomentSums:
        """Return sums that come from elsewhere, or raise unless shapes and numbers fit."""
        check_integer("n_trials", sums.n_trials, 1)
        shape = np.shape(sums.feature_sums)
        T, d = shape if len(shape) == 2 else (0, 0)
        expected = {
            "second_moments": (T, d, d),
            "successor_moments": (T, d, d),
            "reward_moments": (T, d),
            "feature_sums": (T, d),
            "reward_sums": (T,),
        }
        if sums.n_at is not None:
            expected["successor_sums"] = (T, d)
            check_lengths(sums.n_at, sums.n_trials, T - 1)
        for name, right in expected.items():
            array = getattr(sums, name)
            if not T or not d or array.shape != right or array.dtype.kind != "f":
                raise InvalidInputError(
                    f"moments have {name} of shape (t_max + 1, d, ...); got {array.shape}, "
                    f"{array.dtype}"
                )
            # No equation has successors of the last timestep by themselves.
            known = array[:-1] if name == "successor_sums" else array
            if not np.isfinite(known).all():
                raise InvalidInputError(f"moments must be finite; {name} are not")
        return sums

    def check_adds(self, other: MomentSums) -> None:
        """Raise `InvalidInputError` unless the other has as many timesteps and features."""
        if not isinstance(other, MomentSums):
            raise InvalidInputError(f"moments do not add to {type(other).__name__}")
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
            *self._cut_short(other),
        )

    def _cut_short(self, other: MomentSums) -> tuple[FloatArray | None, IntArray | None]:
        """Return ``successor_sums`` and ``n_at`` of both together."""
        n_at = add_lengths(self, other)
        return (None if n_at is None else self.following + other.following), n_at

    @property
    def following(self) -> FloatArray:
        """Σ f' at each timestep, shape (t_max + 1, d); NaN at the last where it was not kept."""
        if self.successor_sums is not None:
            return self.successor_sums
        unknown = np.full((1, self.feature_sums.shape[1]), np.nan)
        return np.concatenate((self.feature_sums[1:], unknown))

    @property
    def trials_at(self) -> IntArray:
        """Number of trials that have each timestep, shape (t_max + 1,)."""
        return trials_at(self)

    @property
    def t_max(self) -> int:
        """The last timestep."""
        return len(self.reward_sums) - 1

    @property
    def squares(self) -> FloatArray:
        """Σ f² over all timesteps, shape (d,)."""
        return np.asarray(np.einsum("tdd->d", self.second_moments))

    def over(self, windows: IntArray) -> MomentSums:
        """Return the sums over each window of timesteps, one entry a window.

        Parameters
        ----------
        windows : ndarray of int, shape (n, 2)
            Timesteps ``start`` up to, not including, ``stop``.
        """

        def total(by_timestep: Any) -> Any:
            if by_timestep is None:
                return None
            return np.stack([by_timestep[start:stop].sum(axis=0) for start, stop in windows])

        parts = {k: total(v) for k, v in vars(self).items() if k != "n_trials"}
        return MomentSums(self.n_trials, **parts)


class MomentRecorder:
    """Sums the moments of trials that run in lockstep, timestep by timestep.

    Parameters
    ----------
    features : callable
        Encoded observations (n, k) to features (n, d), dense or CSR.
    """

    def __init__(self, features: Callable[[NDArray[Any]], Rows]) -> None:
        self._features = features
        self._sums: list[tuple[FloatArray, FloatArray, FloatArray, FloatArray, float]] = []
        self._following: tuple[NDArray[Any], Rows] | None = None
        self._cut: list[tuple[FloatArray, int]] = []

    def record(
        self,
        state: NDArray[Any],
        reward: FloatArray,
        next_state: NDArray[Any],
        taken: Taken | None = None,
    ) -> None:
        """Add the next timestep's transitions of all trials, arrays of n rows.

        Those that were explored do not count.
        """
        # The state is nearly always the very array that came next a timestep ago.
        if self._following is not None and state is self._following[0]:
            f = self._following[1]
        else:
            f = self._features(state)
        successor = self._features(next_state)
        self._following = (next_state, successor)
        if taken is not None:
            own = ~taken.explored
            f, successor, reward = f[own], successor[own], reward[own]
            self._cut.append((successor.T @ np.ones(len(reward)), len(reward)))
        self._sums.append(
            (
                dense(f.T @ f),
                dense(f.T @ successor),
                f.T @ reward,
                f.T @ np.ones(len(reward)),
                float(reward.sum()),
            )
        )

    def sums(self, n_trials: int) -> MomentSums:
        """Return what has been recorded of ``n_trials`` complete trials."""
        parts: Any = [np.array(sums) for sums in zip(*self._sums, strict=True)]
        if not self._cut or all(n == n_trials for _, n in self._cut):
            return MomentSums(n_trials, *parts)
        successor_sums = np.array([sums for sums, _ in self._cut])
        n_at = np.array([n for _, n in self._cut])
        return replace(MomentSums(n_trials, *parts), successor_sums=successor_sums, n_at=n_at)

    def of_whole(
        self, states: NDArray[Any], rewards: FloatArray, taken: Taken | None = None
    ) -> MomentSums:
        """Return the moments of whole trials: states (t_max + 2, n, k), rewards (t_max + 1, n)."""
        by_timestep = list(states)
        for t, reward in enumerate(rewards):
            at = None if taken is None else Taken(taken.action[t], taken.explored[t])
            self.record(by_timestep[t], reward, by_timestep[t + 1], at)
        return self.sums(rewards.shape[1])
