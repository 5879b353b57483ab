"""Policies: an action a state, action probabilities, or a function of observations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import ArrayLike, NDArray

from lstd_agent.arrays import FloatArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.trials.observations import batch_size, take

Policy: TypeAlias = ArrayLike | Callable[[Any], Any]
"""What `SeminormLSTDAgent.collect` takes as a policy."""

Actor: TypeAlias = Callable[[Any, np.random.Generator], NDArray[Any]]
"""Draws actions (n, ...) for a batch of n observations."""

_SUM_TOLERANCE = 1e-8


def make_actor(
    policy: Policy, observation_space: Space[Any], action_space: Space[Any], batched: bool | None
) -> Actor:
    """Turn a policy into a function that draws actions for a batch of observations.

    Parameters
    ----------
    policy : array_like or callable
        Shape (S,) of int: an action a state. Shape (S, A): action probabilities. A callable
        gets observations and returns actions.
    observation_space, action_space : Space
        Of a single environment.
    batched : bool or None
        Whether a callable takes batches (n, ...); None tries it on the first batch.

    Raises
    ------
    InvalidInputError
        If the policy does not fit the spaces.
    """
    if callable(policy):
        return _callable_actor(policy, action_space, batched)
    array = np.asarray(policy)
    if not isinstance(observation_space, spaces.Discrete) or not isinstance(
        action_space, spaces.Discrete
    ):
        raise InvalidInputError(
            "a policy given as an array needs Discrete observations and actions; got "
            f"{observation_space} and {action_space}: pass a function of observations"
        )
    S, A = int(observation_space.n), int(action_space.n)
    first_state, first_action = int(observation_space.start), int(action_space.start)
    if array.shape == (S,) and np.issubdtype(array.dtype, np.integer):
        wrong = np.flatnonzero((array < first_action) | (array >= first_action + A))
        if wrong.size:
            raise InvalidInputError(
                f"the policy takes action {array[wrong[0]]} in state {wrong[0]}; actions are "
                f"{first_action} to {first_action + A - 1}"
            )
        actions = array.astype(np.int64)
        return lambda observation, rng: actions[observation - first_state]
    if array.shape != (S, A):
        raise InvalidInputError(
            f"a policy is {S} integer actions, ({S}, {A}) action probabilities, or a callable; "
            f"got an array of shape {array.shape} and dtype {array.dtype}"
        )
    return _stochastic_actor(array.astype(np.float64), first_state, first_action)


def _stochastic_actor(probabilities: FloatArray, first_state: int, first_action: int) -> Actor:
    total = probabilities.sum(axis=1)
    valid = (probabilities >= 0.0).all(axis=1) & (np.abs(total - 1.0) <= _SUM_TOLERANCE)
    if not valid.all():
        state = int(np.argmin(valid))
        raise InvalidInputError(
            f"action probabilities of state {state} are {probabilities[state]}, which sum to "
            f"{total[state]!r}; each row must be a distribution"
        )
    # From the last possible action on the threshold is infinite, so that rounding in the sums
    # can never select an action of probability zero.
    thresholds = np.cumsum(probabilities, axis=1)
    later = np.cumsum(probabilities[:, ::-1], axis=1)[:, ::-1]
    thresholds[:, :-1][later[:, 1:] == 0.0] = np.inf
    columns = np.ascontiguousarray(thresholds[:, :-1].T)

    def act(observation: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
        state = observation - first_state
        u = rng.random(state.shape[0])
        action = np.full(state.shape[0], first_action, dtype=np.int64)
        for column in columns:
            action += u >= column[state]
        return action

    return act


def _callable_actor(
    policy: Callable[[Any], Any], action_space: Space[Any], batched: bool | None
) -> Actor:
    shape = tuple(action_space.shape or ())
    takes_batches = batched

    def act(observation: Any, rng: np.random.Generator) -> NDArray[Any]:
        nonlocal takes_batches
        n = batch_size(observation)
        if takes_batches is None:
            takes_batches = _takes_batches(policy, observation, shape)
        if takes_batches:
            actions = np.asarray(policy(observation))
        else:
            actions = np.asarray([policy(take(observation, i)) for i in range(n)])
        if actions.shape != (n, *shape):
            raise InvalidInputError(
                f"the policy returned actions of shape {actions.shape} for {n} observations; "
                f"expected {(n, *shape)}. batched= tells whether it takes batches"
            )
        return actions

    return act


def _takes_batches(
    policy: Callable[[Any], Any], observation: Any, action_shape: tuple[int, ...]
) -> bool:
    """Try the policy on a batch of two, a size no single observation's answer mimics."""
    batch = take(observation, np.zeros(2, dtype=np.int64))
    try:
        return bool(np.shape(policy(batch)) == (2, *action_shape))
    except Exception:  # whatever a policy for single observations raises on a batch
        return False
