"""Solvers that subtract or iterate, held to a bound of their error.

A small residual proves nothing about a chain that nearly falls apart: two halves that exchange
a walker once in 1e12 steps leave no trace in it. But the matrix A = diag(N 1 + e) - N has a
nonnegative inverse, and with it a proof. If z is any vector, however found, with

    z ≥ 0  and  A z ≥ (1 - δ) 1,    δ < 1,

then A^{-1} 1 ≤ z/(1 - δ), so that every x satisfies

    max |x - A^{-1} c| ≤ max z/(1 - δ) max |c - A x|

(and the same in sums for x A = c). z is the expected number of steps until the states are left;
a vector that misses a slow part fails the inequality instead of hiding it. The rounding of the
residual itself is added to it, as that of sums of random errors: √k roundings for k terms.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import bicgstab, splu

from unichain_gym.arrays import FloatArray
from unichain_gym.rounding import EPSILON
from unichain_gym.structure import divide_rows, grounded_matrix

MAX_ERROR = 1e-8
MAX_ITERATIONS = 10_000
KRYLOV_WORK = 1e10
MANY = 100  # right-hand sides that are worth a factorization, whatever it fills in


class Factors(Protocol):
    """A factorization of A = diag(N 1 + e) - N without subtraction."""

    name: str
    n_operations: int

    def solve(self, c: FloatArray, transposed: bool = False) -> FloatArray:
        """Return the solution of A x = c, c being (n,) or (n, m), or of x A = c, c being (n,)."""


class DirectSolver:
    """A factorization without subtraction, in which nothing but rounding adds up."""

    n_iterations = 0

    def __init__(self, factors: Factors) -> None:
        self.method = factors.name
        self._factors = factors
        self._rounding = 2.0 * EPSILON * (factors.n_operations + 4)

    def solve(self, c: FloatArray, transposed: bool = False) -> FloatArray:
        """Return the solution of A x = c, c being (n,) or (n, m), or of x A = c, c being (n,)."""
        return self._factors.solve(c, transposed)

    def error_bound(self, c: FloatArray, x: FloatArray, transposed: bool = False) -> float:
        """Bound the error of a solution (n,) relative to it, in maxima, or transposed in sums.

        Every rounding is relative to a term of A^{-1} |c|, where nothing cancels.
        """
        total: Any = np.sum if transposed else np.max
        size = float(total(np.abs(x)))
        return (
            self._rounding * float(total(self.solve(np.abs(c), transposed))) / size if size else 0.0
        )


class SparseLu:
    """Gaussian elimination by SuperLU, without pivoting since A is diagonally dominant."""

    name = "sparse LU"
    is_direct = True

    def __init__(self, A: sparse.csr_array) -> None:
        self._lu: Any = None
        with contextlib.suppress(RuntimeError):  # a pivot of 0: the chain nearly falls apart
            self._lu = splu(A.tocsc(), permc_spec="COLAMD", diag_pivot_thresh=0.0)

    def solve(self, c: FloatArray, transposed: bool) -> tuple[FloatArray, int]:
        """Return a proposal of shape (n,) after no iterations."""
        if self._lu is None:
            return np.full_like(c, np.nan), 0
        return self._lu.solve(c, trans="T" if transposed else "N"), 0


class Krylov:
    """BiCGStab (van der Vorst, 1992), restarted from the true residual until that is rounding."""

    name = "BiCGStab"
    is_direct = False

    def __init__(self, A: sparse.csr_array) -> None:
        self._A = A
        self._A_transposed = sparse.csr_array(A.T)

    def solve(self, c: FloatArray, transposed: bool) -> tuple[FloatArray, int]:
        """Return the best proposal found, shape (n,), and how many iterations it took."""
        A = self._A_transposed if transposed else self._A
        x = best = np.zeros_like(c)
        residual = c
        least = np.inf
        n, failures = 0, 0
        limit = min(MAX_ITERATIONS, 1 + int(KRYLOV_WORK / (2 * A.nnz)))

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
                    A, residual / size, rtol=1e-10, maxiter=limit - n, callback=count
                )
            n += 1
            x = best + size * step
            residual = c - A @ x
            if not np.isfinite(residual).all():
                x, residual = best, c - A @ best


class CertifiedSolver:
    """A method whose solutions are checked, and another that takes over where they fail.

    Parameters
    ----------
    N, exit_rate : csr_array, shape (n, n), and ndarray, shape (n,)
        As for `unichain_gym.linear.find_solver`.
    make : callable
        Makes the method from A, scaled so that its diagonal is 1.
    fallback : callable
        Makes the solver that takes over, or raises `ConvergenceError` with the reason given.
    """

    def __init__(
        self,
        N: sparse.csr_array,
        exit_rate: FloatArray,
        make: Callable[[sparse.csr_array], SparseLu | Krylov],
        fallback: Callable[[str], Solver],
    ) -> None:
        A = grounded_matrix(N, exit_rate)
        self._rate = A.diagonal()
        self._A = divide_rows(A, self._rate)
        n_terms = np.diff(A.indptr), np.bincount(A.indices, minlength=A.shape[0])
        self._rounding = tuple(EPSILON * (1.0 + 0.5 * np.sqrt(k)) for k in n_terms)
        self._method = make(self._A)
        self._fallback = fallback
        self._successor: Solver | None = None
        self._for_many: Solver | None = None
        self._n_iterations = 0
        self._largest_time: float | None = None

    @property
    def method(self) -> str:
        """The method's name."""
        return self._successor.method if self._successor else self._method.name

    @property
    def n_iterations(self) -> int:
        """The iterations of the latest solution; 0 for direct methods."""
        return 0 if self._successor else self._n_iterations

    def solve(self, c: FloatArray, transposed: bool = False) -> FloatArray:
        """Return the solution of A x = c, c being (n,) or (n, m), or of x A = c, c being (n,)."""
        if c.ndim == 2:
            if c.shape[1] > MANY and not self._method.is_direct:
                if self._for_many is None:
                    self._for_many = self._fallback(f"{c.shape[1]} systems are too many to iterate")
                return self._for_many.solve(c)
            return np.stack([self.solve(column) for column in c.T], axis=1)
        x = self._solve(c if transposed else c / self._rate, transposed)
        if x is None:
            return self._hand_over().solve(c, transposed)
        return x / self._rate if transposed else x

    def error_bound(self, c: FloatArray, x: FloatArray, transposed: bool = False) -> float:
        """Bound the error of a solution (n,) relative to it, in maxima, or transposed in sums."""
        if self._successor:
            return self._successor.error_bound(c, x, transposed)
        if transposed:
            return self._bound(c, x * self._rate, transposed)
        return self._bound(c / self._rate, x, transposed)

    def _solve(self, c: FloatArray, transposed: bool) -> FloatArray | None:
        """Solve the scaled system; None if the bound is not met."""
        if self._successor or EPSILON * self._time() > MAX_ERROR:
            return None
        x, n = self._method.solve(c, transposed)
        if self._bound(c, x, transposed) > MAX_ERROR:
            correction, m = self._method.solve(c - self._apply(x, transposed), transposed)
            x, n = x + correction, n + m
            if not self._bound(c, x, transposed) <= MAX_ERROR:
                return None
        self._n_iterations = n
        return x

    def _hand_over(self) -> Solver:
        if not self._successor:
            worst = EPSILON * (self._largest_time or 0.0)
            self._successor = self._fallback(
                f"rounding may change the answer of {self._method.name} by {worst:.1e} of its size"
                if MAX_ERROR < worst < np.inf
                else f"{self._method.name} did not converge"
            )
        return self._successor

    def _apply(self, x: FloatArray, transposed: bool) -> FloatArray:
        return np.asarray(x @ self._A if transposed else self._A @ x)

    def _bound(self, c: FloatArray, x: FloatArray, transposed: bool) -> float:
        """Bound the error by |c - A x|, plus what rounding may have hidden of it."""
        size = np.abs(x)
        # |A| |x|, since the diagonal is 1 and the rest is not positive
        terms = np.abs(c) + 2.0 * size - self._apply(size, transposed)
        residual = np.abs(c - self._apply(x, transposed))
        uncertainty = residual + self._rounding[transposed] * terms
        if transposed:
            error, largest = uncertainty.sum(), (size / self._rate).sum()
        else:
            error, largest = (self._rate * uncertainty).max(), size.max()
        if error == 0.0:
            return 0.0
        return self._time() * float(error) / float(largest) if largest > 0.0 else np.inf

    @np.errstate(over="ignore", invalid="ignore")
    def _time(self) -> float:
        """Bound the largest entry of A^{-1} 1, by the z of the module's docstring."""
        if self._largest_time is None:
            c = 1.0 / self._rate
            z, self._n_iterations = self._method.solve(c, transposed=False)
            residual = c - self._A @ z
            rounding = self._rounding[False] * (c + 2.0 * z - self._A @ z)
            delta = float(((residual + rounding) * self._rate).max())
            is_proof = bool(np.isfinite(z).all()) and z.min() >= 0.0 and delta < 0.5
            self._largest_time = float(z.max()) / (1.0 - delta) if is_proof else np.inf
        return self._largest_time


Solver = DirectSolver | CertifiedSolver
"""A way to solve A x = c and x A = c, with the method behind it and a bound of its error."""
