"""Episodic environments made continuing, by starting again where they would end."""

from __future__ import annotations

from typing import Any

import gymnasium as gym


class Restart(gym.Wrapper[Any, Any, Any, Any]):
    """Starts again after termination, instead of ending: the task never terminates.

    The terminal observation is shown as it is. The step after it, whatever the action, pays 0
    and leads to what the environment's reset observes; where steps have an ``info["duration"]``
    it takes no time. Truncation is passed on: make the environment with ``max_episode_steps=-1``
    to have no limit.

    Parameters
    ----------
    env : Env
        Not a vector environment: wrap its copies.

    Methods
    -------
    reset(seed, options)
        Reset the environment.
    step(action)
        Take a step, or start again if the last one reached an end.

    Examples
    --------
    >>> env = Restart(gym.make("FrozenLake-v1", is_slippery=False, max_episode_steps=-1))
    >>> env.reset(seed=0)[0]
    0
    >>> [env.step(action)[0] for action in (2, 1, 0)]  # beside a hole, into it, and out again
    [1, 5, 0]

    Notes
    -----
    It is how `unichain_gym.TabularMDP.from_gymnasium` continues with
    ``on_termination="restart"``, and how Gymnasium's vector environments reset by default.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self._over, self._is_timed = False, False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset the environment.

        Parameters
        ----------
        seed : int, optional
        options : dict, optional
            Of the environment.

        Returns
        -------
        observation, info
        """
        self._over = False
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take a step, or start again if the last one reached an end.

        Parameters
        ----------
        action : object
            Not taken where the environment starts again.

        Returns
        -------
        observation, reward, terminated, truncated, info
            With False for both ends; the step that starts again pays 0.
        """
        if self._over:
            self._over = False
            observation, info = super().reset()
            if self._is_timed:
                info = {**info, "duration": 0.0}
            return observation, 0.0, False, False, info
        observation, reward, self._over, truncated, info = super().step(action)
        self._is_timed = "duration" in info
        return observation, reward, False, truncated, info
