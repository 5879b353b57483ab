"""Reading and checking the transition matrix, reward and start of a chain."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from unichain_gym.arrays import FloatArray
from unichain_gym.errors import InvalidModelError
from unichain_gym.outcomes import (
    check_distribution,
    read_distribution,
    read_floats,
    read_only,
    read_reals,
)
from unichain_gym.rounding import drop_residues, sum_tolerance, sums_to_one
from unichain_gym.structure import edges, group_sums, row_sums


def read_chain(
    P: Any, reward: ArrayLike, initial: ArrayLike, drop_below: float | None
) -> tuple[sparse.csr_array, FloatArray, FloatArray]:
    """Return transition matrix (S, S), reward (S,) and start (S,) as read-only copies, checked."""
    matrix = _read_matrix(P, drop_below)
    r = read_only(np.array(read_reals(reward, "reward")))
    start = np.array(read_distribution(initial, "initial_distribution", drop_below))
    _check_chain(matrix, r, start)
    return matrix, r, read_only(start)


def _read_matrix(values: Any, drop_below: float | None) -> sparse.csr_array:
    """Return a copy of a transition matrix (S, S) in CSR, rounding seen to and zeros dropped."""
    if not sparse.issparse(values):
        values = read_floats(values, "transition_matrix")
    if values.ndim != 2:
        raise InvalidModelError(f"transition_matrix has shape (S, S); got {values.shape}")
    precision = values.dtype if values.dtype in (np.float16, np.float32) else np.float64
    if precision == np.float16:
        values = values.astype(np.float32)  # SciPy has no matrices of float16
    P: sparse.csr_array = sparse.csr_array(values, copy=True)
    data = read_floats(P.data, "transition_matrix").astype(precision, copy=False)
    if precision == np.float64 and drop_below == 0.0:
        P.data = data
    else:
        row, column = edges(P)

        def place(i: int) -> str:
            return f"from state {row[i]} to {column[i]}"

        doubles = drop_residues(data, row, P.shape[0], place, drop_below)
        P = sparse.csr_array((doubles, P.indices, P.indptr), shape=P.shape)
    P.sum_duplicates()
    P.eliminate_zeros()
    for part in (P.data, P.indices, P.indptr):
        read_only(part)
    return P


def _check_chain(P: sparse.csr_array, reward: FloatArray, initial: FloatArray) -> None:
    """Raise `InvalidModelError` unless P (S, S), reward (S,) and initial (S,) make a chain."""
    S = reward.size
    if S == 0 or P.shape != (S, S) or reward.shape != (S,) or initial.shape != (S,):
        raise InvalidModelError(
            "a chain of S > 0 states needs a transition matrix (S, S), a reward (S,) and an "
            f"initial distribution (S,); got {P.shape}, {reward.shape} and {initial.shape}"
        )
    if not np.isfinite(reward).all():
        state = int(np.argmax(~np.isfinite(reward)))
        raise InvalidModelError(f"the reward of state {state} is {reward[state]}; make it finite")
    bad = np.flatnonzero(~(np.isfinite(P.data) & (P.data > 0.0)))
    if bad.size:
        state = int(np.searchsorted(P.indptr, bad[0], side="right")) - 1
        raise InvalidModelError(
            f"the probability of going from state {state} to {P.indices[bad[0]]} is "
            f"{float(P.data[bad[0]])!r}; it must be finite and not negative"
        )
    total = row_sums(P)
    off = np.abs(total - 1.0) > sum_tolerance(int(np.diff(P.indptr).max()))
    if off.any():
        state = int(np.argmax(off))
        into = group_sums(edges(P)[1], P.data, S)
        remedy = (
            "the columns of the matrix sum to 1 instead: pass its transpose"
            if sums_to_one(into, S)
            else "normalize the row"
        )
        raise InvalidModelError(
            f"the transition probabilities of state {state} sum to {float(total[state])!r}, not 1; "
            f"{remedy}"
        )
    check_distribution(initial, "initial_distribution")
