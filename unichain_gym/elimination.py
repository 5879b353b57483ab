"""Elimination without subtraction (Grassmann, Taksar & Heyman, 1985, Oper. Res. 33).

The systems of a Markov chain have matrices

    A = diag(N 1 + e) - N,    N ≥ 0 without diagonal, e ≥ 0,

where N holds the transitions among some states and e the probability of leaving them. In
Gaussian elimination the off-diagonal entries only ever grow in size and the pivot of state k
is what is left to be left for: the sum of its remaining entries and of its exit. Computed so,
nothing is ever subtracted, and every entry of the factors has a small relative error, however
close to decomposable the chain is (O'Cinneide, 1993, Numer. Math. 65).

Here on dense matrices; `unichain_gym.sparse_elimination` does the same on sparse ones, and
`unichain_gym.ranged` where products of probabilities leave the range of doubles.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import solve_triangular
from scipy.sparse.csgraph import reverse_cuthill_mckee

from unichain_gym.arrays import FloatArray
from unichain_gym.errors import ConvergenceError

_BLOCK = 64
SMALLEST = float(np.finfo(np.float64).tiny)
OUT_OF_RANGE = (
    "some states are left so rarely that expected times, or sums of rewards over them, exceed the "
    "range of doubles (1e308); look at a smaller or faster chain, or scale the rewards down"
)


class GthFactors:
    """Factors D (I - L)(V - U) of A = diag(N 1 + e) - N, with D the rates of leaving.

    Divided by D, each row of N and e sums to 1, so that only ratios of probabilities matter and
    not how small they are.

    Parameters
    ----------
    N : ndarray, shape (n, n)
        Nonnegative; its diagonal is ignored. It is overwritten.
    exit_rate : ndarray, shape (n,)
        Nonnegative; every state must be able to reach one with a positive exit.

    Attributes
    ----------
    n_operations : int
        How many operations in a row an entry may go through; each adds a rounding.
    may_underflow : bool
        Whether a product of two entries may have fallen below the smallest normal double.

    Raises
    ------
    ConvergenceError
        If a pivot is below the smallest normal double (and later, if a solution overflows).
    """

    name = "GTH"

    def __init__(self, N: FloatArray, exit_rate: FloatArray) -> None:
        n = exit_rate.size
        self.n_operations = n
        self.may_underflow = False
        a = N
        np.fill_diagonal(a, 0.0)
        self._rate = a.sum(axis=1) + exit_rate
        if n and not self._rate.min() > 0.0:
            raise ConvergenceError(OUT_OF_RANGE)
        a /= self._rate[:, None]
        leave = exit_rate / self._rate
        pivot = np.empty(n)
        # Right-looking and blocked: a panel of pivots updates its own rows and columns as it
        # goes, and the rest by one matrix product of nonnegative factors.
        for start in range(0, n, _BLOCK):
            stop = min(start + _BLOCK, n)
            for k in range(start, stop):
                pivot[k] = a[k, k + 1 :].sum() + leave[k]
                if pivot[k] < SMALLEST:
                    raise ConvergenceError(OUT_OF_RANGE)
                a[k + 1 :, k] /= pivot[k]
                a[k + 1 : stop, k + 1 :] += np.outer(a[k + 1 : stop, k], a[k, k + 1 :])
                a[stop:, k + 1 : stop] += np.outer(a[stop:, k], a[k, k + 1 : stop])
                leave[k + 1 :] += a[k + 1 :, k] * leave[k]
            a[stop:, stop:] += a[stop:, start:stop] @ a[start:stop, stop:]
            smallest = _smallest(a[start + 1 :, start:stop])
            self.may_underflow |= smallest * _smallest(a[start:stop, start + 1 :]) < SMALLEST
            self.may_underflow |= smallest * _smallest(leave[start:stop]) < SMALLEST
        np.negative(a, out=a)
        np.fill_diagonal(a, pivot)
        self._factors = a

    @np.errstate(over="ignore", invalid="ignore")  # `finite` finds it
    def solve(self, c: FloatArray, transposed: bool = False) -> FloatArray:
        """Return the solution of A x = c, or of x A = c; c is (n,) or (n, m)."""
        if transposed:
            y = solve_triangular(self._factors, c, trans="T", check_finite=False)
            y = solve_triangular(
                self._factors, y, lower=True, unit_diagonal=True, trans="T", check_finite=False
            )
            return finite((y.T / self._rate).T)
        scaled = np.ascontiguousarray((c.T / self._rate).T)
        y = solve_triangular(
            self._factors, scaled, lower=True, unit_diagonal=True, check_finite=False
        )
        return finite(solve_triangular(self._factors, y, check_finite=False))


def _smallest(a: FloatArray) -> float:
    """Return the smallest positive entry, infinite if there is none."""
    return float(np.min(a, where=a > 0.0, initial=np.inf))


def finite(x: FloatArray) -> FloatArray:
    """Return x, or raise `ConvergenceError` if an entry has overflowed."""
    if not np.isfinite(x).all():
        raise ConvergenceError(OUT_OF_RANGE)
    return x


class ObjectFactors:
    """Factors of A = diag(N 1 + e) - N in numbers of any type, such as fractions.

    Parameters
    ----------
    N : csr_array, shape (n, n)
        Which entries there are.
    values : ndarray of object, shape (nnz,)
        What they are.
    exit_rate : ndarray of object, shape (n,)
    """

    def __init__(self, N: sparse.csr_array, values: Any, exit_rate: Any) -> None:
        n = exit_rate.size
        pattern = sparse.csr_array((np.ones(N.nnz), N.indices, N.indptr), shape=N.shape)
        self._order = reverse_cuthill_mckee(sparse.csr_array(pattern + pattern.T), symmetric_mode=True)
        place = np.argsort(self._order)
        a = np.zeros((n, n), dtype=object)
        row = np.repeat(np.arange(n), np.diff(N.indptr))
        np.add.at(a, (place[row], place[N.indices]), values)
        leave = exit_rate[self._order]
        self._steps = []
        for k in range(n):
            right = k + 1 + np.flatnonzero(a[k, k + 1 :])
            below = k + 1 + np.flatnonzero(a[k + 1 :, k])
            onward = a[k, right]
            pivot = onward.sum() + leave[k]
            share = a[below, k] / pivot
            a[np.ix_(below, right)] += share[:, None] * onward
            leave[below] += share * leave[k]
            self._steps.append((k, right, onward, below, share, pivot))

    def solve(self, c: Any, transposed: bool = False) -> Any:
        """Return the solution of A x = c, c being (n,) or (n, m), or of x A = c, c being (n,)."""
        x = c[self._order]
        for k, right, onward, below, share, pivot in self._steps:
            if transposed:
                x[k] = x[k] / pivot
                x[right] += onward * x[k]
            else:
                x[below] += np.multiply.outer(share, x[k])
        for k, right, onward, below, share, pivot in reversed(self._steps):
            if transposed:
                x[k] = x[k] + share @ x[below]
            else:
                x[k] = (x[k] + onward @ x[right]) / pivot
        answer = np.empty_like(x)
        answer[self._order] = x
        return answer
