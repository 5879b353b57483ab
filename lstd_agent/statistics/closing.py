"""Ends of trials that lead to what the other samples of a window do not determine.

What the last sample of a trial leads to has a value if its features are in the span of the
samples'. If not, the sample tells nothing; and without it the same is asked of what the one before
leads to, and again of all others.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import sparse

from lstd_agent.arrays import BoolArray, IntArray
from lstd_agent.statistics.factored import Factored


class LeftOut(NamedTuple):
    """How many of a window's samples tell nothing, since they lead to what no others determine."""

    start: int
    stop: int
    number: int
    of: int

    @property
    def share(self) -> float:
        """How many of all."""
        return self.number / self.of

    def __str__(self) -> str:
        return (
            f"{self.number} of the {self.of} samples of timesteps {self.start} to {self.stop - 1} "
            "lead to observations whose features the other samples do not determine, and tell "
            "nothing of values or of the gain: use fewer or coarser features, or collect more "
            "trials"
        )


def ends_at_unseen(f: sparse.csr_array, successors: sparse.csr_array, trial: IntArray) -> BoolArray:
    """Return which samples (n,) at the ends of trials lead to a feature that no sample has.

    What follows a sample is a sample itself, but for the last of each trial.
    """
    n_with = np.bincount(f.indices, weights=f.data != 0.0, minlength=f.shape[1])
    left_out = np.zeros(len(trial), dtype=bool)
    before, ends = those_before(trial), ends_of_trials(trial)
    while True:
        ends = ends[ends >= 0]
        leads_out = abs(successors[ends]) @ (n_with == 0.0).astype(np.float64) > 0.0
        if not leads_out.any():
            return left_out
        lost = ends[leads_out]
        left_out[lost] = True
        rows = f[lost]
        n_with -= np.bincount(rows.indices, weights=rows.data != 0.0, minlength=f.shape[1])
        ends[leads_out] = before[lost]


def undetermined_ends(Z: Factored, successors: sparse.csr_array, trial: IntArray) -> BoolArray:
    """Return which samples (n,) at the ends of trials lead to nothing that samples determine.

    Without those found there may be more: ask again.

    Parameters
    ----------
    Z : Factored
        Of the features (n, d) of samples, those of a trial in order of time.
    successors : csr_array, shape (n, d)
        Features of what followed them.
    trial : ndarray of int, shape (n,)
        Whose the samples are.
    """
    ends, before = ends_of_trials(trial), those_before(trial)
    lost = np.zeros(len(trial), dtype=bool)
    found = ends[Z.are_outside(successors[ends])]
    while found.size:
        lost[found] = True
        # What no other sample is like does not determine what leads to it.
        found = before[found[Z.peeled.are_alone[found]]]
        found = found[found >= 0]
    return lost


def ends_of_trials(trial: IntArray) -> IntArray:
    """Return the places of the last sample of each trial."""
    _, from_last = np.unique(trial[::-1], return_index=True)
    return np.asarray(len(trial) - 1 - from_last)


def those_before(trial: IntArray) -> IntArray:
    """Return the places of the samples that come before in the same trials, or -1."""
    before = np.full(len(trial), -1)
    order = np.argsort(trial, kind="stable")
    same = trial[order[1:]] == trial[order[:-1]]
    before[order[1:][same]] = order[:-1][same]
    return before
