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

**The gain** is one more unknown of the least squares of the tail's rows. The tail is
the second half of all timesteps. Its rows
:math:`\tilde f \mid f - f' \mid \tau \mid r`, with :math:`\tilde f = (f, 1)`, solve

.. math:: r \approx (f - f')^T w + g \tau,

projected on :math:`\tilde f`. If features can represent values, no period or transient biases g.

:math:`g = \sum_i \alpha_i r_i` is as noisy as a mean of :math:`1 / \sum \alpha_i^2` samples, the
*effective number of samples* (with durations in units of their mean). If it is a small share of the
tail's samples, a few rows decide the gain. Then the rows of all timesteps are used. If these do not
determine the gain either, the gain is the tail's mean reward, with a warning.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lstd_agent.arrays import FloatArray, svd
from lstd_agent.rows.factors import Factor, Reduced, Segments, total

# B is a difference from A: smaller numbers, relative to the size of A, are rounding. Slow changes
# are small in B without being rounding, so its cutoff, relative to its largest, is not A's.
DEFAULT_RCOND, _ROUNDING, _DIFFERENCES = 1e-10, 1e-14, 1e-10

# The smallest effective share of the samples, and the largest part in an open direction, of a gain.
LEAST_SHARE, _OPEN = 0.2, 1e-6


class Minimizer(NamedTuple):
    """Minimizing weights (d, q), and how well they are determined."""

    weights: FloatArray
    rank: int  # numerical rank of Lᵀ B
    condition: float  # ratio of the largest to the smallest singular value kept, or 1
    null: FloatArray  # (d, d - rank) an orthonormal basis of the open directions


def minimize(
    equations: Reduced, rcond: float = DEFAULT_RCOND, metric: Any = None, with_open: bool = True
) -> Minimizer:
    """Return the minimizer of the projected Bellman error.

    It has the smallest w or, given a metric (k, r), the smallest ``metric @ w[:r]``. ``rcond`` is
    the cutoff of A; B has a cutoff of at most 1e-10. Open directions take longer.
    """
    U, singular, Vt = svd(equations.B, full_matrices=with_open or metric is not None)
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
    return Minimizer(weights, rank, condition, null)


class Solved(NamedTuple):
    """A solved window: weights of coordinates and the offset of its value and q open directions.

    Many sparse features have a ``window`` of `lstd_agent.system.sparse` instead of these.
    """

    columns: FloatArray  # (p, 1 + q)
    rank: int
    condition: float
    n_samples: int
    window: Any = None


class Gain(NamedTuple):
    """A gain, reward per unit of time, and how it was found."""

    value: float
    rows: str  # "given", "tail", "all" or "mean"
    share: float = 1.0  # effective share of the samples of these rows
    settled: FloatArray | None = None  # mean features (p,) in the long run, by rows of the gain


def estimate_gain(source: Any, segments: Segments, rows: str | None = None) -> Gain:
    """Return the gain by all rows, or by the first that determine it: those of the tail, all, mean.

    An exact source, without noise, takes the tail.
    """
    T, share = source.t_max, 0.0
    if rows in ("tail", None):
        tail = segments.between((T + 1) // 2, T) or segments.between(0, T + 1)
        found = _solved(source, total(tail), "tail")
        share = found.share
        if share >= LEAST_SHARE or source.n_trials == 0:
            return found
    if rows != "mean":
        found = _solved(source, total(segments.between(0, T + 1)), "all")
        if rows == "all" or found.share >= LEAST_SHARE:
            return found
    return Gain(mean_reward(segments), "mean", share)


def mean_reward(segments: Segments) -> float:
    """Return the mean reward of the tail per unit of time."""
    tail = segments.tail
    return float(tail.sums[-2] / tail.sums[-1]) if tail.n else 0.0


def _solved(source: Any, rows: Factor, name: str) -> Gain:
    """Return the gain by some rows."""
    equations = rows.reduced(rows.p, source.rcond)
    B = equations.B.copy()
    # f - f' has no constant: its column holds the gain of a step of mean duration.
    duration = float(rows.sums[-1] / rows.n) if rows.n and rows.sums[-1] else 1.0
    B[:, -1] = equations.c[:, 1] / duration
    U, singular, Vt = svd(B)
    keep = singular > min(source.rcond, _DIFFERENCES) * singular.max(initial=0.0)
    last = Vt[keep, -1]
    alpha = U[:, keep] @ (last / singular[keep])
    if not alpha.any() or 1.0 - last @ last > _OPEN**2:
        return Gain(0.0, name, 0.0)  # any gain solves the equations
    # With features in place of rewards, the gain is their mean in the long run.
    settled = alpha @ equations.A
    if source.constant:
        settled = settled / settled[-1]  # of a step, long or short
    share = float(1.0 / (alpha @ alpha) / rows.n)
    return Gain(float(alpha @ equations.c[:, 0]) / duration, name, share, settled)
