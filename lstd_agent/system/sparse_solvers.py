r"""Solvers of large sparse systems, by elimination or by iteration.

**Transition counts over many states.** Systems are A = D - N with D > 0 diagonal and N ≥ 0, and A
is diagonally dominant. Elimination fills in little if transitions are local, as on lines and grids;
the reverse Cuthill-McKee ordering shows this beforehand. Other chains mix fast, so that minimal
residuals (GMRES) converge at once, after sweeps of symmetric Gauss-Seidel,
:math:`(D - L) D^{-1} (D - U)` for N = L + U. A small residual alone does not bound the error: a
weak link between two parts of a chain does not show in it. But any z with

.. math:: z ≥ 0, \quad D^{-1} A z ≥ (1 - δ) 1, \; δ < 1
          \quad⟹\quad |x - A^{-1} b| ≤ \frac{z}{1 - δ} \max |D^{-1} (b - A x)|,

bounds it, since the inverse of such an A is nonnegative. z is the expected number of steps until
the states are left. A z that misses a slow part violates the inequality.
"""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any

import numpy as np
from scipy import sparse

from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.errors import EvaluationError

# Up to this many states, factors fit into memory with any fill-in; for more, this many
# multiplications bound their work. Transitions are local if a pivot changes at most _LOCAL √n rows,
# as on planes: then elimination comes first. States of more than _HUB √n neighbors come last.
_MOST_FACTORED, _MOST_WORK, _LOCAL, _HUB = 3_000, 5e12, 5.0, 10.0

_DIRECTIONS, _EPSILON = 60, float(np.finfo(np.float64).eps)  # steps until GMRES restarts

# Relative accuracy of expected steps, of solutions, and of probabilities that leave nothing open.
_CRUDE, _MAX_ERROR, _ROUNDING = 0.05, 1e-9, 1e-12

# Sparse features: the ridge on a diagonal of 1, to factor M. Residuals relative to the right-hand
# side: wanted, and the largest of solutions; then those of a batch's changes, and without factors.
_RIDGE, _TOLERANCE, _UNSOLVED = 1e-8, 1e-11, 1e-6
_TOLERANCE_OF_CHANGE, _UNSOLVED_CHANGE, _UNFACTORED = 1e-4, 0.05, 1e-9


def _iterated(
    A: Any,
    b: FloatArray,
    easier: Any,
    enough: float,
    *,
    order: float = 2,
    rounding: float = 0.0,
    cycles: int = 1,
    runs: int = 5,
    reduction: float = 0.1,
) -> tuple[FloatArray, FloatArray]:
    """Return x and the residual of A x = b, by GMRES until it is small or hardly shrinks."""
    from scipy.sparse.linalg import gmres  # takes long to import

    x, residual = np.zeros_like(b), b
    for _ in range(runs):
        size = np.linalg.norm(residual, order)
        wanted = max(enough, rounding * np.abs(x).max())
        if size <= wanted:
            break
        how: Any = {"rtol": 1e-10, "atol": 0.5 * wanted, "restart": _DIRECTIONS}
        step, _ = gmres(A, residual, maxiter=cycles, M=easier, **how)
        left = b - A @ (x + step)
        now = np.linalg.norm(left, order)
        if now < size:
            x, residual = x + step, left
        if not now < reduction * size:
            break
    return x, residual


class DominantSolver:
    """Solves a diagonally dominant system A (n, n), with row sums of at least 0."""

    def __init__(self, system: sparse.csc_array) -> None:
        n, self.system, self._diagonal = system.shape[0], system, system.diagonal()
        self._work = elimination_work(system) if n > _MOST_FACTORED else 0.0
        # D⁻¹ A has a diagonal of ones.
        self._A = sparse.csr_array(sparse.diags_array(1.0 / self._diagonal) @ system)

    def solve(self, right: FloatArray) -> FloatArray:
        """Return the solution for right-hand sides (n,) or (n, m)."""
        n = len(right)
        if self._work > (_LOCAL * n) ** 2:
            if (steps := self._steps) is not None:
                found = [self._proposal(b, 0.0) for b in right.reshape(n, -1).T / self._diagonal]
                if all(steps * u.max() <= _MAX_ERROR * np.abs(x).max() for x, u in found):
                    return np.stack([x for x, _ in found], axis=1).reshape(right.shape)
            if self._work > _MOST_WORK:
                raise EvaluationError(
                    f"equations of {n} unknowns are out of reach: transitions are not local, so "
                    "that elimination would fill in, and parts are linked too weakly for "
                    "iterations. Use features of several states each, or collect more trials"
                )
        return np.asarray(self._factors.solve(right))

    @cached_property
    def _factors(self) -> Any:
        from scipy.sparse.linalg import splu  # takes long to import

        return splu(self.system)

    @cached_property
    def _sweeps(self) -> Any:
        """A sweep forwards and one backwards, as an operator."""
        from scipy.sparse.linalg import LinearOperator, splu

        # There is no fill-in, so panels of several columns would only take time.
        options: Any = {"permc_spec": "NATURAL", "diag_pivot_thresh": 0.0, "panel_size": 1}
        lower, upper = (
            splu(sparse.csc_array(part), **options, options={"SymmetricMode": True})
            for part in (sparse.tril(self._A), sparse.triu(self._A))
        )
        return LinearOperator(self._A.shape, lambda r: upper.solve(lower.solve(r.ravel())))

    @cached_property
    def _steps(self) -> float | None:
        """A bound of A⁻¹ D 1, the expected number of steps until the states are left."""
        z, uncertain = self._proposal(np.ones(len(self._diagonal)), _CRUDE)
        delta = float(uncertain.max())
        return float(z.max()) / (1.0 - delta) if z.min() >= 0.0 and delta < 0.5 else None

    def _proposal(self, b: FloatArray, enough: float) -> tuple[FloatArray, FloatArray]:
        """Return x, and a bound (n,) of |b - D⁻¹ A x|, which is rounding or small enough."""
        how: Any = {"order": np.inf, "rounding": 2.0 * _EPSILON, "cycles": 2, "runs": 8}
        x, residual = _iterated(self._A, b, self._sweeps, 2.0 * enough, reduction=0.5, **how)
        # Rounding: the diagonal is 1, so the sum of the k terms is |b| + |A| |x|.
        terms = np.abs(b) + 2.0 * np.abs(x) - self._A @ np.abs(x)
        k = np.diff(self._A.indptr)
        return x, np.abs(residual) + _EPSILON * (1.0 + 0.5 * np.sqrt(k)) * terms


def elimination_work(system: sparse.csc_array) -> float:
    """Bound the multiplications of an elimination, with hubs last: Σ (rows a pivot changes)²."""
    from scipy.sparse.csgraph import reverse_cuthill_mckee  # takes long to import

    n = system.shape[0]
    graph = sparse.csr_array(abs(system) + abs(system.T))
    is_hub = np.diff(graph.indptr) > _HUB * np.sqrt(n)
    plain = np.flatnonzero(~is_hub)
    order = reverse_cuthill_mckee(graph[plain][:, plain], symmetric_mode=True)
    place = np.empty(n, dtype=np.int64)
    place[np.append(plain[order], np.flatnonzero(is_hub))] = np.arange(n)
    row, column = graph.nonzero()
    first = np.arange(n)
    np.minimum.at(first, place[row], place[column])
    changed = np.cumsum(np.bincount(first, minlength=n)) - np.arange(1, n + 1)
    return float((changed.astype(np.float64) ** 2).sum())


class SumsUntil:
    """Sums along the transitions of a chain until ``main`` is met.

    Transitions (S, S) are frequencies or, exactly, counts. Rows sum to visits (S,), by default 1;
    the missing part leads to unknown states. From ``states`` (k,) they lead to ``main``.
    """

    def __init__(
        self, transitions: sparse.csr_array, main: int, visits: FloatArray | None = None
    ) -> None:
        from scipy.sparse.csgraph import breadth_first_order

        self._main, self._n_states = main, transitions.shape[0]
        backwards = sparse.csr_array(transitions.T)
        leading = np.sort(breadth_first_order(backwards, main, return_predecessors=False))
        self.states: IntArray = leading[leading != main]
        leaving = transitions[self.states]
        self._visits = (np.ones(self._n_states) if visits is None else visits)[self.states]
        self._within = sparse.csr_array(leaving[:, self.states])
        self._told = self._within.sum(axis=1) + leaving[:, [main]].toarray()[:, 0]

    @cached_property
    def _solver(self) -> DominantSolver:
        return DominantSolver(sparse.csc_array(sparse.diags_array(self._told) - self._within))

    def of(self, x: FloatArray) -> FloatArray:
        """Return sums h (k,) or (k, m) of x: (D - N) h = D x, D counting ends that have a sum."""
        if not self.states.size:
            return np.zeros(x.shape)
        try:
            return self._solver.solve((self._told if x.ndim == 1 else self._told[:, None]) * x)
        except RuntimeError as error:
            raise EvaluationError(
                f"some of {len(self.states)} states lead to state {self._main} so rarely that "
                f"rounding hides it ({error}): collect more trials, or use backup='one_step'"
            ) from error

    @property
    def open_share(self) -> FloatArray:
        """The probability of reaching a state without a sum before ``main``, shape (S,)."""
        share = np.ones(self._n_states)
        share[self._main] = share[self.states] = 0.0
        told, visits = self._told, self._visits
        untold = np.where(told < (1.0 - _ROUNDING) * visits, visits - told, 0.0)
        if untold.any():
            system = sparse.csc_array(sparse.diags_array(visits) - self._within)
            share[self.states] = np.clip(DominantSolver(system).solve(untold), 0.0, 1.0)
        return share


def factored(A: sparse.csc_array, ridge: float, alone: BoolArray, pivot: float) -> Any:
    """Return factors of A with a ridge on its diagonal, 1 in place of features alone."""
    from scipy.sparse.linalg import splu  # takes long to import

    diagonal = np.zeros(A.shape[0])
    diagonal[: len(alone)] = np.where(alone & (A.diagonal()[: len(alone)] == 0.0), 1.0, ridge)
    shifted = sparse.csc_array(A + sparse.diags_array(diagonal))
    mode = {"SymmetricMode": True}
    try:
        return splu(shifted, "MMD_AT_PLUS_A", diag_pivot_thresh=pivot, options=mode)
    except (MemoryError, RuntimeError) as error:
        raise EvaluationError(
            f"the factors of {A.shape[0]} sparse features that samples share are not found "
            f"({type(error).__name__}: {str(error) or 'out of memory'}; {A.nnz} pairs of them come "
            "together): use fewer or coarser features, or fewer trials"
        ) from error


class RidgeSolver:
    """Solutions of M z = b by GMRES, preconditioned if necessary by factors of M + εI.

    Those of ``whole``, the solver of all trials, serve too. An ``eager`` solver starts with them.
    """

    def __init__(self, M: sparse.csc_array, whole: RidgeSolver | None, eager: bool) -> None:
        self.M, self._whole = sparse.csr_array(M), whole
        self._factors: Any = None if whole is None else whole._factors
        if eager:
            self._factor(0.0)

    def _factor(self, pivot: float) -> None:
        none = np.zeros(self.M.shape[0] - 1, dtype=bool)
        self._factors = factored(sparse.csc_array(self.M), _RIDGE, none, pivot)

    def solve(self, right: FloatArray, near: FloatArray | None, transposed: bool) -> FloatArray:
        """Return z (d,), iterating from a near solution, or raise `EvaluationError`."""
        from scipy.sparse.linalg import LinearOperator

        A = sparse.csr_array(self.M.T) if transposed else self.M
        start = np.zeros(len(right)) if near is None else near
        residual, trans = right - A @ start, "T" if transposed else "N"
        size = float(np.linalg.norm(residual))
        if size <= _TOLERANCE * np.linalg.norm(right):
            return start
        changes = _TOLERANCE_OF_CHANGE, _UNSOLVED_CHANGE
        tolerance, unsolved = (_TOLERANCE, _UNSOLVED) if self._whole is None else changes
        # Own factors come next; with pivots, if those without do not help.
        has_own = self._factors is not None and self._whole is None
        for pivot in (0.1, None) if has_own else (0.0, 0.1, None):
            LU = self._factors
            easier = LU and LinearOperator(A.shape, partial(LU.solve, trans=trans))
            found, rest = _iterated(A, residual, easier, tolerance * size)
            left = float(np.linalg.norm(rest))
            if left <= (min(_UNFACTORED, unsolved) if LU is None else unsolved) * size:
                return start + found
            if pivot is not None:
                self._factor(pivot)
        raise EvaluationError(
            f"the equations of {len(right)} sparse features are not solved: the residual is "
            f"{left / size:.1e} of them. Use fewer or coarser features, or collect more trials"
        )

    def null(self, n: int) -> FloatArray:
        """Return random vectors (d, n) close to the null space of M."""
        if self._factors is None:
            return np.zeros((self.M.shape[0], 0))
        ridge = np.where(self.M.diagonal() == 0.0, 0.0, _RIDGE)[:, None]
        x = np.random.default_rng(1).standard_normal((self.M.shape[0], n))
        for _ in range(3):
            x = self._factors.solve(ridge * x)
            x /= np.maximum(1.0, np.abs(x).max(axis=0))
        return np.asarray(x)
