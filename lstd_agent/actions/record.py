"""What policy iteration tells: rewards of trials, results of iterations, undecided actions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.trials.kept import NO_TIME, KeptTrials
from lstd_agent.trials.policies import ActionNumbers


def means_of(trials: KeptTrials) -> FloatArray:
    """Return mean rewards and durations over the second half of timesteps, and over all, (4, n)."""
    both = trials.rewards, trials.part("durations")
    half = trials.rewards.shape[1] // 2
    return np.stack([part[:, start:].mean(axis=1) for start in (half, 0) for part in both])


def earned(means: Sequence[FloatArray]) -> dict[str, float]:
    """Return mean rewards per unit of time, by `means_of`, as in an `Iteration`.

    Each trial counts as (r - g (τ - mean τ)) / mean τ, whose mean is total rewards over total time.
    """
    tail, tail_time, whole, time = np.concatenate(means, axis=1)
    figures = {}
    for name, paid, spent in (("tail_", tail, tail_time), ("", whole, time)):
        mean = float(spent.mean())
        if mean == 0.0:
            raise InvalidInputError(NO_TIME)
        each = (paid - paid.mean() / mean * (spent - mean)) / mean
        figures[f"{name}reward"] = float(each.mean())
        figures[f"{name or 'reward_'}error"] = float(each.std(ddof=1) / np.sqrt(len(each)))
    return figures


@dataclass(frozen=True)
class Undecided:
    """An action that samples neither prefer to the policy's nor reject.

    Attributes
    ----------
    observation : observation
    action, instead_of : int
        The task's numbers of the action, and of the policy's.
    difference : float
        Action value minus the action value of the policy's action; NaN if not determined.
    standard_error : float
        Of the difference; infinite if not determined.

    Examples
    --------
    >>> from lstd_agent import Undecided
    >>> print(Undecided(3, action=1, instead_of=0, difference=-0.2, standard_error=0.1))
    3: action 1 instead of 0, -0.2 ± 0.1
    """

    observation: Any
    action: int
    instead_of: int
    difference: float
    standard_error: float

    def __str__(self) -> str:
        worth = f"{self.difference:.3g} ± {self.standard_error:.2g}"
        if np.isnan(self.difference):
            worth = "not tried enough"
        return f"{self.observation}: action {self.action} instead of {self.instead_of}, {worth}"


@dataclass(frozen=True)
class Iteration:
    """The results of an iteration, for the policy of its trials.

    Attributes
    ----------
    number : int
        From 0.
    n_trials, n_steps : int
        Trials and timesteps so far.
    gain : float
        The policy's, by all samples.
    start_value : float
        The mean bias of the start: its value minus the value of the long run. NaN if not
        determined.
    tail_reward, tail_error : float
        Mean reward of the second half of this iteration's trials, which are the policy's own, and
        its standard error.
    reward, reward_error : float
        The same over all timesteps, exploratory actions included.
    n_changes : int
        Number of states in which another action is better; with vectors, of 1000 observations.

    Examples
    --------
    >>> from lstd_agent import PolicyIteration
    >>> first = PolicyIteration("unichain_gym:Unichain-h6-v0", t_max=50, n_trials=100).iterate()
    >>> first.number, first.n_trials, first.n_steps
    (0, 100, 5100)
    """

    number: int
    n_trials: int
    n_steps: int
    gain: float
    start_value: float
    tail_reward: float
    tail_error: float
    reward: float
    reward_error: float
    n_changes: int


@dataclass(frozen=True, eq=False)
class SavedSearch:
    """The content of a search's file; ``tried`` has the policy of each iteration."""

    options: dict[str, Any]
    explore: Any
    entropy: int
    space: Any
    actions: ActionNumbers
    iterations: tuple[Iteration, ...]
    converged: bool
    begins_with_policy: bool
    tried: tuple[IntArray, ...]
    samples: Any
