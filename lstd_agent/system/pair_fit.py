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

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.statistics.equations import Moments
from lstd_agent.system.minimizer import DEFAULT_RCOND, minimize

MIN_SAMPLES = 10.0
"""A pair that amounts to fewer samples was not seen; see `lstd_agent.statistics.moments`."""

AllPairs = Callable[[Any], FloatArray]
"""Features (n, A, D) of n encoded observations with each action; 0 where trials are over."""

PairPolicy = Callable[[FloatArray], IntArray]
"""Actions (n,) of n observations by their features (n, A, D); -1 where there is none."""

_CHUNK_SIZE = 2**21
_RANGE_RCOND = 1e-10
_RANGE_TOLERANCE = 1e-3


@dataclass(frozen=True, eq=False)
class Transitions:
    """Transitions of trials, in the order of time.

    Attributes
    ----------
    states : ndarray, shape (m, t_max + 2, k)
        Encoded observations, NaN where trials are over.
    actions : ndarray of int, shape (m, t_max + 1)
    rewards : ndarray, shape (m, t_max + 1)
    """

    states: Any
    actions: IntArray
    rewards: FloatArray


@dataclass(frozen=True, eq=False)
class PairFit:
    """Fitted action values.

    Attributes
    ----------
    weights : ndarray, shape (D,)
    root : ndarray, shape (D, D)
        A root of their covariance: that of x^T w is the squared norm of x^T root.
    gain : float
    """

    weights: FloatArray
    root: FloatArray
    gain: float
    _scale: FloatArray
    _eigenvalues: FloatArray
    _basis: FloatArray

    def values(self, features: FloatArray) -> FloatArray:
        """Return q of features (..., D)."""
        return np.asarray(features @ self.weights)

    def standard_errors(self, features: FloatArray) -> FloatArray:
        """Return the standard errors of x^T w of features or their differences (..., D)."""
        return np.asarray(np.linalg.norm(features @ self.root, axis=-1))

    def n_samples(self, features: FloatArray) -> FloatArray:
        """Return how many samples tell of pairs with features (..., D): 1 / (f^T Z† f).

        0 where f is not in the range of Z.
        """
        x = features / self._scale
        along = x @ self._basis
        size = np.linalg.norm(x, axis=-1)
        outside = np.linalg.norm(x - along @ self._basis.T, axis=-1)
        leverage = (along**2 / self._eigenvalues).sum(axis=-1)
        inside = (outside <= _RANGE_TOLERANCE * size) & (leverage > 0.0)
        return np.asarray(np.where(inside, 1.0 / np.where(inside, leverage, 1.0), 0.0))

    def seen(self, features: FloatArray) -> BoolArray:
        """Return whether pairs with features (..., D) were seen often enough to tell of them."""
        return np.asarray(self.n_samples(features) >= MIN_SAMPLES)


def fit_pairs(
    portions: list[Transitions],
    pairs: AllPairs,
    policy: PairPolicy,
    gain: float,
    rcond: float = DEFAULT_RCOND,
) -> PairFit:
    """Fit the action values of a policy.

    Parameters
    ----------
    portions : list of Transitions
        Of any behaviour.
    pairs : callable
        Features of observations with each action.
    policy : callable
        Where it has no action, the one that was taken next stands for it.
    gain : float
    rcond : float
        Relative cutoff of pseudoinverses.
    """
    D = pairs(portions[0].states[:1, 0]).shape[2]
    Z, X, y, n = np.zeros((D, D)), np.zeros((D, D)), np.zeros(D), 0
    for f, following, excess in _rows(portions, pairs, policy, gain):
        Z += f.T @ f
        X += f.T @ (f - following)
        y += f.T @ excess
        n += len(f)
    scale = np.sqrt(np.diagonal(Z) / n)
    scale = np.where(scale > 0.0, scale, 1.0)
    number = np.array([n])
    # With the unit matrix for right-hand sides the minimizer is the map from y to w.
    sides = np.concatenate((y[:, None] / n, np.eye(D)), axis=1)
    moments = Moments(X[None] / n, Z[None] / n, sides[None], number, scale)
    solved = minimize(moments, rcond).weights[0]
    weights, inverse = solved[:, 0], solved[:, 1:]
    M = np.zeros((D, D))
    for f, following, excess in _rows(portions, pairs, policy, gain):
        difference = excess - (f - following) @ weights
        noisy = f * difference[:, None]
        M += noisy.T @ noisy
    size, U = np.linalg.eigh(M)
    root = inverse @ (U * np.sqrt(np.maximum(size, 0.0))) / n
    eigenvalues, basis = np.linalg.eigh(Z / np.outer(scale, scale))
    keep = eigenvalues > _RANGE_RCOND * eigenvalues[-1]
    return PairFit(weights, root, gain, scale, eigenvalues[keep], basis[:, keep])


def _rows(
    portions: list[Transitions], pairs: AllPairs, policy: PairPolicy, gain: float
) -> Iterator[tuple[FloatArray, FloatArray, FloatArray]]:
    """Yield f(s, a), f(s', π(s')) and r - g of some transitions at a time."""
    for portion in portions:
        m, n_timesteps = portion.rewards.shape
        first = pairs(portion.states[:1, 0])
        step = max(1, _CHUNK_SIZE // (first[0].size * (n_timesteps + 1)))
        for start in range(0, m, step):
            block = slice(start, start + step)
            yield _block(portion, block, pairs, policy, gain)


def _block(
    portion: Transitions, block: slice, pairs: AllPairs, policy: PairPolicy, gain: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    states = portion.states[block]
    action = portion.actions[block].astype(np.int64)
    n, T = action.shape
    both = pairs(states.reshape(n * (T + 1), -1))
    both = both.reshape(n, T + 1, *both.shape[1:])
    trial, t = np.ogrid[:n, :T]
    f = both[trial, t, action]
    successors = both[:, 1:]
    chosen = policy(successors.reshape(n * T, *both.shape[2:])).reshape(n, T)
    # What follows the last timestep has no action taken.
    taken = np.concatenate((action[:, 1:], np.full((n, 1), -1)), axis=1)
    chosen = np.where(chosen < 0, taken, chosen)
    living = np.isfinite(np.asarray(states[:, :-1], dtype=np.float64)).all(axis=2)
    use = living & (chosen >= 0)
    following = successors[trial, t, np.maximum(chosen, 0)]
    return f[use], following[use], portion.rewards[block][use] - gain
