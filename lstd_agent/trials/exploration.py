"""Exploration that leaves the tail of trials alone.

A policy's own trials show one action in each state. Exploratory actions, some in the first half
of a trial and none later, show what the others lead to, while gain and settled tail stay those
of the policy: the gain is estimated from the second half of all timesteps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from lstd_agent.arrays import BoolArray, IntArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.trials.counts import Taken
from lstd_agent.trials.policies import Actor, CallableActor
from lstd_agent.trials.spaces import as_batch

Explore: TypeAlias = int | float | Callable[[Any], Any]
"""What `SeminormLSTDAgent.collect` takes for exploration: a number of exploratory actions a trial,
a probability of one at each timestep of the first half, or another policy for all of them."""


ActionNumbers: TypeAlias = tuple[int, int]
"""How many Discrete actions there are, and the first of them."""


def check_explore(explore: Any, t_max: int) -> Explore:
    """Return how to explore, or raise `InvalidInputError` unless trials to t_max can be so."""
    if callable(explore):
        return explore  # type: ignore[no-any-return]
    half = (t_max + 1) // 2
    if isinstance(explore, int | np.integer) and not isinstance(explore, bool):
        if 0 <= explore <= half:
            return int(explore)
        raise InvalidInputError(
            f"explore={explore} actions need as many timesteps in the first half of a trial, and "
            f"with t_max = {t_max} there are {half}"
        )
    if isinstance(explore, float | np.floating) and 0.0 <= explore <= 1.0:
        return float(explore)
    raise InvalidInputError(
        "explore is a number of actions a trial (int), a probability (float from 0.0 to 1.0), or "
        f"a policy as a function of observations; got {explore!r}"
    )


class Exploration:
    """Replaces some of a policy's actions by exploratory ones.

    Those are drawn uniformly from the actions that there are: all, or those that
    ``info["action_mask"]`` allows.

    Parameters
    ----------
    explore : int, float or callable
        As `check_explore` returns it.
    action_space : Space
        Of a single environment.
    t_max : int
    rng : Generator
    batched : bool, optional
        Whether a callable takes batches.
    wherever : callable, optional
        Tells of a batch of observations in which to explore at any timestep, as where the policy
        has nothing to say.

    Raises
    ------
    InvalidInputError
        If actions are not Discrete.
    """

    def __init__(
        self,
        explore: Explore,
        action_space: Space[Any],
        t_max: int,
        rng: np.random.Generator,
        batched: bool | None = None,
        wherever: Callable[[Any], BoolArray] | None = None,
    ) -> None:
        self.n_actions, self._first_action = discrete_actions(action_space)
        self._half = (t_max + 1) // 2
        self._number = explore if isinstance(explore, int) else None
        self._probability = explore if isinstance(explore, float) else 1.0
        self._rng = rng
        self._wherever = wherever
        self._behavior: Actor | None = None
        if callable(explore):
            self._behavior = CallableActor(explore, action_space, batched)
        self._times: IntArray = np.empty((0, 0), dtype=np.int64)

    def begin(self, n: int) -> None:
        """Draw when n trials, about to start, are explored."""
        if self._number is not None:
            # The first so many of a random order of the timesteps are distinct ones.
            order = self._rng.random((n, self._half)) if self._number else np.empty((n, 0))
            self._times = np.argsort(order, axis=1, kind="stable")[:, : self._number]

    def choose(
        self, t: int, observations: Any, action: NDArray[Any], info: dict[str, Any]
    ) -> tuple[NDArray[Any], Taken]:
        """Return the actions to take of n trials, and what was taken.

        Parameters
        ----------
        t : int
        observations : batch of n observations
        action : ndarray of int, shape (n,)
            The policy's.
        info : dict
            Of the environment, with ``action_mask`` where states lack actions.
        """
        n = len(action)
        explored = self._is_explored(t, n)
        if self._wherever is not None:
            explored = explored | self._wherever(observations)
        chosen = np.asarray(action)
        if explored.any():
            chosen = np.where(explored, self._exploratory(observations, n, info), chosen)
        index = chosen.astype(np.int64) - self._first_action
        if index.min() < 0 or index.max() >= self.n_actions:
            numbers = self.n_actions, self._first_action
            raise InvalidInputError(
                f"action {chosen[are_none(chosen, numbers)][0]} was taken at timestep {t}; actions "
                f"are {in_words(numbers)}"
            )
        return chosen, Taken(index, explored)

    def choose_one(
        self, t: int, observation: Any, action: Any, info: dict[str, Any]
    ) -> tuple[int, Taken]:
        """Return the action to take of a single trial, and what was taken."""
        chosen, taken = self.choose(t, as_batch(observation), np.array([action]), info)
        return int(chosen[0]), taken

    def _is_explored(self, t: int, n: int) -> BoolArray:
        if self._number is not None:
            return np.asarray((self._times == t).any(axis=1))
        if t >= self._half:
            return np.zeros(n, dtype=bool)
        if self._probability >= 1.0:
            return np.ones(n, dtype=bool)
        return np.asarray(self._rng.random(n) < self._probability)

    def _exploratory(self, observations: Any, n: int, info: dict[str, Any]) -> NDArray[Any]:
        if self._behavior is not None:
            return np.asarray(self._behavior(observations, self._rng))
        u = self._rng.random(n)
        mask = action_mask(info, n, self.n_actions)
        if mask is None:
            return np.asarray(self._first_action + (u * self.n_actions).astype(np.int64))
        # The action at which the number of allowed ones up to there exceeds u times all.
        upto = np.cumsum(mask, axis=1)
        index = np.argmax(upto > (u * upto[:, -1])[:, None], axis=1)
        return np.asarray(self._first_action + index)


def action_mask(info: dict[str, Any], n: int, n_actions: int) -> BoolArray | None:
    """Return which actions n trials have, shape (n, A); None where all have all of them."""
    mask = info.get("action_mask")
    if mask is None:
        return None
    allowed = np.asarray(mask).reshape(-1, n_actions).astype(bool)
    if len(allowed) != n:
        raise InvalidInputError(
            f"action masks of {n} trials have shape ({n}, {n_actions}); got {np.shape(mask)}"
        )
    told = info.get("_action_mask")  # which copies of a vector environment told one
    if told is not None and np.shape(told) == (n,):
        allowed = allowed | ~np.asarray(told, dtype=bool)[:, None]
    if not allowed.any(axis=1).all():
        raise InvalidInputError(
            f"the action mask of trial {int(np.argmin(allowed.any(axis=1)))} allows no action"
        )
    return allowed


def discrete_actions(action_space: Space[Any]) -> ActionNumbers:
    """Return the number of actions and the first one, or raise unless they are Discrete."""
    if not isinstance(action_space, spaces.Discrete):
        raise InvalidInputError(
            f"action values are those of Discrete actions; got {action_space}: wrap the "
            "environment so that it takes one of a few actions"
        )
    return int(action_space.n), int(action_space.start)


def are_none(chosen: NDArray[Any], actions: ActionNumbers) -> BoolArray:
    """Return which numbers are none of the Discrete actions, so many from the first one on."""
    n_actions, first = actions
    number = chosen - first
    return np.asarray((number % 1 != 0) | (number < 0) | (number >= n_actions))


def in_words(actions: ActionNumbers) -> str:
    """Return the range of Discrete actions as a text."""
    n_actions, first = actions
    return f"{first} to {first + n_actions - 1}"
