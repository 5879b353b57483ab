r"""Systems of transition counts over many states, solved by elimination or by iteration.

All are A = D - N with D > 0 diagonal and N ≥ 0, and A or its transpose is diagonally dominant.

Where transitions are local, as on lines and grids, elimination fills in little, and the reverse
Cuthill-McKee ordering shows it beforehand. Where they are not, as in random graphs, it would take
all memory, but such chains forget where they were, so that minimal residuals (GMRES) after sweeps
of symmetric Gauss-Seidel, :math:`(D - L) D^{-1} (D - U)` for N = L + U, converge at once.

A small residual alone proves nothing: two parts of a chain that are hardly linked leave no trace
in it. But with any z, however found,

.. math:: z ≥ 0, \quad D^{-1} A z ≥ (1 - δ) 1, \; δ < 1
          \quad⟹\quad |x - A^{-1} b| ≤ \frac{z}{1 - δ} \max |D^{-1} (b - A x)|,

since such an A has no negative entries in its inverse. z is how many steps are expected until the
states are left; one that misses a slow part does not fulfil the inequality.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.errors import EvaluationError

# Up to so many states factors fit, however they fill in.
_MOST_FACTORED = 3_000

# Transitions are local if a pivot changes no more rows than so many times √n, as on planes: then
# elimination comes before iterations. After them it comes if it takes no more multiplications than
# these, by a bound that factors of most graphs are far below.
_LOCAL = 5.0
_MOST_WORK = 5e12

# States of more neighbours than this times the root of their number are eliminated last.
_HUB = 10.0

# Runs of GMRES go on until the residual is rounding, or does not become half as large.
_DIRECTIONS, _CYCLES, _RUNS, _REDUCTION = 60, 2, 8, 1e-10
_EPSILON = float(np.finfo(np.float64).eps)

# A vector of steps need not be nearer than this.
_CRUDE = 0.05

# Of a solution, relative to its largest entry.
_MAX_ERROR = 1e-9

# Probabilities that add up to 1 but for this much leave nothing open.
_ROUNDING = 1e-12


class DominantSolver:
    """What solves a diagonally dominant system of many states without filling it in.

    Parameters
    ----------
    system : csc_array, shape (n, n)
        A, with rows or columns of which none sums to less than 0.
    """

    def __init__(self, system: sparse.csc_array) -> None:
        n = system.shape[0]
        self.system = system
        is_local = n <= _MOST_FACTORED or elimination_work(system) <= (_LOCAL * n) ** 2
        self._iteration = None if is_local else _Iteration(system)

    def solve(self, right: FloatArray, transposed: bool = False) -> FloatArray:
        """Return the solution for right-hand sides (n,) or (n, m), or that of the transpose.

        Raises
        ------
        EvaluationError
            If elimination would fill in and iterations do not converge.
        RuntimeError
            If a factor is singular.
        """
        if self._iteration is not None:
            columns = right.reshape(len(right), -1).T
            solved = [self._iteration.solve(column, transposed) for column in columns]
            found = [x for x in solved if x is not None]
            if len(found) == len(solved):
                return np.stack(found, axis=1).reshape(right.shape)
            check_fill(self.system)
        return np.asarray(self._factors.solve(right, "T" if transposed else "N"))

    def nearly(self, right: FloatArray, transposed: bool = False) -> FloatArray:
        """Return about the solution (n,): after one sweep, where iterations solve it."""
        if self._iteration is not None:
            return self._iteration.sweep(right, transposed)
        return self.solve(right, transposed)

    @cached_property
    def _factors(self) -> Any:
        from scipy.sparse.linalg import splu  # takes long to import

        return splu(self.system)


class _Iteration:
    """Minimal residuals of D⁻¹ A, whose diagonal is 1, held to a bound of their error."""

    def __init__(self, system: sparse.csc_array) -> None:
        from scipy.sparse.linalg import splu

        self._diagonal = system.diagonal()
        self._A = sparse.csr_array(sparse.diags_array(1.0 / self._diagonal) @ system)
        # Nothing fills in, and panels of several columns would only take time.
        options: Any = {"permc_spec": "NATURAL", "diag_pivot_thresh": 0.0, "panel_size": 1}
        self._lower: Any
        self._upper: Any
        self._lower, self._upper = (
            splu(sparse.csc_array(part), **options, options={"SymmetricMode": True})
            for part in (sparse.tril(self._A), sparse.triu(self._A))
        )

    def solve(self, right: FloatArray, transposed: bool) -> FloatArray | None:
        """Return the solution (n,), or None where its error may be too large."""
        if self._steps is None:
            return None
        b = right if transposed else right / self._diagonal
        x, residual = self._proposal(b, transposed, 0.0)
        total: Any = np.sum if transposed else np.max
        error = self._steps * total(self._uncertain(b, x, residual, transposed))
        if not error <= _MAX_ERROR * total(np.abs(x)):
            return None
        return x / self._diagonal if transposed else x

    @cached_property
    def _steps(self) -> float | None:
        """A bound of A⁻¹ D 1: the most steps that are expected until the states are left."""
        one = np.ones(len(self._diagonal))
        z, residual = self._proposal(one, False, _CRUDE)
        delta = float(self._uncertain(one, z, residual, False).max())
        return float(z.max()) / (1.0 - delta) if z.min() >= 0.0 and delta < 0.5 else None

    def sweep(self, right: FloatArray, transposed: bool) -> FloatArray:
        """Return about the solution (n,), by a sweep forwards and one backwards."""
        if transposed:
            return np.asarray(self._swept(right, True) / self._diagonal)
        return self._swept(right / self._diagonal, False)

    def _swept(self, right: FloatArray, transposed: bool) -> FloatArray:
        if transposed:
            return np.asarray(self._lower.solve(self._upper.solve(right, "T"), "T"))
        return np.asarray(self._upper.solve(self._lower.solve(right)))

    def _proposal(
        self, b: FloatArray, transposed: bool, enough: float
    ) -> tuple[FloatArray, FloatArray]:
        """Return x and b - D⁻¹ A x, made as small as rounding lets it, or as is enough."""
        from scipy.sparse.linalg import LinearOperator, gmres

        sweeps = LinearOperator(self._A.shape, lambda r: self._swept(r.ravel(), transposed))
        A = self._A.T if transposed else self._A
        x, residual = np.zeros_like(b), b
        for _ in range(_RUNS):
            size = np.abs(residual).max()
            wanted = max(enough, _EPSILON * np.abs(x).max())
            if size <= 2.0 * wanted:
                break
            step, _ = gmres(
                A,
                residual,
                rtol=_REDUCTION,
                atol=wanted,
                restart=_DIRECTIONS,
                maxiter=_CYCLES,
                M=sweeps,
            )
            left = b - A @ (x + step)
            if not np.abs(left).max() < 0.5 * size:
                break
            x, residual = x + step, left
        return x, residual

    def _uncertain(
        self, b: FloatArray, x: FloatArray, residual: FloatArray, transposed: bool
    ) -> FloatArray:
        """Return the residual (n,), with what rounding may have hidden of it."""
        A = self._A.T if transposed else self._A
        # The diagonal is 1, so that these are the terms |b| + |A| |x|, of k each.
        terms = np.abs(b) + 2.0 * np.abs(x) - A @ np.abs(x)
        k = (
            np.bincount(self._A.indices, minlength=len(b))
            if transposed
            else np.diff(self._A.indptr)
        )
        return np.abs(residual) + _EPSILON * (1.0 + 0.5 * np.sqrt(k)) * terms


def check_fill(system: sparse.csc_array) -> None:
    """Raise `EvaluationError` if factors of a system would take too long, and all memory."""
    n = system.shape[0]
    if n > _MOST_FACTORED and elimination_work(system) > _MOST_WORK:
        raise EvaluationError(
            f"equations of {n} unknowns are out of reach: transitions are not local, so that "
            "elimination would fill in, and parts are linked too weakly for iterations. Use "
            "features of several states each, or collect more trials"
        )


def elimination_work(system: sparse.csc_array) -> float:
    """Bound the multiplications of an elimination: Σ (rows that a pivot changes)².

    By the reverse Cuthill-McKee ordering, but for hubs: there a row changes from its first entry.
    """
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
    """Sums along the transitions of a chain until a state is met.

    Parameters
    ----------
    transitions : csr_array, shape (S, S)
        Numbers of transitions, or probabilities.
    main : int
        The state where sums end.
    visits : ndarray, shape (S,)
        Numbers of visits, or ones: what is missing in a row's sum leads to where nothing is known.

    Attributes
    ----------
    states : ndarray of int, shape (k,)
        Those from which transitions lead to ``main``, itself left out.
    visits : ndarray, shape (k,)
        To these.
    """

    def __init__(self, transitions: sparse.csr_array, main: int, visits: FloatArray) -> None:
        leading = leading_to(transitions, main)
        self.states = leading[leading != main]
        self.visits = visits[self.states]
        leaving = transitions[self.states]
        self._main, self._n_states = main, len(visits)
        self._within = sparse.csr_array(leaving[:, self.states])
        self._told = self._within.sum(axis=1) + leaving[:, [main]].toarray()[:, 0]

    @cached_property
    def _solver(self) -> DominantSolver:
        return DominantSolver(sparse.csc_array(sparse.diags_array(self._told) - self._within))

    def of(self, x: FloatArray) -> FloatArray:
        """Return sums of what each visit gives, of x (k,) or (k, m) by state.

        They are h with (D - N) h = D x, where D counts the transitions whose end has a sum.

        Raises
        ------
        EvaluationError
            If ``main`` is met so rarely that rounding hides it, or factors would take all memory.
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
        """The probability of getting to where there is no sum before ``main``, shape (S,)."""
        told, visits = self._told, self.visits
        share = np.ones(self._n_states)
        share[self._main] = share[self.states] = 0.0
        untold = np.where(told < (1.0 - _ROUNDING) * visits, visits - told, 0.0)
        if untold.any():
            system = sparse.csc_array(sparse.diags_array(visits) - self._within)
            share[self.states] = np.clip(DominantSolver(system).solve(untold), 0.0, 1.0)
        return share


def leading_to(transitions: sparse.csr_array, main: int) -> IntArray:
    """Return the states from which transitions lead to a state, that one among them."""
    from scipy.sparse.csgraph import breadth_first_order  # takes long to import

    backwards = sparse.csr_array(transitions.T)
    return np.sort(breadth_first_order(backwards, main, return_predecessors=False))
