"""Rounding in rows of probabilities: sums near 1, single precision, residues of zero.

Probabilities with finitely many digits do not sum to 1. `sum_tolerance` bounds the rounding of such
sums in doubles. `in_double` divides rows of lower precision, such as a network's float32 softmax,
by their sums in double.

A residue is the rounding error of a difference that should be zero: ``1 - 0.7 - 0.1 - 0.1 - 0.1``
is 2.8e-17, ``1 - 0.9 - 0.1`` is -2.8e-17. As a probability it allows a transition once in 10^16
steps, which changes recurrent classes and gain. `drop_residues` finds such entries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unichain_gym.errors import InvalidArgumentError, RoundingWarning, warn_caller
from unichain_gym.interface import FloatArray, IntArray
from unichain_gym.outcomes import read_number

EPSILON = float(np.finfo(np.float64).eps)

RESIDUES = 1e-20, 1e-15
"""The range of possible residues, relative to a row's largest entry.

Differences of doubles near 1 are multiples of 1.1e-16, near 1e-4 of 1.4e-20; so an entry of 1e-40
is no residue.
"""

SAY_WHICH = " or pass drop_below=1e-15; drop_below=0 keeps everything as it is"


def sum_tolerance(n_terms: int) -> float:
    """Return how far from 1 rounding may move a sum of ``n_terms`` probabilities.

    Rounding grows with the number of terms; the factor 1e4 accepts probabilities written with
    twelve digits.
    """
    return 1e4 * EPSILON * max(1, n_terms)


def sums_to_one(totals: FloatArray, n_terms: int) -> bool:
    """Whether all sums of ``n_terms`` probabilities miss 1 by no more than single precision."""
    epsilon = float(np.finfo(np.float32).eps)
    return bool((np.abs(totals - 1.0) <= epsilon * max(4, n_terms)).all())


def in_double(
    p: NDArray[np.floating[Any]], row: IntArray, n_rows: int, place: Callable[[int], str]
) -> FloatArray:
    """Return probabilities in double precision, rows of lower precision normalized.

    A row of lower precision is divided by its sum if that misses 1 by no more than its dtype's
    epsilon for each term that is not 0 (at least four). Negative entries of the dtype's rounding
    size become 0, with a `RoundingWarning`; ``place`` names the entry of a flat index for it.
    ``row``, of the shape of p, has the row number of each entry.
    """
    if p.dtype == np.float64:
        return p.astype(np.float64, copy=False)
    epsilon = float(np.finfo(p.dtype).eps)
    doubles = p.astype(np.float64)
    negative = (doubles < 0.0) & (doubles > -4.0 * epsilon)
    if negative.any():
        _warn(doubles, np.flatnonzero(negative), place, "")
        doubles[negative] = 0.0
    label = row.ravel()
    total = np.bincount(label, doubles.ravel(), n_rows)
    n_terms = np.bincount(label, doubles.ravel() != 0.0, n_rows)
    total[~(np.abs(total - 1.0) <= epsilon * np.maximum(4, n_terms))] = 1.0
    doubles /= total[row]
    return doubles


def drop_residues(
    p: NDArray[np.floating[Any]],
    row: IntArray,
    n_rows: int,
    place: Callable[[int], str],
    drop_below: float | None,
    *,
    small_is_meant: bool = False,
) -> FloatArray:
    """Return probabilities `in_double`, with residues set to 0.

    Entries smaller in size than the share ``drop_below`` (0 to 1) of their row's largest become 0,
    and the row's other entries grow to keep its sum; with 0, all stay. By default negative entries
    below 1e-15 of the largest become 0, positive ones stay, and a `RoundingWarning` names both, or
    the negative ones alone if ``small_is_meant``.
    """
    low, high = RESIDUES
    limit = high if drop_below is None else drop_below
    if not 0.0 <= read_number("drop_below", limit) < 1.0:
        raise InvalidArgumentError(
            f"drop_below is a share of a row's largest probability, from 0 to 1; got {drop_below!r}"
        )
    p = in_double(p, row, n_rows, place)
    is_small = p < 2.0 * limit
    if not limit or np.count_nonzero(is_small) == np.count_nonzero(p == 0.0):
        return p
    is_small &= p != 0.0
    largest = np.zeros(n_rows)
    np.maximum.at(largest, row, p)
    is_small &= np.abs(p) < limit * largest[row]
    if drop_below is None:
        negative = is_small & (p < 0.0)
        if not small_is_meant:
            is_small &= negative | (p >= low * largest[row])
        named = np.flatnonzero(negative if small_is_meant else is_small)
        if named.size:
            _warn(p, named, place, "" if small_is_meant else SAY_WHICH)
        return np.where(negative, 0.0, p)
    label = row.ravel()
    kept: FloatArray = np.where(is_small, 0.0, p)
    before = np.bincount(label, p.ravel(), n_rows)
    after = np.bincount(label, kept.ravel(), n_rows)
    kept *= np.divide(before, after, out=np.ones(n_rows), where=after > 0.0)[row]
    return kept


def _warn(p: FloatArray, entries: IntArray, place: Callable[[int], str], remedy: str) -> None:
    """Name up to three entries of rounding size, and the remedy."""
    named = []
    for i in entries[:3].tolist():
        taken = ", taken as 0" if p.flat[i] < 0.0 else ""
        named.append(f"{place(i)} ({float(p.flat[i])!r}{taken})")
    more = f" and {entries.size - 3} more" if entries.size > 3 else ""
    warn_caller(
        f"probabilities of the size of rounding errors: {'; '.join(named)}{more}. Where 0 is "
        f"meant, as by 1 - 0.7 - 0.3, write 0{remedy}",
        RoundingWarning,
    )
