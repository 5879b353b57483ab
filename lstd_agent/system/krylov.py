r"""Linked systems of many sparse features of vectors, solved by iteration.

Elimination fills X in: of 10⁵ tiles its factors do not fit. Those of Z do, and with them the
minimizer of Thm ``epb_minimizer`` is found among

.. math:: w_m = \arg\min_{w \in K_m} \|X w - y\|_{Z^\dagger}, \quad
          K_m = \mathrm{span}\{b, A b, …, A^{m-1} b\}, \; A = Z^\dagger X, \; b = Z^\dagger y,

by the method of minimal residuals (Saad & Schultz 1986, GMRES) in the inner product of Z, in
which :math:`\|Z^\dagger (X w - y)\|_Z` is that seminorm. All of :math:`K_m` is in the range of Z,
so that of all minimizers the one without parts that no sample shows is found.

Values pass back along trials a timestep a product, so that A alone takes as many directions as
trials take steps. The sums λ-returns are made of pass them all the way back at once: with S, 1
where a sample follows another in its trial, :math:`M = Z^\dagger F^T (I - λ S)^{-1} F` nearly
inverts A, and the directions are those of A M. M is never singular.

Where successors are unknowns of the same window, X makes nothing of constants, and Xw = y has a
solution for one gain only. With u the left null vector of X, least squares leave the residual
:math:`r = Z u (u^T y) / (u^T Z u)`, and Xw = y - r is solved. The gain is that for which r is 0.

Standard errors ask for the same without each batch. u and w by all trials are where that begins, so
that what is iterated on is the change alone, and a small part of a change is small beside an error.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from scipy import sparse

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.errors import EvaluationError
from lstd_agent.statistics.closing import those_before
from lstd_agent.statistics.factored import Factored
from lstd_agent.statistics.sparse_trials import RowEquations, SparseTrials, window_key
from lstd_agent.system.approximators import Solution

# Residuals are as small as this beside the right-hand side, in the seminorm, after runs of so many
# directions at most. A run that leaves more is followed by another.
_TOLERANCE = 1e-9
_MOST_DIRECTIONS = 400
_MOST_RUNS = 10

# The same of what leaving out a batch changes: a hundredth of a standard error is enough.
_TOLERANCE_OF_CHANGE = 1e-3

# What is smaller beside a direction is rounding.
_ROUNDING = 1e-11

# Of sums along trials that make the equations easier, the λ.
_DECAY = 0.9

# What leaves more than this is no solution, be it of all trials or of a change.
_UNSOLVED, _UNSOLVED_CHANGE = 1e-5, 0.1

_Product: TypeAlias = Callable[[FloatArray], FloatArray]


def solve_backwards_by_iteration(
    trials: SparseTrials,
    windows: IntArray,
    gain: float,
    zero_features: FloatArray,
) -> Solution:
    """Solve the linked system; see `lstd_agent.system.linked.solve_backwards`.

    Neither conditions nor open directions are told: a rank is the number of features seen.

    Parameters
    ----------
    trials : SparseTrials
    windows : ndarray of int, shape (n, 2)
    gain : float
    zero_features : ndarray, shape (d,)
        See `Statistics.zero`, of the last window.
    """
    n, d = len(windows), trials.n_features
    weights, offsets, rank = np.zeros((n, d)), np.zeros(n), np.zeros(n, dtype=np.int64)
    for k in reversed(range(n)):
        if k == n - 1:
            window = _Window.closed(trials, windows[k], one=False)
            equations = window.equations
            y = equations.y @ [1.0, -gain]
        else:
            equations, end = trials.open_equations(windows[k])
            after = end.successors[:, :d] @ weights[k + 1] + offsets[k + 1]
            y = equations.y @ [1.0, -gain] + end.features.T @ after
            window = _Window(equations)
        solved = window.minimizer(y)
        weights[k], rank[k] = solved[:d], equations.Z.seen.size
        if k == n - 1:
            offsets[k] = -zero_features @ weights[k]
        elif len(solved) > d:
            offsets[k] = solved[d]
    return Solution(
        weights=weights,
        offsets=offsets,
        rank=rank,
        n_samples=np.array([trials.n_samples(window) for window in windows]),
        condition=np.full(n, np.nan),
        open_directions=np.zeros((n, d + 1, 0)),
    )


def gain_by_iteration(trials: SparseTrials, first: int, last: int) -> float:
    """Return the gain for which timesteps first to last - 1 have a solution."""
    window = _Window.closed(trials, np.array([first, last]), one=True)
    rewards, ones = window.left_null() @ window.equations.y
    return float(rewards / ones)


class _Window:
    """Equations of a window, and sums along its trials that solve them nearly.

    Parameters
    ----------
    equations : RowEquations
    known : dict, optional
        Solutions by more trials, by name: then what fewer change is found, less exactly.

    Attributes
    ----------
    solved : dict
        Solutions by name, of all features.
    """

    def __init__(self, equations: RowEquations, known: dict[str, FloatArray] | None = None) -> None:
        from scipy.sparse.linalg import splu  # takes long to import

        self.equations = equations
        self.solved: dict[str, FloatArray] = {}
        self._known = known or {}
        self._tolerance, self._unsolved = _TOLERANCE, _UNSOLVED
        if known:
            self._tolerance, self._unsolved = _TOLERANCE_OF_CHANGE, _UNSOLVED_CHANGE
        self._Z, self._F, self._steps = equations.Z, equations.Z.F, equations.steps
        self._peeled = self._Z.peeled
        decayed = sparse.eye_array(len(equations.trial)) - _DECAY * _followed(equations.trial)
        # Upper triangular, since trials are in order of time: nothing is filled in.
        self._traces: Any = splu(sparse.csc_array(decayed), "NATURAL", diag_pivot_thresh=0.0)

    @classmethod
    def closed(cls, trials: SparseTrials, window: IntArray, *, one: bool) -> _Window:
        """Return a window without an end, whose solutions are kept for parts of the trials."""
        key = window_key(window, one)
        made = cls(trials.closed_equations(window, one=one), trials.solved_of_whole(key))
        trials.solved[key] = made.solved
        return made

    def _X(self, w: FloatArray) -> FloatArray:
        return np.asarray(self._F.T @ (self._steps @ w))

    def _Xt(self, u: FloatArray) -> FloatArray:
        return np.asarray(self._steps.T @ (self._F @ u))

    def _returns(self, w: FloatArray, trans: str = "N") -> FloatArray:
        return self._peeled.solve(self._F.T @ self._traces.solve(self._F @ w, trans))

    def minimizer(self, y: FloatArray) -> FloatArray:
        """Return w (d,), 0 of features that were not seen."""
        right = self._Z.scale @ y[self._Z.seen]
        if self.equations.constant is not None:
            u = self._null()
            Zu = self._Z.Z @ u
            right = right - Zu * ((u @ right) / (u @ Zu))
        start = self._start("weights", np.zeros_like(right))
        right = right - self._X(start)
        found = start + self._solution(self._X, self._returns, right)
        return self._unscaled("weights", self._Z.least(found))

    def left_null(self) -> FloatArray:
        """Return u (d,) with u^T X = 0, where X makes nothing of constants."""
        return self._unscaled("null", self._null())

    def _start(self, name: str, otherwise: FloatArray) -> FloatArray:
        """Return the scaled solution by more trials, as far as these tell of it."""
        if name not in self._known:
            return otherwise
        return np.asarray(self._known[name][self._Z.seen] / self._Z.scale.diagonal())

    def _unscaled(self, name: str, scaled: FloatArray) -> FloatArray:
        w = np.zeros(len(self.equations.y))
        w[self._Z.seen] = self._Z.scale.diagonal() * scaled
        self.solved[name] = w
        return w

    def _null(self) -> FloatArray:
        start = self._start("null", self.equations.scaled_constant)
        right = self._peeled.in_range(self._Xt(start))
        found = start - self._solution(self._Xt, partial(self._returns, trans="T"), right)
        self._unscaled("null", found)
        return found

    def _solution(self, matrix: _Product, nearly: _Product, right: FloatArray) -> FloatArray:
        """Return w with matrix w = right, by runs of minimal residuals."""
        w: FloatArray = np.zeros(len(right))
        residual, size = right, self._Z.size(right)
        left = size
        for _ in range(_MOST_RUNS):
            if left <= self._tolerance * size:
                return w
            enough = 0.3 * self._tolerance * size / left
            more = w + minimal_residual(matrix, self._Z, residual, nearly, enough)
            residual = right - self._peeled.in_range(matrix(more))
            before, left = left, self._Z.size(residual)
            if left > before:  # what is left are rounding errors, which have no solution
                left = before
                break
            w = more
        if left > self._unsolved * size:
            raise EvaluationError(
                f"the equations of {len(right)} sparse features are not solved by iteration: what "
                f"is left is {left / size:.1e} of them. Use fewer or coarser "
                "features, trials that mix (all of which get to the same states), or shorter "
                "neighborhoods (n_anchors)"
            )
        return w


def minimal_residual(
    apply: _Product,
    factored: Factored,
    right: FloatArray,
    nearly: _Product | None = None,
    tolerance: float = 1e-12,
) -> FloatArray:
    """Return w in the Krylov space for which the seminorm of apply(w) - right is least.

    Parameters
    ----------
    apply : callable
        The product with X, into the range of Z.
    factored : Factored
    right : ndarray, shape (d,)
    nearly : callable, optional
        About X^{-1} Z: the space is that of X times it.
    tolerance : float
        Beside the right-hand side: of what is left.
    """
    Z, solve = factored.Z, factored.peeled.solve
    first = solve(right)
    size = np.sqrt(max(float(first @ (Z @ first)), 0.0))
    if size == 0.0:
        return np.zeros(len(right))
    basis: FloatArray = np.empty((min(32, _MOST_DIRECTIONS) + 1, len(right)))
    basis[0] = first / size
    # R of the Hessenberg matrix, by Givens rotations, and what they make of the right-hand side.
    R = np.zeros((_MOST_DIRECTIONS, _MOST_DIRECTIONS))
    rotations: list[tuple[float, float]] = []
    target = [size]
    for m in range(_MOST_DIRECTIONS):
        if m + 1 == len(basis):
            more = min(len(basis), _MOST_DIRECTIONS + 1 - len(basis))
            basis = np.concatenate((basis, np.empty((more, len(right)))))
        direction = solve(apply(basis[m] if nearly is None else nearly(basis[m])))
        column = np.zeros(m + 1)
        for _ in range(2):  # once more, for what rounding leaves
            along = basis[: m + 1] @ (Z @ direction)
            direction = direction - along @ basis[: m + 1]
            column += along
        norm = np.sqrt(max(float(direction @ (Z @ direction)), 0.0))
        for i, (c, s) in enumerate(rotations):
            column[i : i + 2] = c * column[i] + s * column[i + 1], c * column[i + 1] - s * column[i]
        length = float(np.hypot(column[m], norm))
        if length <= _ROUNDING:
            break
        rotations.append((column[m] / length, norm / length))
        c, s = rotations[-1]
        column[m] = length
        R[: m + 1, m] = column
        target[m:] = [c * target[m], -s * target[m]]
        if abs(target[-1]) <= tolerance * size or norm <= _ROUNDING * length:
            break
        basis[m + 1] = direction / norm
    n = len(rotations)
    coordinates = np.linalg.solve(R[:n, :n], target[:n]) if n else np.zeros(0)
    found = np.asarray(coordinates @ basis[:n])
    return found if nearly is None else nearly(found)


def _followed(trial: IntArray) -> sparse.csr_array:
    """Return the 0-1 matrix (n, n) of samples and those that follow them in their trials."""
    n, before = len(trial), those_before(trial)
    after = np.flatnonzero(before >= 0)
    return sparse.csr_array((np.ones(len(after)), (before[after], after)), shape=(n, n))
