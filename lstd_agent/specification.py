r"""Hausman's specification test: whether the targets of a fit and longer ones agree.

If the features suffice, any :math:`\lambda` gives the same values. For the errors δ of single steps
by the values of a fit, trial i has the scores

.. math:: s_i = \sum_t f_t \sum_{k \ge 0} \lambda^k \delta_{t+k} ,

with X minus the derivative of their sum by the weights. With a horizon 1/(1 - λ) ten times as long,
they are s' and X'. A fit by longer targets changes the weights by

.. math:: \sum_i \psi_i, \qquad \psi_i = X'^{-1} s'_i - X^{-1} s_i ,

more than one by its own does, whatever its weights are. Trials are independent, so that the spread
of ψ tells whether a change of values is noise. The fit makes n trials in p weights vary less than
others by n - p to n.

Source: Hausman (1978), Specification tests in econometrics.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lstd_agent.arrays import FloatArray
from lstd_agent.backups import LambdaReturn, MultiStep
from lstd_agent.standard_errors import quantile_of_t

_LONGER = 10.0


class Changes(NamedTuple):
    """Changes of weights by longer targets, 0 for the gain; the row of value 0 is the tail's."""

    of_trials: FloatArray  # (n, p)
    tail: FloatArray  # (p,)

    def of_values(self, rows: FloatArray, contrasts: FloatArray, chance: float) -> FloatArray:
        """Return the changes (k,) of sums of values of rows (m, p); 0 where they may be noise."""
        (n, p), each = self.of_trials.shape, contrasts @ (rows - self.tail) @ self.of_trials.T
        off, noise = each.sum(axis=1), each.std(axis=1) * n**1.5 / (n - p)
        is_noise = np.abs(off) <= noise * quantile_of_t(1.0 - chance, n - 1)
        return np.asarray(np.where(is_noise, 0.0, off))


def longer_targets(fit: Any) -> Changes | None:
    """Return what longer targets change of a fit to kept trials.

    None where features are sparse or more than trials, tasks end, or targets are the longest.
    """
    source, backup = fit.source, fit.fitted.choice.backup
    decay = backup.decay if isinstance(backup, LambdaReturn) else 0.0
    decay = 1.0 - 1.0 / backup.steps if isinstance(backup, MultiStep) else decay
    is_dense = source.constant and not (source.are_places or source.is_sparse)
    if not is_dense or source.p >= source.n_trials or decay == 1.0:
        return None
    off, longer = (
        source.surprises(fit.values_of_trials, fit.system.gain),
        1.0 - (1.0 - decay) / _LONGER,
    )
    changes = _solved(source, off, longer) - _solved(source, off, decay)
    changes[:, -1] = 0.0
    return Changes(changes, fit.fitted.segments.mean_of_tail[: source.p])


def _solved(source: Any, off: FloatArray, decay: float) -> FloatArray:
    """Return the products (n, p) of the inverse of X with the scores of trials."""
    n, T, p = source.n_trials, source.t_max, source.p
    X, scores = np.zeros((p, p)), np.zeros((n, p))
    for part in source.parts(slice(0, n), T + 2):
        f, own = source.rows_between(part, 0, T + 2), source.own[part].T[..., None]
        x = np.concatenate((f[:-1] - f[1:], off[:-1, part, None]), axis=2)
        x[..., p - 1] = source.durations[part].T  # no offset is known, but a gain
        x *= own
        for t in range(T - 1, -1, -1) if decay else ():
            x[t] += decay * own[t] * x[t + 1]
        X += f[:-1].reshape(-1, p).T @ x[..., :p].reshape(-1, p)
        scores[part] = (x[..., p].T[:, None] @ f[:-1].swapaxes(0, 1))[:, 0]
    return np.asarray(scores @ np.linalg.pinv(X, rcond=1e-10).T)
