"""Moments of kept trials, summed when they are asked for: of windows, not of timesteps.

Moments of d features at each timestep take (t_max + 1) 2 d² numbers, those of a window 2 d².
Algorithms ask for the moments of a few windows, and of single timesteps for means alone. So the
trials stay what is kept, and the moments of a window are summed from them when it is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, reduce
from operator import add

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.trials.kept_trials import KeptTrials, RowsOf, chunk_rows
from lstd_agent.trials.moment_sums import MomentSums

# Moments are kept for the next time up to so many bytes in all batches together.
_MAX_KEPT_BYTES = 2**30


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
    def of(cls, kept: KeptTrials, features: RowsOf, n_batches: int = 1) -> TrialMoments:
        """Return the moments of a batch, of so many that share the memory for them."""
        return cls([BatchMoments(kept, features, _MAX_KEPT_BYTES // n_batches)])

    def __add__(self, other: TrialMoments) -> TrialMoments:
        return TrialMoments(self.parts + other.parts)

    @cached_property
    def feature_sums(self) -> FloatArray:
        """Σ f at each timestep, shape (t_max + 1, d)."""
        return reduce(add, [part.means[0] for part in self.parts])

    @cached_property
    def squares(self) -> FloatArray:
        """Σ f² over all timesteps, shape (d,)."""
        return reduce(add, [part.means[1] for part in self.parts])

    @cached_property
    def reward_sums(self) -> FloatArray:
        """Σ r at each timestep, shape (t_max + 1,)."""
        return reduce(add, [part.kept.reward_sums for part in self.parts])

    def over(self, windows: IntArray) -> MomentSums:
        """Return the sums over each window (start, stop), one entry a window."""
        return reduce(add, [part.over(windows) for part in self.parts])


class BatchMoments:
    """Moments of one batch of trials.

    Parameters
    ----------
    kept : KeptTrials
    features : callable
        Encoded observations (n, k) to features (n, d), dense or CSR.
    room : int
        How many bytes of moments to keep for the next time.
    """

    def __init__(self, kept: KeptTrials, features: RowsOf, room: int) -> None:
        self.kept = kept
        self._features = features
        self._room = room
        self._found: dict[tuple[int, ...], dict[str, FloatArray]] = {}

    @cached_property
    def means(self) -> tuple[FloatArray, FloatArray]:
        """Σ f at each timestep (t_max + 1, d), and Σ f² over all (d,)."""
        sums = []
        squares: FloatArray = np.zeros(1)
        for t in range(self.kept.t_max + 1):
            of_timestep: FloatArray = np.zeros(1)
            for states in chunk_rows(self.kept.observations[:, t]):
                rows = self._features(states)
                of_timestep = of_timestep + rows.sum(axis=0)
                squares = squares + (rows * rows).sum(axis=0)
            sums.append(of_timestep)
        return np.array(sums), squares

    def over(self, windows: IntArray) -> MomentSums:
        """Return the sums over each window, one entry a window."""
        wanted = list(map(tuple, windows.tolist()))
        missing = [window for window in dict.fromkeys(wanted) if window not in self._found]
        found = dict(self._found)
        if missing:
            summed = self.kept.condense(self._features, np.array(missing))
            parts = {k: v for k, v in vars(summed).items() if k != "n_trials"}
            for i, window in enumerate(missing):
                found[window] = {name: array[i] for name, array in parts.items()}
            self._keep(found)
        names = next(iter(found.values()))
        stacked = {name: np.stack([found[window][name] for window in wanted]) for name in names}
        return MomentSums(self.kept.n_trials, **stacked)

    def _keep(self, found: dict[tuple[int, ...], dict[str, FloatArray]]) -> None:
        """Keep the last of what has been found, copied from the arrays that it was part of."""
        size = sum(np.asarray(array).nbytes for array in next(iter(found.values())).values())
        n = self._room // size
        last = list(found.items())[-n:] if n else []
        self._found = {
            window: {name: np.array(array) for name, array in sums.items()} for window, sums in last
        }
