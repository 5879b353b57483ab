"""Transition counts: the sufficient statistic of counted observations.

N_t(s, s') transitions and the sum of rewards per state and timestep. Counts do not depend on the
features, so one collection serves every feature set, every number of anchors and every gain;
they add up across batches, processes and machines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy import sparse

from lstd_agent.arrays import IntArray
from lstd_agent.errors import InvalidInputError, check_integer
from lstd_agent.trials.kept import check_both_timed, has_gaps


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
    duration_sums : csr_array of float, shape (t_max + 1, S), optional
        Sum of the durations of steps from s at t; None where each step takes 1 unit of time.
    t_max : int
        The last timestep.
    trials_at : ndarray of int, shape (t_max + 1,)
        How many trials have each timestep.
    counts, kept : TransitionCounts, None
        What there is of each kind of sums: these counts, and no trials as they came.

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
    duration_sums: sparse.csr_array | None = None
    kept = None

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
            times = getattr(counts, "duration_sums", None)
            checked = cls(
                check_integer("n_states", counts.n_states, 1),
                check_integer("n_trials", counts.n_trials, 1),
                sparse.csr_array(counts.transition_counts),
                sparse.csr_array(counts.reward_sums),
                getattr(counts, "n_at", None),
                None if times is None else sparse.csr_array(times),
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
        check_both_timed(self.duration_sums, other.duration_sums)

    def __add__(self, other: TransitionCounts) -> TransitionCounts:
        self.check_adds(other)
        are_whole = self.n_at is None and other.n_at is None
        return TransitionCounts(
            self.n_states,
            self.n_trials + other.n_trials,
            self.transition_counts + other.transition_counts,
            self.reward_sums + other.reward_sums,
            None if are_whole else self.trials_at + other.trials_at,
            added(self.duration_sums, other.duration_sums),
        )

    @property
    def counts(self) -> TransitionCounts:
        """These counts, where other kinds of sums have none."""
        return self

    @property
    def trials_at(self) -> IntArray:
        """Number of trials that have each timestep, shape (t_max + 1,)."""
        return np.full(self.t_max + 1, self.n_trials) if self.n_at is None else self.n_at

    @property
    def t_max(self) -> int:
        """The last timestep."""
        return int(self.transition_counts.shape[0]) - 1


def added(a: sparse.csr_array | None, b: sparse.csr_array | None) -> sparse.csr_array | None:
    """Return the sum of what either both have, or none."""
    return None if a is None or b is None else a + b


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


def _check_counts(counts: TransitionCounts) -> None:
    """Raise `InvalidInputError` unless counts may be those of whole trials."""
    S, n, N, R = counts.n_states, counts.n_trials, counts.transition_counts, counts.reward_sums
    T, times = N.shape[0], counts.duration_sums
    if T < 1 or N.shape != (T, S * S) or R.shape != (T, S):
        raise InvalidInputError(
            f"counts of {S} states have transition_counts of shape (t_max + 1, {S * S}) and "
            f"reward_sums of shape (t_max + 1, {S}); got {N.shape} and {R.shape}"
        )
    if times is not None and times.shape != (T, S):
        raise InvalidInputError(f"duration_sums have shape {times.shape}, reward_sums {R.shape}")
    for name, matrix in (("transition_counts", N), ("reward_sums", R), ("duration_sums", times)):
        if matrix is None:
            continue
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
    if times is not None and not (np.isfinite(times.data) & (times.data >= 0.0)).all():
        raise InvalidInputError("duration_sums must be finite numbers of at least 0")
    if counts.n_at is not None:
        check_lengths(counts.n_at, n, T - 1)
    off = np.flatnonzero(N.sum(axis=1) != counts.trials_at)
    if off.size:
        raise InvalidInputError(
            f"the transitions of {counts.trials_at[off[0]]} trials at timestep {off[0]} sum to "
            f"{N[[off[0]]].sum()}: every trial has one at each timestep"
        )
    _check_flow(counts)


def _check_flow(counts: TransitionCounts) -> None:
    """Raise `InvalidInputError` unless trials leave where they came to, and are paid there."""
    S, N, T = counts.n_states, counts.transition_counts, counts.t_max + 1
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
        missing = counts.n_trials - counts.trials_at[:-1]
        unlike.data[(came <= missing)[unlike.row]] = 0
    unlike.eliminate_zeros()
    if unlike.nnz:
        t, s = int(unlike.row[0]), int(unlike.col[0])
        raise InvalidInputError(
            f"{reached[t, s]} trials reach state {s} at timestep {t}, and {left[t + 1, s]} leave "
            f"it at timestep {t + 1}: trials do not come or go"
        )
    was_in: Any = left.astype(bool)
    for name in ("reward_sums", "duration_sums"):
        sums = getattr(counts, name)
        if sums is not None and (sums.astype(bool) > was_in).nnz:
            raise InvalidInputError(f"{name} hold {name[:-5]}s of states that no trial was in")


def check_lengths(n_at: IntArray, n_trials: int, t_max: int) -> None:
    """Raise `InvalidInputError` unless trials may be as long as ``n_at`` says."""
    if (
        np.shape(n_at) != (t_max + 1,)
        or np.asarray(n_at).dtype.kind not in "iu"
        or np.max(n_at) > n_trials
        or np.min(n_at) < 0
        or (n_at[0] != n_trials and not has_gaps(n_at))
    ):
        raise InvalidInputError(
            f"n_at holds how many of {n_trials} trials have each of {t_max + 1} timesteps: all "
            f"the first one, unless they are explored there; got {n_at!r}"
        )
