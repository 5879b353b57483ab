r"""Semi-gradient sweeps: steps of whole windows, with their samples at hand, until none is left.

In features of which a window's second moment is I, a step is

.. math:: w_k \leftarrow w_k + \alpha (y_k - X_k w_k),

with the equations of `lstd_agent.system.linked`, so that it ends in their solution. It does if all
eigenvalues of X have real parts of at least 0, and then, for all of them, with
:math:`\alpha = \min_j \mathrm{Re}\, \lambda_j / |\lambda_j|^2`. What no weights can change of y is
left out. Weights of what was never seen stay as they were.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.decompositions import svd
from lstd_agent.errors import EvaluationError
from lstd_agent.statistics.equations import Equations, Factors
from lstd_agent.statistics.interface import Statistics

# Eigenvalues and singular values of whitened equations below this are rounding.
_NULL = 1e-9
# Sweeps end with steps of this share of y, and are given up after some seconds.
_TOLERANCE, _MOST_SWEEPS = 1e-10, 200_000


def sweep_backwards(
    statistics: Statistics, windows: IntArray, gain: float, rcond: float, initial: FloatArray | None
) -> tuple[FloatArray, int]:
    """Return weights of (f, 1), shape (n, d + 1), and the number of sweeps.

    Parameters
    ----------
    statistics : Statistics
    windows : ndarray of int, shape (n, 2)
    gain, rcond : float
    initial : ndarray, shape (n, d + 1), optional
        Weights to begin with.

    Raises
    ------
    EvaluationError
        If a window's steps lead away from its solution, or hardly towards it.
    """
    n, d = len(windows), len(statistics.zero(windows[-1])[1])
    solved = np.zeros((n, d + 1)) if initial is None else initial.copy()
    settled = np.append(_settled(statistics, windows[-1]), 1.0)
    total = 0
    for k in reversed(range(n)):
        equations = _equations(statistics, windows, k, rcond)
        if k == n - 1:
            numbers, size = np.array([1.0, -gain]), d
        else:
            numbers, size = np.concatenate(([1.0, -gain], solved[k + 1])), d + 1
        if initial is None and k < n - 1:
            solved[k] = solved[k + 1]
        X, y, B, inverse = _whitened(equations, rcond)
        begin = inverse @ solved[k, :size]
        w, n_sweeps = _sweep(X, y @ numbers, begin, windows[k])
        solved[k, :size] += B @ (w - begin)
        total += n_sweeps
        if k == n - 1:
            solved[k, -1] = 0.0
            solved[k, -1] = -settled @ solved[k]
    return solved, total


def check_direction(statistics: Statistics, windows: IntArray, rcond: float) -> None:
    """Raise unless steps lead towards the solution in every window.

    Parameters
    ----------
    statistics : Statistics
    windows : ndarray of int, shape (n, 2)
    rcond : float

    Raises
    ------
    EvaluationError
        If an eigenvalue of a window's X has a real part below 0.
    """
    for k, window in enumerate(windows):
        X, *_ = _whitened(_equations(statistics, windows, k, rcond), rcond)
        _eigenvalues(X, window)


def _equations(statistics: Statistics, windows: IntArray, k: int, rcond: float) -> Equations:
    """Return those of a window, the last of which has no next one."""
    if k == len(windows) - 1:
        return statistics.equations(windows[k:], None, rcond)
    return statistics.linked_equations(windows[k : k + 1], rcond)


def _settled(statistics: Statistics, window: IntArray) -> FloatArray:
    """Return the mean features of the settled end, within the last window."""
    start = max(int(window[0]), (statistics.t_max + 1) // 2)
    features = [statistics.mean_features(t) for t in range(start, statistics.t_max + 1)]
    return np.asarray(np.mean(features, axis=0))


def _whitened(
    equations: Equations, rcond: float
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return X (r, r) and y (r, m) in features with Z = I, and the weights' way back and there."""
    if isinstance(equations, Factors):
        basis = equations.basis
        Q, size, Vt = svd(equations.A[0])
        keep = size > rcond * size[0]
        Q, size, V = Q[:, keep], size[keep], Vt[keep].T
        B = (basis.V / basis.singular) @ (V / size)
        inverse = (size[:, None] * V.T) @ (basis.singular[:, None] * basis.V.T)
        return Q.T @ equations.B[0] @ (V / size), Q.T @ equations.c[0], B, inverse
    scale = np.ones(len(equations.Z[0])) if equations.scale is None else equations.scale
    values, V = np.linalg.eigh(equations.Z[0] / scale / scale[:, None])
    keep = values > rcond * values[-1]
    size, V = np.sqrt(values[keep]), V[:, keep]
    B = V / size / scale[:, None]
    return B.T @ equations.X[0] @ B, B.T @ equations.y[0], B, (V * size).T * scale


def _named(window: IntArray) -> str:
    return f"the neighborhood of timesteps {window[0]} to {window[1] - 1}"


def _eigenvalues(X: FloatArray, window: IntArray) -> NDArray[np.inexact]:
    """Return those of X, none of which may have a real part below 0."""
    eigenvalues = np.linalg.eigvals(X)
    lowest = float(eigenvalues.real.min(initial=0.0))
    if lowest < -_NULL:
        raise EvaluationError(
            f"semi-gradient steps diverge in {_named(window)}: an eigenvalue of X has real part "
            f"{lowest:.3g}. Its visits are too far from stationary: let it start later, run "
            "longer trials, or use SeminormLSTDAgent, which solves the same equations at once"
        )
    return eigenvalues


def _sweep(X: FloatArray, y: FloatArray, w: FloatArray, window: IntArray) -> tuple[FloatArray, int]:
    """Return the weights that steps end in, and their number."""
    eigenvalues = _eigenvalues(X, window)
    moving = eigenvalues[np.abs(eigenvalues) > _NULL]
    alpha = float(np.min(moving.real / np.abs(moving) ** 2, initial=1.0))
    U, singular, _ = svd(X, full_matrices=True)
    reached = U[:, singular > _NULL * max(1.0, singular.max(initial=0.0))]
    y = reached @ (reached.T @ y)
    enough = _TOLERANCE * max(float(np.linalg.norm(y)), 1e-300)
    for n_sweeps in range(_MOST_SWEEPS):
        step = y - X @ w
        if np.linalg.norm(step) <= enough:
            return w, n_sweeps
        w = w + alpha * step
    raise EvaluationError(
        f"semi-gradient steps have not converged in {_named(window)} after {_MOST_SWEEPS:,} "
        f"sweeps: the smallest eigenvalue of X is {np.abs(moving).min():.3g}. Use fewer features "
        "or more trials, or SeminormLSTDAgent, which solves the same equations at once"
    )
