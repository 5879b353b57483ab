r"""Linked systems of many sparse features, such as one a state, solved as what they are.

The minimizer of Thm ``epb_minimizer`` makes ‖X w - y‖ least in the Z†-seminorm. With r = y - X w
and λ = Z⁻¹ r that is the sparse system

.. math:: \begin{pmatrix} Z & X \\ X^T & 0 \end{pmatrix}
          \begin{pmatrix} \lambda \\ w \end{pmatrix} = \begin{pmatrix} y \\ 0 \end{pmatrix}.

A zero block with a tiny negative diagonal keeps directions that X does not determine (constants)
small, and refinement takes out what that changes elsewhere. Neither ranks nor open directions are
told; features that sum to a constant need no intercept.

Where transitions are not local, factors of that fill in. Of one feature a state Z is diagonal, and
X a square matrix but for few columns: those of states that samples lead to and do not leave, and of
a gain that is unknown. Let e be these and that of the state visited most, whose row is s, and m the
others. :math:`X_{mm}` is diagonally dominant and easy to solve, :math:`u = (1, -X_{mm}^{-T}
X_{sm}^T)` on (s, m) is orthogonal to the columns m, and all is solved if

.. math:: w_m = X_{mm}^{-1} (y_m - X_{me} w_e), \quad (u^T X_e) w_e = u^T y .

Of all such w_e that of the smallest w is taken. Where :math:`u^T X_e = 0` (constants again) the
residual is :math:`Z u (u^T y) / (u^T Z u)`, and y without it has a solution. Where samples are few,
e are many, and the smallest w is found by least squares of both unknowns, each product made easier
by a sweep of X_mm.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from scipy import sparse

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.errors import EvaluationError
from lstd_agent.statistics.dominant import DominantSolver, check_fill
from lstd_agent.statistics.pooled import leading_to
from lstd_agent.statistics.sparse_counts import SparseCounts
from lstd_agent.system.approximators import Solution

# Relative to the scaled diagonal of Z; refinement leaves less than its square.
_DIAGONAL = 1e-11
_N_REFINEMENTS = 3

# The smallest solution is found by a table of what so many columns change, and of more by least
# squares (LSQR) to this tolerance, whose exit status says whether there were too many steps.
_MOST_BESIDE = 32
_SMALL, _MOST_STEPS, _UNFINISHED = 1e-13, 2000, 7

Within: TypeAlias = Callable[[FloatArray], FloatArray]

# What is smaller beside its terms is rounding, and what is larger no solution.
_ROUNDING = 1e-10
_UNSOLVED = 1e-9


def solve_backwards_sparse(
    statistics: SparseCounts, windows: IntArray, gain: float, zero_features: FloatArray
) -> Solution:
    """Solve the linked system; see `lstd_agent.system.linked.solve_backwards`."""
    n = len(windows)
    F = statistics.sparse_features
    d = F.shape[1]
    weights, offsets = np.zeros((n, d)), np.zeros(n)
    rank, n_samples = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    for k in reversed(range(n)):
        equations = statistics.sparse_equations(windows[k])
        X, y = equations.X, equations.y @ [1.0, -gain]
        if k == n - 1:
            X = X - equations.leaving @ F
        else:
            y = y + equations.leaving @ (F @ weights[k + 1] + offsets[k + 1])
        weights[k] = least_squares(equations.Z, X, y)
        rank[k], n_samples[k] = np.count_nonzero(equations.Z.diagonal()), equations.n_samples
        if k == n - 1:
            offsets[k] = -zero_features @ weights[k]
    nothing_open = np.zeros((n, d + 1, 0))
    unknown = np.full(n, np.nan)
    return Solution(weights, offsets, rank, n_samples, unknown, nothing_open)


def sparse_gain(statistics: SparseCounts, first: int, last: int) -> float:
    """Return the gain of timesteps first to last - 1 as an unknown of their equations."""
    equations = statistics.sparse_equations(np.array([first, last]))
    X = equations.X - equations.leaving @ statistics.sparse_features
    unknowns = sparse.hstack((X, sparse.csr_array(equations.y[:, 1:])))
    return float(least_squares(equations.Z, unknowns, equations.y[:, 0])[-1])


def least_squares(Z: sparse.csr_array, X: sparse.csr_array, y: FloatArray) -> FloatArray:
    """Return the smallest w that makes ‖X w - y‖ least in the Z†-seminorm."""
    from scipy.sparse.linalg import splu  # takes long to import

    diagonal = Z.diagonal()
    if Z.nnz == np.count_nonzero(diagonal):
        eliminated = _eliminated(diagonal, sparse.csc_array(X), y)
        if eliminated is not None:
            return eliminated
    rows = np.flatnonzero(diagonal > 0.0)
    scale = sparse.diags_array(1.0 / np.sqrt(diagonal[rows]))
    A = sparse.csc_array(scale @ X[rows])
    size = np.sqrt(A.power(2).sum(axis=0))
    columns = np.flatnonzero(size > 0.0)
    A = A[:, columns] @ sparse.diags_array(1.0 / size[columns])
    top = scale @ Z[rows][:, rows] @ scale
    exact = sparse.block_array([[top, A], [A.T, None]], format="csc")
    check_fill(exact)
    shift = np.concatenate((np.full(rows.size, _DIAGONAL), np.full(columns.size, -_DIAGONAL)))
    try:
        factors = splu(sparse.csc_array(exact + sparse.diags_array(shift)))
    except RuntimeError as error:
        raise EvaluationError(
            f"the sparse equations of a window cannot be factored ({error}): collect more trials, "
            "or use fewer features"
        ) from error
    right = np.concatenate((scale @ y[rows], np.zeros(columns.size)))
    solution = factors.solve(right)
    for _ in range(_N_REFINEMENTS):
        solution += factors.solve(right - exact @ solution)
    w = np.zeros(X.shape[1])
    w[columns] = solution[rows.size :] / size[columns]
    return w


def _eliminated(diagonal: FloatArray, X: sparse.csc_array, y: FloatArray) -> FloatArray | None:
    """Do the same where Z is diagonal and X nearly square, or return None."""
    rows = np.flatnonzero(diagonal > 0.0)
    size = np.sqrt(X[rows].power(2).T @ (1.0 / diagonal[rows]))
    most = int(np.argmax(diagonal))
    m = rows[rows != most]
    e = np.append(most, np.setdiff1d(np.flatnonzero(size > 0.0), rows))
    square = sparse.csc_array(X[m][:, m])
    if m.size == 0 or not _all_lead_out(square):
        return None
    Xe, beside = X[:, e], X[m][:, e]
    u, w = np.zeros(len(diagonal)), np.zeros(X.shape[1])
    u[most] = 1.0
    try:
        solver = DominantSolver(square)
        u[m] = -solver.solve(X[[most]][:, m].toarray()[0], transposed=True)
        along = Xe.T @ u
        if (np.abs(along) <= _ROUNDING * (abs(Xe).T @ np.abs(u))).all():
            along[:] = 0.0
            y = y - diagonal * u * ((u @ y) / (u @ (diagonal * u)))
        w[e] = _smallest(solver, beside, y[m], along, float(u @ y), size[m], size[e])
        w[m] = solver.solve(y[m] - beside @ w[e])
    except RuntimeError:  # a factor is singular
        return None
    left = np.abs(X[rows] @ w - y[rows])
    terms = abs(X[rows]) @ np.abs(w) + np.abs(y[rows])
    return w if np.isfinite(w).all() and (left <= _UNSOLVED * terms.max()).all() else None


def _smallest(
    solver: DominantSolver,
    beside: sparse.csc_array,
    y: FloatArray,
    along: FloatArray,
    wanted: float,
    size: FloatArray,
    size_beside: FloatArray,
) -> FloatArray:
    """Return w_e with along^T w_e = wanted for which w_m and w_e are least by their sizes."""
    beside = sparse.csc_array(beside @ sparse.diags_array(1.0 / size_beside))
    along = along / size_beside
    square = float(along @ along)
    first = np.zeros(len(along))
    if square > 0.0:
        first, along = along * (wanted / square), along / np.sqrt(square)

    def within(x: FloatArray) -> FloatArray:
        """Leave out what would change along^T w_e."""
        return np.asarray(x - np.multiply.outer(along, along @ x))

    found = _by_table if len(along) <= _MOST_BESIDE else _by_steps
    x = found(solver, beside, y - beside @ first, size, within)
    return np.asarray((first + within(x)) / size_beside)


def _by_table(
    solver: DominantSolver,
    beside: sparse.csc_array,
    y: FloatArray,
    size: FloatArray,
    within: Within,
) -> FloatArray:
    """Return x of which a part ``within`` and w_m = X_mm⁻¹ (y - beside x) are least."""
    parts = within(np.eye(beside.shape[1]))
    table = np.vstack((parts, size[:, None] * solver.solve(beside @ parts)))
    right = np.append(np.zeros(len(parts)), size * solver.solve(y))
    return np.asarray(np.linalg.lstsq(table, right, rcond=None)[0])


def _by_steps(
    solver: DominantSolver,
    beside: sparse.csc_array,
    y: FloatArray,
    size: FloatArray,
    within: Within,
) -> FloatArray:
    """Do the same without solving for each column: w_m is an unknown, too."""
    from scipy.sparse.linalg import LinearOperator, lsqr

    k, A = beside.shape[1], solver.system @ sparse.diags_array(1.0 / size)

    def product(v: FloatArray) -> FloatArray:
        return solver.nearly(beside @ within(v[:k]) + A @ v[k:])

    def transposed_product(v: FloatArray) -> FloatArray:
        v = solver.nearly(v, transposed=True)
        return np.append(within(beside.T @ v), A.T @ v)

    operator = LinearOperator(
        (len(y), k + len(y)), matvec=product, rmatvec=transposed_product, dtype=np.float64
    )
    v, how, *_ = lsqr(operator, solver.nearly(y), atol=_SMALL, btol=_SMALL, iter_lim=_MOST_STEPS)
    if how == _UNFINISHED:
        raise RuntimeError("least squares did not converge")
    return np.asarray(v[:k])


def _all_lead_out(square: sparse.csc_array) -> bool:
    """Whether transitions lead from each state to others, so that X_mm has an inverse."""
    out = square.sum(axis=1) > _ROUNDING * square.diagonal()
    rows = sparse.hstack((square, sparse.csr_array(out[:, None].astype(np.float64))))
    graph = sparse.csr_array(sparse.vstack((rows, sparse.csr_array((1, len(out) + 1)))))
    return len(leading_to(graph, len(out))) == len(out) + 1
