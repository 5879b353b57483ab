"""Other people's tasks, beside brute force: episodes from two starts, played out."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from lstd_agent import OneHot, SeminormLSTDAgent
from lstd_agent.arrays import FloatArray
from lstd_agent.errors import FitWarning


class Deal(gym.Wrapper[Any, Any, Any, Any]):
    """Blackjack without end: the step that ends a hand deals the next.

    A hand that stands looks as it did before, so that an observation of it would not tell whether
    it is over.
    """

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, over, _, info = self.env.step(action)
        if over:
            observation, info = self.env.reset()
        return observation, reward, False, False, info


def stand_from_17(observation: Any) -> int:
    return int(observation[0] < 17)


def played(env: Any, n: int, player: tuple[int, int] | None = None, showing: int = 0) -> FloatArray:
    """Play n hands, from one if it is given, shape (n, 2): what each earned, and its steps."""
    hands = np.zeros((n, 2))
    table = env.unwrapped
    env.reset(seed=0)
    for hand in hands:
        observation, _ = env.reset()
        if player is not None:
            table.player, table.dealer[0] = list(player), showing
            observation = table._get_obs()
        over = False
        while not over:
            observation, reward, over, _, _ = env.step(stand_from_17(observation))
            hand += float(reward), 1.0
    return hands


@pytest.mark.slow
def test_values_of_blackjack_hands_agree_with_simulation() -> None:
    """Observations are a Tuple, and counted."""
    env = gym.make("Blackjack-v1", disable_env_checker=True)
    agent = SeminormLSTDAgent(OneHot(), n_anchors=1, n_batches=10)
    for seed in range(8):
        agent.collect(Deal(env), stand_from_17, n_trials=40, t_max=40, seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)  # of hands that were hardly ever dealt
        agent.fit()
    earned, steps = played(env, 1000).sum(axis=0)
    worth = [1.0, -earned / steps]
    good = played(env, 500, (10, 10), 6) @ worth
    bad = played(env, 500, (10, 4), 10) @ worth
    right, noise = good.mean() - bad.mean(), np.hypot(good.std(), bad.std()) / np.sqrt(500)
    found = agent.compare((20, 6, 0), (14, 10, 0))
    assert abs(found.difference - right) < 3.0 * np.hypot(found.standard_error, noise)
    assert found.standard_error < 0.25 * right
