r"""One transition matrix of all timesteps: the certainty-equivalent backup ``"model"``.

The transitions of a stationary policy do not depend on time, so that the counts of all timesteps
may be pooled into one :math:`\hat P` and :math:`\hat r`. Their values,

.. math:: \hat v(s) = \hat r(s) - g + \sum_{s'} \hat P(s, s') \hat v(s'), \quad \hat v(s_0) = 0,

are expected excess rewards until the main reference state s₀ (or the end of the task) is met, and
what targets by the λ-return with λ = 1 would be in the chain of the pooled counts. The equation
of s₀ itself is the one that is left out: it would tell the gain, and a gain is given.

This takes observations to be Markov states. If they are not (aggregated, delayed or incomplete
ones), timesteps differ in what follows an observation, and the pooled matrix is none of theirs;
targets of many steps take no such thing.

States from which :math:`\hat P` does not lead to s₀ have no value: those first seen after the last
timestep, which nothing was seen to leave, and classes that were never left. Transitions to them
tell nothing of what they are worth and are left out of the mean over the others;
:math:`h(s)`, the probability of getting to one of them before s₀, is how much that might matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.errors import EvaluationError
from lstd_agent.statistics.dominant import DominantSolver
from lstd_agent.trials.counts import TransitionCounts

# Probabilities that add up to 1 but for this much leave nothing open.
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class PooledModel:
    """Values by the pooled counts.

    Attributes
    ----------
    values : ndarray, shape (S,)
        0 where they are not determined at all.
    open_share : ndarray, shape (S,)
        h, the part of each value that is not determined: from 0 to 1.
    n_trials : int
        0 where the model is exact.
    """

    values: FloatArray
    open_share: FloatArray
    n_trials: int


def pooled_counts(counts: TransitionCounts, gain: float, main: int) -> PooledModel:
    """Solve the chain of the pooled counts; see `pooled_model`."""
    S, N, R = counts.n_states, counts.transition_counts, counts.reward_sums
    pairs = np.divmod(N.indices.astype(np.int64), S)
    transitions = sparse.csr_array((N.data.astype(np.float64), pairs), shape=(S, S))
    rewards = np.bincount(R.indices, weights=R.data, minlength=S).astype(np.float64)
    return pooled_model(transitions, rewards, gain, main, counts.n_trials)


def pooled_model(
    transitions: sparse.csr_array, rewards: FloatArray, gain: float, main: int, n_trials: int
) -> PooledModel:
    """Solve a chain.

    Parameters
    ----------
    transitions : csr_array, shape (S, S)
        Numbers of transitions, or probabilities; rows of zeros where nothing is known.
    rewards : ndarray, shape (S,)
        Sums of rewards over them, or means.
    gain : float
    main : int
        The state whose value is 0: the main reference state, or the terminal one.
    n_trials : int

    Returns
    -------
    PooledModel
    """
    S = transitions.shape[0]
    until = SumsUntil(transitions, main, np.asarray(transitions.sum(axis=1)))
    values = np.zeros(S)
    values[until.states] = until.of(rewards[until.states] / until.visits - gain)
    return PooledModel(values, until.open_share, n_trials)


class SumsUntil:
    """Sums along the transitions of a chain until a state is met.

    Parameters
    ----------
    transitions : csr_array, shape (S, S)
        Numbers of transitions, or probabilities.
    main : int
        The state where sums end.
    visits : ndarray, shape (S,)
        Numbers of visits, or ones: what is missing in a row's sum leads to where nothing is known.

    Attributes
    ----------
    states : ndarray of int, shape (k,)
        Those from which transitions lead to ``main``, itself left out.
    visits : ndarray, shape (k,)
        To these.
    """

    def __init__(self, transitions: sparse.csr_array, main: int, visits: FloatArray) -> None:
        leading = leading_to(transitions, main)
        self.states = leading[leading != main]
        self.visits = visits[self.states]
        leaving = transitions[self.states]
        self._main, self._n_states = main, len(visits)
        self._within = sparse.csr_array(leaving[:, self.states])
        self._told = self._within.sum(axis=1) + leaving[:, [main]].toarray()[:, 0]

    @cached_property
    def _solver(self) -> DominantSolver:
        return DominantSolver(sparse.csc_array(sparse.diags_array(self._told) - self._within))

    def of(self, x: FloatArray) -> FloatArray:
        """Return sums of what each visit gives, of x (k,) or (k, m) by state.

        They are h with (D - N) h = D x, where D counts the transitions whose end has a sum.

        Raises
        ------
        EvaluationError
            If ``main`` is met so rarely that rounding hides it, or factors would take all memory.
        """
        if not self.states.size:
            return np.zeros(x.shape)
        try:
            return self._solver.solve((self._told if x.ndim == 1 else self._told[:, None]) * x)
        except RuntimeError as error:
            raise EvaluationError(
                f"some of {len(self.states)} states lead to state {self._main} so rarely that "
                f"rounding hides it ({error}): collect more trials, or use backup='one_step'"
            ) from error

    @property
    def open_share(self) -> FloatArray:
        """The probability of getting to where there is no sum before ``main``, shape (S,)."""
        told, visits = self._told, self.visits
        share = np.ones(self._n_states)
        share[self._main] = share[self.states] = 0.0
        untold = np.where(told < (1.0 - _ROUNDING) * visits, visits - told, 0.0)
        if untold.any():
            system = sparse.csc_array(sparse.diags_array(visits) - self._within)
            share[self.states] = np.clip(DominantSolver(system).solve(untold), 0.0, 1.0)
        return share


def leading_to(transitions: sparse.csr_array, main: int) -> IntArray:
    """Return the states from which transitions lead to a state, that one among them."""
    from scipy.sparse.csgraph import breadth_first_order  # takes long to import

    backwards = sparse.csr_array(transitions.T)
    return np.sort(breadth_first_order(backwards, main, return_predecessors=False))
