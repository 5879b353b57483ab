"""Policies: an action a state, action probabilities, a function of observations, or a model.

Models of Stable-Baselines3 and scikit-learn, which have a ``predict`` method, and torch modules are
recognized by their methods: no such library is imported. ``partial(model.predict,
deterministic=True)`` draws no actions. `StatedPolicy` compares policies: one agent has one.
"""

from __future__ import annotations

import hashlib
import types
from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeAlias

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import ArrayLike, NDArray

from lstd_agent.arrays import BoolArray, FloatArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.trials.spaces import as_batch, batch_size, each_array, part_sizes, plain_array, take


class Model(Protocol):
    """A learned policy, for example of Stable-Baselines3."""

    def predict(self, observation: Any, /) -> Any:
        """Return the actions for observations, or (actions, state)."""


Policy: TypeAlias = ArrayLike | Callable[[Any], Any] | Model
"""What `SeminormLSTDAgent.collect` takes as a policy."""

ActionNumbers: TypeAlias = tuple[int, int]
"""The number of Discrete actions, and the first one."""


def make_actor(
    policy: Policy, observation_space: Space[Any], action_space: Space[Any], batched: bool | None
) -> Actor:
    """Return an actor of a policy, or raise unless it fits the spaces of a single environment."""
    policy = as_given(policy)
    if is_module(policy):
        policy, batched = partial(module_actions, policy, observation_space, action_space), True
    if callable(policy):
        return CallableActor(policy, action_space, batched)
    array = plain_array(policy, "a policy")
    if not all(isinstance(each, spaces.Discrete) for each in (observation_space, action_space)):
        told = f"a policy of {observation_space} and {action_space} is a function, not an array"
        raise InvalidInputError(told)
    (S, first_state), (A, first) = map(discrete_actions, (observation_space, action_space))
    if array.shape == (S,) and array.dtype.kind in "iu":
        wrong = np.flatnonzero(are_none(array, (A, first)))
        if wrong.size:
            told = f"the policy takes action {array[wrong[0]]} in state {wrong[0]}; actions are "
            told += f"{in_words((A, first))}"
            raise InvalidInputError(told)
        return TableActor(array.astype(np.int64), np.empty((0, S)), first_state)
    if array.shape != (S, A) or array.dtype.kind not in "fiub":
        told = f"a policy is {S} integer actions, ({S}, {A}) action probabilities, or a callable; "
        told += f"got an array of shape {array.shape} and dtype {array.dtype}"
        raise InvalidInputError(told)
    probabilities = check_probabilities(array)
    # The threshold is infinite from the last possible action on, so rounding never selects an
    # action of probability zero.
    thresholds = np.cumsum(probabilities, axis=1)
    later = np.cumsum(probabilities[:, ::-1], axis=1)[:, ::-1]
    thresholds[:, :-1][later[:, 1:] == 0.0] = np.inf
    columns = np.ascontiguousarray(thresholds[:, :-1].T)
    return TableActor(np.full(S, first, dtype=np.int64), columns, first_state)


def check_probabilities(array: NDArray[Any]) -> FloatArray:
    """Return rows of action probabilities in double precision, or raise.

    Rows must sum to 1 within 1e4 roundings of a double an entry; rows in lower precision within
    one rounding an entry (at least four), and are divided by their sums, as in `unichain_gym`.
    """
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
        told = f"action probabilities of state {state} are {probabilities[state]}, which sum to "
        told += f"{float(total[state])!r}; each row must be a distribution"
        raise InvalidInputError(told)
    return probabilities


class TableActor:
    """Takes the first action (S,) of each state, plus 1 for each threshold that a number reaches.

    Thresholds (A - 1, S) are compared with a uniform number for each observation.
    """

    def __init__(
        self, actions: NDArray[np.int64], thresholds: FloatArray, first_state: int
    ) -> None:
        self._actions, self._columns, self._first_state = actions, thresholds, first_state
        self._list, self._rows = actions.tolist(), thresholds.T.tolist()

    def __call__(self, observations: Any, rng: np.random.Generator) -> NDArray[Any]:
        """Return the actions (n, ...) for a batch of n observations."""
        state = observations - self._first_state
        action: NDArray[Any] = self._actions[state]
        if len(self._columns):
            u = rng.random(len(state))
            for column in self._columns:
                action += u >= column[state]
        return action

    def one(self, observation: Any, rng: np.random.Generator) -> Any:
        """Return the action for a single observation."""
        state = observation - self._first_state
        row = self._rows[state]
        return self._list[state] + bisect_right(row, rng.random()) if row else self._list[state]


class CallableActor:
    """Calls a function of observations, on batches if it takes them.

    Without ``batched`` the first answer decides. The function gets a single observation, and then a
    batch of one if it returned no action; or a batch, of another size if an axis of an observation
    or an action has the same. ``batched=`` avoids these calls, for functions with a generator.
    """

    def __init__(
        self, policy: Callable[[Any], Any], action_space: Space[Any], batched: bool | None
    ) -> None:
        self._policy, self._takes_batches = policy, batched
        self._shape = tuple(action_space.shape or ())
        is_discrete = isinstance(action_space, spaces.Discrete)
        self._numbers = discrete_actions(action_space) if is_discrete else None

    def __call__(self, observations: Any, rng: np.random.Generator) -> NDArray[Any]:
        """Return the actions (n, ...) for a batch of n observations."""
        n, actions = batch_size(observations), None
        if self._takes_batches is None:
            sizes, size, tried = part_sizes(observations) | set(self._shape), n, observations
            if n < 2 or n in sizes:
                size = next(i for i in (2, 3, 5, 7, *range(11, 999)) if i not in sizes)
                tried = take(observations, np.zeros(size, dtype=np.int64))
            answer = self._try(tried)
            self._takes_batches = np.shape(answer) == (size, *self._shape)
            if self._takes_batches and tried is observations:
                actions = answer
        if actions is None and self._takes_batches:
            actions = _actions_of(self._policy(observations))
        elif actions is None:
            actions = [_actions_of(self._policy(take(observations, i))) for i in range(n)]
        return self._checked(np.asarray(actions), n)

    def one(self, observation: Any, rng: np.random.Generator) -> Any:
        """Return the action for a single observation."""
        if self._takes_batches is None:
            action = self._try(observation)
            self._takes_batches = action is None or np.shape(action) != self._shape
        elif not self._takes_batches:
            action = self._policy(observation)
            if self._numbers is not None and isinstance(action, int | np.integer):
                n, first = self._numbers
                if first <= action < first + n:
                    return action
            action = _actions_of(action)
        if self._takes_batches:
            return self(as_batch(observation), rng)[0]
        self._checked(np.asarray(action))
        return action

    def _try(self, observations: Any) -> Any:
        """Return the policy's answer, or None if it fails."""
        try:
            return _actions_of(self._policy(observations))
        except InvalidInputError:
            raise
        except Exception:  # a policy may raise anything for a wrong input
            return None

    def _checked(self, actions: NDArray[Any], n: int | None = None) -> NDArray[Any]:
        """Return the actions of n observations, or of a single one; raise unless they fit."""
        expected = self._shape if n is None else (n, *self._shape)
        if actions.shape != expected:
            many = "a single observation" if n is None else f"{n} observations"
            told = f"the policy returned actions of shape {actions.shape} for {many}; expected "
            told += f"{expected}. batched= says whether it takes batches"
            raise InvalidInputError(told)
        if self._numbers is None:
            return actions
        is_number = actions.dtype.kind in "biuf"
        numbers = actions if is_number else np.full(actions.shape, np.nan)
        if (wrong := are_none(numbers, self._numbers)).any():
            valid = in_words(self._numbers)
            told = f"the policy takes action {actions[wrong][0]}; actions are {valid}"
            raise InvalidInputError(told)
        return actions


Actor: TypeAlias = TableActor | CallableActor
"""Draws actions: called with a batch of observations, or ``one`` with a single one."""


def _actions_of(answer: Any) -> Any:
    """Return the actions of an answer, which may be (actions, None)."""
    if not isinstance(answer, tuple) or len(answer) != 2:
        return answer
    if answer[1] is None:
        return answer[0]
    if np.ndim(answer[0]):
        told = "the policy returned (actions, state) with a state to remember: only policies of "
        told += "the observation alone can be evaluated, since their trials are a Markov chain"
        raise InvalidInputError(told)
    return answer


def as_given(policy: Any) -> Any:
    """Return a model's ``predict``, the actions of an optimal policy, or the policy as it is."""
    if callable(policy) and not is_module(policy):
        return policy
    if callable(getattr(policy, "predict", None)):  # as in Stable-Baselines3
        return policy.predict
    actions = getattr(policy, "policy", None)  # `unichain_gym.optimal.OptimalPolicy`
    return actions if isinstance(actions, np.ndarray) else policy


def is_module(policy: Any) -> bool:
    """Return whether a policy is a torch module."""
    return callable(policy) and all(
        callable(getattr(policy, name, None)) for name in ("state_dict", "parameters", "forward")
    )


def module_actions(
    module: Any, observation_space: Space[Any], action_space: Space[Any], observations: Any
) -> NDArray[Any]:
    """Return the actions of a torch module: its output, or the largest of a number an action."""
    import torch  # already imported for the module

    parameter = next(iter(module.parameters()), torch.zeros(1))

    def tensor(part: Any, space: Space[Any]) -> Any:
        is_number = isinstance(space, spaces.Discrete | spaces.MultiDiscrete)
        how = {"dtype": torch.int64 if is_number else parameter.dtype, "device": parameter.device}
        return torch.as_tensor(np.asarray(part), **how)

    with torch.no_grad():
        output = module(each_array(tensor, observations, observation_space))
    if not isinstance(output, torch.Tensor):
        told = f"a torch module as policy returns a tensor of actions; got {type(output).__name__}"
        raise InvalidInputError(told)
    answer: NDArray[Any] = output.cpu().numpy()
    if not isinstance(action_space, spaces.Discrete):
        return answer
    # A log may not show all actions.
    if answer.ndim == 2 and answer.shape[1] >= action_space.n:
        return np.asarray(answer.argmax(axis=1) + action_space.start)
    if answer.dtype.kind not in "iu":
        raise InvalidInputError(
            f"a torch module as a policy of {action_space} returns integers (n,) or one number an "
            f"action (n, {action_space.n}); got {answer.dtype} of shape {answer.shape}"
        )
    return answer


def fingerprint(policy: Any) -> str | None:
    """Return a hash of the parameters of a policy that learns, which training changes, or None."""
    while isinstance(policy, partial):
        policy = policy.func
    policy = getattr(policy, "__self__", policy)
    module: Any = policy if is_module(policy) else getattr(policy, "policy", None)
    if not is_module(module):
        return None
    digest = hashlib.sha256()
    for name, value in module.state_dict().items():
        digest.update(name.encode())
        if hasattr(value, "cpu"):
            digest.update(np.ascontiguousarray(value.detach().cpu().numpy()).tobytes())
    return digest.hexdigest()


class StatedPolicy:
    """A policy, or a model's ``predict``, with its `fingerprint` when trials were added."""

    def __init__(self, policy: Any) -> None:
        self.policy: Policy = as_given(policy)
        if not callable(self.policy):  # a copy: the given array may change
            self.policy = np.array(plain_array(self.policy, "a policy"))
            self.policy.setflags(write=False)
        self.fingerprint = fingerprint(policy)

    def check_same(self, before: StatedPolicy) -> None:
        """Raise `InvalidInputError` unless this is the earlier policy, without further training."""
        if self.fingerprint != before.fingerprint or not same_policy(before.policy, self.policy):
            told = "the trials so far are of another policy: forget them with reset(), make a new "
            told += "agent, or say that it is the same with is_same_policy=True"
            raise InvalidInputError(told)


def same_policy(a: Any, b: Any) -> bool:
    """Compare the numbers of arrays, code and values of functions, or identities of others."""
    if not (callable(a) or callable(b)):
        return np.array_equal(plain_array(a, "a policy"), plain_array(b, "a policy"))
    return a is b or (_inside(a) is not None and _same_values(a, b))


def _inside(function: Any) -> tuple[Any, ...] | None:
    """Return the values that a function or a partial one refers to; None for other objects."""
    if isinstance(function, types.FunctionType):
        cells = tuple(cell.cell_contents for cell in function.__closure__ or ())
        return function.__code__, function.__defaults__, function.__kwdefaults__, cells
    if isinstance(function, partial):
        return function.func, function.args, function.keywords
    if isinstance(function, types.MethodType):
        return id(function.__func__), id(function.__self__)
    return None


def _same_values(a: Any, b: Any) -> bool:
    """Compare values that functions refer to; values that cannot be compared differ."""
    if a is b:
        return True
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_same_values, a, b))
    if (inner := _inside(a)) is not None:
        return _same_values(inner, _inside(b))
    try:
        return type(a) is type(b) and np.array_equal(a, b)
    except Exception:  # comparing a user's objects may raise anything
        return False


def discrete_actions(action_space: Space[Any]) -> ActionNumbers:
    """Return the number of Discrete actions and the first one, or raise."""
    if not isinstance(action_space, spaces.Discrete):
        told = f"action values need Discrete actions; got {action_space}: wrap the environment"
        raise InvalidInputError(told)
    return int(action_space.n), int(action_space.start)


def are_none(chosen: NDArray[Any], actions: ActionNumbers) -> BoolArray:
    """Return which numbers are not Discrete actions."""
    n_actions, first = actions
    wrong = (chosen < first) | (chosen >= first + n_actions)
    return wrong if chosen.dtype.kind in "iu" else wrong | (chosen % 1 != 0)


def in_words(actions: ActionNumbers) -> str:
    """Return the range of Discrete actions as a text."""
    n_actions, first = actions
    return f"{first} to {first + n_actions - 1}"
