r"""Linked systems of many sparse features, such as one a state, solved as what they are.

The minimizer of Thm ``epb_minimizer`` makes ‖X w - y‖ least in the Z†-seminorm. With r = y - X w
and λ = Z⁻¹ r that is the sparse system

.. math:: \begin{pmatrix} Z & X \\ X^T & 0 \end{pmatrix}
          \begin{pmatrix} \lambda \\ w \end{pmatrix} = \begin{pmatrix} y \\ 0 \end{pmatrix}.

A zero block with a tiny negative diagonal keeps directions that X does not determine (constants)
small, and refinement takes out what that changes elsewhere. Neither ranks nor open directions are
told; features that sum to a constant need no intercept.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.errors import EvaluationError
from lstd_agent.statistics.interface import SparseStatistics
from lstd_agent.system.linked import LinkedSolution

# Relative to the scaled diagonal of Z; refinement leaves less than its square.
_DIAGONAL = 1e-11
_N_REFINEMENTS = 3


def solve_backwards_sparse(
    statistics: SparseStatistics, windows: IntArray, gain: float
) -> LinkedSolution:
    """Solve the linked system; see `lstd_agent.system.linked.solve_backwards`."""
    n = len(windows)
    main, zero_features = statistics.zero(windows[-1])
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
        weights[k] = _least_squares(equations.Z, X, y)
        rank[k], n_samples[k] = np.count_nonzero(equations.Z.diagonal()), equations.n_samples
        if k == n - 1:
            offsets[k] = -zero_features @ weights[k]
    nothing_open = np.zeros((n, d + 1, 0))
    unknown = np.full(n, np.nan)
    return LinkedSolution(weights, offsets, rank, n_samples, unknown, nothing_open, main)


def sparse_gain(statistics: SparseStatistics, first: int, last: int) -> float:
    """Return the gain of timesteps first to last - 1 as an unknown of their equations."""
    equations = statistics.sparse_equations(np.array([first, last]))
    X = equations.X - equations.leaving @ statistics.sparse_features
    unknowns = sparse.hstack((X, sparse.csr_array(equations.y[:, 1:])))
    return float(_least_squares(equations.Z, unknowns, equations.y[:, 0])[-1])


def _least_squares(Z: sparse.csr_array, X: sparse.csr_array, y: FloatArray) -> FloatArray:
    """Return the smallest w that makes ‖X w - y‖ least in the Z†-seminorm."""
    from scipy.sparse.linalg import splu  # takes long to import

    diagonal = Z.diagonal()
    rows = np.flatnonzero(diagonal > 0.0)
    scale = sparse.diags_array(1.0 / np.sqrt(diagonal[rows]))
    A = sparse.csc_array(scale @ X[rows])
    size = np.sqrt(A.power(2).sum(axis=0))
    columns = np.flatnonzero(size > 0.0)
    A = A[:, columns] @ sparse.diags_array(1.0 / size[columns])
    top = scale @ Z[rows][:, rows] @ scale
    exact = sparse.block_array([[top, A], [A.T, None]], format="csc")
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
