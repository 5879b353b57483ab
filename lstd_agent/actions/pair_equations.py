r"""Action values from features of pairs: LSTDQ for the bias, from transitions of any behaviour.

.. math:: X = E[f(s, a) (f(s, a) - f(s', \pi(s')))^T], \quad Z = E[f(s, a) f(s, a)^T], \quad
          y = E[(r - g \tau) f(s, a)],

solved like the equations of states in `lstd_agent.system.minimizer`; then q(s, a) = f(s, a)^T w.
The expectation of r and s' given (s, a) does not depend on the policy. X leaves constants open,
since a bias is unique up to a constant; the smallest solution is taken.

The covariance of w is the covariance of X† Σ f e, with temporal differences e.

Source: Lagoudakis & Parr (2003), Least-squares policy iteration, JMLR 4; with r - g in place of
discounting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from lstd_agent.arrays import BoolArray, FloatArray, IntArray, States
from lstd_agent.errors import NotFittedError
from lstd_agent.features.rows import dense
from lstd_agent.features.tables import CheckedFeatures
from lstd_agent.rows import factors
from lstd_agent.system.minimizer import minimize
from lstd_agent.trials.kept import NO_TIME, KeptTrials

NO_ACTIONS = "the trials have no actions: collect(..., explore=k) records them, and takes k "
NO_ACTIONS += "exploratory ones in each trial; so does add_trials(..., actions=...) of Discrete "
NO_ACTIONS += "ones, numbered from 0 or by an action_space"

PairFeatures = Callable[[Any, Any], ArrayLike]
"""Features (n, d) of vectors (n, k) and actions (n,) from 0."""

Rows: TypeAlias = tuple[FloatArray, FloatArray, FloatArray, FloatArray]
"""For some transitions: features f (n, D), f minus the next features, rewards, durations (n,)."""

_CHUNK_SIZE = 2**21  # features of about so many numbers are held at a time

# Relative cutoffs of the size of features, and of their differences. Features can represent a
# constant if their fit has at least this share of it.
_RCOND, _DIFFERENCES, _CONSTANT = 1e-5, 1e-10, 1e-6

N_SETTLED = 20_000
"""Enough observations for a mean value of the long run."""


@dataclass(frozen=True, eq=False)
class PairFeatureRows:
    """Features of observations with each action; by default the encoding's and a constant."""

    encoding: Any
    n_actions: int
    given: PairFeatures | None

    @cached_property
    def _given(self) -> CheckedFeatures | None:
        return None if self.given is None else CheckedFeatures(self.given)

    def __call__(self, states: States) -> FloatArray:
        """Return features (n, A, D) of encoded observations (n, k); 0 where trials are over."""
        n, A, over, given = len(states), self.n_actions, ended(states), self._given
        if given is None:
            f = np.column_stack((self.encoding.features(states), np.ones(n)))
            rows: FloatArray = np.einsum("ab,nd->nabd", np.eye(A), f).reshape(n, A, -1)
        else:
            # Copies: a function may compute in place.
            finite = np.where(over[:, None], 0.0, states)
            parts = [dense(given(finite.copy(), np.full(n, a))) for a in range(A)]
            rows = np.stack(parts, axis=1)
        rows[over] = 0.0
        return rows


def ended(states: Any) -> BoolArray:
    """Return which encoded observations (..., k) are the end of a trial."""
    if states.dtype.kind != "f":
        return np.zeros(states.shape[:-1], dtype=bool)
    return np.asarray(np.isnan(states).any(axis=-1))


def parts_of(trials: KeptTrials, pairs: Any) -> Iterator[tuple[slice, KeptTrials]]:
    """Yield slices of trials and the trials in them, few enough for features in bounded memory."""
    size = pairs(trials.observations[:1, 0])[0].size * trials.observations.shape[1]
    step = max(1, _CHUNK_SIZE // size)
    for start in range(0, trials.n_trials, step):
        part = slice(start, start + step)
        yield part, trials.take(part)


def have_actions(trials: KeptTrials, *, own: bool = False) -> BoolArray:
    """Return which transitions (m, t_max + 1) have known actions, or the policy's own."""
    if trials.actions is None:
        raise NotFittedError(NO_ACTIONS)
    known: BoolArray = (trials.actions >= 0) & ~ended(trials.observations[:, :-1])
    known &= np.arange(trials.t_max + 1) < trials.all_lengths[:, None]
    return known if not own or trials.explored is None else known & ~trials.explored


def pair_rows(
    trials: KeptTrials,
    pairs: Any,
    policy: IntArray | None = None,
    value: Callable[[States], Any] | None = None,
) -> Iterator[Rows]:
    """Yield f(s, a), f(s, a) - f(s', π(s')), r and τ, of some transitions at a time.

    The policy has actions (m, t_max + 1) in the next states. Where it has none (-1), the next taken
    action replaces it, unless that action was exploratory. If ``value`` gives values (n,) of next
    states, they are added to the rewards and replace next features.
    """
    for block, part in parts_of(trials, pairs):
        use, actions = have_actions(part), part.part("actions").astype(np.int64)
        chosen = np.full(actions.shape, -1 if value is None else 0)
        if value is None:
            chosen[:, :-1] = np.where(have_actions(part, own=True), actions, -1)[:, 1:]
            if policy is not None:
                chosen = np.where(policy[block] < 0, chosen, policy[block])
            chosen[ended(part.observations[:, 1:])] = 0  # no action matters there
            use &= chosen >= 0
        m, n, k = part.observations.shape
        every = pairs(part.observations.reshape(m * n, k))
        every = every.reshape(m, n, *every.shape[1:])
        trial, t = np.nonzero(use)
        f, rewards = every[trial, t, actions[use]], part.rewards[use]
        if value is None:
            less = f - every[trial, t + 1, chosen[use]]
        else:
            less, rewards = f, rewards + value(part.observations[trial, t + 1])
        yield f, less, rewards, part.part("durations")[use]


def factor_of_pairs(rows: Iterable[Rows]) -> Any:
    """Return the factor of rows, at least one part of them, for `PairEquations`."""
    parts = ((f, np.column_stack((*more, np.ones(len(f)))), np.ones(len(f))) for f, *more in rows)
    return reduce(add, (factors.factor_of_rows(*part) for part in parts))


class PairEquations:
    """LSTDQ by the factor of transitions' rows f, f - f', r, τ, 1 with features of pairs."""

    def __init__(self, factor: factors.Factor) -> None:
        if factor.n == 0:
            raise NotFittedError("there is no transition with a known next action")
        D, self._n = factor.p, factor.n
        own, less = factor.held[:, :D], factor.held[:, D : 2 * D]
        size = np.linalg.norm(own, axis=0) / np.sqrt(factor.n)
        self._scale = np.where(size > 0.0, size, 1.0)
        self._A, self._B = own / self._scale, less / self._scale
        self._numbers = factor.numbers

    def weights(self, gain: float, *sides: Any) -> FloatArray:
        """Return weights (D, 1 + q): of action values with this gain, and of other sides (k, q)."""
        above = self._numbers[:, :1] - gain * self._numbers[:, 1:2]
        equations = factors.reduced(self._A, self._B, np.hstack((above, *sides)), _RCOND)
        return np.asarray(minimize(equations, _RCOND).weights / self._scale[:, None])

    def bias(self) -> tuple[FloatArray, float]:
        r"""Return weights and the long-run mean value, by transitions of any behaviour.

        u is the part of the constant's sums outside the range of X. :math:`f(s, a)^T u` weights
        observed frequencies of pairs to the policy's frequencies in the long run, which also give
        the gain.
        """
        L, _ = factors.basis_of_range(self._A, _RCOND)
        numbers = L.T @ self._numbers
        of_B, _ = factors.basis_of_range(L.T @ self._B, _DIFFERENCES)
        outside = numbers[:, 2] - of_B @ (of_B.T @ numbers[:, 2])
        paid, time, share = (outside @ numbers).tolist()
        if share < _CONSTANT * self._n:
            told = "the gain is not determined: features of pairs must represent a constant"
            raise NotFittedError(told)
        if time == 0.0:
            raise NotFittedError(NO_TIME)
        weights = self.weights(paid / time)[:, 0]
        return weights, float(outside @ (L.T @ (self._A @ (weights * self._scale)))) / share

    def fit(self, rows: Iterable[Rows], gain: float, gain_error: float = 0.0) -> PairFit:
        """Return the fit; its covariance has the sum of (f e)(f e)^T over the rows.

        The standard error of the gain, a separate estimate, adds to it.
        """
        # The equations as a function of sums over f: (A^+)^T of these sums is a side.
        inverse = np.linalg.pinv(self._A, rcond=_RCOND).T
        found = self.weights(gain, self._numbers[:, 1:2], inverse)
        weights, by_gain, inverse = found[:, 0], found[:, 1:2], found[:, 2:] / self._scale
        noise: FloatArray = np.zeros((0, len(weights)))
        for f, less, rewards, durations in rows:
            error = rewards - gain * durations - less @ weights
            noise = np.asarray(np.linalg.qr(np.vstack((noise, f * error[:, None])), mode="r"))
        return PairFit(self, weights, np.hstack((inverse @ noise.T, gain_error * by_gain)))

    @cached_property
    def _christoffel(self) -> factors.Christoffel:
        found = factors.reduced(self._A, self._B, self._numbers, _RCOND)
        return factors.Christoffel(found.A)

    def n_samples(self, features: FloatArray) -> FloatArray:
        """Return the number of samples of pairs with features (..., D)."""
        return self._christoffel.samples(features / self._scale)

    def where_seen(self, features: FloatArray, q: FloatArray) -> FloatArray:
        """Return q (...,) of features (..., D), NaN where pairs like these were hardly seen."""
        return np.where(self.n_samples(features) >= factors.MIN_SAMPLES, q, np.nan)


class PairFit(NamedTuple):
    """Fitted action values q = f^T w of features f (..., D), with variances ‖f^T root‖²."""

    equations: PairEquations
    weights: FloatArray
    root: FloatArray

    def values(self, features: FloatArray) -> FloatArray:
        """Return q of features (..., D), NaN where pairs like these were hardly seen."""
        return self.equations.where_seen(features, features @ self.weights)

    def standard_errors(self, features: FloatArray) -> FloatArray:
        """Return the standard errors of x^T w of features or their differences (..., D)."""
        return np.asarray(np.linalg.norm(features @ self.root, axis=-1))

    def advantage_errors(
        self, f: FloatArray, actions: IntArray, some: tuple[IntArray, ...]
    ) -> FloatArray:
        """Return standard errors of some actions' advantages, by features f (n, A, D)."""
        return self.standard_errors(f[some] - f[some[0], actions[some[0]]])
