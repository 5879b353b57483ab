r"""Linked systems of many sparse features, such as tiles or one feature a state.

Samples of a window have features F, features G of what follows, rewards r and durations τ. Samples
of its last timestep lead into the next window, where values are known numbers v. The equations are

.. math:: X w = y, \quad X = F^T D (F - G'), \quad y = F^T D (r - g τ + v),

with G' = G but for the last timestep, where G' = 0. The minimizer of Thm ``epb_minimizer`` solves
them where they have a solution. The last window leads into itself, so that X makes nothing of
constants. One unknown and one equation more make it regular: what is left of the gain, and the mean
value 0,

.. math:: M = \begin{pmatrix} X & F^T D τ \\ m^T & 0 \end{pmatrix} .

:math:`M^T (u, 0) = (0, 1)` gives the left null vector u of X. The gain of the window is
:math:`\sum_i α_i r_i`, :math:`α_i = n_i f_i^T u`, and amounts to :math:`1 / \sum α_i^2 / n_i`
samples. y less :math:`Z u (u^T y) / (u^T Z u)`, Z = F^T D F, is what least squares solve.

**Samples that tell nothing.** The value after a sample must follow from other samples. It does not
if a feature there was never seen, or leads neither into the next window nor to the main class of
the last one, or if no combination of samples has these features. Such samples are left out, until
there are none, and their share is told (`LeftOut`). What is open is kept as columns: f is
determined where their products with f are 0.

**Solving.** Minimal residuals (GMRES) come first for one feature a sample. Where they do not
converge, and for tiles, M + εI is factored, and makes the iterations easier. Without a batch of
trials the same factors serve: standard errors cost a few iterations a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.errors import EvaluationError
from lstd_agent.rows.layers import Layer, Samples
from lstd_agent.system.gain import LEAST_SHARE, Gain, GainRows
from lstd_agent.system.linked import Solved

# Beside diagonals of 1: of factors of M, and of those of Z, which are symmetric.
_RIDGE, _RIDGE_OF_Z = 1e-8, 1e-10

# Residuals of iterations beside the right-hand side: of solutions, and of what a batch changes.
_TOLERANCE, _TOLERANCE_OF_CHANGE = 1e-11, 1e-4
_MOST_STEPS, _CYCLE = 300, 60

# What leaves more is no solution.
_UNSOLVED, _UNSOLVED_CHANGE = 1e-6, 0.05

# Random vectors of null spaces tell what is open: more than this beside the size of features.
_N_PROBES, _OPEN = 6, 1e-5

# What is smaller beside diagonals of 1 is rounding.
_ROUNDING = 1e-12

# A closed class with a smaller part of the samples of the largest class is an end of few trials.
_SMALL_CLASS = 0.01

# An occupancy of vectors by fewer samples is 0.
_FEWEST = 10.0

_CHUNK = 2**22


class LeftOut(NamedTuple):
    """How many of a window's samples tell nothing, since they lead to what no others determine."""

    start: int
    stop: int
    number: int
    of: int

    @property
    def share(self) -> float:
        """How many of all."""
        return self.number / self.of

    def __str__(self) -> str:
        return (
            f"{self.number} of the {self.of} samples of timesteps {self.start} to {self.stop - 1} "
            "lead to observations whose features the other samples do not determine, and tell "
            "nothing of values or of the gain: use fewer or coarser features, or collect more "
            "trials"
        )


@dataclass(frozen=True, eq=False)
class Steps:
    """Transitions: features (n, d), of what follows (n, d), numbers of samples and so on (n,).

    ``part`` is the place of the run of timesteps that they come from.
    """

    f: sparse.csr_array
    g: sparse.csr_array
    weight: FloatArray
    reward: FloatArray
    duration: FloatArray
    group: IntArray
    part: IntArray

    @classmethod
    def of(cls, layer: Layer, group: int, part: int) -> Steps:
        """Return a row for each pair of a layer's row and what follows it."""
        P, n = layer.P, len(layer.weights)
        pairs = sparse.coo_array(sparse.eye_array(n) if P is None else P)
        row, column = pairs.row, pairs.col
        weight = layer.weights[row] * pairs.data * layer.goes_on[row]
        keep = weight > 0.0
        row, column, weight = row[keep], column[keep], weight[keep]
        f, g = sparse.csr_array(layer.features)[row], sparse.csr_array(layer.following)[column]
        labels = (np.full(len(row), each) for each in (group, part))
        return cls(f, g, weight, layer.rewards[row], layer.durations[row], *labels)

    def at(self, kept: Any) -> Steps:
        """Return some of them."""
        return Steps(*(getattr(self, name)[kept] for name in self.__dataclass_fields__))

    def with_one(self) -> Steps:
        """Return them with a feature for constants."""
        d = self.f.shape[1] + 1
        return replace(self, f=_resized(self.f, d), g=_resized(self.g, d))

    @classmethod
    def together(cls, parts: Sequence[Steps]) -> Steps:
        """Return all of several."""
        f, g = (
            sparse.csr_array(sparse.vstack(each))
            for each in zip(*((p.f, p.g) for p in parts), strict=True)
        )
        names = ("weight", "reward", "duration", "group", "part")
        return cls(
            f, g, *(np.concatenate([getattr(each, name) for each in parts]) for name in names)
        )


class SparseRows:
    """Transitions of a source by runs of timesteps, which are read once.

    Parameters
    ----------
    source : Samples
    anchors : sequence of int
    n_groups : int
        Into how many groups of trials, for standard errors.
    """

    def __init__(self, source: Samples, anchors: Sequence[int], n_groups: int = 20) -> None:
        T = source.t_max
        self.anchors, self.t_max, self.ends = list(anchors), T, source.constant == 0.0
        self.groups, self.stops = source.groups(n_groups), [*self.anchors[1:], T + 1]
        self.half = (T + 1) // 2
        last = [stop - 1 for stop in self.stops]
        edges = sorted({0, self.half, max(T, 1), T + 1, *self.anchors, *last} - {-1})
        self._starts = np.array(edges[:-1])
        self.steps = Steps.together(
            [
                Steps.of(layer, i, part)
                for part, (a, b) in enumerate(pairwise(edges))
                for i, group in enumerate(self.groups)
                for layer in source.merged(a, b, group)
            ]
        )
        total = self.steps.f.sum(axis=1)
        same = bool(total.size) and total[0] != 0.0 and np.allclose(total, total[0], rtol=1e-12)
        self.has_constant = bool(same) and not self.ends
        """Whether features can represent a constant."""
        zero = source.zero(self.anchors[-1])
        rows = zero.toarray() if sparse.issparse(zero) else zero
        self.zero: FloatArray | None = None if zero is None else np.asarray(rows, float).ravel()

    def between(self, start: int, stop: int) -> Steps:
        """Return transitions of timesteps start to stop - 1."""
        first, last = np.searchsorted(self._starts, (start, stop))
        part = self.steps.part
        return self.steps.at(np.flatnonzero((part >= first) & (part < last)))

    def starts_at(self, steps: Steps) -> IntArray:
        """Return the first timestep of the runs that transitions come from."""
        return self._starts[steps.part]


@dataclass(eq=False)
class Window:
    """Equations of a window, its factors, and what they leave open.

    Parameters
    ----------
    steps : Steps
        Those that tell something.
    exits : ndarray of bool, shape (n,)
        Which of them lead into the next window.
    known : ndarray of bool, shape (d,)
        The features that they determine, but for combinations.
    closed : bool
        Whether X makes nothing of constants.
    left_out : LeftOut
    more : Window, optional
        The same window with more samples, of whose sums those of ``fewer`` are taken away.
    whole : Window, optional
        The same window of all trials, where this is one without a batch.
    """

    steps: Steps
    exits: BoolArray
    known: BoolArray
    closed: bool
    left_out: LeftOut
    more: Window | None = None
    fewer: tuple[Steps, BoolArray] | None = None
    whole: Window | None = None
    _found: dict[str, FloatArray] = field(default_factory=dict)

    @cached_property
    def one_hot(self) -> bool:
        """Whether each sample has one feature."""
        return bool((np.diff(self.steps.f.indptr) == 1).all())

    @cached_property
    def root(self) -> FloatArray:
        """What features (d,) are divided by, for a diagonal of ones in Z; 1 where unseen."""
        if self.more is not None:
            return self.more.root
        squares = np.asarray(self.steps.f.power(2).T @ self.steps.weight)
        return np.where(squares > 0.0, np.sqrt(np.maximum(squares, 1e-300)), 1.0)

    @cached_property
    def _F(self) -> sparse.csr_array:
        return sparse.csr_array(self.steps.f @ sparse.diags_array(1.0 / self.root))

    @cached_property
    def _Ft(self) -> sparse.csr_array:
        return sparse.csr_array(self._F.T @ sparse.diags_array(self.steps.weight))

    @cached_property
    def _sums(self) -> tuple[sparse.csr_array, sparse.csr_array]:
        """Z and F^T D G', scaled."""
        if self.more is None or self.fewer is None:
            return _products(self.steps, self.exits, self.root)
        known = sparse.diags_array(self.known.astype(np.float64))
        away = _products(*self.fewer, self.root)
        Z, H = (known @ (A - B) @ known for A, B in zip(self.more._sums, away, strict=True))
        return Z, H

    @property
    def links(self) -> sparse.csr_array:
        """Which feature leads to which (d, d): a 1 for each pair."""
        H = self._sums[1]
        linked = abs(H.data) > _ROUNDING
        row = np.repeat(np.arange(H.shape[0]), np.diff(H.indptr))[linked]
        return sparse.csr_array((np.ones(len(row)), (row, H.indices[linked])), shape=H.shape)

    @cached_property
    def gram(self) -> _Gram:
        """Z, scaled, in factors."""
        return _Gram(sparse.csc_array(self._sums[0]), self.known)

    @cached_property
    def M(self) -> sparse.csc_array:
        """X, scaled, with 1 in place of features that are not known, and the border."""
        Z, H = self._sums
        X = Z - H + sparse.diags_array(np.where(self.known, 0.0, 1.0))
        if not self.closed:
            return sparse.csc_array(X)
        n = np.sqrt(self.steps.weight.sum())
        times = self.steps.duration / self.mean_duration
        column, row = (self._Ft @ times)[:, None] / n, self._Ft.sum(axis=1)[None] / n
        return sparse.csc_array(sparse.block_array([[X, column], [row, None]]))

    @cached_property
    def mean_duration(self) -> float:
        """Mean duration of its steps; 1 where they take no time."""
        weight = self.steps.weight
        return float(weight @ self.steps.duration / weight.sum()) or 1.0

    @cached_property
    def _solver(self) -> _Solver:
        if self.whole is None:
            return _Solver(self.M, None, eager=not self.one_hot)
        return _Solver(self.M, self.whole._solver, eager=False)

    def _solve(self, right: FloatArray, name: str, transposed: bool = False) -> FloatArray:
        near = None if self.whole is None else self.whole._found.get(name)
        if near is not None:
            near = np.append(near[: len(self.known)] * self.known, near[len(self.known) :])
        self._found[name] = found = self._solver.solve(right, near, transposed)
        return found

    @cached_property
    def null(self) -> FloatArray:
        """u (d,), scaled, with u^T X = 0 and u^T F^T D τ = 1, τ in units of its mean."""
        n = np.sqrt(self.steps.weight.sum())
        right = np.append(np.zeros(len(self.known)), 1.0)
        return np.asarray(self._solve(right, "null", True)[:-1] / n)

    def gain(self) -> tuple[float, float]:
        """Return the gain, and how many samples it amounts to."""
        alpha = self._F @ self.null
        value = float(self.steps.weight @ (alpha * self.steps.reward)) / self.mean_duration
        return value, float(1.0 / (self.steps.weight @ alpha**2))

    def are_stuck(self) -> BoolArray:
        """Tell which samples (n,) stay among themselves, if there are fewer than ten."""
        alpha = np.abs(self._F @ self.null)
        few = self.gain()[1] < min(_FEWEST, LEAST_SHARE * self.steps.weight.sum())
        return np.asarray((alpha > 0.1 * alpha.max()) & few)

    def weights(self, paid: FloatArray, name: str = "weights") -> FloatArray:
        """Return weights (d,), 0 of what is not known, from rewards above the gain (n,)."""
        y: FloatArray = np.asarray(self._Ft @ paid)
        if self.closed:
            u = self.null
            Zu = self._Ft @ (self._F @ u)
            y = np.append(y - Zu * ((u @ y) / (u @ Zu)), 0.0)
        found = self._solve(y, name)[: len(self.known)]
        return np.where(self.known, found / self.root, 0.0)

    def opened(self, whole: FloatArray | None = None) -> FloatArray:
        """Return columns (d, q), not orthogonal to scaled features that are open.

        Those of all trials are enough but for features that only a group has seen.
        """
        columns = [np.where(self.known, 0.0, 1.0)[:, None]]
        if whole is not None:
            columns += [whole] if self.one_hot else [whole, self.gram.null]
        elif not self.one_hot:
            null = self._solver.null(_N_PROBES)[: len(self.known)]
            columns += [self.gram.null, null[:, np.abs(self._F @ null).max(axis=0) > _OPEN]]
        return np.hstack(columns)


def _products(
    steps: Steps, exits: BoolArray, root: FloatArray
) -> tuple[sparse.csr_array, sparse.csr_array]:
    """Return F^T D F and F^T D G', scaled."""
    scale = sparse.diags_array(1.0 / root)
    F, inside = sparse.csr_array(steps.f @ scale), np.where(exits, 0.0, steps.weight)
    Z = F.T @ (sparse.diags_array(steps.weight) @ F)
    return sparse.csr_array(Z), sparse.csr_array(
        F.T @ (sparse.diags_array(inside) @ steps.g @ scale)
    )


class _Gram:
    """Z (d, d) with ones in its diagonal, in factors of Z + εI."""

    def __init__(self, Z: sparse.csc_array, known: BoolArray) -> None:
        self._known = known
        self._solve = _factored(Z, _RIDGE_OF_Z, ~known, 0.0).solve

    @cached_property
    def null(self) -> FloatArray:
        """Random vectors (d, q) of the null space, 0 of features that are not known."""
        x = np.random.default_rng(0).standard_normal((len(self._known), _N_PROBES))
        x[~self._known] = 0.0
        for _ in range(2):
            x = _RIDGE_OF_Z * self._solve(x)
        return np.asarray(x)

    def samples(self, q: FloatArray) -> FloatArray:
        """Return 1 / (q^T Z† q) of columns (d, m) in the range of Z."""
        x = self._solve(q)
        leverage = np.einsum("dm,dm->m", q, x) + _RIDGE_OF_Z * np.einsum("dm,dm->m", x, x)
        return np.asarray(1.0 / np.maximum(leverage, 1e-300))


def _factored(A: sparse.csc_array, ridge: float, alone: BoolArray, pivot: float) -> Any:
    """Return factors of A with a ridge on its diagonal, 1 in place of what is alone."""
    from scipy.sparse.linalg import splu  # takes long to import

    diagonal = np.zeros(A.shape[0])
    diagonal[: len(alone)] = np.where(alone & (A.diagonal()[: len(alone)] == 0.0), 1.0, ridge)
    shifted = sparse.csc_array(A + sparse.diags_array(diagonal))
    mode = {"SymmetricMode": True}
    try:
        return splu(shifted, "MMD_AT_PLUS_A", diag_pivot_thresh=pivot, options=mode)
    except (MemoryError, RuntimeError) as error:
        raise EvaluationError(
            f"the factors of {A.shape[0]} sparse features that samples share are not found "
            f"({type(error).__name__}: {str(error) or 'out of memory'}; {A.nnz} pairs of them come "
            "together): use fewer or coarser features, or fewer trials"
        ) from error


class _Solver:
    """Solutions of M z = b by GMRES, and where they ask for it by factors of M + εI.

    Parameters
    ----------
    M : csc_array, shape (d, d)
    whole : _Solver, optional
        Of all trials, whose factors are near enough.
    eager : bool
        Whether to begin with factors.
    """

    def __init__(self, M: sparse.csc_array, whole: _Solver | None, eager: bool) -> None:
        self.M, self._Mt, self._whole = sparse.csr_array(M), sparse.csr_array(M.T), whole
        self._pivot = 0.0
        self._factors: Any = None if whole is None else whole._factors
        self._ridge = np.where(M.diagonal() == 0.0, 0.0, 1.0) * _RIDGE
        self._tolerance, self._unsolved = _TOLERANCE, _UNSOLVED
        if whole is not None:
            self._tolerance, self._unsolved = _TOLERANCE_OF_CHANGE, _UNSOLVED_CHANGE
        if eager:
            self._factor()

    def _factor(self) -> None:
        none = np.zeros(self.M.shape[0] - 1, dtype=bool)
        self._factors = _factored(sparse.csc_array(self.M), _RIDGE, none, self._pivot)

    def solve(self, right: FloatArray, near: FloatArray | None, transposed: bool) -> FloatArray:
        """Return z (d,), beginning with a solution that is near.

        Raises
        ------
        EvaluationError
            If there is none.
        """
        A = self._Mt if transposed else self.M
        start = np.zeros(len(right)) if near is None else near
        residual = right - A @ start
        size = float(np.linalg.norm(residual))
        if size <= _TOLERANCE * np.linalg.norm(right):
            return start
        for attempt in range(3):
            found, left = self._iterated(A, residual, transposed)
            if left <= self._unsolved * size and (self._factors is not None or left <= 1e-9 * size):
                return start + found
            if attempt == 0 and self._factors is not None and self._whole is None:
                self._pivot = 0.1
            if attempt < 2:
                self._factor()
        raise EvaluationError(
            f"the equations of {len(right)} sparse features are not solved: what is left is "
            f"{left / size:.1e} of them. Use fewer or coarser features, or collect more trials"
        )

    def _iterated(
        self, A: sparse.csr_array, right: FloatArray, transposed: bool
    ) -> tuple[FloatArray, float]:
        """Return z and the size of what it leaves of A z = b."""
        from scipy.sparse.linalg import LinearOperator, gmres

        factors, trans = self._factors, "T" if transposed else "N"
        easier = None
        if factors is not None:
            easier = LinearOperator(A.shape, lambda x: factors.solve(np.ravel(x), trans))
        found, left = np.zeros(len(right)), right
        size = wanted = float(np.linalg.norm(right))
        for _ in range(_MOST_STEPS // _CYCLE):
            atol = 0.5 * self._tolerance * wanted
            more, _ = gmres(A, left, rtol=0.0, atol=atol, restart=_CYCLE, maxiter=1, M=easier)
            residual = right - A @ (found + more)
            before, now = size, float(np.linalg.norm(residual))
            if now < before:
                found, left, size = found + more, residual, now
            if size <= self._tolerance * wanted or not now < 0.1 * before:
                break
        return found, size

    def null(self, n: int) -> FloatArray:
        """Return random vectors (d, n) of the null space of M, and what is next to it."""
        if self._factors is None:
            return np.zeros((self.M.shape[0], 0))
        x = np.random.default_rng(1).standard_normal((self.M.shape[0], n))
        for _ in range(3):
            x = self._factors.solve(self._ridge[:, None] * x)
            x /= np.maximum(1.0, np.abs(x).max(axis=0))
        return np.asarray(x)


def _leading(window: Window, to_main: bool) -> BoolArray:
    """Return the features (d,) that lead out of the window, or to its main class."""
    from scipy.sparse.csgraph import breadth_first_order, connected_components

    steps, d = window.steps, len(window.known)
    A = window.links
    goal = np.zeros(d, dtype=bool)
    if to_main:
        m, label = connected_components(A, connection="strong")
        row, column = A.nonzero()
        is_left = np.zeros(m, dtype=bool)
        is_left[label[row][label[row] != label[column]]] = True
        number = np.bincount(label, abs(steps.f).T @ steps.weight, m)
        ends = np.where(is_left, 0.0, number)
        # The last steps of a few trials may be all that was seen of a class.
        main = ends.argmax() if ends.max() >= _SMALL_CLASS * number.max() else number.argmax()
        goal = label == main
    else:
        goal[steps.f[window.exits | (np.diff(steps.g.indptr) == 0)].indices] = True
    edges = sparse.csr_array(goal[None].astype(np.float64))
    graph: Any = sparse.block_array([[A.T, None], [edges, sparse.csr_array((1, 1))]], format="csr")
    found = np.zeros(d + 1, dtype=bool)
    found[breadth_first_order(graph, d, directed=True, return_predecessors=False)] = True
    return found[:d]


def _window(
    steps: Steps,
    exits: BoolArray,
    lost: BoolArray,
    to_main: bool,
    border: bool,
    span: tuple[int, int],
    whole: Window | None = None,
) -> Window:
    """Leave out what is lost and what tells nothing, and return the window of the other samples."""
    number, more = float(steps.weight.sum()), whole
    has, leads_to = abs(steps.f), abs(steps.g)
    before, kept, leading = np.ones(len(lost), dtype=bool), ~lost, np.ones(has.shape[1], dtype=bool)
    while True:
        while True:
            known = leading & (has.T @ kept > 0.0)
            unknown = np.where(known, 0.0, 1.0)
            left = kept & ((leads_to @ unknown == 0.0) | exits) & (has @ unknown == 0.0)
            if (left == kept).all():
                break
            kept = left
        left_out = LeftOut(*span, round(number - steps.weight[kept].sum()), round(number))
        if not kept.any():
            raise EvaluationError(str(left_out))
        away = before & ~kept
        fewer = None if more is None else (steps.at(away), exits[away])
        inside = steps if kept.all() else steps.at(kept)
        window = Window(inside, exits[kept], known, border, left_out, more, fewer, whole)
        leading = _leading(window, to_main)
        if leading[known].all():
            if window.one_hot:
                return window
            lost = _are_open(window.steps.g, window.gram.null, window.root) & ~window.exits
            if border and not lost.any():
                lost = window.are_stuck()
            if not lost.any():
                return window
            leading = np.ones_like(leading)
        else:
            lost = np.zeros(len(window.exits), dtype=bool)
        more, before = window, kept
        kept = kept.copy()
        kept[kept] = ~lost


def _are_open(x: sparse.csr_array, columns: FloatArray, root: FloatArray) -> BoolArray:
    """Tell which features (n, d) are open by columns (d, q) for features divided by their root."""
    x = sparse.csr_array(x @ sparse.diags_array(1.0 / root))
    size = np.sqrt(np.asarray(x.power(2).sum(axis=1)))[:, None] + abs(x) @ np.abs(columns)
    return np.asarray((np.abs(x @ columns) > _OPEN * size).any(axis=1))


@dataclass(frozen=True, eq=False)
class SparseSystem:
    """A linked system of sparse features.

    Attributes
    ----------
    anchors : list of int
    gain : float
    weights : ndarray, shape (K, d + 1)
        The offset last.
    rank, n_samples : ndarray of int, shape (K,)
        Features that are determined, and samples.
    windows : list of Window
    """

    anchors: list[int]
    gain: float
    weights: FloatArray
    rank: IntArray
    n_samples: IntArray
    windows: list[Window]
    opened: list[FloatArray]

    @property
    def solved(self) -> list[Solved]:
        """The windows as those of dense features, without open directions."""
        of_each = zip(self.weights, self.rank.tolist(), self.n_samples.tolist(), strict=True)
        return [Solved(weights[:, None], rank, np.nan, n) for weights, rank, n in of_each]

    def values(self, features: sparse.csr_array, k: int) -> FloatArray:
        """Return the values (m,) of features (m, d) in a neighborhood."""
        return np.asarray(features @ self.weights[k, :-1] + self.weights[k, -1])

    def determined(self, features: sparse.csr_array, k: int) -> BoolArray:
        """Tell which values (m,) the samples determine."""
        return ~_are_open(
            _resized(features, len(self.windows[k].known)), self.opened[k], self.windows[k].root
        )

    def occupancy(self, features: sparse.csr_array, k: int) -> FloatArray:
        """Return the occupancy (m,) of features (m, d): 0 where they are not determined.

        The visiting frequency of one feature a sample; else the empirical Christoffel function.
        """
        window, x = self.windows[k], _resized(features, len(self.windows[k].known))
        n, shares = window.left_out.of, np.zeros(x.shape[0])
        if window.one_hot:
            visits = np.bincount(window.steps.f.indices, window.steps.weight, x.shape[1])
            has = sparse.csr_array((np.ones(x.nnz), x.indices, x.indptr), shape=x.shape)
            return np.asarray(has @ np.where(window.known, visits, 0.0) / n)
        inside = np.flatnonzero(self.determined(features, k))
        scale, size = sparse.diags_array(1.0 / window.root), max(1, _CHUNK // x.shape[1])
        for first in range(0, len(inside), size):
            rows = inside[first : first + size]
            number = window.gram.samples((x[rows] @ scale).toarray().T)
            shares[rows] = np.where(number >= _FEWEST, number / n, 0.0)
        return shares

    @property
    def most_left_out(self) -> LeftOut:
        """Of the window of which the largest part tells nothing."""
        return max((window.left_out for window in self.windows), key=lambda each: each.share)


def sparse_gain(
    rows: SparseRows,
    without: int | None = None,
    whole: Gain | None = None,
    windows: dict[str, Window] | None = None,
) -> Gain:
    """Return the gain as an unknown of the tail, or of all timesteps, or the tail's mean reward.

    Parameters
    ----------
    rows : SparseRows
    without : int, optional
        The group of trials to leave out.
    whole : Gain, optional
        That of all trials, whose choice of rows is kept.
    windows : dict, optional
        Windows by their rows, kept for gains without a group.
    """
    windows = {} if windows is None else windows
    T = rows.t_max
    runs: tuple[tuple[GainRows, int, int], ...]
    runs = ("tail", rows.half, max(T, 1)), ("all", 0, T)
    for name, start, stop in runs:
        if rows.ends or stop <= start or (whole is not None and whole.rows != name):
            continue
        steps = rows.between(start, stop)
        steps = steps if rows.has_constant else steps.with_one()
        try:
            window = _last(steps, (start, stop), without, windows.get(name) if whole else None)
            value, number = window.gain()
        except EvaluationError:
            if whole:
                raise
            continue
        if not whole:
            windows[name] = window
        share = number / window.left_out.of
        if whole or share >= LEAST_SHARE:
            return Gain(value, name, share)
    steps = _left(rows.between(rows.half, T + 1), without)
    value = float(steps.weight @ steps.reward / (steps.weight @ steps.duration))
    return Gain(value, "mean", 0.0)


def _left(steps: Steps, without: int | None) -> Steps:
    return steps if without is None else steps.at(steps.group != without)


def _last(steps: Steps, span: tuple[int, int], without: int | None, whole: Window | None) -> Window:
    """Return a window that leads into itself, with a border; without a group of that of all."""
    steps = steps if whole is None else whole.steps
    lost = steps.group == (-1 if without is None else without)
    return _window(steps, np.zeros(len(lost), dtype=bool), lost, True, True, span, whole)


def solve_sparse(
    rows: SparseRows, gain: float, whole: SparseSystem | None = None, without: int | None = None
) -> SparseSystem:
    """Solve the linked system backwards in time.

    Parameters
    ----------
    rows : SparseRows
    gain : float
    whole : SparseSystem, optional
        That of all trials, where this one is ``without`` a group.
    without : int, optional

    Raises
    ------
    EvaluationError
        If the samples of a window tell nothing, or its equations are not solved.
    """
    K, d = len(rows.anchors), rows.steps.f.shape[1]
    weights = np.zeros((K, d + 1))
    windows: list[Window] = []
    opened: list[FloatArray] = []
    for k in reversed(range(K)):
        is_last = k == K - 1
        if whole is None:
            steps, span = (
                rows.between(rows.anchors[k], rows.stops[k]),
                (rows.anchors[k], rows.stops[k]),
            )
            exits = (rows.starts_at(steps) == span[1] - 1) & (not is_last)
            if not (is_last or rows.has_constant or rows.ends):
                steps = steps.with_one()
        else:
            same = whole.windows[k]
            steps, exits, span = same.steps, same.exits, same.left_out[:2]
        lost = steps.group == (-1 if without is None else without)
        if not is_last:
            after = _resized(steps.g[exits], len(windows[-1].known))
            lost[exits] |= _are_open(after, opened[-1], windows[-1].root)
        border = is_last and rows.has_constant
        window = _window(
            steps,
            exits,
            lost,
            is_last and not rows.ends,
            border,
            span,
            None if whole is None else whole.windows[k],
        )
        steps, exits = window.steps, window.exits
        paid = steps.reward - gain * steps.duration
        if not is_last:
            paid[exits] += _resized(steps.g[exits], d) @ weights[k + 1, :d] + weights[k + 1, d]
        found = window.weights(paid)
        weights[k, : len(found)] = found
        if is_last:
            weights[k, d] = -_zero(rows, window) @ found
        windows.append(window)
        opened.append(window.opened(None if whole is None else whole.opened[k]))
    windows, opened = windows[::-1], opened[::-1]
    rank = np.array([np.count_nonzero(window.known) for window in windows])
    n_samples = np.array([window.left_out.of for window in windows])
    return SparseSystem(rows.anchors, gain, weights, rank, n_samples, windows, opened)


def without_each(
    rows: SparseRows, whole: SparseSystem, gains: Sequence[float]
) -> list[SparseSystem]:
    """Return the systems without each group of trials, given the gains without it."""
    return [solve_sparse(rows, gain, whole, i) for i, gain in enumerate(gains)]


def _zero(rows: SparseRows, window: Window) -> FloatArray:
    """Return the features (d,) whose value is 0: as the source has it, or the mean of the tail."""
    if rows.zero is not None and not rows.zero[~window.known].any():
        return rows.zero
    late = rows.starts_at(window.steps) >= rows.half
    late = late if late.any() else ~late
    weight = window.steps.weight[late]
    return np.asarray(window.steps.f[late].T @ weight / weight.sum())


def _resized(features: Any, d: int) -> sparse.csr_array:
    """Return features with a 1 for constants, or without it, where d asks for that."""
    x: sparse.csr_array = sparse.csr_array(features)
    if x.shape[1] > d:
        x = sparse.csr_array(x[:, :d])
    elif x.shape[1] < d:
        x = sparse.csr_array(sparse.hstack((x, sparse.csr_array(np.ones((x.shape[0], 1))))))
    return x
