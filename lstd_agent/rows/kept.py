"""Rows of kept trials: a row is a trial at a timestep, followed by the same trial."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.features.kernels import Kernel
from lstd_agent.features.rows import Rows, RowsOf, dense, is_sparse
from lstd_agent.rows.christoffel import MIN_SAMPLES, Christoffel
from lstd_agent.rows.counts import FEWEST_SPARSE, LARGEST_DENSITY, CountRows
from lstd_agent.rows.factors import total
from lstd_agent.rows.layers import Coordinates, Layer, Samples
from lstd_agent.trials.counted import Batches
from lstd_agent.trials.encoding import CountedEncoding, Encoding
from lstd_agent.trials.kept import KeptTrials

N_CANDIDATES = 200
"""How many observations are candidate reference states."""

# About so many observations are processed at a time.
_CHUNK = 8192

# At least this many features are reduced to coordinates, if these are far fewer: smaller singular
# values, relative to the largest, are then rounding.
_MANY, _LARGEST_SHARE, _ROUNDING = 500, 0.7, 1e-7


class TrialRows(Samples):
    """Rows of kept trials.

    The order of trials is independent of their content, so groups are runs of trials. ``features``
    maps encoded observations (n, k) to features (n, d), dense or CSR, zero where a trial is over.
    If a task ``ends``, observations are NaN from the end on. Features of all observations are kept
    if they take no more than ``max_bytes``.
    """

    are_places = False
    candidates_are = "index of a stored observation"
    default_kernel = Kernel(width="median")  # the distance between candidates
    visits = None  # vectors are not counted
    recurrent_classes = ()

    def __init__(
        self,
        trials: KeptTrials,
        features: RowsOf,
        ends: bool = False,
        max_bytes: int = 2**30,
        rcond: float = 1e-10,
    ) -> None:
        self.trials = self.whole_trials = trials
        self.features, self._max_bytes = features, max_bytes
        self.rcond = float(np.sqrt(rcond))  # of features, where rcond is of their squares
        m, n = trials.rewards.shape
        self.t_max, self.n_trials = n - 1, m
        self._is_whole, times = trials.own is None, trials.durations
        self.own: BoolArray = np.ones((m, n), dtype=bool) if trials.own is None else trials.own
        self.trials_at = np.asarray(self.own.sum(axis=0))
        self._durations = np.broadcast_to(1.0, (m, n)) if times is None else times
        ended = np.isnan(trials.observations).any(axis=2) if ends else np.zeros(0, dtype=bool)
        self._ended: BoolArray | None = ended if ended.any() else None
        self.constant = float(self._ended is None)
        self.terminal = None if self._ended is None else 0  # among the candidates
        probe = features(trials.observations[: min(m, 64), 0])
        d = probe.shape[1]
        is_thin = is_sparse(probe) and probe.nnz <= LARGEST_DENSITY * probe.shape[0] * d
        self.is_sparse = bool(is_thin and d >= FEWEST_SPARSE)
        self._d, self._k = d, int(trials.observations.shape[2])

    @cached_property
    def _prepared(self) -> tuple[Coordinates, FloatArray | None]:
        """Features divided by their root mean squares; many redundant ones are reduced.

        Rows (m, t_max + 2, p) of all observations too, if there is room for them.
        """
        d, n, m = self._d, self.t_max + 2, self.n_trials
        squares, gram = np.zeros(d), np.zeros((d, d)) if d >= _MANY else None
        raw = np.empty((m, n, d + 1)) if m * n * (d + 1) * 8 <= self._max_bytes else None
        for part in self._parts(slice(0, m), n):
            f = self._raw(part, 0, n)
            squares += np.einsum("mt,mtd->d", self.own[part].astype(np.float64), f[:, :-1] ** 2)
            if raw is not None:
                raw[part, :, :d] = f
            if gram is not None:
                rows = f.reshape(-1, d)
                gram += rows.T @ rows
        size = np.sqrt(squares / max(1, np.count_nonzero(self.own)))
        size = np.where(size > 1e-100, size, 1.0)
        if gram is not None:
            values, U = np.linalg.eigh(gram / np.outer(size, size))
            keep = values > _ROUNDING**2 * values[-1]
            if keep.mean() < _LARGEST_SHARE:
                fewer, raw = Coordinates(U[:, keep] / size[:, None], size), None
                if m * n * (keep.sum() + 1) * 8 > self._max_bytes:
                    return fewer, None
                parts = self._parts(slice(0, m), n)
                held = [fewer.of(self._raw(part, 0, n), self.constant) for part in parts]
                return fewer, np.concatenate(held)
        if raw is not None:  # features are computed once
            raw[:, :, :d] /= size
            raw[:, :, d] = self.constant
        return Coordinates(1.0 / size, size), raw

    @property
    def coordinates(self) -> Coordinates:
        """Coordinates in which features are of about size 1."""
        return self._prepared[0]

    @property
    def p(self) -> int:
        """Number of coordinates, the constant included."""
        return int(self._d) if self.is_sparse else int(self.coordinates.turn.shape[-1]) + 1

    @cached_property
    def sparse_rows(self) -> sparse.csr_array:
        """Features of all observations, trial by trial, CSR (m (t_max + 2), d)."""
        observations = self.trials.observations
        parts = [
            sparse.csr_array(self.features(observations[part].reshape(-1, self._k)))
            for part in self._parts(slice(0, self.n_trials), self.t_max + 2)
        ]
        return sparse.csr_array(sparse.vstack(parts, format="csr"))

    def _parts(self, trials: slice, width: int) -> Iterator[slice]:
        step = max(1, _CHUNK // width)
        for first in range(trials.start, trials.stop, step):
            yield slice(first, min(first + step, trials.stop))

    def _raw(self, part: slice, start: int, stop: int) -> FloatArray:
        """Return features (trials, timesteps, d)."""
        seen = self.trials.observations[part, start:stop]
        m, n, k = seen.shape
        return dense(self.features(seen.reshape(m * n, k))).reshape(m, n, -1)

    def _rows(self, part: slice, start: int, stop: int) -> FloatArray:
        """Return rows (trials, timesteps, p)."""
        coordinates, held = self._prepared
        if held is not None:
            return held[part, start:stop]
        return coordinates.of(self._raw(part, start, stop), self.constant)

    def groups(self, n: int) -> list[slice]:
        """Return n runs of trials."""
        edges = [i * self.n_trials // n for i in range(n + 1)]
        return [slice(a, b) for a, b in pairwise(edges)]

    def sizes(self, groups: list[slice]) -> IntArray:
        """Return how many trials each group has."""
        return np.array([group.stop - group.start for group in groups])

    def merged(self, start: int, stop: int, group: slice | None = None) -> Iterator[Layer]:
        """Yield layers of the transitions of some trials at a time."""
        trials = slice(0, self.n_trials) if group is None else group
        if self.is_sparse:
            trial, t = np.nonzero(self.own[trials, start:stop])
            trial, t = trial + trials.start, t + start
            numbers = self.trials.rewards[trial, t], self._durations[trial, t]
            place, one = trial * (self.t_max + 2) + t, np.ones(len(t))
            pairs = self.sparse_rows[place], self.sparse_rows[place + 1]
            yield Layer(pairs[0], one, *numbers, one > 0.0, pairs[1], None)
            return
        for part in self._parts(trials, stop - start + 1):
            rows, own = self._rows(part, start, stop + 1), self.own[part, start:stop]
            rewards, times = (
                self.trials.rewards[part, start:stop],
                self._durations[part, start:stop],
            )
            f, following = rows[:, :-1], rows[:, 1:]
            if self._is_whole:  # much faster than a mask
                f, following = f.reshape(-1, self.p), following.reshape(-1, self.p)
            else:
                f, following = f[own], following[own]
            one = np.ones(len(f))
            yield Layer(f, one, rewards[own], times[own], one > 0.0, following, None)

    def layers(self, start: int, stop: int, groups: Any = None) -> Iterator[Layer]:
        """Yield timesteps backwards, every trial a row: of all groups, one after the other."""

        def rows_at(t: int) -> FloatArray:
            parts = self._parts(slice(0, self.n_trials), 1)
            return np.concatenate([self._rows(part, t, t + 1)[:, 0] for part in parts])

        following = rows_at(stop)
        for t in reversed(range(start, stop)):
            rows, own = rows_at(t), self.own[:, t]
            goes_on = own if self._ended is None else own & ~self._ended[:, t]
            numbers = own.astype(np.float64), self.trials.rewards[:, t], self._durations[:, t]
            yield Layer(rows, *numbers, goes_on, following, None)
            following = rows

    def zero(self, anchor: int) -> FloatArray | None:
        """Return None (the mean of the tail) or, in tasks that end, the terminal state."""
        return None if self.constant else np.zeros(self.p)

    def sums_at(self, name: str) -> Any:
        """Return the sums of rewards or durations of timesteps, None if all are 1."""
        numbers = self.trials.rewards if name == "rewards" else self.trials.durations
        return None if numbers is None else numbers.sum(axis=0, where=self.own)

    @cached_property
    def candidates(self) -> NDArray[Any]:
        """Candidate reference states (M, k), chosen from the trials, each in turn.

        Half of them are at evenly spaced timesteps and half at logarithmically spaced ones, since
        transients are short. The terminal state (NaN), if any, comes first.
        """
        observations, lengths = self.trials.observations, self.trials.all_lengths
        m, n_timesteps = self.n_trials, self.t_max + 1
        n = min(N_CANDIDATES, m * n_timesteps)
        even = np.linspace(0, n_timesteps - 1, n - n // 2)
        early = np.geomspace(1, n_timesteps, n // 2) - 1
        timestep = np.concatenate((even, early)).astype(np.int64)
        trial = np.arange(n) % m
        chosen = observations[trial, timestep][timestep < lengths[trial]]
        # Keep duplicates once.
        living = np.unique(chosen[np.isfinite(chosen).all(axis=1)], axis=0)
        if self._ended is None:
            return living
        return np.concatenate((np.full((1, self._k), np.nan), living))

    @cached_property
    def candidate_features(self) -> Rows:
        """Features (M, d) of the candidates."""
        return self.features(self.candidates)

    def candidate(self, index: int) -> Any:
        """Return a candidate reference state as it is encoded."""
        return self.candidates[index]

    @cached_property
    def starts(self) -> NDArray[Any]:
        """Observations (n, k) in which trials start, of some hundred trials."""
        return np.unique(self.trials.observations[:N_CANDIDATES, 0].astype(np.float64), axis=0)

    def trial_features(self, most: int) -> tuple[Any, IntArray]:
        """Return features (m, t_max + 1, d) of the first trials, and their lengths (m,)."""
        m = min(self.n_trials, max(2, most // (self._d * (self.t_max + 1))))
        return self._raw(slice(0, m), 0, self.t_max + 1), self.trials.all_lengths[:m]

    def occupancy(self, windows: IntArray, segments: Any) -> FloatArray:
        """Return the share (n, M) of each window's samples at each candidate."""
        found = self.samples_of(windows, segments)(self.candidates)
        return np.asarray(found / np.maximum(self._n_samples(windows), 1)[:, None])

    def samples_of(
        self, windows: IntArray, segments: Any, group: Any = None
    ) -> Callable[[NDArray[Any]], FloatArray]:
        """Return the function that gives the number of samples (n, m) of observations (m, k).

        By the Christoffel function of each window; 0 where it is below ten. ``segments`` are
        factors, or solved windows of sparse features, of the trials to count.
        """
        if self.is_sparse:

            def sparse_samples(states: NDArray[Any]) -> FloatArray:
                rows = sparse.csr_array(self.features(states))
                shares = [each.window.occupancy(rows) for each in segments]
                return np.asarray(np.stack(shares) * self._n_samples(windows)[:, None])

            return sparse_samples
        of_windows = [
            Christoffel.of(total(segments.between(start, stop)).reduced(self.p, 1e-7).A)
            for start, stop in windows.tolist()
        ]

        def samples(states: NDArray[Any]) -> FloatArray:
            rows = self.coordinates.of(dense(self.features(states)), self.constant)
            found = np.stack([of_window.samples(rows) for of_window in of_windows])
            return np.where(found >= MIN_SAMPLES, found, 0.0)

        return samples

    moves_of = samples_of

    def _n_samples(self, windows: IntArray) -> IntArray:
        before = np.append(0, np.cumsum(self.trials_at))
        return np.asarray(before[windows[:, 1]] - before[windows[:, 0]])

    def some_of(self, start: int, stop: int, most: int) -> NDArray[Any]:
        """Return at most so many observations (n, k) of a window, spread over it."""
        trial, t = np.nonzero(self.own[:, start:stop])
        few = slice(None, None, max(1, len(trial) // most))
        seen = self.trials.observations[trial[few], start + t[few]]
        return np.asarray(seen[np.isfinite(seen).all(axis=1)] if seen.dtype.kind == "f" else seen)


def rows_of(batches: Batches, encoding: Encoding, rcond: float) -> CountRows | TrialRows:
    """Return the rows of at least one trial, by the features of its encoded observations."""
    if isinstance(encoding, CountedEncoding):
        terminal = encoding.terminal if encoding.ends else None
        sample = None if batches.sample is None else batches.sample.trials
        return CountRows(batches.sums, encoding.table_rows, terminal, sample=sample, rcond=rcond)
    return TrialRows(batches.total, encoding.rows, encoding.ends, batches.max_bytes, rcond)
