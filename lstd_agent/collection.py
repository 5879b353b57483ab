"""Trials from any Gymnasium environment into transition counts.

A *round* runs as many trials in lockstep as the environment has copies; a plain `Env` runs
them one after the other. Each trial covers timesteps 0 to t_max, with the transition out of
t_max included. Rounds are handed over as they finish, and a plain environment's finished trials
even when the round breaks off: an interrupt loses only the trials under way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray
from tqdm import tqdm

from lstd_agent.errors import InvalidInputError, TerminationError
from lstd_agent.policies import Actor, Policy, make_actor
from lstd_agent.seminorm_lstd import FloatArray, IntArray
from lstd_agent.statistics import CountRecorder, TransitionCounts

# A plain environment's trials are counted together in rounds of this many.
_TRIALS_PER_ROUND = 100


@dataclass(frozen=True, eq=False)
class Round:
    """What a round of trials leaves behind.

    Attributes
    ----------
    counts : TransitionCounts
    states : ndarray of unsigned int, shape (n_stored, t_max + 1)
        The states of its first trials.
    """

    counts: TransitionCounts
    states: NDArray[np.unsignedinteger]


Keep = Callable[[Round], None]


def collect_rounds(
    env: gym.Env[Any, Any] | VectorEnv[Any, Any, Any],
    policy: Policy,
    keep: Keep,
    *,
    n_trials: int,
    t_max: int,
    seed: int | None = None,
    n_stored: int = 0,
    batched: bool | None = None,
    progress: bool | None = False,
) -> None:
    """Run trials and hand over their counts round by round.

    Parameters
    ----------
    env : Env or VectorEnv
        With Discrete observations. Each trial starts with a reset.
    policy : array_like or callable
        See `lstd_agent.policies.make_actor`.
    keep : callable
        Gets each finished `Round`.
    n_trials, t_max : int
        Number of trials, and the last timestep of each.
    seed : int, optional
        Of the environment's first reset and of the policy's draws.
    n_stored : int
        How many trials' states to keep in all.
    batched : bool or None
        Whether a callable policy takes batches; None tries it on the first batch.
    progress : bool or None
        Show a progress bar; None shows one on a terminal only.

    Raises
    ------
    TerminationError
        If a trial terminates, or is truncated before ``t_max``.
    InvalidInputError
        If an argument does not fit.
    """
    if n_trials < 1 or t_max < 0:
        raise InvalidInputError(
            f"n_trials must be at least 1 and t_max at least 0; got {n_trials} and {t_max}"
        )
    observation_space, action_space = single_spaces(env)
    if not isinstance(observation_space, spaces.Discrete):
        raise InvalidInputError(f"observations must be Discrete; got {observation_space}")
    actor = make_actor(policy, observation_space, action_space, batched)
    env_seed, policy_seed = (None, None) if seed is None else _two_seeds(seed)
    rng = np.random.default_rng(policy_seed)
    size = env.num_envs if isinstance(env, VectorEnv) else _TRIALS_PER_ROUND
    with tqdm(
        total=n_trials * (t_max + 1),
        unit="step",
        unit_scale=True,
        disable=None if progress is None else not progress,
    ) as bar:
        for first in range(0, n_trials, size):
            n = min(size, n_trials - first)
            stored = max(0, min(n, n_stored - first))
            shared = (actor, rng, observation_space, keep, n, t_max, env_seed, stored, bar)
            if isinstance(env, VectorEnv):
                _vector_round(env, *shared)
            else:
                _single_round(env, *shared)
            env_seed = None


def single_spaces(
    env: gym.Env[Any, Any] | VectorEnv[Any, Any, Any],
) -> tuple[gym.Space[Any], gym.Space[Any]]:
    """Return the observation and action space of one copy of an environment."""
    if isinstance(env, VectorEnv):
        return env.single_observation_space, env.single_action_space
    return env.observation_space, env.action_space


def _two_seeds(seed: int) -> tuple[int, np.random.SeedSequence]:
    """Return independent seeds for an environment (an integer) and for a policy."""
    env_sequence, policy_sequence = np.random.SeedSequence(seed).spawn(2)
    return int(env_sequence.generate_state(1)[0]), policy_sequence


def _vector_round(
    env: VectorEnv[Any, Any, Any],
    actor: Actor,
    rng: np.random.Generator,
    space: spaces.Discrete,
    keep: Keep,
    n: int,
    t_max: int,
    seed: int | None,
    n_stored: int,
    bar: tqdm[Any],
) -> None:
    """Run one trial in each copy of a vector environment; count the first n."""
    S, start = int(space.n), int(space.start)
    recorder = CountRecorder(S, t_max)
    states = np.empty((t_max + 1, n_stored), dtype=np.min_scalar_type(S - 1))
    observation, _ = env.reset(seed=seed)
    for t in range(t_max + 1):
        following, reward, terminated, truncated, info = env.step(actor(observation, rng))
        _check_end(terminated[:n], truncated[:n], t, t_max)
        if truncated.any() and env.metadata.get("autoreset_mode") == AutoresetMode.SAME_STEP:
            ended = np.flatnonzero(truncated)
            following = following.copy()
            following[ended] = np.stack(info["final_obs"][ended])
        state = observation[:n] - start
        recorder.record(state, np.asarray(reward, dtype=np.float64)[:n], following[:n] - start)
        states[t] = state[:n_stored]
        observation = following
        bar.update(n)
    keep(Round(recorder.counts(n), np.ascontiguousarray(states.T)))


def _single_round(
    env: gym.Env[Any, Any],
    actor: Actor,
    rng: np.random.Generator,
    space: spaces.Discrete,
    keep: Keep,
    n: int,
    t_max: int,
    seed: int | None,
    n_stored: int,
    bar: tqdm[Any],
) -> None:
    """Run n trials one after the other, then count them as if they had run in lockstep."""
    states: IntArray = np.empty((t_max + 2, n), dtype=np.int64)
    rewards: FloatArray = np.empty((t_max + 1, n))
    n_finished = 0
    try:
        for i in range(n):
            observation, _ = env.reset(seed=seed if i == 0 else None)
            states[0, i] = observation
            for t in range(t_max + 1):
                action = actor(np.asarray([observation]), rng)[0]
                observation, reward, terminated, truncated, _ = env.step(action)
                _check_end(np.array([terminated]), np.array([truncated]), t, t_max)
                states[t + 1, i] = observation
                rewards[t, i] = reward
            n_finished += 1
            bar.update(t_max + 1)
    finally:
        if n_finished:
            states = states[:, :n_finished] - int(space.start)
            recorder = CountRecorder(int(space.n), t_max)
            for t in range(t_max + 1):
                recorder.record(states[t], rewards[t, :n_finished], states[t + 1])
            stored = states[:-1, :n_stored].T.astype(np.min_scalar_type(int(space.n) - 1))
            keep(Round(recorder.counts(n_finished), stored))


def _check_end(
    terminated: NDArray[np.bool_], truncated: NDArray[np.bool_], t: int, t_max: int
) -> None:
    """Raise `TerminationError` unless every trial goes on to the last timestep."""
    if terminated.any():
        raise TerminationError(
            f"trial {int(np.argmax(terminated))} of the round terminated at timestep {t}: the "
            "evaluator is for continuing tasks, which never terminate. Make the task continuing, "
            "for instance by restarting it where it would end"
        )
    if truncated.any() and t < t_max:
        raise TerminationError(
            f"trial {int(np.argmax(truncated))} of the round was truncated at timestep {t}, "
            f"before t_max = {t_max}: raise the environment's time limit (max_episode_steps) to "
            f"at least {t_max + 1}, or lower t_max"
        )
