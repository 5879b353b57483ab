r"""The seminorm LSTD minimizer (Thm ``epb_minimizer``).

For a state distribution p that may be zero somewhere, and features f(s), let

.. math::

    X = E[f(S) (f(S) - f(S'))^T], \quad Z = E[f(S) f(S)^T], \quad y = E[(r(S) - g) f(S)],

with S drawn from p. The mean squared projected Bellman error is the seminorm
:math:`e_{PB}(w) = \|X w - y\|^2_{Z^\dagger}` (eq. ``epb``), and one minimizer is

.. math:: w = (Z^{\dagger/2} X)^\dagger \, Z^{\dagger/2} y .

Z and X may be singular: both pseudoinverses cut off at *relative* tolerances. With square roots
Z = AᵀA, X = AᵀB and y = Aᵀc, and an orthonormal basis L of the range of A (`reduced` in
`lstd_agent.rows.factors`), :math:`Z^{\dagger/2} A^T = L^T` up to a rotation, and

.. math:: w = (L^T B)^\dagger L^T c, \quad e_{PB}(w) = \|L^T (B w - c)\|^2 .

With B = A and :math:`c = \sqrt{p}`, F w is the projection :math:`F Z^\dagger F^T D_p` (Lemma
``projector``).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lstd_agent.arrays import FloatArray, svd
from lstd_agent.rows.factors import Reduced

DEFAULT_RCOND = 1e-10

# B is a difference from A: smaller numbers, relative to the size of A, are rounding. Slow changes
# are small in B without being rounding, so its cutoff, relative to its largest, is not A's.
_ROUNDING, _DIFFERENCES = 1e-14, 1e-10


class Minimizer(NamedTuple):
    """Minimizing weights (d, q), and how well they are determined."""

    weights: FloatArray
    rank: int  # numerical rank of Lᵀ B
    condition: float  # ratio of the largest to the smallest singular value kept, or 1
    null: FloatArray  # (d, d - rank) an orthonormal basis of the open directions
    spread: FloatArray  # (d,) the norm of each weight as a function of the numbers


def minimize(
    equations: Reduced, rcond: float = DEFAULT_RCOND, metric: FloatArray | None = None
) -> Minimizer:
    """Return the minimizer of the projected Bellman error.

    It has the smallest w or, given a metric (k, r), the smallest ``metric @ w[:r]``. ``rcond`` is
    the cutoff of A; B has a cutoff of at most 1e-10.
    """
    U, singular, Vt = svd(equations.B, full_matrices=True)
    cutoff = min(rcond, _DIFFERENCES) * float(singular.max(initial=0.0))
    rank = int((singular > max(cutoff, _ROUNDING * equations.largest)).sum())
    kept = Vt[:rank].T / singular[:rank]
    weights = kept @ (U[:, :rank].T @ equations.c)
    null = Vt[rank:].T
    if metric is not None and null.size:
        r = metric.shape[1]
        turned, own = (np.vstack((metric @ each[:r], each[r:])) for each in (null, weights))
        weights = weights - null @ np.linalg.lstsq(turned, own, rcond=None)[0]
    condition = float(singular[0] / singular[rank - 1]) if rank else 1.0
    return Minimizer(weights, rank, condition, null, np.linalg.norm(kept, axis=1))
