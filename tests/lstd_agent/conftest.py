"""Small environments whose every number can be worked out by hand."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv, VectorObservationWrapper

from unichain_gym import TabularMDP


class Walk(gym.Env[Any, Any]):
    """0 → 1 → … → n - 1, one place a step; there it stays, or ends. Each step pays its place."""

    def __init__(self, n: int = 4, ends: bool = False, kind: str = "discrete") -> None:
        self.n, self.ends, self.kind = n, ends, kind
        self.action_space = spaces.Discrete(2)
        box = spaces.Box(0.0, 10.0, (1,))
        self.observation_space = {
            "discrete": spaces.Discrete(n),
            "box": box,
            "dict": spaces.Dict({"x": box, "even": spaces.Discrete(2, start=1)}),
        }[kind]
        self.place = 0
        self.over = True

    def observation(self) -> Any:
        x = np.array([self.place], dtype=np.float32)
        even = np.int64(1 + self.place % 2)
        return {"discrete": self.place, "box": x, "dict": {"x": x, "even": even}}[self.kind]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.over = 0, False
        return self.observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert not self.over, "stepped after its end"
        reward = float(self.place)
        self.place = min(self.place + 1, self.n - 1)
        self.over = self.ends and self.place == self.n - 1
        return self.observation(), reward, self.over, False, {}


@pytest.fixture
def walk() -> Any:
    return Walk


class Backlogs(VectorEnv[Any, Any, Any]):
    """A step brings up to 1.4 units of work and does one; it costs what is waiting.

    What is waiting at the start is a number, or drawn by a function of a generator and a number.
    """

    def __init__(self, n: int, start: Any, drains: bool = False) -> None:
        box = spaces.Box(0.0, np.inf, (1,))
        self.num_envs, self.start, self.drains = n, start, drains
        self.single_observation_space, self.single_action_space = box, spaces.Discrete(1)
        self.observation_space = spaces.Box(0.0, np.inf, (n, 1))
        self.action_space = spaces.MultiDiscrete([1] * n)
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def observations(self) -> Any:
        return self.work[:, None].astype(np.float32)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        n = self.num_envs
        self.work = self.start(self.rng, n) if callable(self.start) else np.full(n, self.start)
        return self.observations(), {}

    def step(self, actions: Any) -> Any:
        cost, none = self.work, np.zeros(self.num_envs, dtype=bool)
        if self.drains:
            coin = self.rng.integers(2, size=self.num_envs)
            self.work = np.where(self.work > 1.0, self.work - 1.0, coin)
        else:
            self.work = np.maximum(0.0, self.work + self.rng.uniform(0.0, 1.4, self.num_envs) - 1)
        return self.observations(), -cost, none, none, {}


@pytest.fixture
def backlogs() -> Any:
    return Backlogs


class AsNumbers(VectorObservationWrapper):
    """The states of a Discrete vector environment as vectors of one number."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        n = env.single_observation_space.n
        self.single_observation_space = spaces.Box(0.0, n - 1.0, (1,))
        self.observation_space = spaces.Box(0.0, n - 1.0, (env.num_envs, 1))

    def observations(self, observations: Any) -> Any:
        return observations[:, None].astype(np.float32)


@pytest.fixture
def as_numbers() -> Any:
    return AsNumbers


@pytest.fixture
def long_queue() -> TabularMDP:
    """21 states, up with .3, down with .5, cost the state, from 0 or 20 alike."""
    P = 0.2 * np.eye(21) + 0.3 * np.eye(21, k=1) + 0.5 * np.eye(21, k=-1)
    P[0, 0], P[20, 20] = 0.7, 0.5
    start = np.eye(21)[[0, 20]].mean(axis=0)
    return TabularMDP.from_arrays(P[:, None], -np.arange(21.0)[:, None], start)
