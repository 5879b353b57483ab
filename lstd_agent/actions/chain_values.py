r"""Action values where states are counted: pairs have one-hot features.

.. math:: q(s, a) = r(s, a) - g \tau(s, a) + \sum_{s'} P(s' | s, a)\, v(s'), \qquad
          v(s) = \sum_a \pi(a | s)\, q(s, a), \quad v(s_0) = 0,

with frequencies and means of all transitions, of any policy, in place of P, r and the duration τ.
This is LSTDQ (`lstd_agent.actions.pair_equations`) in one-hot features of pairs, solved for v alone
as a sparse chain. Observations must be Markov states.

A state has no value if π takes an action there that was never seen, or if no transition from it was
seen. The *open share* of any other value is the probability of reaching such a state before s₀.

The covariance of q is also LSTDQ's: the mean of r - g τ + v(s') over the n transitions of a pair
has variance σ²/n, these means are independent, and the equations carry them on to all values.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.rows.classes import closed_classes
from lstd_agent.rows.factors import MIN_SAMPLES
from lstd_agent.standard_errors import unseen_errors
from lstd_agent.system.sparse_solvers import SumsUntil
from lstd_agent.trials.counts import ActionCounts
from lstd_agent.trials.kept import NO_TIME

# Values with a larger open share are not determined; a class with fewer transitions may not be
# closed; smaller numbers, relative to values, are rounding. With more states than _MOST_STATES,
# errors are a mean over some random directions of the noise.
_OPEN, _ENOUGH, _ROUNDING, _MOST_STATES, _DIRECTIONS = 0.05, 100, 1e-9, 500, 400
_CHUNK_SIZE = 2**21


def one_step_ahead(
    counts: ActionCounts, P: sparse.csr_array, v: FloatArray, share: FloatArray, gain: float
) -> FloatArray:
    """Return q = r - g τ + P v, shape (S, A), by values v (S,), 0 where unknown.

    ``share`` (S,) is the part of each value that is known. q is NaN where the action was never
    taken or is not determined.
    """
    n, told = counts.n_samples, P @ (share > 0.0).astype(np.float64)
    mean = (P @ v / np.where(told > 0.0, told, 1.0)).reshape(n.shape)
    q = counts.mean_rewards - gain * counts.mean_durations + mean
    return np.where((n > 0) & ((P @ share).reshape(n.shape) >= 1.0 - _OPEN), q, np.nan)


class PolicyChain:
    """The chain of a policy (S, A), by counts of any behaviour: frequencies, some unknown.

    Rows of the policy are zero where it has no action. Actions that were never taken lead to
    unknown states.
    """

    def __init__(self, counts: ActionCounts, policy: FloatArray) -> None:
        self.counts, self.n_samples, self.P = counts, counts.n_samples, counts.transition_matrix
        self.policy = policy = np.where(self.n_samples > 0, policy, 0.0)
        S, A = policy.shape
        state, action = np.nonzero(policy)
        place = state, state * A + action
        by_state = sparse.csr_array((policy[state, action], place), shape=(S, S * A))
        self.matrix = sparse.csr_array(by_state @ self.P)
        mass = policy.sum(axis=1)
        self.rewards, self.durations = (
            (policy * each).sum(axis=1) / np.where(mass > 0.0, mass, 1.0)
            for each in (counts.mean_rewards, counts.mean_durations)
        )

    def main_state(self, starts: IntArray | None = None) -> int:
        """Return the state to which values are relative: the most visited recurrent state.

        Among several closed classes, the class of the largest gain is taken; if starts are given,
        among those that the starts lead to, if any.
        """
        visits = self.n_samples.sum(axis=1)
        classes = [found for found in closed_classes(self.matrix) if visits[found].sum() >= _ENOUGH]
        if starts is not None:
            from scipy.sparse.csgraph import dijkstra  # takes long to import

            steps = dijkstra(self.matrix, indices=starts, unweighted=True, min_only=True)
            classes = [found for found in classes if np.isfinite(steps[found]).any()] or classes
        # The most visited state of each class, or of all.
        mains = [int(found[np.argmax(visits[found])]) for found in classes]
        mains = mains or [int(np.argmax(visits))]
        return max(mains, key=lambda main: ActionValues(self, main).gain) if mains[1:] else mains[0]


class ActionValues:
    """Values of states and actions under a policy, and their errors.

    Values are relative to ``main``, a recurrent state or the terminal one. Rewards and time until
    it is met, h_r and h_τ, give v = h_r - g h_τ. Unless a gain is given, g = (rewards of a cycle) /
    (its time). ``settled_value`` is the mean of v in the long run; v minus this mean is the bias.
    """

    def __init__(self, chain: PolicyChain, main: int, gain: float | None = None) -> None:
        self._chain, self._main, self._given = chain, main, gain
        self._until = SumsUntil(chain.matrix, main)
        self._known_share = 1.0 - self._until.open_share
        row, others = chain.matrix[[main]].toarray()[0], self._until.states
        total = row[others].sum() + row[main]
        if gain is None and total <= 0.0:
            told = f"no transitions lead from state {main} back to it: the gain is not determined"
            raise InvalidInputError(told)
        self._back = row[others] / total if total > 0.0 else row[others]
        self._length = float(1.0 + self._back @ self._until.of(np.ones(len(others))))
        self._times, duration = self._sums(chain.durations)
        if gain is None and duration == 0.0:
            raise InvalidInputError(NO_TIME)
        self._duration = float(duration) or 1.0  # of a mean step
        h, own = self._sums(chain.rewards)
        self.gain = float(own) / self._duration if gain is None else gain
        self._v = self._by_state(h - self.gain * self._times)
        self.settled_value = float(self._sums(self._v)[1])

    def _sums(self, rewards: FloatArray) -> tuple[Any, Any]:
        """Return sums of rewards (S, ...) until ``main`` is met, and their mean over a cycle."""
        h = self._until.of(rewards[self._until.states])
        return h, (rewards[self._main] + self._back @ h) / self._length

    def _by_state(self, of_others: FloatArray) -> FloatArray:
        found = np.zeros((self._chain.matrix.shape[0], *of_others.shape[1:]))
        found[self._until.states] = of_others
        return found

    @cached_property
    def values(self) -> FloatArray:
        """State values (S,), NaN where they are not determined."""
        found = np.where(self._known_share < 1.0 - _OPEN, np.nan, self._v)
        found[self._main] = 0.0
        return found

    @property
    def rounding(self) -> float:
        """The size of rounding errors of the values."""
        return float(_ROUNDING * (np.nanmax(np.abs(self.values), initial=0.0) + abs(self.gain)))

    @cached_property
    def action_values(self) -> FloatArray:
        """Action values (S, A), NaN where the action was never taken or q is not determined."""
        chain = self._chain
        return one_step_ahead(chain.counts, chain.P, self._v, self._known_share, self.gain)

    @cached_property
    def standard_errors(self) -> FloatArray:
        """Standard errors (S, A) of the means of r - g τ + v(s'), with v taken as exact."""
        n = self._chain.n_samples
        variances = self._chain.counts.variances(self._v, self.gain)
        return np.sqrt(variances / np.where(n > 0, n, np.nan))

    def leading(self, actions: IntArray) -> IntArray:
        """Return better actions than the policy's (S,) where it leads to no evaluated state.

        They most likely lead to one. Elsewhere the given actions are returned.
        """
        share = (self._chain.P @ self._known_share).reshape(self._chain.policy.shape)
        every = np.arange(len(actions))
        leads = np.isnan(self.values) & (self._chain.n_samples[every, actions] > 0)
        leads &= share.max(axis=1) > share[every, actions] + _ROUNDING
        return np.where(leads, np.argmax(share, axis=1), actions)

    def advantage_errors(self, actions: IntArray) -> FloatArray:
        """Return the standard errors (S, A) of q(s, a) - q(s, π(s)) for the policy's actions (S,).

        They include errors of successors' values, exactly to first order. For more than some
        hundred states they are a mean over random directions of the noise.
        """
        every, own = np.arange(len(actions)), np.nan_to_num(self.standard_errors)
        variance = own**2
        for q, v in self._changes(own):
            variance += np.square(q - (q[every, actions] + v)[:, None]).sum(axis=2)
        variance[every, actions] = 0.0
        return np.sqrt(variance)

    @cached_property
    def unseen_errors(self) -> FloatArray:
        """What unseen outcomes of pairs with few samples may add to errors of action values (S, A).

        Other values are those of all visits.
        """
        n, v = self._chain.n_samples, np.nan_to_num(self.values)
        errors = unseen_errors(n, v[:, None], v, n.sum(axis=1) / n.sum())
        own = np.where(n < MIN_SAMPLES, errors, 0.0)
        carried = sum(np.square(q).sum(axis=2) for q, _ in self._changes(own))
        return np.asarray(np.sqrt(own**2 + carried))

    def _changes(self, own: FloatArray) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Yield what errors of pairs (S, A) change: successors' bias (S, A, m), own v (S, m)."""
        P, (S, A) = self._chain.P, self._chain.policy.shape
        told = P @ (self._known_share > 0.0).astype(np.float64)
        told[told == 0.0] = 1.0
        noise = np.sqrt((self._chain.policy**2 * own**2).sum(axis=1))
        if S <= _MOST_STATES:
            directions = np.eye(S)[:, noise > 0.0]
        else:
            rng = np.random.default_rng(0)  # the same noise each time
            directions = rng.choice([-1.0, 1.0], (S, _DIRECTIONS)) / np.sqrt(_DIRECTIONS)
        step = max(1, _CHUNK_SIZE // (S * A))
        for first in range(0, directions.shape[1], step):
            part = noise[:, None] * directions[:, first : first + step]
            h, gain = self._sums(part)
            if self._given is None:
                h = h - self._times[:, None] * gain / self._duration
            v = self._by_state(h)
            yield (P @ v / told[:, None]).reshape(S, A, -1) - self._sums(v)[1], part
