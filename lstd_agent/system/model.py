r"""The backup ``"model"``: values by one transition matrix of all timesteps.

The transitions of a stationary policy do not depend on time. So the counts of all timesteps are
pooled into one :math:`\hat P` and :math:`\hat r`. Their values,

.. math:: \hat v(s) = \hat r(s) - g \hat\tau(s) + \sum_{s'} \hat P(s, s') \hat v(s'), \quad
          \hat v(s_0) = 0,

are expected excess rewards until the main reference state s₀ (or the end of the task) is met. The
equation of s₀, which would determine the gain, is left out. Observations must be Markov states.
Transitions to states from which :math:`\hat P` does not lead to s₀ are left out. Their possible
effect is :math:`h(s)`, the probability of reaching one before s₀.

Every neighborhood k has a weighted least-squares fit of the values in the features
:math:`\tilde f = (f, 1)`:

.. math:: w_k = \arg\min_w \sum_{t \in k} \frac{1}{\varepsilon_t}
          \sum_s \hat p_t(s) \left(\hat v(s) - \tilde f(s)^T w\right)^2 .

In the first neighborhood, which holds the starts, all visits weigh alike. In a second fit of the
others, :math:`\varepsilon_t` is the root mean square error of the first at timestep t: a step
towards the least *sum of roots* (eq. ``tot_rooterr``). The least sum of squares would spoil many
timesteps for a few visits to states that the features cannot represent.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.rows.factors import reduced
from lstd_agent.system.minimizer import Solved, minimize
from lstd_agent.system.sparse_solvers import SumsUntil

_FLOOR = 1e-3  # smallest root mean square error, relative to the mean, that weights a timestep


class PooledModel(NamedTuple):
    """Values (S,) by pooled transitions; ``open_share`` (S,) is h, the part not determined."""

    values: FloatArray
    open_share: FloatArray


def pooled_model(source: Any, gain: float, main: int) -> PooledModel:
    """Solve the chain of all transitions of `CountRows`, with value 0 in state ``main``."""
    if (gain, main) not in source.models:
        visits, rewards, durations = source.pooled()
        until, values = SumsUntil(source.transitions(), main, visits), np.zeros(len(visits))
        values[until.states] = until.of((rewards - gain * durations)[until.states])
        source.models[gain, main] = PooledModel(values, until.open_share)
    found: PooledModel = source.models[gain, main]
    return found


def solve_model(source: Any, windows: IntArray, model: PooledModel) -> list[Solved]:
    """Fit all neighborhoods to the values of the pooled model, without open directions."""
    known = model.open_share < 1.0  # leave out states without a value
    negligible, solved = 1e-10 * float(np.abs(model.values).max()), []
    shares = source.occupancy(windows)
    for k, (start, stop) in enumerate(windows.tolist()):
        visits, weight = source.visits[start:stop], np.where(known, shares[k], 0.0)
        fitted = _fitted(source, weight, model.values)
        if k > 0 and stop - start > 1:
            columns = fitted.columns[: source.rows.shape[1], 0]  # sparse rows have no constant
            square = np.where(known, source.rows @ columns - model.values, 0.0) ** 2
            root = np.sqrt(visits @ square / np.maximum(visits.sum(axis=1), 1e-300))
            mean = float(root.mean())
            if mean > negligible:
                weight = known * (visits.T @ (mean / np.maximum(root, _FLOOR * mean)))
                fitted = _fitted(source, weight / weight.sum(), model.values)
        solved.append(fitted._replace(n_samples=int(visits.sum())))
    return solved


def _fitted(source: Any, weight: FloatArray, values: FloatArray) -> Solved:
    """Return the least-squares fit of values (S,) with weights (S,)."""
    visited = np.flatnonzero(weight)
    root = np.sqrt(weight[visited])
    A, sides = source.rows[visited], root * values[visited]
    if sparse.issparse(A):
        from scipy.sparse.linalg import lsmr  # takes long to import

        weigh: Any = sparse.diags_array(root)
        A = sparse.csr_array(weigh @ A)
        # Weights of states differ by orders: iterations need columns of one size.
        size = np.sqrt(np.asarray(A.power(2).sum(axis=0)).ravel())
        size = np.where(size > 0.0, size, 1.0)
        A = sparse.csr_array(A @ sparse.diags_array(1.0 / size))
        how: Any = {"atol": 1e-14, "btol": 1e-14, "conlim": 0.0, "maxiter": 4 * A.shape[1]}
        weights = lsmr(A, sides, **how)[0] / size
        return Solved(np.append(weights, 0.0)[:, None], int(np.count_nonzero(weights)), np.nan, 0)
    A = root[:, None] * A
    if len(A) >= A.shape[1]:  # where nothing is open, no singular vectors are needed
        weights, _, rank, size = np.linalg.lstsq(A, sides, rcond=source.rcond)
        if rank == A.shape[1]:
            return Solved(weights[:, None], int(rank), float(size[0] / size[-1]), 0)
    equations = reduced(A, A, sides[:, None], source.rcond)
    found = minimize(equations, source.rcond, source.coordinates.metric)
    return Solved(found.weights, found.rank, found.condition, 0)
