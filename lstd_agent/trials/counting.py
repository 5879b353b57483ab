"""Transition counts: the sufficient statistic of discrete observations.

N_t(s, s') transitions and the sum of rewards per state and timestep. Counts do not depend on the
features, so one collection serves every feature set, every number of anchors and every gain;
they add up across batches, processes and machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.errors import InvalidInputError, check_integer
from lstd_agent.trials.action_counts import Taken
from lstd_agent.trials.lengths import add_lengths, check_lengths, has_gaps, trials_at


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
        How many trials have each timestep, where some were cut short; None where all have all.
    t_max : int
        The last timestep.
    trials_at : ndarray of int, shape (t_max + 1,)
        How many trials have each timestep.

    Methods
    -------
    of(counts)
        Counts that somebody else made, checked.
    check_adds(other)
        Raise unless the other has as many states and timesteps.

    Examples
    --------
    Trials of the same task add up, wherever they were collected:

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

    @classmethod
    def of(cls, counts: CountsLike) -> TransitionCounts:
        """Return counts that somebody else made, checked.

        Parameters
        ----------
        counts : TransitionCounts, or anything with its attributes
            Such as `unichain_gym.simulate_counts` returns.

        Returns
        -------
        TransitionCounts

        Raises
        ------
        InvalidInputError
            If they cannot be those of ``n_trials`` trials, each over all timesteps.
        """
        if isinstance(counts, cls):
            checked = counts
        else:
            checked = cls(
                check_integer("n_states", counts.n_states, 1),
                check_integer("n_trials", counts.n_trials, 1),
                sparse.csr_array(counts.transition_counts),
                sparse.csr_array(counts.reward_sums),
                getattr(counts, "n_at", None),
            )
        _check_counts(checked)
        return checked

    def check_adds(self, other: TransitionCounts) -> None:
        """Raise `InvalidInputError` unless the other has as many states and timesteps.

        Parameters
        ----------
        other : TransitionCounts

        Raises
        ------
        InvalidInputError
        """
        if not isinstance(other, TransitionCounts):
            raise InvalidInputError(f"counts do not add to {type(other).__name__}")
        if other.n_states != self.n_states or other.t_max != self.t_max:
            raise InvalidInputError(
                f"counts of {self.n_states} states and t_max {self.t_max} do not add to counts "
                f"of {other.n_states} states and t_max {other.t_max}"
            )

    def __add__(self, other: TransitionCounts) -> TransitionCounts:
        self.check_adds(other)
        return TransitionCounts(
            self.n_states,
            self.n_trials + other.n_trials,
            self.transition_counts + other.transition_counts,
            self.reward_sums + other.reward_sums,
            add_lengths(self, other),
        )

    @property
    def trials_at(self) -> IntArray:
        """Number of trials that have each timestep, shape (t_max + 1,)."""
        return trials_at(self)

    @property
    def t_max(self) -> int:
        """The last timestep."""
        return int(self.transition_counts.shape[0]) - 1


class CountsLike(Protocol):
    """Anything with the attributes of `TransitionCounts`."""

    @property
    def n_states(self) -> int:
        """Number of states S."""

    @property
    def n_trials(self) -> int:
        """Number of trials."""

    @property
    def transition_counts(self) -> Any:
        """Sparse (t_max + 1, S * S)."""

    @property
    def reward_sums(self) -> Any:
        """Sparse (t_max + 1, S)."""


class CountRecorder:
    """Counts the transitions of trials that run in lockstep, timestep by timestep.

    Parameters
    ----------
    n_states : int
    """

    def __init__(self, n_states: int) -> None:
        self.n_states = n_states
        self._pairs: list[tuple[IntArray, IntArray]] = []
        self._rewards: list[tuple[IntArray, FloatArray]] = []
        self._n_at: list[int] = []

    def record(
        self,
        state: IntArray,
        reward: FloatArray,
        next_state: IntArray,
        taken: Taken | None = None,
    ) -> None:
        """Count the next timestep's transitions of all trials, each array of shape (n,).

        Those that were explored do not count.
        """
        if taken is not None and taken.explored.any():
            own = ~taken.explored
            state, reward, next_state = state[own], reward[own], next_state[own]
        self._n_at.append(state.size)
        S = self.n_states
        present, count = _count(state * S + next_state, S * S)
        self._pairs.append((present, count))
        # Pairs ascend, so those of one state are neighbors.
        origin = present // S
        visited = origin[np.append(True, origin[1:] != origin[:-1])[: origin.size]]
        sums = np.bincount(state, weights=reward, minlength=S)[visited]
        self._rewards.append((visited, sums))

    def sums(self, n_trials: int) -> TransitionCounts:
        """Return what has been recorded of ``n_trials`` complete trials."""
        S, n_at = self.n_states, np.array(self._n_at)
        return TransitionCounts(
            S,
            n_trials,
            _stack_rows(self._pairs, S * S),
            _stack_rows(self._rewards, S),
            None if (n_at == n_trials).all() else n_at,
        )

    def of_whole(
        self,
        states: IntArray,
        rewards: FloatArray,
        taken: Taken | None = None,
        own: BoolArray | None = None,
    ) -> TransitionCounts:
        """Return the counts of whole trials: states (t_max + 2, n), rewards (t_max + 1, n).

        Of those transitions that ``own`` (t_max + 1, n) tells; by default, that were not explored.
        """
        S, (T, n) = self.n_states, rewards.shape
        timestep = np.arange(T)[:, None]
        if taken is not None and taken.explored.any():
            own = ~taken.explored
        n_at = None if own is None else own.sum(axis=1)
        if T * S * S >= 2**62:
            for t in range(T):
                at = slice(None) if own is None else own[t]
                self.record(states[t][at], rewards[t][at], states[t + 1][at])
            return replace(self.sums(n), n_at=n_at)
        left = timestep * S + states[:-1]
        pairs = left * S + states[1:]
        here = slice(None) if own is None else own
        present, count = np.unique(pairs[here].ravel(), return_counts=True)
        visited, place = np.unique(left[here].ravel(), return_inverse=True)
        sums = np.bincount(place, weights=rewards[here].ravel())
        return TransitionCounts(
            S,
            n,
            _rows_of_keys(present, count, T, S * S),
            _rows_of_keys(visited, sums, T, S),
            n_at,
        )


def _rows_of_keys(
    key: IntArray, values: NDArray[Any], n_rows: int, n_columns: int
) -> sparse.csr_array:
    """Make a CSR matrix of values by ascending keys row * n_columns + column."""
    row, column = np.divmod(key, n_columns)
    indptr = np.searchsorted(row, np.arange(n_rows + 1))
    return sparse.csr_array((values, column, indptr), shape=(n_rows, n_columns))


def _count(key: IntArray, n_keys: int) -> tuple[IntArray, IntArray]:
    """Return the distinct keys, ascending, and how often each occurs."""
    # Counting by table touches every possible key, sorting only those that occur.
    if n_keys <= 4 * key.size + 4096:
        table = np.bincount(key, minlength=n_keys)
        present = np.flatnonzero(table)
        return present, table[present]
    # Narrow numbers sort faster.
    narrow = key.astype(np.min_scalar_type(n_keys - 1))
    present, count = np.unique(narrow, return_counts=True)
    return present.astype(np.int64), count


def _stack_rows(rows: Sequence[tuple[IntArray, NDArray[Any]]], n_columns: int) -> sparse.csr_array:
    """Make a CSR matrix of rows given as (columns, values)."""
    indptr = np.cumsum([0, *(columns.size for columns, _ in rows)])
    columns = np.concatenate([columns for columns, _ in rows])
    values = np.concatenate([values for _, values in rows])
    return sparse.csr_array((values, columns, indptr), shape=(len(rows), n_columns))


def _check_counts(counts: TransitionCounts) -> None:
    """Raise `InvalidInputError` unless counts may be those of whole trials."""
    S, n, N, R = counts.n_states, counts.n_trials, counts.transition_counts, counts.reward_sums
    T = N.shape[0]
    if T < 1 or N.shape != (T, S * S) or R.shape != (T, S):
        raise InvalidInputError(
            f"counts of {S} states have transition_counts of shape (t_max + 1, {S * S}) and "
            f"reward_sums of shape (t_max + 1, {S}); got {N.shape} and {R.shape}"
        )
    for name, matrix in (("transition_counts", N), ("reward_sums", R)):
        try:
            matrix.check_format(full_check=True)
        except ValueError as error:
            raise InvalidInputError(f"{name} is not a valid CSR matrix: {error}") from None
    if N.dtype.kind not in "iu" or (N.data.size and N.data.min() < 0):
        raise InvalidInputError(
            f"transition_counts must be integers of at least 0; got {N.dtype}, "
            f"{N.data.min(initial=0)} the smallest"
        )
    if R.dtype.kind not in "fiu" or not np.isfinite(R.data).all():
        raise InvalidInputError("reward_sums must be finite numbers")
    if counts.n_at is not None:
        check_lengths(counts.n_at, n, T - 1)
    off = np.flatnonzero(N.sum(axis=1) != counts.trials_at)
    if off.size:
        raise InvalidInputError(
            f"the transitions of {counts.trials_at[off[0]]} trials at timestep {off[0]} sum to "
            f"{N[[off[0]]].sum()}: every trial has one at each timestep"
        )
    timestep = np.repeat(np.arange(T), np.diff(N.indptr))
    state, next_state = np.divmod(N.indices.astype(np.int64), S)
    left, reached = (
        sparse.csr_array((N.data, (timestep, s)), shape=(T, S)) for s in (state, next_state)
    )
    unlike = sparse.coo_array(left[1:] - reached[:-1])
    if counts.n_at is not None:  # trials are cut short, but none begins late
        unlike.data = np.maximum(unlike.data, 0)
    if has_gaps(counts.n_at):  # nor do more come back than were missing
        came = np.bincount(unlike.row, unlike.data, minlength=T - 1)
        missing = n - counts.trials_at[:-1]
        unlike.data[(came <= missing)[unlike.row]] = 0
    unlike.eliminate_zeros()
    if unlike.nnz:
        t, s = int(unlike.row[0]), int(unlike.col[0])
        raise InvalidInputError(
            f"{reached[t, s]} trials reach state {s} at timestep {t}, and {left[t + 1, s]} leave "
            f"it at timestep {t + 1}: trials do not come or go"
        )
    was_in: Any = left.astype(bool)
    paid: Any = R.astype(bool)
    if (paid > was_in).nnz:
        raise InvalidInputError("reward_sums hold rewards of states that no trial was in")
