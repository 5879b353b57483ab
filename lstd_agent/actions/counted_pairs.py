r"""Action values where states are counted: pairs have one-hot features.

.. math:: q(s, a) = r(s, a) - g \tau(s, a) + \sum_{s'} P(s' | s, a)\, v(s'), \qquad
          v(s) = \sum_a \pi(a | s)\, q(s, a), \quad v(s_0) = 0,

with frequencies and means of all transitions in place of P, r and the duration τ, whoever chose
the actions: what follows a state and an action is the same for every policy. This is LSTDQ
(`lstd_agent.actions.vector_pairs`) in one-hot features of pairs, solved for v alone as a sparse
chain. It takes observations to be Markov states.

Where π takes an action that was never seen in a state, or where nothing was seen to leave a
state, there is no value. The *open share* of any other value is the probability of getting there
before s₀.

The covariance of q is also that of LSTDQ: the mean of r - g τ + v(s') over the n transitions of a
pair has variance σ²/n, these means are independent, and the equations carry them on to all values.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from gymnasium import spaces
from scipy import sparse

from lstd_agent.actions.pair_rows import NO_ACTIONS, SuccessorValues, checked_actions
from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.errors import InvalidInputError, NotFittedError
from lstd_agent.fit import Fit
from lstd_agent.rows.classes import closed_classes
from lstd_agent.rows.factors import without_each
from lstd_agent.system.absorption import SumsUntil
from lstd_agent.trials.counts import ActionCounts, together
from lstd_agent.trials.kept import NO_TIME
from lstd_agent.trials.policies import Policy, make_actor

OPEN = 0.05
"""Values that are open by a larger share than this are not determined."""

ENOUGH = 100
"""Fewer transitions do not show that a class of states is never left."""

# The noise of more states than this is drawn, in so many directions.
_MOST_STATES, _DIRECTIONS = 500, 400

_CHUNK_SIZE = 2**21


class PolicyChain:
    """The chain of a policy by counts of any behaviour: frequencies, some of them unknown.

    The policy is a table (S, A) of action probabilities, with rows of zeros where it has nothing to
    say. Those of actions that were never taken lead to where nothing is known.
    """

    def __init__(self, counts: ActionCounts, policy: FloatArray) -> None:
        self.counts = counts
        self.P, self.mean_rewards = counts.transition_matrix, counts.mean_rewards
        self.mean_durations = counts.mean_durations
        self.n_samples = np.asarray(counts.n_samples, dtype=np.float64)
        self.policy = policy = np.where(self.n_samples > 0, policy, 0.0)
        S, A = policy.shape
        state, action = np.nonzero(policy)
        taken = policy[state, action]
        by_state = sparse.csr_array((taken, (state, state * A + action)), shape=(S, S * A))
        self.matrix = sparse.csr_array(by_state @ self.P)
        mass = policy.sum(axis=1)
        self.rewards, self.durations = (
            (policy * each).sum(axis=1) / np.where(mass > 0.0, mass, 1.0)
            for each in (self.mean_rewards, self.mean_durations)
        )

    def reachable(self, start: IntArray) -> BoolArray:
        """Return which states lead from the start, those among them."""
        from scipy.sparse.csgraph import dijkstra  # takes long to import

        return np.isfinite(dijkstra(self.matrix, indices=start, unweighted=True, min_only=True))

    def main_state(self, starts: IntArray | None = None) -> int:
        """Return a state to which values are relative: the recurrent one that was seen most.

        Of several classes that are never left, the one of the largest gain. A class seen in few
        transitions may well be left. If starts are given, only classes that they lead to count, if
        there are any.
        """
        visits = self.n_samples.sum(axis=1)
        classes = [found for found in closed_classes(self.matrix) if visits[found].sum() >= ENOUGH]
        if starts is not None:
            reachable = self.reachable(starts)
            classes = [found for found in classes if reachable[found].any()] or classes
        if not classes:
            return int(np.argmax(visits))
        # Of each class the state that was seen most.
        mains = [int(found[np.argmax(visits[found])]) for found in classes]
        return max(mains, key=lambda main: ActionValues(self, main).gain) if mains[1:] else mains[0]


class ActionValues:
    """What states and actions are worth under a policy, and how well that is known.

    Rewards and time until ``main`` is met, h_r and h_τ, give v = h_r - g h_τ; the equation of
    ``main`` itself gives the gain, g = (rewards of a cycle) / (its time).

    Parameters
    ----------
    chain : PolicyChain
    main : int
        The state whose value is 0: a recurrent one, or the terminal one.
    gain : float, optional
        Without it that of the chain.

    Attributes
    ----------
    gain : float
        The gain used.
    settled_value : float
        The mean of v in the long run: v less this is the bias.
    """

    def __init__(self, chain: PolicyChain, main: int, gain: float | None = None) -> None:
        self._chain, self._main, self._given = chain, main, gain
        self._until = SumsUntil(chain.matrix, main)
        row, others = chain.matrix[[main]].toarray()[0], self._until.states
        total = row[others].sum() + row[main]
        if gain is None and total <= 0.0:
            raise InvalidInputError(
                f"nothing was seen to leave state {main}, or only for where nothing leads back: "
                "the gain cannot be told"
            )
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
    def _open_share(self) -> FloatArray:
        return self._until.open_share

    @cached_property
    def _ahead(self) -> sparse.csr_array:
        """Frequencies of next states (S A, S); those without a value are left out."""
        known = (self._open_share < 1.0).astype(np.float64)
        told = self._chain.P @ known
        weights = sparse.diags_array(1.0 / np.where(told > 0.0, told, 1.0))
        return sparse.csr_array(weights @ self._chain.P @ sparse.diags_array(known))

    @cached_property
    def values(self) -> FloatArray:
        """State values (S,), NaN where they are not determined."""
        found = np.where(self._open_share > OPEN, np.nan, self._v)
        found[self._main] = 0.0
        return found

    @cached_property
    def determined_shares(self) -> FloatArray:
        """The part (S, A) of each action value that is determined, from 0 to 1."""
        seen = self._chain.n_samples > 0
        return np.where(seen, 1.0 - (self._chain.P @ self._open_share).reshape(seen.shape), 0.0)

    @cached_property
    def action_values(self) -> FloatArray:
        """Action values (S, A), NaN where the action was never taken or q is not determined."""
        rewards = self._chain.mean_rewards
        above = rewards - self.gain * self._chain.mean_durations
        q = above + (self._ahead @ self._v).reshape(rewards.shape)
        return np.where(self.determined_shares >= 1.0 - OPEN, q, np.nan)

    @cached_property
    def standard_errors(self) -> FloatArray:
        """Standard errors (S, A) of the means of r - g τ + v(s'): of q, apart from those of v."""
        n = self._chain.n_samples
        variances = self._chain.counts.variances(self._v, self.gain)
        return np.sqrt(variances / np.where(n > 0, n, np.nan))

    def advantage_errors(self, actions: IntArray) -> FloatArray:
        """Return the standard errors (S, A) of q(s, a) - q(s, π(s)) of a policy's actions (S,).

        Errors of successors' values are part of them. They are exact to first order, but for more
        than some hundred states: there they are a mean over random directions of the noise.
        """
        S, A = self._chain.policy.shape
        every, own = np.arange(S), np.nan_to_num(self.standard_errors)
        noise = np.sqrt((self._chain.policy**2 * own**2).sum(axis=1))
        if S <= _MOST_STATES:
            directions = np.eye(S)[:, noise > 0.0]
        else:
            rng = np.random.default_rng(0)  # the same noise each time
            directions = rng.choice([-1.0, 1.0], (S, _DIRECTIONS)) / np.sqrt(_DIRECTIONS)
        variance = own**2
        step = max(1, _CHUNK_SIZE // (S * A))
        for first in range(0, directions.shape[1], step):
            part = noise[:, None] * directions[:, first : first + step]
            h, gain = self._sums(part)
            if self._given is None:
                h = h - self._times[:, None] * gain / self._duration
            q = (self._ahead @ self._by_state(h)).reshape(S, A, -1)
            change = q - q[every, actions][:, None] - part[:, None]
            variance += np.square(change).sum(axis=2)
        known = ~np.isnan(self.action_values)
        errors = np.where(known & known[every, actions][:, None], np.sqrt(variance), np.inf)
        errors[every, actions] = 0.0
        return errors


class CountedPairs:
    """What an agent's trials and its latest fit tell of pairs of counted states and actions.

    Under the policy of the trials, or another one.
    """

    def __init__(self, trials: Any, fit: Fit | None, policy: Policy | None) -> None:
        self._trials, self._fit, self._other = trials, fit, policy
        self._encoding = trials.encoding
        self._counts = self._counts_of(None)

    @property
    def needs_fit(self) -> bool:
        """Whether the policy is a function of observations, whose values only a fit tells."""
        return self._policy is None

    def coverage(self, states: IntArray) -> FloatArray:
        """Return how many transitions tell of each action, shape (n, A)."""
        return np.asarray(self._counts.n_samples, dtype=np.float64)[states]

    def values(self, states: IntArray, gain: float | None) -> FloatArray:
        """Return action values (n, A)."""
        return self._solved(self._counts, gain)[states]

    def ahead(self, states: IntArray, value: SuccessorValues, gain: float) -> FloatArray:
        """Return r - g τ + E v(s'), shape (n, A), with given values of successors."""
        counts, n = self._counts, self._encoding.n
        v, told = value(np.arange(n))
        n_ends = self._encoding.n_states - n
        v, told = np.append(v, [0.0] * n_ends), np.append(told, [True] * n_ends)
        P, rewards = counts.transition_matrix, counts.mean_rewards
        share = (P @ told.astype(np.float64)).reshape(rewards.shape)
        mean = (P @ np.where(told, v, 0.0)).reshape(rewards.shape)
        q = rewards - gain * counts.mean_durations + mean / np.where(share > 0.0, share, 1.0)
        return np.where((counts.n_samples > 0) & (share >= 1.0 - OPEN), q, np.nan)[states]

    def without_each(self, states: IntArray, gains: list[float]) -> tuple[FloatArray, IntArray]:
        """Return action values (B, n, A) by all batches but each, and their numbers of trials."""
        if self.needs_fit:
            raise NotFittedError(
                "standard errors of action values need the policy itself: give it by policy="
            )
        batches = self._trials.batches.sums
        parts = [self._counts_of(i) for i in range(len(batches))]
        tells = [i for i, part in enumerate(parts) if len(part.key)]
        if len(tells) < 2:
            raise NotFittedError(
                "actions are known of a single batch of trials: collect or add them in several"
            )
        others = without_each([parts[i] for i in tells])
        each = [gains[i] if gains else None for i in tells]
        q = [self._solved(counts, gain)[states] for counts, gain in zip(others, each, strict=True)]
        return np.stack(q), np.array([batches[i].n_trials for i in tells])

    def least_errors(self, states: IntArray) -> FloatArray:
        """Return standard errors (n, A) of r - g τ + v(s') alone, which a few like samples hide."""
        return self._found(self._counts, None).standard_errors[states]

    def _solved(self, counts: ActionCounts, gain: float | None) -> FloatArray:
        """Return action values (S, A) of the policy by some counts."""
        found = self._found(counts, gain)
        is_bias = self._other is not None and not self._encoding.ends
        return found.action_values - (found.settled_value if is_bias else 0.0)

    def _found(self, counts: ActionCounts, gain: float | None) -> ActionValues:
        assert self._policy is not None
        chain = PolicyChain(counts, self._policy)
        if self._encoding.ends:
            return ActionValues(chain, self._encoding.terminal, 0.0)
        return ActionValues(chain, self._main, gain)

    @cached_property
    def _main(self) -> int:
        """The state whose value is 0: the one of the fit, or the one by all counts."""
        if self._fit is not None and self._other is None:
            return self._fit.system.references.main
        assert self._policy is not None
        return PolicyChain(self._counts, self._policy).main_state()

    def _counts_of(self, batch: int | None) -> ActionCounts:
        """Return what actions led to: as recorded, or as a deterministic policy's states tell.

        In all trials, or those of a batch.
        """
        trials, encoding = self._trials, self._encoding
        taken, policy = trials.batches.taken, trials.policy
        recorded = together(*taken)
        if recorded is not None:
            here = recorded if batch is None else taken[batch]
            if here is None:
                return ActionCounts.none(encoding.n_states, recorded.n_actions)
            return here
        table: Any = None if callable(policy) else policy
        if np.ndim(table) != 1 or trials.actions is None:
            raise NotFittedError(NO_ACTIONS)
        n_actions, first = trials.actions
        S = encoding.n_states
        counts = trials.counts if batch is None else trials.batches.sums[batch]
        actions = np.append(np.asarray(table) - first, [0] * (S - encoding.n)).astype(np.int64)
        N, held = counts.transition_counts, (counts.reward_sums, counts.duration_sums)
        rewards, durations = (
            None if M is None else np.bincount(M.indices, M.data, S).astype(np.float64)
            for M in held
        )
        assert rewards is not None
        state, next_state = np.divmod(N.indices.astype(np.int64), S)
        living = state != (encoding.terminal if encoding.ends else -1)
        moves = state[living], next_state[living]
        sums = rewards, durations
        return ActionCounts.of_policy(n_actions, actions, moves, N.data[living], *sums)

    @cached_property
    def _policy(self) -> FloatArray | None:
        """The policy as probabilities (n_states, A); None of one that only a function tells."""
        encoding, own = self._encoding, self._trials.policy
        n_actions, first = self._trials.actions or (self._counts.n_actions, 0)
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


def _table_of(policy: Any, encoding: Any, n_actions: int, first: int) -> Any:
    """Return a policy that is given as a table: actions (S,), or probabilities (S, A)."""
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
