"""Moment sums: the sufficient statistic of vector observations.

Per timestep t, over all trials, Σ f(s_t) f(s_t)^T, Σ f(s_t) f(s_{t+1})^T, Σ r_t f(s_t), Σ f(s_t)
and Σ r_t: (t_max + 1) (2 d² + 2 d + 1) numbers, however many trials there are, and they add up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.errors import InvalidInputError, check_integer
from lstd_agent.features.rows import Rows, RowsOf, dense, n_at_a_time
from lstd_agent.trials.counts import check_lengths
from lstd_agent.trials.kept import KeptTrials


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
    counts = kept = None  # neither is left

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
        are_whole = self.n_at is None and other.n_at is None
        return MomentSums(
            self.n_trials + other.n_trials,
            self.second_moments + other.second_moments,
            self.successor_moments + other.successor_moments,
            self.reward_moments + other.reward_moments,
            self.feature_sums + other.feature_sums,
            self.reward_sums + other.reward_sums,
            None if are_whole else self.following + other.following,
            None if are_whole else self.trials_at + other.trials_at,
        )

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
        return np.full(self.t_max + 1, self.n_trials) if self.n_at is None else self.n_at

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


def parts_of(f: Rows, successor: Rows, reward: FloatArray) -> Iterator[Any]:
    """Yield Σ f f^T, Σ f f'^T, Σ r f, Σ f and Σ r over rows of features and their successors."""
    yield dense(f.T @ f)
    yield dense(f.T @ successor)
    yield f.T @ reward
    yield f.T @ np.ones(len(reward))
    yield float(reward.sum())


def condense(kept: KeptTrials, features: RowsOf, windows: IntArray | None = None) -> MomentSums:
    """Return the moments of features, summed over trials and each window of timesteps.

    Each timestep is a window by default.
    """
    if windows is None:
        windows = np.arange(kept.t_max + 1)[:, None] + np.arange(2)
    return moments_of(kept.observations, kept.rewards, kept.own, features, windows)


def moments_of(
    observations: NDArray[Any],
    rewards: FloatArray,
    own: BoolArray | None,
    features: RowsOf,
    windows: IntArray,
) -> MomentSums:
    """Return the moments of whole trials over windows of timesteps; see `condense`.

    Parameters
    ----------
    observations : ndarray, shape (m, t_max + 2, k)
    rewards : ndarray, shape (m, t_max + 1)
    own : ndarray of bool, shape (m, t_max + 1), or None
        Which transitions count; None where all do.
    features : callable
    windows : ndarray of int, shape (n, 2)
    """
    d, n = features(observations[:1, 0]).shape[1], len(windows)
    shapes = (n, d, d), (n, d, d), (n, d), (n, d), (n,)
    total: list[Any] = [np.zeros(shape) for shape in shapes]
    cut: tuple[FloatArray, IntArray] | tuple[()] = ()
    if own is not None:
        before = np.append(0, np.cumsum(own.sum(axis=0)))
        cut = np.zeros((n, d)), before[windows[:, 1]] - before[windows[:, 0]]
    # At least d, so that adding up products takes no longer than making them.
    n_rows = max(2, d, n_at_a_time(max(d, observations.shape[2])))
    for i, block, time in _pieces(len(rewards), windows, n_rows):
        # Time first, so that the rows of successors are the same rows, one timestep on.
        observed = observations[block, time.start : time.stop + 1].swapaxes(0, 1)
        m = observed.shape[1]
        rows = features(observed.reshape(-1, observed.shape[2]))
        f, successor, reward = rows[:-m], rows[m:], rewards[block, time].T.ravel()
        if own is not None and cut:
            has = own[block, time].T.ravel()
            f, successor, reward = f[has], successor[has], reward[has]
            cut[0][i] += successor.T @ np.ones(len(reward))
        parts = parts_of(f, successor, reward)
        for sums in total:
            sums[i] += next(parts)  # one large product at a time
    return MomentSums(len(rewards), *total, *cut)


def _pieces(m: int, windows: IntArray, n_rows: int) -> Iterator[tuple[int, slice, slice]]:
    """Yield windows and, within them, trials and timesteps that take at most so many rows."""
    for first in range(0, m, n_rows // 2):
        block = slice(first, min(m, first + n_rows // 2))
        n_timesteps = max(1, n_rows // (block.stop - first) - 1)
        for i, (begin, stop) in enumerate(windows.tolist()):
            for t in range(begin, stop, n_timesteps):
                yield i, block, slice(t, min(t + n_timesteps, stop))
