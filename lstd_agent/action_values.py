"""Action values of an agent's policy: from its samples, its fit, and what it knows of actions."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.errors import InvalidInputError, NotFittedError
from lstd_agent.fit import Fit
from lstd_agent.pair_values import NO_ACTIONS, VectorActions, checked_actions, fitted
from lstd_agent.standard_errors import batch_standard_errors, sums_without_each
from lstd_agent.system.action_values import (
    OPEN,
    ActionValues,
    PolicyChain,
    evaluate_actions,
    main_state,
)
from lstd_agent.system.pair_features import PairFeatures
from lstd_agent.trials.action_counts import ActionCounts, together
from lstd_agent.trials.collector import TrialCollector
from lstd_agent.trials.encoding import CountedEncoding, Encoding
from lstd_agent.trials.policies import Policy, make_actor


def action_values(
    collector: TrialCollector,
    fit: Fit | None,
    observations: Any,
    t: ArrayLike | None,
    policy: Policy | None,
    pair_features: PairFeatures | None,
) -> FloatArray:
    """Return action values; see `SeminormLSTDAgent.action_values`."""
    encoding = _known(collector, pair_features)
    states, shape = encoding.encode_any(observations)
    time = None if t is None else np.asarray(t)
    if time is not None and time.shape not in ((), shape):
        raise InvalidInputError(
            f"t is one timestep, or one for each of the observations {shape}; got shape "
            f"{time.shape}"
        )
    if time is not None and policy is not None:
        raise InvalidInputError(
            "at a timestep successors are worth what predict says, which is under the policy of "
            "the trials: leave t= or policy= out"
        )
    q = _told(collector, fit, encoding, policy, pair_features).values(states, time)
    return q.reshape(*shape, q.shape[1])


def action_standard_errors(
    collector: TrialCollector,
    fit: Fit | None,
    observations: Any,
    policy: Policy | None,
    pair_features: PairFeatures | None,
) -> FloatArray:
    """Return standard errors; see `SeminormLSTDAgent.action_standard_errors`."""
    encoding = _known(collector, pair_features)
    states, shape = encoding.encode_any(observations)
    told = _told(collector, fit, encoding, policy, pair_features)
    q = told.values(states, None)
    if len(collector.batches.sums) < 2:
        raise NotFittedError(
            "standard errors compare batches of trials, and there is one: collect in several rounds"
        )
    gains = [] if fit is None or policy is not None else fit.gains_without_each
    without, n_trials = told.without_each(states, gains)
    errors = batch_standard_errors(q.ravel(), without.reshape(len(without), -1), n_trials)
    errors = np.maximum(errors, told.least_errors(states).ravel())
    return np.where(np.isnan(errors), np.inf, errors).reshape(*shape, q.shape[1])


def action_coverage(collector: TrialCollector, observations: Any) -> FloatArray:
    """Return numbers of transitions; see `SeminormLSTDAgent.action_coverage`."""
    encoding = _known(collector)
    states, shape = encoding.encode_any(observations)
    if isinstance(encoding, CountedEncoding):
        n = np.asarray(_counts(collector, encoding).n_samples, dtype=np.float64)[states]
    else:
        n = VectorActions(collector, None, encoding, None, None).coverage(states)
    return n.reshape(*shape, n.shape[1])


def _known(collector: TrialCollector, features: PairFeatures | None = None) -> Encoding:
    if collector.encoding is None or not collector.batches.sums:
        raise NotFittedError("there are no trials yet: call collect first")
    if features is not None and isinstance(collector.encoding, CountedEncoding):
        raise InvalidInputError(
            "pair_features are of vectors, and counted observations have action values of their "
            "own: leave them out"
        )
    return collector.encoding


def _told(
    collector: TrialCollector,
    fit: Fit | None,
    encoding: Encoding,
    policy: Policy | None,
    pair_features: PairFeatures | None,
) -> _Counted | VectorActions:
    """Return what the trials tell of actions."""
    if isinstance(encoding, CountedEncoding):
        return _Counted(collector, fit, encoding, policy)
    return VectorActions(collector, fit, encoding, policy, pair_features)


def _counts(
    collector: TrialCollector, encoding: CountedEncoding, batch: int | None = None
) -> ActionCounts:
    """Return what actions led to: as recorded, or as the states of a deterministic policy tell.

    In all trials, or those of a batch.
    """
    taken = collector.batches.taken
    policy: Any = collector.policy
    recorded = together(*taken)
    if recorded is not None:
        here = recorded if batch is None else taken[batch]
        return ActionCounts.none(encoding.n_states, recorded.n_actions) if here is None else here
    if policy is None or callable(policy) or np.ndim(policy) != 1 or collector.actions is None:
        raise NotFittedError(NO_ACTIONS)
    n_actions, first = collector.actions
    counts, S = collector.counts, encoding.n_states
    if batch is not None:
        counts = collector.batches.sums[batch]
    actions = np.append(np.asarray(policy) - first, [0] * (S - encoding.n)).astype(np.int64)
    N, R = counts.transition_counts, counts.reward_sums
    rewards = np.bincount(R.indices, weights=R.data, minlength=S).astype(np.float64)
    state, next_state = np.divmod(N.indices.astype(np.int64), S)
    living = state != (encoding.terminal if encoding.ends else -1)
    moves = state[living], next_state[living]
    return ActionCounts.of_policy(n_actions, actions, moves, N.data[living], rewards)


class _Counted:
    """Action values of counted observations.

    Parameters
    ----------
    collector : TrialCollector
    fit : Fit or None
    encoding : CountedEncoding
    policy : policy or None
        Another than that of the trials.
    """

    def __init__(
        self,
        collector: TrialCollector,
        fit: Fit | None,
        encoding: CountedEncoding,
        policy: Policy | None,
    ) -> None:
        self._collector, self._encoding, self._fit = collector, encoding, fit
        self._counts = _counts(collector, encoding)
        self._is_other = policy is not None
        self._policy: FloatArray | None = None
        if policy is not None:
            self._policy = self._probabilities(policy)
        elif collector.policy is not None and not callable(collector.policy):
            self._policy = self._probabilities(collector.policy)

    def values(self, states: IntArray, t: IntArray | None) -> FloatArray:
        """Return action values (n, A)."""
        if t is None and self._policy is not None:
            gain = None
            if self._fit is not None and not self._is_other:
                gain = self._fit.system.gain
            return self._solved(self._counts, gain)[states]
        following = None if t is None else np.unique(t + 1)
        fit = fitted(self._fit)
        return _one_backup(self._counts, fit, self._encoding, states, following, t)

    def without_each(self, states: IntArray, gains: list[float]) -> tuple[FloatArray, IntArray]:
        """Return action values (B, n, A) by all batches but each, and their numbers of trials."""
        if self._policy is None:
            raise NotFittedError(
                "standard errors of action values need the policy itself: give it by policy="
            )
        batches = self._collector.batches.sums
        parts = [_counts(self._collector, self._encoding, i) for i in range(len(batches))]
        tells = [i for i, part in enumerate(parts) if len(part.key)]
        if len(tells) < 2:
            raise NotFittedError(
                "actions are known of a single batch of trials: collect or add them in several"
            )
        others = sums_without_each([parts[i] for i in tells])
        each = [gains[i] if gains else None for i in tells]
        q = [self._solved(counts, gain)[states] for counts, gain in zip(others, each, strict=True)]
        return np.stack(q), np.array([batches[i].n_trials for i in tells])

    def least_errors(self, states: IntArray) -> FloatArray:
        """Return standard errors (n, A) of r + v(s') alone, which a few like samples hide."""
        return self._found(self._counts, None).standard_errors[states]

    def _solved(self, counts: ActionCounts, gain: float | None) -> FloatArray:
        """Return action values (S, A) of the policy by some counts."""
        found = self._found(counts, gain)
        is_bias = self._is_other and not self._encoding.ends
        return found.action_values - (found.settled_value if is_bias else 0.0)

    def _found(self, counts: ActionCounts, gain: float | None) -> ActionValues:
        policy, encoding = self._policy, self._encoding
        assert policy is not None
        if encoding.ends:
            return evaluate_actions(counts, policy, encoding.terminal, 0.0)
        if self._fit is not None and not self._is_other:
            return evaluate_actions(counts, policy, self._fit.system.references.main, gain)
        return evaluate_actions(counts, policy, self._main, gain)

    @cached_property
    def _main(self) -> int:
        """The state that values are relative to, by all counts."""
        assert self._policy is not None
        n = np.asarray(self._counts.n_samples, dtype=np.float64)
        seen = np.where(n > 0, self._policy, 0.0)
        chain = PolicyChain(self._counts.transition_matrix, self._counts.mean_rewards, seen)
        return main_state(chain, n.sum(axis=1))

    def _probabilities(self, policy: Policy) -> FloatArray:
        """Return a policy as probabilities (n_states, A)."""
        encoding = self._encoding
        n_actions, first = self._collector.actions or (self._counts.n_actions, 0)
        table: Any = policy
        if self._is_other:
            table = self._table_of(policy, n_actions, first)
        table = np.asarray(table)
        if table.ndim == 1:
            table = np.eye(n_actions)[table - first]
        ended = np.zeros((encoding.n_states - encoding.n, n_actions))
        return np.concatenate((table.astype(np.float64), ended))

    def _table_of(self, policy: Any, n_actions: int, first: int) -> Any:
        """Return a policy as a table, checked: of a function, its actions in all states."""
        encoding = self._encoding
        actions = spaces.Discrete(n_actions, start=first)
        actor = make_actor(policy, encoding.space, actions, True if callable(policy) else None)
        if not callable(policy) and np.ndim(policy):
            return policy
        if isinstance(encoding.space, spaces.Dict | spaces.Tuple):
            raise InvalidInputError(
                f"action values of another policy need observations in one array; got "
                f"{encoding.space}"
            )
        shape = encoding.space.shape or ()
        observed = encoding.observed(np.arange(encoding.n)).reshape(encoding.n, *shape)
        rng = np.random.default_rng(0)  # for the interface: a function draws from its own
        answer = np.asarray(actor(observed, rng))
        if not np.array_equal(answer, actor(observed, rng)):
            raise InvalidInputError(
                "the policy answers differently from one call to the next: give its probabilities "
                "(S, A)"
            )
        return checked_actions(answer, n_actions, first) + first


def _one_backup(
    counts: ActionCounts,
    fit: Fit,
    encoding: CountedEncoding,
    states: IntArray,
    following: IntArray | None,
    t: IntArray | None,
) -> FloatArray:
    """Return r - g + E v(s') with the fitted values of successors, at the timesteps asked for."""
    P, rewards, n = counts.transition_matrix, counts.mean_rewards, counts.n_samples
    every = np.arange(encoding.n)
    n_ends = encoding.n_states - encoding.n

    def backup(time: int | None) -> FloatArray:
        if time is None:
            samples = fit.occupancy_of(every) * np.maximum(fit.system.n_samples, 1)[:, None]
            neighborhood: IntArray = np.argmax(samples, axis=0)
        else:
            neighborhood = fit.system.neighborhood_at(np.full(len(every), time))
        values = fit.system.values(encoding.rows(every), neighborhood)
        values = np.append(values, [0.0] * n_ends)
        told = np.append(fit.states_determined(every, neighborhood), [True] * n_ends)
        share = (P @ told.astype(np.float64)).reshape(rewards.shape)
        mean = (P @ np.where(told, values, 0.0)).reshape(rewards.shape)
        q = rewards - fit.system.gain + mean / np.where(share > 0.0, share, 1.0)
        return np.where((n > 0) & (share >= 1.0 - OPEN), q, np.nan)

    if following is None or t is None:
        return backup(None)[states]
    each = np.broadcast_to(t + 1, states.shape)
    q = np.empty((len(states), counts.n_actions))
    for time in following.tolist():
        q[each == time] = backup(time)[states[each == time]]
    return q
