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

The value of x is determined where :math:`\tilde f(x)^T U_k` is 0; see `undetermined_share`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.statistics.equations import window_chunks
from lstd_agent.statistics.interface import Statistics
from lstd_agent.system.minimizer import Minimizer, minimize

# Directions are kept that are at least this large beside the largest of a neighbourhood.
_OPEN = 1e-8


@dataclass(frozen=True, eq=False)
class LinkedSolution:
    """Approximators of all neighbourhoods, solved backwards in time.

    Attributes
    ----------
    weights : ndarray, shape (n, d)
    offsets : ndarray, shape (n,)
    rank, n_samples : ndarray of int, shape (n,)
    condition : ndarray, shape (n,)
    open_directions : ndarray, shape (n, d + 1, q)
        Of (weights, offset), for features divided by `Statistics.feature_scale`; columns that a
        neighbourhood does not need are zero.
    main : int
        The candidate state whose value by the last neighbourhood is 0, or -1.
    """

    weights: FloatArray
    offsets: FloatArray
    rank: IntArray
    n_samples: IntArray
    condition: FloatArray
    open_directions: FloatArray
    main: int


def solve_backwards(
    statistics: Statistics, windows: IntArray, gain: float, rcond: float
) -> LinkedSolution:
    """Solve the linked system.

    Parameters
    ----------
    statistics : Statistics
    windows : ndarray of int, shape (n, 2)
        The timesteps of the neighbourhoods, one after the other up to ``t_max``.
    gain : float
    rcond : float
        Relative cutoff of the pseudoinverses.

    Returns
    -------
    LinkedSolution
    """
    n = len(windows)
    main, zero_features = statistics.zero(windows[-1])
    equations = statistics.equations(windows[-1:], None, rcond)
    last = minimize(equations, rcond, directions=True)
    solved = np.empty((n, len(zero_features) + 1))
    solved[-1, :-1] = last.weights[0] @ [1.0, -gain]
    solved[-1, -1] = -zero_features @ solved[-1, :-1]
    rank, condition = np.empty(n, dtype=np.int64), np.empty(n)
    n_samples = np.empty(n, dtype=np.int64)
    rank[-1], condition[-1], n_samples[-1] = last.rank[0], last.condition[0], equations.n_samples[0]
    scale = statistics.feature_scale
    open_directions = [_open_of_last(_only(last), zero_features, scale)]
    for k, found, samples in _earlier(statistics, windows[:-1], rcond):
        map_back = found.weights[0][:, 2:]
        solved[k] = found.weights[0][:, :2] @ [1.0, -gain] + map_back @ solved[k + 1]
        rank[k], condition[k], n_samples[k] = found.rank[0], found.condition[0], samples
        carried = (map_back * scale[:, None] / scale) @ open_directions[-1]
        null = _null(_only(found), scale)
        open_directions.append(_compress(np.hstack((null, carried))))
    return LinkedSolution(
        weights=solved[:, :-1],
        offsets=solved[:, -1],
        rank=rank,
        n_samples=n_samples,
        condition=condition,
        open_directions=_stack(open_directions[::-1]),
        main=main,
    )


def _earlier(
    statistics: Statistics, windows: IntArray, rcond: float
) -> Iterator[tuple[int, Minimizer, int]]:
    """Yield the place, the solution and the number of samples of windows, the last one first."""
    chunks = list(window_chunks(len(windows), 3 * statistics.numbers_per_window(rcond)))
    for chunk in reversed(chunks):
        equations = statistics.linked_equations(windows[chunk], rcond)
        found = minimize(equations, rcond, directions=True)
        for i in reversed(range(len(equations.n_samples))):
            yield chunk.start + i, found.take(np.array([i])), int(equations.n_samples[i])


def _only(found: Minimizer) -> FloatArray:
    """Return the determined directions of a single window."""
    assert found.determined is not None
    return np.asarray(found.determined[0])


def _null(determined: FloatArray, scale: FloatArray) -> FloatArray:
    """Return, for scaled weights, a basis of what columns (d, r), some zero, leave out."""
    determined = determined / scale[:, None]
    columns = determined[:, determined.any(axis=0)]
    Q, _ = np.linalg.qr(columns, mode="complete")
    return np.asarray(Q[:, columns.shape[1] :])


def _open_of_last(
    determined: FloatArray, zero_features: FloatArray, scale: FloatArray
) -> FloatArray:
    """Return the last window's open directions; offsets keep the value 0 where it is to be."""
    null = _null(determined, scale[:-1])
    return _compress(np.vstack((null, -(zero_features / scale[:-1]) @ null * scale[-1])))


def _compress(directions: FloatArray) -> FloatArray:
    """Return columns that span the same, those that are next to nothing left out."""
    if directions.shape[1] == 0:
        return directions
    U, size, _ = np.linalg.svd(directions, full_matrices=False)
    keep = size > _OPEN * max(1.0, size[0])
    return np.asarray(U[:, keep] * np.minimum(size[keep], 1.0))


def _stack(matrices: list[FloatArray]) -> FloatArray:
    """Return matrices of as many rows in one array, with columns of zeros as needed."""
    q = max(matrix.shape[1] for matrix in matrices)
    stacked = np.zeros((len(matrices), matrices[0].shape[0], q))
    for k, matrix in enumerate(matrices):
        stacked[k, :, : matrix.shape[1]] = matrix
    return stacked
