"""Linear systems of Markov chains, solved by the method that their structure asks for.

All have the matrix A = diag(N 1 + e) - N of `unichain_gym.elimination`. In order of preference:

``triangular``
    Every strongly connected component of N is one state (streams of states that stay or
    advance): in the order of the components A is triangular, and one sweep solves it.
``GTH``
    Up to `DENSE_STATES` states: dense elimination without subtraction. On up to
    `RANGED_STATES` states whose probabilities span more than doubles hold, ``ranged GTH``.
``sparse LU``
    The reverse Cuthill-McKee ordering shows that elimination takes at most `ELIMINATION_WORK`
    multiplications.
``sparse GTH``
    Elimination without subtraction that hardly fills in (trees, whose bandwidth is large).
``BiCGStab``
    The rest. The graphs on which elimination fills in are those without small separators, and
    on those a chain mixes fast, so a Krylov method converges.

The diagonal is the sum of what leaves the state, never 1 minus the probability of staying, so
a state that is left with probability 1e-12 loses no digits. The methods without subtraction, and
``triangular``, solve for nonnegative right-hand sides to a relative accuracy near rounding in
every entry. The other two are held to `MAX_ERROR` by the bound of
`unichain_gym.certified`; where it is not met, ``sparse GTH`` takes over at whatever fill-in up
to `unichain_gym.sparse_elimination.MAX_CORE`, and beyond that the system is refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components, reverse_cuthill_mckee
from scipy.sparse.linalg import splu

from unichain_gym.arrays import FloatArray, IntArray
from unichain_gym.certified import CertifiedSolver, DirectSolver, Krylov, Solver, SparseLu
from unichain_gym.elimination import OUT_OF_RANGE, SMALLEST, GthFactors, finite
from unichain_gym.errors import ConvergenceError
from unichain_gym.ranged import RangedGthFactors
from unichain_gym.sparse_elimination import MAX_CORE, MAX_ENTRIES, SparseGthFactors, eliminate
from unichain_gym.structure import edges, grounded_matrix, off_diagonal, row_sums

DENSE_STATES = 3_000
RANGED_STATES = 300
ELIMINATION_WORK = 1e11
# With fewer moves than this, and rates of leaving that differ by less, what fell short of 1e-308
# on the way is beyond the last digit of every frequency above 1e-150.
UNDERFLOW_MOVES = 1e200
UNDERFLOW_RATES = 1e150
SMALL_PROBABILITY = 1e-50


class _TriangularFactors:
    """Substitution: in the given order of the states A is triangular."""

    name = "triangular"

    def __init__(self, A: sparse.csr_array, order: IntArray) -> None:
        # Nothing fills in, so panels of several columns would only take time and memory.
        self._lu: Any = splu(
            A[order][:, order].tocsc(),
            permc_spec="NATURAL",
            diag_pivot_thresh=0.0,
            panel_size=1,
            options={"Equil": False, "SymmetricMode": True},
        )
        self._order, self._place = order, np.argsort(order)
        self.n_operations = order.size

    def solve(self, c: FloatArray, transposed: bool = False) -> FloatArray:
        return finite(self._lu.solve(c[self._order], "T" if transposed else "N")[self._place])


def find_solver(N: sparse.csr_array, exit_rate: FloatArray) -> Solver:
    """Return a solver of A = diag(N 1 + e) - N.

    Parameters
    ----------
    N : csr_array, shape (n, n)
        Nonnegative; the diagonal is ignored.
    exit_rate : ndarray, shape (n,)
        Nonnegative; every state must be able to reach one with a positive exit.

    Raises
    ------
    ConvergenceError
        If no digit is certain, or doubles do not hold the numbers; later, by the solver, if its
        answer cannot be bounded to `unichain_gym.certified.MAX_ERROR`.
    """
    n = exit_rate.size
    n_components, component = connected_components(N, connection="strong")
    if n_components == n:
        # SciPy numbers the components sinks first: A in that order is lower triangular. Were
        # it another order, the factorization would only be slower.
        A = grounded_matrix(N, exit_rate)
        if n and A.diagonal().min() < SMALLEST:
            raise ConvergenceError(OUT_OF_RANGE)
        return DirectSolver(_TriangularFactors(A, np.argsort(component)))
    if n <= RANGED_STATES and _spans_widely(N, exit_rate):
        return DirectSolver(RangedGthFactors(N.toarray(), exit_rate))
    if n <= DENSE_STATES:
        return _unless_underflow(GthFactors(N.toarray(), exit_rate), N, exit_rate)
    if elimination_work(N) <= ELIMINATION_WORK:
        return CertifiedSolver(N, exit_rate, SparseLu, lambda why: _eliminate(N, exit_rate, why))
    little = eliminate(N, exit_rate, max_entries=2 * N.nnz)
    if little is not None:
        return _unless_underflow(little, N, exit_rate)
    return CertifiedSolver(N, exit_rate, Krylov, lambda why: _eliminate(N, exit_rate, why))


def _spans_widely(N: sparse.csr_array, exit_rate: FloatArray) -> bool:
    """Whether products of a few probabilities may differ by more than doubles can hold."""
    values = np.concatenate((N.data, exit_rate[exit_rate > 0.0]))
    return bool(values.min() < SMALL_PROBABILITY * values.max())


def _unless_underflow(
    factors: GthFactors | SparseGthFactors, N: sparse.csr_array, exit_rate: FloatArray
) -> DirectSolver:
    """Return a solver, or raise `ConvergenceError` if a product that underflowed may matter.

    A probability lost to underflow is below 1e-307 of its row, and changes a solution by no more
    than that times the expected number of moves. A flow lost so is a frequency below 1e-308
    over the rate of leaving.
    """
    rate = row_sums(off_diagonal(N)) + exit_rate
    if rate.max() > UNDERFLOW_RATES * rate.min() or (
        factors.may_underflow and factors.solve(rate).max() > UNDERFLOW_MOVES
    ):
        raise ConvergenceError(
            "products of probabilities fall below the range of doubles (1e-308) and may decide "
            f"the answer; that is computed for up to {RANGED_STATES} states, and these are "
            f"{rate.size}. Remove transitions too rare to matter"
        )
    return DirectSolver(factors)


def _eliminate(N: sparse.csr_array, exit_rate: FloatArray, reason: str) -> Solver:
    factors = eliminate(N, exit_rate, MAX_ENTRIES)
    if factors is None:
        raise ConvergenceError(
            f"the system of {exit_rate.size} states is out of reach: {reason}, and elimination "
            f"without subtraction would fill in on more than {MAX_CORE} states. Look at the "
            "weakly linked parts of the chain apart, or remove transitions too rare to matter"
        )
    return _unless_underflow(factors, N, exit_rate)


def elimination_work(N: sparse.csr_array) -> float:
    """Bound the multiplications of an elimination: Σ_k (rows that pivot k changes)².

    The bound is that of the reverse Cuthill-McKee ordering, with states of very many neighbours
    moved to the end: there, row i changes from the first pivot it has an entry for.
    """
    n = N.shape[0]
    graph = (N + N.T).tocsr()
    is_hub = np.diff(graph.indptr) > 10.0 * np.sqrt(n)
    plain = np.flatnonzero(~is_hub)
    among_plain = graph[plain][:, plain]
    if among_plain.data.size:
        plain = plain[reverse_cuthill_mckee(among_plain, symmetric_mode=True)]
    position = np.empty(n, dtype=np.int64)
    position[np.concatenate((plain, np.flatnonzero(is_hub)))] = np.arange(n)
    first = np.arange(n)
    row, column = edges(graph)
    np.minimum.at(first, position[row], position[column])
    started = np.cumsum(np.bincount(first, minlength=n))
    changed = (started - np.arange(1, n + 1)).astype(np.float64)
    return float((changed**2).sum())
