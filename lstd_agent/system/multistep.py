r"""Systems fitted to targets of several steps, or of the λ-return.

One pass backwards over the timesteps gives the target of each sample as

.. math:: T_t(s) = G_t(s)\, w + c_t(s),

affine in the weights w of the approximators on which it bootstraps (`Targets` of
`lstd_agent.statistics.backups`). A window is then solved like one of single steps, in the
Z†-seminorm of Thm ``epb_minimizer``, with

.. math::

    X = \sum_t \sum_s n_t(s) f(s) (f(s) - G_t(s))^T, \quad
    y = \sum_t \sum_s n_t(s) f(s) c_t(s) .

Windows by themselves have a single unknown w, that of their own approximator, to the end of the
trials. In a linked system (`lstd_agent.system.linked`) weights become numbers as soon as they are
solved for, and so do targets as they cross into the neighbourhood before. What samples leave open
crosses with them: numbers have a column for the value and one for each open direction.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.statistics.backups import LambdaReturn, MultiStep, Targets
from lstd_agent.statistics.equations import thin_svd
from lstd_agent.statistics.interface import Statistics
from lstd_agent.system.approximators import Solution
from lstd_agent.system.crossing import crossing_of, go_back
from lstd_agent.system.linked import OPEN, null_directions, stacked
from lstd_agent.system.minimizer import Minimizer, minimize
from lstd_agent.system.solvers import SolverName


def solve_windows_multistep(
    statistics: Statistics,
    windows: IntArray,
    gain: float,
    rcond: float,
    backup: MultiStep | LambdaReturn,
    *,
    solver: SolverName = "svd",
) -> tuple[Minimizer, IntArray]:
    """Return the minimizers of windows by themselves, and their numbers of samples."""
    _check_dense(statistics)
    walk = statistics.walk(rcond)
    basis = walk.basis(intercept=False)
    r, end = basis.U.shape[1], statistics.t_max + 1
    sums = [walk.sums(basis, r + 1) for _ in windows]
    targets = Targets(backup, gain, walk.unknown(end, basis, 1), r, end)
    forever = statistics.forever
    if forever is not None:
        targets.go_on_forever(forever, walk.unknown(end, basis, 1))
        worth = targets.worth[-1, forever.state]
        for each, p in zip(sums, statistics.occupancy(windows), strict=True):
            each.add(replace(forever, visits=p[forever.state]), worth)
    else:
        edges = np.unique(np.append(windows, end))
        for part in reversed(np.stack((edges[:-1], edges[1:]), axis=1)):
            inside = (windows[:, 0] <= part[0]) & (part[1] <= windows[:, 1])
            values = walk.unknown(int(part[1]), basis, 1)
            go_back(walk, targets, part, values, basis, 1, [sums[k] for k in inside.nonzero()[0]])
    equations = [each.equations() for each in sums]
    found = Minimizer.concatenate([minimize(each, rcond, solver=solver) for each in equations])
    return (
        replace(found, weights=found.weights[:, :, 0]),
        np.concatenate([each.n_samples for each in equations]),
    )


def solve_backwards_multistep(
    statistics: Statistics,
    windows: IntArray,
    gain: float,
    rcond: float,
    backup: MultiStep | LambdaReturn,
    *,
    directions: bool = True,
    solver: SolverName = "svd",
) -> Solution:
    """Solve a linked system; parameters are those of `lstd_agent.system.linked.solve_backwards`."""
    _check_dense(statistics)
    n, crossing = len(windows), crossing_of(statistics, backup, gain, rcond)
    scale = statistics.feature_scale
    _, zero_features = statistics.zero(windows[-1])
    found: list[FloatArray] = []
    rank, condition, n_samples = np.empty(n, np.int64), np.empty(n), np.empty(n, np.int64)
    for k in reversed(range(n)):
        equations = crossing.equations(windows[k])
        solution = minimize(equations, rcond, directions=directions, solver=solver)
        rank[k], condition[k] = solution.rank[0], solution.condition[0]
        n_samples[k] = equations.n_samples[0]
        columns = _columns(solution, scale, directions)
        if k == n - 1:
            columns = np.vstack((columns, -zero_features @ columns))
        if k > 0 or columns.shape[1] > 1:
            turn = _compression(scale[:, None] * columns, crossing.solve(columns))
            columns = columns @ turn
            crossing.cross(columns, turn)
        found.append(columns)
    weights = np.stack([columns[:, 0] for columns in reversed(found)])
    return Solution(
        weights=weights[:, :-1],
        offsets=weights[:, -1],
        rank=rank,
        n_samples=n_samples,
        condition=condition,
        open_directions=scale[:, None] * stacked([columns[:, 1:] for columns in reversed(found)]),
    )


def _columns(solution: Minimizer, scale: FloatArray, directions: bool) -> FloatArray:
    """Return weights and, if asked for, the directions that a window leaves open, as columns."""
    weights: FloatArray = solution.weights[0]
    if not directions:
        return weights
    sizes = scale[: len(weights)]
    return np.hstack((weights, null_directions(solution, 0, sizes) / sizes[:, None]))


def _compression(scaled: FloatArray, at_boundary: FloatArray) -> FloatArray:
    """Return the matrix that leaves out directions that change next to nothing.

    Long ones are shortened to 1. The first columns of weights and of targets stay.
    """
    both = np.vstack((scaled, at_boundary))[:, 1:]
    if both.shape[1] == 0:
        return np.eye(1)
    _, size, Vt = thin_svd(both)
    keep = size > OPEN * max(1.0, size[0])
    turn = np.zeros((1 + len(Vt.T), 1 + keep.sum()))
    turn[0, 0] = 1.0
    turn[1:, 1:] = Vt[keep].T / np.maximum(size[keep], 1.0)
    return turn


def _check_dense(statistics: Statistics) -> None:
    if statistics.sparse_counts is not None:
        d = statistics.sparse_counts.sparse_features.shape[1]
        raise InvalidInputError(
            f"targets of several steps are dense in the features, of which there are {d}: use "
            "backup='one_step' or 'model', or fewer features"
        )
