"""Counts of transitions: the sufficient statistics of counted observations.

`TransitionCounts` are N_t(s, s') and sums of rewards by timestep, of the policy alone;
`ActionCounts` are N(s, a, s') and sums of rewards, of every action. They do not depend on features,
and those of different trials add up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.errors import InvalidInputError, check_integer
from lstd_agent.trials.kept import check_timed
from lstd_agent.trials.spaces import MAX_REWARD

LARGEST_KEY = 2**62

_ROUNDING = 1e-13  # of squares, relative to their sum


@dataclass(frozen=True, eq=False)
class TransitionCounts:
    """Transition counts and reward sums of independent trials, per timestep.

    Attributes
    ----------
    n_states : int
        Number of states S.
    n_trials : int
        Number of trials counted.
    transition_counts : csr_array of int, shape (t_max + 1, S * S)
        N_t(s, s') in column s * S + s'.
    reward_sums : csr_array of float, shape (t_max + 1, S)
        Sum of the rewards on leaving s at t.
    n_at : ndarray of int, shape (t_max + 1,), optional
        Number of trials that have each timestep; None if all have.
    duration_sums : csr_array of float, shape (t_max + 1, S), optional
        Sum of the durations of steps from s at t; None if each step takes 1 unit of time.

    Examples
    --------
    Counts of separate collections add up:

    >>> import unichain_gym
    >>> from lstd_agent import OneHot, SeminormLSTDAgent, TransitionCounts
    >>> chain = unichain_gym.make_mdp("h6").induce(np.zeros(6, dtype=int))
    >>> here, there = (unichain_gym.simulate_counts(chain, 500, 20, seed) for seed in (0, 1))
    >>> both = TransitionCounts.of(here) + TransitionCounts.of(there)
    >>> SeminormLSTDAgent(OneHot()).add(both).n_trials
    1000
    """

    n_states: int
    n_trials: int
    transition_counts: sparse.csr_array
    reward_sums: sparse.csr_array
    n_at: IntArray | None = None
    duration_sums: sparse.csr_array | None = None

    @classmethod
    def of(cls, counts: Any) -> TransitionCounts:
        """Return checked counts.

        Parameters
        ----------
        counts : TransitionCounts, or anything with its attributes
            For example from `unichain_gym.simulate_counts`.

        Raises
        ------
        InvalidInputError
            If ``n_trials`` trials cannot have these counts.
        """
        times = getattr(counts, "duration_sums", None)
        checked = cls(
            check_integer("n_states", counts.n_states, 1),
            check_integer("n_trials", counts.n_trials, 1),
            sparse.csr_array(counts.transition_counts),
            sparse.csr_array(counts.reward_sums),
            getattr(counts, "n_at", None),
            None if times is None else sparse.csr_array(times),
        )
        check_counts(checked)
        return checked

    def __add__(self, other: TransitionCounts) -> TransitionCounts:
        if not isinstance(other, TransitionCounts):
            raise InvalidInputError(f"counts do not add to {type(other).__name__}")
        ours, theirs = ((each.n_states, each.t_max) for each in (self, other))
        if ours != theirs:
            told = f"counts of as many states, up to t_max, {ours} do not add to counts of {theirs}"
            raise InvalidInputError(told)
        check_timed(self.duration_sums is not None, other.duration_sums)
        are_whole = self.n_at is None and other.n_at is None
        return TransitionCounts(
            self.n_states,
            self.n_trials + other.n_trials,
            self.transition_counts + other.transition_counts,
            self.reward_sums + other.reward_sums,
            None if are_whole else self.trials_at + other.trials_at,
            total(self.duration_sums, other.duration_sums),
        )

    @property
    def trials_at(self) -> IntArray:
        """Number of trials that have each timestep, shape (t_max + 1,)."""
        return np.full(self.t_max + 1, self.n_trials) if self.n_at is None else self.n_at

    @property
    def t_max(self) -> int:
        """The last timestep."""
        return int(self.transition_counts.shape[0]) - 1


def check_counts(counts: TransitionCounts) -> None:
    """Raise `InvalidInputError` unless trials can have these counts."""
    S, n, N, n_at = counts.n_states, counts.n_trials, counts.transition_counts, counts.n_at
    T, sums = N.shape[0], {"reward_sums": counts.reward_sums}
    if counts.duration_sums is not None:
        sums["duration_sums"] = counts.duration_sums
    for name, matrix in {"transition_counts": N, **sums}.items():
        n_columns = S * S if matrix is N else S
        if T < 1 or matrix.shape != (T, n_columns):
            told = f"counts of {S} states have {name} of shape (t_max + 1, {n_columns}); got "
            told += f"{matrix.shape}, and transition_counts of shape {N.shape}"
            raise InvalidInputError(told)
        try:
            matrix.check_format(full_check=True)
        except ValueError as error:
            raise InvalidInputError(f"{name} is not a valid CSR matrix: {error}") from None
    if N.dtype.kind not in "iu" or N.data.min(initial=0) < 0:
        told = f"transition_counts are integers from 0; got {N.dtype}, {N.data.min(initial=0)}"
        raise InvalidInputError(told)
    for name, matrix in sums.items():
        if matrix.dtype.kind not in "fiu" or not (np.abs(matrix.data) <= MAX_REWARD * n).all():
            raise InvalidInputError(f"{name} must be finite, at most {MAX_REWARD:g} a trial")
        if name == "duration_sums" and (matrix.data < 0.0).any():
            raise InvalidInputError("duration_sums must be at least 0")
    # Exploration: trials miss a timestep, and have a later one.
    has_gaps = n_at is not None and bool((np.diff(n_at, axis=0) > 0).any())
    if n_at is not None and (
        np.shape(n_at) != (T,)
        or np.asarray(n_at).dtype.kind not in "iu"
        or not 0 <= np.min(n_at) <= np.max(n_at) <= n
        or (n_at[0] != n and not has_gaps)
    ):
        told = f"n_at holds how many of {n} trials have each of {T} timesteps: all the first one, "
        told += f"unless they are explored there; got {n_at!r}"
        raise InvalidInputError(told)
    off = np.flatnonzero(N.sum(axis=1) != counts.trials_at)
    if off.size:
        told = f"the transitions of {counts.trials_at[off[0]]} trials at timestep {off[0]} sum to "
        told += f"{N[[off[0]]].sum()}: every trial has one at each timestep"
        raise InvalidInputError(told)
    # Trials leave the states that they reach.
    timestep = np.repeat(np.arange(T), np.diff(N.indptr))
    state, next_state = np.divmod(N.indices.astype(np.int64), S)
    left, reached = (
        sparse.csr_array((N.data, (timestep, s)), shape=(T, S)) for s in (state, next_state)
    )
    unlike = sparse.coo_array(left[1:] - reached[:-1])
    if n_at is not None:  # trials are cut short, but none begins late
        unlike.data = np.maximum(unlike.data, 0)
    if has_gaps:  # no more come back than were missing
        came = np.bincount(unlike.row, unlike.data, minlength=T - 1)
        missing = counts.n_trials - counts.trials_at[:-1]
        unlike.data[(came <= missing)[unlike.row]] = 0
    unlike.eliminate_zeros()
    if unlike.nnz:
        t, s = int(unlike.row[0]), int(unlike.col[0])
        raise InvalidInputError(
            f"{reached[t, s]} trials reach state {s} at timestep {t}, and {left[t + 1, s]} leave "
            f"it at timestep {t + 1}: every trial that reaches a state must leave it"
        )
    was_in: Any = left.astype(bool)
    for name, matrix in sums.items():
        if (matrix.astype(bool) > was_in).nnz:
            raise InvalidInputError(f"{name} hold {name[:-5]}s of states that no trial was in")


@dataclass(frozen=True, eq=False)
class ActionCounts:
    """Transition counts by state and action, over all timesteps and policies, by batch.

    Keys (n,), ascending, are ((b S + s) A + a) S + s' of every kind of transition in batch b, with
    its count (a probability if counts are exact) and the sums of its rewards and their squares.
    ``times`` (n, 3) are sums of durations, of their squares, and of rewards times durations; None
    if each step takes 1 unit of time. Properties are for a single batch.
    """

    n_states: int
    n_actions: int
    key: IntArray
    count: NDArray[np.number]
    reward_sums: FloatArray
    reward_squares: FloatArray
    times: FloatArray | None = None
    n_batches: int = 1

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
        batch: IntArray | int = 0,
        n_batches: int = 1,
    ) -> ActionCounts:
        """Count transitions, arrays of one shape; check states and actions (from 0)."""
        S, A = n_states, n_actions
        named = ("states", state, S), ("actions", action, A), ("next states", next_state, S)
        for name, value, n in named:
            if value.size and not 0 <= value.min() <= value.max() < n:
                wrong = value[(value < 0) | (value >= n)].flat[0]
                raise InvalidInputError(f"{name} are numbered 0 to {n - 1}; got {wrong}")
        key = (((batch * S + state) * A + action) * S + next_state).ravel()
        sums = (each.ravel() for each in _moments(reward, duration))
        return cls._of(S, A, n_batches, *grouped(key, n_batches * S**2 * A, *sums))

    @classmethod
    def _of(cls, n_states: int, n_actions: int, n_batches: int, *columns: Any) -> ActionCounts:
        """Return counts by keys, counts, reward sums, sums of squares, and times if there are."""
        times = np.stack(columns[4:], axis=1) if columns[4:] else None
        key, count, paid, squares = columns[:4]
        return cls(n_states, n_actions, key, count, paid, squares, times, n_batches)

    @classmethod
    def of_policy(
        cls, counts: TransitionCounts, n_actions: int, actions: IntArray, terminal: int | None
    ) -> ActionCounts:
        """Return the counts of actions (S,), as if all rewards on leaving a state were equal."""
        S, N = counts.n_states, counts.transition_counts
        state, next_state = np.divmod(N.indices.astype(np.int64), S)
        n = N.data * (state != terminal)
        state, next_state, n = state[n > 0], next_state[n > 0], n[n > 0]
        keys = (state * n_actions + actions[state]) * S + next_state
        key, _, total = grouped(keys, S**2 * n_actions, n)
        origin, visits = key // (S * n_actions), np.maximum(np.bincount(state, n, S), 1.0)
        mean, *times = (
            (np.bincount(M.indices, M.data, S) / visits)[origin]
            for M in (counts.reward_sums, counts.duration_sums)
            if M is not None
        )
        sums = (total * each for each in _moments(mean, *times))
        return cls._of(S, n_actions, 1, key, total.astype(np.int64), *sums)

    @property
    def _sums(self) -> tuple[NDArray[Any], ...]:
        times = () if self.times is None else tuple(self.times.T)
        return self.count, self.reward_sums, self.reward_squares, *times

    def batch(self, b: int) -> ActionCounts:
        """Return the counts of a batch."""
        size = self.n_states**2 * self.n_actions
        here = slice(*np.searchsorted(self.key, [b * size, (b + 1) * size]))
        parts = self.key[here] - b * size, *(part[here] for part in self._sums)
        return self._of(self.n_states, self.n_actions, 1, *parts)

    def check_adds(self, other: ActionCounts) -> None:
        """Raise `InvalidInputError` unless the numbers of states and actions agree."""
        ours, theirs = ((each.n_states, each.n_actions) for each in (self, other))
        if ours != theirs:
            told = f"counts of as many states and actions, {ours}, do not add to counts of {theirs}"
            raise InvalidInputError(told)
        if len(self.key) and len(other.key):
            check_timed(self.times is not None, other.times)

    def __add__(self, other: ActionCounts) -> ActionCounts:
        self.check_adds(other)
        if not (len(self.key) and len(other.key)):
            return self if len(self.key) else other
        ours, theirs = (self.key, *self._sums), (other.key, *other._sums)
        keys, *parts = map(np.concatenate, zip(ours, theirs, strict=True))
        n_keys = self.n_batches * self.n_states**2 * self.n_actions
        key, _, count, *sums = grouped(keys, n_keys, *parts)
        count = count.astype(np.result_type(self.count, other.count))
        return self._of(self.n_states, self.n_actions, self.n_batches, key, count, *sums)

    @property
    def pair(self) -> IntArray:
        """The pair s A + a of every transition seen, shape (n,)."""
        return np.asarray(self.key // self.n_states)

    @property
    def next_state(self) -> IntArray:
        """The state s' of every transition seen, shape (n,)."""
        return np.asarray(self.key % self.n_states)

    @property
    def n_samples(self) -> NDArray[np.number]:
        """Number of transitions from each state by each action, shape (S, A)."""
        return self._by_pair(self.count).astype(self.count.dtype)

    @property
    def mean_rewards(self) -> FloatArray:
        """Mean reward of each state and action, 0 where there is none, shape (S, A)."""
        return self._mean(self.reward_sums)

    @property
    def mean_durations(self) -> FloatArray:
        """Mean duration of each state and action, 0 where there is none, shape (S, A)."""
        return self._mean(self.count if self.times is None else self.times[:, 0])

    def _mean(self, sums: NDArray[np.number]) -> FloatArray:
        n = self.n_samples
        return np.asarray(self._by_pair(sums) / np.where(n > 0, n, 1))

    @property
    def transition_matrix(self) -> sparse.csr_array:
        """Frequencies of next states, CSR (S A, S); rows of zeros where nothing was seen."""
        share = self.count / self.n_samples.ravel()[self.pair]
        shape = (self.n_states * self.n_actions, self.n_states)
        return sparse.csr_array((share, (self.pair, self.next_state)), shape=shape)

    def variances(self, values: FloatArray, gain: float) -> FloatArray:
        """Return the sample variance of r - g τ + v(s') of each state and action, shape (S, A).

        Each pair gets one more sample with the mean variance of all pairs: few determine none.
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
        # Squares are about the mean: rounding of large squares would hide small variances.
        about = v - mean.ravel()[self.pair]
        whole = paid_squares + self.count * about**2
        deviations = self._by_pair(whole + 2.0 * paid * about)
        deviations[deviations <= _ROUNDING * self._by_pair(whole)] = 0.0
        typical = deviations.sum() / max(n.sum(), 1.0)
        return np.asarray((deviations + typical) / seen)

    def _by_pair(self, weights: NDArray[np.number]) -> FloatArray:
        sums = np.bincount(self.pair, weights, self.n_states * self.n_actions)
        return np.asarray(sums.reshape(self.n_states, self.n_actions), dtype=np.float64)


def _moments(reward: FloatArray, duration: FloatArray | None = None) -> list[FloatArray]:
    """Return what is summed of each transition: rewards, squares, and those of durations."""
    times = [] if duration is None else [duration, duration**2, reward * duration]
    return [reward, reward**2, *times]


def total(a: Any, b: Any) -> Any:
    """Return the sum of two parts of which either may be None: the other one, then."""
    return a + b if a is not None and b is not None else b if a is None else a


def grouped(key: IntArray, n_keys: int, *weights: NDArray[np.number]) -> Any:
    """Return the distinct keys, ascending, how often each occurs, and its sum of each weight."""
    if n_keys >= LARGEST_KEY:
        told = "there are too many states and actions to count: give observations='vectors'"
        raise InvalidInputError(told)
    # A table touches every possible key, sorting only those that occur.
    if n_keys <= 4 * key.size + 4096:
        table = np.bincount(key, minlength=n_keys)
        present = np.flatnonzero(table > 0)  # of booleans it is fast
        sums = (np.bincount(key, weight, minlength=n_keys)[present] for weight in weights)
        return present, table[present], *sums
    # Narrow numbers sort faster.
    found, count = np.unique(key.astype(np.min_scalar_type(n_keys - 1)), return_counts=True)
    present = found.astype(np.int64)
    place = np.searchsorted(present, key) if weights else key
    return present, count, *(np.bincount(place, weight, len(present)) for weight in weights)
