"""Trials of counted observations: counted in batches, with a sample of whole ones.

Trials are dealt into batches one by one: trial i is in batch i mod B. Timestep and batch are part
of the key of a transition, so one pass counts many timesteps.

A log's trials are first sorted by a hash of their content: h = Σ_j c_j x_j mod 2^64 over the
numbers x_j of a trial (halves of the bits of doubles), with fixed odd coefficients c_j, and then
mixed. The sample has the trials with the smallest hashes. So batches and samples do not depend on
the order of a log, and the sample of two samples is the sample of all their trials.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.errors import InvalidInputError, check_integer
from lstd_agent.trials.counts import (
    LARGEST_KEY,
    ActionCounts,
    TransitionCounts,
    counted,
    sums_at,
    together,
)
from lstd_agent.trials.encoding import Encoding
from lstd_agent.trials.kept import KeptTrials

# Number of transitions that are counted, or numbers that are hashed, at a time.
_CHUNK = 2**18


def ordered(trials: KeptTrials) -> IntArray:
    """Return the trials (m,) in an order that depends on their content alone."""
    return np.argsort(_keys(hashes(trials)), kind="stable")


def _keys(found: NDArray[np.uint64], first: int = 0) -> NDArray[np.uint64]:
    """Return numbers (m,) that order trials with these hashes as if drawn at random.

    Equal trials are numbered before hashing. Otherwise equal trials would be adjacent: batches
    would differ less than by chance, and a sample would have all or none of them. Trials with
    another ``first`` are drawn independently.
    """
    order = np.argsort(found, kind="stable")
    same = found[order]
    starts = np.flatnonzero(np.append(True, same[1:] != same[:-1]))
    number = np.empty(len(found), dtype=np.uint64)
    sizes = np.diff(np.append(starts, len(found)))
    number[order] = (np.arange(len(found)) - np.repeat(starts, sizes)).astype(np.uint64)
    salt = _scrambled(np.array([first], dtype=np.uint64))
    return _scrambled(found + salt + _scrambled(number))


def hashes(trials: KeptTrials) -> NDArray[np.uint64]:
    """Return a hash of the content of each trial but for its actions, shape (m,).

    A missing array has the hash of an array of default values, so the hash of a trial does not
    depend on other trials.
    """
    m, T, offset = trials.n_trials, trials.t_max + 1, 0
    total = np.zeros(m, dtype=np.uint64)
    for name, part in vars(trials).items():
        n = {"observations": 2 * trials.observations[:1].size, "lengths": 1}.get(name, 2 * T)
        if part is not None and name != "actions":
            # A row of as many coefficients as there are numbers in each trial.
            width = part[:1].size * (2 if part.dtype == np.float64 else 1)
            weights = _scrambled(np.arange(offset, offset + width, dtype=np.uint64))
            step = max(1, _CHUNK // width)
            for first in range(0, m, step):
                here = slice(first, first + step)
                numbers = np.ascontiguousarray(part[here]).reshape(-1, part[:1].size)
                if name == "lengths":
                    numbers = T - numbers  # 0 by default, as for any other part
                elif part.dtype.kind == "f":  # zeros of either sign are one number
                    numbers = (numbers + part.dtype.type(0)).view(f"u{min(4, part.itemsize)}")
                total[here] += numbers.astype(np.uint64) @ (weights | np.uint64(1))
        offset += n
    return _scrambled(total)


def _scrambled(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the outputs of SplitMix64 (Steele, Lea & Flood 2014) of states x."""
    x = (x + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@dataclass(frozen=True, eq=False)
class TrialSample:
    """The counted trials with the smallest hashes, whole, without their actions.

    Their observations are the numbers of states (m, t_max + 2), and their hashes (m,) ascend.
    """

    trials: KeptTrials
    hashes: NDArray[np.uint64]

    @classmethod
    def of(cls, trials: KeptTrials, most: int, first: int = 0) -> TrialSample:
        """Return a sample of trials, of which the first has number ``first``."""
        return cls(replace(trials, actions=None), _keys(hashes(trials), first)).least(most)

    @classmethod
    def checked(cls, trials: KeptTrials, hashes: NDArray[np.uint64]) -> TrialSample:
        """Return a checked sample, or raise `InvalidInputError`."""
        states = trials.observations[:, :, 0]
        if states.dtype.kind not in "iu" or trials.observations.shape[2] != 1:
            raise InvalidInputError(
                f"the states of a sample of trials are integers (m, t_max + 2); got {states.dtype} "
                f"of shape {trials.observations.shape}"
            )
        is_sorted = hashes.dtype == np.uint64 and not (hashes[1:] < hashes[:-1]).any()
        if hashes.shape != (len(states),) or not is_sorted:
            raise InvalidInputError("a sample of trials has one hash a trial, in ascending order")
        return cls(replace(trials, observations=states), hashes)

    def least(self, most: int | None = None) -> TrialSample:
        """Return at most so many trials of the sample, by their hashes."""
        chosen = np.argsort(self.hashes, kind="stable")[:most]
        return TrialSample(self.trials.take(chosen), self.hashes[chosen])

    def __add__(self, other: TrialSample) -> TrialSample:
        trials = self.trials + other.trials
        return TrialSample(trials, np.concatenate((self.hashes, other.hashes))).least()


@dataclass(frozen=True, eq=False)
class CountedTrials:
    """Trials of counted observations, dealt into B batches, with a sample of whole trials.

    Fields are as in `TransitionCounts`, but batch b at timestep t has row t B + b. ``n_by_batch``
    (B,) and ``n_at`` (B, t_max + 1) are numbers of trials. ``taken`` are action counts in as many
    batches, if they are counted.
    """

    n_states: int
    n_by_batch: IntArray
    transition_counts: sparse.csr_array
    reward_sums: sparse.csr_array
    n_at: IntArray | None = None
    sample: TrialSample | None = None
    taken: ActionCounts | None = None
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
        """Return trials, given by counts, that are all in batch b of ``n_batches``."""
        is_here, given = np.arange(n_batches) == b, counts.duration_sums
        N = _spread(counts.transition_counts, b, n_batches)
        R = _spread(counts.reward_sums, b, n_batches)
        times = None if given is None else _spread(given, b, n_batches)
        n_at = None if counts.n_at is None else np.outer(is_here, counts.n_at).astype(np.int64)
        if taken is not None:
            key = taken.key + b * taken.n_states**2 * taken.n_actions
            taken = replace(taken, key=key, n_batches=n_batches)
        n, N = np.where(is_here, counts.n_trials, 0), N.astype(np.int64)
        return cls(counts.n_states, n, N, R, n_at, sample, taken, times)

    @classmethod
    def checked(cls, **parts: Any) -> CountedTrials:
        """Return checked counts of trials in batches, or raise."""
        found = cls(**parts)
        S, n = check_integer("n_states", found.n_states, 1), found.n_by_batch
        N, taken, sample = found.transition_counts, found.taken, found.sample
        B = n.size
        if n.ndim != 1 or n.dtype.kind not in "iu" or not n.any() or n.min() < 0 or N.shape[0] % B:
            raise InvalidInputError(f"there are no trials in batches of {n!r}")
        if found.n_at is not None and found.n_at.shape != (B, found.t_max + 1):
            raise InvalidInputError(f"n_at of {B} batches has shape {found.n_at.shape}")
        for name in ("reward_sums", "duration_sums"):
            matrix = getattr(found, name)
            if matrix is not None and matrix.shape != (N.shape[0], S):
                raise InvalidInputError(f"{name} have shape {matrix.shape}")
        for b in range(B):
            TransitionCounts.of(found.batch(b))
        if taken is not None and (taken.n_batches, taken.n_states) != (B, S):
            raise InvalidInputError("the action counts have other states or batches")
        if sample is not None:
            states = sample.trials.observations
            if states.shape[1] != found.t_max + 2 or states.min() < 0 or states.max() >= S:
                raise InvalidInputError("the sample of trials has other states or timesteps")
            if len(states) > found.n_trials:
                raise InvalidInputError("the sample has more trials than the counts")
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
        """Number of entries of the matrices."""
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
        sample = self.sample or other.sample
        if self.sample is not None and other.sample is not None:
            sample = self.sample + other.sample
        are_whole = self.n_at is None and other.n_at is None
        return CountedTrials(
            self.n_states,
            self.n_by_batch + other.n_by_batch,
            self.transition_counts + other.transition_counts,
            self.reward_sums + other.reward_sums,
            None if are_whole else self._trials_at + other._trials_at,
            sample,
            together(self.taken, other.taken),
            together(self.duration_sums, other.duration_sums),
        )

    @property
    def _trials_at(self) -> IntArray:
        if self.n_at is not None:
            return self.n_at
        return np.repeat(self.n_by_batch[:, None], self.t_max + 1, axis=1)


class Counter:
    """Counts transitions of trials, dealt into batches one after the other.

    Trial i is in batch ``(first + i) % n_batches``. With ``n_actions`` transitions are also counted
    by action, except in the ``terminal`` state, where no action is taken.
    """

    def __init__(
        self,
        n_states: int,
        n_batches: int = 1,
        first: int = 0,
        n_actions: int = 0,
        terminal: int | None = None,
    ) -> None:
        self._n_states, self._n_batches, self._first = n_states, n_batches, first
        self._n_actions, self._terminal = n_actions, terminal
        self._t, self._is_cut = 0, False
        # Entries of matrices, in order: rows, columns and values.
        self._moves: list[tuple[NDArray[Any], ...]] = []
        self._paid: list[tuple[NDArray[Any], ...]] = []
        self._times: list[tuple[NDArray[Any], ...]] = []
        # Transitions by action, and those that wait to be counted.
        self._taken: ActionCounts | None = None
        self._waiting: list[tuple[NDArray[Any], ...]] = []

    def count(self, trials: KeptTrials) -> None:
        """Count the next timesteps of n trials, whose observations are states (n, k + 1)."""
        states, n = np.asarray(trials.observations.T, dtype=np.int64), trials.n_trials
        if self._n_actions and trials.actions is not None:
            self._count_actions(states, trials)
        numbers = (trials.rewards, trials.own, trials.durations)
        step = max(1, _CHUNK // n)
        for t in range(0, trials.t_max + 1, step):
            here = slice(t, t + step)
            parts: Any = (None if each is None else each.T[here] for each in numbers)
            self._count(states[:-1][here], states[1:][here], *parts)

    def _count(
        self,
        state: IntArray,
        following: IntArray,
        reward: FloatArray,
        own: BoolArray | None,
        duration: FloatArray | None,
    ) -> None:
        """Count the policy's own transitions of k timesteps, arrays (k, n)."""
        S, B, (k, n) = self._n_states, self._n_batches, state.shape
        numbers = None
        if k * B * S**2 >= LARGEST_KEY:  # number only the states that occur
            both = np.stack((state, following))
            numbers, found = np.unique(both, return_inverse=True)
            S, (state, following) = len(numbers), found.reshape(both.shape)
        # Rows are timesteps and batches, and keys are (row S + s) S + s'.
        left = ((self._first + np.arange(n)) % B + np.arange(k)[:, None] * B) * S + state
        key = left * S + following
        if own is not None and not own.all():
            self._is_cut = True
            left, key, reward = left[own], key[own], reward[own]
            duration = None if duration is None else duration[own]
        present, count = counted(key.ravel(), k * B * S**2)
        row, column = np.divmod(present, S * S)
        # Keys ascend, and so do the remaining states.
        origin = present // S
        visited = origin[np.append(True, origin[1:] != origin[:-1])[: len(origin)]]
        paid_row, paid_state = np.divmod(visited, S)
        if numbers is not None:
            column = numbers[column // S] * self._n_states + numbers[column % S]
            paid_state = numbers[paid_state]
        before = self._t * B
        self._moves.append((row + before, column, count))
        for entries, weights in ((self._paid, reward), (self._times, duration)):
            if weights is not None:
                sums = sums_at(visited, left.ravel(), weights.ravel(), k * B * S)
                entries.append((paid_row + before, paid_state, sums))
        self._t += k

    def _count_actions(self, states: IntArray, trials: KeptTrials) -> None:
        """Count transitions by action; unknown actions are -1."""
        assert trials.actions is not None
        action = np.asarray(trials.actions.T, np.int64)
        batch = (self._first + np.arange(trials.n_trials)) % self._n_batches
        known = action >= 0
        if trials.lengths is not None:
            known &= np.arange(len(action))[:, None] < trials.lengths
        if self._terminal is not None:
            known &= states[:-1] != self._terminal
        parts = [np.broadcast_to(batch, action.shape), states[:-1], action, states[1:]]
        numbers = [trials.rewards.T] + ([] if trials.durations is None else [trials.durations.T])
        self._waiting.append(tuple(part[known] for part in (*parts, *numbers)))
        if sum(len(each[0]) for each in self._waiting) >= _CHUNK:
            self._count_waiting()

    def _count_waiting(self) -> None:
        if self._waiting:
            batch, *parts = (np.concatenate(each) for each in zip(*self._waiting, strict=True))
            of: Any = ActionCounts.of
            how = {"batch": batch, "n_batches": self._n_batches}
            found = of(self._n_states, self._n_actions, *parts, **how)
            self._taken, self._waiting = together(self._taken, found), []

    def portion(self, n_trials: int, sample: TrialSample | None = None) -> CountedTrials:
        """Return the counted trials, which are complete."""
        self._count_waiting()
        S, B, T = self._n_states, self._n_batches, self._t
        N, R = _matrix(self._moves, (B * T, S * S)), _matrix(self._paid, (B * T, S))
        n_by_batch = np.bincount((self._first + np.arange(n_trials)) % B, minlength=B)
        n_at = N.sum(axis=1).reshape(T, B).T.astype(np.int64) if self._is_cut else None
        times = _matrix(self._times, (B * T, S)) if self._times else None
        return CountedTrials(S, n_by_batch, N, R, n_at, sample, self._taken, times)


Portion: TypeAlias = CountedTrials | KeptTrials
"""Recorded trials; two portions of the same kind add up."""


@dataclass(frozen=True, eq=False)
class Recording:
    """How trials are recorded: counted in batches if observations are, else kept.

    With ``n_batches`` 0 all trials are kept. With ``n_actions`` transitions are also counted by
    action.
    """

    encoding: Encoding
    n_batches: int = 1
    n_actions: int = 0

    def counter(self, first: int) -> Counter | None:
        """Return the counter of trials from number ``first`` on; None if trials are kept."""
        encoding = self.encoding
        if not (encoding.is_counted and self.n_batches):
            return None
        terminal: Any = encoding.terminal if encoding.ends else None
        return Counter(encoding.n_states, self.n_batches, first, self.n_actions, terminal)

    def portion_of(self, trials: KeptTrials, first: int, n_stored: int) -> Portion:
        """Return encoded trials as a portion; ``n_stored`` counted ones are kept whole."""
        counter = self.counter(first)
        if counter is None:
            return trials
        # Batches do not depend on the order of a log's trials.
        trials = trials.take(ordered(trials))
        counter.count(trials)
        sample = TrialSample.of(trials, n_stored, first) if n_stored else None
        return counter.portion(trials.n_trials, sample)


def _spread(matrix: sparse.csr_array, b: int, n_batches: int) -> sparse.csr_array:
    """Return a matrix (T, n) as one (B T, n): its rows are b, b + B, …, and others are empty."""
    n = np.zeros(n_batches * matrix.shape[0], dtype=matrix.indptr.dtype)
    n[b::n_batches] = np.diff(matrix.indptr)
    parts = matrix.data.copy(), matrix.indices.copy(), np.append(0, np.cumsum(n))
    return sparse.csr_array(parts, shape=(len(n), matrix.shape[1]))


def _matrix(found: list[tuple[NDArray[Any], ...]], shape: tuple[int, int]) -> sparse.csr_array:
    """Make a matrix of entries (row, column, value) in order."""
    row, column, value = (np.concatenate(parts) for parts in zip(*found, strict=True))
    indptr = np.append(0, np.cumsum(np.bincount(row, minlength=shape[0])))
    return sparse.csr_array((value, column, indptr), shape=shape)
