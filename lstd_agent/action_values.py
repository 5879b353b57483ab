"""`ActionEvidence`: what the trials and the fit of an agent tell of actions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lstd_agent.arrays import FloatArray, States
from lstd_agent.counted_actions import CountedActions
from lstd_agent.errors import InvalidInputError, NotFittedError
from lstd_agent.fit import Fit
from lstd_agent.standard_errors import batch_standard_errors
from lstd_agent.system.pair_features import PairFeatures
from lstd_agent.trials.encoding import CountedEncoding, Encoding
from lstd_agent.trials.policies import Policy
from lstd_agent.trials.store import TrialStore
from lstd_agent.vector_actions import VectorActions


@dataclass(frozen=True, eq=False)
class ActionEvidence:
    """Action values, their standard errors, and how well they were seen.

    Attributes
    ----------
    collector : TrialStore
    fit : Fit or None
        The latest, if there is one.
    """

    collector: TrialStore
    fit: Fit | None

    def action_values(
        self,
        observations: Any,
        t: ArrayLike | None = None,
        *,
        policy: Policy | None = None,
        pair_features: PairFeatures | None = None,
    ) -> FloatArray:
        """Return what actions are worth, with the policy ever after: q(s, a).

        They come from transitions of recorded actions, whoever chose them: see ``explore`` of
        `collect`, and `add_trials`. Of counted observations they are those of the pooled counts
        (see `lstd_agent.system.action_values`), whatever the features; of vectors, LSTDQ in
        features of pairs (see `lstd_agent.system.pair_fit`).

        Parameters
        ----------
        observations : one observation, or a batch of m
        t : int or array_like of int, shape (m,), optional
            Timesteps at which the actions are taken: then successors are valued as `predict`
            values them a timestep later.
        policy : array_like or callable, optional
            Another policy than that of the trials, whose gain is told by the same transitions. A
            function takes batches, and answers alike each time.
        pair_features : callable, optional
            Of vectors (n, k) and actions (n,) from 0, to features of pairs (n, d). By default the
            agent's features and a constant, apart for each action.

        Returns
        -------
        ndarray, shape (m, A) or (A,)
            Relative like the values of `predict`; of another policy, those of its bias. NaN where
            the samples do not tell: of pairs never seen, or of which too much leads to where
            nothing was seen.

        Raises
        ------
        NotFittedError
            If no trials tell actions; before `fit`, unless of a policy that is given here, or as
            an array, which then is relative to a state of its own.
        InvalidInputError
            If an argument does not fit.
        """
        encoding, states, shape = self._asked(observations)
        time = None if t is None else np.asarray(t)
        if time is not None and time.shape not in ((), shape):
            raise InvalidInputError(
                f"t is one timestep, or one for each of the observations {shape}; got shape "
                f"{time.shape}"
            )
        if time is not None and policy is not None:
            raise InvalidInputError(
                "at a timestep successors are worth what predict says, which is under the policy "
                "of the trials: leave t= or policy= out"
            )
        q = self._told(encoding, policy, pair_features).values(states, time)
        return q.reshape(*shape, q.shape[1])

    def action_standard_errors(
        self,
        observations: Any,
        *,
        policy: Policy | None = None,
        pair_features: PairFeatures | None = None,
    ) -> FloatArray:
        """Return standard errors of `action_values`, by batches of trials (jackknife).

        Those of successors' values and of the gain are part of them. Of counted observations they
        are at least those of the mean of r + v(s') over an action's own transitions, by which
        `PolicyIteration` tells better actions: successors' values are common to all actions.

        Parameters
        ----------
        observations, policy, pair_features
            As in `action_values`.

        Returns
        -------
        ndarray, shape (m, A) or (A,)
            Infinite where the samples do not tell the value, or, of counted observations, those
            of a single batch alone do.

        Raises
        ------
        NotFittedError
            Where `action_values` does; if there are fewer than two batches of trials; of counted
            trials of a function, unless it is given as ``policy``.
        """
        encoding, states, shape = self._asked(observations)
        told = self._told(encoding, policy, pair_features)
        q = told.values(states, None)
        if len(self.collector.batches.sums) < 2:
            raise NotFittedError(
                "standard errors compare batches of trials, and there is one: collect in several "
                "rounds"
            )
        gains = [] if self.fit is None or policy is not None else self.fit.gains_without_each
        without, n_trials = told.without_each(states, gains)
        errors = batch_standard_errors(q.ravel(), without.reshape(len(without), -1), n_trials)
        errors = np.maximum(errors, told.least_errors(states).ravel())
        return np.where(np.isnan(errors), np.inf, errors).reshape(*shape, q.shape[1])

    def action_coverage(self, observations: Any) -> FloatArray:
        """Return how many transitions tell of each action.

        Parameters
        ----------
        observations : one observation, or a batch of m

        Returns
        -------
        ndarray, shape (m, A) or (A,)
            Numbers of transitions; of vectors, how many what was seen amounts to, by default
            features of pairs.
        """
        encoding, states, shape = self._asked(observations)
        n = self._told(encoding, None, None).coverage(states)
        return n.reshape(*shape, n.shape[1])

    def _asked(self, observations: Any) -> tuple[Encoding, States, tuple[int, ...]]:
        """Return of which states (m, ...), encoded how and of what shape, values are asked."""
        encoding = self.collector.encoding
        if encoding is None or not self.collector.batches.sums:
            raise NotFittedError("there are no trials yet: call collect first")
        return encoding, *encoding.encode_any(observations)

    def _told(
        self, encoding: Encoding, policy: Policy | None, pair_features: PairFeatures | None
    ) -> CountedActions | VectorActions:
        """Return what the trials tell of actions."""
        if not isinstance(encoding, CountedEncoding):
            return VectorActions(self.collector, self.fit, encoding, policy, pair_features)
        if pair_features is not None:
            raise InvalidInputError(
                "pair_features are of vectors, and counted observations have action values of "
                "their own: leave them out"
            )
        return CountedActions(self.collector, self.fit, encoding, policy)
