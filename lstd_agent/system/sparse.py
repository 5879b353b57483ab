r"""Linked systems of many sparse features, such as tiles or one feature a state.

Samples of a window have features F, next features G, rewards r and durations τ. Samples of its last
timestep lead into the next window, where values are known numbers v. The equations are

.. math:: X w = y, \quad X = F^T D (F - G'), \quad y = F^T D (r - g τ + v),

with G' = G except in the last timestep, where G' = 0. The minimizer of Thm ``epb_minimizer`` solves
them if they have a solution. The last window leads into itself, so that X maps constants to 0.
Another unknown, the rest of the gain, and another equation, mean value 0, make it regular:

.. math:: M = \begin{pmatrix} X & F^T D τ \\ m^T & 0 \end{pmatrix} .

:math:`M^T (u, 0) = (0, 1)` gives the left null vector u of X. The gain of the window is
:math:`\sum_i α_i r_i`, :math:`α_i = n_i f_i^T u`, with :math:`1 / \sum α_i^2 / n_i` effective
samples. Least squares solve for y minus :math:`Z u (u^T y) / (u^T Z u)`, Z = F^T D F.

Other samples must determine the value after a sample. They do not if a feature there was never
seen, or leads neither into the next window nor to the main class of the last one, or if no
combination of samples has these features. Such samples are left out until none remains, and counted
(`LeftOut`). The value of f is determined if the open columns have products 0 with f.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.errors import EvaluationError
from lstd_agent.features.rows import have_one_sum
from lstd_agent.rows.classes import main_class
from lstd_agent.rows.factors import MIN_SAMPLES
from lstd_agent.system.minimizer import LEAST_SHARE, Gain, Solved
from lstd_agent.system.sparse_solvers import RidgeSolver, factored

# A ridge to factor Z. A feature is open if its product with random null vectors, relative to its
# size, exceeds _OPEN. All are for diagonals of 1, where smaller numbers are rounding.
_RIDGE_OF_Z, _N_PROBES, _OPEN, _ROUNDING = 1e-10, 6, 1e-5, 1e-12

_CHUNK = 2**22  # numbers that are held at a time


class Steps(NamedTuple):
    """Transitions: features f (n, d), the next features g (n, d), and numbers (n,)."""

    f: Any
    g: Any
    weight: FloatArray
    reward: FloatArray
    duration: FloatArray
    group: IntArray
    t: IntArray  # the first timestep of the run of timesteps that a transition comes from

    def at(self, kept: Any) -> Steps:
        """Return some transitions."""
        return Steps(*(each[kept] for each in self))


class SparseRows:
    """Transitions of a source in groups of trials, by runs of timesteps, which are read once."""

    def __init__(self, source: Any, anchors: IntArray, groups: list[Any]) -> None:
        T = source.t_max
        self.source, self.t_max, self.ends = source, T, source.constant == 0.0
        self.groups, self.half = groups, (T + 1) // 2
        inner = [edge for a in anchors for edge in (a, a - 1)]
        edges = sorted({0, self.half, max(T, 1), T, T + 1, *inner} - {-1})
        parts: list[Any] = []
        for start, stop in pairwise(edges):
            for label, group in enumerate(self.groups):
                layer = source.merged(start, stop, group)
                f, g = layer.features, layer.following
                weight, numbers = layer.weights, [layer.rewards, layer.durations]
                if layer.P is not None:
                    pairs = sparse.coo_array(layer.P)
                    weight = weight[pairs.row] * pairs.data * layer.goes_on[pairs.row]
                    i, j, weight = (x[weight > 0.0] for x in (pairs.row, pairs.col, weight))
                    f, g, numbers = f[i], g[j], [x[i] for x in numbers]
                labels = np.full(len(weight), label), np.full(len(weight), start)
                parts.append((f, g, weight, *numbers, *labels))
        f, g, *numbers = zip(*parts, strict=True)
        joined: list[Any] = [sparse.csr_array(sparse.vstack(each)) for each in (f, g)]
        self.steps = Steps(*joined, *(np.concatenate(each) for each in numbers))
        self.has_constant = have_one_sum(self.steps.f) and not self.ends  # can be represented


def resized(features: Any, d: int) -> sparse.csr_array:
    """Return features with or without a constant 1, according to d."""
    x: sparse.csr_array = sparse.csr_array(features)
    if x.shape[1] < d:
        x = sparse.csr_array(sparse.hstack((x, sparse.csr_array(np.ones((x.shape[0], 1))))))
    return x if x.shape[1] == d else sparse.csr_array(x[:, :d])


class LeftOut(NamedTuple):
    """Samples left out of a window, because no other samples determine the values they lead to."""

    start: int
    stop: int
    number: int
    of: int

    def __str__(self) -> str:
        return (
            f"{self.number} of the {self.of} samples of timesteps {self.start} to {self.stop - 1} "
            "lead to observations whose features the other samples do not determine, and do not "
            "count for values or the gain: use fewer or coarser features, or collect more trials"
        )


@dataclass(frozen=True, eq=False)
class Window:
    """Equations of a window: Z = F^T D F and H = F^T D G' of features divided by ``root`` (d,)."""

    steps: Steps  # the samples that are not left out
    exits: BoolArray  # (n,) which of them lead into the next window
    known: BoolArray  # (d,) features that they determine, apart from combinations
    border: bool  # whether X maps constants to 0
    left_out: LeftOut
    root: FloatArray
    Z: sparse.csr_array
    H: sparse.csr_array
    whole: Window | None  # of all trials, in a window without a batch
    _found: dict[str, FloatArray] = field(default_factory=dict)

    @cached_property
    def one_hot(self) -> bool:
        """Whether each sample has one feature."""
        return bool((np.diff(self.steps.f.indptr) == 1).all())

    def _at(self, x: FloatArray) -> FloatArray:
        """Return products of scaled features of the samples (n,) with x (d,) or (d, q)."""
        return np.asarray(self.steps.f @ (x.T / self.root).T)

    def _sum(self, x: Any) -> FloatArray:
        """Return the weighted sum of scaled features times x (n,)."""
        return np.asarray(self.steps.f.T @ (self.steps.weight * x)) / self.root

    @cached_property
    def _gram(self) -> Any:
        """Z + εI in factors."""
        return factored(sparse.csc_array(self.Z), _RIDGE_OF_Z, ~self.known, 0.0)

    @cached_property
    def null_of_Z(self) -> FloatArray:
        """Random vectors (d, q) of the null space of Z, 0 for unknown features."""
        x = np.random.default_rng(0).standard_normal((len(self.known), _N_PROBES))
        x[~self.known] = 0.0
        return np.asarray(_RIDGE_OF_Z**2 * self._gram.solve(self._gram.solve(x)))

    @cached_property
    def mean_duration(self) -> float:
        """Mean duration of its steps; 1 where they take no time."""
        return float(np.average(self.steps.duration, weights=self.steps.weight)) or 1.0

    @cached_property
    def _solver(self) -> RidgeSolver:
        """The solver of X, with the border, and 1 in place of unknown features."""
        M: Any = self.Z - self.H + sparse.diags_array(np.where(self.known, 0.0, 1.0))
        if self.border:
            n, times = np.sqrt(self.steps.weight.sum()), self.steps.duration / self.mean_duration
            column, row = self._sum(times)[:, None] / n, self._sum(1.0)[None] / n
            blocks: Any = [[M, column], [row, None]]
            M = sparse.block_array(blocks)
        whole = None if self.whole is None else self.whole._solver
        return RidgeSolver(sparse.csc_array(M), whole, eager=whole is None and not self.one_hot)

    def _solve(self, right: FloatArray, name: str, transposed: bool = False) -> FloatArray:
        near = None if self.whole is None else self.whole._found.get(name)
        if near is not None:
            near = np.append(near[: len(self.known)] * self.known, near[len(self.known) :])
        self._found[name] = found = self._solver.solve(right, near, transposed)
        return found

    @cached_property
    def null(self) -> FloatArray:
        """u (d,), scaled, with u^T X = 0 and u^T F^T D τ = 1, τ in units of its mean."""
        right = np.append(np.zeros(len(self.known)), 1.0)
        u = self._solve(right, "null", True)[:-1]
        return np.asarray(u / np.sqrt(self.steps.weight.sum()))

    @property
    def gain(self) -> tuple[float, float]:
        """The gain, and its effective number of samples."""
        alpha, weight = self._at(self.null), self.steps.weight
        value = float(weight @ (alpha * self.steps.reward)) / self.mean_duration
        return value, float(1.0 / (weight @ alpha**2))

    def are_stuck(self) -> BoolArray:
        """Return which samples (n,) never leave a set of fewer than ten."""
        alpha = np.abs(self._at(self.null))
        few = self.gain[1] < min(MIN_SAMPLES, LEAST_SHARE * self.steps.weight.sum())
        return np.asarray((alpha > 0.1 * alpha.max()) & few)

    def weights(self, paid: FloatArray) -> FloatArray:
        """Return weights (d,), 0 for unknown features, from rewards above the gain (n,)."""
        y = self._sum(paid)
        if self.border:
            u = self.null
            Zu = self._sum(self._at(u))
            y = np.append(y - Zu * ((u @ y) / (u @ Zu)), 0.0)
        found = self._solve(y, "weights")[: len(self.known)]
        return np.where(self.known, found / self.root, 0.0)

    @cached_property
    def opened(self) -> FloatArray:
        """Columns (d, q), not orthogonal to scaled features that are open."""
        columns = [np.where(self.known, 0.0, 1.0)[:, None]]
        if self.whole is not None:
            columns.append(self.whole.opened)
        if not self.one_hot:
            columns.append(self.null_of_Z)
            if self.whole is None:
                null = self._solver.null(_N_PROBES)[: len(self.known)]
                columns.append(null[:, np.abs(self._at(null)).max(axis=0) > _OPEN])
        return np.hstack(columns)

    def are_open(self, features: Any, columns: FloatArray | None = None) -> BoolArray:
        """Return which features (n, d) are open, by columns (d, q)."""
        columns = self.opened if columns is None else columns
        x, scaled = resized(features, len(self.known)), columns / self.root[:, None]
        size = np.sqrt(x.power(2) @ self.root**-2.0)[:, None] + abs(x) @ np.abs(scaled)
        return np.asarray((np.abs(x @ scaled) > _OPEN * size).any(axis=1))

    def occupancy(self, features: sparse.csr_array) -> FloatArray:
        """Return the occupancy (m,) of features (m, d), as by `Christoffel`."""
        x, n = resized(features, len(self.known)), self.left_out.of
        if self.one_hot:
            visits = np.bincount(self.steps.f.indices, self.steps.weight, x.shape[1])
            return np.asarray((abs(x) > 0.0) @ np.where(self.known, visits, 0.0) / n)
        inside, shares = np.flatnonzero(~self.are_open(x)), np.zeros(x.shape[0])
        for rows in np.array_split(inside, 1 + len(inside) * x.shape[1] // _CHUNK):
            q = (x[rows] @ sparse.diags_array(1.0 / self.root)).toarray().T
            z = self._gram.solve(q)
            # The number of samples of features in the range of Z is 1 / (q^T Z† q).
            leverage = ((q + _RIDGE_OF_Z * z) * z).sum(axis=0)
            number = 1.0 / np.maximum(leverage, 1e-300)
            shares[rows] = np.where(number >= MIN_SAMPLES, number / n, 0.0)
        return shares

    def leading(self, to_main: bool) -> BoolArray:
        """Return the features (d,) that lead out of the window, or to its main class."""
        from scipy.sparse.csgraph import breadth_first_order

        steps, d = self.steps, len(self.known)
        A = sparse.csr_array(abs(self.H) > _ROUNDING).astype(np.float64)
        if to_main:
            goal = main_class(A, abs(steps.f).T @ steps.weight)
        else:
            goal = np.zeros(d, dtype=bool)
            goal[steps.f[self.exits | (np.diff(steps.g.indptr) == 0)].indices] = True
        blocks: Any = [[A.T, None], [goal[None].astype(np.float64), sparse.csr_array((1, 1))]]
        graph: Any = sparse.block_array(blocks, format="csr")
        order = breadth_first_order(graph, d, directed=True, return_predecessors=False)
        return np.isin(np.arange(d), order)


def _products(steps: Steps, exits: BoolArray, root: FloatArray) -> list[Any]:
    """Return F^T D F and F^T D G', scaled."""

    def scaled(x: Any, weight: FloatArray) -> sparse.csr_array:
        data = np.repeat(weight, np.diff(x.indptr)) * x.data / root[x.indices]
        return sparse.csr_array((data, x.indices, x.indptr), shape=x.shape)

    left = sparse.csr_array(scaled(steps.f, np.ones(len(exits))).T)
    inside = np.where(exits, 0.0, steps.weight)
    return [left @ scaled(steps.f, steps.weight), left @ scaled(steps.g, inside)]


def _window(
    steps: Steps,
    exits: BoolArray,
    lost: BoolArray,
    to_main: bool,
    border: bool,
    span: tuple[int, int],
    whole: Window | None = None,
) -> Window:
    """Return the window of the samples that are not left out."""
    number = float(steps.weight.sum())
    has, leads_to = abs(steps.f), abs(steps.g)
    kept, leading = ~lost, np.ones(has.shape[1], dtype=bool)
    while True:
        known = leading & (has.T @ kept > 0.0)
        unknown = np.where(known, 0.0, 1.0)
        left = kept & ((leads_to @ unknown == 0.0) | exits) & (has @ unknown == 0.0)
        if (left != kept).any():
            kept = left
            continue
        left_out = LeftOut(*span, round(number - steps.weight[kept].sum()), round(number))
        if not kept.any():
            raise EvaluationError(str(left_out))
        inside = steps if kept.all() else steps.at(kept)
        if whole is None:
            root = np.sqrt(np.asarray(inside.f.power(2).T @ inside.weight))
            root = np.where(root > 0.0, root, 1.0)
            Z, H = _products(inside, exits[kept], root)
        else:  # few are left out
            root, only = whole.root, sparse.diags_array(known.astype(np.float64))
            less = _products(steps.at(~kept), exits[~kept], root)
            Z, H = (only @ (A - B) @ only for A, B in zip((whole.Z, whole.H), less, strict=True))
        window = Window(inside, exits[kept], known, border, left_out, root, Z, H, whole)
        leading = window.leading(to_main)
        if not leading[known].all():
            continue
        if window.one_hot:
            return window
        lost = window.are_open(inside.g, window.null_of_Z) & ~window.exits
        if border and not lost.any():
            lost = window.are_stuck()
        if not lost.any():
            return window
        leading, kept = np.ones_like(leading), kept.copy()
        kept[kept] = ~lost


def sparse_gain(rows: SparseRows) -> Gain | None:
    """Return the gain as an unknown of the tail, or of all timesteps, if they determine it."""
    for name in () if rows.ends else ("tail", "all"):
        try:
            window = _gain_window(rows, name)
            value, number = window.gain
        except EvaluationError:
            continue
        if number >= LEAST_SHARE * window.left_out.of:
            return Gain(value, name, number / window.left_out.of)
    return None


def gains_without_each(rows: SparseRows, name: Any) -> list[Gain]:
    """Return the gains without each group of trials, by the rows of the gain of all trials."""
    whole = _gain_window(rows, name)
    return [Gain(_gain_window(rows, name, whole, i).gain[0], name) for i in range(len(rows.groups))]


def _gain_window(
    rows: SparseRows, name: str, whole: Window | None = None, without: int = -1
) -> Window:
    """Return the window that gives the gain; without a group, preconditioned by the whole."""
    start, stop = (rows.half, max(rows.t_max, 1)) if name == "tail" else (0, rows.t_max)
    steps = _steps_in(rows, (start, stop), not rows.has_constant) if whole is None else whole.steps
    none = np.zeros(len(steps.group), dtype=bool)
    return _window(steps, none, steps.group == without, True, True, (start, stop), whole)


def _steps_in(rows: SparseRows, span: tuple[int, int], with_constant: bool) -> Steps:
    """Return transitions of timesteps start to stop - 1; a constant is one more feature."""
    t, d = rows.steps.t, rows.steps.f.shape[1] + with_constant
    steps = rows.steps.at(np.flatnonzero((t >= span[0]) & (t < span[1])))
    return steps._replace(f=resized(steps.f, d), g=resized(steps.g, d))


def solve_sparse(
    rows: SparseRows, anchors: IntArray, gain: float, whole: Any = None, without: int = -1
) -> list[Solved]:
    """Solve the linked system backwards in time; without a group, preconditioned by the whole."""
    d, found = rows.steps.f.shape[1], list[Solved]()
    stops = [*anchors[1:].tolist(), rows.t_max + 1]
    for k, span in reversed(list(enumerate(zip(anchors.tolist(), stops, strict=True)))):
        is_last, same = not found, None if whole is None else whole[k].window
        if same is None:
            steps = _steps_in(rows, span, not (is_last or rows.has_constant or rows.ends))
            exits = (steps.t == span[1] - 1) & (not is_last)
        else:
            steps, exits = same.steps, same.exits
        lost = steps.group == without
        if not is_last:
            lost[exits] |= found[-1].window.are_open(steps.g[exits])
        border = is_last and rows.has_constant
        window = _window(steps, exits, lost, is_last and not rows.ends, border, span, same)
        steps, exits = window.steps, window.exits
        paid = steps.reward - gain * steps.duration
        if not is_last:
            next_values = found[-1].columns[:, 0]
            paid[exits] += resized(steps.g[exits], d + 1) @ next_values
        own = window.weights(paid)
        if is_last:
            own = np.append(own, -_zero(rows, window, span[0]) @ own)
        columns = np.append(own, np.zeros(d + 1 - len(own)))[:, None]
        found.append(Solved(columns, int(window.known.sum()), np.nan, window.left_out.of, window))
    return found[::-1]


def _zero(rows: SparseRows, window: Window, anchor: int) -> FloatArray:
    """Return the features (d,) whose value is 0: the source's, or the mean of the tail."""
    zero = rows.source.zero(anchor)
    if zero is not None and not zero[~window.known].any():
        return np.asarray(zero)
    late = window.steps.t >= rows.half
    late = late if late.any() else ~late
    weight = window.steps.weight[late]
    return np.asarray(window.steps.f[late].T @ weight / weight.sum())
