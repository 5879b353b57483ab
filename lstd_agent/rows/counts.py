"""Rows of counted states: a row is a state seen at a timestep, n its visits, P what came next.

Counts come in batches of trials; a group of trials is a set of batches.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.features.rows import Kernel, Rows, are_few, dense, have_one_sum
from lstd_agent.rows.classes import RecurrentClass, main_class, recurrent_classes
from lstd_agent.rows.factors import Coordinates, Layer, Samples
from lstd_agent.trials.counted import CountedTrials, dealt
from lstd_agent.trials.kept import KeptTrials

# Number of entries held at a time; the density from which a matrix of transitions is dense.
_CHUNK, _FULL = 2**22, 0.05


class CountRows(Samples):
    """Rows of at least one batch of transition counts, and a sample of whole trials of states.

    The table (S, d) of features is zero in the terminal state.
    """

    are_places = True
    default_kernel = Kernel()  # the paper's: a Gaussian of width 1

    def __init__(
        self,
        batches: CountedTrials,
        table: Rows,
        terminal: int | None = None,
        *,
        sample: KeptTrials | None = None,
        rcond: float = 1e-10,
    ) -> None:
        self.table = self.candidate_features = table
        self.rcond, self.whole_trials = rcond, sample
        self.n_states, self.t_max = batches.n_states, batches.t_max
        self.candidates = np.arange(self.n_states)
        self._take(batches)
        seen = np.divmod(np.unique(self._moves.indices), self.n_states)
        self._set_seen(np.isin(self.candidates, seen), terminal)
        self.is_sparse = self.constant > 0.0 and are_few(table) and have_one_sum(table)

    def _set_seen(self, seen: BoolArray, terminal: int | None) -> None:
        self.seen = seen
        # A task that was never seen to end counts as continuing.
        self.terminal = terminal if terminal is not None and seen[terminal] else None
        self._main, self.constant = self.terminal, float(self.terminal is None)
        self._lives = np.arange(len(seen)) != self.terminal

    def _take(self, batches: CountedTrials) -> None:
        self.batches, self.n_trials = batches, batches.n_trials
        self._moves = batches.transition_counts.astype(np.float64)
        self._stacked = self._moves, batches.reward_sums, batches.duration_sums
        self._n_batches, self.trials_at = batches.n_batches, batches.trials_at.sum(axis=1)
        self._all = np.arange(self._n_batches)
        self._last: list[Any] = [None, None]  # a run of timesteps, and its sums
        self.models: dict[Any, Any] = {}  # those of `lstd_agent.system.model`

    def subset(self, group: IntArray) -> CountRows:
        """Return the counts of some batches: coordinates, terminal and main state are the same."""
        assert self.is_sparse or self.p  # coordinates are found once
        other = copy.copy(self)
        other._all, other.models = group, {}
        for name in ["visits", "mean_rewards", "mean_durations", "starts", "recurrent_classes"]:
            vars(other).pop(name, None)
        return other

    def dealt(self, n: int) -> CountRows:
        """Return the same counts in n groups: transitions are dealt out with a fixed seed.

        Those of Markov states are as independent as trials.
        """
        other = self.subset(self._all)
        other._take(dealt(self.batches.total, n, np.random.default_rng(0)))
        return other

    @cached_property
    def coordinates(self) -> Coordinates:
        """Orthonormal coordinates of the features of states that were seen."""
        return Coordinates.of_places(dense(self.table[self.seen]), self.rcond)

    @cached_property
    def rows(self) -> Any:
        """Rows (S, p) of all states; of sparse features the features themselves."""
        if self.is_sparse:
            return sparse.csr_array(self.table)
        return self.coordinates.of(dense(self.table), self.constant) * self._lives[:, None]

    @property
    def p(self) -> int:
        """Number of coordinates, the constant included."""
        return int(self.rows.shape[1])

    def groups(self, n: int) -> list[IntArray]:
        """Return n groups of batches."""
        return np.array_split(np.arange(self._n_batches), n)

    def sizes(self, groups: list[IntArray]) -> IntArray:
        """Return how many trials each group has."""
        return np.array([self.batches.n_by_batch[group].sum() for group in groups])

    def merged(self, start: int, stop: int, group: IntArray | None = None) -> Layer:
        """Return the layer of all states that were seen from start up to stop."""
        *numbers, P = self._sums(start, stop, None if group is None else [group])
        seen = np.flatnonzero(numbers[0])
        few = (each[seen] for each in (self.rows, *numbers, self._lives))
        return Layer(*(*few, self.rows, P[seen]))

    def layers(
        self, start: int, stop: int, groups: Sequence[IntArray] | None = None
    ) -> Iterator[Layer]:
        """Yield timesteps backwards: every state is a row, once for each group."""
        T, G = self.t_max + 1, 1 if groups is None else len(groups)
        n = G * self.n_states
        table = np.tile(self.rows, (G, 1)) if G > 1 else self.rows
        step = max(1, min(_CHUNK // n**2, T) or _CHUNK * T // max(G * self._moves.nnz, 1))
        for last in range(stop, start, -step):
            first = max(start, last - step)
            visits, rewards, times, P = self._sums(first, last, groups, by_time=True)
            is_full = (last - first) * n**2 <= min(_CHUNK, P.nnz / _FULL)
            steps: Any = P.toarray() if is_full else P
            goes_on = (visits > 0.0) & np.tile(self._lives, (last - first) * G)
            for t in reversed(range(last - first)):
                at = slice(t * n, (t + 1) * n)
                numbers = [each[at] for each in (visits, rewards, times, goes_on)]
                yield Layer(*(table, *numbers, table, steps[at]))

    def _sums(
        self, start: int, stop: int, groups: Any = None, *, by_time: bool = False
    ) -> tuple[Any, ...]:
        """Return visits, mean rewards and durations, and frequencies of rows.

        There is a row for each timestep (or one for all of them), group and state, in this order.
        """
        S, groups = self.n_states, groups or [self._all]
        G, number, members = len(groups), np.zeros(self._n_batches, int), np.concatenate(groups)
        for i, group in enumerate(groups):
            number[group] = i
        moves, paid, times = self._stacked if by_time else self._run(start, stop)
        start, stop = (start, stop) if by_time else (0, 1)
        n = (stop - start) * G * S

        def taken(matrix: Any) -> tuple[Any, Any, Any, FloatArray]:
            t, batch, place, values = self._entries(matrix, start, stop, members)
            return ((t - start) * G + number[batch]) * S, number[batch], place, values

        def means(matrix: Any) -> FloatArray:
            first, _, place, values = taken(matrix)
            sums = np.bincount(first + place, values, n)
            return np.asarray(sums / np.where(visits > 0.0, visits, 1.0))

        first, g, place, values = taken(moves)
        state, following = np.divmod(place, S)
        row, column = first + state, g * S + following
        visits: Any = np.bincount(row, values, n)
        P = sparse.csr_array((values / visits[row], (row, column)), shape=(n, G * S))
        return visits, means(paid), np.ones(n) if times is None else means(times), P

    def _run(self, start: int, stop: int) -> list[Any]:
        """Return the sums of each batch over a run of timesteps; the last ones are kept."""
        B = self._n_batches

        def summed(matrix: Any) -> Any:
            _, batch, place, values = self._entries(matrix, start, stop, np.arange(B))
            return sparse.csr_array((values, (batch, place)), shape=(B, matrix.shape[1]))

        if self._last[0] != (start, stop):  # subsets have the same list
            sums = [None if each is None else summed(each) for each in self._stacked]
            self._last[:] = (start, stop), sums
        return list(self._last[1])

    def _entries(
        self, matrix: Any, start: int, stop: int, group: IntArray | None = None
    ) -> tuple[IntArray, IntArray, IntArray, FloatArray]:
        """Return the timesteps, batches, columns and values of entries, in this order."""
        B, group = self._n_batches, self._all if group is None else group
        # SciPy's own slices take longer than all that follows.
        upto = matrix.indptr[start * B : stop * B + 1]
        t, batch = np.divmod(np.repeat(np.arange(start * B, stop * B), np.diff(upto)), B)
        place, values = matrix.indices[upto[0] : upto[-1]], matrix.data[upto[0] : upto[-1]]
        if len(group) == B:
            return t, batch, place, values
        mine = np.isin(np.arange(B), group)[batch]
        return t[mine], batch[mine], place[mine], values[mine]

    def zero(self, anchor: int) -> FloatArray | None:
        """Return the row of the main state."""
        return np.asarray(dense(self.rows[[self.main_state(anchor)]])[0])

    def main_state(self, anchor: int) -> int:
        """Return the state whose value is 0."""
        if self._main is None:
            # If most trials are cut short, a state that is left for good may have most visits.
            visits: Any = self.visits[anchor:].sum(axis=0)
            is_main = main_class(self.transitions(), visits)
            self._main = int(np.argmax(np.where(is_main, visits, -1.0)))
        return self._main

    @cached_property
    def visits(self) -> sparse.csr_array:
        """Number of visits of each state at each timestep, CSR (t_max + 1, S)."""
        t, _, place, number = self._entries(self._moves, 0, self.t_max + 1)
        shape = self.t_max + 1, self.n_states
        return sparse.csr_array((number, (t, place // self.n_states)), shape=shape)

    def sums_at(self, name: str) -> Any:
        """Return the sums of rewards or durations of timesteps, None if all are 1."""
        sums = self._stacked[1 if name == "rewards" else 2]
        return None if sums is None else sums.sum(axis=1).reshape(self.t_max + 1, -1).sum(axis=1)

    def transitions(self, start: int = 0, stop: int | None = None) -> sparse.csr_array:
        """Return the numbers of transitions (S, S) of a run of timesteps, by default of all."""
        S, stop = self.n_states, self.t_max + 1 if stop is None else stop
        *_, place, number = self._entries(self._run(start, stop)[0], 0, 1)
        return sparse.csr_array((number, np.divmod(place, S)), shape=(S, S))

    def pooled(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return visits, mean rewards and mean durations (S,) over all timesteps."""
        return self._sums(0, self.t_max + 1)[:3]

    @cached_property
    def starts(self) -> IntArray:
        """States in which trials start, the terminal one left out."""
        start = np.flatnonzero(self.visits[[0]].toarray()[0])
        return np.asarray(start[start != self.terminal])

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
        every = [self._entries(self._moves, a, b, group)[2:] for a, b in windows.tolist()]
        S = self.n_states
        return np.stack([np.bincount(place // S, number, S) for place, number in every])

    def moves_of(self, windows: IntArray, segments: Any = None) -> Callable[[IntArray], FloatArray]:
        """As `samples_of`, but consecutive visits of a state count once."""
        visits = self._visits_in(windows)
        left = visits - [self.transitions(a, b).diagonal() for a, b in windows.tolist()]
        left = np.where(left > 0.0, left, visits)
        return lambda states: np.asarray(left[:, states])

    @cached_property
    def recurrent_classes(self) -> list[RecurrentClass]:
        """The recurrent classes that the second half of all timesteps shows."""
        return recurrent_classes(self.transitions((self.t_max + 1) // 2))
