"""Trials kept as they are: what vector observations leave behind while there is room for them.

Most simulators are slow and most collections small: 400 trials are a megabyte where their
moments are gigabytes. Kept trials add up by standing side by side, and give the moments of any
features, kernel or window, also of such as were thought of after collection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.features.rows import Rows, dense
from lstd_agent.trials.action_counts import Taken
from lstd_agent.trials.lengths import trials_at
from lstd_agent.trials.moment_sums import MomentSums

RowsOf = Callable[[NDArray[Any]], Rows]
"""Features (n, d), dense or CSR, of encoded observations (n, k)."""

# Features or components of about this many numbers are held at a time.
_CHUNK_SIZE = 2**22


def chunk_rows(states: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Yield states (n, k), some at a time, so that they fit in a bounded memory as doubles."""
    n_rows = max(1, _CHUNK_SIZE // states.shape[1])
    for first in range(0, max(len(states), 1), n_rows):
        yield states[first : first + n_rows]


@dataclass(frozen=True, eq=False)
class KeptTrials:
    """Whole trials of vector observations.

    Attributes
    ----------
    observations : ndarray, shape (m, t_max + 2, k)
        Of m trials, what followed the last timestep included, in whatever type they came. From
        the end of a trial that terminates on they are NaN.
    rewards : ndarray, shape (m, t_max + 1)
    lengths : ndarray of int, shape (m,), optional
        How many timesteps each trial has, where some were cut short; what is said of them at
        later ones does not matter, but is finite. None where all have all.
    actions : ndarray of int, shape (m, t_max + 1), optional
        Which actions were taken, from 0, -1 where that is not known; None where it never is.
    explored : ndarray of bool, shape (m, t_max + 1), optional
        Which of them were exploratory: such transitions are none of the policy's, and only serve
        action values. None where none were.
    own : ndarray of bool, shape (m, t_max + 1), or None
        Which transitions are the policy's.
    reward_sums : ndarray, shape (t_max + 1,)
        Sums of their rewards at each timestep.
    n_trials, t_max : int
        Number of trials m, and their last timestep.
    all_lengths : ndarray of int, shape (m,)
        How many timesteps each trial has.
    n_at : ndarray of int, shape (t_max + 1,), or None
        How many trials have each timestep, where some were cut short.
    nbytes : int
        Memory that they take.

    Methods
    -------
    of(observations, rewards)
        Logged trials, checked.
    together(portions)
        The trials of all portions.
    every(n, first)
        Every n-th trial.
    states(n)
        The states of the first n trials, or of all.
    condense(features)
        Their moments of features.
    check_adds(other)
        Raise unless the other's trials are like these.

    Examples
    --------
    >>> from lstd_agent import KeptTrials
    >>> logged = KeptTrials.of([[[0.0], [1.0], [2.0]]], [[5.0, 6.0]])  # a trial of two steps
    >>> logged.n_trials, logged.t_max
    (1, 1)
    """

    observations: NDArray[Any]
    rewards: FloatArray
    lengths: IntArray | None = None
    actions: IntArray | None = None
    explored: BoolArray | None = None

    @classmethod
    def of(
        cls,
        observations: ArrayLike,
        rewards: ArrayLike,
        lengths: ArrayLike | None = None,
        actions: ArrayLike | None = None,
        explored: ArrayLike | None = None,
    ) -> KeptTrials:
        """Return logged trials, checked.

        Parameters
        ----------
        observations : array_like, shape (m, t_max + 2, ...)
            Of m trials at timesteps 0 to t_max + 1; axes after the second are flattened. NaN
            marks what follows the end of a trial that terminates.
        rewards : array_like, shape (m, t_max + 1)
        lengths : array_like of int, shape (m,), optional
            How many timesteps each trial has, where not all have all of them.
        actions, explored : array_like, shape (m, t_max + 1), optional
            Which actions were taken, and which of them were exploratory.

        Returns
        -------
        KeptTrials

        Raises
        ------
        InvalidInputError
            If shapes do not fit, or a number is not finite.
        """
        states, paid = np.asarray(observations), np.asarray(rewards, dtype=np.float64)
        if states.ndim < 2 or paid.ndim != 2 or not paid.size:
            raise InvalidInputError(
                "logged trials are observations (m, t_max + 2, ...) and rewards (m, t_max + 1); "
                f"got shapes {states.shape} and {paid.shape}"
            )
        m, n = paid.shape
        if states.shape[:2] != (m, n + 1):
            raise InvalidInputError(
                f"rewards of {m} trials over {n} timesteps need observations of shape ({m}, "
                f"{n + 1}, ...), what followed the last one included; got {states.shape}"
            )
        if states.dtype.kind not in "fiub":
            raise InvalidInputError(f"observations must be real numbers; got {states.dtype}")
        if states.dtype.kind == "f" and np.isinf(states).any():
            trial, t = np.argwhere(np.isinf(states))[0][:2]
            raise InvalidInputError(
                f"observations must be finite; one of trial {trial} at timestep {t} is not"
            )
        if not np.isfinite(paid).all():
            trial, t = np.argwhere(~np.isfinite(paid))[0]
            raise InvalidInputError(
                f"rewards must be finite; got {paid[trial, t]} at timestep {t} of trial {trial}"
            )
        were_explored = _checked_by_timestep("explored", explored, "b", paid.shape)
        return cls(
            states.reshape(m, n + 1, -1),
            paid,
            _checked_lengths(lengths, m, n),
            _checked_by_timestep("actions", actions, "iu", paid.shape),
            were_explored if np.any(were_explored) else None,
        )

    @property
    def n_trials(self) -> int:
        """Number of trials m."""
        return len(self.rewards)

    @property
    def t_max(self) -> int:
        """The last timestep."""
        return int(self.rewards.shape[1]) - 1

    @property
    def nbytes(self) -> int:
        """Memory that the trials take, in bytes."""
        return int(self.observations.nbytes) + int(self.rewards.nbytes)

    def check_adds(self, other: KeptTrials) -> None:
        """Raise `InvalidInputError` unless the other has such observations and timesteps.

        Parameters
        ----------
        other : KeptTrials

        Raises
        ------
        InvalidInputError
        """
        if not isinstance(other, KeptTrials):
            raise InvalidInputError(f"kept trials do not add to {type(other).__name__}")
        if other.observations.shape[1:] != self.observations.shape[1:]:
            raise InvalidInputError(
                f"trials of shape {self.observations.shape[1:]} (timesteps, components) do not "
                f"add to trials of shape {other.observations.shape[1:]}"
            )

    def __add__(self, other: KeptTrials) -> KeptTrials:
        self.check_adds(other)
        return self.together([self, other])

    @classmethod
    def together(cls, portions: Sequence[KeptTrials]) -> KeptTrials:
        """Return the trials of all portions, at least one.

        Parameters
        ----------
        portions : sequence of KeptTrials

        Returns
        -------
        KeptTrials
        """
        if len(portions) == 1:
            return portions[0]
        lengths = None
        if any(portion.lengths is not None for portion in portions):
            lengths = np.concatenate([portion.all_lengths for portion in portions])
        return cls(
            np.concatenate([portion.observations for portion in portions]),
            np.concatenate([portion.rewards for portion in portions]),
            lengths,
            _of_all(portions, "actions", -1),
            _of_all(portions, "explored", False),
        )

    def every(self, n: int, first: int) -> KeptTrials:
        """Return every n-th trial from the first on.

        Parameters
        ----------
        n, first : int

        Returns
        -------
        KeptTrials
        """
        some = slice(first, None, n)
        return KeptTrials(
            self.observations[some],
            self.rewards[some],
            None if self.lengths is None else self.lengths[some],
            None if self.actions is None else self.actions[some],
            None if self.explored is None else self.explored[some],
        )

    @property
    def own(self) -> BoolArray | None:
        """Which transitions are the policy's, shape (m, t_max + 1); None where all are."""
        if self.lengths is None:
            return None if self.explored is None else ~self.explored
        has: BoolArray = np.arange(self.t_max + 1) < self.lengths[:, None]
        return has if self.explored is None else has & ~self.explored

    @property
    def all_lengths(self) -> IntArray:
        """How many timesteps each trial has, shape (m,)."""
        full = np.full(self.n_trials, self.t_max + 1)
        return full if self.lengths is None else self.lengths

    @property
    def n_at(self) -> IntArray | None:
        """How many trials have each timestep, where some were cut short."""
        own = self.own
        return None if own is None else np.asarray(own.sum(axis=0))

    def states(self, n: int | None = None) -> NDArray[Any]:
        """Return the states (n, t_max + 1, k) of the first n trials, or of all, as they came.

        They are infinite at timesteps that a trial does not have.

        Parameters
        ----------
        n : int, optional

        Returns
        -------
        ndarray, shape (n, t_max + 1, k)
        """
        states = self.observations[:n, :-1]
        if self.lengths is not None:
            # The smallest floats that hold all of them.
            states = states.astype(np.result_type(states.dtype, np.float16))
            states[np.arange(self.t_max + 1) >= self.lengths[:n, None]] = np.inf
        return states

    @property
    def reward_sums(self) -> FloatArray:
        """Sums of rewards of the policy's own transitions at each timestep, shape (t_max + 1,)."""
        own = self.own
        sums: FloatArray = self.rewards.sum(axis=0, where=True if own is None else own)
        return sums

    def condense(self, features: RowsOf, windows: IntArray | None = None) -> MomentSums:
        """Return the moments of features, summed over trials and each window of timesteps.

        They are computed straight from the trials, some at a time: no moments of single
        timesteps are held besides the result, and sparse features stay sparse.

        Parameters
        ----------
        features : callable
            Encoded observations (n, k) to features (n, d), dense or CSR.
        windows : ndarray of int, shape (n, 2), optional
            Timesteps ``start`` up to, not including, ``stop``; by default each timestep is one.

        Returns
        -------
        MomentSums
            With one entry a window in place of one a timestep.
        """
        if windows is None:
            start = np.arange(self.t_max + 1)
            windows = np.stack((start, start + 1), axis=1)
        d = features(self.observations[:1, 0]).shape[1]
        n = len(windows)
        total = MomentSums(
            self.n_trials,
            np.zeros((n, d, d)),
            np.zeros((n, d, d)),
            np.zeros((n, d)),
            np.zeros((n, d)),
            np.zeros(n),
        )
        own = self.own
        if own is not None:
            n_at = np.append(0, np.cumsum(trials_at(self)))
            n_at = n_at[windows[:, 1]] - n_at[windows[:, 0]]
            total = replace(total, successor_sums=np.zeros((n, d)), n_at=n_at)
        n_rows = max(2, _CHUNK_SIZE // max(d, self.observations.shape[2]))
        for first in range(0, self.n_trials, n_rows // 2):
            block = slice(first, first + n_rows // 2)
            m = len(self.rewards[block])
            n_timesteps = max(1, n_rows // m - 1)
            for i, (begin, stop) in enumerate(windows.tolist()):
                for t in range(begin, stop, n_timesteps):
                    self._add_piece(total, i, features, own, block, t, min(t + n_timesteps, stop))
        return total

    def _add_piece(
        self,
        total: MomentSums,
        i: int,
        features: RowsOf,
        own: BoolArray | None,
        block: slice,
        start: int,
        stop: int,
    ) -> None:
        """Add the moments of some trials over some timesteps to those of window i."""
        # Time first, so that the rows of successors are the same rows, one timestep on.
        observed = self.observations[block, start : stop + 1].swapaxes(0, 1)
        m = observed.shape[1]
        rows = features(observed.reshape(-1, observed.shape[2]))
        f, successor = rows[:-m], rows[m:]
        rewards: FloatArray = self.rewards[block, start:stop].T.ravel()
        if own is not None:
            has = own[block, start:stop].T.ravel()
            f, successor, rewards = f[has], successor[has], rewards[has]
        if total.successor_sums is not None:
            total.successor_sums[i] += successor.T @ np.ones(len(rewards))
        total.second_moments[i] += dense(f.T @ f)
        total.successor_moments[i] += dense(f.T @ successor)
        total.reward_moments[i] += f.T @ rewards
        total.feature_sums[i] += f.T @ np.ones(len(rewards))
        total.reward_sums[i] += rewards.sum()


class TrialRecorder:
    """Keeps trials that run in lockstep, timestep by timestep."""

    def __init__(self) -> None:
        self._states: list[NDArray[Any]] = []
        self._rewards: list[FloatArray] = []
        self._taken: list[Taken] = []

    def record(
        self,
        state: NDArray[Any],
        reward: FloatArray,
        next_state: NDArray[Any],
        taken: Taken | None = None,
    ) -> None:
        """Keep the next timestep's transitions of all trials, arrays of n rows."""
        if not self._states:
            self._states.append(state.copy())
        # Copies, since an environment may write its next observations into the same array.
        self._states.append(next_state.copy())
        self._rewards.append(reward.copy())
        if taken is not None:
            self._taken.append(taken)

    def sums(self, n_trials: int) -> KeptTrials:
        """Return the trials."""
        kept = KeptTrials(np.stack(self._states, axis=1), np.stack(self._rewards, axis=1))
        taken = [np.stack(parts) for parts in zip(*self._taken, strict=True)]
        return kept if not taken else _with_actions(kept, Taken(*taken))

    @staticmethod
    def of_whole(
        states: NDArray[Any], rewards: FloatArray, taken: Taken | None = None
    ) -> KeptTrials:
        """Return whole trials: states (t_max + 2, n, k) and rewards (t_max + 1, n)."""
        kept = KeptTrials(
            np.ascontiguousarray(states.swapaxes(0, 1)), np.ascontiguousarray(rewards.T)
        )
        return kept if taken is None else _with_actions(kept, taken)


def _with_actions(kept: KeptTrials, taken: Taken) -> KeptTrials:
    """Return trials with the actions that they took, arrays (t_max + 1, n), in little memory."""
    dtype = np.min_scalar_type(int(taken.action.max()))
    actions = np.ascontiguousarray(taken.action.T, dtype=dtype)
    explored = np.ascontiguousarray(taken.explored.T) if taken.explored.any() else None
    return replace(kept, actions=actions, explored=explored)


def _of_all(portions: Sequence[KeptTrials], name: str, missing: Any) -> Any:
    """Return an optional array of all portions, filled up where one has none; None without any."""
    parts = [getattr(portion, name) for portion in portions]
    if all(part is None for part in parts):
        return None
    filled = (
        np.full(portion.rewards.shape, missing) if part is None else part
        for portion, part in zip(portions, parts, strict=True)
    )
    return np.concatenate(list(filled))


def _checked_by_timestep(
    name: str, given: ArrayLike | None, kinds: str, shape: tuple[int, ...]
) -> Any:
    """Return an optional array of a number a timestep, or raise unless it is one."""
    if given is None:
        return None
    checked = np.asarray(given)
    if checked.shape != shape or checked.dtype.kind not in kinds:
        raise InvalidInputError(
            f"{name} of these trials have shape {shape}; got {checked.shape}, {checked.dtype}"
        )
    return checked


def _checked_lengths(lengths: ArrayLike | None, m: int, n: int) -> IntArray | None:
    """Return how many of n timesteps m trials have, None if all have all."""
    if lengths is None:
        return None
    checked = np.asarray(lengths)
    if (
        checked.shape != (m,)
        or checked.dtype.kind not in "iu"
        or checked.min() < 1
        or checked.max() > n
    ):
        raise InvalidInputError(
            f"the lengths of {m} trials are {m} integers from 1 to {n}; got {lengths!r}"
        )
    return None if (checked == n).all() else checked.astype(np.int64)
