"""Policies: an action a state, action probabilities, or a function of observations."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeAlias

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import ArrayLike, NDArray

from lstd_agent.arrays import FloatArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.trials.learned_policies import is_model, is_module, module_actions
from lstd_agent.trials.observations import as_batch, batch_size, part_sizes, take


class Model(Protocol):
    """What has learned to act, such as a model of Stable-Baselines3."""

    def predict(self, observation: Any, /) -> Any:
        """Return the actions for observations, or (actions, state)."""


Policy: TypeAlias = ArrayLike | Callable[[Any], Any] | Model
"""What `SeminormLSTDAgent.collect` takes as a policy."""


class Actor(Protocol):
    """Draws actions, for batches of observations and for single ones."""

    def __call__(self, observations: Any, rng: np.random.Generator) -> NDArray[Any]:
        """Return actions (n, ...) for a batch of n observations."""

    def one(self, observation: Any, rng: np.random.Generator) -> Any:
        """Return the action for a single observation: what a batch of it would get."""


def make_actor(
    policy: Policy, observation_space: Space[Any], action_space: Space[Any], batched: bool | None
) -> Actor:
    """Turn a policy into something that draws actions.

    Parameters
    ----------
    policy : array_like or callable
        Shape (S,) of int: an action a state. Shape (S, A): action probabilities. A callable
        gets observations and returns actions, or (actions, None) as Stable-Baselines3 does. A
        model of that library and a torch module: see `lstd_agent.trials.learned_policies`.
    observation_space, action_space : Space
        Of a single environment.
    batched : bool or None
        Whether a callable takes batches (n, ...); None finds out when it is first called, see
        `CallableActor`.

    Raises
    ------
    InvalidInputError
        If the policy does not fit the spaces.

    Notes
    -----
    Rows of probabilities sum to 1 within 1e4 roundings of a double an entry, or, if they are
    given in lower precision, within one rounding of that an entry (four at least); then they
    are divided by their sums in double precision. `unichain_gym` has the same rule.
    """
    learned: Any = policy
    if is_model(learned):
        policy = learned.predict
    elif is_module(learned):
        policy, batched = partial(module_actions, learned, observation_space, action_space), True
    if callable(policy):
        return CallableActor(policy, action_space, batched)
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
        return TableActor(array.astype(np.int64), first_state)
    if array.shape != (S, A) or array.dtype.kind not in "fiub":
        raise InvalidInputError(
            f"a policy is {S} integer actions, ({S}, {A}) action probabilities, or a callable; "
            f"got an array of shape {array.shape} and dtype {array.dtype}"
        )
    return StochasticActor(check_probabilities(array), first_state, first_action)


def check_probabilities(array: NDArray[Any]) -> FloatArray:
    """Return rows of action probabilities in double precision, or raise unless they are."""
    probabilities = array.astype(np.float64)
    total = probabilities.sum(axis=1)
    if array.dtype.kind == "f" and array.dtype.itemsize < 8:
        n_terms = np.maximum(4, np.count_nonzero(probabilities, axis=1))
        rounded = np.abs(total - 1.0) <= float(np.finfo(array.dtype).eps) * n_terms
        probabilities[rounded] /= total[rounded, None]
        total = probabilities.sum(axis=1)
    tolerance = 1e4 * np.finfo(np.float64).eps * probabilities.shape[1]
    valid = (probabilities >= 0.0).all(axis=1) & (np.abs(total - 1.0) <= tolerance)
    if not valid.all():
        state = int(np.argmin(valid))
        raise InvalidInputError(
            f"action probabilities of state {state} are {probabilities[state]}, which sum to "
            f"{float(total[state])!r}; each row must be a distribution"
        )
    return probabilities


class TableActor:
    """Takes one action in each state."""

    def __init__(self, actions: NDArray[np.int64], first_state: int) -> None:
        self._actions = actions
        self._list = actions.tolist()
        self._first_state = first_state

    def __call__(self, observations: Any, rng: np.random.Generator) -> NDArray[Any]:
        """Return the actions (n,) for observations (n,)."""
        actions: NDArray[Any] = self._actions[observations - self._first_state]
        return actions

    def one(self, observation: Any, rng: np.random.Generator) -> Any:
        """Return the action for a single observation."""
        return self._list[observation - self._first_state]


class StochasticActor:
    """Draws actions with the probabilities of each state, one uniform number an observation."""

    def __init__(self, probabilities: FloatArray, first_state: int, first_action: int) -> None:
        self._first_state, self._first_action = first_state, first_action
        # From the last possible action on the threshold is infinite, so that rounding in the
        # sums can never select an action of probability zero.
        thresholds = np.cumsum(probabilities, axis=1)
        later = np.cumsum(probabilities[:, ::-1], axis=1)[:, ::-1]
        thresholds[:, :-1][later[:, 1:] == 0.0] = np.inf
        self._columns = np.ascontiguousarray(thresholds[:, :-1].T)
        self._rows = thresholds[:, :-1].tolist()

    def __call__(self, observations: Any, rng: np.random.Generator) -> NDArray[Any]:
        """Return the actions (n,) for observations (n,)."""
        state = observations - self._first_state
        u = rng.random(state.shape[0])
        action = np.full(state.shape[0], self._first_action, dtype=np.int64)
        for column in self._columns:
            action += u >= column[state]
        return action

    def one(self, observation: Any, rng: np.random.Generator) -> Any:
        """Return the action for a single observation."""
        row = self._rows[observation - self._first_state]
        return self._first_action + bisect_right(row, rng.random())


class CallableActor:
    """Calls a function of observations, on batches if it takes them.

    Unless that is said, its first answers tell. A single observation is shown as it is first,
    and as a batch of one if no action comes of that. A batch is shown as it is if its size is
    that of no axis of an observation or an action, so that only a function of batches can
    answer with as many actions. Otherwise the function has to answer for a batch of another
    size first; if it draws from a generator of its own, ``batched=`` saves it that.
    """

    def __init__(
        self, policy: Callable[[Any], Any], action_space: Space[Any], batched: bool | None
    ) -> None:
        self._policy = policy
        self._shape = tuple(action_space.shape or ())
        self._takes_batches = batched

    def __call__(self, observations: Any, rng: np.random.Generator) -> NDArray[Any]:
        """Return the actions (n, ...) for a batch of n observations."""
        n = batch_size(observations)
        if self._takes_batches is None:
            sizes = part_sizes(observations) | set(self._shape)
            if n > 1 and n not in sizes:
                actions = self._try(observations)
                self._takes_batches = np.shape(actions) == (n, *self._shape)
                if self._takes_batches:
                    return np.asarray(actions)
            else:
                other = next(size for size in (2, 3, 5, 7, *range(11, 999)) if size not in sizes)
                answer = self._try(take(observations, np.zeros(other, dtype=np.int64)))
                self._takes_batches = np.shape(answer) == (other, *self._shape)
        if self._takes_batches:
            actions = np.asarray(_actions_of(self._policy(observations)))
        else:
            answers = [self._policy(take(observations, i)) for i in range(n)]
            actions = np.asarray([_actions_of(answer) for answer in answers])
        if actions.shape != (n, *self._shape):
            raise self._misfit(actions.shape, n)
        return actions

    def one(self, observation: Any, rng: np.random.Generator) -> Any:
        """Return the action for a single observation."""
        if self._takes_batches is None:
            action = self._try(observation)
            self._takes_batches = action is None or np.shape(action) != self._shape
            if not self._takes_batches:
                return action
        if self._takes_batches:
            return self(as_batch(observation), rng)[0]
        action = self._policy(observation)
        if type(action) is int and not self._shape:
            return action
        action = _actions_of(action)
        shape = action.shape if isinstance(action, np.ndarray | np.generic) else np.shape(action)
        if shape != self._shape:
            raise self._misfit(np.shape(action), None)
        return action

    def _try(self, observations: Any) -> Any:
        """Return the policy's answer, or None where it has none."""
        try:
            return _actions_of(self._policy(observations))
        except InvalidInputError:
            raise
        except Exception:  # whatever a policy raises on what is not meant for it
            return None

    def _misfit(self, shape: tuple[int, ...], n: int | None) -> InvalidInputError:
        many = "a single observation" if n is None else f"{n} observations"
        expected = self._shape if n is None else (n, *self._shape)
        return InvalidInputError(
            f"the policy returned actions of shape {shape} for {many}; expected {expected}. "
            "batched= tells whether it takes batches"
        )


def _actions_of(answer: Any) -> Any:
    """Return the actions of an answer: of (actions, None), the first."""
    if not isinstance(answer, tuple) or len(answer) != 2:
        return answer
    if answer[1] is None:
        return answer[0]
    if np.ndim(answer[0]):
        raise InvalidInputError(
            "the policy returned (actions, state) with a state to remember: only policies of "
            "the observation alone can be evaluated, since their trials are a Markov chain"
        )
    return answer
