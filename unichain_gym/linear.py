"""Linear systems of Markov chains, solved by a method chosen by structure.

All have the matrix A = diag(N 1 + e) - N of `unichain_gym.elimination`. In order of preference:

``triangular``
    Every strongly connected component of N is one state, as in streams. In the order of the
    components A is triangular, and one sweep solves it.
``GTH``
    Up to `SMALL_STATES` states: dense elimination without subtraction. If products of probabilities
    underflow, ``ranged GTH`` for up to `RANGED_STATES` states.
``dense LU``
    Up to `DENSE_STATES` states, or if at least one entry in twenty is nonzero.
``sparse LU``
    If the reverse Cuthill-McKee ordering bounds elimination by few multiplications.
``sparse GTH``
    For many states, if elimination has little fill-in (trees).
``BiCGStab``
    Otherwise. A graph with much fill-in has no small separators; a chain on it mixes fast, so a
    Krylov method converges.

The diagonal is the sum of the leaving probabilities, never 1 minus the probability of staying, so a
leaving probability of 1e-12 keeps all digits. The methods without subtraction, and ``triangular``,
solve for nonnegative right-hand sides to a relative accuracy near rounding in every entry. The
other methods must meet a bound of the error. If they miss it, elimination without subtraction takes
over, for up to 10,000 states after fill-in.

**The bound.** A small residual does not bound the error of a nearly decomposable chain. But A has a
nonnegative inverse. If any vector z satisfies

    z ≥ 0  and  A z ≥ (1 - δ) 1,    δ < 1,

then A^{-1} 1 ≤ z/(1 - δ), so that every x satisfies

    max |x - A^{-1} c| ≤ max z/(1 - δ) max |c - A x|

(and the same in sums for x A = c). z is the expected number of steps until the states are left; a z
that misses a slow part violates the inequality. The bound includes the rounding of the residual as
a sum of random errors: √k roundings for k terms.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg.lapack import dgetrf, dgetrs
from scipy.sparse.csgraph import connected_components, reverse_cuthill_mckee
from scipy.sparse.linalg import bicgstab, splu

from unichain_gym.elimination import (
    MAX_CORE,
    MAX_ENTRIES,
    OUT_OF_RANGE,
    SMALLEST,
    Eliminated,
    GthFactors,
    RangedFactors,
    SparseGthFactors,
    eliminate,
    finite,
)
from unichain_gym.errors import ConvergenceError
from unichain_gym.interface import FloatArray, IntArray
from unichain_gym.outcomes import EPSILON
from unichain_gym.structure import divide_rows, edges, grounded_matrix, off_diagonal, row_sums

SMALL_STATES, DENSE_STATES = 40, 150
RANGED_STATES = 300
# Multiplications of an elimination: a small number, also as a multiple of n²; the limit.
LITTLE_WORK, GRID_WORK, ELIMINATION_WORK = 1e7, 30.0, 1e11
DENSITY = 0.05
# Accepted relative errors if elimination without subtraction is cheap, and if not.
AFFORDABLE_STATES, MAX_ERROR_AFFORDABLE, MAX_ERROR = 3_000, 1e-10, 1e-8
KRYLOV, MAX_ITERATIONS, KRYLOV_WORK = "BiCGStab", 10_000, 1e10
MANY = 100  # right-hand sides that justify a factorization with any fill-in
# With fewer moves and a smaller ratio of leaving rates, products below 1e-308 do not change the
# last digit of any frequency above 1e-150.
UNDERFLOW_MOVES, UNDERFLOW_RATES, SMALL_PROBABILITY = 1e200, 1e150, 1e-50


class _TriangularFactors(Eliminated):
    """Substitution: in the given order of the states A is triangular."""

    method = "triangular"

    def __init__(self, A: sparse.csr_array, order: IntArray) -> None:
        # There is no fill-in, so wider panels only cost time and memory.
        self._lu: Any = splu(
            A[order][:, order].tocsc(), permc_spec="NATURAL", diag_pivot_thresh=0.0, panel_size=1,
            options={"Equil": False, "SymmetricMode": True},
        )  # fmt: skip
        self._order, self._place = order, np.argsort(order)
        self.n_operations = order.size

    def solve(self, c: FloatArray, transposed: bool = False) -> FloatArray:
        return finite(self._lu.solve(c[self._order], "T" if transposed else "N")[self._place])


class Method(NamedTuple):
    """A method for the scaled system: candidate solutions of A x = c or x A = c, and iterations."""

    name: str
    solve: Callable[[FloatArray, bool], tuple[FloatArray, int]]


def sparse_lu(A: sparse.csr_array) -> Method:
    """Eliminate by SuperLU, without pivoting since A is diagonally dominant."""
    try:  # this order and panel size are the fastest where little fills in; A^T needs no copy
        lu: Any = splu(A.T, "MMD_AT_PLUS_A", diag_pivot_thresh=0.0, panel_size=1)
    except RuntimeError:  # a pivot of 0: the chain is nearly decomposable
        return Method("sparse LU", lambda c, transposed: (np.full_like(c, np.nan), 0))
    return Method("sparse LU", lambda c, transposed: (lu.solve(c, "N" if transposed else "T"), 0))


def dense_lu(A: Any) -> Method:
    """Eliminate by LAPACK, called without SciPy's checks, which take longer for 100 states."""
    lu, pivots, _ = dgetrf(A if isinstance(A, np.ndarray) else A.toarray())
    return Method("dense LU", lambda c, transposed: (dgetrs(lu, pivots, c, transposed)[0], 0))


def krylov(A: sparse.csr_array) -> Method:
    """Iterate by BiCGStab (van der Vorst, 1992), restarted from the true residual."""
    A_transposed = sparse.csr_array(A.T)
    limit = min(MAX_ITERATIONS, 1 + int(KRYLOV_WORK / (2 * A.nnz)))

    def solve(c: FloatArray, transposed: bool) -> tuple[FloatArray, int]:
        M = A_transposed if transposed else A
        x = best = np.zeros_like(c)
        residual, least = c, np.inf
        n, failures = 0, 0

        def count(_: FloatArray) -> None:
            nonlocal n
            n += 1

        while True:
            size = float(np.abs(residual).max())
            if size < least:
                failures = 0 if size < 0.5 * least else failures + 1
                least, best = size, x
            else:
                failures += 1
            if least <= 4.0 * EPSILON * np.abs(best).max() or failures > 2 or n >= limit:
                return best, n
            with np.errstate(all="ignore"):  # a breakdown shows in the residual
                step, _ = bicgstab(
                    M, residual / size, rtol=1e-10, maxiter=limit - n, callback=count
                )
            n += 1
            x = best + size * step
            residual = c - M @ x
            if not np.isfinite(residual).all():
                x, residual = best, c - M @ best

    return Method(KRYLOV, solve)


def find_method(N: Any) -> Callable[[Any], Method]:
    """Return the method for systems with entries like N, dense or CSR."""
    n = N.shape[0]
    if n <= DENSE_STATES or _is_dense(N):
        return dense_lu
    limit = min(max(LITTLE_WORK, GRID_WORK * n * n), ELIMINATION_WORK)
    return sparse_lu if elimination_work(N) <= limit else krylov


class CertifiedSolver:
    """A method with checked solutions, and a fallback solver.

    ``make`` returns the method for A, scaled to a unit diagonal. ``fallback`` takes a reason; it
    returns another solver or raises a `ConvergenceError` with this reason.
    """

    def __init__(
        self,
        N: sparse.csr_array,
        exit_rate: FloatArray,
        make: Callable[[Any], Method],
        fallback: Callable[[str], Solver],
    ) -> None:
        n = exit_rate.size
        if make is dense_lu:
            A: Any = N if isinstance(N, np.ndarray) else N.toarray()
            A.flat[:: n + 1] = 0.0
            self._rate = exit_rate + A.sum(axis=1)
            A = A / -self._rate[:, None]
            A.flat[:: n + 1] = 1.0
            n_terms: Any = n, n
        else:
            A = grounded_matrix(N, exit_rate)
            self._rate = A.diagonal()
            A = divide_rows(A, self._rate)
            n_terms = np.diff(A.indptr), np.bincount(A.indices, minlength=n)
        self._matrix = A
        self._rounding = tuple(EPSILON * (1.0 + 0.5 * np.sqrt(k)) for k in n_terms)
        self._max_error = MAX_ERROR_AFFORDABLE if n <= AFFORDABLE_STATES else MAX_ERROR
        self._method = make(A)
        self._fallback = fallback
        self._successor: Solver | None = None
        self._for_many: Solver | None = None
        self._n_iterations = 0

    @property
    def method(self) -> str:
        """The method's name."""
        return self._successor.method if self._successor else self._method.name

    @property
    def n_iterations(self) -> int:
        """The iterations of the latest solution; 0 for direct methods."""
        return self._successor.n_iterations if self._successor else self._n_iterations

    def rough_solution(self, c: FloatArray) -> FloatArray:
        """Return a solution of A x = c, c being (n,), without a check."""
        return self._method.solve(c / self._rate, False)[0]

    def solve(self, c: FloatArray, transposed: bool = False) -> FloatArray:
        """Return the solution of A x = c, c being (n,) or (n, m), or of x A = c, c being (n,)."""
        if c.ndim == 2:
            if c.shape[1] > MANY and self._method.name == KRYLOV:
                if self._for_many is None:
                    self._for_many = self._fallback(f"{c.shape[1]} systems are too many to iterate")
                return self._for_many.solve(c)
            return np.stack([self.solve(column) for column in c.T], axis=1)
        x = self._solve(c if transposed else c / self._rate, transposed)
        if x is None:
            if not self._successor:
                worst = EPSILON * self.times[1]
                self._successor = self._fallback(
                    f"rounding may change the answer of {self._method.name} by {worst:.1e} of its "
                    "size"
                    if self._max_error < worst < np.inf
                    else f"{self._method.name} did not converge"
                )
            return self._successor.solve(c, transposed)
        return x / self._rate if transposed else x

    def error_bound(self, c: FloatArray, x: FloatArray, transposed: bool = False) -> float:
        """Bound the relative error of a solution (n,), in the ∞-norm; transposed, the 1-norm."""
        if self._successor:
            return self._successor.error_bound(c, x, transposed)
        if transposed:
            return self._bound(c, x * self._rate, transposed)
        return self._bound(c / self._rate, x, transposed)

    def _solve(self, c: FloatArray, transposed: bool) -> FloatArray | None:
        """Solve the scaled system; None if the bound is not met."""
        if self._successor or EPSILON * self.times[1] > self._max_error:
            return None
        x, n = self._method.solve(c, transposed)
        if self._bound(c, x, transposed) > self._max_error:
            correction, m = self._method.solve(
                c - (self._matrix.T if transposed else self._matrix) @ x, transposed
            )
            x, n = x + correction, n + m
            if not self._bound(c, x, transposed) <= self._max_error:
                return None
        self._n_iterations = n
        return x

    def _bound(self, c: FloatArray, x: FloatArray, transposed: bool) -> float:
        """Bound the error by |c - A x| plus the rounding of this residual."""
        A, size = self._matrix.T if transposed else self._matrix, np.abs(x)
        # |A| |x|, since the diagonal is 1 and the rest is not positive
        terms = np.abs(c) + 2.0 * size - A @ size
        residual = np.abs(c - A @ x)
        uncertainty = residual + self._rounding[transposed] * terms
        if transposed:
            error, largest = uncertainty.sum(), (size / self._rate).sum()
        else:
            error, largest = (self._rate * uncertainty).max(), size.max()
        if error == 0.0:
            return 0.0
        return self.times[1] * float(error) / float(largest) if largest > 0.0 else np.inf

    @cached_property
    @np.errstate(over="ignore", invalid="ignore")
    def times(self) -> tuple[FloatArray, float]:
        """The z of the module's docstring, and its bound of the largest entry of A^{-1} 1."""
        c = 1.0 / self._rate
        z, self._n_iterations = self._method.solve(c, False)
        product = self._matrix @ z
        rounding = self._rounding[False] * (c + 2.0 * z - product)
        delta = float(((c - product + rounding) * self._rate).max())
        is_proof = z.min() >= 0.0 and delta < 0.5
        return z, float(z.max()) / (1.0 - delta) if is_proof else np.inf


Solver = Eliminated | CertifiedSolver
"""Solves A x = c and x A = c, and has a method name and an error bound."""


def find_solver(N: Any, exit_rate: FloatArray, smallest: float = 0.0) -> Solver:
    """Return a solver of A = diag(N 1 + e) - N, for N ≥ 0 with ignored diagonal, and e ≥ 0.

    N is CSR, or dense for more than `SMALL_STATES` states; its diagonal is overwritten. From every
    state, a state with e > 0 must be reachable. Entries of N and e are 0 or at least ``smallest``.
    If no digit is certain, or numbers overflow, this function or the solver raises a
    `ConvergenceError`.
    """
    n = exit_rate.size
    if n <= SMALL_STATES or not _is_dense(N):
        n_components, component = connected_components(N, connection="strong")
        if n_components == n:
            # SciPy numbers the components sinks first, so A is lower triangular in this order.
            # Another order would only slow down the factorization.
            A = grounded_matrix(N, exit_rate)
            if n and A.diagonal().min() < SMALLEST:
                raise ConvergenceError(OUT_OF_RANGE)
            return _TriangularFactors(A, np.argsort(component))
    # Products of a few probabilities may exceed the range of doubles.
    if n <= RANGED_STATES and smallest < SMALL_PROBABILITY:
        numbers = exit_rate, N if isinstance(N, np.ndarray) else N.data
        small = SMALL_PROBABILITY * max(x.max(initial=0.0) for x in numbers)
        if any(np.count_nonzero(x >= small) < np.count_nonzero(x) for x in numbers):
            return RangedFactors(sparse.csr_array(N), exit_rate)
    if n <= SMALL_STATES:
        return _unless_underflow(GthFactors(N.toarray(), exit_rate), N, exit_rate)

    def without_subtraction(reason: str) -> Solver:
        entries = sparse.csr_array(N)
        factors = eliminate(entries, exit_rate, MAX_ENTRIES)
        if factors is None:
            raise ConvergenceError(
                f"the system of {n} states is out of reach: {reason}, and elimination without "
                f"subtraction would fill in on more than {MAX_CORE} states. Look at the weakly "
                "linked parts of the chain apart, or remove transitions too rare to matter"
            )
        return _unless_underflow(factors, entries, exit_rate)

    def by_factors(reason: str) -> Solver:
        if elimination_work(N) > ELIMINATION_WORK:
            return without_subtraction(reason)
        return CertifiedSolver(N, exit_rate, sparse_lu, without_subtraction)

    make = find_method(N)
    if make is not krylov:
        return CertifiedSolver(N, exit_rate, make, without_subtraction)
    little = eliminate(N, exit_rate, max_entries=2 * N.nnz) if n > AFFORDABLE_STATES else None
    if little is not None:
        return _unless_underflow(little, N, exit_rate)
    return CertifiedSolver(N, exit_rate, krylov, by_factors)


def _is_dense(N: Any) -> bool:
    n = N.shape[0]
    return isinstance(N, np.ndarray) or (n <= MAX_CORE and N.nnz >= DENSITY * n * n)


def _unless_underflow(
    factors: GthFactors | SparseGthFactors, N: sparse.csr_array, exit_rate: FloatArray
) -> Eliminated:
    """Return the factors, or raise `ConvergenceError` if a product that underflowed may matter.

    A probability lost to underflow is below 1e-307 of its row. It changes a solution by at most
    this share times the expected number of moves. A lost flow is a frequency below 1e-308 divided
    by the rate of leaving.
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
    return factors


def elimination_work(N: sparse.csr_array) -> float:
    """Bound the multiplications of an elimination: Σ_k (rows that pivot k changes)².

    For a narrow matrix, the bandwidth gives the bound. Otherwise use the reverse Cuthill-McKee
    ordering with high-degree states moved to the end: row i changes from the pivot of its first
    entry on.
    """
    n = N.shape[0]
    row, column = edges(N)
    width = float(np.abs(row - column).max(initial=0))
    if n * width**2 <= LITTLE_WORK:
        return n * width**2
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
