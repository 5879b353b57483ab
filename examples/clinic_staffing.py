# %% [markdown]
"""A clinic that opens with a queue.

At eight in the morning 30 patients stand at the door of a walk-in clinic, and 20 more come each
hour. Two nurses work all the time. One rule calls a third nurse while more than 4 patients are in
the clinic. The other rule calls two more nurses while more than 12 patients are in the clinic. A
nurse costs 30 an hour, and each patient in the clinic 6 an hour. Which rule makes the first four
hours cheaper?

The clinic is simulated from event to event, so that steps take time: until a patient comes or goes.
"""

# %%
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from small_models import Estimate

from lstd_agent import OneHot, SeminormLSTDAgent

ARRIVALS, SERVED = 20.0, 12.0  # patients an hour: all, and by one nurse
PATIENT, NURSE = 6.0, 30.0  # costs an hour
AT_THE_DOOR, MOST = 30, 60  # a full clinic turns patients away
HOURS = 4.0


class Clinic(gym.Env[Any, Any]):
    """A walk-in clinic; the action is how many nurses work until the next patient comes or goes."""

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Discrete(MOST + 1)
        self.action_space = gym.spaces.Discrete(5)
        self.patients = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Open with the queue at the door."""
        super().reset(seed=seed)
        self.patients = AT_THE_DOOR
        return self.patients, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Wait until a patient comes or goes; the info has the duration."""
        come = ARRIVALS if self.patients < MOST else 0.0
        go = SERVED * min(self.patients, action)
        hours = self.np_random.exponential(1.0 / (come + go))
        cost = (PATIENT * self.patients + NURSE * action) * hours
        self.patients += 1 if self.np_random.random() < come / (come + go) else -1
        return self.patients, -cost, False, False, {"duration": hours}


RULES: dict[str, Callable[[int], int]] = {
    "a third nurse above 4": lambda patients: 3 if patients > 4 else 2,
    "two more above 12": lambda patients: 4 if patients > 12 else 2,
}

# %% [markdown] The gain is the cost of an hour in the long run. A morning adds the bias of its
# start, relative to the mean bias over the second half of each trial.


# %%
def cost_of_morning(agent: SeminormLSTDAgent) -> float:
    """Return the cost of the first hours, by a fitted agent."""
    time = agent.counts.duration_sums
    assert time is not None  # the environment tells them
    hours = np.asarray(time[time.shape[0] // 2 :].sum(axis=0)).ravel()
    bias = agent.predict(np.arange(MOST + 1))
    seen = hours > 0.0
    settled = hours[seen] @ bias[seen] / hours.sum()
    return float(-(agent.gain_ * HOURS + agent.predict(AT_THE_DOOR, 0) - settled))


def main(n_runs: int = 5, n_trials: int = 150) -> dict[str, tuple[Estimate, Estimate]]:
    """Estimate the cost of an hour and of the morning under both rules, and decide."""
    env, found = Clinic(), {}
    for name, rule in RULES.items():
        numbers = []
        for seed in range(n_runs):
            agent = SeminormLSTDAgent(OneHot())
            agent.collect(env, rule, n_trials=n_trials, t_max=500, seed=seed).fit()
            numbers.append((-agent.gain_, cost_of_morning(agent)))
        means = np.mean(numbers, axis=0)
        errors = np.std(numbers, axis=0, ddof=1) / np.sqrt(n_runs)
        hour, morning = (Estimate(*map(float, each)) for each in zip(means, errors, strict=True))
        print(f"{name}: an hour costs {hour} in the long run, the morning {morning}")
        found[name] = hour, morning
    for i, what in enumerate(("in the long run", "this morning")):
        best = min(found, key=lambda name: found[name][i].value)
        print(f"{what} the cheaper rule is: {best}")
    return found


if __name__ == "__main__":
    main()
