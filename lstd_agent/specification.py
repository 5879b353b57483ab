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
    n, p, weights = source.n_trials, source.p, [each.columns[:, 0] for each in fit.fitted.solved]
    scores, equations, tail = np.zeros((n, p + 1)), np.zeros((p + 1, p + 1)), np.zeros(p + 1)
    for t, layer in zip(range(T, -1, -1), source.layers(0, T + 1), strict=True):
        here, ahead = system.neighborhood_at(np.array([t, t + 1]))
        v, later = layer.features @ weights[here], layer.following @ weights[ahead]
        x = np.column_stack([layer.features, v**2])
        changes = x - np.column_stack([layer.following, later**2])
        changes[:, p - 1] = layer.durations  # no offset is known, but a gain
        rows = layer.weights[:, None] * x
        scores += (layer.rewards - system.gain * layer.durations + later - v)[:, None] * rows
        equations += rows.T @ changes
        tail += rows.sum(axis=0) * (t >= (T + 1) // 2)
    inverse = np.linalg.pinv(equations[:p, :p], rcond=1e-10)
    u = scores @ np.append(-equations[p, :p] @ inverse, 1.0)
    change = np.append(-inverse @ equations[:p, p], 1.0)
    derivative = float(equations[p] @ change)
    is_new = abs(derivative) > _NEW * abs(equations[p, p])
    if not is_new or not conflict(u, [np.full(n, 1.0 / n)], 0.0):
        return 0.0
    change[p - 1] = 0.0  # of the gain
    moved = (x @ change - tail @ change / max(tail[p - 1], 1.0)) * u.sum() / derivative
    return float(np.sqrt((moved**2).mean()))
