r"""Systems fitted to the values of a model: the backup ``"model"``.

Every neighbourhood k has a weighted least-squares fit of the values :math:`\hat v` by the
transitions of all timesteps (`lstd_agent.statistics.pooled`), in the features
:math:`\tilde f = (f, 1)`:

.. math:: w_k = \arg\min_w \sum_{t \in k} \frac{1}{\varepsilon_t}
          \sum_s \hat p_t(s) \left(\hat v(s) - \tilde f(s)^T w\right)^2 .

The first neighbourhood, whose fit holds the values of the starts, counts all visits alike,
:math:`\varepsilon_t = 1`. So does a first fit of each of the others, of which
:math:`\varepsilon_t` is the root mean square error at timestep t. That is a step of iteratively
reweighted least squares towards the least *sum of roots* (eq. ``tot_rooterr``). The least sum of
squares would spoil hundreds of settled timesteps for the sake of a few visits to states that the
features cannot represent.

:math:`\hat v` is 0 at the main reference state. An approximator need not be, where features are too
coarse for it: values relative to a misfit there would all be off by it. Approximators do not
bootstrap on each other either, so that no error of one is passed on.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.statistics.backups import WantedBackup
from lstd_agent.statistics.equations import Factors, window_chunks
from lstd_agent.statistics.interface import CountedStatistics, Statistics
from lstd_agent.statistics.sparse_counts import SparseCounts
from lstd_agent.system.approximators import Solution
from lstd_agent.system.minimizer import minimize
from lstd_agent.system.solvers import SolverName
from lstd_agent.system.sparse import least_squares

# A timestep with a smaller root mean square error, relative to the mean, weighs no more for it.
_FLOOR = 1e-3


def check_model(backup: WantedBackup, calibration: str) -> None:
    """Raise if values that need no reference states are to have them."""
    if backup == "model" and calibration == "references":
        raise InvalidInputError(
            "backup='model' ties values together by itself, and has no use for "
            "calibration='references': leave one of the two out"
        )


def solve_model(
    statistics: Statistics,
    windows: IntArray,
    gain: float,
    rcond: float,
    main: int,
    solver: SolverName,
) -> Solution:
    """Fit all neighbourhoods to the values of the pooled model, 0 at the main reference state.

    They have no open directions: `PooledModel.open_share` tells what is open.
    """
    counted = statistics.counted()
    model = counted.pooled(gain, main)

    def fit(weight: FloatArray) -> tuple[FloatArray, IntArray, FloatArray]:
        # States without a value play no part.
        weight = np.where(model.open_share < 1.0, weight, 0.0)
        if statistics.sparse_counts is not None:
            return _fit_sparse(statistics.sparse_counts, weight, model.values)
        return _fit_dense(counted, weight, model.values, rcond, solver)

    solved, rank, condition = fit(statistics.occupancy(windows))
    if len(windows) > 1:
        error = np.where(model.open_share < 1.0, _values(statistics, solved) - model.values, 0.0)
        negligible = rcond * np.abs(model.values).max()
        again, weight = _reweighted(counted.visits, windows, error, negligible)
        solved[again], rank[again], condition[again] = fit(weight)
    weights, offsets = solved[:, :-1], solved[:, -1]
    return Solution(
        weights=weights,
        offsets=offsets,
        rank=rank,
        n_samples=(windows[:, 1] - windows[:, 0]) * model.n_trials,
        condition=condition,
        open_directions=np.zeros((*solved.shape, 0)),
    )


def _values(statistics: Statistics, solved: FloatArray) -> FloatArray:
    """Return the values (n, S) of all states by weights and offsets (n, d + 1)."""
    offsets = statistics.intercept * solved[:, -1]
    return np.asarray((statistics.candidate_features @ solved[:, :-1].T + offsets).T)


def _reweighted(
    visits: sparse.csr_array, windows: IntArray, error: FloatArray, negligible: float
) -> tuple[IntArray, FloatArray]:
    """Return which windows to fit again, and their weights (m, S) of states.

    These are all but the first, unless there is a single timestep or a negligible error: the
    visits (t_max + 1, S) of each timestep weigh by what the first fit's errors (n, S) are there.
    """
    n, S = error.shape
    length = windows[:, 1] - windows[:, 0]
    k = np.repeat(np.arange(n), length)
    t = np.repeat(np.arange(len(k)), np.diff(visits.indptr))
    place = k[t] * S + visits.indices
    square = np.bincount(t, visits.data * error.ravel()[place] ** 2, len(k))
    root = np.sqrt(square / np.bincount(t, visits.data, len(k)))
    mean = np.bincount(k, root) / length
    again = (np.arange(n) > 0) & (length > 1) & (mean > negligible)
    least = np.maximum(root, _FLOOR * mean[k])
    share = np.divide(mean[k], least, out=np.zeros_like(root), where=again[k])
    weight = np.bincount(place, visits.data * share[t], n * S).reshape(n, S)[again]
    return np.flatnonzero(again), weight / weight.sum(axis=1, keepdims=True)


def _fit_dense(
    statistics: CountedStatistics,
    weight: FloatArray,
    values: FloatArray,
    rcond: float,
    solver: SolverName,
) -> tuple[FloatArray, IntArray, FloatArray]:
    """Return weights and offset (n, d + 1), ranks and conditions (n,)."""
    basis = statistics.basis(rcond, intercept=True)
    n = len(weight)
    solved = np.empty((n, len(basis.V)))
    rank, condition = np.empty(n, np.int64), np.empty(n)
    for chunk in window_chunks(n, basis.U.size):
        visited = np.flatnonzero(weight[chunk].any(axis=0))
        root = np.sqrt(weight[chunk][:, visited])
        A = root[:, :, None] * basis.U[visited]
        nothing = np.zeros(len(root), np.int64)
        found = minimize(
            Factors(A, A, root * values[visited], basis, nothing), rcond, solver=solver
        )
        solved[chunk], rank[chunk], condition[chunk] = found.weights, found.rank, found.condition
    return solved, rank, condition


def _fit_sparse(
    statistics: SparseCounts, weight: FloatArray, values: FloatArray
) -> tuple[FloatArray, IntArray, FloatArray]:
    """Do the same for sparse features, which can represent constants by themselves."""
    F = statistics.sparse_features
    n, d = len(weight), F.shape[1]
    solved, rank = np.zeros((n, d + 1)), np.empty(n, np.int64)
    for k in range(n):
        weighted = sparse.csr_array(F.T @ sparse.diags_array(weight[k]))
        Z = sparse.csr_array(weighted @ F)
        solved[k, :-1] = least_squares(Z, Z, weighted @ values)
        rank[k] = np.count_nonzero(Z.diagonal())
    return solved, rank, np.full(n, np.nan)
