r"""Action values from features of pairs: LSTDQ for the bias, from transitions of any behaviour.

.. math:: X = E[f(s, a) (f(s, a) - f(s', \pi(s')))^T], \quad Z = E[f(s, a) f(s, a)^T], \quad
          y = E[(r - g \tau) f(s, a)],

solved as `lstd_agent.system.minimizer` solves the equations of states, q(s, a) = f(s, a)^T w.
Whoever chose a, the expectation of r and s' given (s, a) is the same. Constants are left open by
X (a bias is known up to one), and the smallest of all solutions is taken.

The covariance of w is that of X† Σ f e, with temporal differences e.

Source: Lagoudakis & Parr (2003), Least-squares policy iteration, JMLR 4; with r - g in place of
discounting.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from gymnasium import spaces

from lstd_agent.actions.pair_rows import (
    NO_ACTIONS,
    PairFeatureRows,
    PairFeatures,
    Rows,
    SuccessorValues,
    checked_actions,
    have_actions,
    pairs_alone,
    pairs_and_next,
)
from lstd_agent.arrays import FloatArray, IntArray, States
from lstd_agent.errors import InvalidInputError, NotFittedError
from lstd_agent.rows.christoffel import MIN_SAMPLES, Christoffel
from lstd_agent.rows.factors import Factor, Gathering, basis_of_range, reduced, without_each
from lstd_agent.system.minimizer import minimize
from lstd_agent.trials.kept import NO_TIME, KeptTrials
from lstd_agent.trials.policies import Policy, make_actor

RCOND = 1e-5
"""Relative cutoff of the size of features."""

DIFFERENCES = 1e-10
"""Relative cutoff of the size of their differences."""

# Of a constant that features can represent this would be 1.
_CONSTANT = 1e-6

# As many observations are enough for a mean value of the long run.
_N_SETTLED = 20_000


@dataclass(frozen=True, eq=False)
class PairFit:
    """Fitted action values.

    Attributes
    ----------
    weights : ndarray, shape (D,)
    root : ndarray, shape (D, k)
        A root of their covariance: the variance of x^T w is the squared norm of x^T root.
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
        """Return q of features (..., D), NaN where pairs like these were hardly seen."""
        seen = self.christoffel.samples(features / self.scale) >= MIN_SAMPLES
        return np.where(seen, features @ self.weights, np.nan)

    def standard_errors(self, features: FloatArray) -> FloatArray:
        """Return the standard errors of x^T w of features or their differences (..., D)."""
        return np.asarray(np.linalg.norm(features @ self.root, axis=-1))


@dataclass(frozen=True, eq=False)
class PairEquations:
    """The factor of transitions' rows, of which LSTDQ is made.

    Attributes
    ----------
    factor : Factor
        Of rows f, f - f', r, τ, 1, with f' the features of what follows and the policy's action.
    """

    factor: Factor

    @classmethod
    def of(cls, rows: Iterable[Rows], D: int) -> PairEquations:
        """Return the equations of rows of D features."""
        gathering = Gathering(D, 3)
        for f, less, rewards, durations in rows:
            one = np.ones(len(f))
            gathering.add(np.column_stack((f, less, rewards, durations, one)), one)
        return cls(gathering.factor())

    def weights(self, gain: float) -> FloatArray:
        """Return the weights of action values, with a gain that is given."""
        A, B, scale = self._scaled
        return np.asarray(
            minimize(reduced(A, B, self._above(gain), RCOND), RCOND).weights[:, 0] / scale
        )

    def bias(self) -> tuple[FloatArray, float]:
        r"""Return weights, and the mean value in the long run, of whatever behaviour.

        What constants add to the equations lies outside the range of X by a part; the function
        :math:`f(s, a)^T u` of it turns the behaviour's frequencies of pairs into those of the
        policy's long run. They give the gain too.

        Raises
        ------
        NotFittedError
            If the features do not hold a constant: then X tells no gain.
        """
        A, B, scale = self._scaled
        L, _ = basis_of_range(A, RCOND)
        one = L.T @ self._numbers[:, 2]
        of_B, _ = basis_of_range(L.T @ B, DIFFERENCES)
        outside = one - of_B @ (of_B.T @ one)
        share = float(outside @ one)
        if share < _CONSTANT * self.factor.n:
            raise NotFittedError(
                "the gain cannot be told: features of pairs must be able to represent a constant"
            )
        paid, time = (float(outside @ (L.T @ self._numbers[:, i])) for i in (0, 1))
        if time == 0.0:
            raise NotFittedError(NO_TIME)
        gain = paid / time
        weights = self.weights(gain)
        settled = float(outside @ (L.T @ (A @ (weights * scale)))) / share
        return weights, settled

    def fit(self, rows: Iterable[Rows], gain: float, gain_error: float = 0.0) -> PairFit:
        """Return the fit, its covariance by the root of the sum of (f e)(f e)^T over the rows.

        The standard error of the gain, which other samples tell, adds to it.
        """
        A, B, scale = self._scaled
        # The equations as a function of sums over f: c stands for (A^+)^T of them.
        times = self._numbers[:, 1:2]
        sides = np.hstack((self._above(gain), times, np.linalg.pinv(A, rcond=RCOND).T))
        found = minimize(reduced(A, B, sides, RCOND), RCOND).weights / scale[:, None]
        weights, by_gain, inverse = found[:, 0], found[:, 1:2], found[:, 2:] / scale
        noise: FloatArray = np.zeros((0, len(weights)))
        for f, less, rewards, durations in rows:
            error = rewards - gain * durations - less @ weights
            noise = np.asarray(np.linalg.qr(np.vstack((noise, f * error[:, None])), mode="r"))
        root = np.hstack((inverse @ noise.T, gain_error * by_gain))
        return PairFit(weights, root, self.christoffel, scale)

    @cached_property
    def christoffel(self) -> Christoffel:
        """How many samples tell of pairs with scaled features (..., D)."""
        return Christoffel.of(self._scaled[0])

    def n_samples(self, features: FloatArray) -> FloatArray:
        """Return how many samples tell of pairs with features (..., D)."""
        return self.christoffel.samples(features / self._scaled[2])

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
        return self._numbers[:, :1] - gain * self._numbers[:, 1:2]


class VectorPairs:
    """What an agent's trials, whose rows are a source, tell of pairs of vectors and actions.

    Under the policy of the trials, or another one.
    """

    needs_fit = False  # but for the gain

    def __init__(
        self,
        trials: Any,
        source: Any,
        n_batches: int,
        policy: Policy | None,
        features: PairFeatures | None,
    ) -> None:
        if trials.actions is None:
            raise NotFittedError(NO_ACTIONS)
        self._encoding, self._policy = trials.encoding, policy
        self._source, self._n_batches = source, n_batches
        self._n_actions, self._first = trials.actions
        self._pairs = PairFeatureRows(trials.encoding, self._n_actions, features)
        self._all: KeptTrials = source.trials
        self._D = self._pairs(self._all.observations[:1, 0]).shape[2]

    def coverage(self, states: States) -> FloatArray:
        """Return how many transitions tell of each action, shape (n, A)."""
        seen = ((f, f, r, time) for f, _, r, time in pairs_alone(self._all, self._pairs))
        return PairEquations.of(seen, self._D).n_samples(self._pairs(states))

    def values(self, states: States, gain: float | None) -> FloatArray:
        """Return action values (n, A): of the trials' own policy, or those of another's bias."""
        asked, equations = self._pairs(states), self._equations(self._all)
        q = self._solved(equations, asked, gain, self._settled(self._all))
        return np.where(equations.n_samples(asked) >= MIN_SAMPLES, q, np.nan)

    def ahead(self, states: States, value: SuccessorValues, gain: float) -> FloatArray:
        """Return r - g τ + E v(s'), shape (n, A), with given values of successors."""
        rows = (
            (f, f, rewards - gain * durations + value(following)[0], durations)
            for f, following, rewards, durations in pairs_alone(self._all, self._pairs)
        )
        asked, equations = self._pairs(states), PairEquations.of(rows, self._D)
        q = asked @ equations.weights(0.0)
        return np.where(equations.n_samples(asked) >= MIN_SAMPLES, q, np.nan)

    def least_errors(self, states: States) -> FloatArray:
        """Return standard errors (n, A) below which none is: of vectors, 0."""
        return np.zeros((len(states), self._n_actions))

    def without_each(self, states: States, gains: list[float]) -> tuple[FloatArray, IntArray]:
        """Return action values (B, n, A) by all batches but each, and their numbers of trials."""
        groups = self._source.groups(self._n_batches)
        batches = [self._all.take(group) for group in groups]
        factors = without_each([self._equations(each).factor for each in batches])
        settled = [self._settled(each) for each in batches]
        features, n = sum(f for f, _ in settled), sum(n for _, n in settled)
        each: list[Any] = gains or [None] * len(groups)
        asked, q = self._pairs(states), []
        for factor, gain, (own, n_own) in zip(factors, each, settled, strict=True):
            mean = features - own, n - n_own
            q.append(self._solved(PairEquations(factor), asked, gain, mean))
        return np.stack(q), self._source.sizes(groups)

    def _equations(self, trials: KeptTrials) -> PairEquations:
        rows = pairs_and_next(trials, self._pairs, self._chosen(trials))
        return PairEquations.of(rows, self._D)

    def _solved(
        self,
        equations: PairEquations,
        asked: FloatArray,
        gain: float | None,
        settled: tuple[FloatArray, int],
    ) -> FloatArray:
        """Return q of features (n, A, D), relative to the long run; total rewards if trials end."""
        if self._encoding.ends:
            return np.asarray(asked @ equations.weights(gain or 0.0))
        if gain is None:
            weights, mean = equations.bias()
            return np.asarray(asked @ weights - mean)
        features, n = settled
        if n == 0:
            raise NotFittedError(
                "no trial has actions of the second half of all timesteps, which tell of the long "
                "run: lower t_max"
            )
        return np.asarray((asked - features / n) @ equations.weights(gain))

    def _chosen(self, trials: KeptTrials) -> IntArray | None:
        """Return another policy's actions, from 0, in all states that follow, (m, t_max + 1)."""
        if self._policy is None:
            return None
        space = self._encoding.space
        if not isinstance(space, spaces.Box):
            raise InvalidInputError(
                f"action values of another policy need Box observations; got {space}"
            )
        actions = spaces.Discrete(self._n_actions, start=self._first)
        actor = make_actor(self._policy, space, actions, True)
        m, T = trials.rewards.shape
        following = trials.observations[:, 1:].reshape(m * T, -1)
        if following.dtype.kind == "f":
            following = np.nan_to_num(following)  # where trials are over no action matters
        observed = following.reshape(m * T, *space.shape).astype(space.dtype)
        chosen = np.asarray(actor(observed, np.random.default_rng(0)))
        return checked_actions(chosen, self._n_actions, self._first).reshape(m, T)

    def _settled(self, trials: KeptTrials) -> tuple[FloatArray, int]:
        """Return the sum of features (D,) over the second half of all timesteps, and of how many.

        Only where actions are the policy's; of nothing, where the mean is not asked for.
        """
        if self._policy is not None or self._encoding.ends:
            return np.zeros(self._D), 0
        own = have_actions(trials, own=True)
        own[:, : own.shape[1] // 2] = False
        trial, t = np.nonzero(own)
        step = max(1, len(trial) // _N_SETTLED)
        some, at = trial[::step], t[::step]
        every = self._pairs(trials.observations[some, at])
        taken = every[np.arange(len(some)), trials.part("actions")[some, at].astype(np.int64)]
        return taken.sum(axis=0) * (len(trial) / max(1, len(some))), len(trial)
