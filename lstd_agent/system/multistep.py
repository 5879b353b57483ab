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

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.statistics.backups import LambdaReturn, MultiStep, Targets
from lstd_agent.statistics.blocks import Block
from lstd_agent.statistics.equations import FeatureBasis
from lstd_agent.statistics.interface import Statistics, Walk, WindowSums
from lstd_agent.system.approximators import Solution
from lstd_agent.system.linked import OPEN, null_directions, stacked
from lstd_agent.system.minimizer import Minimizer, minimize
from lstd_agent.system.solvers import SolverName

# Blocks of timesteps have no more numbers than this, if all states were visited at each.
_MOST_AT_ONCE = 2**24


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
            _go_back(walk, targets, part, values, basis, 1, [sums[k] for k in inside.nonzero()[0]])
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
    n, walk = len(windows), statistics.walk(rcond)
    scale, intercept = statistics.feature_scale, statistics.intercept
    _, zero_features = statistics.zero(windows[-1])
    found: list[FloatArray] = []
    rank, condition, n_samples = np.empty(n, np.int64), np.empty(n), np.empty(n, np.int64)
    basis = walk.basis(intercept=False)
    end, n_columns = statistics.t_max + 1, 1
    # Of what comes after the window: at the end of trials, too, targets are those of the window.
    values = walk.unknown(end, basis, n_columns)
    targets = Targets(backup, gain, values, basis.U.shape[1], end)
    for k in reversed(range(n)):
        sums = walk.sums(basis, values.shape[1])
        first = _go_back(walk, targets, windows[k], values, basis, n_columns, [sums])
        last = k == n - 1
        equations = sums.equations()
        solution = minimize(equations, rcond, directions=directions, solver=solver)
        rank[k], condition[k] = solution.rank[0], solution.condition[0]
        n_samples[k] = equations.n_samples[0]
        columns = _columns(solution, scale, directions)
        if last:
            columns = np.vstack((columns, -zero_features @ columns))
        worth = _numbers(targets.worth, columns, basis, intercept)
        if columns.shape[1] > 1:
            columns, worth = _compressed(columns, worth, first, scale)
        found.append(columns)
        if k == 0:
            break
        if last:
            basis = walk.basis(intercept=True)
        n_columns = columns.shape[1]
        targets.restart(_after_unknowns(worth, basis), basis.U.shape[1])
        linear = walk.features(int(windows[k, 0])) @ columns[:-1]
        values = _after_unknowns(linear + intercept * columns[-1], basis)
    weights = np.stack([columns[:, 0] for columns in reversed(found)])
    return Solution(
        weights=weights[:, :-1],
        offsets=weights[:, -1],
        rank=rank,
        n_samples=n_samples,
        condition=condition,
        open_directions=scale[:, None] * stacked([columns[:, 1:] for columns in reversed(found)]),
    )


def _go_back(
    walk: Walk,
    targets: Targets,
    window: IntArray,
    values: FloatArray,
    basis: FeatureBasis,
    n_columns: int,
    sums: Sequence[WindowSums],
) -> Block:
    """Add the targets of timesteps to sums, from values after them; return the first block."""
    size = max(1, _MOST_AT_ONCE // values.size)
    start, stop = window.tolist()
    while True:
        block = walk.block(max(start, stop - size), stop)
        unknown = walk.unknown(block.start, basis, n_columns)
        worth = targets.go_back(block, values, unknown)
        for each in sums:
            each.add(block, worth)
        values, stop = unknown, block.start
        if stop == start:
            return block


def _columns(solution: Minimizer, scale: FloatArray, directions: bool) -> FloatArray:
    """Return weights and, if asked for, the directions that a window leaves open, as columns."""
    weights: FloatArray = solution.weights[0]
    if not directions:
        return weights
    sizes = scale[: len(weights)]
    return np.hstack((weights, null_directions(solution, 0, sizes) / sizes[:, None]))


def _numbers(
    worth: FloatArray, columns: FloatArray, basis: FeatureBasis, intercept: float
) -> FloatArray:
    """Return targets, which are affine in weights of the basis, as numbers of columns (d + 1, q).

    The offset of the last window is none of those weights.
    """
    d, r = basis.V.shape
    worth_of_weights = worth[..., :r] @ (basis.singular[:, None] * (basis.V.T @ columns[:d]))
    known = np.zeros(worth_of_weights.shape)
    known[..., : worth.shape[-1] - r] = worth[..., r:]
    if d < len(columns):
        return np.asarray(worth_of_weights + known + intercept * columns[-1])
    return np.asarray(worth_of_weights + known)


def _compressed(
    columns: FloatArray, worth: FloatArray, first: Block, scale: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Leave out directions that change next to nothing, and shorten long ones to 1.

    Targets weigh as the samples of the first timestep of the window's first block do.
    """
    n = first.n_first
    states, visits = first.state[:n], first.visits[:n]
    root = np.sqrt(visits / visits.sum())[:, None]
    at_boundary = (root * worth[:, states, 1:]).reshape(-1, worth.shape[-1] - 1)
    both = np.vstack((scale[:, None] * columns[:, 1:], at_boundary))
    _, size, Vt = np.linalg.svd(both, full_matrices=False)
    keep = size > OPEN * max(1.0, size[0])
    turn = Vt[keep].T / np.maximum(size[keep], 1.0)

    def turned(columns: FloatArray) -> FloatArray:
        return np.concatenate((columns[..., :1], columns[..., 1:] @ turn), axis=-1)

    return turned(columns), turned(worth)


def _after_unknowns(numbers: FloatArray, basis: FeatureBasis) -> FloatArray:
    """Put numbers behind coefficients of unknowns, which are zero."""
    return np.concatenate((np.zeros((*numbers.shape[:-1], basis.U.shape[1])), numbers), axis=-1)


def _check_dense(statistics: Statistics) -> None:
    if statistics.sparse_counts is not None:
        d = statistics.sparse_counts.sparse_features.shape[1]
        raise InvalidInputError(
            f"targets of several steps are dense in the features, of which there are {d}: use "
            "backup='one_step' or 'model', or fewer features"
        )
