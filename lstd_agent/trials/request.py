"""What a collection is asked for, in one value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lstd_agent.arrays import BoolArray
from lstd_agent.errors import check_integer
from lstd_agent.trials.exploration import Explore, check_explore


@dataclass(frozen=True)
class Request:
    """How many trials, how long, and how they are run.

    Attributes
    ----------
    n_trials, t_max : int
        Number of trials, each over timesteps 0 to t_max.
    seed : int, optional
        Of the environment's first reset and of the policy's draws.
    batched : bool or None
        Whether a callable policy takes batches; None finds out.
    progress : bool or None
        Show a progress bar; None shows one on a terminal only.
    n_stored : int
        How many trials to keep whole beside their sums.
    explore : int, float or callable, optional
        How to explore; None, as 0 does not, leaves out which actions were taken. See
        `lstd_agent.trials.exploration`.
    wherever : callable, optional
        Where to explore at any timestep.

    Raises
    ------
    InvalidInputError
        If there is no such collection.
    """

    n_trials: int
    t_max: int
    seed: int | None = None
    batched: bool | None = None
    progress: bool | None = False
    n_stored: int = 0
    explore: Explore | None = None
    wherever: Callable[[Any], BoolArray] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_trials", check_integer("n_trials", self.n_trials, 1))
        object.__setattr__(self, "t_max", check_integer("t_max", self.t_max, 0))
        if self.seed is not None:
            object.__setattr__(self, "seed", check_integer("seed", self.seed, 0))
        if self.explore is not None:
            object.__setattr__(self, "explore", check_explore(self.explore, self.t_max))

    @property
    def n_steps(self) -> int:
        """Number of timesteps in all."""
        return self.n_trials * (self.t_max + 1)
