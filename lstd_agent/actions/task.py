"""A task's trials, and which way its policy is improved: by counts, or by features of vectors."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
from gymnasium import Space
from gymnasium.vector import VectorEnv
from numpy.typing import ArrayLike

from lstd_agent.actions.counted_improver import CountedImprover
from lstd_agent.actions.vector_improver import VectorImprover
from lstd_agent.arrays import FloatArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.features.tables import Features
from lstd_agent.trials.collect import AnyEnv, Request, single_spaces
from lstd_agent.trials.encoding import CountedEncoding, ObservationKind, make_encoding
from lstd_agent.trials.policies import discrete_actions, make_actor
from lstd_agent.trials.workers import EnvSource, make_env, runner_of

Improver: TypeAlias = CountedImprover | VectorImprover
"""A policy, and samples of this and other policies by which it is improved."""

# A vector environment's trials are run so many at a time, and more if that makes more shards:
# its copies are slow where they are few.
_FEWEST_COPIES = 1000
_SHARDS = 20


def make_improver(
    spaces: tuple[Space[Any], Space[Any]],
    ends: bool,
    observations: ObservationKind,
    n_errors: float,
    features: Features | None,
    pair_features: Callable[[Any, Any], ArrayLike] | None,
    policy: ArrayLike | None,
) -> Improver:
    """Return what improves a policy of a task, or raise if features or a policy do not fit it."""
    space, action_space = spaces
    n_actions, first_action = discrete_actions(action_space)
    given = _constant if features is None else features
    encoding = make_encoding(space, given, ends, observations)
    if isinstance(encoding, CountedEncoding):
        if features is not None or pair_features is not None:
            raise InvalidInputError(
                "observations that are counted have values of their own and need no features: "
                "leave them out, or give observations='vectors'"
            )
        actions = None
        if policy is not None:
            make_actor(policy, space, action_space, None)
            actions = np.append(np.asarray(policy) - first_action, [0] * ends).astype(np.int64)
        slim = encoding.without_features()
        return CountedImprover(slim, n_actions, first_action, n_errors, actions)
    if policy is not None:
        raise InvalidInputError("policy= is an array of actions of Discrete observations")
    if features is None and pair_features is None:
        raise InvalidInputError(
            f"observations of {space} cannot be counted: give features= of them, such as "
            "RadialBasis.grid(low, high, n)"
        )
    return VectorImprover(encoding, n_actions, first_action, n_errors, pair_features)


def _constant(observations: Any) -> FloatArray:
    """Return one feature that tells nothing: counted states need none."""
    return np.ones((len(observations), 1))


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

    def run(self, improver: Improver, request: Request) -> list[Any]:
        """Run trials of the policy that is improved."""
        rounds: list[Any] = []
        runner_of(self._env, request)(
            improver.recording(request.t_max),
            improver.policy(),
            rounds.append,
            replace(request, shard_size=self._shard_size),
        )
        return rounds
