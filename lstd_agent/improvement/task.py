"""Trials of a task for policy iteration, in the environment given or in those that workers make."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import gymnasium as gym
from gymnasium.vector import VectorEnv

from lstd_agent.improvement.making import Improver
from lstd_agent.trials.recording import Round
from lstd_agent.trials.request import Request
from lstd_agent.trials.rollouts import AnyEnv, single_spaces
from lstd_agent.trials.sharding import EnvSource, make_env, runner_of

# A vector environment's trials are run so many at a time, and more if that makes more shards:
# its copies are slow where they are few.
_FEWEST_COPIES = 1000
_SHARDS = 20


class Task:
    """An environment, or what makes one, with its spaces of observations and actions."""

    def __init__(self, env: AnyEnv | EnvSource, n_trials: int) -> None:
        self._env = env
        self._shard_size: int | None = None
        if isinstance(env, gym.Env | VectorEnv):
            self.spaces = single_spaces(env)
            return
        with closing(make_env(env, 1)) as sample:
            self.spaces = single_spaces(sample)
            if isinstance(sample, VectorEnv):
                self._shard_size = max(_FEWEST_COPIES, -(-n_trials // _SHARDS))

    def run(self, improver: Improver, request: Request) -> list[Round]:
        """Run trials of the policy that is improved."""
        rounds: list[Round] = []
        runner_of(self._env, request)(
            improver.encoding,
            improver.policy(),
            lambda states: improver.recorder(request.t_max),
            rounds.append,
            replace(request, shard_size=self._shard_size),
        )
        return rounds
