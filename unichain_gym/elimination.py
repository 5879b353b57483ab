"""Elimination without subtraction (Grassmann, Taksar & Heyman, 1985, Oper. Res. 33).

The systems of a Markov chain have matrices

    A = diag(N 1 + e) - N,    N ≥ 0 without diagonal, e ≥ 0,

where N holds the transitions among some states and e the probability of leaving them. In
Gaussian elimination the off-diagonal entries only ever grow in size and the pivot of state k
is what is left to be left for: the sum of its remaining entries and of its exit. Computed so,
nothing is ever subtracted, and every entry of the factors has a small relative error, however
close to decomposable the chain is (O'Cinneide, 1993, Numer. Math. 65).
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve_triangular

from unichain_gym.arrays import FloatArray
from unichain_gym.errors import ConvergenceError

_BLOCK = 64
SMALLEST = float(np.finfo(np.float64).tiny)
OUT_OF_RANGE = (
    "some states are left so rarely that expected times, or sums of rewards over them, exceed the "
    "range of doubles (1e308); look at a smaller or faster chain"
)


class GthFactors:
    """Factors (I - L)(D - U) of A = diag(N 1 + e) - N.

    Parameters
    ----------
    N : ndarray, shape (n, n)
        Nonnegative; its diagonal is ignored.
    exit_rate : ndarray, shape (n,)
        Nonnegative; every state must be able to reach one with a positive exit.

    Raises
    ------
    ConvergenceError
        If a pivot is below the smallest normal double (and later, if a solution overflows).
    """

    def __init__(self, N: FloatArray, exit_rate: FloatArray) -> None:
        n = exit_rate.size
        a = np.empty((n, n + 1))
        a[:, :n] = N
        a[:, n] = exit_rate
        pivot = np.empty(n)
        # Right-looking and blocked: a panel of pivots updates its own rows and columns as it
        # goes, and the rest by one matrix product of nonnegative factors.
        for start in range(0, n, _BLOCK):
            stop = min(start + _BLOCK, n)
            for k in range(start, stop):
                pivot[k] = a[k, k + 1 :].sum()
                if pivot[k] < SMALLEST:
                    raise ConvergenceError(OUT_OF_RANGE)
                a[k + 1 :, k] /= pivot[k]
                a[k + 1 : stop, k + 1 :] += np.outer(a[k + 1 : stop, k], a[k, k + 1 :])
                a[stop:, k + 1 : stop] += np.outer(a[stop:, k], a[k, k + 1 : stop])
            a[stop:, stop:] += a[stop:, start:stop] @ a[start:stop, stop:]
        self._lower = -np.tril(a[:, :n], -1)
        self._upper = -np.triu(a[:, :n], 1)
        np.fill_diagonal(self._upper, pivot)

    def solve(self, c: FloatArray) -> FloatArray:
        """Return the solution of A x = c; c is (n,) or (n, m)."""
        y = solve_triangular(self._lower, c, lower=True, unit_diagonal=True, check_finite=False)
        return _finite(solve_triangular(self._upper, y, check_finite=False))

    def solve_transposed(self, c: FloatArray) -> FloatArray:
        """Return the solution of x A = c; c is (n,) or (n, m)."""
        y = solve_triangular(self._upper, c, trans="T", check_finite=False)
        return _finite(
            solve_triangular(
                self._lower, y, lower=True, unit_diagonal=True, trans="T", check_finite=False
            )
        )


def _finite(x: FloatArray) -> FloatArray:
    if not np.isfinite(x).all():
        raise ConvergenceError(OUT_OF_RANGE)
    return x
