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

from lstd_agent.arrays import BoolArray, FloatArray, IntArray, States
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
        The trials in an order that depends on their content alone.
    batch : ndarray of int, shape (m,)
        The batch of each trial in this order, ascending.
    """
    m = trials.n_trials
    order = np.argsort(hashes(trials), kind="stable")
    return order, np.arange(m) * min(n_batches, m) // m


def hashes(trials: KeptTrials) -> NDArray[np.uint64]:
    """Return a hash of the content of each trial, shape (m,).

    What is not known of a trial and what is absent hash alike, so that a trial has the same hash
    in any company.
    """
    m, T, offset = trials.n_trials, trials.t_max + 1, 0
    total = np.zeros(m, dtype=np.uint64)
    for name, part in vars(trials).items():
        n = {"observations": 2 * trials.observations[:1].size, "lengths": 1}.get(name, 2 * T)
        if part is not None:
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
    """Return what stands for the numbers of a part of trials: 0 for what is not known."""
    if name == "lengths":
        part = T - part
    elif name == "actions":
        part = part.astype(np.int64) + 1
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
    states : ndarray of int, shape (m, t_max + 2)
        Encoded observations, what followed the last timestep included.
    rewards : ndarray, shape (m, t_max + 1)
    lengths : ndarray of int, shape (m,), optional
        How many timesteps each trial has, where some were cut short.
    explored : ndarray of bool, shape (m, t_max + 1), optional
        Which actions were exploratory.
    hashes : ndarray of uint64, shape (m,)
        Ascending.
    """

    states: States
    rewards: FloatArray
    lengths: IntArray | None
    explored: BoolArray | None
    hashes: NDArray[np.uint64]

    @classmethod
    def of(cls, trials: KeptTrials, most: int) -> TrialSample:
        """Return at most so many of some trials, whose observations are numbers of states."""
        found = hashes(replace(trials, actions=None))
        chosen = np.argsort(found, kind="stable")[:most]
        some = trials.take(chosen)
        return cls(some.observations, some.rewards, some.lengths, some.explored, found[chosen])

    @property
    def trials(self) -> KeptTrials:
        """The same as trials without actions."""
        return KeptTrials(self.states, self.rewards, self.lengths, None, self.explored)

    @classmethod
    def merged(cls, samples: list[TrialSample], most: int | None = None) -> TrialSample:
        """Return at most so many of the trials of some samples."""
        both = KeptTrials.together([sample.trials for sample in samples])
        found = np.concatenate([sample.hashes for sample in samples])
        chosen = np.argsort(found, kind="stable")[:most]
        some = both.take(chosen)
        return cls(some.observations, some.rewards, some.lengths, some.explored, found[chosen])
