"""Trials of counted observations, counted in batches.

Trials are dealt into batches one by one: trial i is in batch i mod B. They are counted in one
pass, with timestep and batch as a part of the key, many timesteps together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.errors import InvalidInputError, check_integer
from lstd_agent.trials.action_counts import ActionCounts, Taken, together
from lstd_agent.trials.counts import TransitionCounts, added
from lstd_agent.trials.kept import KeptTrials
from lstd_agent.trials.samples import TrialSample

# Timesteps are counted together until there are this many transitions.
_BLOCK = 2**13

_LARGEST_KEY = 2**62


@dataclass(frozen=True, eq=False)
class CountedTrials:
    """Trials of counted observations, dealt into B batches.

    Matrices have a row for each timestep and batch: batch b at timestep t is row t B + b.

    Attributes
    ----------
    n_states : int
        S.
    n_by_batch : ndarray of int, shape (B,)
        How many trials each batch has.
    transition_counts, reward_sums : csr_array, shape (B (t_max + 1), S * S) and (…, S)
    n_at : ndarray of int, shape (B, t_max + 1), optional
        How many trials of each batch have each timestep; None where all have all.
    sample : TrialSample, optional
        Some of the trials, whole.
    taken : tuple of ActionCounts or None, optional
        What the actions of each batch led to, where that was asked for.
    duration_sums : csr_array, optional
        As ``reward_sums``; None where each step takes 1 unit of time.
    """

    n_states: int
    n_by_batch: IntArray
    transition_counts: sparse.csr_array
    reward_sums: sparse.csr_array
    n_at: IntArray | None = None
    sample: TrialSample | None = None
    taken: tuple[ActionCounts | None, ...] | None = None
    duration_sums: sparse.csr_array | None = None

    @classmethod
    def of(
        cls,
        counts: TransitionCounts,
        b: int,
        n_batches: int,
        taken: ActionCounts | None = None,
        sample: TrialSample | None = None,
    ) -> CountedTrials:
        """Return trials that are all in batch b of so many, by their counts."""
        every = np.arange(n_batches)
        N, R = (
            _spread(matrix, b, n_batches)
            for matrix in (counts.transition_counts, counts.reward_sums)
        )
        times = counts.duration_sums
        times = None if times is None else _spread(times, b, n_batches)
        n_at = None if counts.n_at is None else np.outer(every == b, counts.n_at).astype(np.int64)
        each = None if taken is None else (*[None] * b, taken, *[None] * (n_batches - b - 1))
        n_by_batch = np.where(every == b, counts.n_trials, 0)
        return cls(counts.n_states, n_by_batch, N.astype(np.int64), R, n_at, sample, each, times)

    @classmethod
    def checked(cls, **parts: Any) -> CountedTrials:
        """Return counts that come from elsewhere, or raise unless they fit together.

        Parameters
        ----------
        **parts
            The attributes.

        Raises
        ------
        InvalidInputError
            If they cannot be those of trials, dealt into batches.
        """
        found = cls(**parts)
        S, n = check_integer("n_states", found.n_states, 1), found.n_by_batch
        N, taken, sample = found.transition_counts, found.taken, found.sample
        B = n.size
        if n.ndim != 1 or n.dtype.kind not in "iu" or not n.any() or n.min() < 0 or N.shape[0] % B:
            raise InvalidInputError(f"there are no trials in batches of {n!r}")
        if found.n_at is not None and found.n_at.shape != (B, found.t_max + 1):
            raise InvalidInputError(f"n_at of {B} batches has shape {found.n_at.shape}")
        if found.reward_sums.shape != (N.shape[0], S):
            raise InvalidInputError(f"reward_sums have shape {found.reward_sums.shape}")
        if found.duration_sums is not None and found.duration_sums.shape != (N.shape[0], S):
            raise InvalidInputError(f"duration_sums have shape {found.duration_sums.shape}")
        for b in range(B):
            TransitionCounts.of(found.batch(b))
        if taken is not None and (len(taken) != B or any(a and a.n_states != S for a in taken)):
            raise InvalidInputError("what actions led to is not told of these states and batches")
        if sample is not None:
            states = sample.trials.observations
            if states.shape[1] != found.t_max + 2 or states.min() < 0 or states.max() >= S:
                raise InvalidInputError("the sample of trials has other states or timesteps")
            if len(states) > found.n_trials:
                raise InvalidInputError("the sample of trials is larger than what it is a part of")
        return found

    @property
    def n_trials(self) -> int:
        """Number of trials."""
        return int(self.n_by_batch.sum())

    @property
    def t_max(self) -> int:
        """The last timestep."""
        return int(self.transition_counts.shape[0]) // len(self.n_by_batch) - 1

    @property
    def size(self) -> int:
        """How many numbers the matrices hold."""
        return int(self.transition_counts.nnz + self.reward_sums.nnz)

    def batch(self, b: int) -> TransitionCounts:
        """Return the counts of a batch."""
        here, n = slice(b, None, len(self.n_by_batch)), int(self.n_by_batch[b])
        n_at = None if self.n_at is None or (self.n_at[b] == n).all() else self.n_at[b]
        N, R = self.transition_counts[here], self.reward_sums[here]
        times = None if self.duration_sums is None else self.duration_sums[here]
        return TransitionCounts(self.n_states, n, N, R, n_at, times)

    def __add__(self, other: CountedTrials) -> CountedTrials:
        """Add trials dealt into as many batches; samples are joined whole."""
        n_at = None
        if self.n_at is not None or other.n_at is not None:
            n_at = self._trials_at + other._trials_at
        sample = self.sample or other.sample
        if self.sample is not None and other.sample is not None:
            sample = TrialSample.merged([self.sample, other.sample])
        taken = self.taken or other.taken
        if self.taken is not None and other.taken is not None:
            taken = tuple(together(a, b) for a, b in zip(self.taken, other.taken, strict=True))
        return CountedTrials(
            self.n_states,
            self.n_by_batch + other.n_by_batch,
            self.transition_counts + other.transition_counts,
            self.reward_sums + other.reward_sums,
            n_at,
            sample,
            taken,
            added(self.duration_sums, other.duration_sums),
        )

    @property
    def _trials_at(self) -> IntArray:
        if self.n_at is not None:
            return self.n_at
        return np.repeat(self.n_by_batch[:, None], self.t_max + 1, axis=1)


class CountRecorder:
    """Counts transitions of trials, dealt into batches one after the other.

    Parameters
    ----------
    n_states : int
    n_batches : int
    first : int
        The number of the first trial: trial i is in batch ``(first + i) % n_batches``.
    """

    def __init__(self, n_states: int, n_batches: int = 1, first: int = 0) -> None:
        self.n_states = n_states
        self._n_batches, self._first = n_batches, first
        self._t = self._n_waiting = 0
        # Timesteps that wait to be counted: states, next states, rewards, own ones, durations.
        self._waiting: list[tuple[NDArray[Any] | None, ...]] = []
        self._left = self._left_keys = np.zeros((0, 0), dtype=np.int64)
        self._moves: list[tuple[NDArray[Any], ...]] = []
        self._paid: list[tuple[NDArray[Any], ...]] = []
        self._times: list[tuple[NDArray[Any], ...]] = []
        self._is_cut = False

    def record(
        self,
        state: IntArray,
        reward: FloatArray,
        next_state: IntArray,
        taken: Taken | None = None,
        duration: FloatArray | None = None,
    ) -> None:
        """Count the next timestep's transitions of n trials, but for those that were explored."""
        own = None if taken is None else ~taken.explored
        # A copy, since an environment may write its next rewards into the same array.
        self._waiting.append((state, next_state, np.array(reward), own, duration))
        self._n_waiting += len(state)
        if self._n_waiting >= _BLOCK:
            self._count_waiting()

    def record_whole(self, trials: KeptTrials) -> None:
        """Count whole trials, whose observations are states (m, t_max + 2)."""
        states, rewards = np.asarray(trials.observations.T, dtype=np.int64), trials.rewards.T
        own, step = trials.own, max(1, _BLOCK * 32 // trials.n_trials)
        for t in range(0, len(rewards), step):
            here = slice(t, t + step)
            time = None if trials.durations is None else trials.durations.T[here]
            mine = None if own is None else own.T[here]
            self._count(states[:-1][here], states[1:][here], rewards[here], mine, time)

    def _count_waiting(self) -> None:
        if self._waiting:
            columns = list(zip(*self._waiting, strict=True))
            self._waiting, self._n_waiting = [], 0
            parts: Any = (None if each[0] is None else np.stack(each) for each in columns)
            self._count(*parts)

    def _count(
        self,
        state: IntArray,
        following: IntArray,
        reward: FloatArray,
        own: BoolArray | None,
        duration: FloatArray | None,
    ) -> None:
        """Count transitions of timesteps, arrays (k, n)."""
        S, B, (k, n) = self.n_states, self._n_batches, state.shape
        numbers = None
        if k * B * S**2 >= _LARGEST_KEY:  # only states that occur are numbered
            both = np.stack((state, following))
            numbers, found = np.unique(both, return_inverse=True)
            S, (state, following) = len(numbers), found.reshape(both.shape)
            self._left = self._left[:0]
        if self._left.shape[0] < k or self._left.shape[1] != n:
            batch = (self._first + np.arange(n)) % B
            self._left = (batch + np.arange(k)[:, None] * B) * S
            self._left_keys = self._left * S
        # Rows are timesteps and batches, and keys are (row S + s) S + s'.
        left = self._left[:k] + state
        key = self._left_keys[:k] + (state * S + following)
        if own is not None and not own.all():
            self._is_cut = True
            left, key, reward = left[own], key[own], reward[own]
            duration = None if duration is None else duration[own]
        present, count = _counted(key.ravel(), k * B * S**2)
        row, column = np.divmod(present, S * S)
        # Keys ascend, so those of one state are neighbors.
        origin = present // S
        is_first = np.ones(len(origin), dtype=bool)
        np.not_equal(origin[1:], origin[:-1], out=is_first[1:])
        visited = origin[is_first]
        paid_row, paid_state = np.divmod(visited, S)
        if numbers is not None:
            column = numbers[column // S] * self.n_states + numbers[column % S]
            paid_state, self._left = numbers[paid_state], self._left[:0]
        before = self._t * B
        self._moves.append((row + before, column, count))
        paid = _sums_at(visited, left.ravel(), reward.ravel(), k * B * S)
        self._paid.append((paid_row + before, paid_state, paid))
        if duration is not None:
            times = _sums_at(visited, left.ravel(), duration.ravel(), k * B * S)
            self._times.append((paid_row + before, paid_state, times))
        self._t += k

    def portion(
        self,
        n_trials: int,
        sample: TrialSample | None = None,
        taken: tuple[ActionCounts, ...] | None = None,
    ) -> CountedTrials:
        """Return what has been recorded of complete trials."""
        self._count_waiting()
        S, B, T = self.n_states, self._n_batches, self._t
        N, R = (
            _matrix(found, (B * T, width))
            for found, width in ((self._moves, S * S), (self._paid, S))
        )
        n_by_batch = np.bincount((self._first + np.arange(n_trials)) % B, minlength=B)
        n_at = N.sum(axis=1).reshape(T, B).T.astype(np.int64) if self._is_cut else None
        times = _matrix(self._times, (B * T, S)) if self._times else None
        return CountedTrials(S, n_by_batch, N, R, n_at, sample, taken, times)

    def sums(self, n_trials: int) -> TransitionCounts:
        """Return the counts of all trials together."""
        portion = self.portion(n_trials)
        batches = [portion.batch(b) for b in np.flatnonzero(portion.n_by_batch).tolist()]
        return sum(batches[1:], batches[0])


def _spread(matrix: sparse.csr_array, b: int, n_batches: int) -> sparse.csr_array:
    """Return a copy of a matrix (T, n) as rows b, b + B, … of one (B T, n) that has no others."""
    n = np.zeros(n_batches * matrix.shape[0], dtype=matrix.indptr.dtype)
    n[b::n_batches] = np.diff(matrix.indptr)
    parts = matrix.data.copy(), matrix.indices.copy(), np.append(0, np.cumsum(n))
    return sparse.csr_array(parts, shape=(len(n), matrix.shape[1]))


def _counted(key: IntArray, n_keys: int) -> tuple[IntArray, IntArray]:
    """Return the distinct keys, ascending, and how often each occurs."""
    # A table touches every possible key, sorting only those that occur.
    if n_keys <= 4 * key.size + 4096:
        table = np.bincount(key, minlength=n_keys)
        present = np.flatnonzero(table > 0)  # of booleans it is fast
        return present, table[present]
    # Narrow numbers sort faster.
    narrow = key.astype(np.min_scalar_type(n_keys - 1))
    found, count = np.unique(narrow, return_counts=True)
    return found.astype(np.int64), count


def _sums_at(place: IntArray, key: IntArray, weights: FloatArray, n_keys: int) -> FloatArray:
    """Return the sums of weights of each of the distinct keys, which ascend."""
    if n_keys <= 4 * key.size + 4096:
        return np.asarray(np.bincount(key, weights, minlength=n_keys)[place], dtype=np.float64)
    found = np.searchsorted(place, key)
    return np.asarray(np.bincount(found, weights, minlength=len(place)), dtype=np.float64)


def _matrix(found: list[tuple[NDArray[Any], ...]], shape: tuple[int, int]) -> sparse.csr_array:
    """Make a matrix of entries (row, column, value) in order."""
    row, column, value = (np.concatenate(parts) for parts in zip(*found, strict=True))
    indptr = np.append(0, np.cumsum(np.bincount(row, minlength=shape[0])))
    return sparse.csr_array((value, column, indptr), shape=shape)
