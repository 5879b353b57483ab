"""Policies of a tabular MDP: checking, listing, drawing them, and the chains they induce.

A policy takes only the actions in ``allowed``, shape (S, A).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from functools import cached_property
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unichain_gym.errors import InvalidModelError, brief
from unichain_gym.interface import BoolArray, FloatArray, IntArray, OptimalPolicy, OutcomeModel
from unichain_gym.labels import agree_on_names, find_labels, look_up
from unichain_gym.outcomes import (
    drop_residues,
    read_array,
    read_floats,
    read_generator,
    sum_tolerance,
)
from unichain_gym.summary import abbreviate


class DeterministicPolicies(Sequence[IntArray]):
    """All deterministic policies, each (S,) actions, in lexicographic order.

    Policy i is the number i in digits, one for each state, the last state's digit the least
    significant. A digit is the rank of an action among the actions of the state. Policies are
    computed on demand; a slice is again such a sequence.

    Parameters
    ----------
    allowed : ndarray of bool, shape (S, A)
        The actions that each state has.
    numbers : range, optional
        Which policies, by number; all by default.

    Examples
    --------
    >>> from unichain_gym import make_mdp
    >>> policies = make_mdp("h100").policies()
    >>> policies.n_policies == 2**100
    True
    >>> policies[5][-3:].tolist()
    [1, 0, 1]
    """

    def __init__(self, allowed: BoolArray, numbers: range | None = None) -> None:
        self._allowed = allowed
        n_actions = np.count_nonzero(allowed, axis=1)
        self._base: list[int] = n_actions.tolist()
        # Powers, since a product of many factors takes long.
        powers = zip(*(c.tolist() for c in np.unique(n_actions, return_counts=True)), strict=True)
        self._numbers = range(math.prod(n**k for n, k in powers)) if numbers is None else numbers

    @cached_property
    def _actions(self) -> IntArray:
        """Row s: the actions of state s in order, then all others."""
        return np.argsort(~self._allowed, axis=1, kind="stable")

    @property
    def n_policies(self) -> int:
        """The number of policies, however large; `len` cannot exceed `sys.maxsize`."""
        r = self._numbers
        return max(0, (r.stop - r.start + r.step - (1 if r.step > 0 else -1)) // r.step)

    def __len__(self) -> int:
        n = self.n_policies
        if n > sys.maxsize:
            least = f"at least 2**{n.bit_length() - 1} policies"
            raise OverflowError(f"{least} are more than len() can return; use n_policies")
        return n

    @overload
    def __getitem__(self, index: int) -> IntArray: ...
    @overload
    def __getitem__(self, index: slice) -> DeterministicPolicies: ...
    def __getitem__(self, index: int | slice) -> IntArray | DeterministicPolicies:
        if isinstance(index, slice):
            return DeterministicPolicies(self._allowed, self._numbers[index])
        number, digits = self._numbers[index], np.zeros(len(self._base), dtype=np.int64)
        for s in range(digits.size - 1, -1, -1):
            if not number:
                break
            number, digits[s] = divmod(number, self._base[s])
        return np.asarray(self._actions[np.arange(digits.size), digits])

    def __contains__(self, policy: object) -> bool:
        S, A = self._allowed.shape
        chosen: NDArray[Any] = np.array(policy, dtype=object)
        if chosen.shape != (S,) or not all(isinstance(a, int | np.integer) for a in chosen):
            return False
        if not all(0 <= a < A and self._allowed[s, a] for s, a in enumerate(chosen)):
            return False
        rank = np.cumsum(self._allowed, axis=1) - 1
        number = 0
        for s, action in enumerate(chosen):
            number = number * self._base[s] + int(rank[s, action])
        return number in self._numbers


def draw_policy(
    mdp: OutcomeModel, rng: np.random.Generator | int, *, deterministic: bool = True
) -> FloatArray | IntArray:
    """Draw a policy of an MDP.

    Parameters
    ----------
    rng : numpy.random.Generator or int
        A generator, or a seed for one.
    deterministic : bool
        Draw uniformly from the deterministic policies; otherwise the action probabilities of
        each state uniformly from all distributions.

    Returns
    -------
    ndarray, shape (S,) of int, or (S, A) of float if not deterministic
    """
    rng, allowed = read_generator(rng), mdp.allowed_actions
    S, A = allowed.shape
    everywhere = bool(allowed.all())
    if not deterministic:
        # The entries of a uniform distribution that remain, normalized, are uniform again.
        pi = rng.dirichlet(np.ones(A), size=S)
        return pi if everywhere else pi * allowed / (pi * allowed).sum(axis=1, keepdims=True)
    if everywhere:
        return np.asarray(rng.integers(A, size=S))
    rank = rng.integers(np.count_nonzero(allowed, axis=1), size=S)
    policy: IntArray = np.argsort(~allowed, axis=1, kind="stable")[np.arange(S), rank]
    return policy


def check_policy(mdp: OutcomeModel, policy: ArrayLike | OptimalPolicy) -> FloatArray:
    """Return a policy of an MDP as checked action probabilities, shape (S, A).

    Parameters
    ----------
    policy : array_like, shape (S,) of int or (S, A) of float, or OptimalPolicy
        An action, by number or name, or a distribution over actions for each state. Rounding
        errors are dropped as in transitions.

    Raises
    ------
    InvalidModelError
        If the shape is wrong, the state lacks an action, or a row does not sum to 1.
    """
    given: Any = getattr(policy, "policy", policy)
    allowed = mdp.allowed_actions
    S, A = allowed.shape
    array = look_up(read_array(given, "the policy"), mdp.action_names, "action")
    if labels := find_labels("the policy", given, "state", "action"):
        for kind, n, names in (("state", S, mdp.state_names), ("action", A, mdp.action_names)):
            agree_on_names(kind, n, range(n) if names is None else names, labels)
    if array.shape not in ((S,), (S, A)):
        raise InvalidModelError(
            f"a policy has shape ({S},) (an action a state) or ({S}, {A}) (action probabilities); "
            f"got {array.shape or brief(given)}"
        )
    probabilities = _one_hot(array, A) if array.ndim == 1 else _distributions(array)
    absent = (probabilities > 0.0) & ~allowed
    if absent.any():
        state, action = (int(i) for i in np.argwhere(absent)[0])
        p, has = float(probabilities[state, action]), np.flatnonzero(allowed[state])
        raise InvalidModelError(
            f"the policy takes action {action} in state {state} with probability {p!r}, and the "
            f"state lacks it; it has: {abbreviate(has)}"
        )
    return probabilities


def _one_hot(actions: NDArray[Any], A: int) -> FloatArray:
    S = actions.size
    if not np.issubdtype(actions.dtype, np.integer):
        raise InvalidModelError(
            f"a policy of shape ({S},) holds one integer action a state; got dtype {actions.dtype}"
        )
    wrong = np.flatnonzero((actions < 0) | (actions >= A))
    if wrong.size:
        raise InvalidModelError(
            f"the policy takes action {actions[wrong[0]]} in state {wrong[0]}; actions are 0 to "
            f"{A - 1}"
        )
    probabilities = np.zeros((S, A))
    probabilities[np.arange(S), actions] = 1.0
    return probabilities


def _distributions(policy: NDArray[Any]) -> FloatArray:
    S, A = policy.shape
    row = np.broadcast_to(np.arange(S)[:, None], (S, A))
    place = "action {1} in state {0}".format
    given = read_floats(policy, "action probabilities").copy()
    # Small positive entries are meant: the tail of a softmax is that small.
    pi = drop_residues(given, row, S, lambda i: place(*divmod(i, A)), None, small_is_meant=True)
    if not np.isfinite(pi).all() or (pi < 0.0).any():
        state = int(np.argmax(~(pi >= 0.0).all(axis=1)))
        raise InvalidModelError(
            f"action probabilities must be finite and not negative; state {state} has {pi[state]}"
        )
    total = pi.sum(axis=1)
    state = int(np.argmax(np.abs(total - 1.0)))
    if abs(total[state] - 1.0) > sum_tolerance(A):
        residue = f"state {state} sum to {float(total[state])!r}, not 1"
        raise InvalidModelError(f"action probabilities of {residue}; normalize each row")
    return pi
