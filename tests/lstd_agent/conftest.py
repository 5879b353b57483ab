"""Small environments whose every number can be worked out by hand."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces


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
