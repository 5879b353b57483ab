"""Rows of kept trials: a row is a trial at a timestep, followed by the same trial."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.features.rows import Kernel, Rows, RowsOf, are_few, dense, is_sparse
from lstd_agent.rows.counts import CountRows
from lstd_agent.rows.factors import MIN_SAMPLES, Christoffel, Coordinates, Layer, Samples, total
from lstd_agent.trials.counted import Batches
from lstd_agent.trials.encoding import CountedEncoding, Encoding
from lstd_agent.trials.kept import KeptTrials

# How many observations are candidate reference states, and about how many are processed at a time.
_N_CANDIDATES, _CHUNK = 200, 8192

# At least this many features are reduced to coordinates, if these are far fewer: smaller singular
# values, relative to the largest, are then rounding.
_MANY, _LARGEST_SHARE, _ROUNDING = 500, 0.7, 1e-7


class TrialRows(Samples):
    """Rows of kept trials, whose order is independent of their content: groups are runs of them.

    ``features`` maps encoded observations (n, k) to features (n, d), dense or CSR, zero where a
    trial is over. If a task ``ends``, observations are NaN from the end on. Features of all
    observations are kept if they take no more than ``max_bytes``.
    """

    are_places = False
    default_kernel = Kernel(width="median")  # the distance between candidates
    visits, recurrent_classes = None, ()  # vectors are not counted

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
        own, times = trials.own, trials.durations
        self.own: BoolArray = np.ones((m, n), dtype=bool) if own is None else own
        self.trials_at = np.asarray(self.own.sum(axis=0))
        self.durations = np.broadcast_to(1.0, (m, n)) if times is None else times
        is_over = np.isnan(trials.observations).any(axis=2) if ends else np.zeros((m, n + 1), bool)
        self._is_over: BoolArray = is_over
        self.constant = float(not is_over.any())
        self.terminal = None if self.constant else 0  # among the candidates
        probe = features(trials.observations[:64, 0])
        self._d, self._k = probe.shape[1], int(trials.observations.shape[2])
        self.is_sparse = is_sparse(probe) and are_few(probe)

    @cached_property
    def _prepared(self) -> tuple[Coordinates, FloatArray | None]:
        """Coordinates of size 1; and if there is room all features, or fewer coordinates."""
        d, n, m = self._d, self.t_max + 2, self.n_trials
        squares, gram = np.zeros(d), np.zeros((d, d)) if d >= _MANY else None
        raw = np.empty((n, m, d)) if m * n * d * 8 <= self._max_bytes else None
        for part in self.parts(slice(0, m), n):
            f = self._raw(part, 0, n)
            squares += self.own[part].T.ravel() @ np.square(f[:-1]).reshape(-1, d)
            if raw is not None:
                raw[:, part] = f
            if gram is not None:
                gram += f.reshape(-1, d).T @ f.reshape(-1, d)
        size = np.sqrt(squares / max(1, np.count_nonzero(self.own)))
        size = np.where(size > 1e-100, size, 1.0)
        if gram is not None:
            values, U = np.linalg.eigh(gram / np.outer(size, size))
            keep = values > _ROUNDING**2 * values[-1]
            if keep.mean() < _LARGEST_SHARE:
                fewer = Coordinates(U[:, keep] / size[:, None], size)
                have_room = m * n * (keep.sum() + 1) * 8 <= self._max_bytes
                parts = self.parts(slice(0, m), n) if have_room else []
                held = [fewer.of(self._raw(part, 0, n), self.constant) for part in parts]
                return fewer, np.concatenate(held, axis=1) if held else None
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
        parts = self.parts(slice(0, self.n_trials), self.t_max + 2)
        rows = [self.features(observations[part].reshape(-1, self._k)) for part in parts]
        return sparse.csr_array(sparse.vstack([sparse.csr_array(x) for x in rows], format="csr"))

    def parts(self, trials: slice, width: int) -> list[slice]:
        """Return runs of trials, of which so many timesteps are processed at a time."""
        n, step = trials.stop, max(1, _CHUNK // width)
        return [slice(i, min(i + step, n)) for i in range(trials.start, n, step)]

    def _raw(self, part: slice, start: int, stop: int) -> FloatArray:
        """Return features (timesteps, trials, d)."""
        seen = self.trials.observations[part, start:stop].swapaxes(0, 1)
        return dense(self.features(seen.reshape(-1, self._k))).reshape(*seen.shape[:2], -1)

    def rows_between(self, part: slice, start: int, stop: int) -> FloatArray:
        """Return rows (timesteps, trials, p)."""
        coordinates, held = self._prepared
        if held is not None and coordinates.turn.ndim > 1:
            return held[start:stop, part]
        features = self._raw(part, start, stop) if held is None else held[start:stop, part]
        return coordinates.of(features, self.constant)

    def some_features(self, trials: slice, stop: int, columns: slice) -> FloatArray:
        """Return columns (stop, n, c) of the features of some trials."""
        start, end, every = trials.indices(self.n_trials)
        if self.is_sparse:
            some = self.sparse_rows[: end * (self.t_max + 2), columns].toarray()
            return np.asarray(some.reshape(end, self.t_max + 2, -1)[trials, :stop].swapaxes(0, 1))
        coordinates, held = self._prepared
        if held is not None and coordinates.turn.ndim == 1:
            return held[:stop, trials, columns]
        step = every * max(1, _CHUNK // stop)
        parts = [slice(i, min(i + step, end), every) for i in range(start, end, step)]
        return np.concatenate([self._raw(part, 0, stop)[..., columns] for part in parts], axis=1)

    def values(self, weights: Sequence[FloatArray], anchors: IntArray) -> FloatArray:
        """Return values (t_max + 2, m) by weights (p,) of windows from the anchors on."""
        m, n = self.n_trials, self.t_max + 2
        found = np.empty((n, m))
        for w, (start, stop) in zip(weights, pairwise([*anchors.tolist(), n]), strict=True):
            if self.is_sparse:
                found[start:stop] = (self.sparse_rows @ w[:-1]).reshape(m, n)[:, start:stop].T
            for part in [] if self.is_sparse else self.parts(slice(0, m), stop - start):
                found[start:stop, part] = self.rows_between(part, start, stop)[..., :-1] @ w[:-1]
            found[start:stop] += w[-1]
        return found

    def surprises(self, values: FloatArray, gain: float) -> FloatArray:
        """Return errors r - g τ + v' - v of single steps by values, both (t_max + 2, m)."""
        found = np.zeros(values.shape)
        paid = self.trials.rewards - gain * self.durations
        found[:-1] = self.own.T * (paid.T + values[1:] - values[:-1])
        return found

    def groups(self, n: int) -> list[slice]:
        """Return n runs of trials."""
        return [slice(*run) for run in pairwise(i * self.n_trials // n for i in range(n + 1))]

    def sizes(self, groups: list[slice]) -> IntArray:
        """Return how many trials each group has."""
        return np.array([group.stop - group.start for group in groups])

    def merged(self, start: int, stop: int, group: slice | None = None) -> Layer:
        """Return the layer of the transitions of some trials, with sparse features."""
        trials = slice(0, self.n_trials) if group is None else group
        own = self.own[trials, start:stop]
        trial, t = np.nonzero(own)
        place, one = (trial + trials.start) * (self.t_max + 2) + t + start, np.ones(len(t))
        arrays: Any = self.trials.rewards, self.durations
        paid, times = (x[trials, start:stop][own] for x in arrays)
        rows, following = self.sparse_rows[place], self.sparse_rows[place + 1]
        return Layer(rows, one, paid, times, one > 0.0, following, None)

    def products(self, edges: IntArray, groups: Sequence[slice]) -> list[FloatArray]:
        """Return what `Factor` has of single steps of runs between edges, each of all groups."""
        p, shape = self.p, (len(edges) - 1, len(groups))
        held, sums = np.zeros((*shape, p, 2 * p + 2)), np.zeros((*shape, 2 * p + 2))
        for g, group in enumerate(groups):
            for part in self.parts(group, self.t_max + 2):
                f, own = self.rows_between(part, 0, self.t_max + 2), self.own[part].T
                numbers = self.trials.rewards[part].T, self.durations[part].T
                rows = np.concatenate((f[:-1], f[:-1] - f[1:], np.stack(numbers, axis=2)), axis=2)
                rows[~own] = 0.0
                sums[:, g] += np.add.reduceat(rows.sum(axis=1), edges[:-1])
                for product, run in zip(held[:, g], pairwise(edges.tolist()), strict=True):
                    some = rows[slice(*run)].reshape(-1, 2 * p + 2)
                    product += some[:, :p].T @ some
        n = [np.add.reduceat(self.own[group].sum(axis=0), edges[:-1]) for group in groups]
        return [held, sums, np.transpose(n).astype(np.float64)]

    def layers(self, start: int, stop: int, groups: Any = None) -> Iterator[Layer]:
        """Yield timesteps backwards, every trial a row: of all groups, one after the other."""
        every = slice(0, self.n_trials)
        following = self.rows_between(every, stop, stop + 1)[0]
        for t in reversed(range(start, stop)):
            rows, own = self.rows_between(every, t, t + 1)[0], self.own[:, t]
            numbers = own.astype(np.float64), self.trials.rewards[:, t], self.durations[:, t]
            yield Layer(rows, *numbers, own & ~self._is_over[:, t], following, None)
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
        """Candidate reference states (M, k), of trials in turn; the terminal one (NaN) is first.

        Half of them are at logarithmically spaced timesteps, since transients are short.
        """
        observations, lengths = self.trials.observations, self.trials.all_lengths
        n_timesteps, n = self.t_max + 1, min(_N_CANDIDATES, self.own.size)
        even = np.linspace(0, n_timesteps - 1, n - n // 2)
        early = np.geomspace(1, n_timesteps, n // 2) - 1
        timestep = np.concatenate((even, early)).astype(np.int64)
        trial = np.arange(n) % self.n_trials
        chosen = observations[trial, timestep][timestep < lengths[trial]]
        living = np.unique(chosen[np.isfinite(chosen).all(axis=1)], axis=0)
        return living if self.constant else np.insert(living, 0, np.nan, axis=0)

    @cached_property
    def candidate_features(self) -> Rows:
        """Features (M, d) of the candidates."""
        return self.features(self.candidates)

    @cached_property
    def starts(self) -> NDArray[Any]:
        """Observations (n, k) in which trials start, of some hundred trials."""
        return np.unique(self.trials.observations[:_N_CANDIDATES, 0].astype(np.float64), axis=0)

    def trial_features(self, most: int) -> tuple[Any, IntArray]:
        """Return features (m, t_max + 1, d) of the first trials, and their lengths (m,)."""
        n = self.t_max + 1
        m = min(self.n_trials, max(2, most // (self._d * n)))
        features = self.some_features(slice(0, m), n, slice(None))
        return features.swapaxes(0, 1), self.trials.all_lengths[:m]

    def occupancy(self, windows: IntArray, segments: Any) -> FloatArray:
        """Return the share (n, M) of each window's samples at each candidate."""
        found = self.samples_of(windows, segments)(self.candidates)
        return np.asarray(found / np.maximum(self._n_samples(windows), 1)[:, None])

    def samples_of(
        self, windows: IntArray, segments: Any, group: Any = None
    ) -> Callable[[NDArray[Any]], FloatArray]:
        """Return the function that gives the number of samples (n, m) of observations (m, k).

        Numbers below ten are 0. ``segments`` are factors, or solved windows of sparse features.
        """
        of_windows = [
            Christoffel(total(segments.between(start, stop)).reduced(self.p, 1e-7).A)
            for start, stop in ([] if self.is_sparse else windows.tolist())
        ]

        def samples(states: NDArray[Any]) -> FloatArray:
            f = self.features(states)
            if self.is_sparse:
                shares = [each.window.occupancy(sparse.csr_array(f)) for each in segments]
                return np.asarray(np.stack(shares) * self._n_samples(windows)[:, None])
            rows = self.coordinates.of(dense(f), self.constant)
            found = np.stack([of_window.samples(rows) for of_window in of_windows])
            return np.where(found >= MIN_SAMPLES, found, 0.0)

        return samples

    moves_of = samples_of

    def _n_samples(self, windows: IntArray) -> IntArray:
        before = np.append(0, np.cumsum(self.trials_at))
        return np.asarray(before[windows[:, 1]] - before[windows[:, 0]])

    def some_of(self, start: int, stop: int, most: int) -> NDArray[Any]:
        """Return at most so many observations (n, k) of a window, spread over it."""
        seen = self.trials.observations[:, start:stop][self.own[:, start:stop]]
        seen = seen[:: max(1, len(seen) // most)]
        return np.asarray(seen[np.isfinite(seen).all(axis=1)])


def rows_of(batches: Batches, encoding: Encoding, rcond: float) -> CountRows | TrialRows:
    """Return the rows of at least one trial, by the features of its encoded observations."""
    if isinstance(encoding, CountedEncoding):
        terminal = encoding.terminal if encoding.ends else None
        sample = None if batches.sample is None else batches.sample.trials
        return CountRows(batches.filled, encoding.table_rows, terminal, sample=sample, rcond=rcond)
    return TrialRows(batches.total, encoding.rows, encoding.ends, batches.max_bytes, rcond)
