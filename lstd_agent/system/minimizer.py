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

**The gain** is one more unknown of the least squares of the tail, the second half of all timesteps.
Its rows :math:`\tilde f \mid f - f' \mid \tau \mid r`, with :math:`\tilde f = (f, 1)`, solve

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
    """Minimizing weights (..., d, q), and how well they are determined."""

    weights: FloatArray
    rank: Any  # (...) numerical rank of Lᵀ B
    condition: Any  # (...) ratio of the largest to the smallest singular value kept, or 1
    null: FloatArray  # (..., d, d - rank) an orthonormal basis of the open directions


def minimize(
    equations: Reduced, rcond: float = DEFAULT_RCOND, metric: Any = None, with_open: bool = True
) -> Minimizer:
    """Return the minimizer of the projected Bellman error.

    It has the smallest w or, given a metric (k, r), the smallest ``metric @ w[:r]``. ``rcond`` is
    the cutoff of A; B has a cutoff of at most 1e-10. Open directions take longer.
    """
    U, singular, Vt = svd(equations.B, full_matrices=with_open or metric is not None)
    largest = singular.max(axis=-1, initial=0.0)
    least = np.maximum(min(rcond, _DIFFERENCES) * largest, _ROUNDING * equations.largest)
    keep = singular > least[..., None]
    rank, k, V = keep.sum(axis=-1), keep.shape[-1], Vt.swapaxes(-1, -2)
    inverse = np.where(keep, 1.0 / np.where(keep, singular, 1.0), 0.0)[..., None]
    weights = V[..., :k] @ (inverse * (U[..., :k].swapaxes(-1, -2) @ equations.c))
    first = int(rank.min())
    is_open = np.arange(first, V.shape[-1]) >= rank[..., None, None]
    null = V[..., first:] * is_open
    if metric is not None and null.size:
        r, last = metric.shape[1], null[..., ::-1]  # columns of zeros come last
        turned, own = (
            np.concatenate((metric @ each[..., :r, :], each[..., r:, :]), axis=-2)
            for each in (last, weights)
        )
        Q, R = np.linalg.qr(turned)
        R = R + ~is_open[..., ::-1] * np.eye(R.shape[-1])
        weights = weights - last @ np.linalg.solve(R, Q.swapaxes(-1, -2) @ own)
    smallest = np.where(keep, singular, np.inf).min(axis=-1, initial=np.inf)
    return Minimizer(weights, rank, np.where(rank > 0, largest / smallest, 1.0), null)


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


def estimate_gains(source: Any, segments: Segments, rows: str | None = None) -> list[Gain]:
    """Return the gain of each group by all rows or, by default, the first that determine it.

    These are the tail, all, and the tail's mean. An exact source, without noise, takes the tail.
    """
    T = source.t_max
    if rows == "mean":
        return [Gain(mean, "mean", 0.0) for mean in mean_reward(segments).tolist()]
    tail = segments.between((T + 1) // 2, T) if rows != "all" else []
    found = _solved(source, total(tail or segments.between(0, T + 1)), rows or "tail")
    for i, (_, _, share, _) in enumerate(found):
        if rows != "all" and share < LEAST_SHARE and source.n_trials > 0:
            one = segments[i : i + 1]
            [found[i]] = estimate_gains(source, one, "all")
            if found[i].share < LEAST_SHARE:
                found[i] = Gain(float(mean_reward(one)[0]), "mean", share)
    return found


def mean_reward(segments: Segments) -> Any:
    """Return the mean reward (...) of the tail per unit of time."""
    tail = segments.mean_of_tail
    return tail[..., -2] / np.where(tail[..., -1] == 0.0, 1.0, tail[..., -1])


def _solved(source: Any, rows: Factor, name: str) -> list[Gain]:
    """Return the gain of each group by some rows."""
    equations, time = rows.reduced(rows.p, source.rcond), rows.sums[..., -1]
    B = equations.B.copy()
    # f - f' has no constant: its column holds the gain of a step of mean duration.
    duration = np.where(time > 0.0, time / np.maximum(rows.n, 1e-300), 1.0)
    B[..., -1] = equations.c[..., 1] / duration[:, None]
    found = minimize(equations._replace(B=B, c=np.eye(B.shape[-2])), source.rcond)
    alpha, loose = found.weights[:, -1], found.null[:, -1]
    square, gains = (alpha**2).sum(axis=-1), list[Gain]()
    for i, unknown in enumerate((loose**2).sum(axis=-1) > _OPEN**2):
        if unknown or square[i] == 0.0:  # any gain solves the equations
            gains.append(Gain(0.0, name, 0.0))
            continue
        # With features in place of rewards, the gain is their mean in the long run.
        settled = alpha[i] @ equations.A[i]
        if source.constant:
            settled = settled / settled[-1]  # of a step, long or short
        value = float(alpha[i] @ equations.c[i, :, 0] / duration[i])
        gains.append(Gain(value, name, float(1.0 / square[i] / rows.n[i]), settled))
    return gains
