"""Counts of what actions lead to: N(s, a, s'), with sums and squares of rewards.

What follows a state and an action depends neither on the timestep nor on who chose the action.
So these counts are pooled over time and over behaviours, and transitions of any policy, those of
exploratory actions among them, serve the evaluation of every policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.trials.kept import check_both_timed

# Transitions are added up some at a time, and by a table where that has few entries.
_BUFFER = 2**18
_LARGEST_TABLE = 2**20
_LARGEST_KEY = 2**62


class Taken(NamedTuple):
    """Actions that n trials took: at a timestep, or at all of them, time first.

    Attributes
    ----------
    action : ndarray of int, shape (n,) or (t_max + 1, n)
        From 0.
    explored : ndarray of bool, of the same shape
        Which were exploratory.
    """

    action: IntArray
    explored: BoolArray


@dataclass(frozen=True, eq=False)
class ActionCounts:
    """Transition counts by state and action, pooled over timesteps.

    Attributes
    ----------
    n_states, n_actions : int
        S and A.
    key : ndarray of int, shape (n,)
        (s A + a) S + s' of every transition seen, ascending.
    count : ndarray, shape (n,)
        Numbers of such transitions; probabilities where the counts are exact.
    reward_sums, reward_squares : ndarray, shape (n,)
        Sums of their rewards, and of the squares.
    times : ndarray, shape (n, 3), optional
        Sums of their durations, of the squares, and of rewards times durations; None where each
        step takes 1 unit of time.
    """

    n_states: int
    n_actions: int
    key: IntArray
    count: NDArray[np.number]
    reward_sums: FloatArray
    reward_squares: FloatArray
    times: FloatArray | None = None

    @classmethod
    def none(cls, n_states: int, n_actions: int) -> ActionCounts:
        """Return counts of no transition."""
        none = np.zeros(0, np.int64)
        return cls.of(n_states, n_actions, none, none, none, np.zeros(0))

    @classmethod
    def of(
        cls,
        n_states: int,
        n_actions: int,
        state: IntArray,
        action: IntArray,
        next_state: IntArray,
        reward: FloatArray,
        duration: FloatArray | None = None,
    ) -> ActionCounts:
        """Count transitions, given as arrays of one shape; states and actions are from 0.

        Raises
        ------
        InvalidInputError
            If an action or a state is out of range, or there are too many of both to number.
        """
        if n_states**2 * n_actions >= _LARGEST_KEY:
            raise InvalidInputError(
                f"what {n_actions} actions lead to from {n_states} states cannot be counted: give "
                "observations='vectors', or leave actions out"
            )
        for name, value, n in (
            ("states", state, n_states),
            ("actions", action, n_actions),
            ("next states", next_state, n_states),
        ):
            if value.size and (value.min() < 0 or value.max() >= n):
                wrong = value[(value < 0) | (value >= n)].flat[0]
                raise InvalidInputError(f"{name} are numbered 0 to {n - 1}; got {wrong}")
        key = ((state * n_actions + action) * n_states + next_state).ravel()
        numbers = [reward.ravel(), reward.ravel() ** 2]
        if duration is not None:
            numbers += [duration.ravel(), duration.ravel() ** 2, (reward * duration).ravel()]
        present, count, sums = _add_up(key, numbers, n_states**2 * n_actions)
        times = None if duration is None else np.stack(sums[2:], axis=1)
        return cls(n_states, n_actions, present, count, sums[0], sums[1], times)

    @classmethod
    def of_policy(
        cls,
        n_actions: int,
        actions: IntArray,
        moves: tuple[IntArray, IntArray],
        count: IntArray,
        rewards: FloatArray,
        durations: FloatArray | None = None,
    ) -> ActionCounts:
        """Return the counts of a deterministic policy, whose actions its states tell.

        Parameters
        ----------
        n_actions : int
        actions : ndarray of int, shape (S,)
            From 0.
        moves : (ndarray, ndarray) of int, shape (n,)
            States and next states of transitions, in any order.
        count : ndarray of int, shape (n,)
            How many of each there were.
        rewards : ndarray, shape (S,)
            Sums of the rewards on leaving each state. How rewards differ between transitions
            from one state is not told, so that their squares are as if they did not.
        durations : ndarray, shape (S,), optional
            Likewise.
        """
        S, (state, next_state) = len(actions), moves
        keys = (state * n_actions + actions[state]) * S + next_state
        key, place = np.unique(keys, return_inverse=True)
        total = _sums_by(place, count, len(key))
        visits = _sums_by(state, count, S)
        origin = key // (S * n_actions)
        mean = (rewards / np.maximum(visits, 1.0))[origin]
        numbers, times = total.astype(np.int64), None
        if durations is not None:
            time = (durations / np.maximum(visits, 1.0))[origin]
            times = total[:, None] * np.stack((time, time**2, mean * time), axis=1)
        return cls(S, n_actions, key, numbers, total * mean, total * mean**2, times)

    def checked(self) -> ActionCounts:
        """Return counts that come from elsewhere, or raise unless they fit together.

        Raises
        ------
        InvalidInputError
            If they cannot be counts of these states and actions.
        """
        key, parts, n_keys = self.key, self._sums, self.n_states**2 * self.n_actions
        if (
            key.ndim != 1
            or key.dtype.kind not in "iu"
            or any(part.shape != key.shape or part.dtype.kind not in "fiu" for part in parts)
            or (np.diff(key) <= 0).any()
            or (key.size and not 0 <= key[0] <= key[-1] < n_keys)
            or not all(np.isfinite(part).all() for part in parts)
            or (self.count <= 0).any()
            or (self.times is not None and (self.times.shape != (len(key), 3)))
            or (self.times is not None and not (self.times[:, 0] >= 0.0).all())
        ):
            raise InvalidInputError(
                f"these are no counts of {self.n_states} states and {self.n_actions} actions"
            )
        return self

    @property
    def _sums(self) -> tuple[NDArray[Any], ...]:
        times = () if self.times is None else tuple(self.times.T)
        return self.count, self.reward_sums, self.reward_squares, *times

    def check_adds(self, other: ActionCounts) -> None:
        """Raise `InvalidInputError` unless the other has as many states and actions."""
        if (self.n_states, self.n_actions) != (other.n_states, other.n_actions):
            raise InvalidInputError(
                f"counts of {self.n_states} states and {self.n_actions} actions do not add to "
                f"counts of {other.n_states} states and {other.n_actions} actions"
            )
        if len(self.key) and len(other.key):
            check_both_timed(self.times, other.times)

    def __add__(self, other: ActionCounts) -> ActionCounts:
        self.check_adds(other)
        if not (len(self.key) and len(other.key)):
            return self if len(self.key) else other
        key = np.concatenate((self.key, other.key))
        present, place = np.unique(key, return_inverse=True)
        count, sums, squares, *times = (
            _sums_by(place, np.concatenate(pair), len(present))
            for pair in zip(self._sums, other._sums, strict=True)
        )
        numbers = count.astype(np.result_type(self.count, other.count))
        held = np.stack(times, axis=1) if times else None
        return ActionCounts(self.n_states, self.n_actions, present, numbers, sums, squares, held)

    @property
    def pair(self) -> IntArray:
        """The pair s A + a of every transition seen, shape (n,)."""
        return np.asarray(self.key // self.n_states)

    @property
    def next_state(self) -> IntArray:
        """The state s' that every transition seen leads to, shape (n,)."""
        return np.asarray(self.key % self.n_states)

    @property
    def n_samples(self) -> NDArray[np.number]:
        """Number of transitions from each state by each action, shape (S, A)."""
        return self._by_pair(self.count).astype(self.count.dtype)

    @property
    def mean_rewards(self) -> FloatArray:
        """Mean reward of each state and action, 0 where there is none, shape (S, A)."""
        n = self.n_samples
        return np.asarray(self._by_pair(self.reward_sums) / np.where(n > 0, n, 1))

    @property
    def mean_durations(self) -> FloatArray:
        """Mean duration of each state and action, 0 where there is none, shape (S, A)."""
        n = self.n_samples
        if self.times is None:
            return np.where(n > 0, 1.0, 0.0)
        return np.asarray(self._by_pair(self.times[:, 0]) / np.where(n > 0, n, 1))

    @property
    def transition_matrix(self) -> sparse.csr_array:
        """Frequencies of next states, CSR (S A, S); rows of zeros where nothing was seen."""
        share = self.count / self.n_samples.ravel()[self.pair]
        shape = (self.n_states * self.n_actions, self.n_states)
        return sparse.csr_array((share, (self.pair, self.next_state)), shape=shape)

    def variances(self, values: FloatArray, gain: float) -> FloatArray:
        """Return the sample variance of r - g τ + v(s') of each state and action, shape (S, A).

        What pairs with few samples say of their variance is little: each gets one more sample of
        the mean variance of all.
        """
        v = values[self.next_state]
        n = self.n_samples.astype(np.float64)
        seen = np.maximum(n, 1.0)
        paid, paid_squares = self.reward_sums, self.reward_squares
        if self.times is not None:
            time, squared, joint = self.times.T
            paid = paid - gain * time
            paid_squares = paid_squares - 2.0 * gain * joint + gain**2 * squared
        mean = self._by_pair(paid + self.count * v) / seen
        # Taken about the mean, since squares of large values leave nothing of small variances.
        about = v - mean.ravel()[self.pair]
        squares = paid_squares + 2.0 * paid * about + self.count * about**2
        deviations = np.maximum(self._by_pair(squares), 0.0)
        typical = deviations.sum() / max(n.sum(), 1.0)
        return np.asarray((deviations + typical) / seen)

    def _by_pair(self, weights: NDArray[np.number]) -> FloatArray:
        size = self.n_states * self.n_actions
        return _sums_by(self.pair, weights, size).reshape(self.n_states, self.n_actions)


def together(*taken: ActionCounts | None) -> ActionCounts | None:
    """Return what actions led to in all of some trials; None where nothing was recorded."""
    known = [each for each in taken if each is not None]
    return reduce(add, known) if known else None


class ActionCountRecorder:
    """Counts what the actions of trials lead to, by batches as `CountRecorder` deals them.

    Parameters
    ----------
    n_states, n_actions : int
    terminal : int or None
        The state of trials that are over, in which no action is taken.
    n_batches, first : int
    """

    def __init__(
        self, n_states: int, n_actions: int, terminal: int | None, n_batches: int, first: int
    ) -> None:
        self._sums = [ActionCounts.none(n_states, n_actions)] * n_batches
        self._terminal, self._first = terminal, first
        self._waiting: list[tuple[NDArray[Any], ...]] = []
        self._n_waiting = 0

    def record(
        self,
        state: IntArray,
        taken: Taken,
        reward: FloatArray,
        next_state: IntArray,
        duration: FloatArray | None = None,
    ) -> None:
        """Count transitions of n trials, arrays (n,) or (k, n); unknown actions are -1."""
        batch = (self._first + np.arange(state.shape[-1])) % len(self._sums)
        parts: tuple[NDArray[Any], ...] = (
            np.broadcast_to(batch, state.shape),
            state,
            np.asarray(taken.action, dtype=np.int64),
            next_state,
            reward,
        )
        parts += () if duration is None else (duration,)
        known = taken.action >= 0
        if self._terminal is not None:
            known &= state != self._terminal
        # Copies, since an environment may write its next rewards into the same array.
        self._waiting.append(tuple(part[known] for part in parts))
        self._n_waiting += state.size
        if self._n_waiting >= _BUFFER:
            self._flush()

    def sums(self) -> tuple[ActionCounts, ...]:
        """Return what has been counted so far, batch by batch."""
        self._flush()
        return tuple(self._sums)

    def _flush(self) -> None:
        if not self._waiting:
            return
        batch, *parts = (np.concatenate(each) for each in zip(*self._waiting, strict=True))
        S, A = self._sums[0].n_states, self._sums[0].n_actions
        for b in np.unique(batch).tolist():
            self._sums[b] += ActionCounts.of(S, A, *(part[batch == b] for part in parts))
        self._waiting, self._n_waiting = [], 0


def _add_up(
    key: IntArray, numbers: list[FloatArray], n_keys: int
) -> tuple[IntArray, IntArray, list[FloatArray]]:
    """Return the distinct keys, ascending, and of each the count and the sums of numbers."""
    if n_keys <= min(_LARGEST_TABLE, 4 * key.size + 4096):
        table = np.bincount(key, minlength=n_keys)
        present = np.flatnonzero(table)
        count, place, n = table[present], key, n_keys
    else:
        present, place, count = np.unique(key, return_inverse=True, return_counts=True)
        n = len(present)
    sums = [_sums_by(place, weights, n) for weights in numbers]
    if n != len(present):
        sums = [each[present] for each in sums]
    return present, count.astype(np.int64), sums


def _sums_by(place: IntArray, weights: NDArray[np.number], n: int) -> FloatArray:
    """Return the sum of the weights at each of n places."""
    return np.asarray(np.bincount(place, weights, minlength=n), dtype=np.float64)
