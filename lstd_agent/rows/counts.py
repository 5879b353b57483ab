"""Rows of counted states: a row is a state seen at a timestep, n its visits, P what came next.

Counts do not depend on features, so that one collection serves every feature set, every number of
anchors and every gain. They come in batches of trials. What is asked of a group of trials is asked
of the sum of its batches.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add
from typing import Any

import numpy as np
from scipy import sparse

from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.features.kernels import Kernel
from lstd_agent.features.rows import Rows, dense, is_sparse
from lstd_agent.rows.classes import RecurrentClass, recurrent_classes
from lstd_agent.rows.layers import Coordinates, Layer, orthonormal, root_mean_squares
from lstd_agent.trials.counts import TransitionCounts
from lstd_agent.trials.kept import KeptTrials

# Features are many and sparse if there are so many, of which so small a part is not zero.
FEWEST_SPARSE, LARGEST_DENSITY = 500, 0.02

# What is kept of rows, and is not that of some of their batches.
_OF_TRIALS = ("visits", "trials_at", "mean_rewards", "mean_durations", "starts")

# So many numbers of transitions are held at a time.
_CHUNK = 2**22


class CountRows:
    """Rows of transition counts; see `lstd_agent.rows.layers.Samples`.

    Parameters
    ----------
    batches : sequence of TransitionCounts
        Of the same states and timesteps, at least one.
    table : ndarray or csr_array, shape (S, d)
        Features of states; those of the terminal state are zero.
    terminal : int, optional
        The terminal state, where tasks end. It counts only if a trial was in it.
    main : int, optional
        The state whose value is 0; by default the one that the last window visits most.
    sample : KeptTrials, optional
        Some whole trials, of state numbers.
    rcond : float
        Relative cutoff of the size of features.
    """

    are_places = True
    candidates_are = "state"
    default_kernel = Kernel()  # the paper's: a Gaussian of width 1

    def __init__(
        self,
        batches: Sequence[TransitionCounts],
        table: Rows,
        terminal: int | None = None,
        *,
        main: int | None = None,
        sample: KeptTrials | None = None,
        rcond: float = 1e-10,
    ) -> None:
        self.batches = list(batches)
        self.rcond, self.whole_trials = rcond, sample
        self.n_states, self.t_max = batches[0].n_states, batches[0].t_max
        self._trials = np.array([batch.n_trials for batch in batches])
        self.n_trials = int(self._trials.sum())
        self._moves = _Entries.of([batch.transition_counts for batch in batches])
        self._paid = _Entries.of([batch.reward_sums for batch in batches])
        times = [batch.duration_sums for batch in batches if batch.duration_sums is not None]
        self._times = _Entries.of(times) if times else None
        state, following = np.divmod(self._moves.place, self.n_states)
        self.seen: BoolArray = np.zeros(self.n_states, dtype=bool)
        self.seen[state] = self.seen[following] = True
        # A task that was never seen to end is like any other.
        self.terminal = terminal if terminal is not None and self.seen[terminal] else None
        self.constant = float(self.terminal is None)
        self._lives = np.arange(self.n_states) != self.terminal
        self._main = main if self.terminal is None else self.terminal
        self.table = table
        self.is_sparse = self.constant > 0.0 and _is_sparse_table(table)

    @cached_property
    def coordinates(self) -> Coordinates:
        """Orthonormal coordinates of the features of states that were seen."""
        seen = dense(self.table[self.seen])
        turn = orthonormal(seen, self.rcond)
        return Coordinates(turn, True, root_mean_squares(seen, len(seen)))

    @cached_property
    def rows(self) -> Any:
        """Rows (S, p) of all states; of sparse features the features themselves."""
        if self.is_sparse:
            return sparse.csr_array(self.table)
        rows = self.coordinates.of(dense(self.table), self.constant)
        return rows * self._lives[:, None]

    @property
    def p(self) -> int:
        """Number of coordinates, the constant included."""
        return int(self.rows.shape[1])

    def groups(self, n: int) -> list[IntArray]:
        """Return n groups of batches."""
        return np.array_split(np.arange(len(self.batches)), n)

    def sizes(self, groups: list[IntArray]) -> IntArray:
        """Return how many trials each group has."""
        return np.array([self._trials[group].sum() for group in groups])

    def subset(self, group: IntArray) -> CountRows:
        """Return the rows of some batches, with the same coordinates and main state."""
        other = copy.copy(self)
        for name in (*_OF_TRIALS, "recurrent_classes"):
            vars(other).pop(name, None)
        if not self.is_sparse:
            vars(other).update(coordinates=self.coordinates, rows=self.rows)
        other.batches = [self.batches[b] for b in group]
        other._trials = self._trials[group]
        other.n_trials = int(other._trials.sum())
        T = self.t_max + 1
        other._moves = self._moves.between(0, T, group).renumbered(group)
        other._paid = self._paid.between(0, T, group).renumbered(group)
        if self._times is not None:
            other._times = self._times.between(0, T, group).renumbered(group)
        return other

    def merged(self, start: int, stop: int, group: IntArray | None = None) -> Iterator[Layer]:
        """Yield one layer, of all states that were seen from start up to stop."""
        S = self.n_states
        moves, paid = (
            self._moves.between(start, stop, group),
            self._paid.between(start, stop, group),
        )
        state, following = np.divmod(moves.place, S)
        visits = np.bincount(state, moves.number, S).astype(np.float64)
        rewards, times = np.bincount(paid.place, paid.number, S), visits
        if self._times is not None:
            spent = self._times.between(start, stop, group)
            times = np.bincount(spent.place, spent.number, S).astype(np.float64)
        seen = np.flatnonzero(visits)
        row = np.cumsum(visits > 0) - 1
        shares = moves.number / visits[state]
        P = sparse.csr_array((shares, (row[state], following)), shape=(len(seen), S))
        yield Layer(
            self.rows[seen],
            visits[seen],
            rewards[seen] / visits[seen],
            times[seen] / visits[seen],
            self._lives[seen],
            self.rows,
            P,
        )

    def layers(
        self, start: int, stop: int, groups: Sequence[IntArray] | None = None
    ) -> Iterator[Layer]:
        """Yield timesteps backwards: every state is a row, once for each group."""
        parts = [None] if groups is None else list(groups)
        S, T, G = self.n_states, self.t_max + 1, len(parts)
        n = G * S
        table = np.tile(self.rows, (G, 1)) if G > 1 else self.rows
        lives = np.tile(self._lives, G)
        step = max(1, min(_CHUNK // n**2, T) or _CHUNK * T // max(G * len(self._moves.t), 1))
        for last in range(stop, start, -step):
            first = max(start, last - step)
            visits, rewards, times, P = self._chunk(first, last, parts)
            steps: Any = P.toarray() if (last - first) * n**2 <= _CHUNK else P
            for t in reversed(range(last - first)):
                at = slice(t * n, (t + 1) * n)
                goes_on = (visits[at] > 0.0) & lives
                numbers = visits[at], rewards[at], times[at]
                yield Layer(table, *numbers, goes_on, table, steps[at])

    def _chunk(
        self, start: int, stop: int, groups: Sequence[IntArray | None]
    ) -> tuple[FloatArray, FloatArray, FloatArray, sparse.csr_array]:
        """Return visits, mean rewards and durations, and frequencies of rows.

        Rows are by timestep, group and state.
        """
        S, G = self.n_states, len(groups)
        n = (stop - start) * G * S
        rewards, times = np.zeros(n), np.zeros(n)
        row, column, number = [], [], []
        for g, group in enumerate(groups):
            moves, paid = (each.between(start, stop, group) for each in (self._moves, self._paid))
            state, following = np.divmod(moves.place, S)
            row.append(((moves.t - start) * G + g) * S + state)
            column.append(g * S + following)
            number.append(moves.number)
            rewards += np.bincount(((paid.t - start) * G + g) * S + paid.place, paid.number, n)
            if self._times is not None:
                spent = self._times.between(start, stop, group)
                place = ((spent.t - start) * G + g) * S + spent.place
                times += np.bincount(place, spent.number, n)
        rows, columns, numbers = (np.concatenate(each) for each in (row, column, number))
        visits = np.bincount(rows, numbers, n).astype(np.float64)
        P = sparse.csr_array((numbers / visits[rows], (rows, columns)), shape=(n, G * S))
        seen = np.where(visits > 0.0, visits, 1.0)
        times = np.ones(n) if self._times is None else times / seen
        return visits, rewards / seen, times, P

    def zero(self, anchor: int) -> FloatArray | None:
        """Return the row of the main state."""
        return np.asarray(dense(self.rows[[self.main_state(anchor)]])[0])

    def main_state(self, anchor: int) -> int:
        """Return the state whose value is 0: of those that the last window visits most."""
        if self._main is None:
            visits = self.visits[anchor:].sum(axis=0)
            self._main = int(np.argmax(visits))
        return self._main

    @cached_property
    def visits(self) -> sparse.csr_array:
        """Number of visits of each state at each timestep, CSR (t_max + 1, S)."""
        moves = self._moves
        shape = (self.t_max + 1, self.n_states)
        return sparse.csr_array(
            (moves.number, (moves.t, moves.place // self.n_states)), shape=shape
        )

    @cached_property
    def trials_at(self) -> IntArray:
        """How many trials have each timestep, shape (t_max + 1,)."""
        return np.asarray(sum(batch.trials_at for batch in self.batches))

    @cached_property
    def mean_rewards(self) -> FloatArray:
        """Mean reward of each timestep, shape (t_max + 1,)."""
        sums = np.bincount(self._paid.t, self._paid.number, self.t_max + 1)
        return np.asarray(sums / np.maximum(self.trials_at, 1))

    @cached_property
    def mean_durations(self) -> FloatArray:
        """Mean duration of each timestep, shape (t_max + 1,)."""
        if self._times is None:
            return np.ones(self.t_max + 1)
        sums = np.bincount(self._times.t, self._times.number, self.t_max + 1)
        return np.asarray(sums / np.maximum(self.trials_at, 1))

    def transitions(self, start: int = 0, stop: int | None = None) -> sparse.csr_array:
        """Return the numbers of transitions (S, S) of a run of timesteps, by default of all."""
        S = self.n_states
        moves = self._moves.between(start, self.t_max + 1 if stop is None else stop, None)
        return sparse.csr_array((moves.number, np.divmod(moves.place, S)), shape=(S, S))

    def reward_sums(self) -> FloatArray:
        """Return the sums of rewards (S,) of each state over all timesteps."""
        sums = np.bincount(self._paid.place, self._paid.number, self.n_states)
        return sums.astype(np.float64)

    def step_durations(self) -> FloatArray:
        """Return the mean duration (S,) of steps from each state over all timesteps."""
        if self._times is None:
            return np.ones(self.n_states)
        sums = np.bincount(self._times.place, self._times.number, self.n_states)
        return np.asarray(sums / np.maximum(np.asarray(self.visits.sum(axis=0)), 1.0))

    @cached_property
    def starts(self) -> IntArray:
        """States in which trials start, the terminal one left out."""
        start = np.flatnonzero(self.visits[[0]].toarray()[0])
        return np.asarray(start[start != self.terminal])

    @property
    def candidate_features(self) -> Rows:
        """Features (S, d) of candidate reference states: of all states."""
        return self.table

    def candidate(self, index: int) -> int:
        """Return a candidate reference state as it is encoded."""
        return index

    def trial_features(self, most: int) -> tuple[Any, IntArray]:
        """Return the states (m, t_max + 1) of the whole trials, and their lengths (m,)."""
        if self.whole_trials is None:
            return np.zeros((0, self.t_max + 1), dtype=np.int64), np.zeros(0, dtype=np.int64)
        return self.whole_trials.observations[:, :-1], self.whole_trials.all_lengths

    def occupancy(self, windows: IntArray, segments: Any = None) -> FloatArray:
        """Return each state's visiting frequency in each window, (n, S); 0 without any trial."""
        visits = self._visits_in(windows)
        return np.asarray(visits / np.maximum(visits.sum(axis=1, keepdims=True), 1.0))

    def samples_of(
        self, windows: IntArray, segments: Any = None, group: IntArray | None = None
    ) -> Callable[[IntArray], FloatArray]:
        """Return the function that gives the visits (n, m) of states (m,) in each window."""
        visits = self._visits_in(windows, group)
        return lambda states: np.asarray(visits[:, states])

    def _visits_in(self, windows: IntArray, group: IntArray | None = None) -> FloatArray:
        """Return the visits (n, S) of each state in each window."""
        found = []
        for start, stop in windows.tolist():
            moves = self._moves.between(start, stop, group)
            found.append(np.bincount(moves.place // self.n_states, moves.number, self.n_states))
        return np.stack(found)

    def moves_of(self, windows: IntArray, segments: Any = None) -> Callable[[IntArray], FloatArray]:
        """Return the function that gives how many samples tell what comes after states, (n, m).

        Visits in a row of a state that is hard to leave tell that once.
        """
        visits, moves = self._visits_in(windows), []
        for start, stop in windows.tolist():
            stays = self.transitions(start, stop).diagonal()
            moves.append(stays)
        left = visits - np.stack(moves)
        left = np.where(left > 0.0, left, visits)
        return lambda states: np.asarray(left[:, states])

    @cached_property
    def recurrent_classes(self) -> list[RecurrentClass]:
        """The recurrent classes that the second half of all timesteps shows."""
        return recurrent_classes(self.transitions((self.t_max + 1) // 2))

    @property
    def total(self) -> TransitionCounts:
        """The counts of all batches."""
        return reduce(add, self.batches)

    def dealt(self, n: int) -> CountRows:
        """Return the same counts in n groups, to hold some against others.

        Transitions are dealt out at random, always alike: those of Markov states are as
        independent as trials.
        """
        other = CountRows(
            _dealt(self.total, n, np.random.default_rng(0)),
            self.table,
            self.terminal,
            main=self._main,
            sample=self.whole_trials,
            rcond=self.rcond,
        )
        if not self.is_sparse:
            vars(other).update(coordinates=self.coordinates, rows=self.rows)
        return other


def _is_sparse_table(table: Rows) -> bool:
    """Tell whether features are many and sparse, and sum to the same for each state.

    As tiles and states do: then they can represent a constant.
    """
    S, d = table.shape
    if d < FEWEST_SPARSE:
        return False
    n_nonzero = table.nnz if is_sparse(table) else np.count_nonzero(table)
    if n_nonzero > LARGEST_DENSITY * S * d:
        return False
    total = np.asarray(table.sum(axis=1))
    return bool(total[0] != 0.0 and np.allclose(total, total[0], rtol=1e-12))


@dataclass(frozen=True, eq=False)
class _Entries:
    """Entries of the sparse matrices of batches, in order of their timestep."""

    t: IntArray
    batch: IntArray
    place: IntArray
    number: FloatArray

    @classmethod
    def of(cls, matrices: Sequence[Any]) -> _Entries:
        t = np.concatenate([np.repeat(np.arange(M.shape[0]), np.diff(M.indptr)) for M in matrices])
        batch = np.repeat(np.arange(len(matrices)), [M.nnz for M in matrices])
        order = np.argsort(t, kind="stable")
        place = np.concatenate([M.indices for M in matrices])[order].astype(np.int64)
        number = np.concatenate([M.data for M in matrices])[order].astype(np.float64)
        return cls(t[order], batch[order], place, number)

    def between(self, start: int, stop: int, batches: IntArray | None) -> _Entries:
        first, last = np.searchsorted(self.t, (start, stop))
        part: Any = slice(first, last)
        if batches is not None:
            n = max(int(self.batch.max(initial=0)), int(batches.max(initial=0))) + 1
            wanted = np.zeros(n, dtype=bool)
            wanted[batches] = True
            part = first + np.flatnonzero(wanted[self.batch[part]])
        return _Entries(self.t[part], self.batch[part], self.place[part], self.number[part])

    def renumbered(self, batches: IntArray) -> _Entries:
        """Return the same with the numbers of batches among those given, ascending ones."""
        return _Entries(self.t, np.searchsorted(batches, self.batch), self.place, self.number)


def _dealt(counts: TransitionCounts, n: int, rng: np.random.Generator) -> list[TransitionCounts]:
    """Deal transitions out to n groups, and rewards and durations with the visits they are of."""
    N, R, D = counts.transition_counts, counts.reward_sums, counts.duration_sums
    S = counts.n_states
    dealt = rng.multinomial(N.data, np.full(n, 1.0 / n)).T
    t = np.repeat(np.arange(N.shape[0]), np.diff(N.indptr))
    rows, row = np.unique(t * S + N.indices // S, return_inverse=True)
    places = []
    held = [R] if D is None else [R, D]
    for M in held:
        entries = np.repeat(np.arange(M.shape[0]), np.diff(M.indptr)) * S + M.indices
        places.append(np.searchsorted(rows, entries))
    visits = np.bincount(row, weights=N.data).astype(np.float64)
    groups = []
    for part in dealt:
        share = np.bincount(row, weights=part)
        # Zeros are taken out in place, so that what the counts are made of is copied first.
        transitions = sparse.csr_array((part, N.indices, N.indptr), shape=N.shape, copy=True)
        transitions.eliminate_zeros()
        sums = []
        for M, place in zip(held, places, strict=True):
            data = M.data * (share[place] / visits[place])
            sums.append(sparse.csr_array((data, M.indices, M.indptr), shape=M.shape, copy=True))
            sums[-1].eliminate_zeros()
        n_at = np.asarray(transitions.sum(axis=1))
        rewards, *times = sums
        groups.append(TransitionCounts(S, int(n_at.max()), transitions, rewards, n_at, *times))
    return groups
