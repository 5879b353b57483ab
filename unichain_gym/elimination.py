"""Elimination without subtraction (Grassmann, Taksar & Heyman, 1985, Oper. Res. 33).

The systems of a Markov chain have matrices

    A = diag(N 1 + e) - N,    N ≥ 0 without diagonal, e ≥ 0,

where N holds the transitions among some states and e the probability of leaving them. In Gaussian
elimination the off-diagonal entries only grow in size, and the pivot of state k is the sum of its
remaining entries and its exit. No step subtracts, so every entry of the factors has a small
relative error, even for nearly decomposable chains (O'Cinneide, 1993, Numer. Math. 65).
"""

from __future__ import annotations

from decimal import Context, Decimal, localcontext
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import solve_triangular
from scipy.sparse.csgraph import reverse_cuthill_mckee

from unichain_gym.errors import ConvergenceError
from unichain_gym.interface import BoolArray, FloatArray, IntArray
from unichain_gym.outcomes import EPSILON
from unichain_gym.structure import divide_rows, edges, off_diagonal, row_sums

_BLOCK = 64
SMALLEST = float(np.finfo(np.float64).tiny)
SMALL_CORE = 500
MAX_CORE = 10_000  # 0.8 GB, and about 40 s
MAX_ENTRIES = 10_000_000
_DENSE = 0.05
_DECIMALS = Context(prec=24, Emax=10**17, Emin=-(10**17))
OUT_OF_RANGE = (
    "some states are left so rarely that expected times, or sums of rewards over them, exceed the "
    "range of doubles (1e308); look at a smaller or faster chain, or scale the rewards down"
)


class Eliminated:
    """Factors without subtraction; a solution undergoes about ``n_operations`` roundings."""

    method: str
    n_iterations = 0
    n_operations: int

    def solve(self, c: FloatArray, transposed: bool = False) -> FloatArray:
        """Return the solution of A x = c, c being (n,) or (n, m), or of x A = c, c being (n,)."""
        raise NotImplementedError

    def error_bound(self, c: FloatArray, x: FloatArray, transposed: bool = False) -> float:
        """Bound the error of a solution (n,) relative to it, in maxima, or transposed in sums.

        Every rounding error is relative to a term of A^{-1} |c|, so nothing cancels.
        """
        total: Any = np.sum if transposed else np.max
        size = float(total(np.abs(x)))
        error = float(total(self.solve(np.abs(c), transposed)))
        return 2.0 * EPSILON * (self.n_operations + 4) * error / size if size else 0.0


class GthFactors(Eliminated):
    """Factors D (I - L)(V - U) of A = diag(N 1 + e) - N, with D the rates of leaving.

    Division by D makes each row of N and e sum to 1, so only ratios of probabilities matter. N (n,
    n) is overwritten. From every state, a state with an exit e > 0 must be reachable. Overflowing
    pivots or solutions raise a `ConvergenceError`; `may_underflow` reports underflowing products.
    """

    method = "GTH"

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
        # Right-looking and blocked: each pivot of a panel updates the panel's rows and columns, and
        # one matrix product of nonnegative factors updates the rest.
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
        """Solve, as `Eliminated` says."""
        lower: Any = {"lower": True, "unit_diagonal": True, "check_finite": False}
        if transposed:
            y = solve_triangular(self._factors, c, trans="T", check_finite=False)
            y = solve_triangular(self._factors, y, trans="T", **lower)
            return finite((y.T / self._rate).T)
        y = solve_triangular(self._factors, np.ascontiguousarray((c.T / self._rate).T), **lower)
        return finite(solve_triangular(self._factors, y, check_finite=False))


def _smallest(a: FloatArray) -> float:
    return float(np.min(a, where=a > 0.0, initial=np.inf))


def finite(x: FloatArray) -> FloatArray:
    """Return x, or raise `ConvergenceError` if an entry has overflowed."""
    if not np.isfinite(x).all():
        raise ConvergenceError(OUT_OF_RANGE)
    return x


class _Round(NamedTuple):
    """States eliminated together, and the transitions between them and the other states."""

    gone: IntArray
    rest: IntArray
    pivot: FloatArray
    from_gone: sparse.csr_array
    to_gone: sparse.csr_array


class SparseGthFactors(Eliminated):
    """Factors of A = diag(N 1 + e) - N; make them with `eliminate`."""

    method = "sparse GTH"

    def __init__(
        self, rate: FloatArray, rounds: list[_Round], core: GthFactors, core_size: int
    ) -> None:
        self._rate = rate
        self._rounds = rounds
        self._core = core
        self.may_underflow = core.may_underflow or any(
            _smallest(step.from_gone.data) * _smallest(step.to_gone.data) < SMALLEST
            for step in rounds
        )
        # Rounding grows with the longest sequence of operations, not with their number.
        self.n_operations = core_size + 4 * len(rounds)

    @np.errstate(over="ignore", invalid="ignore")  # `finite` finds it
    def solve(self, c: FloatArray, transposed: bool = False) -> FloatArray:
        """Solve, as `Eliminated` says."""
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
    """Factorize A = diag(N 1 + e) - N; None if more than ``max_entries`` entries would remain.

    States U with no transition between them can be eliminated together. With G the other states,
    the result is a matrix of the same form on G, the censored chain:

        pivot = N_UG 1 + e_U,    N ← N_GG + N_GU diag(1/pivot) N_UG,    e ← e_G + N_GU (e_U/pivot)

    Each round takes the states with least fill-in (Markowitz, 1957: the smallest product of in- and
    out-degree), each with less than its neighbors. Lines and trees take a logarithmic number of
    rounds. A remainder that is no longer sparse is eliminated as a dense matrix.
    """
    N = off_diagonal(N)
    # After division by the rates of leaving, only ratios of probabilities matter.
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
    """Choose states with little fill-in and no transitions between them, as a mask (n,)."""
    n = N.shape[0]
    fill = np.diff(N.indptr) * np.bincount(N.indices, minlength=n).astype(np.float64)
    rank = np.empty(n, dtype=np.int64)
    rank[np.argsort(fill + 0.5 * rng.random(n), kind="stable")] = np.arange(n)
    lowest = np.full(n, n)
    row, column = edges(N)
    np.minimum.at(lowest, row, rank[column])
    np.minimum.at(lowest, column, rank[row])
    # Only cheap states: later rounds, or the dense elimination, take the others.
    limit = 2.0 * np.partition(fill, n // 10)[n // 10] + 2.0
    return np.asarray((rank < lowest) & (fill <= limit))


class ObjectFactors:
    """Factors of A = diag(N 1 + e) - N in numbers of any type, such as fractions.

    N gives the sparsity pattern, ``values`` (nnz,) and ``exit_rate`` (n,) the numbers.
    """

    def __init__(self, N: sparse.csr_array, values: Any, exit_rate: Any) -> None:
        n = exit_rate.size
        pattern = sparse.csr_array((np.ones(N.nnz), N.indices, N.indptr), shape=N.shape)
        self._order = reverse_cuthill_mckee(
            sparse.csr_array(pattern + pattern.T), symmetric_mode=True
        )
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


class RangedFactors(Eliminated):
    """Factors in decimals of 24 digits and exponents of 10^17.

    The probability of a path between two rare states can be 1e-400, below the range of doubles, and
    still decide which of the two states is more frequent.
    """

    method = "ranged GTH"

    def __init__(self, N: sparse.csr_array, exit_rate: FloatArray) -> None:
        self.n_operations = exit_rate.size
        N = off_diagonal(N)
        with localcontext(_DECIMALS):
            self._factors = ObjectFactors(N, _decimals(N.data), _decimals(exit_rate))

    def solve(self, c: FloatArray, transposed: bool = False) -> FloatArray:
        """Solve, as `Eliminated` says."""
        with localcontext(_DECIMALS):
            return finite(self._factors.solve(_decimals(c), transposed).astype(np.float64))


def _decimals(values: FloatArray) -> Any:
    array = np.empty(values.shape, dtype=object)
    array.ravel()[:] = [Decimal(x) for x in values.ravel().tolist()]
    return array
