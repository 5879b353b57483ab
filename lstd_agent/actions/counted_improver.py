"""Improvement where states are counted: policy iteration on the counts of all behaviours.

Counts of what actions lead to serve every policy, so that one collection is enough for several
improvements: the policy is evaluated and improved on the same counts until nothing changes, and
only then tried out. An action replaces another where its advantage q(s, a) - q(s, π(s)) exceeds so
many of its standard errors. Where the policy leads from a state to none that is evaluated, it takes
what leads there most likely.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lstd_agent.actions.advantages import UNKNOWN, Advantages, better_actions
from lstd_agent.actions.counted_pairs import ActionValues, PolicyChain
from lstd_agent.actions.record import Earned
from lstd_agent.actions.returns import ReturnRecording, Returns
from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.trials.counts import ActionCounts

# What is smaller beside values is rounding.
_ROUNDING = 1e-9

# Policy iteration on finite counts ends by itself, after a few rounds; this is for what noise does.
_MOST_ROUNDS = 100


@dataclass(frozen=True, eq=False)
class CountedSamples:
    """What a file holds of a policy that is improved by counts: the attributes of that."""

    counts: ActionCounts
    starts: FloatArray
    actions: IntArray


class CountedImprover:
    """A deterministic policy of counted states, improved by counts.

    An action has to be better by ``n_errors`` standard errors of the means of r + v(s'). The policy
    to begin with has actions (S,) from 0; without it, actions are tried out uniformly first.
    """

    few_changes = 0
    """A search is over where no more states than so many change their actions."""

    def __init__(
        self,
        encoding: Any,
        n_actions: int,
        first_action: int,
        n_errors: float,
        policy: IntArray | None = None,
    ) -> None:
        S = encoding.n_states
        self.encoding = encoding
        self.first_action = first_action
        self.n_errors = n_errors
        self.actions = np.full(S, UNKNOWN) if policy is None else policy.copy()
        self.counts = ActionCounts.none(S, n_actions)  # of all behaviours so far
        self.starts: FloatArray = np.zeros(S)  # in how many trials each state was the first

    def recording(self, t_max: int) -> ReturnRecording:
        """Return how trials are recorded: starts and tail rewards, beside counts of actions."""
        return ReturnRecording(self.encoding, 1, self.counts.n_actions, t_max)

    def add(self, rounds: Sequence[Returns]) -> Earned:
        """Add trials of any behaviour; return what they earned."""
        for finished in rounds:
            assert finished.taken is not None
            self.counts = self.counts + finished.taken
            self.starts += np.bincount(finished.starts, minlength=len(self.starts))
        return Earned.of(*np.concatenate([each.numbers for each in rounds], axis=1))

    def evaluate(self, *, from_start: bool = False) -> ActionValues:
        """Return the action values of the policy by all counts.

        Where it has no action, it takes them as often as they were taken. Of several recurrent
        classes, values are relative to that of the largest gain, or to one that the start leads to.
        """
        counts = self.counts
        n = np.asarray(counts.n_samples, dtype=np.float64)
        policy = n / np.maximum(n.sum(axis=1, keepdims=True), 1.0)
        known = np.flatnonzero(self.actions != UNKNOWN)
        policy[known] = np.eye(counts.n_actions)[self.actions[known]]
        chain = PolicyChain(counts, policy)
        if self.encoding.ends:
            return ActionValues(chain, self.encoding.terminal, 0.0)
        return ActionValues(
            chain, chain.main_state(np.flatnonzero(self.starts) if from_start else None)
        )

    def evaluate_start(self) -> tuple[float, float]:
        """Return the policy's gain, and its mean bias of the start, NaN if not determined."""
        found = self.evaluate(from_start=True)
        started = self.starts > 0
        mean = np.average(found.values[started], weights=self.starts[started])
        return found.gain, float(mean - found.settled_value)

    def improve(self) -> int:
        """Improve the policy until nothing changes; return in how many states it changed."""
        before = self.actions
        for _ in range(_MOST_ROUNDS):
            better = self._better()
            if np.array_equal(better, self.actions):
                break
            self.actions = better
        return int(np.count_nonzero(before != self.actions))

    def _better(self) -> IntArray:
        """Return better actions than those of the policy, where there are any."""
        found, actions = self.evaluate(), self.actions
        errors, taken = found.standard_errors, np.maximum(actions, 0)
        better = better_actions(
            found.action_values,
            actions,
            self.n_errors,
            lambda s, a: np.hypot(errors[s, a], errors[s, taken[s]]),
            _rounding(found),
        )
        # Change what leads to no evaluated state, where another action does.
        share, every = found.determined_shares, np.arange(len(actions))
        stuck = (actions != UNKNOWN) & np.isnan(found.values)
        stuck &= self.counts.n_samples[every, taken] > 0
        leads = stuck & (share.max(axis=1) > share[every, taken] + _ROUNDING)
        better[leads] = np.argmax(share[leads], axis=1)
        return better

    def advantages(self) -> Advantages:
        """Return what all actions are worth beside the policy's, in states that were met."""
        found, taken = self.evaluate(), np.maximum(self.actions, 0)
        errors, n = found.advantage_errors(taken), self.counts.n_samples
        met = np.flatnonzero((self.actions != UNKNOWN) & (n.sum(axis=1) > 0))
        q = found.action_values[met]
        difference = q - q[np.arange(len(met)), taken[met]][:, None]
        for part in (difference, errors):
            part[np.abs(part) <= _rounding(found)] = 0.0
        return Advantages(met, taken[met], difference, errors[met], n[met] > 0)

    def action_values(self, states: IntArray) -> FloatArray:
        """Return the policy's action values, shape (m, A)."""
        return self.evaluate().action_values[states]

    def snapshot(self) -> IntArray:
        """Return the actions of the policy."""
        return self.actions.copy()

    @property
    def samples(self) -> CountedSamples:
        """What a file holds."""
        return CountedSamples(self.counts, self.starts, self.actions)

    def restore(self, samples: Any, tried: Sequence[IntArray]) -> None:
        """Take the samples of a saved search, and check the policies that it tried.

        Raises
        ------
        InvalidInputError
            If they are not of these states and actions.
        """
        S, A = self.counts.n_states, self.counts.n_actions
        if not isinstance(samples, CountedSamples):
            raise InvalidInputError("its samples are not counted")
        counts, starts, actions = samples.counts, samples.starts, samples.actions
        if (counts.n_states, counts.n_actions, counts.n_batches) != (S, A, 1):
            raise InvalidInputError(f"its counts are not of {S} states and {A} actions")
        for each in (actions, *tried):
            is_policy = each.shape == (S,) and each.dtype.kind == "i"
            if not is_policy or each.min() < UNKNOWN or each.max() >= A:
                raise InvalidInputError(f"a policy of {S} states and {A} actions is not {each}")
        if starts.shape != (S,) or not (np.isfinite(starts) & (starts >= 0.0)).all():
            raise InvalidInputError(f"its starts are not of {S} states")
        self.counts, self.starts, self.actions = counts, starts, actions

    def policy(self, snapshot: IntArray | None = None) -> Any:
        """Return the policy, or that of a snapshot, as `SeminormLSTDAgent.collect` takes it.

        Actions (S,) of Discrete observations, or else a function of batches. Where there is no
        action it holds the first.
        """
        actions = np.maximum(self.actions if snapshot is None else snapshot, 0)
        actions = actions + self.first_action
        if self.encoding.is_discrete:
            return actions[: self.encoding.n]
        return TablePolicy(self.encoding, actions)

    def unknown(self) -> Callable[[Any], BoolArray] | None:
        """Return what tells of observations whether the policy has no action for them."""
        missing = self.actions == UNKNOWN
        if not missing[: self.encoding.n].any():
            return None
        return TablePolicy(self.encoding, missing)


def _rounding(found: ActionValues) -> float:
    """Return what is rounding of advantages."""
    return float(_ROUNDING * (np.nanmax(np.abs(found.values), initial=0.0) + abs(found.gain)))


@dataclass(frozen=True, eq=False)
class TablePolicy:
    """Looks up what a table says of the states of observations."""

    encoding: Any
    table: Any

    def __call__(self, observations: Any) -> Any:
        """Return the entries (n,) for a batch of observations."""
        return self.table[self.encoding.encode(observations)]
