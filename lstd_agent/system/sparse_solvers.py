r"""Solvers of large sparse systems, by elimination or by iteration.

**Transition counts over many states.** Systems are A = D - N with D > 0 diagonal and N ≥ 0, and A
is diagonally dominant. Elimination fills in little if transitions are local, as on lines and grids;
the reverse Cuthill-McKee ordering shows this beforehand. For random graphs it would take all
memory. But such chains mix fast, so minimal residuals (GMRES) converge at once, after sweeps of
symmetric Gauss-Seidel, :math:`(D - L) D^{-1} (D - U)` for N = L + U. A small residual alone does
not bound the error: a weak link between two parts of a chain does not show in it. But any z with

.. math:: z ≥ 0, \quad D^{-1} A z ≥ (1 - δ) 1, \; δ < 1
          \quad⟹\quad |x - A^{-1} b| ≤ \frac{z}{1 - δ} \max |D^{-1} (b - A x)|,

bounds it, since the inverse of such an A is nonnegative. z is the expected number of steps until
the states are left. A z that misses a slow part violates the inequality.

**Sparse features** (`lstd_agent.system.sparse`). GMRES has no such bound. If it does not converge,
M + εI is factored as a preconditioner. The same factors serve without a batch of trials.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.errors import EvaluationError

# Up to this many states, factors fit into memory with any fill-in; for more, this many
# multiplications bound their work.
_MOST_FACTORED, _MOST_WORK = 3_000, 5e12

# Transitions are local if a pivot changes at most this many times √n rows, as on planes: then
# elimination comes first. States of more neighbors than the second number times √n come last.
_LOCAL, _HUB = 5.0, 10.0

# GMRES restarts after so many steps.
_DIRECTIONS = 60
_EPSILON = float(np.finfo(np.float64).eps)

# Relative accuracy of the vector of expected steps, and of solutions.
_CRUDE, _MAX_ERROR = 0.05, 1e-9

# Probabilities that add up to 1 within this leave nothing open.
_ROUNDING = 1e-12

# Sparse features: the ridge on a diagonal of 1, to factor M; residuals relative to the right-hand
# side, of solutions and of a batch's changes.
_RIDGE, _TOLERANCE, _TOLERANCE_OF_CHANGE = 1e-8, 1e-11, 1e-4

# Larger residuals are no solutions; without factors, above the last M is factored.
_UNSOLVED, _UNSOLVED_CHANGE, _UNFACTORED = 1e-6, 0.05, 1e-9


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
        self._iterates = n > _MOST_FACTORED and elimination_work(system) > (_LOCAL * n) ** 2

    @cached_property
    def _A(self) -> sparse.csr_array:
        """D⁻¹ A, with a diagonal of ones."""
        return sparse.csr_array(sparse.diags_array(1.0 / self._diagonal) @ self.system)

    def solve(self, right: FloatArray) -> FloatArray:
        """Return the solution for right-hand sides (n,) or (n, m).

        Raises `EvaluationError` if neither method works, and RuntimeError if a factor is singular.
        """
        if self._iterates:
            found = [self._iterated(b) for b in right.reshape(len(right), -1).T / self._diagonal]
            solved = [x for x in found if x is not None]
            if len(solved) == len(found):
                return np.stack(solved, axis=1).reshape(right.shape)
            n = len(right)
            if n > _MOST_FACTORED and elimination_work(self.system) > _MOST_WORK:
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

    def _iterated(self, b: FloatArray) -> FloatArray | None:
        """Return x with D⁻¹ A x = b (n,), or None where its error may be too large."""
        if self._steps is None:
            return None
        x, residual = self._proposal(b, 0.0)
        error = self._steps * self._uncertain(b, x, residual).max()
        return x if error <= _MAX_ERROR * np.abs(x).max() else None

    @cached_property
    def _steps(self) -> float | None:
        """A bound of A⁻¹ D 1, the expected number of steps until the states are left."""
        one = np.ones(len(self._diagonal))
        z, residual = self._proposal(one, _CRUDE)
        delta = float(self._uncertain(one, z, residual).max())
        return float(z.max()) / (1.0 - delta) if z.min() >= 0.0 and delta < 0.5 else None

    def _proposal(self, b: FloatArray, enough: float) -> tuple[FloatArray, FloatArray]:
        """Return x and b - D⁻¹ A x, which is rounding, or small enough."""
        how: Any = {"order": np.inf, "rounding": 2.0 * _EPSILON, "cycles": 2, "runs": 8}
        return _iterated(self._A, b, self._sweeps, 2.0 * enough, reduction=0.5, **how)

    def _uncertain(self, b: FloatArray, x: FloatArray, residual: FloatArray) -> FloatArray:
        """Return the residual (n,) plus a bound of its rounding error."""
        # The diagonal is 1, so this is the sum of k terms, |b| + |A| |x|.
        terms = np.abs(b) + 2.0 * np.abs(x) - self._A @ np.abs(x)
        k = np.diff(self._A.indptr)
        return np.asarray(np.abs(residual) + _EPSILON * (1.0 + 0.5 * np.sqrt(k)) * terms)


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
    the missing part leads to unknown states. ``states`` (k,) are the states, without ``main``, from
    which transitions lead to ``main``.
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
        """Return sums of x (k,) or (k, m), added at each visit of a state.

        They are h with (D - N) h = D x, where D counts the transitions whose end has a sum. Raises
        `EvaluationError` if ``main`` is too rare for rounding, or factors exceed memory.
        """
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

    The factors of ``whole``, the solver of all trials, serve too. An ``eager`` solver starts with
    factors.
    """

    def __init__(self, M: sparse.csc_array, whole: RidgeSolver | None, eager: bool) -> None:
        self.M, self._Mt, self._whole = sparse.csr_array(M), sparse.csr_array(M.T), whole
        self._pivot = 0.0
        self._factors: Any = None if whole is None else whole._factors
        self._tolerance, self._unsolved = _TOLERANCE, _UNSOLVED
        if whole is not None:
            self._tolerance, self._unsolved = _TOLERANCE_OF_CHANGE, _UNSOLVED_CHANGE
        if eager:
            self._factor()

    def _factor(self) -> None:
        none = np.zeros(self.M.shape[0] - 1, dtype=bool)
        self._factors = factored(sparse.csc_array(self.M), _RIDGE, none, self._pivot)

    def solve(self, right: FloatArray, near: FloatArray | None, transposed: bool) -> FloatArray:
        """Return z (d,), iterating from a near solution, or raise `EvaluationError`."""
        A = self._Mt if transposed else self.M
        start = np.zeros(len(right)) if near is None else near
        residual = right - A @ start
        size = float(np.linalg.norm(residual))
        if size <= _TOLERANCE * np.linalg.norm(right):
            return start
        for attempt in range(3):
            found, rest = _iterated(A, residual, self._easier(transposed), self._tolerance * size)
            left = float(np.linalg.norm(rest))
            most = self._unsolved if self._factors is not None else min(_UNFACTORED, self._unsolved)
            if left <= most * size:
                return start + found
            if attempt == 0 and self._factors is not None and self._whole is None:
                self._pivot = 0.1
            if attempt < 2:
                self._factor()
        raise EvaluationError(
            f"the equations of {len(right)} sparse features are not solved: the residual is "
            f"{left / size:.1e} of them. Use fewer or coarser features, or collect more trials"
        )

    def _easier(self, transposed: bool) -> Any:
        from scipy.sparse.linalg import LinearOperator

        if self._factors is None:
            return None
        factors, trans = self._factors, "T" if transposed else "N"
        return LinearOperator(self.M.shape, lambda x: factors.solve(np.ravel(x), trans))

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
