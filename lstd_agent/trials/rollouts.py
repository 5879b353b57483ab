"""Trials from any Gymnasium environment, in rounds.

A *round* runs as many trials in lockstep as a vector environment has copies; a plain `Env` runs
them one after the other. Each trial covers timesteps 0 to t_max, with the transition out of
t_max included. Rounds are handed over as they finish, and a plain environment's finished trials
even when the round breaks off: an interrupt loses only the trials under way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from tqdm import tqdm

from lstd_agent.arrays import BoolArray
from lstd_agent.errors import TerminationError, check_integer
from lstd_agent.progress import progress_bar
from lstd_agent.trials.encoding import Domain
from lstd_agent.trials.observations import as_batch, replace, take
from lstd_agent.trials.policies import Actor, Policy, make_actor
from lstd_agent.trials.recording import LockstepTrials, Round, SequentialTrials

# A plain environment's trials are counted together in rounds of at most this many, and of
# fewer if that makes this many rounds: they are also the batches of standard errors.
_TRIALS_PER_ROUND = 100
_ROUNDS = 20

AnyEnv: TypeAlias = gym.Env[Any, Any] | VectorEnv[Any, Any, Any]

Keep = Callable[[Round], None]


def collect_rounds(
    env: AnyEnv,
    domain: Domain,
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
        Each trial starts with a reset.
    domain : Domain
        Of the environment's observations.
    policy : array_like or callable
        See `lstd_agent.trials.policies.make_actor`.
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
        If a trial terminates (unless the domain has an end), or is truncated before ``t_max``.
    InvalidInputError
        If an argument does not fit.
    """
    n_trials, t_max = check_amounts(n_trials, t_max, seed)
    actor = make_actor(policy, *single_spaces(env), batched)
    env_seed, policy_seed = (None, None) if seed is None else split_seed(seed)
    rng = np.random.default_rng(policy_seed)
    if isinstance(env, VectorEnv):
        size = env.num_envs
    else:
        size = min(_TRIALS_PER_ROUND, -(-n_trials // _ROUNDS))
    with step_bar(n_trials * (t_max + 1), progress) as bar:
        for n, stored in pieces(n_trials, size, n_stored):
            shared = (domain, actor, rng, keep, n, t_max, env_seed, stored, bar)
            if isinstance(env, VectorEnv):
                _vector_round(env, *shared)
            else:
                _sequential_round(env, *shared)
            env_seed = None


def check_amounts(n_trials: int, t_max: int, seed: int | None) -> tuple[int, int]:
    """Validate how much to collect: return the number of trials and the last timestep."""
    n_trials, t_max = check_integer("n_trials", n_trials, 1), check_integer("t_max", t_max, 0)
    if seed is not None:
        check_integer("seed", seed, 0)
    return n_trials, t_max


def pieces(n_trials: int, size: int, n_stored: int) -> Iterator[tuple[int, int]]:
    """Cut trials into pieces of at most ``size``: how many each has, and is to keep whole."""
    for first in range(0, n_trials, size):
        n = min(size, n_trials - first)
        yield n, max(0, min(n, n_stored - first))


def step_bar(n_steps: int, progress: bool | None) -> tqdm[Any]:
    """Return a progress bar of timesteps; see `lstd_agent.progress.progress_bar`."""
    return progress_bar(n_steps, "step", progress, scale=True)


def single_spaces(env: AnyEnv) -> tuple[gym.Space[Any], gym.Space[Any]]:
    """Return the observation and action space of one copy of an environment."""
    if isinstance(env, VectorEnv):
        return env.single_observation_space, env.single_action_space
    return env.observation_space, env.action_space


def split_seed(seed: int) -> tuple[int, np.random.SeedSequence]:
    """Return independent seeds for an environment (an integer) and for a policy."""
    env_sequence, policy_sequence = np.random.SeedSequence(seed).spawn(2)
    # 63 bits, so that the seeds of a million collections differ.
    return int(env_sequence.generate_state(1, np.uint64)[0]) >> 1, policy_sequence


def _vector_round(
    env: VectorEnv[Any, Any, Any],
    domain: Domain,
    actor: Actor,
    rng: np.random.Generator,
    keep: Keep,
    n: int,
    t_max: int,
    seed: int | None,
    n_stored: int,
    bar: tqdm[Any],
) -> None:
    """Run one trial in each copy of a vector environment; count the first n."""
    mode = env.metadata.get("autoreset_mode")
    observation, _ = env.reset(seed=seed)
    trials = LockstepTrials(domain, domain.encode(observation)[:n], n_stored)
    for t in range(t_max + 1):
        observation, reward, terminated, truncated, info = env.step(actor(observation, rng))
        ended = terminated | truncated
        following, newly_ended = observation, None
        if ended.any():
            newly_ended = terminated[:n]
            _check_truncation(truncated[:n] & trials.living & ~terminated[:n], t, t_max)
            if mode == AutoresetMode.SAME_STEP:
                index = np.flatnonzero(ended)
                last = [_final_observation(observation, info["final_obs"], int(i)) for i in index]
                following = replace(observation, index, last)
            if mode == AutoresetMode.DISABLED and t < t_max:
                # Copies whose trial has ended go on, unobserved, so that the others can.
                observation, _ = env.reset(options={"reset_mask": ended})
        trials.advance(
            np.asarray(reward, dtype=np.float64)[:n], domain.encode(following)[:n], newly_ended
        )
        bar.update(n)
    keep(trials.finish())


def _sequential_round(
    env: gym.Env[Any, Any],
    domain: Domain,
    actor: Actor,
    rng: np.random.Generator,
    keep: Keep,
    n: int,
    t_max: int,
    seed: int | None,
    n_stored: int,
    bar: tqdm[Any],
) -> None:
    """Run n trials one after the other, then count them as if they had run in lockstep."""
    trials = SequentialTrials(domain, t_max)
    try:
        for i in range(n):
            observation, _ = env.reset(seed=seed if i == 0 else None)
            trials.start(domain.encode_one(observation))
            for t in range(t_max + 1):
                action = take(actor(as_batch(observation), rng), 0)
                observation, reward, terminated, truncated, _ = env.step(action)
                if truncated and not terminated:
                    _check_truncation(np.ones(1, dtype=bool), t, t_max)
                trials.advance(float(reward), domain.encode_one(observation), terminated)
                if terminated:
                    break
            trials.end()
            bar.update(t_max + 1)
    finally:
        if trials.n_finished:
            keep(trials.finish(n_stored))


def _final_observation(like: Any, final: Any, i: int) -> Any:
    """Return copy i's last observation from the infos, where a Dict comes apart by key."""
    if isinstance(like, dict):
        return {key: _final_observation(part, final[key], i) for key, part in like.items()}
    return final[i]


def _check_truncation(truncated: BoolArray, t: int, t_max: int) -> None:
    """Raise `TerminationError` if a trial is cut off before the last timestep."""
    if truncated.any() and t < t_max:
        raise TerminationError(
            f"trial {int(np.argmax(truncated))} of the round was truncated at timestep {t}, "
            f"before t_max = {t_max}: raise the environment's time limit (max_episode_steps) to "
            f"at least {t_max + 1}, or lower t_max"
        )
