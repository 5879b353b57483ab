"""Linear systems of Markov chains, solved by the method that their structure asks for.

All have the matrix A = diag(N 1 + e) - N of `unichain_gym.elimination`. In order of preference:

``triangular``
    Every strongly connected component of N is one state (streams of states that stay or
    advance): in the order of the components A is triangular, and one sweep solves it.
``GTH``
    Up to `DENSE_STATES` states: dense elimination without subtraction.
``sparse LU``
    An ordering exists in which elimination takes at most `ELIMINATION_WORK` multiplications.
``iteration``
    The rest. The graphs on which elimination fills in are those without small separators, and
    on those a chain mixes fast, so plain iteration converges. (Krylov methods stall on long
    streams, which are solved by the first method.)

The diagonal is the sum of what leaves the state, never 1 minus the probability of staying, so
a state that is left with probability 1e-12 loses no digits. ``triangular`` and ``GTH`` solve
for nonnegative right-hand sides to a relative accuracy near rounding in every entry; the other
two to one in norm, times the condition number of A.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components, reverse_cuthill_mckee
from scipy.sparse.linalg import splu

from unichain_gym.arrays import FloatArray, IntArray
from unichain_gym.elimination import GthFactors
from unichain_gym.errors import ConvergenceError
from unichain_gym.structure import edges, row_sums

DENSE_STATES = 3_000
ELIMINATION_WORK = 1e11
MAX_ITERATIONS = 20_000
MAX_TIME = 2.0**54  # twice 1/(1 - γ) for the largest discount γ
# Near rounding. A looser tolerance would be met while the quick part of the error dies
# out, before a slow part (two halves that hardly exchange anything) shows in the residual.
ITERATION_TOLERANCE = 16.0 * float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Solver:
    """A way to solve A x = c and x A = c, and the method behind it.

    `iterations` lists how many each solve took so far; it stays empty for direct methods.
    """

    method: str
    solve: Callable[[FloatArray], FloatArray]
    solve_transposed: Callable[[FloatArray], FloatArray]
    iterations: list[int] = field(default_factory=list)


def off_diagonal(N: sparse.csr_array) -> sparse.csr_array:
    """Return a nonnegative matrix without its diagonal."""
    row, column = edges(N)
    keep = row != column
    indptr = np.concatenate(([0], np.cumsum(np.bincount(row[keep], minlength=N.shape[0]))))
    return sparse.csr_array((N.data[keep], N.indices[keep], indptr), shape=N.shape)


def grounded_matrix(N: sparse.csr_array, exit_rate: FloatArray) -> sparse.csr_array:
    """Return A = diag(N 1 + e) - N; the diagonal of N is ignored."""
    N = off_diagonal(N)
    n = exit_rate.size
    leaving: sparse.dia_array[np.float64] = sparse.dia_array(
        ((row_sums(N) + exit_rate)[None], np.zeros(1, dtype=np.int64)), shape=(n, n)
    )
    return sparse.csr_array(leaving - N)


def direct_solver(N: sparse.csr_array, exit_rate: FloatArray) -> Solver | None:
    """Factorize A, or return None where elimination would fill in too much.

    Parameters
    ----------
    N : csr_array, shape (n, n)
        Nonnegative; the diagonal is ignored.
    exit_rate : ndarray, shape (n,)
        Nonnegative; every state must be able to reach one with a positive exit.
    """
    n = exit_rate.size
    n_components, component = connected_components(N, connection="strong")
    if n_components == n:
        # SciPy numbers the components sinks first: A in that order is lower triangular. Were
        # it another order, the factorization would only be slower.
        return _triangular_solver(grounded_matrix(N, exit_rate), np.argsort(component))
    if n <= DENSE_STATES:
        factors = GthFactors(N.toarray(), exit_rate)
        return Solver("GTH", factors.solve, factors.solve_transposed)
    if elimination_work(N) <= ELIMINATION_WORK:
        return _sparse_lu_solver(grounded_matrix(N, exit_rate))
    return None


def find_solver(N: sparse.csr_array, exit_rate: FloatArray, what: str) -> Solver:
    """Return the direct solver of A, or where there is none, one that iterates.

    Parameters
    ----------
    N, exit_rate
        As in `direct_solver`.
    what : str
        What is solved for, for the error message of `iterate`.
    """
    return direct_solver(N, exit_rate) or _iterative_solver(grounded_matrix(N, exit_rate), what)


def _triangular_solver(A: sparse.csr_array, order: IntArray) -> Solver:
    """Solve by substitution: in the given order A is triangular."""
    # Nothing fills in, so panels of several columns would only take time and memory.
    lu: Any = splu(
        A[order][:, order].tocsc(),
        permc_spec="NATURAL",
        diag_pivot_thresh=0.0,
        panel_size=1,
        options={"Equil": False, "SymmetricMode": True},
    )
    place = np.argsort(order)
    return Solver(
        "triangular",
        lambda c: lu.solve(c[order])[place],
        lambda c: lu.solve(c[order], trans="T")[place],
    )


def _sparse_lu_solver(A: sparse.csr_array) -> Solver:
    """Factorize A in an order that keeps the factors sparse.

    A is diagonally dominant, so elimination without pivoting is stable.

    Raises
    ------
    ConvergenceError
        If no digit is certain, for want of which a wrong answer would look like a right one.
    """
    lu: Any = splu(A.tocsc(), permc_spec="COLAMD", diag_pivot_thresh=0.0)
    # A^{-1} has no negative entry, so that its norm is the largest entry of A^{-1} 1.
    time = lu.solve(np.ones(A.shape[0]))
    if not (time.min() > 0.0 and time.max() <= MAX_TIME):
        raise ConvergenceError(
            f"elimination on {len(time)} states loses all digits: some take {time.max():.1e} "
            f"steps to leave the rest (a negative number is one beyond {MAX_TIME:.1e}); up to "
            f"{DENSE_STATES} states there is a method without subtraction"
        )
    return Solver("sparse LU", lu.solve, lambda c: lu.solve(c, trans="T"))


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


def _iterative_solver(A: sparse.csr_array, what: str) -> Solver:
    iterations: list[int] = []

    def solve(matrix: sparse.csr_array, c: FloatArray) -> FloatArray:
        x, n = iterate(lambda x: matrix @ x, c, np.zeros_like(c), what)
        iterations.append(n)
        return x

    A_transposed = sparse.csr_array(A.T)
    return Solver("iteration", lambda c: solve(A, c), lambda c: solve(A_transposed, c), iterations)


def iterate(
    apply: Callable[[FloatArray], FloatArray],
    c: FloatArray,
    x: FloatArray,
    what: str,
) -> tuple[FloatArray, int]:
    """Solve A x = c by x ← x + (c - A x)/2.

    Half a step, so that a periodic chain converges too: the iteration matrix (I + P)/2 is that
    of the chain that stays where it is every other time.

    Parameters
    ----------
    apply : callable
        The product A x.
    c, x : ndarray, shape (n,) or (n, m)
        Right-hand side and first iterate.
    what : str
        What is solved for, for the error message.

    Returns
    -------
    x : ndarray
    n_iterations : int

    Raises
    ------
    ConvergenceError
        If max |c - A x| stays above `ITERATION_TOLERANCE` max |x|; the message names it.
    """
    every = 32
    previous = residual = rate = np.nan
    for n in range(every, MAX_ITERATIONS + 1, every):
        for _ in range(every):
            step = c - apply(x)
            x = x + 0.5 * step
        size = float(np.abs(x).max(initial=0.0))
        residual = float(np.abs(step).max(initial=0.0)) / size if size > 0.0 else 0.0
        if residual <= ITERATION_TOLERANCE:
            return x, n
        rate = (residual / previous) ** (1.0 / every)
        previous = residual
    raise ConvergenceError(
        f"{what}: the relative residual is {residual:.3g} after {MAX_ITERATIONS} iterations and "
        f"changes by a factor {rate:.6f} each. Elimination would fill in on these {len(c)} "
        "states, and the chain mixes too slowly to iterate"
    )
