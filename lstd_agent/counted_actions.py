"""Action values where observations are counted: those of the pooled counts of an agent."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from gymnasium import spaces

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.errors import InvalidInputError, NotFittedError
from lstd_agent.fit import Fit
from lstd_agent.standard_errors import sums_without_each
from lstd_agent.system.action_values import (
    OPEN,
    ActionValues,
    PolicyChain,
    evaluate_actions,
    main_state,
)
from lstd_agent.trials.action_counts import ActionCounts, together
from lstd_agent.trials.encoding import CountedEncoding
from lstd_agent.trials.policies import Policy, make_actor
from lstd_agent.trials.store import TrialStore
from lstd_agent.vector_actions import NO_ACTIONS, checked_actions, fitted


class CountedActions:
    """Action values of counted observations.

    Parameters
    ----------
    collector : TrialStore
    fit : Fit or None
    encoding : CountedEncoding
    policy : policy or None
        Another than that of the trials.
    """

    def __init__(
        self,
        collector: TrialStore,
        fit: Fit | None,
        encoding: CountedEncoding,
        policy: Policy | None,
    ) -> None:
        self._collector, self._encoding, self._fit = collector, encoding, fit
        self._other = policy
        self._counts = self._counts_of(None)

    def coverage(self, states: IntArray) -> FloatArray:
        """Return how many transitions tell of each action, shape (n, A)."""
        return np.asarray(self._counts.n_samples, dtype=np.float64)[states]

    def values(self, states: IntArray, t: IntArray | None) -> FloatArray:
        """Return action values (n, A)."""
        if t is None and self._policy is not None:
            is_own = self._fit is not None and self._other is None
            gain = fitted(self._fit).system.gain if is_own else None
            return self._solved(self._counts, gain)[states]
        fit = fitted(self._fit)
        if t is None:
            return self._backup(fit, None)[states]
        time = np.broadcast_to(t + 1, states.shape)
        q = np.empty((len(states), self._counts.n_actions))
        for each in np.unique(time).tolist():
            q[time == each] = self._backup(fit, each)[states[time == each]]
        return q

    def without_each(self, states: IntArray, gains: list[float]) -> tuple[FloatArray, IntArray]:
        """Return action values (B, n, A) by all batches but each, and their numbers of trials."""
        if self._policy is None:
            raise NotFittedError(
                "standard errors of action values need the policy itself: give it by policy="
            )
        batches = self._collector.batches.sums
        parts = [self._counts_of(i) for i in range(len(batches))]
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
        is_bias = self._other is not None and not self._encoding.ends
        return found.action_values - (found.settled_value if is_bias else 0.0)

    def _found(self, counts: ActionCounts, gain: float | None) -> ActionValues:
        policy, encoding = self._policy, self._encoding
        assert policy is not None
        if encoding.ends:
            return evaluate_actions(counts, policy, encoding.terminal, 0.0)
        if self._fit is not None and self._other is None:
            return evaluate_actions(counts, policy, self._fit.system.references.main, gain)
        return evaluate_actions(counts, policy, self._main, gain)

    @cached_property
    def _main(self) -> int:
        """The state that values are relative to, by all counts."""
        assert self._policy is not None
        n = np.asarray(self._counts.n_samples, dtype=np.float64)
        chain = PolicyChain(self._counts, self._policy)
        return main_state(chain, n.sum(axis=1))

    def _backup(self, fit: Fit, time: int | None) -> FloatArray:
        """Return r - g + E v(s'), shape (S, A), with fitted values of successors at a timestep."""
        counts, encoding = self._counts, self._encoding
        P, rewards = counts.transition_matrix, counts.mean_rewards
        every = np.arange(encoding.n)
        n_ends = encoding.n_states - encoding.n
        if time is None:
            neighborhood = fit.most_sampled(every)
        else:
            neighborhood = fit.system.neighborhood_at(np.full(len(every), time))
        values = fit.system.values(encoding.rows(every), neighborhood)
        values = np.append(values, [0.0] * n_ends)
        told = np.append(fit.states_determined(every, neighborhood), [True] * n_ends)
        share = (P @ told.astype(np.float64)).reshape(rewards.shape)
        mean = (P @ np.where(told, values, 0.0)).reshape(rewards.shape)
        q = rewards - fit.system.gain + mean / np.where(share > 0.0, share, 1.0)
        return np.where((counts.n_samples > 0) & (share >= 1.0 - OPEN), q, np.nan)

    def _counts_of(self, batch: int | None) -> ActionCounts:
        """Return what actions led to: as recorded, or as the states of a deterministic policy tell.

        In all trials, or those of a batch.
        """
        collector, encoding = self._collector, self._encoding
        taken, policy = collector.batches.taken, collector.policy
        recorded = together(*taken)
        if recorded is not None:
            here = recorded if batch is None else taken[batch]
            if here is None:
                return ActionCounts.none(encoding.n_states, recorded.n_actions)
            return here
        table: Any = None if callable(policy) else policy
        if np.ndim(table) != 1 or collector.actions is None:
            raise NotFittedError(NO_ACTIONS)
        n_actions, first = collector.actions
        S = encoding.n_states
        counts = collector.counts if batch is None else collector.batches.sums[batch].counts
        assert counts is not None
        actions = np.append(np.asarray(table) - first, [0] * (S - encoding.n)).astype(np.int64)
        N, R = counts.transition_counts, counts.reward_sums
        rewards = np.bincount(R.indices, weights=R.data, minlength=S).astype(np.float64)
        state, next_state = np.divmod(N.indices.astype(np.int64), S)
        living = state != (encoding.terminal if encoding.ends else -1)
        moves = state[living], next_state[living]
        return ActionCounts.of_policy(n_actions, actions, moves, N.data[living], rewards)

    @cached_property
    def _policy(self) -> FloatArray | None:
        """The policy as probabilities (n_states, A); None of one that only a function tells."""
        encoding, own = self._encoding, self._collector.policy
        n_actions, first = self._collector.actions or (self._counts.n_actions, 0)
        if self._other is not None:
            table = np.asarray(_table_of(self._other, encoding, n_actions, first))
        elif own is not None and not callable(own):
            table = np.asarray(own)
        else:
            return None
        if table.ndim == 1:
            table = np.eye(n_actions)[table - first]
        ended = np.zeros((encoding.n_states - encoding.n, n_actions))
        return np.concatenate((table.astype(np.float64), ended))


def _table_of(policy: Any, encoding: CountedEncoding, n_actions: int, first: int) -> Any:
    """Return a policy as a table, checked: of a function, its actions in all states."""
    actions = spaces.Discrete(n_actions, start=first)
    actor = make_actor(policy, encoding.space, actions, True if callable(policy) else None)
    if not callable(policy) and np.ndim(policy):
        return policy
    if isinstance(encoding.space, spaces.Dict | spaces.Tuple):
        raise InvalidInputError(
            f"action values of another policy need observations in one array; got {encoding.space}"
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
