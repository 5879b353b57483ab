r"""Moments of λ-returns along kept trials, which add up like those of single steps.

With :math:`\tilde f = (f, 1)`, the target of a sample is affine in the weights w of its window and
in what its trial is worth where the window ends,

.. math:: T_t = \rho_t - g\, l_t + \tilde G_t^T w + a_t b,

ρ and l being rewards and their number, discounted by λ. b is a number of each trial, since the
next window is solved before; the last window has none, and bootstraps on itself. So the sums

.. math::

    Z = \sum_t \sum_i \tilde f \tilde f^T, \quad
    X = \sum_t \sum_i \tilde f (\tilde f - \tilde G_t)^T, \quad
    \sum_t \sum_i \tilde f\, (\rho_t, l_t), \quad e_i = \sum_t a_t \tilde f(s_t^i)

hang on no weights and no gain. Batches of trials i are summed once: refits, whose gain and weights
differ, add them up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import iadd
from typing import Any

import numpy as np

from lstd_agent.arrays import BoolArray, FloatArray
from lstd_agent.features.rows import RowsOf, dense, n_at_a_time
from lstd_agent.trials.kept import KeptTrials


@dataclass(frozen=True, eq=False)
class ReturnSums:
    """Sums over the samples of a window, and what is told of each of its m trials.

    Attributes
    ----------
    X, Z : ndarray, shape (d + 1, d + 1)
    y : ndarray, shape (d + 1, 2)
        Of rewards and of their number.
    n_samples : int
    carried : ndarray, shape (m, d + 1)
        e: what a trial's b adds to y.
    inside : ndarray, shape (m, d + 1)
    paid : ndarray, shape (m, 2)
    share : ndarray, shape (m,)
        What the first timestep is worth to the one before, (1 - λ) v + λ T: the coefficients of
        the window's weights, of rewards and their number, and of b.
    begins : ndarray of bool, shape (m,)
        Whether the trial has a sample at the first timestep.
    """

    X: FloatArray
    Z: FloatArray
    y: FloatArray
    n_samples: int
    carried: FloatArray
    inside: FloatArray
    paid: FloatArray
    share: FloatArray
    begins: BoolArray

    @classmethod
    def together(cls, parts: Sequence[ReturnSums]) -> ReturnSums:
        """Return the sums over the trials of all parts."""
        if len(parts) == 1:
            return parts[0]
        by_trial = ("carried", "inside", "paid", "share", "begins")
        found: dict[str, Any] = {"n_samples": sum(part.n_samples for part in parts)}
        for name in vars(parts[0]).keys() - found.keys():
            first, *others = arrays = [getattr(part, name) for part in parts]
            joined = name in by_trial
            found[name] = np.concatenate(arrays) if joined else reduce(iadd, others, first.copy())
        return cls(**found)

    @property
    def nbytes(self) -> int:
        """Memory that the sums take."""
        return sum(array.nbytes for array in vars(self).values() if isinstance(array, np.ndarray))


class ReturnMoments:
    """Sums of a batch of trials over windows, by λ.

    Parameters
    ----------
    kept : KeptTrials
    features : callable
        Encoded observations (n, k) to features (n, d), dense or CSR.
    room : int
        How many bytes of sums to keep for the next time.
    decays : tuple of float
        The λ that are asked for together, if one of them is.
    """

    def __init__(
        self, kept: KeptTrials, features: RowsOf, room: int, decays: tuple[float, ...]
    ) -> None:
        self._kept, self._features = kept, features
        self._room, self._decays = room, decays
        self._found: dict[tuple[object, ...], ReturnSums] = {}

    def over(
        self, start: int, stop: int, decay: float, intercept: float, *, is_last: bool
    ) -> ReturnSums:
        """Return the sums over a window; the 1 of (f, 1) may be 0."""
        key = start, stop, intercept, is_last
        if (decay, key) in self._found:
            return self._found[decay, key]
        decays = self._decays if decay in self._decays else (decay,)
        found = dict(zip(decays, self._sums(*key, decays), strict=True))
        for each, sums in found.items():
            if sums.nbytes <= self._room:
                self._room -= sums.nbytes
                self._found[each, key] = sums
        return found[decay]

    def _sums(
        self, start: int, stop: int, intercept: float, is_last: bool, decays: tuple[float, ...]
    ) -> list[ReturnSums]:
        """Return sums by λ, of some trials and timesteps at a time."""
        kept, own, m = self._kept, self._kept.own, self._kept.n_trials
        r = self._features(kept.observations[:1, 0]).shape[1] + 1
        walks = [_Backwards(decay, m, r, is_last) for decay in decays]
        Z, n_samples, begins = np.zeros((r, r)), 0, np.empty(m, dtype=bool)
        n_rows = max(2, n_at_a_time(r))
        for first in range(0, m, n_rows // 2):
            some = slice(first, min(first + n_rows // 2, m))
            n_timesteps = max(1, n_rows // (some.stop - first) - 1)
            if is_last:
                for walk in walks:
                    walk.inside[some] = self._rows(some, stop, stop + 1, intercept)[0]
            for end in range(stop, start, -n_timesteps):
                times = slice(max(start, end - n_timesteps), end)
                F = self._rows(some, times.start, end, intercept)
                has = None if own is None else own[some, times].T
                living = ~np.isnan(kept.observations[some, times]).any(axis=2).T
                living = living if has is None else living & has
                f = _samples(F, has)
                Z += f.T @ f
                n_samples += len(f)
                for walk in walks:
                    walk.go_back(some, F, f, kept.rewards[some, times].T, has, living)
            begins[some] = living[0]
        return [walk.sums(Z, n_samples, begins) for walk in walks]

    def _rows(self, some: slice, begin: int, end: int, intercept: float) -> FloatArray:
        """Return features (n, m, d + 1) of the timesteps of some trials."""
        observed = self._kept.observations[some, begin:end].swapaxes(0, 1)
        n, m, k = observed.shape
        f = dense(self._features(observed.reshape(n * m, k)))
        rows = np.empty((n, m, f.shape[1] + 1))
        rows[:, :, :-1] = f.reshape(n, m, -1)
        rows[:, :, -1] = intercept
        return rows


class _Backwards:
    """Targets of m trials from the end of a window on, some trials at a time, and their sums."""

    def __init__(self, decay: float, m: int, r: int, is_last: bool) -> None:
        self._decay = decay
        # What comes next is worth: the features on which it bootstraps, rewards, and parts of b.
        self.inside, self._paid = np.zeros((m, r)), np.zeros((m, 2))
        self._share = np.full(m, float(not is_last))
        self._carried = np.zeros((m, r))
        self._products, self._y = np.zeros((r, r)), np.zeros((r, 2))

    def go_back(
        self,
        some: slice,
        F: FloatArray,
        f: FloatArray,
        rewards: FloatArray,
        has: BoolArray | None,
        living: BoolArray,
    ) -> None:
        """Add timesteps of some trials with features F (n, m, r), f being those of samples."""
        decay, targets = self._decay, np.empty_like(F)
        paid, share = np.empty((*rewards.shape, 2)), np.empty(rewards.shape)
        targets[-1] = self.inside[some]
        for t in reversed(range(len(F))):
            over = ~living[t]
            targets[t, over] = F[t, over]
            paid[t] = self._paid[some] + np.stack((rewards[t], np.ones(len(over))), axis=1)
            paid[t, over] = 0.0
            share[t] = np.where(over, 0.0, self._share[some])
            before = targets[t - 1] if t else self.inside[some]
            np.multiply(targets[t], decay, out=before)
            before += (1.0 - decay) * F[t]
            self._paid[some], self._share[some] = decay * paid[t], decay * share[t]
        self._products += f.T @ _samples(targets, has)
        self._y += f.T @ _samples(paid, has)
        if share.any():
            self._carried[some] += np.einsum("tm,tmd->md", share, F)

    def sums(self, Z: FloatArray, n_samples: int, begins: BoolArray) -> ReturnSums:
        """Return the sums over the window, at whose first timestep some trials have a sample."""
        by_trial = self._carried, self.inside, self._paid, self._share, begins
        return ReturnSums(Z - self._products, Z, self._y, n_samples, *by_trial)


def _samples(rows: FloatArray, has: BoolArray | None) -> FloatArray:
    """Return rows (n, m, r) as (n_samples, r): all of them, or those that there are."""
    return rows.reshape(-1, rows.shape[-1]) if has is None else rows[has]
