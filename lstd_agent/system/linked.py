r"""Linked calibration: the system solved backwards in time.

The last neighbourhood is fitted to all its timesteps, and gets the offset that makes its value 0
where `Statistics.zero` says. Every earlier one is fitted with an intercept, and where a sample's
successor falls into the next neighbourhood, the successor's value is a number, by the next
approximator. With :math:`\tilde f = (f, 1)`, neighbourhood k solves X_k w = y_k in the
Z†-seminorm of Thm ``epb_minimizer``, with

.. math::

    X_k = \sum_{t \in k} \tilde f(s_t)
          \left(\tilde f(s_t) - [t+1 \in k]\, \tilde f(s_{t+1})\right)^T, \quad
    y_k = \sum_{t \in k} \tilde f(s_t)
          \left(r_t - g + [t+1 \notin k]\, v_{k+1}(s_{t+1})\right).

One neighbourhood is average-reward LSTD over all timesteps; one a timestep is fitted policy
evaluation backwards in time. Nothing need be shared between neighbourhoods.

Everything is linear in what comes next, so that one decomposition of a window serves all its
right-hand sides: those of rewards, of ones, and of the features of leaving successors.

What the samples leave open is carried backwards with the rest. Directions U_k of the weights
that do not change how well the equations are solved are those that X_k does not determine, and
what the next neighbourhood's open directions do to the values at the boundary,

.. math:: U_k = [\mathrm{null}(X_k),\; X_k^\dagger M_k U_{k+1}], \quad
          M_k = \sum_{t = \max k} \tilde f(s_t) \tilde f(s_{t+1})^T .

The value of x is determined where :math:`\tilde f(x)^T U_k` is 0; see `System.open_share`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.statistics.equations import thin_svd, window_chunks
from lstd_agent.statistics.interface import Statistics
from lstd_agent.system.approximators import Solution
from lstd_agent.system.minimizer import Minimizer, minimize
from lstd_agent.system.solvers import SolverName

# Directions are kept that are at least this large beside the largest of a neighbourhood.
OPEN = 1e-8


def solve_backwards(
    statistics: Statistics,
    windows: IntArray,
    gain: float,
    rcond: float,
    *,
    directions: bool = True,
    solver: SolverName = "svd",
) -> Solution:
    """Solve the linked system.

    Parameters
    ----------
    statistics : Statistics
    windows : ndarray of int, shape (n, 2)
        The timesteps of the neighbourhoods, one after the other up to ``t_max``.
    gain : float
    rcond : float
        Relative cutoff of the pseudoinverses.
    directions : bool
        Whether to keep track of what the samples leave open.
    solver : {"svd", "qr", "lsmr"}
        See `lstd_agent.system.minimizer.minimize`.

    Returns
    -------
    Solution
    """
    n = len(windows)
    _, zero_features = statistics.zero(windows[-1])
    equations = statistics.equations(windows[-1:], None, rcond)
    last = minimize(equations, rcond, directions=directions, solver=solver)
    solved = np.empty((n, len(zero_features) + 1))
    solved[-1, :-1] = last.weights[0] @ [1.0, -gain]
    solved[-1, -1] = -zero_features @ solved[-1, :-1]
    rank, condition, n_samples = np.empty(n, np.int64), np.empty(n), np.empty(n, np.int64)
    rank[-1:], condition[-1:], n_samples[-1:] = last.rank, last.condition, equations.n_samples
    scale = statistics.feature_scale
    opened = [_last_open(last, zero_features, scale)] if directions else []

    chunks = list(window_chunks(n - 1, 3 * statistics.numbers_per_window(rcond)))
    for chunk in reversed(chunks):
        chunk = slice(chunk.start, min(chunk.stop, n - 1))
        equations = statistics.linked_equations(windows[chunk], rcond)
        found = minimize(equations, rcond, directions=directions, solver=solver)
        rank[chunk], condition[chunk], n_samples[chunk] = (
            found.rank,
            found.condition,
            equations.n_samples,
        )
        numbers = found.weights[:, :, :2] @ [1.0, -gain]
        for i in reversed(range(len(numbers))):
            back, k = found.weights[i, :, 2:], chunk.start + i
            solved[k] = numbers[i] + back @ solved[k + 1]
            if directions:
                opened.append(_open_before(found, i, back, opened[-1], scale))
    return Solution(
        weights=solved[:, :-1],
        offsets=solved[:, -1],
        rank=rank,
        n_samples=n_samples,
        condition=condition,
        open_directions=stacked(opened[::-1]),
    )


def _last_open(last: Minimizer, zero_features: FloatArray, scale: FloatArray) -> FloatArray:
    """Return the open directions of the last window, for scaled weights.

    Its offset keeps the value 0 where it is to be.
    """
    null = null_directions(last, 0, scale[:-1])
    offset = -(zero_features / scale[:-1]) @ null * scale[-1]
    return _compress(np.vstack((null, offset)))


def _open_before(
    found: Minimizer, i: int, back: FloatArray, following: FloatArray, scale: FloatArray
) -> FloatArray:
    """Return those of the window before: its own, and what those of the next do to it."""
    if following.shape[1] == 0 and found.rank[i] == len(back):
        return following
    carried = (back * scale[:, None] / scale) @ following
    return _compress(np.hstack((null_directions(found, i, scale), carried)))


def stacked(directions: Sequence[FloatArray]) -> FloatArray:
    """Return directions (d + 1, q_k) as one array (n, d + 1, q), with columns of zeros."""
    if not directions:
        return np.zeros((0, 0, 0))
    rows, q = np.max([each.shape for each in directions], axis=0)
    found = np.zeros((len(directions), rows, q))
    for columns, each in zip(found, directions, strict=True):
        columns[:, : each.shape[1]] = each
    return found


def null_directions(found: Minimizer, i: int, scale: FloatArray) -> FloatArray:
    """Return, for scaled weights, an orthonormal basis of what window i does not determine."""
    assert found.determined is not None
    determined = found.determined[i] / scale[:, None]
    columns = determined[:, determined.any(axis=0)]
    Q, _ = np.linalg.qr(columns, mode="complete")
    return np.asarray(Q[:, columns.shape[1] :])


def _compress(directions: FloatArray) -> FloatArray:
    """Return columns that span the same, those that are next to nothing left out."""
    if directions.shape[1] == 0:
        return directions
    U, size, _ = thin_svd(directions)
    keep = size > OPEN * max(1.0, size[0])
    return np.asarray(U[:, keep] * np.minimum(size[keep], 1.0))
