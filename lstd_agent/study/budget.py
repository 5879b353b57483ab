"""What a scored method may sample: trials of a problem, counted as they are run.

A method gets a Gymnasium vector environment whose copies start a trial each with every reset. A
round beyond the budget of trials, or a step beyond their length, is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv, VectorWrapper
from numpy.typing import NDArray

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.errors import EvaluationError

# Standard errors, and whatever is chosen by data, need rounds that can be compared.
_ROUNDS = 20


class BudgetError(EvaluationError, RuntimeError):
    """A method ran more trials than it was given, or longer ones."""


@dataclass(frozen=True)
class Budget:
    """The trials that a method may run.

    Attributes
    ----------
    n_trials : int
        How many.
    t_max : int
        Their last timestep: a trial is t_max + 1 steps, at timesteps 0 to t_max.
    """

    n_trials: int
    t_max: int

    @property
    def num_envs(self) -> int:
        """How many trials run at once: a twentieth of all of them."""
        return -(-self.n_trials // _ROUNDS)

    @property
    def n_rounds(self) -> int:
        """How many rounds of `num_envs` trials the budget is, the last one perhaps in part."""
        return -(-self.n_trials // self.num_envs)


class BudgetedEnv(VectorWrapper):
    """A vector environment of ``budget.num_envs`` copies that keeps to a budget.

    Parameters
    ----------
    env : VectorEnv
        With ``budget.num_envs`` copies.
    budget : Budget

    Attributes
    ----------
    budget : Budget
    n_rounds : int
        How many rounds of trials have been started.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], budget: Budget) -> None:
        super().__init__(env)
        self.budget = budget
        self.n_rounds = 0
        self._t = 0

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start a trial in each copy.

        Parameters
        ----------
        seed : int, optional
        options : dict, optional

        Returns
        -------
        observations, infos

        Raises
        ------
        BudgetError
            If all rounds have been started already.
        """
        budget = self.budget
        if self.n_rounds == budget.n_rounds:
            raise BudgetError(
                f"the budget of {budget.n_trials} trials is spent: {budget.n_rounds} rounds of "
                f"{budget.num_envs}; start no other"
            )
        self.n_rounds += 1
        self._t = 0
        return self.env.reset(seed=seed, options=options)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take a step in each copy.

        Parameters
        ----------
        actions : ndarray, shape (num_envs,)

        Returns
        -------
        observations, rewards, terminated, truncated, infos

        Raises
        ------
        BudgetError
            Beyond timestep ``budget.t_max``.
        """
        if self._t > self.budget.t_max:
            raise BudgetError(
                f"a trial ends with the step at timestep t_max = {self.budget.t_max}; reset, "
                "which starts the next round"
            )
        self._t += 1
        return self.env.step(actions)


def trials(
    env: BudgetedEnv, policy: IntArray, budget: Budget, seed: int
) -> Iterator[tuple[NDArray[np.int64], FloatArray]]:
    """Run all trials of a budget and yield them round by round.

    Parameters
    ----------
    env : BudgetedEnv
    policy : ndarray of int, shape (S,)
        The action of each state.
    budget : Budget
    seed : int

    Yields
    ------
    states : ndarray of int, shape (n, t_max + 2)
        At timesteps 0 to t_max + 1.
    rewards : ndarray, shape (n, t_max + 1)
        On leaving them.
    """
    next_seed: int | None = seed
    for first in range(0, budget.n_trials, budget.num_envs):
        n = min(budget.num_envs, budget.n_trials - first)
        states = np.empty((budget.t_max + 2, budget.num_envs), dtype=np.int64)
        rewards = np.empty((budget.t_max + 1, budget.num_envs))
        states[0], _ = env.reset(seed=next_seed)
        next_seed = None
        for t in range(budget.t_max + 1):
            states[t + 1], rewards[t], *_ = env.step(policy[states[t]])
        yield states[:, :n].T, rewards[:, :n].T
