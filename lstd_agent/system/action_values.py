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
from typing import Any

import numpy as np
from scipy import sparse

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.statistics.pooled import leading_to
from lstd_agent.trials.action_counts import ActionCounts

OPEN = 0.05
"""Values that are open by a larger share than this are not determined."""

ENOUGH = 100
"""Fewer transitions do not show that a class of states is never left."""

# Probabilities that add up to 1 but for this much leave nothing open.
_ROUNDING = 1e-12


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
    chain = PolicyChain(P, rewards, np.where(n_samples > 0, policy, 0.0))
    solution = chain.solve(main, gain)
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
    transitions : csr_array, shape (S A, S)
        Frequencies; rows of zeros where nothing is known.
    rewards : ndarray, shape (S, A)
    policy : ndarray, shape (S, A)
        Action probabilities, 0 where nothing is known: what is missing in a row's sum leads to
        where nothing is known.
    """

    def __init__(
        self, transitions: sparse.csr_array, rewards: FloatArray, policy: FloatArray
    ) -> None:
        S, A = policy.shape
        state, action = np.nonzero(policy)
        taken = policy[state, action]
        by_state = sparse.csr_array((taken, (state, state * A + action)), shape=(S, S * A))
        self.matrix = sparse.csr_array(by_state @ transitions)
        mass = policy.sum(axis=1)
        self.known_mass = mass
        self.rewards = (policy * rewards).sum(axis=1) / np.where(mass > 0.0, mass, 1.0)

    def closed_classes(self) -> list[IntArray]:
        """Return the classes of states that, as far as is known, are never left."""
        from scipy.sparse.csgraph import connected_components  # takes long to import

        _, label = connected_components(self.matrix, connection="strong")
        entries = sparse.coo_array(self.matrix)
        row, column = entries.coords
        is_open = np.bincount(label[row], weights=label[row] != label[column]) > 0
        is_left = np.zeros(label.max() + 1, dtype=bool)
        is_left[: is_open.size] = is_open
        # A state of which nothing is known is no class.
        moves = np.bincount(label, weights=self.known_mass > 0.0) > 0
        return [np.flatnonzero(label == k) for k in np.flatnonzero(~is_left & moves)]

    def reachable(self, start: IntArray) -> IntArray:
        """Return the states that lead from the start, those among them."""
        from scipy.sparse.csgraph import breadth_first_order  # takes long to import

        S = self.matrix.shape[0]
        into = sparse.csr_array(
            (np.ones(len(start)), (np.zeros(len(start), dtype=np.int64), start)), shape=(1, S)
        )
        # One more state that leads to all of the start.
        corner = sparse.csr_array((1, 1))
        blocks: Any = [[self.matrix, sparse.csr_array((S, 1))], [into, corner]]
        whole = sparse.csr_array(sparse.block_array(blocks))
        found = breadth_first_order(whole, S, return_predecessors=False)
        return np.sort(found[found != S])

    def solve(self, main: int, gain: float | None) -> _Solution:
        """Return gain, values and what is open of them; the value of ``main`` is 0.

        Rewards and timesteps until ``main`` is met, h_r and h_1, give v = h_r - g h_1; the
        equation of ``main`` itself tells the gain, g = (rewards of a cycle) / (its length).
        """
        from scipy.sparse.linalg import splu  # takes long to import

        S = self.matrix.shape[0]
        others = leading_to(self.matrix, main)
        others = others[others != main]
        values, open_share = np.zeros(S), np.ones(S)
        open_share[main] = 0.0
        leaving = self.matrix[others]
        within = sparse.csr_array(leaving[:, others])
        told = within.sum(axis=1) + leaving[:, [main]].toarray()[:, 0]
        row = self.matrix[[main]].toarray()[0]
        total = row[others].sum() + row[main]
        back = row[others] / total if total > 0.0 else row[others]
        factor = None
        if others.size:
            # (D - P) h = D x, where D is the probability of states that have a value.
            factor = splu(sparse.csc_array(sparse.diags_array(told) - within))

        def until_main(x: FloatArray) -> FloatArray:
            if factor is None:
                return np.zeros((0, x.shape[1]))
            return np.asarray(factor.solve(told[:, None] * x[others]))

        both = np.stack((self.rewards, np.ones(S)), axis=1)
        h = until_main(both)
        if gain is None and total <= 0.0:
            raise InvalidInputError(
                f"nothing was seen to leave state {main}, or only for where nothing leads back: "
                "the gain cannot be told"
            )
        cycle = both[main] + back @ h
        g = float(cycle[0] / cycle[1]) if gain is None else gain
        values[others] = h @ [1.0, -g]
        settled = float(back @ until_main(values[:, None])[:, 0] / cycle[1])
        open_share[others] = 0.0
        untold = np.where(told < 1.0 - _ROUNDING, 1.0 - told, 0.0)
        if untold.any():
            system = sparse.csc_array(sparse.eye_array(others.size) - within)
            open_share[others] = np.clip(splu(system).solve(untold), 0.0, 1.0)
        return _Solution(g, values, open_share, settled)


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
    classes = [found for found in chain.closed_classes() if visits[found].sum() >= ENOUGH]
    if starts is not None:
        reachable = np.isin(np.arange(len(visits)), chain.reachable(starts))
        classes = [found for found in classes if reachable[found].any()] or classes
    if not classes:
        return int(np.argmax(visits))
    # Of each class the state that was seen most.
    mains = [int(found[np.argmax(visits[found])]) for found in classes]
    return max(mains, key=lambda main: chain.solve(main, None).gain) if mains[1:] else mains[0]
