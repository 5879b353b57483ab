"""Batches and samples of trials that do not depend on the order in which trials arrive.

Trials are put into one order, and into batches, by a hash of their content: h = Σ_j c_j x_j mod
2^64 over the numbers x_j of a trial (halves of the bits of doubles), with fixed odd coefficients
c_j, and then mixed. Of counted trials those with the smallest hashes are kept whole; so a sample
of two samples is the sample of all their trials.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstd_agent.arrays import IntArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.trials.kept import KeptTrials

# Numbers are hashed about this many at a time.
_CHUNK = 2**18


def batch_of(trials: KeptTrials, n_batches: int) -> tuple[IntArray, IntArray]:
    """Deal trials into batches, whatever the order in which they came.

    Parameters
    ----------
    trials : KeptTrials
    n_batches : int
        There are no more batches than trials.

    Returns
    -------
    order : ndarray of int, shape (m,)
        The trials in an order that depends on their content alone, batch after batch.
    batch : ndarray of int, shape (m,)
        The batch of each trial in this order.
    """
    by_batch = np.argsort(np.arange(trials.n_trials) % n_batches, kind="stable")
    return ordered(trials)[by_batch], by_batch % n_batches


def ordered(trials: KeptTrials) -> IntArray:
    """Return the trials (m,) in an order that depends on their content alone."""
    return np.argsort(_keys(hashes(trials)), kind="stable")


def _keys(found: NDArray[np.uint64], first: int = 0) -> NDArray[np.uint64]:
    """Return numbers (m,) by which trials with these hashes are as good as drawn at random.

    Trials alike are numbered, so that they do not lie together: dealt in turn, every batch would
    have its share of each kind, and batches would differ less than by chance; and a sample would
    have all of a kind or none. Trials after the first so many are drawn independently.
    """
    order = np.argsort(found, kind="stable")
    same = found[order]
    starts = np.flatnonzero(np.append(True, same[1:] != same[:-1]))
    number = np.empty(len(found), dtype=np.uint64)
    sizes = np.diff(np.append(starts, len(found)))
    number[order] = (np.arange(len(found)) - np.repeat(starts, sizes)).astype(np.uint64)
    salt = _scrambled(np.array([first], dtype=np.uint64))
    return _scrambled(found + salt + _scrambled(number))


def hashes(trials: KeptTrials) -> NDArray[np.uint64]:
    """Return a hash of the content of each trial, shape (m,).

    Actions play no part. An array that is left out hashes like one that tells nothing, so that a
    trial has the same hash whatever trials it comes with.
    """
    m, T, offset = trials.n_trials, trials.t_max + 1, 0
    total = np.zeros(m, dtype=np.uint64)
    for name, part in vars(trials).items():
        n = {"observations": 2 * trials.observations[:1].size, "lengths": 1}.get(name, 2 * T)
        if part is not None and name != "actions":
            # A row of as many coefficients as there are numbers in each trial.
            width = part[:1].size * (2 if part.dtype == np.float64 else 1)
            weights = _scrambled(np.arange(offset, offset + width, dtype=np.uint64))
            step = max(1, _CHUNK // width)
            for first in range(0, m, step):
                here = slice(first, first + step)
                numbers = _integers(name, part[here].reshape(-1, part[:1].size), T)
                total[here] += numbers @ (weights | np.uint64(1))
        offset += n
    return _scrambled(total)


def _integers(name: str, part: NDArray[Any], T: int) -> NDArray[np.uint64]:
    """Return what stands for the numbers of a part of trials: 0 where they tell nothing."""
    if name == "lengths":
        part = T - part
    elif part.dtype.kind == "f":
        # Zeros of either sign are one number.
        part = (part + part.dtype.type(0)).view(f"u{min(4, part.dtype.itemsize)}")
    return part.astype(np.uint64)


def _scrambled(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the outputs of SplitMix64 (Steele, Lea & Flood 2014) of states x."""
    x = (x + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@dataclass(frozen=True, eq=False)
class TrialSample:
    """A sample of counted trials, whole: those with the smallest hashes, in order of these.

    Attributes
    ----------
    trials : KeptTrials
        Their observations are the numbers of states (m, t_max + 2). Actions are left out.
    hashes : ndarray of uint64, shape (m,)
        Ascending.
    """

    trials: KeptTrials
    hashes: NDArray[np.uint64]

    @classmethod
    def of(cls, trials: KeptTrials, most: int, first: int = 0) -> TrialSample:
        """Return at most so many of some trials; the first of them is number ``first`` of all."""
        return cls(replace(trials, actions=None), _keys(hashes(trials), first)).least(most)

    @classmethod
    def checked(cls, trials: KeptTrials, hashes: NDArray[np.uint64]) -> TrialSample:
        """Return a sample that comes from elsewhere, or raise `InvalidInputError` if it is none."""
        states = trials.observations[:, :, 0]
        if states.dtype.kind not in "iu" or trials.observations.shape[2] != 1:
            raise InvalidInputError(
                f"the states of a sample of trials are integers (m, t_max + 2); got {states.dtype} "
                f"of shape {trials.observations.shape}"
            )
        is_sorted = hashes.dtype == np.uint64 and not (hashes[1:] < hashes[:-1]).any()
        if hashes.shape != (len(states),) or not is_sorted:
            raise InvalidInputError("a sample of trials has one hash a trial, in ascending order")
        return cls(replace(trials, observations=states), hashes)

    def least(self, most: int | None = None) -> TrialSample:
        """Return at most so many trials of the sample, by their hashes."""
        chosen = np.argsort(self.hashes, kind="stable")[:most]
        return TrialSample(self.trials.take(chosen), self.hashes[chosen])

    @classmethod
    def merged(cls, samples: list[TrialSample]) -> TrialSample:
        """Return the trials of some samples."""
        trials = KeptTrials.together([sample.trials for sample in samples])
        return cls(trials, np.concatenate([sample.hashes for sample in samples])).least()
