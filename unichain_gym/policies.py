"""Policies of a tabular MDP: checking one, listing all deterministic ones, drawing one."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import overload

import numpy as np
from numpy.typing import ArrayLike

from unichain_gym.arrays import FloatArray, IntArray
from unichain_gym.errors import InvalidModelError
from unichain_gym.outcomes import read_reals, sum_tolerance


class DeterministicPolicies(Sequence[IntArray]):
    """All A^S deterministic policies, each (S,) actions, in lexicographic order.

    Policy i holds the digits of i in base A, the last state's least significant. Nothing is
    stored: any policy can be had by its number, however many there are, and a slice is such a
    sequence again.

    Parameters
    ----------
    n_states, n_actions : int
    numbers : range, optional
        Which policies, by number; all by default.
    """

    def __init__(self, n_states: int, n_actions: int, numbers: range | None = None) -> None:
        self._n_states = n_states
        self._n_actions = n_actions
        self._numbers = range(n_actions**n_states) if numbers is None else numbers

    @property
    def n_policies(self) -> int:
        """The number of policies, however large; `len` cannot exceed `sys.maxsize`."""
        r = self._numbers
        return max(0, (r.stop - r.start + r.step - (1 if r.step > 0 else -1)) // r.step)

    def __len__(self) -> int:
        """Return `n_policies`.

        Raises
        ------
        OverflowError
            If it exceeds `sys.maxsize`, the most that `len` can return.
        """
        if self.n_policies > sys.maxsize:
            raise OverflowError(
                f"{self._n_actions}**{self._n_states} policies are more than len() can return; "
                "use n_policies"
            )
        return self.n_policies

    @overload
    def __getitem__(self, index: int) -> IntArray: ...
    @overload
    def __getitem__(self, index: slice) -> DeterministicPolicies: ...
    def __getitem__(self, index: int | slice) -> IntArray | DeterministicPolicies:
        """Return the policy of a number, or the policies of a slice."""
        if isinstance(index, slice):
            return DeterministicPolicies(self._n_states, self._n_actions, self._numbers[index])
        number = self._numbers[index]
        S, A = self._n_states, self._n_actions
        # Python's integers have no limit and NumPy's have: cut the number into words of as many
        # digits as fit.
        width = S if A == 1 else int(62 / math.log2(A))
        n_words = -(-S // width)
        words = np.empty(n_words, dtype=np.int64)
        for i in range(n_words - 1, -1, -1):
            number, words[i] = divmod(number, A**width)
        digits = words[:, None] // A ** np.arange(width - 1, -1, -1) % A
        return digits.ravel()[n_words * width - S :]

    def __contains__(self, policy: object) -> bool:
        """Whether a policy (S,) is one of these."""
        array = np.asarray(policy)
        if array.shape != (self._n_states,) or not np.issubdtype(array.dtype, np.integer):
            return False
        if ((array < 0) | (array >= self._n_actions)).any():
            return False
        number = 0
        for action in array.tolist():
            number = number * self._n_actions + action
        return number in self._numbers


def draw_policy(
    n_states: int, n_actions: int, rng: np.random.Generator | int, deterministic: bool
) -> FloatArray | IntArray:
    """Draw uniformly from the deterministic policies (S,), or from all policies (S, A)."""
    rng = np.random.default_rng(rng)
    if deterministic:
        return rng.integers(n_actions, size=n_states)
    return rng.dirichlet(np.ones(n_actions), size=n_states)


def action_probabilities(policy: ArrayLike, S: int, A: int) -> FloatArray:
    """Check a policy, (S,) actions or (S, A) probabilities, and return it as (S, A)."""
    array = np.asarray(policy)
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
    probabilities = read_reals(array, "action probabilities")
    if not np.isfinite(probabilities).all() or (probabilities < 0.0).any():
        state = int(np.argmax(~(probabilities >= 0.0).all(axis=1)))
        raise InvalidModelError(
            f"action probabilities must be finite and not negative; state {state} has "
            f"{probabilities[state]}"
        )
    total = probabilities.sum(axis=1)
    state = int(np.argmax(np.abs(total - 1.0)))
    if abs(total[state] - 1.0) > sum_tolerance(A):
        raise InvalidModelError(
            f"action probabilities of state {state} sum to {float(total[state])!r}, not 1; "
            "normalize each row of the policy"
        )
    return probabilities
