"""What a collection is asked for, in one value."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from lstd_agent.arrays import BoolArray
from lstd_agent.errors import InvalidInputError, check_integer
from lstd_agent.trials.exploration import Explore, check_explore


@dataclass(frozen=True)
class Request:
    """How many trials, how long, and how they are run.

    As `SeminormLSTDAgent.collect` describes it, and two things more.

    Attributes
    ----------
    wherever : callable, optional
        Where to explore at any timestep.
    n_stored : int
        How many trials to keep whole beside their sums.

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
    workers: int = 1
    executor: Executor | None = None
    shard_size: int | None = None
    is_same_policy: bool = False
    explore: Explore | None = None
    wherever: Callable[[Any], BoolArray] | None = None
    n_stored: int = 0

    def __post_init__(self) -> None:
        smallest = {"n_trials": 1, "t_max": 0, "seed": 0, "workers": 1, "shard_size": 1}
        for name, least in smallest.items():
            value = getattr(self, name)
            if value is not None or name in ("n_trials", "t_max", "workers"):
                object.__setattr__(self, name, check_integer(name, value, least))
        if self.explore is not None:
            object.__setattr__(self, "explore", check_explore(self.explore, self.t_max))

    @property
    def n_steps(self) -> int:
        """Number of timesteps in all."""
        return self.n_trials * (self.t_max + 1)

    @property
    def is_shared(self) -> bool:
        """Whether workers are asked for, which make their own environments."""
        return self.workers != 1 or self.executor is not None or self.shard_size is not None

    def check_not_shared(self, env: Any) -> None:
        """Raise `InvalidInputError` if workers are asked for, and given an environment."""
        if self.is_shared:
            raise InvalidInputError(
                "workers make their own environments: pass an id, or a function that makes "
                f"an environment, instead of {env}"
            )
