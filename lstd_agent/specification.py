r"""Hausman's specification test: whether a fit agrees with others that need less of its features.

One has targets of λ-returns whose horizon 1/(1 - λ) is ten times as long. The other has more
features: the observations, their squares, and the squares of the values (Ramsey's test). If the
features suffice, all give the same values. For the errors δ of single steps by the values of the
fit, trial i has the scores

.. math:: s_i = \sum_t f_t \sum_{k \ge 0} \lambda^k \delta_{t+k} ,

with X minus the derivative of their sum by the weights. With s' and X' of other targets or features
the weights change by

.. math:: \sum_i \psi_i, \qquad \psi_i = X'^{-1} s'_i - X^{-1} s_i ,

whatever the weights of the fit are. Trials are independent, so that the spread of ψ tells whether a
change of values is noise. Since weights were fitted, n trials vary less, by up to n - p to n.

Sources: Hausman (1978), Specification tests in econometrics; Ramsey (1969), Tests for specification
errors in classical linear least-squares regression.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstd_agent.arrays import FloatArray
from lstd_agent.standard_errors import quantile_of_t

# How much longer targets are; the share of a feature that others must leave out; rounding, as a
# share of values; most components of observations that are looked at; the largest value.
_LONGER, _NEW, _ROUNDING, MOST_COLUMNS, _MOST = 10.0, 1e-3, 1e-9, 20, 1e50


class Others:
    """What other fits change of values (t_max + 2, n) of vectors, in a task that goes on.

    The trials are kept, and more than the dense features.
    """

    def __init__(self, source: Any, values: FloatArray, gain: float, backup: Any) -> None:
        seen = source.trials.observations[:, :-1][source.own].astype(np.float64)
        self._every = slice(None, None, -(-seen.shape[1] // MOST_COLUMNS))
        self._mean, self._scale = (x(seen[:, self._every], axis=0) for x in (np.mean, np.std))
        decay = getattr(backup, "decay", 0.0)  # any will do: a near one finds less noise
        off, p = source.surprises(values, gain), source.p
        X, s, self._tail = self._sums(source, off, values, decay)
        inverse = np.linalg.pinv(X[:p, :p], rcond=1e-10)
        own, B = s[:, :p] @ inverse.T, inverse @ X[:p, p:]
        d = np.sqrt(np.abs(np.diag(X)[p:]))
        d = np.where(d > 0.0, d, 1.0)
        D = (X[p:, p:] - X[p:, :p] @ B) / np.outer(d, d)
        more = (s[:, p:] - own @ X[p:, :p].T) / d @ np.linalg.pinv(D, rcond=_NEW).T / d
        changes = [np.hstack((-more @ B.T, more))]
        if decay < 1.0:
            X, s, _ = self._sums(source, off, None, 1.0 - (1.0 - decay) / _LONGER)
            longer = s @ np.linalg.pinv(X, rcond=1e-10).T - own
            changes.append(np.pad(longer, ((0, 0), (0, len(d)))))
        self._n, self._found = len(s), list[tuple[FloatArray, FloatArray]]()
        for change in changes:
            change[:, p - 1] = 0.0  # of the gain
            n_free = max(1e-9, float(self._n - np.count_nonzero(change.any(axis=0))))
            rest = (change - change.mean(axis=0)) * (self._n / n_free)
            R: Any = np.linalg.qr(rest, mode="r")
            self._found.append((change.sum(axis=0), R.T))

    def _more(self, rows: FloatArray, observations: NDArray[Any], values: FloatArray) -> FloatArray:
        """Return rows (..., p) with more features, of observations (..., k) and values (...)."""
        x = observations[..., self._every] - self._mean
        x = x / np.where(self._scale > 1e-9 * np.abs(self._mean), self._scale, np.inf)
        v = np.clip(values[..., None], -_MOST, _MOST)  # open ones may be huge
        return np.concatenate((rows, x, x**2, v**2), axis=-1)

    def _sums(
        self, source: Any, off: FloatArray, values: FloatArray | None, decay: float
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return X (q, q), scores (n, q), and the mean row (q,) of the tail, whose value is 0."""
        n, T, p, half = source.n_trials, source.t_max, source.p, (source.t_max + 1) // 2
        X, scores, tail, n_late = 0.0, [], 0.0, source.own[:, half:].sum()
        for part in source.parts(slice(0, n), T + 2):
            f, own = source.rows_between(part, 0, T + 2), source.own[part].T[..., None]
            if values is not None:
                f = self._more(f, source.trials.observations[part].swapaxes(0, 1), values[:, part])
            x = np.concatenate((f[:-1] - f[1:], off[:-1, part, None]), axis=2)
            x[..., p - 1] = source.durations[part].T  # no offset is known, but a gain
            x *= own
            for t in range(T - 1, -1, -1) if decay else ():
                x[t] += decay * own[t] * x[t + 1]
            q = f.shape[2]
            X = X + f[:-1].reshape(-1, q).T @ x[..., :q].reshape(-1, q)
            scores.append((x[..., q].T[:, None] @ f[:-1].swapaxes(0, 1))[:, 0])
            tail = tail + (f[half:-1] * own[half:]).sum(axis=(0, 1)) / max(n_late, 1)
        return np.asarray(X), np.concatenate(scores), np.asarray(tail)

    def changes(
        self,
        rows: FloatArray,
        observations: NDArray[Any],
        values: FloatArray,
        chance: float,
        contrasts: FloatArray | None = None,
    ) -> FloatArray:
        """Return the largest changes of values (m,), or sums of them; 0 where they may be noise."""
        x = self._more(rows, observations, values) - self._tail
        x = x if contrasts is None else contrasts @ x
        most = quantile_of_t(1.0 - chance / len(self._found), self._n - 1)
        rounding = _ROUNDING * np.abs(values).max()
        found = np.zeros(len(x))
        for total, spread in self._found:
            off, noise = np.abs(x @ total), np.linalg.norm(x @ spread, axis=1)
            found = np.maximum(found, off * (off > np.maximum(most * noise, rounding)))
        return found
