# %% [markdown]
"""A queue whose policy is learned.

A counter serves at its normal pace, or calls a helper at a price per minute. Stable-Baselines3
learns when, and reports mean rewards of episodes. On Monday morning up to 20 customers wait. Which
of the learned policies is best for this day? Two numbers of a policy decide: the gain, its reward
per minute in the long run, and the mean bias of the start, its reward above the gain while the
backlog drains.
"""

# %%
from typing import Any

import gymnasium as gym

from lstd_agent import OneHot

MOST, BACKLOG, PRICE = 30, 20, 2.0
ARRIVAL, SERVICE = 0.35, (0.4, 0.65)  # at most one event per minute


class Counter(gym.Env[Any, Any]):
    """A queue with or without a helper; each customer costs 1 per minute."""

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Discrete(MOST + 1)
        self.action_space = gym.spaces.Discrete(2)
        self.n = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Open with any number up to the backlog."""
        super().reset(seed=seed)
        self.n = int(self.np_random.integers(BACKLOG + 1))
        return self.n, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Let a minute pass."""
        reward = -float(self.n) - PRICE * int(action)
        u = self.np_random.random()
        if u < ARRIVAL:
            self.n = min(self.n + 1, MOST)
        elif u > 1.0 - SERVICE[int(action)]:
            self.n = max(self.n - 1, 0)
        return self.n, reward, False, False, {}


# %% [markdown] Ordinary learning, with a callback that evaluates the policy at intervals.


# %%
def main(
    n_steps: int = 12_000, every: int = 3_000, n_trials: int = 300, t_max: int = 300
) -> list[Any]:
    """Learn, evaluate on the way, and choose."""
    try:
        from lstd_agent.sb3 import StartValueCallback
    except ImportError as error:
        print(f"left out: {error}")
        return []
    import torch
    from stable_baselines3 import DQN

    torch.set_num_threads(1)  # a network this small is slower with more
    learned_on = gym.wrappers.TimeLimit(Counter(), max_episode_steps=200)
    many = gym.vector.SyncVectorEnv([Counter] * 100)  # one call of the network for all
    callback = StartValueCallback(
        many, OneHot(), every=every, n_trials=n_trials, t_max=t_max, verbose=1
    )
    model = DQN(
        "MlpPolicy",
        learned_on,
        learning_rate=1e-3,
        learning_starts=500,
        target_update_interval=250,
        seed=0,
        device="cpu",
    )
    model.learn(n_steps, callback=callback)
    for found in callback.evaluations:
        print(f"after {found.n_steps} steps: {value_of_a_day(found):.0f} in a day of 480 minutes")
    best = max(callback.evaluations, key=value_of_a_day)
    print(f"put to work the policy after {best.n_steps} steps")
    return callback.evaluations


def value_of_a_day(found: Any) -> float:
    """Return the mean reward of a day of 480 minutes."""
    return float(480 * found.gain + found.start_value)


if __name__ == "__main__":
    main()
