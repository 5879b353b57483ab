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
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from operator import add
from typing import Any, TypeAlias

import numpy as np

from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.errors import NotFittedError
from lstd_agent.statistics.christoffel import MIN_SAMPLES, Christoffel
from lstd_agent.statistics.equations import Moments
from lstd_agent.system.minimizer import DEFAULT_RCOND, minimize

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
    n_samples : Christoffel
        How many samples tell of pairs with features (..., D).
    """

    weights: FloatArray
    root: FloatArray
    n_samples: Christoffel

    def values(self, features: FloatArray) -> FloatArray:
        """Return q of features (..., D)."""
        return np.asarray(features @ self.weights)

    def standard_errors(self, features: FloatArray) -> FloatArray:
        """Return the standard errors of x^T w of features or their differences (..., D)."""
        return np.asarray(np.linalg.norm(features @ self.root, axis=-1))

    def seen(self, features: FloatArray) -> BoolArray:
        """Return whether pairs with features (..., D) were seen often enough to tell of them."""
        return np.asarray(self.n_samples(features) >= MIN_SAMPLES)


@dataclass(frozen=True, eq=False)
class PairSums:
    """Sums over transitions, of which LSTDQ is made; those of portions add up.

    Attributes
    ----------
    Z, X : ndarray, shape (D, D)
        Of f f^T and f (f - f')^T, with f' the features of what follows and the policy's action.
    y, f : ndarray, shape (D,)
        Of f r and f.
    n : int
        How many transitions.
    """

    Z: FloatArray
    X: FloatArray
    y: FloatArray
    f: FloatArray
    n: int

    @classmethod
    def of(cls, portion: Transitions, pairs: AllPairs, policy: IntArray | None = None) -> PairSums:
        """Return the sums of a portion, for a policy as `fit_pairs` takes it."""
        D = pairs(portion.states[:1, 0]).shape[2]
        return cls._of_rows(_rows(portion, pairs, policy), D)

    @classmethod
    def _of_rows(cls, rows: Iterable[_Rows], D: int) -> PairSums:
        Z, X, y, total, n = np.zeros((D, D)), np.zeros((D, D)), np.zeros(D), np.zeros(D), 0
        for f, following, rewards in rows:
            Z += f.T @ f
            X += f.T @ (f if following is None else f - following)
            y += f.T @ rewards
            total += f.sum(axis=0)
            n += len(f)
        return cls(Z, X, y, total, n)

    def __add__(self, other: PairSums) -> PairSums:
        return PairSums(
            self.Z + other.Z, self.X + other.X, self.y + other.y, self.f + other.f, self.n + other.n
        )

    def solve(self, gain: float, rcond: float = DEFAULT_RCOND) -> FloatArray:
        """Return the weights of action values, with a gain that is given."""
        return self._solver(rcond).solve(self.y - gain * self.f)[0]

    def solve_bias(self, rcond: float = DEFAULT_RCOND) -> tuple[FloatArray, float, float]:
        r"""Return weights, gain, and the mean value in the long run, of whatever behaviour.

        What constants add to the equations, :math:`E f`, lies outside the range of X by the part
        ρ; :math:`u = Z^\dagger ρ`, for which :math:`u^T X = 0`, turns the behaviour's frequencies
        of pairs into those of the policy's long run, :math:`f(s, a)^T u` times as many.

        Raises
        ------
        NotFittedError
            If the features do not hold a constant: then X tells no gain.
        """
        solver = self._solver(rcond)
        outside = self.f - self.X @ solver.solve(self.f)[0]
        ratio = _Solver(self.Z, self.Z, self.n, rcond).solve(outside)[0]
        total = float(ratio @ self.f)
        if total < _CONSTANT * self.n:
            raise NotFittedError(
                "the gain cannot be told: features of pairs must be able to represent a constant"
            )
        gain = float(ratio @ self.y) / total
        weights = solver.solve(self.y - gain * self.f)[0]
        return weights, gain, float(ratio @ self.Z @ weights) / total

    def seen(self, features: FloatArray) -> BoolArray:
        """Return whether pairs with features (..., D) were seen often enough to tell of them."""
        n_samples = self._solver(DEFAULT_RCOND).n_samples
        return np.asarray(n_samples(features) >= MIN_SAMPLES)

    def _solver(self, rcond: float) -> _Solver:
        if self.n == 0:
            raise NotFittedError("there is no transition of which the action that follows is known")
        return _Solver(self.X, self.Z, self.n, rcond)


def fit_pairs(
    portions: list[Transitions],
    pairs: AllPairs,
    gain: float,
    policy: Sequence[IntArray] | None = None,
    rcond: float = DEFAULT_RCOND,
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
    rcond : float
        Relative cutoff of pseudoinverses.
    """
    chosen = [None] * len(portions) if policy is None else policy
    parts = list(zip(portions, chosen, strict=True))
    sums = reduce(add, (PairSums.of(portion, pairs, actions) for portion, actions in parts))
    rows = (_rows(portion, pairs, actions) for portion, actions in parts)
    return sums._solver(rcond).fit(sums, chain.from_iterable(rows), gain)


def regress_pairs(
    portions: list[Transitions],
    pairs: AllPairs,
    value: Callable[[Any], Any],
    gain: float = 0.0,
    rcond: float = DEFAULT_RCOND,
) -> PairFit:
    """Fit r - g + v(s') by least squares, with values v of encoded observations (n, k)."""
    D = pairs(portions[0].states[:1, 0]).shape[2]
    rows: list[_Rows] = [
        (f, None, excess + value(after))
        for portion in portions
        for f, after, excess in _single_rows(portion, pairs, gain)
    ]
    sums = PairSums._of_rows(rows, D)
    return _Solver(sums.Z, sums.Z, sums.n, rcond).fit(sums, rows, 0.0)


class _Solver:
    """Solves X w = y in the seminorm of Z, of sums over n transitions."""

    def __init__(self, X: FloatArray, Z: FloatArray, n: int, rcond: float) -> None:
        scale = np.sqrt(np.diagonal(Z) / n)
        self._scale = np.where(scale > 0.0, scale, 1.0)
        self._X, self._Z, self._n, self._rcond = X, Z, n, rcond

    def solve(self, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the weights, and the matrix that makes them of y / n."""
        n = self._n
        sides = np.concatenate((y[:, None] / n, np.eye(len(y))), axis=1)
        X, Z = self._X[None] / n, self._Z[None] / n
        moments = Moments(X, Z, sides[None], np.array([n]), self._scale)
        solved = minimize(moments, self._rcond).weights[0]
        return solved[:, 0], solved[:, 1:]

    def fit(self, sums: PairSums, rows: Iterable[_Rows], gain: float) -> PairFit:
        """Return the fit, its covariance by the sum M of f f^T e² over the rows."""
        weights, inverse = self.solve(sums.y - gain * sums.f)
        M = np.zeros_like(sums.Z)
        for f, following, rewards in rows:
            change = f if following is None else f - following
            noisy = f * (rewards - gain - change @ weights)[:, None]
            M += noisy.T @ noisy
        size, U = np.linalg.eigh(M)
        root = inverse @ (U * np.sqrt(np.maximum(size, 0.0))) / self._n
        return PairFit(weights, root, self.n_samples)

    @property
    def n_samples(self) -> Christoffel:
        """How many samples tell of pairs with features (..., D)."""
        return Christoffel.of(self._Z, self._scale)


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
