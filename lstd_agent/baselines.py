r"""Established estimators of the bias, to compare with: from the same counts or kept trials.

Linear ones approximate the bias by one :math:`v(s) = f(s)^T w + o`. Along each trial traces are
:math:`e_t = f(s_t) + \lambda e_{t-1}`. f' are the next features, and E is the mean over trials and
timesteps. With durations τ, r - g τ replaces r - g. All values have mean 0 over the second half of
all timesteps, like the bias in the long run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from lstd_agent.arrays import FloatArray
from lstd_agent.errors import EvaluationError, InvalidInputError
from lstd_agent.features.rows import as_rows, dense
from lstd_agent.rows.counts import CountRows
from lstd_agent.rows.factors import Factor, Layer
from lstd_agent.rows.kept import TrialRows
from lstd_agent.system.minimizer import minimize
from lstd_agent.system.model import pooled_model
from lstd_agent.trials.counted import CountedTrials, times_of
from lstd_agent.trials.counts import TransitionCounts
from lstd_agent.trials.kept import KeptTrials

__all__ = [
    "LinearValue",
    "average_reward_lstd",
    "certainty_equivalence",
    "differential_td",
    "discounted_lstd",
    "monte_carlo",
]

TIMED = "these have durations: use SeminormLSTDAgent or PolicyIteration, which take them"

Samples: TypeAlias = TransitionCounts | KeptTrials

_RCOND = 1e-12  # of squares: features 1e-6 times as large as others count as 0
_MOST_GROWTH = 1e3  # of errors from the first update to the last


@dataclass(frozen=True, eq=False)
class LinearValue:
    """An estimate f(s)·w + o of the bias, with ``weights`` w (d,) and the ``offset`` o."""

    weights: FloatArray
    offset: float

    def __call__(self, features: FloatArray) -> FloatArray:
        """Return the values (m,) of features (m, d)."""
        return np.asarray(features @ self.weights + self.offset)


def average_reward_lstd(
    samples: Samples, features: Any, gain: float | None = None, *, decay: float = 0.0
) -> LinearValue:
    """Return the value by average-reward LSTD(λ): E[e (f - f')ᵀ] w = E[e (r - g)].

    Source: Yu & Bertsekas (2009), "Convergence results for some temporal difference methods",
    section II. A linked system of one neighbourhood is the same.

    Parameters
    ----------
    samples : TransitionCounts or KeptTrials
    features : ndarray (S, d), or callable
        A table of counted states, or a function of the observations (n, k) of kept trials.
    gain : float, optional
        By default the mean reward per unit of time of the second half of all timesteps.
    decay : float
        λ of the traces, from 0 to 1.
    """
    means = _Means.of(samples, features, decay)
    return means.solved(means.X(), gain, intercept=False)  # a constant has no differences


def differential_td(
    samples: Samples,
    features: Any,
    gain: float | None = None,
    *,
    decay: float = 0.0,
    step_size: float = 0.1,
    n_updates: int | None = None,
) -> LinearValue:
    r"""Return the value that differential TD(λ) reaches on its mean path from w = 0.

    An update adds :math:`\alpha E[e\, (r - g + f'^T w - f^T w)]`, with :math:`\alpha` the step size
    over d, in features divided by their root mean squares. The limit is `average_reward_lstd`.
    Sources: Tsitsiklis & Van Roy (1999), "Average cost temporal-difference learning"; for the gain
    Wan, Naik & Sutton (2021), "Learning and planning in average-reward Markov decision processes".

    Parameters
    ----------
    samples, features, decay
        See `average_reward_lstd`.
    gain : float, optional
        By default it is learned from the same errors: g ← g + α E[r - g + f'ᵀ w - fᵀ w].
    step_size : float
        Above 0.
    n_updates : int, optional
        By default as many as there are samples: one pass.

    Raises
    ------
    EvaluationError
        If the updates diverge. Small steps may diverge too if trials start outside the steady
        regime: samples are then more often in start states than transitions lead there.
    """
    if not 0.0 < step_size < np.inf:
        raise InvalidInputError(f"step_size must be above 0 and finite; got {step_size!r}")
    means = _Means.of(samples, features, decay)
    d, r = means.V.shape
    n = float(means.every[r])
    n_updates = round(n) if n_updates is None else n_updates
    W = np.linalg.pinv(means.V).T  # of features
    size = np.sqrt(np.diagonal(W @ means.second[:-1, :-1] @ W.T))
    W /= np.where(size > 0.0, size, 1.0)[:, None]
    step = np.zeros((d + 2, d + 2))  # of the update of (w, g, 1)
    step[:d, :d] = -W @ means.X()[:-1, :-1] @ W.T
    step[:d, d:] = W @ (means.traced[:-1, -2:] * (-1.0, 1.0))
    if gain is None:
        step[d, :d] = W @ (means.every[r + 1 : 2 * r + 1] - means.every[:r]) / n
        step[d, d:] = means.every[-2:] / n * (-1.0, 1.0)
    update = np.eye(d + 2) + step_size / d * step
    growth = float(np.abs(np.linalg.eigvals(update)).max())
    if n_updates * np.log(growth) > np.log(_MOST_GROWTH):
        told = f"{n_updates} updates with step_size={step_size} diverge, by a factor {growth:.6g} "
        raise EvaluationError(f"{told}each: take fewer, smaller ones, or less decay")
    start = np.append(np.zeros(d), (0.0 if gain is None else gain, 1.0))
    w = (np.linalg.matrix_power(update, n_updates) @ start)[:d]
    return means.value(W.T @ w)


def discounted_lstd(samples: Samples, features: Any, discount: float) -> LinearValue:
    """Return the discounted value by LSTD with an intercept: E[f (f - γ f')ᵀ] w = E[f r].

    It is gain / (1 - γ) + bias + a rest that vanishes with 1 - γ (Puterman 1994, section 8.2), from
    ``samples`` and ``features`` as in `average_reward_lstd`; the ``discount`` γ is below 1. Source:
    Bradtke & Barto (1996), "Linear least-squares algorithms for temporal difference learning".

    Raises
    ------
    InvalidInputError
        If the discount is out of range, or steps have durations.
    """
    if not 0.0 <= discount < 1.0:
        raise InvalidInputError(f"discount must be from 0 up to, not 1; got {discount!r}")
    if times_of(samples) is not None:
        raise InvalidInputError(TIMED)
    means = _Means.of(samples, features, 0.0)
    return means.solved(means.X(discount), 0.0)


def monte_carlo(samples: Samples, features: Any, gain: float | None = None) -> LinearValue:
    """Return the least-squares fit, with an intercept, of Σ (r - g) up to the end of trials.

    Only timesteps of the first half are fitted, so that at least half a trial follows each.
    ``samples``, ``features`` and ``gain`` are as in `average_reward_lstd`. Source: Sutton & Barto
    (2018), section 9.3, with the differential returns of section 10.3, truncated.
    """
    # Traces with λ = 1: a reward goes to the features of all timesteps before.
    means = _Means.of(samples, features, 1.0, last=samples.t_max // 2)
    return means.solved(means.second, gain)


def certainty_equivalence(counts: TransitionCounts, gain: float | None = None) -> FloatArray:
    """Return the bias, shape (S,), of the chain that has the frequencies of all timesteps.

    It needs ``counts`` and no features; the ``gain`` is as in `average_reward_lstd`. It is NaN for
    states from which no transitions lead to the most visited state. The name is from Kumar &
    Varaiya (1986), "Stochastic Systems: Estimation, Identification, and Adaptive Control".
    """
    source = CountRows(CountedTrials.of(counts), np.ones((counts.n_states, 1)))
    half = (counts.t_max + 1) // 2
    gain = late_gain(counts) if gain is None else gain
    model = pooled_model(source, gain, source.main_state(half))
    known = model.open_share < 1.0
    visits = known * source.visits[half:].sum(axis=0)
    return np.where(known, model.values - visits @ model.values / visits.sum(), np.nan)


def late_gain(counts: TransitionCounts) -> float:
    """Return the mean reward per unit of time of the second half of all timesteps."""
    late = slice((counts.t_max + 1) // 2, None)
    times = counts.transition_counts if counts.duration_sums is None else counts.duration_sums
    return float(counts.reward_sums[late].sum() / times[late].sum())


class _Means(NamedTuple):
    """Means over all samples, of coordinates (u, 1) with u = f V, p numbers."""

    V: FloatArray
    second: FloatArray  # E[(u, 1) (u, 1)ᵀ] over the timesteps whose features enter traces
    traced: FloatArray  # E[e xᵀ] of traces e of (u, 1), and x = (u, 1, the next (u, 1), τ, r)
    every: FloatArray  # sums of x over all timesteps
    late: FloatArray  # sums of x over the second half

    @classmethod
    def of(cls, samples: Any, features: Any, decay: float, last: int | None = None) -> _Means:
        """Add up all samples; features after timestep ``last`` do not enter traces."""
        if not 0.0 <= decay <= 1.0:
            raise InvalidInputError(f"decay must be from 0 to 1; got {decay!r}")
        are_counted = not hasattr(samples, "observations")
        if callable(features) == are_counted:
            told = "features are a table (S, d) of the states of counts, or a function of the "
            raise InvalidInputError(f"{told}observations (n, k) of trials; got {features!r}")
        source: Any
        if are_counted:
            table = as_rows(np.asarray(features), samples.n_states)
            source = CountRows(CountedTrials.of(samples), table)
            source.is_sparse = False
        elif np.isnan(samples.observations).any():
            raise InvalidInputError("baselines are for continuing tasks, and some trials terminate")
        else:
            rows = lambda x: dense(as_rows(features(x.astype(np.float64)), len(x)))  # noqa: E731
            source = TrialRows(samples, rows)
        T, p = source.t_max, source.p
        last, half = T if last is None else last, (T + 1) // 2
        edges = sorted({0, half, last + 1, T + 1})
        sums = np.stack([_traced(source, source.layers(*run)) for run in pairwise(edges)])
        entering = sums[: edges.index(last + 1)].sum(axis=0)
        backwards = source.layers(0, T + 1)
        traced = _traced(source, backwards, decay, T - last) if decay > 0.0 else entering
        # (u, 1) ends in 1: the last row of products holds sums, and its p-th entry is n.
        n, turn = entering[-1, p - 1], source.coordinates.turn
        V = np.diag(turn) if turn.ndim == 1 else turn
        every, late = (part[:, -1].sum(axis=0) for part in (sums, sums[edges.index(half) :]))
        return cls(V, entering[:, :p] / n, traced / n, every, late)

    def X(self, discount: float = 1.0) -> FloatArray:
        """Return E[e ((u, 1) - γ (u', 1))ᵀ]."""
        p = len(self.second)
        return self.traced[:, :p] - discount * self.traced[:, p : 2 * p]

    def solved(self, X: FloatArray, gain: float | None, *, intercept: bool = True) -> LinearValue:
        """Return the minimizer (Thm ``epb_minimizer``) of X w = E[e (r - g τ)]."""
        gain = self.late[-1] / self.late[-2] if gain is None else gain
        p = len(X) if intercept else len(X) - 1
        y = self.traced[:p, -1:] - gain * self.traced[:p, -2:-1]
        size = np.sqrt(np.diagonal(self.second)[:p, None])
        scale = np.where(size > 0.0, size, 1.0)
        Z, X = (each[:p, :p] / (scale * scale.T) for each in (self.second, X))
        held = np.hstack((Z, X, y / scale))
        equations = Factor(held, True, p, held[0], 0.0).reduced(p, float(np.sqrt(_RCOND)))
        w = minimize(equations, _RCOND).weights / scale
        return self.value(w[: len(self.second) - 1, 0])

    def value(self, w: FloatArray) -> LinearValue:
        """Return the value with weights w (p - 1,) of u, moved to have mean 0 in the tail."""
        return LinearValue(self.V @ w, -float(self.late[: len(w)] @ w / self.late[len(w)]))


def _traced(source: Any, layers: Iterable[Layer], decay: float = 0.0, n_late: int = 0) -> Any:
    """Return Σ e xᵀ = Σ (u, 1) bᵀ, (p, 2 p + 2), with b = x + λ b of the layer before.

    With decay, layers are timesteps backwards, and the first ``n_late`` features do not enter.
    Counts hold no trials: there the next b is the mean over the following states.
    """
    p, total, carried = source.p, 0.0, 0.0
    # Counts have the same features at each timestep: multiply once.
    by_state = decay > 0.0 and source.are_places
    for i, layer in enumerate(layers):
        u, weights = layer.features, layer.weights[:, None]
        ahead = np.zeros((len(layer.following), 2 * p + 2))
        ahead[:, p : 2 * p] = layer.following
        b = layer.ahead(ahead + carried)
        b[:, :p] += u
        b[:, -2] += layer.durations
        b[:, -1] += layer.rewards
        b *= weights > 0.0  # 0 where nothing was seen, and after a trial's end
        if i >= n_late:
            total = total + (weights * b if by_state else (weights * u).T @ b)
        carried = decay * b if decay else 0.0
    return source.rows.T @ total if by_state else total
