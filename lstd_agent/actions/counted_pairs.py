r"""Action values where states are counted: pairs have one-hot features.

.. math:: q(s, a) = r(s, a) - g + \sum_{s'} P(s' | s, a)\, v(s'), \qquad
          v(s) = \sum_a \pi(a | s)\, q(s, a), \quad v(s_0) = 0,

with frequencies and mean rewards of all transitions in place of P and r, whoever chose the
actions: what follows a state and an action is the same for every policy. This is LSTDQ
(`lstd_agent.actions.vector_pairs`) in one-hot features of pairs, solved for v alone as a sparse
chain. It takes observations to be Markov states.

Where π takes an action that was never seen in a state, or where nothing was seen to leave a
state, there is no value. The *open share* of any other value is the probability of getting there
before s₀.

The covariance of q is also that of LSTDQ: the mean of r + v(s') over the n transitions of a pair
has variance σ²/n, these means are independent, and the equations carry them on to all values.
"""

from __future__ import annotations

from dataclasses import dataclass
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
from lstd_agent.standard_errors import sums_without_each
from lstd_agent.system.absorption import SumsUntil
from lstd_agent.trials.action_counts import ActionCounts, together
from lstd_agent.trials.policies import Policy, make_actor

OPEN = 0.05
"""Values that are open by a larger share than this are not determined."""

ENOUGH = 100
"""Fewer transitions do not show that a class of states is never left."""

# The noise of more states than this is drawn, in so many directions.
_MOST_STATES, _DIRECTIONS = 500, 400

_CHUNK_SIZE = 2**21


class PolicyChain:
    """The chain of a policy by frequencies of transitions, some of them unknown.

    Parameters
    ----------
    counts : ActionCounts
        Of any behaviour.
    policy : ndarray, shape (S, A)
        Action probabilities. Those of actions that were never taken lead to where nothing is known.
    """

    def __init__(self, counts: ActionCounts, policy: FloatArray) -> None:
        S, A = policy.shape
        self.policy = policy = np.where(counts.n_samples > 0, policy, 0.0)
        state, action = np.nonzero(policy)
        taken = policy[state, action]
        by_state = sparse.csr_array((taken, (state, state * A + action)), shape=(S, S * A))
        self.matrix = sparse.csr_array(by_state @ counts.transition_matrix)
        mass = policy.sum(axis=1)
        self.rewards = (policy * counts.mean_rewards).sum(axis=1) / np.where(mass > 0.0, mass, 1.0)

    def reachable(self, start: IntArray) -> BoolArray:
        """Return which states lead from the start, those among them."""
        from scipy.sparse.csgraph import dijkstra  # takes long to import

        return np.isfinite(dijkstra(self.matrix, indices=start, unweighted=True, min_only=True))


class ChainValues:
    """Solves for the values of a chain, relative to the value of a state.

    Rewards and timesteps until ``main`` is met, h_r and h_1, give v = h_r - g h_1; the equation
    of ``main`` itself gives the gain, g = (rewards of a cycle) / (its length).

    Parameters
    ----------
    chain : PolicyChain
    main : int
        The state whose value is 0.
    gain : float, optional
        Without it that of the chain.
    """

    def __init__(self, chain: PolicyChain, main: int, gain: float | None = None) -> None:
        self._n_states = S = chain.matrix.shape[0]
        self._main, self._given = main, gain
        self._until = SumsUntil(chain.matrix, main, np.ones(S))
        row = chain.matrix[[main]].toarray()[0]
        others = self._until.states
        total = row[others].sum() + row[main]
        if gain is None and total <= 0.0:
            raise InvalidInputError(
                f"nothing was seen to leave state {main}, or only for where nothing leads back: "
                "the gain cannot be told"
            )
        self._back = row[others] / total if total > 0.0 else row[others]
        self._steps = self._until.of(np.ones(len(others)))
        self._length = float(1.0 + self._back @ self._steps)
        h, self.gain = self._sums(chain.rewards)
        if gain is not None:
            self.gain = gain
        self.values = self._spread(h - self.gain * self._steps)

    def _sums(self, rewards: FloatArray) -> tuple[Any, Any]:
        """Return sums until ``main`` is met, by state, and the mean of a cycle."""
        h = self._until.of(rewards[self._until.states])
        return h, (rewards[self._main] + self._back @ h) / self._length

    def _spread(self, values: FloatArray) -> FloatArray:
        found = np.zeros((self._n_states, *values.shape[1:]))
        found[self._until.states] = values
        return found

    def changes(self, rewards: FloatArray) -> FloatArray:
        """Return by how much values (S, k) change with changes of rewards (S, k)."""
        h, gain = self._sums(rewards)
        if self._given is None:
            h = h - self._steps[:, None] * gain
        return self._spread(h)

    @cached_property
    def open_share(self) -> FloatArray:
        """The part of each value that is not determined, from 0 to 1, shape (S,)."""
        return self._until.open_share

    @property
    def settled_value(self) -> float:
        """The mean value in the long run."""
        return float(self._sums(self.values)[1])


@dataclass(frozen=True, eq=False)
class ActionValues:
    """What states and actions are worth under a policy, and how well that is known.

    Attributes
    ----------
    gain : float
        The gain used: given, or that of the counts.
    main : int
        The state whose value is 0.
    values : ndarray, shape (S,)
        v, NaN where it is not determined.
    action_values : ndarray, shape (S, A)
        q, NaN where the action was never taken in the state, or where q is not determined.
    n_samples : ndarray, shape (S, A)
        How many transitions each was seen in.
    standard_errors : ndarray, shape (S, A)
        Of r + v(s') as a mean over them: the error of q apart from that of v.
    determined_shares : ndarray, shape (S, A)
        The part of each q that is determined, from 0 to 1.
    settled_value : float
        The mean of v in the long run: v less this is the bias.
    """

    gain: float
    main: int
    values: FloatArray
    action_values: FloatArray
    n_samples: FloatArray
    standard_errors: FloatArray
    determined_shares: FloatArray
    settled_value: float
    _solved: ChainValues
    _policy: FloatArray
    _ahead: sparse.csr_array

    def advantage_errors(self, actions: IntArray) -> FloatArray:
        """Return the standard errors (S, A) of q(s, a) - q(s, π(s)) of a policy's actions (S,).

        Errors of successors' values are part of them. They are exact to first order, but for more
        than some hundred states: there they are a mean over random directions of the noise.
        """
        S, A = self._policy.shape
        every = np.arange(S)
        own = np.nan_to_num(self.standard_errors)
        noise = np.sqrt((self._policy**2 * own**2).sum(axis=1))
        if S <= _MOST_STATES:
            directions = np.eye(S)[:, noise > 0.0]
        else:
            rng = np.random.default_rng(0)  # the same noise each time
            directions = rng.choice([-1.0, 1.0], (S, _DIRECTIONS)) / np.sqrt(_DIRECTIONS)
        variance = own**2
        step = max(1, _CHUNK_SIZE // (S * A))
        for first in range(0, directions.shape[1], step):
            part = noise[:, None] * directions[:, first : first + step]
            q = (self._ahead @ self._solved.changes(part)).reshape(S, A, -1)
            change = q - q[every, actions][:, None] - part[:, None]
            variance += np.square(change).sum(axis=2)
        known = ~np.isnan(self.action_values)
        errors = np.where(known & known[every, actions][:, None], np.sqrt(variance), np.inf)
        errors[every, actions] = 0.0
        return errors


def evaluate_actions(
    counts: ActionCounts, policy: FloatArray, main: int, gain: float | None = None
) -> ActionValues:
    """Solve for the action values of a policy.

    Parameters
    ----------
    counts : ActionCounts
        Of any behaviour.
    policy : ndarray, shape (S, A)
        Action probabilities; a row of zeros where the policy has nothing to say.
    main : int
        The state whose value is to be 0: a recurrent one, or the terminal one.
    gain : float, optional
        Without it that of the counts.

    Returns
    -------
    ActionValues
    """
    P, rewards = counts.transition_matrix, counts.mean_rewards
    n_samples = np.asarray(counts.n_samples, dtype=np.float64)
    chain = PolicyChain(counts, policy)
    solved = ChainValues(chain, main, gain)
    v, open_share = solved.values, solved.open_share
    # Successors without a value are left out of the mean over the others.
    known = (open_share < 1.0).astype(np.float64)
    told = P @ known
    ahead = sparse.diags_array(1.0 / np.where(told > 0.0, told, 1.0)) @ P
    ahead = sparse.csr_array(ahead @ sparse.diags_array(known))
    q = rewards - solved.gain + (ahead @ v).reshape(rewards.shape)
    opened = (P @ open_share).reshape(rewards.shape)
    q[(n_samples == 0) | (opened > OPEN)] = np.nan
    values = np.where(open_share > OPEN, np.nan, v)
    values[main] = 0.0
    return ActionValues(
        gain=solved.gain,
        main=main,
        values=values,
        action_values=q,
        n_samples=n_samples,
        standard_errors=np.sqrt(counts.variances(v) / np.where(n_samples > 0, n_samples, np.nan)),
        determined_shares=np.where(n_samples > 0, 1.0 - opened, 0.0),
        settled_value=solved.settled_value,
        _solved=solved,
        _policy=chain.policy,
        _ahead=ahead,
    )


def main_state(chain: PolicyChain, visits: FloatArray, starts: IntArray | None = None) -> int:
    """Return a state to which values are relative: the recurrent one that was seen most.

    Of several classes that are never left, the one of the largest gain. A class seen in few
    transitions may well be left.

    Parameters
    ----------
    chain : PolicyChain
    visits : ndarray, shape (S,)
        How often each state was seen.
    starts : ndarray of int, optional
        Only classes that these states lead to count, if there are any.
    """
    classes = [found for found in closed_classes(chain.matrix) if visits[found].sum() >= ENOUGH]
    if starts is not None:
        reachable = chain.reachable(starts)
        classes = [found for found in classes if reachable[found].any()] or classes
    if not classes:
        return int(np.argmax(visits))
    # Of each class the state that was seen most.
    mains = [int(found[np.argmax(visits[found])]) for found in classes]
    return max(mains, key=lambda main: ChainValues(chain, main).gain) if mains[1:] else mains[0]


class CountedPairs:
    """What the trials of an agent tell of pairs of counted states and actions.

    Parameters
    ----------
    trials : TrialCollector
        Of the agent.
    fit : Fit or None
        The latest.
    policy : policy or None
        Another than that of the trials.
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
        """Return r - g + E v(s'), shape (n, A), with given values of successors."""
        counts, n = self._counts, self._encoding.n
        v, told = value(np.arange(n))
        n_ends = self._encoding.n_states - n
        v, told = np.append(v, [0.0] * n_ends), np.append(told, [True] * n_ends)
        P, rewards = counts.transition_matrix, counts.mean_rewards
        share = (P @ told.astype(np.float64)).reshape(rewards.shape)
        mean = (P @ np.where(told, v, 0.0)).reshape(rewards.shape)
        q = rewards - gain + mean / np.where(share > 0.0, share, 1.0)
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
        return evaluate_actions(counts, policy, self._main, gain)

    @cached_property
    def _main(self) -> int:
        """The state that values are relative to: that of the fit, or by all counts."""
        if self._fit is not None and self._other is None:
            return self._fit.system.references.main
        assert self._policy is not None
        n = np.asarray(self._counts.n_samples, dtype=np.float64)
        return main_state(PolicyChain(self._counts, self._policy), n.sum(axis=1))

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
        N, R = counts.transition_counts, counts.reward_sums
        rewards = np.bincount(R.indices, weights=R.data, minlength=S).astype(np.float64)
        state, next_state = np.divmod(N.indices.astype(np.int64), S)
        living = state != (encoding.terminal if encoding.ends else -1)
        moves = state[living], next_state[living]
        return ActionCounts.of_policy(n_actions, actions, moves, N.data[living], rewards)

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
