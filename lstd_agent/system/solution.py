"""What solving the windows of a system gives, and what the samples leave open of it.

Directions U of the weights that change no equation are carried backwards in time as further columns
beside the value: those of a window itself, and what the open directions of the next window do to
the values at the boundary. The value of x is determined where (f(x), 1) U is 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lstd_agent.arrays import FloatArray
from lstd_agent.decompositions import svd
from lstd_agent.rows.layers import Coordinates
from lstd_agent.system.minimizer import Minimizer

# Open directions that are smaller than this, beside features of size 1, change nothing.
OPEN = 1e-8


@dataclass(frozen=True, eq=False)
class Solved:
    """A window of a linked system, solved.

    Attributes
    ----------
    columns : ndarray, shape (p, 1 + q)
        Weights of coordinates and the offset: of the value, then of q open directions.
    rank : int
    condition : float
    n_samples : int
    """

    columns: FloatArray
    rank: int
    condition: float
    n_samples: int


def opened(found: Minimizer, coordinates: Coordinates) -> FloatArray:
    """Return directions (d, q) that equations leave open, orthonormal for features of size 1."""
    d, q = found.null.shape
    if not q:
        return found.null
    p = coordinates.turn.shape[-1] + 1
    scaled = coordinates.scaled(np.vstack((found.null, np.zeros((p - d, q)))))
    R: FloatArray = np.linalg.qr(scaled)[1]
    return np.asarray(np.linalg.solve(R.T, found.null.T).T)


def compressed(
    columns: FloatArray, coordinates: Coordinates, n_values: int, numbers: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return fewer columns, and the matrix (before, after) that makes them.

    The first ``n_values`` stay. Of the open ones after them those remain that matter to the
    window's own weights and, where given, to numbers (m, before) in targets. None is longer than 1.
    """
    both = coordinates.scaled(columns[:, n_values:])
    if numbers is not None:
        both = np.vstack((both, numbers[:, n_values:]))
    turn = np.eye(columns.shape[1])[:, :n_values]
    if both.shape[1]:
        _, size, Vt = svd(both)
        keep = size > OPEN * max(1.0, size[0])
        turned = Vt[keep].T / np.maximum(size[keep], 1.0)
        zeros = np.zeros((n_values, turned.shape[1]))
        turn = np.hstack((turn, np.vstack((zeros, turned))))
    return columns @ turn, turn
