r"""LSTDQ: action values in features of pairs, from transitions of any behaviour.

.. math:: X = E[f(s, a) (f(s, a) - f(s', \pi(s')))^T], \quad Z = E[f(s, a) f(s, a)^T], \quad
          y = E[(r - g) f(s, a)],

solved as `lstd_agent.system.minimizer` solves the equations of states, q(s, a) = f(s, a)^T w.
Whoever chose a, the expectation of r and s' given (s, a) is the same. Constants are left open by
X (a bias is known up to one), and the smallest of all solutions is taken.

The covariance of w is that of X† Σ f e, with temporal differences e.

Source: Lagoudakis & Parr (2003), Least-squares policy iteration, JMLR 4; with r - g in place of
discounting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from functools import reduce as reduce_sums
from itertools import chain
from operator import add
from typing import Any, TypeAlias

import numpy as np

from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.errors import NotFittedError
from lstd_agent.rows.christoffel import MIN_SAMPLES, Christoffel
from lstd_agent.rows.factors import Factor, Gathering, total
from lstd_agent.system.minimizer import Minimizer, basis_of_range, minimize, reduced

RCOND = 1e-5
"""Relative cutoff of the size of features."""

DIFFERENCES = 1e-10
"""Relative cutoff of the size of their differences."""

AllPairs = Callable[[Any], FloatArray]
"""Features (n, A, D) of n encoded observations with each action; 0 where trials are over."""

_Rows: TypeAlias = tuple[FloatArray, FloatArray | None, FloatArray]
"""Features (n, D), those of what follows, or None where its value is known, and rewards (n,)."""

_CHUNK_SIZE = 2**21

# Of a constant that features can represent this would be 1.
_CONSTANT = 1e-6


@dataclass(frozen=True, eq=False)
class Transitions:
    """Transitions of trials, in the order of time.

    Attributes
    ----------
    states : ndarray, shape (m, t_max + 2, k)
        Encoded observations, NaN where trials are over.
    actions : ndarray of int, shape (m, t_max + 1)
    rewards : ndarray, shape (m, t_max + 1)
    known : ndarray of bool, shape (m, t_max + 1), optional
        Which of them there are; None where all are.
    explored : ndarray of bool, shape (m, t_max + 1), optional
        Which actions are none of the policy's, where the others are.
    """

    states: Any
    actions: IntArray
    rewards: FloatArray
    known: BoolArray | None = None
    explored: BoolArray | None = None


@dataclass(frozen=True, eq=False)
class PairFit:
    """Fitted action values.

    Attributes
    ----------
    weights : ndarray, shape (D,)
    root : ndarray, shape (D, D)
        A root of their covariance: that of x^T w is the squared norm of x^T root.
    christoffel : Christoffel
        How many samples tell of pairs with features of size 1.
    scale : ndarray, shape (D,)
        Sizes of the features.
    """

    weights: FloatArray
    root: FloatArray
    christoffel: Christoffel
    scale: FloatArray

    def values(self, features: FloatArray) -> FloatArray:
        """Return q of features (..., D)."""
        return np.asarray(features @ self.weights)

    def standard_errors(self, features: FloatArray) -> FloatArray:
        """Return the standard errors of x^T w of features or their differences (..., D)."""
        return np.asarray(np.linalg.norm(features @ self.root, axis=-1))

    def seen(self, features: FloatArray) -> BoolArray:
        """Return whether pairs with features (..., D) were seen often enough to tell of them."""
        return self.n_samples(features) >= MIN_SAMPLES

    def n_samples(self, features: FloatArray) -> FloatArray:
        """Return how many samples tell of pairs with features (..., D)."""
        return self.christoffel.samples(features / self.scale)


@dataclass(frozen=True, eq=False)
class PairSums:
    """The factor of transitions' rows, of which LSTDQ is made; those of portions add up.

    Attributes
    ----------
    factor : Factor
        Of rows f, f - f', r, 1, with f' the features of what follows and the policy's action.
    """

    factor: Factor

    @classmethod
    def of(cls, portion: Transitions, pairs: AllPairs, policy: IntArray | None = None) -> PairSums:
        """Return the sums of a portion, for a policy as `fit_pairs` takes it."""
        D = pairs(portion.states[:1, 0]).shape[2]
        return cls._of_rows(_rows(portion, pairs, policy), D)

    @classmethod
    def _of_rows(cls, rows: Iterable[_Rows], D: int) -> PairSums:
        gathering = Gathering(D, 2)
        for f, following, rewards in rows:
            less = f if following is None else f - following
            one = np.ones(len(f))
            gathering.add(np.column_stack((f, less, rewards, one)), one)
        return cls(gathering.factor())

    def __add__(self, other: PairSums) -> PairSums:
        return PairSums(total([self.factor, other.factor]))

    def solve(self, gain: float) -> FloatArray:
        """Return the weights of action values, with a gain that is given."""
        return self._solved(self._above(gain)).weights[:, 0]

    def solve_bias(self) -> tuple[FloatArray, float, float]:
        r"""Return weights, gain, and the mean value in the long run, of whatever behaviour.

        What constants add to the equations lies outside the range of X by a part; the function
        :math:`f(s, a)^T u` of it turns the behaviour's frequencies of pairs into those of the
        policy's long run.

        Raises
        ------
        NotFittedError
            If the features do not hold a constant: then X tells no gain.
        """
        A, B, scale = self._scaled
        L, _ = basis_of_range(A, RCOND)
        one = L.T @ self._numbers[:, 1]
        of_B, _ = basis_of_range(L.T @ B, DIFFERENCES)
        outside = one - of_B @ (of_B.T @ one)
        share = float(outside @ one)
        if share < _CONSTANT * self.factor.n:
            raise NotFittedError(
                "the gain cannot be told: features of pairs must be able to represent a constant"
            )
        gain = float(outside @ (L.T @ self._numbers[:, 0])) / share
        weights = self.solve(gain)
        settled = float(outside @ (L.T @ (A @ (weights * scale)))) / share
        return weights, gain, settled

    def fit(self, rows: Iterable[_Rows], gain: float) -> PairFit:
        """Return the fit, its covariance by the sum M of f f^T e² over the rows."""
        A, _, scale = self._scaled
        # The equations as a function of sums over f: c stands for (A^+)^T of them.
        found = self._solved(np.hstack((self._above(gain), np.linalg.pinv(A, rcond=RCOND).T)))
        weights, inverse = found.weights[:, 0], found.weights[:, 1:] / scale
        M = np.zeros((len(weights), len(weights)))
        for f, following, rewards in rows:
            change = f if following is None else f - following
            noisy = f * (rewards - gain - change @ weights)[:, None]
            M += noisy.T @ noisy
        size, U = np.linalg.eigh(M)
        root = inverse @ (U * np.sqrt(np.maximum(size, 0.0)))
        return PairFit(weights, root, self.n_samples, scale)

    def seen(self, features: FloatArray) -> BoolArray:
        """Return whether pairs with features (..., D) were seen often enough to tell of them."""
        _, _, scale = self._scaled
        return np.asarray(self.n_samples.samples(features / scale) >= MIN_SAMPLES)

    @cached_property
    def n_samples(self) -> Christoffel:
        """How many samples tell of pairs with scaled features (..., D)."""
        return Christoffel.of(self._scaled[0])

    @cached_property
    def _scaled(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """A and B of features of size 1, and their sizes."""
        if self.factor.n == 0:
            raise NotFittedError("there is no transition of which the action that follows is known")
        D = self.factor.p
        own, less = self.factor.held[:, :D], self.factor.held[:, D : 2 * D]
        scale = np.linalg.norm(own, axis=0) / np.sqrt(self.factor.n)
        scale = np.where(scale > 0.0, scale, 1.0)
        return own / scale, less / scale, scale

    @property
    def _numbers(self) -> FloatArray:
        return self.factor.held[:, 2 * self.factor.p :]

    def _above(self, gain: float) -> FloatArray:
        """Return rewards above the gain as a column."""
        return self._numbers[:, :1] - gain * self._numbers[:, 1:]

    def _solved(self, c: FloatArray) -> Minimizer:
        A, B, scale = self._scaled
        found = minimize(reduced(A, B, c, RCOND), RCOND)
        return replace(found, weights=found.weights / scale[:, None])


def fit_pairs(
    portions: list[Transitions],
    pairs: AllPairs,
    gain: float,
    policy: Sequence[IntArray] | None = None,
) -> PairFit:
    """Fit the action values of a policy.

    Parameters
    ----------
    portions : list of Transitions
        Of any behaviour.
    pairs : callable
        Features of observations with each action.
    gain : float
    policy : sequence of ndarray of int, shape (m, t_max + 1), optional
        Of each portion, the policy's actions in the states that follow. Where it has none, -1,
        the one that was taken next stands for it.
    """
    chosen = [None] * len(portions) if policy is None else policy
    parts = list(zip(portions, chosen, strict=True))
    sums = reduce_sums(add, (PairSums.of(portion, pairs, actions) for portion, actions in parts))
    rows = (_rows(portion, pairs, actions) for portion, actions in parts)
    return sums.fit(chain.from_iterable(rows), gain)


def regress_pairs(
    portions: list[Transitions],
    pairs: AllPairs,
    value: Callable[[Any], Any],
    gain: float = 0.0,
) -> PairFit:
    """Fit r - g + v(s') by least squares, with values v of encoded observations (n, k)."""
    D = pairs(portions[0].states[:1, 0]).shape[2]
    rows: list[_Rows] = [
        (f, None, excess + value(after))
        for portion in portions
        for f, after, excess in _single_rows(portion, pairs, gain)
    ]
    return PairSums._of_rows(rows, D).fit(rows, 0.0)


def _portions(portion: Transitions, pairs: AllPairs, n_timesteps: int) -> Iterator[slice]:
    """Yield slices of trials whose pairs at so many timesteps fit in a bounded memory."""
    step = max(1, _CHUNK_SIZE // (pairs(portion.states[:1, 0])[0].size * n_timesteps))
    for start in range(0, len(portion.rewards), step):
        yield slice(start, start + step)


def _rows(portion: Transitions, pairs: AllPairs, policy: IntArray | None) -> Iterator[_Rows]:
    """Yield f(s, a), f(s', π(s')) and r of some transitions at a time."""
    for block in _portions(portion, pairs, portion.rewards.shape[1] + 1):
        yield _block(portion, block, pairs, None if policy is None else policy[block])


def _block(portion: Transitions, block: slice, pairs: AllPairs, chosen: IntArray | None) -> _Rows:
    states = portion.states[block]
    action = portion.actions[block].astype(np.int64)
    n, T = action.shape
    both = pairs(states.reshape(n * (T + 1), -1))
    both = both.reshape(n, T + 1, *both.shape[1:])
    trial, t = np.ogrid[:n, :T]
    f = both[trial, t, action]
    successors = both[:, 1:]
    # What follows the last timestep has no action taken.
    own = action if portion.explored is None else np.where(portion.explored[block], -1, action)
    taken = np.concatenate((own[:, 1:], np.full((n, 1), -1)), axis=1)
    if portion.known is not None:
        taken[:, :-1][~portion.known[block][:, 1:]] = -1
    chosen = taken if chosen is None else np.where(chosen < 0, taken, chosen)
    missing: Any = np.isnan(np.asarray(states, dtype=np.float64))
    over = missing.any(axis=2)
    chosen[over[:, 1:]] = 0  # no action matters there
    use = ~over[:, :-1] & (chosen >= 0)
    if portion.known is not None:
        use &= portion.known[block]
    following = successors[trial, t, np.maximum(chosen, 0)]
    return f[use], following[use], portion.rewards[block][use]


def _single_rows(
    portion: Transitions, pairs: AllPairs, gain: float
) -> Iterator[tuple[FloatArray, Any, FloatArray]]:
    """Yield f(s, a), s' and r - g of some transitions at a time."""
    for block in _portions(portion, pairs, portion.rewards.shape[1]):
        states = portion.states[block]
        ended: Any = np.isnan(np.asarray(states[:, :-1], dtype=np.float64))
        use = ~ended.any(axis=2)
        if portion.known is not None:
            use &= portion.known[block]
        rows = pairs(states[:, :-1][use])
        action = portion.actions[block][use].astype(np.int64)
        f = rows[np.arange(len(rows)), action]
        yield f, states[:, 1:][use], portion.rewards[block][use] - gain
