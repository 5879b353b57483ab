"""Trials from any Gymnasium environment, in rounds.

A *round* runs as many trials in lockstep as a vector environment has copies; a plain `Env` runs
them one after the other. Each trial covers timesteps 0 to t_max, with the transition out of
t_max included. Rounds are handed over as they finish, and a plain environment's finished trials
even when the round breaks off: an interrupt loses only the trials under way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from tqdm import tqdm

from lstd_agent.arrays import BoolArray, FloatArray, States
from lstd_agent.errors import InvalidInputError, TerminationError
from lstd_agent.progress import progress_bar
from lstd_agent.trials.action_counts import ActionCountRecorder, Taken
from lstd_agent.trials.encoding import Encoding
from lstd_agent.trials.exploration import Exploration
from lstd_agent.trials.observations import replace
from lstd_agent.trials.policies import Actor, Policy, make_actor
from lstd_agent.trials.recorders import Recorder, RecorderMaker, Round
from lstd_agent.trials.recording import LockstepTrials, SequentialTrials
from lstd_agent.trials.request import Request

# A plain environment's trials are added up together in rounds of at most this many, and of
# fewer if that makes this many rounds: they are also the batches of standard errors.
_TRIALS_PER_ROUND = 100
_ROUNDS = 20

AnyEnv: TypeAlias = gym.Env[Any, Any] | VectorEnv[Any, Any, Any]

Keep = Callable[[Round], None]

Plan = Callable[[States], RecorderMaker]
"""Decides, knowing the first states, how trials are recorded."""


def collect_rounds(
    env: AnyEnv, encoding: Encoding, policy: Policy, plan: Plan, keep: Keep, request: Request
) -> None:
    """Run trials and hand over their sums round by round.

    Parameters
    ----------
    env : Env or VectorEnv
        Each trial starts with a reset.
    encoding : Encoding
        Of the environment's observations.
    policy : array_like or callable
        See `lstd_agent.trials.policies.make_actor`.
    plan : callable
        Gets the states in which the first trials start; returns what makes recorders.
    keep : callable
        Gets each finished `Round`.
    request : Request

    Raises
    ------
    TerminationError
        If a trial terminates (unless the encoding has an end), or is truncated before ``t_max``.
    InvalidInputError
        If an argument does not fit.
    """
    actor = make_actor(policy, *single_spaces(env), request.batched)
    seed = request.seed
    env_seed, policy_seed = (None, None) if seed is None else split_seed(seed)
    rng = np.random.default_rng(policy_seed)
    size = min(_TRIALS_PER_ROUND, -(-request.n_trials // _ROUNDS))
    exploration = _exploration(env, request)
    with progress_bar(request.n_steps, "step", request.progress, scale=True) as bar:
        rounds = _Rounds(
            env, encoding, actor, rng, plan, keep, request.t_max, env_seed, bar, exploration
        )
        run = rounds.one_by_one
        if isinstance(env, VectorEnv):
            size, run = env.num_envs, rounds.in_lockstep
        for n, stored in pieces(request.n_trials, size, request.n_stored):
            run(n, stored)


def pieces(n_trials: int, size: int, n_stored: int) -> Iterator[tuple[int, int]]:
    """Cut trials into pieces of at most ``size``: how many each has, and is to keep whole."""
    for first in range(0, n_trials, size):
        n = min(size, n_trials - first)
        yield n, max(0, min(n, n_stored - first))


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


@dataclass
class _Rounds:
    """The rounds of one collection, run one after the other."""

    env: Any
    encoding: Encoding
    actor: Actor
    rng: np.random.Generator
    plan: Plan
    keep: Keep
    t_max: int
    seed: int | None
    bar: tqdm[Any]
    exploration: Exploration | None = None
    _make_recorder: RecorderMaker | None = None

    def _reset(self) -> tuple[Any, dict[str, Any]]:
        """Start over, the first time with the seed."""
        observation, info = self.env.reset(seed=self.seed)
        self.seed = None
        return observation, info

    def _action_recorder(self) -> ActionCountRecorder | None:
        """Return what counts what the actions taken lead to, where that is asked for."""
        if self.exploration is None:
            return None
        return self.encoding.action_recorder(self.exploration.n_actions)

    def _recorder(self, states: States) -> Recorder:
        if self._make_recorder is None:
            self._make_recorder = self.plan(states)
        return self._make_recorder()

    def _encoded(self, observations: Any, t: int) -> States:
        """Return the states of all copies; an error names the timestep."""
        try:
            return self.encoding.encode(observations)
        except InvalidInputError as error:
            raise InvalidInputError(f"{error} at timestep {t}") from None

    def in_lockstep(self, n: int, n_stored: int) -> None:
        """Run one trial in each copy of a vector environment; add up the first n."""
        env, encoding, t_max = self.env, self.encoding, self.t_max
        mode = env.metadata.get("autoreset_mode")
        observation, info = self._reset()
        states = self._encoded(observation, 0)[:n]
        recorder, actions = self._recorder(states), self._action_recorder()
        trials = LockstepTrials(encoding, recorder, states, n_stored, actions)
        exploration, taken = self.exploration, None
        if exploration is not None:
            exploration.begin(env.num_envs)
        for t in range(t_max + 1):
            action = self.actor(observation, self.rng)
            if exploration is not None:
                action, taken = exploration.choose(t, observation, action, info)
                taken = Taken(taken.action[:n], taken.explored[:n])
            observation, reward, terminated, truncated, info = env.step(action)
            ended = terminated | truncated
            following, newly_ended = observation, None
            if ended.any():
                newly_ended = terminated[:n]
                _check_truncation(truncated[:n] & trials.living & ~terminated[:n], t, t_max)
                if mode == AutoresetMode.SAME_STEP:
                    index, final = np.flatnonzero(ended), info["final_obs"]
                    last = [_final_observation(observation, final, i) for i in index.tolist()]
                    following = replace(observation, index, last)
                if mode == AutoresetMode.DISABLED and t < t_max:
                    # Copies whose trial has ended go on, unobserved, so that the others can.
                    observation, info = env.reset(options={"reset_mask": ended})
            rewards = as_rewards(reward, env.num_envs, t)
            trials.advance(rewards[:n], self._encoded(following, t + 1)[:n], newly_ended, taken)
            self.bar.update(n)
        self.keep(trials.finish())

    def one_by_one(self, n: int, n_stored: int) -> None:
        """Run n trials one after the other; keep the finished ones even if it breaks off."""
        env, t_max, act, rng = self.env, self.t_max, self.actor.one, self.rng
        trials, exploration, taken = SequentialTrials(self.encoding, t_max), self.exploration, None
        try:
            for _ in range(n):
                observation, info = self._reset()
                trials.start(observation)
                if exploration is not None:
                    exploration.begin(1)
                if self._make_recorder is None:
                    # Told before the first step, by the states that trials start in.
                    self._recorder(self.encoding.encode_held([trials.last]))
                for t in range(t_max + 1):
                    action = act(observation, rng)
                    if exploration is not None:
                        action, taken = exploration.choose_one(t, observation, action, info)
                    observation, reward, terminated, truncated, info = env.step(action)
                    if truncated and not terminated:
                        _check_truncation(np.ones(1, dtype=bool), t, t_max)
                    trials.advance(reward, observation, terminated, taken)
                    if terminated:
                        break
                trials.end()
                self.bar.update(t_max + 1)
        finally:
            if trials.n_finished:
                assert self._make_recorder is not None
                actions = self._action_recorder()
                self.keep(trials.finish(self._make_recorder(), n_stored, actions))


def _exploration(env: AnyEnv, request: Request) -> Exploration | None:
    """Return what explores and tells which actions were taken, where that is asked for."""
    if request.explore is None:
        return None
    # A stream of its own, so that the policy draws what it would draw without.
    rng = np.random.default_rng(np.random.SeedSequence(request.seed, spawn_key=(2,)))
    how = request.t_max, rng, request.batched, request.wherever
    return Exploration(request.explore, single_spaces(env)[1], *how)


def as_rewards(reward: Any, n: int, t: int) -> FloatArray:
    """Return the rewards of a timestep as an array (n,), or raise unless they are n numbers."""
    try:
        rewards = np.asarray(reward, dtype=np.float64)
    except (TypeError, ValueError):
        rewards = np.empty(())
    if rewards.shape != (n,):
        raise InvalidInputError(
            f"the rewards of {n} trials are {n} numbers; got {reward!r} at timestep {t}"
        )
    return rewards


def _final_observation(like: Any, final: Any, i: int) -> Any:
    """Return copy i's last observation from the infos, where a Dict may come apart by key."""
    if isinstance(like, dict) and isinstance(final, dict):
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
