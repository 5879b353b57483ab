"""`ActionEvidence`: what the trials and the fit of an agent tell of actions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lstd_agent.actions.counted_pairs import CountedPairs
from lstd_agent.actions.vector_pairs import PairFeatures, SuccessorValues, VectorPairs, ended
from lstd_agent.arrays import BoolArray, FloatArray, IntArray, States
from lstd_agent.errors import InvalidInputError, NotFittedError
from lstd_agent.fit import Fit
from lstd_agent.standard_errors import batch_standard_errors
from lstd_agent.trials.policies import Policy


@dataclass(frozen=True, eq=False)
class ActionEvidence:
    """Action values, their standard errors, and how well they were seen.

    By the trials of an agent (`TrialStore`), the source of their rows, the number of batches for
    standard errors, and the latest fit, if there is one.
    """

    trials: Any
    source: Any
    n_batches: int
    fit: Fit | None

    def action_values(
        self,
        observations: Any,
        t: ArrayLike | None = None,
        *,
        policy: Policy | None = None,
        pair_features: PairFeatures | None = None,
    ) -> FloatArray:
        """See `SeminormLSTDAgent.action_values`."""
        states, shape = self.trials.encoding.encode_any(observations)
        time = None if t is None else self._checked_time(t, shape, policy)
        pairs = self._pairs(policy, pair_features)
        if time is None and not pairs.needs_fit:
            q = pairs.values(states, self._gain(policy))
        else:
            fit, at = self._fitted, np.zeros(len(states), dtype=np.int64)
            # A step later successors have the values of `predict`.
            after = at if time is None else fit.system.neighborhood_at(time + 1) + at
            q = np.empty(0)
            for k in np.unique(after).tolist() or [0]:
                value = self._successor_values(fit, None if time is None else k)
                found = pairs.ahead(states, value, fit.system.gain)
                q = np.where((after == k)[:, None], found, q) if q.size else found
        return q.reshape(*shape, q.shape[1])

    def action_standard_errors(
        self,
        observations: Any,
        *,
        policy: Policy | None = None,
        pair_features: PairFeatures | None = None,
    ) -> FloatArray:
        """See `SeminormLSTDAgent.action_standard_errors`."""
        states, shape = self.trials.encoding.encode_any(observations)
        pairs = self._pairs(policy, pair_features)
        if self.n_batches < 2:
            raise NotFittedError(
                "standard errors compare batches of trials, and there is one: collect several "
                "trials, with n_batches > 1"
            )
        gains: list[float] = []
        if policy is None and self.fit is not None:
            gains = self.fit.jackknife.gains
            sizes = self.source.sizes(self.source.groups(self.n_batches))
            if not np.array_equal(self.fit.jackknife.n_trials, sizes):
                raise NotFittedError("trials were added since the fit: call fit again")
        without, n_trials = pairs.without_each(states, gains)
        q = pairs.values(states, self._gain(policy))
        errors = batch_standard_errors(q.ravel(), without.reshape(len(without), -1), n_trials)
        errors = np.maximum(errors, pairs.least_errors(states).ravel())
        return np.where(np.isnan(errors), np.inf, errors).reshape(*shape, q.shape[1])

    def action_coverage(self, observations: Any) -> FloatArray:
        """See `SeminormLSTDAgent.action_coverage`."""
        states, shape = self.trials.encoding.encode_any(observations)
        n = self._pairs(None, None).coverage(states)
        return n.reshape(*shape, n.shape[1])

    def _pairs(
        self, policy: Policy | None, pair_features: PairFeatures | None
    ) -> CountedPairs | VectorPairs:
        """Return what the trials tell of pairs."""
        if not self.source.are_places:
            return VectorPairs(self.trials, self.source, self.n_batches, policy, pair_features)
        if pair_features is not None:
            raise InvalidInputError(
                "pair_features are of vectors, and counted observations have action values of "
                "their own: leave them out"
            )
        return CountedPairs(self.trials, self.fit, policy)

    @property
    def _fitted(self) -> Fit:
        if self.fit is None:
            raise NotFittedError("the agent is not fitted yet: call fit first")
        return self.fit

    def _gain(self, policy: Policy | None) -> float | None:
        """Return the gain of the fit, of the trials' own policy, or None."""
        if policy is not None or (self.fit is None and self.source.are_places):
            return None
        return self._fitted.system.gain

    def _checked_time(self, t: ArrayLike, shape: tuple[int, ...], policy: Any) -> IntArray:
        """Return the timesteps of observations of a shape, or raise."""
        try:
            time = np.asarray(t)
        except ValueError as error:
            raise InvalidInputError(f"t is one timestep, or one for each; got {t!r}") from error
        if time.shape not in ((), shape):
            raise InvalidInputError(
                f"t is one timestep, or one for each of the observations {shape}; got shape "
                f"{time.shape}"
            )
        if policy is not None:
            raise InvalidInputError(
                "at a timestep successors are worth what predict says, which is under the policy "
                "of the trials: leave t= or policy= out"
            )
        self._fitted.system.neighborhood_at(time)  # raises unless these are timesteps
        return time.ravel()

    def _successor_values(self, fit: Fit, k: int | None) -> SuccessorValues:
        """Return the values of successors by one neighbourhood; by default the most sampled one."""

        def value(states: States) -> tuple[FloatArray, BoolArray]:
            n = len(states)
            neighborhood = fit.most_sampled(states) if k is None else np.full(n, k)
            values = fit.system.values(fit.encoding.rows(states), neighborhood)
            determined = np.ones(n, dtype=bool)
            if fit.source.are_places:
                determined = fit.states_determined(states, neighborhood)
            return np.where(ended(states), 0.0, values), determined

        return value
