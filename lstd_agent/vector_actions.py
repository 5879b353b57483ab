"""Action values where observations are vectors: LSTDQ on the kept trials of an agent."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from gymnasium import spaces

from lstd_agent.arrays import FloatArray, IntArray, States
from lstd_agent.errors import InvalidInputError, NotFittedError
from lstd_agent.fit import Fit
from lstd_agent.standard_errors import sums_without_each
from lstd_agent.system.pair_features import PairFeatureRows, PairFeatures
from lstd_agent.system.pair_fit import PairSums, Transitions, regress_pairs
from lstd_agent.trials.batches import Sums
from lstd_agent.trials.encoding import VectorEncoding
from lstd_agent.trials.exploration import are_none, in_words
from lstd_agent.trials.policies import Policy, make_actor
from lstd_agent.trials.store import TrialStore

NO_ACTIONS = (
    "the trials do not tell which actions were taken: collect(..., explore=k) records them, and "
    "takes k exploratory ones in each trial; so does add_trials(..., actions=...) of Discrete "
    "ones, numbered from 0 or by an action_space"
)

# As many observations are enough for a mean value of the long run.
_N_SETTLED = 20_000


def fitted(fit: Fit | None) -> Fit:
    """Return a fit that is there, or raise `NotFittedError`."""
    if fit is None:
        raise NotFittedError("the agent is not fitted yet: call fit first")
    return fit


class VectorActions:
    """What the trials of an agent tell of actions, and features of pairs.

    Parameters
    ----------
    collector : TrialStore
    fit : Fit or None
    encoding : VectorEncoding
    policy : policy or None
        Another than that of the trials.
    features : callable, optional
        Of pairs.
    """

    def __init__(
        self,
        collector: TrialStore,
        fit: Fit | None,
        encoding: VectorEncoding,
        policy: Policy | None,
        features: PairFeatures | None,
    ) -> None:
        if collector.actions is None:
            raise NotFittedError(NO_ACTIONS)
        self._encoding, self._fit, self._policy = encoding, fit, policy
        self._batches = collector.batches
        self._n_actions, self._first = collector.actions
        self.pairs = PairFeatureRows(encoding, self._n_actions, features)

    @cached_property
    def _all(self) -> Transitions:
        return _transitions(self._batches.total)

    def coverage(self, states: States) -> FloatArray:
        """Return how many transitions tell of each action, shape (n, A)."""
        # Whatever they are worth: only how often pairs were seen is asked.
        counted = regress_pairs([self._all], self.pairs, lambda _: 0.0)
        return counted.n_samples(self.pairs(states))

    def values(self, states: States, t: IntArray | None) -> FloatArray:
        """Return action values (n, A): of the trials' own policy, or those of another's bias."""
        if t is not None:
            return self._at(states, fitted(self._fit), np.broadcast_to(t + 1, (len(states),)))
        gain = fitted(self._fit).system.gain if self._policy is None else None
        asked = self.pairs(states)
        sums = PairSums.of(self._all, self.pairs, self._chosen(self._all))
        if gain is None:
            q = self._solved(sums, asked)
        else:
            weights = sums.solve(gain)
            q = (asked - _mean(*self._settled(self._all))) @ weights
        return np.where(sums.seen(asked), q, np.nan)

    def least_errors(self, states: States) -> FloatArray:
        """Return standard errors (n, A) below which none is: of vectors, 0."""
        return np.zeros((len(states), self._n_actions))

    def without_each(self, states: States, gains: list[float]) -> tuple[FloatArray, IntArray]:
        """Return action values (B, n, A) by all batches but each, and their numbers of trials."""
        batches = [_transitions(kept) for kept in self._batches.sums]
        sums = [PairSums.of(each, self.pairs, self._chosen(each)) for each in batches]
        asked, n_trials = self.pairs(states), np.array([len(each.rewards) for each in batches])
        others = list(sums_without_each(sums))
        if self._policy is not None:
            return np.stack([self._solved(each, asked) for each in others]), n_trials
        features, n = (np.array(part) for part in zip(*map(self._settled, batches), strict=True))
        settled = map(_mean, features.sum(axis=0) - features, n.sum() - n)
        q = [
            (asked - mean) @ each.solve(gain)
            for each, gain, mean in zip(others, gains, settled, strict=True)
        ]
        return np.stack(q), n_trials

    def _at(self, states: States, fit: Fit, time: IntArray) -> FloatArray:
        """Return action values (n, A) with successors valued as at timesteps (n,)."""
        asked = self.pairs(states)
        q = np.empty(asked.shape[:2])
        encoding = self._encoding
        for t in np.unique(time).tolist():
            k = int(fit.system.neighborhood_at(np.array([t]))[0])

            def value(following: Any, k: int = k) -> FloatArray:
                rows = encoding.features(following)
                values = fit.system.values(rows, np.full(len(rows), k))
                ended = np.isnan(np.asarray(following, dtype=np.float64)).any(axis=1)
                return np.where(ended, 0.0, values)

            found = regress_pairs([self._all], self.pairs, value, fit.system.gain)
            here = time == t
            q[here] = np.where(found.seen(asked[here]), found.values(asked[here]), np.nan)
        return q

    def _solved(self, sums: PairSums, asked: FloatArray) -> FloatArray:
        if self._encoding.ends:
            return np.asarray(asked @ sums.solve(0.0))
        weights, _, settled = sums.solve_bias()
        return np.asarray(asked @ weights - settled)

    def _chosen(self, transitions: Transitions) -> IntArray | None:
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
        m, T = transitions.rewards.shape
        following = transitions.states[:, 1:].reshape(m * T, -1)
        if following.dtype.kind == "f":
            following = np.nan_to_num(following)  # where trials are over no action matters
        observed = following.reshape(m * T, *space.shape).astype(space.dtype)
        chosen = np.asarray(actor(observed, np.random.default_rng(0)))
        return checked_actions(chosen, self._n_actions, self._first).reshape(m, T)

    def _settled(self, transitions: Transitions) -> tuple[FloatArray, int]:
        """Return the sum of features (D,) over the second half of all timesteps, and of how many.

        Only where actions are the policy's; 0 of 1 if trials end.
        """
        half = transitions.actions.shape[1] // 2
        states, action = transitions.states[:, half:-1], transitions.actions[:, half:]
        if self._encoding.ends:
            return np.zeros(self.pairs(transitions.states[:1, 0]).shape[2]), 1
        own = np.ones(action.shape, dtype=bool)
        if transitions.known is not None and transitions.explored is not None:
            own = (transitions.known & ~transitions.explored)[:, half:]
        place = np.flatnonzero(own)
        some = place[:: max(1, len(place) // _N_SETTLED)]
        rows = self.pairs(states.reshape(-1, states.shape[2])[some])
        taken = rows[np.arange(len(some)), action.ravel()[some]]
        return taken.sum(axis=0) * (len(place) / max(1, len(some))), len(place)


def _mean(features: FloatArray, n: int) -> FloatArray:
    """Return mean features of the long run."""
    if n == 0:
        raise NotFittedError(
            "no trial has actions of the second half of all timesteps, which tell of the long run: "
            "lower t_max"
        )
    return features / n


def checked_actions(chosen: Any, n_actions: int, first: int) -> IntArray:
    """Return a policy's actions from 0, or raise `InvalidInputError` if one of them is none."""
    taken = np.asarray(chosen)
    wrong = are_none(taken, (n_actions, first))
    if wrong.any():
        raise InvalidInputError(
            f"the policy takes action {taken[wrong][0]}; actions are {in_words((n_actions, first))}"
        )
    return (taken - first).astype(np.int64)


def _transitions(sums: Sums) -> Transitions:
    """Return kept trials of which actions are known."""
    total = sums.kept
    assert total is not None
    if total.actions is None:
        raise NotFittedError(NO_ACTIONS)
    known = (total.actions >= 0) & (np.arange(total.t_max + 1) < total.all_lengths[:, None])
    explored = np.zeros_like(known) if total.explored is None else total.explored
    return Transitions(
        total.observations, np.maximum(total.actions, 0), total.rewards, known, explored
    )
