r"""Action values from counts of what actions lead to.

.. math:: q(s, a) = r(s, a) - g + \sum_{s'} P(s' | s, a)\, v(s'), \qquad
          v(s) = \sum_a \pi(a | s)\, q(s, a), \quad v(s_0) = 0,

with frequencies and mean rewards of all transitions in place of P and r, whoever chose the
actions: what follows a state and an action is the same for every policy. In one-hot features of
pairs this is LSTDQ, the solution of

.. math:: E[f(s, a) (f(s, a) - f(s', \pi(s')))^T]\, w = E[(r - g) f(s, a)],

and the rows of v alone are those of `lstd_agent.statistics.pooled`. It takes observations to be
Markov states.

Where π takes an action that was never seen in a state, or where nothing was seen to leave a
state, there is no value; what part of any other value hangs on that is its *open share*, the
probability of getting there before s₀.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.system.absorption import SumsUntil
from lstd_agent.rows.classes import closed_classes
from lstd_agent.trials.action_counts import ActionCounts

OPEN = 0.05
"""Values that are open by a larger share than this are not determined."""

ENOUGH = 100
"""Fewer transitions do not show that a class of states is never left."""


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
    solution = PolicyChain(counts, policy).solve(main, gain)
    v, open_share = solution.values, solution.open_share
    known = open_share < 1.0
    # Successors without a value are left out of the mean over the others.
    told = P @ known.astype(np.float64)
    successor = (P @ np.where(known, v, 0.0)) / np.where(told > 0.0, told, 1.0)
    q = rewards - solution.gain + successor.reshape(rewards.shape)
    opened = (P @ open_share).reshape(rewards.shape)
    q[(n_samples == 0) | (opened > OPEN)] = np.nan
    values = np.where(open_share > OPEN, np.nan, v)
    values[main] = 0.0
    errors = np.sqrt(counts.variances(v) / np.where(n_samples > 0, n_samples, np.nan))
    return ActionValues(
        gain=solution.gain,
        main=main,
        values=values,
        action_values=q,
        n_samples=n_samples,
        standard_errors=errors,
        determined_shares=np.where(n_samples > 0, 1.0 - opened, 0.0),
        settled_value=solution.settled_value,
    )


@dataclass(frozen=True, eq=False)
class _Solution:
    gain: float
    values: FloatArray
    open_share: FloatArray
    settled_value: float


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
        policy = np.where(counts.n_samples > 0, policy, 0.0)
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

    def solve(self, main: int, gain: float | None) -> _Solution:
        """Return gain, values and what is open of them; the value of ``main`` is 0.

        Rewards and timesteps until ``main`` is met, h_r and h_1, give v = h_r - g h_1; the
        equation of ``main`` itself tells the gain, g = (rewards of a cycle) / (its length).
        """
        S = self.matrix.shape[0]
        until = SumsUntil(self.matrix, main, np.ones(S))
        others = until.states
        row = self.matrix[[main]].toarray()[0]
        total = row[others].sum() + row[main]
        back = row[others] / total if total > 0.0 else row[others]
        both = np.stack((self.rewards, np.ones(S)), axis=1)
        h = until.of(both[others])
        if gain is None and total <= 0.0:
            raise InvalidInputError(
                f"nothing was seen to leave state {main}, or only for where nothing leads back: "
                "the gain cannot be told"
            )
        cycle = both[main] + back @ h
        g = float(cycle[0] / cycle[1]) if gain is None else gain
        values = np.zeros(S)
        values[others] = h @ [1.0, -g]
        settled = float(back @ until.of(values[others]) / cycle[1])
        return _Solution(g, values, until.open_share, settled)


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
    return max(mains, key=lambda main: chain.solve(main, None).gain) if mains[1:] else mains[0]
