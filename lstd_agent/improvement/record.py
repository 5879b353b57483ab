"""The record of policy iteration."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Iteration:
    """What an iteration found of the policy that its trials followed.

    Attributes
    ----------
    number : int
        From 0.
    n_trials, n_steps : int
        Trials and timesteps up to here, those of earlier iterations included.
    gain : float
        Of the policy, by all samples.
    start_value : float
        The mean bias of the start: its value, less that of the long run. NaN where the samples
        do not determine it.
    tail_reward, tail_error : float
        Mean reward of the second half of this iteration's trials, which are the policy's own, and
        its standard error.
    reward, reward_error : float
        Mean reward over all timesteps of this iteration's trials, exploratory actions included.
    n_changes : int
        In how many states another action turned out to be better: with vectors, of how many of
        1000 observations.

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
