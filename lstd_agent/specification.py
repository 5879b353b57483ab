r"""Ramsey's specification test: whether values v are a linear function of the features.

If the features f suffice, the error δ of a single step has mean 0 given the state, for the right
values, so that v² δ has mean 0, too. The weight of v² as one more feature is

.. math:: \beta = \sum_i u_i / \partial, \qquad u_i = \sum_t (v_t^2 - f_t B) \, \delta_t ,

where B makes the sum over trials i independent of the weights of f, so that it does not matter how
these were fitted, and ∂ is its derivative with respect to the weight of v². If the mean of u is not
0 up to noise, β (v² - f C) is the change of values, with a refit of f.

Source: Ramsey (1969), Tests for specification errors in classical linear least-squares regression.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lstd_agent.fit_checks import conflict
from lstd_agent.rows.factors import total

# Share of v² that the features must leave out.
_NEW = 1e-3


def change_by_square(fit: Any) -> float:
    """Return by how much the values of trials' starts change if v² is one more feature.

    This is the root mean square of changes above the mean change of the tail; 0 if it may be noise,
    or unless observations are vectors with dense features in a task that does not end.
    """
    source, system, T = fit.source, fit.system, fit.source.t_max
    is_dense = source.constant and not (source.are_places or source.is_sparse)
    if not is_dense or source.p > source.n_trials / 2:
        return 0.0
    n, p, v, own = source.n_trials, source.p, fit.values_of_trials, source.own.T
    square = np.zeros(v.shape), np.zeros(v.shape)
    square[0][:-1], square[1][:-1] = own * v[:-1] ** 2, own * (v[:-1] ** 2 - v[1:] ** 2)
    less = square[0] - np.roll(square[0], 1, axis=0)
    off = source.surprises(v, system.gain)
    scores, *sums = np.moveaxis(
        source.sums_of_trials(np.stack((off, square[1], less), axis=2)), 1, 0
    )
    scores = np.column_stack((scores, (off * v**2).sum(axis=0)))
    runs, half = fit.fitted.segments, (T + 1) // 2
    whole, tail = total(runs.factors), sum(x.sums[:p] for x in runs.factors[runs.tail])
    equations = np.zeros((p + 1, p + 1))
    equations[:p, :p], equations[:p, p] = whole.held[:, p : 2 * p], sums[0].sum(axis=0)
    equations[p, :p], equations[p, p] = sums[1].sum(axis=0), (v**2 * square[1]).sum()
    times = whole.held[:, -1], (square[0][:-1] * source.durations.T).sum()
    equations[:, p - 1] = np.append(*times)  # no offset is known, but a gain
    tail = np.append(tail, square[0][half:].sum())
    inverse = np.linalg.pinv(equations[:p, :p], rcond=1e-10)
    u = scores @ np.append(-equations[p, :p] @ inverse, 1.0)
    change = np.append(-inverse @ equations[:p, p], 1.0)
    derivative = float(equations[p] @ change)
    is_new = abs(derivative) > _NEW * abs(equations[p, p])
    if not is_new or not conflict(u, [np.full(n, 1.0 / n)], 0.0):
        return 0.0
    change[p - 1] = 0.0  # of the gain
    x = np.column_stack((source.rows_between(slice(0, n), 0, 1)[0], v[0] ** 2))
    moved = (x @ change - tail @ change / max(tail[p - 1], 1.0)) * u.sum() / derivative
    return float(np.sqrt((moved**2).mean()))
