"""Moments of kept trials, summed when they are asked for: of windows, not of timesteps.

Moments of d features at each timestep take (t_max + 1) 2 d² numbers, those of a window 2 d².
Algorithms ask for the moments of a few windows, and of single timesteps for means alone. So the
trials stay what is kept, and the moments of a window are summed from them when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, reduce
from itertools import chain, pairwise
from operator import add
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.features.rows import Rows, RowsOf, chunk_rows, dense, is_sparse
from lstd_agent.statistics.coordinates import Coordinates
from lstd_agent.statistics.moment_sums import MomentSums, condense
from lstd_agent.statistics.return_moments import ReturnMoments
from lstd_agent.trials.kept import KeptTrials

# Moments are kept for the next time up to so many bytes in all batches together.
_MAX_KEPT_BYTES = 2**30

_NAMES = "second_moments", "successor_moments", "reward_moments", "feature_sums", "reward_sums"


class TrialMoments:
    """Moments of batches of trials over windows of timesteps; answers like `MomentSums`.

    Those of several add up without being computed again.

    Parameters
    ----------
    parts : sequence of BatchMoments
        At least one.
    """

    def __init__(self, parts: Sequence[BatchMoments]) -> None:
        self.parts = list(parts)
        self.n_trials = sum(part.kept.n_trials for part in parts)
        self.t_max = parts[0].kept.t_max

    @classmethod
    def of(
        cls,
        kept: KeptTrials,
        features: RowsOf,
        n_batches: int = 1,
        first: int = 0,
        decays: tuple[float, ...] = (),
    ) -> TrialMoments:
        """Return the moments of a batch, of so many that share the memory for them."""
        part = BatchMoments(kept, features, _MAX_KEPT_BYTES // n_batches, first, decays)
        return cls([part.observing_features()])

    def __add__(self, other: TrialMoments) -> TrialMoments:
        return TrialMoments(self.parts + other.parts)

    def __sub__(self, part: TrialMoments) -> OtherMoments:
        return OtherMoments(self, part)

    @property
    def features(self) -> RowsOf:
        """Encoded observations (n, k) to features (n, d)."""
        return self.parts[0].features

    def observed(self) -> Iterator[FloatArray]:
        """Yield the dense features (n, d) of all observations, some at a time."""
        return chain.from_iterable(part.observed() for part in self.parts)

    def in_coordinates(self, coordinates: Coordinates) -> TrialMoments:
        """Return the moments of coordinates in place of features."""
        return TrialMoments([part.in_coordinates(coordinates) for part in self.parts])

    @property
    def kept(self) -> KeptTrials:
        """All trials together."""
        return KeptTrials.together([part.kept for part in self.parts])

    @cached_property
    def feature_sums(self) -> FloatArray:
        """Σ f at each timestep, shape (t_max + 1, d)."""
        return reduce(add, [part.means.feature_sums for part in self.parts])

    @cached_property
    def following(self) -> FloatArray:
        """Σ f' at each timestep, shape (t_max + 1, d)."""
        return reduce(add, [part.means.following for part in self.parts])

    @cached_property
    def squares(self) -> FloatArray:
        """Σ f² over all timesteps, shape (d,)."""
        return reduce(add, [part.means.squares for part in self.parts])

    @cached_property
    def reward_sums(self) -> FloatArray:
        """Σ r at each timestep, shape (t_max + 1,)."""
        return reduce(add, [part.kept.reward_sums for part in self.parts])

    @cached_property
    def trials_at(self) -> IntArray:
        """Number of trials that have each timestep, shape (t_max + 1,)."""
        return reduce(add, [part.kept.trials_at for part in self.parts])

    def over(self, windows: IntArray) -> MomentSums:
        """Return the sums over each window (start, stop), one entry a window."""
        return reduce(add, [part.over(windows) for part in self.parts])


class OtherMoments:
    """Moments of all trials but a part of them, less what the part adds.

    For so many features that each window is not to be summed again for each batch without.

    Parameters
    ----------
    whole, part : TrialMoments
    """

    def __init__(self, whole: TrialMoments, part: TrialMoments) -> None:
        self._whole, self._part, self.features = whole, part, whole.features
        self.n_trials, self.t_max = whole.n_trials - part.n_trials, whole.t_max
        self.trials_at = whole.trials_at - part.trials_at
        self.reward_sums = whole.reward_sums - part.reward_sums

    def in_coordinates(self, coordinates: Coordinates) -> OtherMoments:
        """Return the moments of coordinates in place of features."""
        return OtherMoments(
            self._whole.in_coordinates(coordinates), self._part.in_coordinates(coordinates)
        )

    @cached_property
    def feature_sums(self) -> FloatArray:
        """Σ f at each timestep, shape (t_max + 1, d)."""
        return np.asarray(self._whole.feature_sums - self._part.feature_sums)

    @cached_property
    def following(self) -> FloatArray:
        """Σ f' at each timestep, shape (t_max + 1, d)."""
        return np.asarray(self._whole.following - self._part.following)

    @cached_property
    def squares(self) -> FloatArray:
        """Σ f² over all timesteps, shape (d,)."""
        return np.asarray(self._whole.squares - self._part.squares)

    def over(self, windows: IntArray) -> MomentSums:
        """Return the sums over each window (start, stop), one entry a window."""
        sums, part = self._whole.over(windows), self._part.over(windows)
        return MomentSums(
            self.n_trials, *(getattr(sums, name) - getattr(part, name) for name in _NAMES)
        )


class _Means(NamedTuple):
    """Σ f and Σ f' at each timestep, (t_max + 1, d), and Σ f² over all (d,)."""

    feature_sums: FloatArray
    following: FloatArray
    squares: FloatArray


class BatchMoments:
    """Moments of one batch of trials.

    Parameters
    ----------
    kept : KeptTrials
    features : callable
        Encoded observations (n, k) to features (n, d), dense or CSR.
    room : int
        How many bytes of moments to keep for the next time.
    first : int
        The place of its first trial among those of all batches.
    decays : tuple of float
        The λ that are going to be asked for, if one of them is.

    Attributes
    ----------
    returns : ReturnMoments
        The same of λ-returns.
    """

    def __init__(
        self,
        kept: KeptTrials,
        features: RowsOf,
        room: int,
        first: int = 0,
        decays: tuple[float, ...] = (),
    ) -> None:
        self.kept = kept
        self.first = first
        self.features = features
        self._room = room
        self._found: dict[tuple[int, ...], list[FloatArray]] = {}
        self._decays = decays
        self.returns = ReturnMoments(kept, features, room, decays)
        self._reduced: tuple[Coordinates, BatchMoments] | None = None

    @cached_property
    def n_features(self) -> int:
        """Number of features d."""
        return int(self.features(self.kept.observations[:1, 0]).shape[1])

    def in_coordinates(self, coordinates: Coordinates) -> BatchMoments:
        """Return the moments of coordinates in place of features, always the same."""
        if self._reduced is None or self._reduced[0] is not coordinates:
            r, features = coordinates.basis.shape[1], self.features
            if 8 * r * self.kept.observations[..., 0].size <= self._room:
                made = self._observing(map(coordinates, self.observed()))
            else:
                made = self._with(self.kept, lambda states: coordinates(features(states)))
            self._reduced = coordinates, made
        return self._reduced[1]

    def observing_features(self) -> BatchMoments:
        """Return the same with features in place of observations, if they take less memory.

        Those of pictures, or of a network, are computed once then.
        """
        observations = self.kept.observations
        rows = self.features(observations[:1, 0])
        if is_sparse(rows) or 8 * rows.shape[1] > observations[0, 0].nbytes:
            return self
        return self._observing(self.observed())

    def _observing(self, blocks: Iterable[FloatArray]) -> BatchMoments:
        """Return the same as if these were observed, and NaN where a trial has ended."""
        observed = self.kept.observations
        used = np.concatenate(list(blocks))
        values = np.zeros((*observed.shape[:2], used.shape[1]))
        values[self._is_used] = used
        values[np.isnan(observed).any(axis=2)] = np.nan
        return self._with(replace(self.kept, observations=values), np.nan_to_num)

    def _with(self, trials: KeptTrials, features: RowsOf) -> BatchMoments:
        """Return the moments of trials that take the place of these."""
        return BatchMoments(trials, features, self._room, self.first, self._decays)

    def observed(self) -> Iterator[FloatArray]:
        """Yield the dense features (n, d) of all observations, some at a time."""
        for states in chunk_rows(self.kept.observations[self._is_used], self.n_features):
            yield dense(self.features(states))

    @property
    def _is_used(self) -> BoolArray:
        """Which observations (m, t_max + 2) own transitions leave from or arrive at."""
        own = self.kept.own
        if own is None:
            return np.ones(self.kept.observations.shape[:2], dtype=bool)
        nothing = np.zeros((len(own), 1), dtype=bool)
        return np.asarray(np.hstack((own, nothing)) | np.hstack((nothing, own)))

    @cached_property
    def means(self) -> _Means:
        """Sums of features, timestep by timestep."""
        kept, here, after = self.kept, [], []
        squares: FloatArray = np.zeros(1)
        own = kept.own
        for t in range(kept.t_max + 2):
            observed = kept.observations[:, t]
            if own is None:
                f, f_squares = self._sums(observed)
                f_after = f
            else:  # transitions of the policy that leave here, that arrive, or both
                leaves = own[:, t] if t <= kept.t_max else np.zeros(len(own), dtype=bool)
                arrives = own[:, t - 1] if t else np.zeros(len(own), dtype=bool)
                groups = (leaves & arrives, leaves & ~arrives, arrives & ~leaves)
                both, leave, arrive = (self._sums(observed[group]) for group in groups)
                f, f_squares = both[0] + leave[0], both[1] + leave[1]
                f_after = both[0] + arrive[0]
            after.append(f_after)
            if t <= kept.t_max:
                here.append(f)
                squares = squares + f_squares
        return _Means(np.array(here), np.array(after[1:]), squares)

    def _sums(self, observed: NDArray[Any]) -> tuple[FloatArray, FloatArray]:
        """Return Σ f and Σ f² of observations (n, k), 0 of none."""
        if not len(observed):
            nothing = np.zeros(self.n_features)
            return nothing, nothing
        f, squares = np.zeros(self.n_features), np.zeros(self.n_features)
        for states in chunk_rows(observed, self.n_features):
            rows = self.features(states)
            f += rows.sum(axis=0)
            squares += (rows * rows).sum(axis=0)
        return f, squares

    @cached_property
    def rows(self) -> Rows:
        """Features of all observations, timestep by timestep, shape ((t_max + 2) m, d)."""
        states = self.kept.observations.swapaxes(0, 1).reshape(-1, self.kept.observations.shape[2])
        blocks = [self.features(some) for some in chunk_rows(states)]
        return blocks[0] if len(blocks) == 1 else sparse.vstack(blocks, format="csr")

    def between(self, start: int, stop: int) -> tuple[Rows, Rows, FloatArray, IntArray]:
        """Return features of samples, those of successors, rewards and trials.

        The samples are those of timesteps start to stop - 1, in order of time.
        """
        kept, m = self.kept, self.kept.n_trials
        f, successors = self.rows[start * m : stop * m], self.rows[(start + 1) * m : (stop + 1) * m]
        rewards = kept.rewards[:, start:stop].T.ravel()
        trial = np.tile(np.arange(m), stop - start)
        own = kept.own
        if own is None:
            return f, successors, rewards, trial
        taken = np.flatnonzero(own[:, start:stop].T)
        return f[taken], successors[taken], rewards[taken], trial[taken]

    def over(self, windows: IntArray) -> MomentSums:
        """Return the sums over each window, one entry a window."""
        wanted = [self._parts_of(*window) for window in windows.tolist()]
        missing = sorted(set(chain.from_iterable(wanted)) - self._found.keys())
        found = dict(self._found)
        if missing:
            summed = condense(self.kept, self.features, np.array(missing))
            arrays = [getattr(summed, name) for name in _NAMES]
            found.update((window, [a[i] for a in arrays]) for i, window in enumerate(missing))
            # The longest are kept, copied from the arrays that they were part of.
            n = self._room // sum(array[0].nbytes for array in arrays)
            longest = sorted(found, key=lambda window: window[0] - window[1])[:n]
            self._found = {window: [np.array(a) for a in found[window]] for window in longest}
        sums = [reduce(_add_each, (found[part] for part in parts)) for parts in wanted]
        return MomentSums(self.kept.n_trials, *map(np.stack, zip(*sums, strict=True)))

    def _parts_of(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Return windows that make up one, as the tail of which the gain is told is part of it."""
        t_max = self.kept.t_max
        inside = [t for t in ((t_max + 1) // 2, t_max) if start < t < stop]
        return list(pairwise([start, *inside, stop]))


def _add_each(a: list[FloatArray], b: list[FloatArray]) -> list[FloatArray]:
    return [x + y for x, y in zip(a, b, strict=True)]
