"""Improvement where states are counted: policy iteration on the counts of all behaviours.

Counts of what actions lead to serve every policy, so that one collection is enough for several
improvements: the policy is evaluated and improved on the same counts until nothing changes, and
only then tried out. An action replaces another where its advantage q(s, a) - q(s, π(s)) exceeds so
many of its standard errors; where the policy leads from a state to none that is evaluated, by
what leads there most likely.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.improvement.record import Earned
from lstd_agent.improvement.returns import ReturnRecording, Returns
from lstd_agent.system.action_values import ActionValues, PolicyChain, evaluate_actions, main_state
from lstd_agent.trials.action_counts import ActionCounts
from lstd_agent.trials.encoding import CountedEncoding

UNKNOWN = -1
"""The action of a state for which the policy has none."""

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

    Parameters
    ----------
    encoding : CountedEncoding
    n_actions, first_action : int
    n_errors : float
        By how many standard errors an action has to be better.
    policy : ndarray of int, shape (S,), optional
        To begin with, actions from 0; without it, actions are tried out uniformly first.

    Attributes
    ----------
    actions : ndarray of int, shape (S,)
        The policy; `UNKNOWN` where it has none.
    counts : ActionCounts
        What all behaviours so far have met.
    starts : ndarray, shape (S,)
        In how many trials each state was the first.
    """

    few_changes = 0
    """A search is over where no more states than so many change their actions."""

    def __init__(
        self,
        encoding: CountedEncoding,
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
        self.counts = ActionCounts.none(S, n_actions)
        self.starts: FloatArray = np.zeros(S)

    def recording(self, t_max: int) -> ReturnRecording:
        """Return how trials are recorded: starts and tail rewards, beside counts of actions."""
        return ReturnRecording(self.encoding, 1, self.counts.n_actions, t_max)

    def add(self, rounds: Sequence[Returns]) -> Earned:
        """Add trials of any behaviour; return what they earned."""
        tails, wholes = [], []
        for finished in rounds:
            assert finished.taken is not None
            self.counts = self.counts + finished.taken
            self.starts += np.bincount(finished.starts, minlength=len(self.starts))
            tails.append(finished.tail_rewards)
            wholes.append(finished.rewards)
        return Earned(np.concatenate(tails), np.concatenate(wholes))

    def evaluate(self, *, from_start: bool = False) -> ActionValues:
        """Return the action values of the policy by all counts.

        Where it has no action, it takes them as often as they were taken.

        Parameters
        ----------
        from_start : bool
            Of several recurrent classes, values are relative to one that the start leads to, and
            not to that of the largest gain.
        """
        counts = self.counts
        n = np.asarray(counts.n_samples, dtype=np.float64)
        policy = n / np.maximum(n.sum(axis=1, keepdims=True), 1.0)
        known = np.flatnonzero(self.actions != UNKNOWN)
        policy[known] = np.eye(counts.n_actions)[self.actions[known]]
        if self.encoding.ends:
            return evaluate_actions(counts, policy, self.encoding.terminal, 0.0)
        chain = PolicyChain(counts, policy)
        starts = np.flatnonzero(self.starts) if from_start else None
        main = main_state(chain, n.sum(axis=1), starts)
        return evaluate_actions(counts, policy, main)

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
            better = better_actions(self.evaluate(), self.actions, self.n_errors)
            if np.array_equal(better, self.actions):
                break
            self.actions = better
        return int(np.count_nonzero(before != self.actions))

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
        if (counts.n_states, counts.n_actions) != (S, A):
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


class TablePolicy:
    """Looks up what a table says of the states of observations."""

    def __init__(self, encoding: CountedEncoding, table: Any) -> None:
        self._encoding = encoding
        self._table = table

    def __call__(self, observations: Any) -> Any:
        """Return the entries (n,) for a batch of observations."""
        return self._table[self._encoding.encode(observations)]


def better_actions(found: ActionValues, actions: IntArray, n_errors: float) -> IntArray:
    """Return an action for each state: a better one where there is one, or else the same.

    Parameters
    ----------
    found : ActionValues
        What actions are worth under the policy.
    actions : ndarray of int, shape (S,)
        The policy's, `UNKNOWN` where it has none.
    n_errors : float
        By how many standard errors an action has to be better.
    """
    q, S = found.action_values, np.arange(len(actions))
    known = actions != UNKNOWN
    taken = np.maximum(actions, 0)
    has_value = ~np.isnan(q)
    valued = np.where(has_value, q, -np.inf)
    better = actions.copy()
    new = ~known & has_value.any(axis=1)
    better[new] = np.argmax(valued[new], axis=1)
    advantage = valued - q[S, taken][:, None]
    error = np.hypot(found.standard_errors, found.standard_errors[S, taken][:, None])
    scale = np.nanmax(np.abs(found.values), initial=0.0) + abs(found.gain)
    enough = advantage > np.where(has_value, n_errors * error, np.inf) + _ROUNDING * scale
    improves = known & has_value[S, taken] & enough.any(axis=1)
    better[improves] = np.argmax(np.where(enough, advantage, -np.inf)[improves], axis=1)
    return _leading_on(found, better, taken, known)


def _leading_on(
    found: ActionValues, better: IntArray, taken: IntArray, known: BoolArray
) -> IntArray:
    """Change what leads to no evaluated state, where another action does."""
    share: FloatArray = found.determined_shares
    S = np.arange(len(better))
    stuck = known & np.isnan(found.values) & (found.n_samples[S, taken] > 0)
    most = share.max(axis=1)
    leads = stuck & (most > share[S, taken] + _ROUNDING)
    better[leads] = np.argmax(share[leads], axis=1)
    return better
