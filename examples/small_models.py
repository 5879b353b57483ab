"""What the examples share: an environment from a table, and estimates from several runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from lstd_agent import SeminormLSTDAgent

Outcome = tuple[float, int, float, bool]
"""Probability, next state, reward, whether the episode ends (here it never does)."""


class TableEnv(gym.Env[int, int]):
    """A continuing task from its outcomes, with starts drawn evenly from some states.

    Parameters
    ----------
    outcomes : list of list of tuple
        Of each state: probability, next state, reward and False.
    starts : sequence of int
        The states in which trials start.
    """

    def __init__(self, outcomes: list[list[Outcome]], starts: list[int]) -> None:
        self.P = {s: {0: found} for s, found in enumerate(outcomes)}
        self.initial_state_distrib = np.bincount(starts, minlength=len(outcomes)) / len(starts)
        self.observation_space = gym.spaces.Discrete(len(outcomes))
        self.action_space = gym.spaces.Discrete(1)
        self._cumulative = [np.cumsum([p for p, *_ in found])[:-1] for found in outcomes]
        self._starts = starts
        self._state = starts[0]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Start in one of the starts."""
        super().reset(seed=seed)
        self._state = int(self.np_random.choice(self._starts))
        return self._state, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Draw one outcome."""
        place = np.searchsorted(self._cumulative[self._state], self.np_random.random(), "right")
        _, self._state, reward, _ = self.P[self._state][0][int(place)]
        return self._state, reward, False, False, {}


@dataclass(frozen=True)
class Estimate:
    """A number and its standard error, from independent runs.

    Parameters
    ----------
    value, error : float
    """

    value: float
    error: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ± {self.error:.2f}"

    @classmethod
    def over_runs(cls, values: list[float]) -> Estimate:
        """Return the mean and its standard error of one number from each run."""
        return cls(float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values))))


def over_runs(
    make_agent: Callable[[], SeminormLSTDAgent],
    env: gym.Env[Any, Any],
    policy: Any,
    answer: Callable[[SeminormLSTDAgent], float],
    *,
    n_runs: int,
    n_trials: int,
    t_max: int,
) -> Estimate:
    """Collect and fit several independent times, and combine one number of each fit.

    Parameters
    ----------
    make_agent : callable
        Returns an agent without trials.
    env, policy, n_trials, t_max
        As in `SeminormLSTDAgent.collect`.
    answer : callable
        Computes the number from a fitted agent.
    n_runs : int
        At least 2.
    """
    values = []
    for seed in range(n_runs):
        agent = make_agent()
        agent.collect(env, policy, n_trials, t_max=t_max, seed=seed, progress=False)
        values.append(answer(agent.fit()))
    return Estimate.over_runs(values)
