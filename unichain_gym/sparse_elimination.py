"""Elimination without subtraction on sparse matrices, many states at a time.

States with no transition between them, an independent set U, can be eliminated together: with G
the states that remain, A = diag(N 1 + e) - N turns into the same kind of matrix on G,

    pivot = N_UG 1 + e_U
    N  ←  N_GG + N_GU diag(1/pivot) N_UG
    e  ←  e_G + N_GU diag(1/pivot) e_U

by sparse products of nonnegative factors. What is left is the chain watched on G alone (the
censored chain), and nothing was subtracted: every entry keeps its relative accuracy, as in
`unichain_gym.elimination`. Each round takes states whose elimination fills in least (Markowitz,
1957: fewest ways in times ways out) and that no neighbour undercuts; lines and trees are gone
after a logarithmic number of rounds. Once the rest is no longer sparse it is eliminated dense.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from unichain_gym.arrays import BoolArray, FloatArray, IntArray
from unichain_gym.elimination import OUT_OF_RANGE, SMALLEST, GthFactors, finite
from unichain_gym.errors import ConvergenceError
from unichain_gym.structure import divide_rows, edges, off_diagonal, row_sums

SMALL_CORE = 500
MAX_CORE = 10_000  # 0.8 GB, and about 40 s
MAX_ENTRIES = 10_000_000
_DENSE = 0.05


@dataclass(frozen=True, eq=False)
class _Round:
    """One round: which states went, and the transitions between them and the rest."""

    gone: IntArray
    rest: IntArray
    pivot: FloatArray
    from_gone: sparse.csr_array
    to_gone: sparse.csr_array

    @property
    def may_underflow(self) -> bool:
        """Whether a product of transitions may be below the smallest normal double."""
        if not (self.from_gone.nnz and self.to_gone.nnz):
            return False
        return bool(self.from_gone.data.min() * self.to_gone.data.min() < SMALLEST)


class SparseGthFactors:
    """Factors of A = diag(N 1 + e) - N; make them with `eliminate`."""

    name = "sparse GTH"

    def __init__(
        self, rate: FloatArray, rounds: list[_Round], core: GthFactors, core_size: int
    ) -> None:
        self._rate = rate
        self._rounds = rounds
        self._core = core
        self.may_underflow = core.may_underflow or any(step.may_underflow for step in rounds)
        # What an entry's rounding grows with: the operations in a row, not in all.
        self.n_operations = core_size + 4 * len(rounds)

    @np.errstate(over="ignore", invalid="ignore")  # `finite` finds it
    def solve(self, c: FloatArray, transposed: bool = False) -> FloatArray:
        """Return the solution of A x = c, c being (n,) or (n, m), or of x A = c, c being (n,)."""
        sources = []
        c = c if transposed else (c.T / self._rate).T
        for step in self._rounds:
            source = (c[step.gone].T / step.pivot).T
            sources.append(source)
            c = c[step.rest] + (step.from_gone.T if transposed else step.to_gone) @ source
        x = self._core.solve(c, transposed)
        for step, source in zip(reversed(self._rounds), reversed(sources), strict=True):
            carried = (step.to_gone.T if transposed else step.from_gone) @ x
            on_rest, x = x, np.empty((step.gone.size + step.rest.size, *x.shape[1:]))
            x[step.gone], x[step.rest] = (carried.T / step.pivot).T + source, on_rest
        return finite(x / self._rate if transposed else x)


def eliminate(
    N: sparse.csr_array, exit_rate: FloatArray, max_entries: int = MAX_ENTRIES
) -> SparseGthFactors | None:
    """Factorize A = diag(N 1 + e) - N, or return None where it fills in too much.

    Parameters
    ----------
    N, exit_rate : csr_array, shape (n, n), and ndarray, shape (n,)
        As for `GthFactors`; kept.
    max_entries : int
        How many entries what remains may have at any time.
    """
    N = off_diagonal(N)
    # Divided by the rates of leaving, it is ratios of probabilities that count, not their size.
    rate = row_sums(N) + exit_rate
    if exit_rate.size and not rate.min() > 0.0:
        raise ConvergenceError(OUT_OF_RANGE)
    N = divide_rows(N, rate)
    exit_rate = exit_rate / rate
    rng = np.random.default_rng(0)  # breaks ties, so that runs of equal states do not stall
    rounds: list[_Round] = []
    while (n := exit_rate.size) > SMALL_CORE and N.nnz < _DENSE * n * n:
        if N.nnz > max_entries:
            return None
        is_gone = _independent_set(N, rng)
        gone, rest = np.flatnonzero(is_gone), np.flatnonzero(~is_gone)
        rows = N[rest]
        from_gone = sparse.csr_array(N[gone][:, rest])
        to_gone = sparse.csr_array(rows[:, gone])
        pivot = row_sums(from_gone) + exit_rate[gone]
        rounds.append(_Round(gone, rest, pivot, from_gone, to_gone))
        onward = divide_rows(from_gone, pivot)
        N = off_diagonal(sparse.csr_array(rows[:, rest] + to_gone @ onward))
        exit_rate = exit_rate[rest] + to_gone @ (exit_rate[gone] / pivot)
    if n > MAX_CORE or n * n > 10 * max_entries:
        return None
    return SparseGthFactors(rate, rounds, GthFactors(N.toarray(), exit_rate), n)


def _independent_set(N: sparse.csr_array, rng: np.random.Generator) -> BoolArray:
    """Choose states without transitions between them that fill in little, as a mask (n,)."""
    n = N.shape[0]
    fill = np.diff(N.indptr) * np.bincount(N.indices, minlength=n).astype(np.float64)
    rank = np.empty(n, dtype=np.int64)
    rank[np.argsort(fill + 0.5 * rng.random(n))] = np.arange(n)
    lowest = np.full(n, n)
    row, column = edges(N)
    np.minimum.at(lowest, row, rank[column])
    np.minimum.at(lowest, column, rank[row])
    # Only the cheaper states: the dear ones become cheaper, or dense, later.
    limit = 2.0 * np.partition(fill, n // 10)[n // 10] + 2.0
    return np.asarray((rank < lowest) & (fill <= limit))
