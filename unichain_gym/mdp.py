"""`TabularMDP`: the one representation of a finite Markov decision process.

A *padded outcome table*: taking action ``a`` in state ``s`` has up to ``K`` outcomes, the
``k``-th of which has probability ``probability[s, a, k]``, leads to ``next_state[s, a, k]``
and pays ``reward[s, a, k]``. Rows with fewer outcomes are padded with probability zero.
Memory is linear in the outcomes; dense and sparse matrices are derived from the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from unichain_gym.chain import MarkovChain
from unichain_gym.errors import InvalidModelError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

EPSILON = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False, repr=False)
class TabularMDP:
    """A finite MDP as a padded outcome table.

    The arrays are checked once, here, and made read-only.

    Parameters
    ----------
    next_state : array_like of int, shape (S, A, K)
        The state each outcome leads to.
    probability : array_like of float, shape (S, A, K)
        Its probability; the outcomes of each state and action sum to 1.
    reward : array_like of float, shape (S, A, K)
        Its reward.
    initial_distribution : array_like of float, shape (S,)
        The distribution of the first state.
    name : str
        What to call the MDP in messages and pictures.

    Raises
    ------
    InvalidModelError
        If shapes disagree, a state is out of range, a number is not finite, a probability is
        negative, or a row does not sum to 1 (the message names state, action and residual).
    """

    next_state: IntArray
    probability: FloatArray
    reward: FloatArray
    initial_distribution: FloatArray
    name: str = "mdp"

    def __post_init__(self) -> None:
        next_state = np.array(self.next_state, dtype=np.int64, order="C")
        probability = np.array(self.probability, dtype=np.float64, order="C")
        reward = np.array(self.reward, dtype=np.float64, order="C")
        initial = np.array(self.initial_distribution, dtype=np.float64)
        if next_state.ndim != 3 or not next_state.shape == probability.shape == reward.shape:
            raise InvalidModelError(
                "next_state, probability and reward must share one shape (S, A, K); got "
                f"{next_state.shape}, {probability.shape} and {reward.shape}"
            )
        if 0 in next_state.shape:
            raise InvalidModelError(
                f"an MDP needs a state, an action and an outcome; got (S, A, K) {next_state.shape}"
            )
        check_outcomes(next_state, probability, reward)
        if initial.shape != next_state.shape[:1]:
            raise InvalidModelError(
                f"initial_distribution must have shape ({next_state.shape[0]},), one entry a "
                f"state; got {initial.shape}"
            )
        check_distribution(initial, "initial_distribution")
        for field, value in (
            ("next_state", next_state),
            ("probability", probability),
            ("reward", reward),
            ("initial_distribution", initial),
        ):
            value.flags.writeable = False
            object.__setattr__(self, field, value)

    def __repr__(self) -> str:
        return f"TabularMDP({self.name!r}, n_states={self.n_states}, n_actions={self.n_actions})"

    @property
    def n_states(self) -> int:
        """Number of states S."""
        return int(self.next_state.shape[0])

    @property
    def n_actions(self) -> int:
        """Number of actions A, the same in every state."""
        return int(self.next_state.shape[1])

    @cached_property
    def expected_reward(self) -> FloatArray:
        """r(s, a) = Σ_k probability · reward, shape (S, A)."""
        return np.einsum("sak,sak->sa", self.probability, self.reward)

    @cached_property
    def outcome_thresholds(self) -> FloatArray:
        """Cumulative probabilities, shape (S, A, K), that turn a uniform draw into an outcome.

        Outcome ``k`` is drawn when ``thresholds[k - 1] <= u < thresholds[k]``. From the last
        outcome with positive probability on, the threshold is infinite: a sum that rounding
        leaves below 1 can therefore never select an outcome of probability zero.
        """
        thresholds = np.cumsum(self.probability, axis=2)
        later_mass = np.cumsum(self.probability[..., ::-1], axis=2)[..., ::-1]
        is_last = np.ones(thresholds.shape, dtype=bool)
        is_last[..., :-1] = later_mass[..., 1:] == 0.0
        thresholds[is_last] = np.inf
        return thresholds

    def check_policy(self, policy: ArrayLike) -> FloatArray:
        """Validate a policy and return its action probabilities.

        Parameters
        ----------
        policy : array_like, shape (S,) of int or (S, A) of float
            An action for each state, or a distribution over actions for each state.

        Returns
        -------
        ndarray of float, shape (S, A)

        Raises
        ------
        InvalidModelError
            If the shape is neither, an action is out of range, or a row does not sum to 1.
        """
        array = np.asarray(policy)
        S, A = self.n_states, self.n_actions
        if array.shape == (S,):
            if not np.issubdtype(array.dtype, np.integer):
                raise InvalidModelError(
                    f"a policy of shape ({S},) holds one integer action a state; got dtype "
                    f"{array.dtype}. For action probabilities pass shape ({S}, {A})"
                )
            wrong = np.flatnonzero((array < 0) | (array >= A))
            if wrong.size:
                raise InvalidModelError(
                    f"the policy takes action {array[wrong[0]]} in state {wrong[0]}; actions are "
                    f"0 to {A - 1}"
                )
            probabilities = np.zeros((S, A))
            probabilities[np.arange(S), array] = 1.0
            return probabilities
        if array.shape != (S, A):
            raise InvalidModelError(
                f"a policy has shape ({S},) (an action a state) or ({S}, {A}) (action "
                f"probabilities); got {array.shape}"
            )
        probabilities = array.astype(np.float64)
        if not np.isfinite(probabilities).all() or (probabilities < 0.0).any():
            state = int(np.argmax(~(probabilities >= 0.0).all(axis=1)))
            raise InvalidModelError(
                f"action probabilities must be finite and not negative; state {state} has "
                f"{probabilities[state]}"
            )
        residual = probabilities.sum(axis=1) - 1.0
        state = int(np.argmax(np.abs(residual)))
        if abs(residual[state]) > sum_tolerance(A):
            raise InvalidModelError(
                f"action probabilities of state {state} sum to {1.0 + residual[state]!r}, not 1; "
                "normalize each row of the policy"
            )
        return probabilities

    def induce(self, policy: ArrayLike) -> MarkovChain:
        """Return the Markov chain that a stationary policy induces.

        Parameters
        ----------
        policy : array_like, shape (S,) of int or (S, A) of float
            Actions, or action probabilities.

        Returns
        -------
        MarkovChain
            With P(s, s') = Σ_a π(a|s) p(s'|s, a) and r(s) = Σ_a π(a|s) r(s, a).

        Raises
        ------
        InvalidModelError
            If the policy does not fit the MDP.
        """
        pi = self.check_policy(policy)
        S, _, K = self.next_state.shape
        # A deterministic policy, the usual case, needs one action's outcomes and not all A.
        weight: FloatArray
        if (pi.max(axis=1) == 1.0).all():
            chosen = (np.arange(S), pi.argmax(axis=1))
            weight = self.probability[chosen]
            column = self.next_state[chosen]
        else:
            weight = (pi[:, :, None] * self.probability).reshape(S, -1)
            column = self.next_state.reshape(S, -1)
        keep = weight > 0.0
        indptr = np.concatenate(([0], np.cumsum(keep.sum(axis=1))))
        P = sparse.csr_array((weight[keep], column[keep], indptr), shape=(S, S))
        P.sum_duplicates()
        reward = np.einsum("sa,sa->s", pi, self.expected_reward)
        return MarkovChain(P, reward, self.initial_distribution, mdp=self, policy=pi)

    @classmethod
    def from_arrays(
        cls,
        P: ArrayLike | Sequence[sparse.sparray | sparse.spmatrix],
        R: ArrayLike,
        initial: ArrayLike,
        *,
        name: str = "mdp",
    ) -> TabularMDP:
        """Build an MDP from transition and reward arrays.

        Parameters
        ----------
        P : array_like, shape (S, A, S)
            P[s, a, s'] is the probability of going from s to s' under a.
        R : array_like, shape (S, A), (S, A, S) or (S,)
            Reward by state and action, by outcome, or by state alone.
        initial : array_like, shape (S,)
            The initial distribution.
        name : str
            What to call the MDP.

        Returns
        -------
        TabularMDP
        """
        dense = np.asarray(P, dtype=np.float64)
        rewards = np.asarray(R, dtype=np.float64)
        state, action, successor = np.nonzero(dense)
        if rewards.ndim == 1:
            reward = rewards[state]
        elif rewards.ndim == 2:
            reward = rewards[state, action]
        else:
            reward = rewards[state, action, successor]
        shape = (dense.shape[0], dense.shape[1])
        probability = dense[state, action, successor]
        table = pad_outcomes(shape, state, action, successor, probability, reward)
        return cls(*table, initial_distribution=np.asarray(initial), name=name)

    def plot(self, path: str | PathLike[str], values: ArrayLike | None = None) -> None:
        """Write a picture of the MDP: see `unichain_gym.drawing.draw_mdp`.

        Parameters
        ----------
        path : path-like
            The file; its ending (``.png``, ``.pdf``, ``.svg``) is the format.
        values : array_like of float, shape (S,), optional
            Colors the states.
        """
        from unichain_gym.drawing import draw_mdp

        draw_mdp(self, values=values).savefig(path)


def sum_tolerance(n_terms: int) -> float:
    """Return how far from 1 a sum of ``n_terms`` probabilities may honestly be.

    Rounding of the terms themselves grows with their number; the factor 1e4 lets through
    probabilities written down with twelve digits.
    """
    return 1e4 * EPSILON * max(1, n_terms)


def check_distribution(p: FloatArray, what: str) -> None:
    """Raise `InvalidModelError` unless ``p`` (S,) is a probability distribution."""
    if not np.isfinite(p).all() or (p < 0.0).any():
        state = int(np.argmax(~(p >= 0.0)))
        raise InvalidModelError(
            f"{what} must be finite and not negative; state {state} has {p[state]!r}"
        )
    residual = float(p.sum()) - 1.0
    if abs(residual) > sum_tolerance(p.size):
        raise InvalidModelError(f"{what} sums to {1.0 + residual!r}, not 1; normalize it")


def check_outcomes(next_state: IntArray, probability: FloatArray, reward: FloatArray) -> None:
    """Raise `InvalidModelError` for the first invalid entry of an outcome table (S, A, K)."""
    S, _, K = next_state.shape

    def place(mask: NDArray[np.bool_]) -> tuple[int, ...]:
        return tuple(int(i) for i in np.unravel_index(np.argmax(mask), mask.shape))

    for mask, problem in (
        ((next_state < 0) | (next_state >= S), f"leads to a state outside 0 to {S - 1}"),
        (~(np.isfinite(probability) & (probability >= 0.0)), "has an invalid probability"),
        (~np.isfinite(reward), "has a reward that is not finite"),
    ):
        if mask.any():
            s, a, k = place(mask)
            raise InvalidModelError(
                f"outcome {k} of state {s}, action {a} {problem}: next state "
                f"{next_state[s, a, k]}, probability {probability[s, a, k]!r}, reward "
                f"{reward[s, a, k]!r}"
            )
    residual = probability.sum(axis=2) - 1.0
    off = np.abs(residual) > sum_tolerance(K)
    if off.any():
        s, a = place(off)
        raise InvalidModelError(
            f"the outcomes of state {s}, action {a} sum to {1.0 + residual[s, a]!r} (residual "
            f"{residual[s, a]:.3g}), not 1; normalize them or add the missing outcome"
        )


def pad_outcomes(
    shape: tuple[int, int],
    state: IntArray,
    action: IntArray,
    next_state: IntArray,
    probability: FloatArray,
    reward: FloatArray,
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Gather a list of outcomes into padded tables.

    Outcomes that share state, action, next state and reward merge; zero probabilities drop.

    Parameters
    ----------
    shape : (S, A)
    state, action, next_state, probability, reward : ndarray, shape (n,)
        One outcome an entry.

    Returns
    -------
    next_state, probability, reward : ndarray, shape (S, A, K)
        K is the largest number of outcomes of a state and action. Padding stays in place
        (next state = state) with probability and reward zero.
    """
    S, A = shape
    keep = probability != 0.0
    row = (state * A + action)[keep]
    next_state, probability, reward = next_state[keep], probability[keep], reward[keep]
    order = np.lexsort((reward, next_state, row))
    row, next_state, reward = row[order], next_state[order], reward[order]
    is_first = np.ones(row.size, dtype=bool)
    is_first[1:] = (np.diff(row) != 0) | (np.diff(next_state) != 0) | (np.diff(reward) != 0.0)
    merged = np.bincount(np.cumsum(is_first) - 1, weights=probability[order])
    row, next_state, reward = row[is_first], next_state[is_first], reward[is_first]

    n_outcomes = np.bincount(row, minlength=S * A)
    first_of_row = np.cumsum(n_outcomes) - n_outcomes
    slot = np.arange(row.size) - first_of_row[row]
    K = max(1, int(n_outcomes.max(initial=0)))
    table_next = np.repeat(np.arange(S, dtype=np.int64), A * K).reshape(S * A, K)
    table_probability = np.zeros((S * A, K))
    table_reward = np.zeros((S * A, K))
    table_next[row, slot] = next_state
    table_probability[row, slot] = merged
    table_reward[row, slot] = reward
    return (
        table_next.reshape(S, A, K),
        table_probability.reshape(S, A, K),
        table_reward.reshape(S, A, K),
    )
