"""Trials from any Gymnasium environment, in rounds.

A vector environment runs one trial in each copy, in lockstep: a *round*. A plain `Env` runs trials
one after the other. Each trial covers timesteps 0 to t_max, with the transition out of t_max.
Rounds are handed over as they finish. An interrupt loses only the trials under way: a plain
environment hands over the finished trials of its round. `Restart` makes an episodic environment
continuing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from tqdm import tqdm

from lstd_agent.arrays import BoolArray, FloatArray, States
from lstd_agent.errors import InvalidInputError, TerminationError, check_integer
from lstd_agent.progress import progress_bar
from lstd_agent.trials import spaces
from lstd_agent.trials.counts import Taken
from lstd_agent.trials.policies import (
    Actor,
    Exploration,
    Explore,
    Policy,
    check_explore,
    make_actor,
)
from lstd_agent.trials.recording import (
    LockstepTrials,
    Portion,
    Recording,
    SequentialTrials,
    as_rewards,
)

# Largest number of timesteps in a round of a plain environment.
_ROUND_TIMESTEPS = 2**18

AnyEnv: TypeAlias = gym.Env[Any, Any] | VectorEnv[Any, Any, Any]

Keep = Callable[[Portion], None]


@dataclass(frozen=True)
class Request:
    """The arguments of `SeminormLSTDAgent.collect`.

    Also, ``wherever`` says where to explore at any timestep, ``n_stored`` counted trials are kept
    whole, and the first trial has number ``first``, which gives its batch.
    """

    n_trials: int
    t_max: int
    seed: int | None = None
    batched: bool | None = None
    progress: bool | None = False
    workers: int = 1
    executor: Executor | None = None
    shard_size: int | None = None
    is_same_policy: bool = False
    explore: Explore | None = None
    wherever: Callable[[Any], BoolArray] | None = None
    n_stored: int = 0
    first: int = 0

    def __post_init__(self) -> None:
        smallest = {"n_trials": 1, "t_max": 0, "seed": 0, "workers": 1, "shard_size": 1}
        for name, least in smallest.items():
            value = getattr(self, name)
            if value is not None or name in ("n_trials", "t_max", "workers"):
                object.__setattr__(self, name, check_integer(name, value, least))
        if self.explore is not None:
            object.__setattr__(self, "explore", check_explore(self.explore, self.t_max))

    @property
    def n_steps(self) -> int:
        """Number of timesteps in all."""
        return self.n_trials * (self.t_max + 1)

    def pieces(self, size: int) -> Iterator[Request]:
        """Yield requests for at most ``size`` trials, each with its share of stored ones."""
        before = 0
        for start in range(0, self.n_trials, size):
            n = min(size, self.n_trials - start)
            upto = -(-self.n_stored * (start + n) // self.n_trials)
            stored, before = min(n, upto - before), upto
            yield replace(self, n_trials=n, n_stored=stored, first=self.first + start)


def collect_rounds(
    env: AnyEnv, recording: Recording, policy: Policy, keep: Keep, request: Request
) -> None:
    """Run trials and hand over the portion of each finished round.

    A trial that terminates raises unless the encoding has an end; one that is truncated before
    t_max raises.
    """
    actor = make_actor(policy, *single_spaces(env), request.batched)
    env_seed, policy_seed = (None, None) if request.seed is None else split_seed(request.seed)
    rng = np.random.default_rng(policy_seed)
    exploration = _exploration(env, request)
    with progress_bar(request.n_steps, "step", request.progress, scale=True) as bar:
        rounds = _Rounds(env, recording, actor, rng, keep, env_seed, bar, exploration)
        size, run = max(1, _ROUND_TIMESTEPS // (request.t_max + 1)), rounds.one_by_one
        if isinstance(env, VectorEnv):
            size, run = env.num_envs, rounds.in_lockstep
        for piece in request.pieces(size):
            run(piece)


def single_spaces(env: AnyEnv) -> tuple[gym.Space[Any], gym.Space[Any]]:
    """Return the observation and action space of one copy of an environment."""
    if isinstance(env, VectorEnv):
        return env.single_observation_space, env.single_action_space
    return env.observation_space, env.action_space


def split_seed(seed: int) -> tuple[int, np.random.SeedSequence]:
    """Return independent seeds for an environment (an integer) and for a policy."""
    env_sequence, policy_sequence = np.random.SeedSequence(seed).spawn(2)
    # 31 bits: an environment's generator may take no more.
    return int(env_sequence.generate_state(1)[0]) >> 1, policy_sequence


@dataclass
class _Rounds:
    """The rounds of one collection, run one after the other."""

    env: Any
    recording: Recording
    actor: Actor
    rng: np.random.Generator
    keep: Keep
    seed: int | None
    bar: tqdm[Any]
    exploration: Exploration | None = None

    def _reset(self) -> tuple[Any, dict[str, Any]]:
        """Start over, the first time with the seed."""
        observation, info = self.env.reset(seed=self.seed)
        self.seed = None
        return observation, info

    def _encoded(self, observations: Any, t: int) -> States:
        """Return the states of all copies; an error names the timestep."""
        try:
            return self.recording.encoding.encode(observations)
        except InvalidInputError as error:
            raise InvalidInputError(f"{error} at timestep {t}") from None

    def in_lockstep(self, request: Request) -> None:
        """Run one trial in each copy of a vector environment; record the first ``n_trials``."""
        env, t_max, n = self.env, request.t_max, request.n_trials
        mode = env.metadata.get("autoreset_mode")
        observation, info = self._reset()
        states = self._encoded(observation, 0)[:n]
        trials = LockstepTrials(self.recording, states, request.first, request.n_stored)
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
            times = _durations(info, ended)
            following, newly_ended = observation, None
            if ended.any():
                newly_ended = terminated[:n]
                _check_truncation(truncated[:n] & trials.living & ~terminated[:n], t, t_max)
                if mode == AutoresetMode.SAME_STEP:
                    index, final = np.flatnonzero(ended), info["final_obs"]
                    last = [_final_observation(observation, final, i) for i in index.tolist()]
                    following = spaces.replace(observation, index, last)
                if mode == AutoresetMode.DISABLED and t < t_max:
                    # Copies whose trial has ended step on, unobserved, together with the others.
                    observation, info = env.reset(options={"reset_mask": ended})
            rewards = as_rewards(reward, (env.num_envs,), t)[:n]
            states = self._encoded(following, t + 1)[:n]
            times = None if times is None else times[:n]
            trials.advance(rewards, states, newly_ended, taken, times)
            self.bar.update(n)
        self.keep(trials.finish())

    def one_by_one(self, request: Request) -> None:
        """Run trials one after the other; keep the finished ones even if it breaks off."""
        env, t_max, act, rng = self.env, request.t_max, self.actor.one, self.rng
        encoding, exploration, taken = self.recording.encoding, self.exploration, None
        trials = SequentialTrials(encoding, t_max)
        try:
            for i in range(request.n_trials):
                observation, info = self._reset()
                trials.start(observation)
                if exploration is not None:
                    exploration.begin(1)
                if i == 0:  # features are checked before the first step
                    encoding.check_features(encoding.encode_held([trials.last]))
                for t in range(t_max + 1):
                    action = act(observation, rng)
                    if exploration is not None:
                        action, taken = exploration.choose_one(t, observation, action, info)
                    observation, reward, terminated, truncated, info = env.step(action)
                    if truncated and not terminated:
                        _check_truncation(np.ones(1, dtype=bool), t, t_max)
                    trials.advance(reward, observation, terminated, taken, info.get("duration"))
                    if terminated:
                        break
                trials.end()
                self.bar.update(t_max + 1)
        finally:
            if trials.n_finished:
                how = request.first, request.n_stored
                self.keep(self.recording.portion_of(trials.finished(), *how))


def _exploration(env: AnyEnv, request: Request) -> Exploration | None:
    """Return the exploration, or None."""
    if request.explore is None:
        return None
    # A stream of its own: the policy draws the same as without exploration.
    rng = np.random.default_rng(np.random.SeedSequence(request.seed, spawn_key=(2,)))
    how = request.t_max, rng, request.batched, request.wherever
    return Exploration(request.explore, single_spaces(env)[1], *how)


def _final_observation(like: Any, final: Any, i: int) -> Any:
    """Return copy i's last observation from the infos, which may hold a Dict key by key."""
    if isinstance(like, dict) and isinstance(final, dict):
        return {key: _final_observation(part, final[key], i) for key, part in like.items()}
    return final[i]


def _durations(info: dict[str, Any], ended: BoolArray) -> FloatArray | None:
    """Return how long the step of each copy takes, NaN if the info has no number for it."""
    times: FloatArray | None = None
    # If a copy is reset within its last step, that step's info is in final_info.
    for told, where in ((info, True), (info.get("final_info", {}), ended)):
        if "duration" in told:
            has = np.broadcast_to(told.get("_duration", True), ended.shape) & where
            times = np.where(has, told["duration"], np.nan if times is None else times)
    return times


def _check_truncation(truncated: BoolArray, t: int, t_max: int) -> None:
    """Raise `TerminationError` if a trial is cut off before the last timestep."""
    if truncated.any() and t < t_max:
        raise TerminationError(
            f"trial {int(np.argmax(truncated))} of the round was truncated at timestep {t}, "
            f"before t_max = {t_max}: raise the environment's time limit (max_episode_steps) to "
            f"at least {t_max + 1}, or lower t_max"
        )


class Restart(gym.Wrapper[Any, Any, Any, Any]):
    """Starts again after termination, instead of ending: the task never terminates.

    The terminal observation is returned unchanged. The step after it pays 0 for any action and
    leads to the environment's reset observation. If steps have an ``info["duration"]``, its
    duration is 0. Truncation is passed on: ``max_episode_steps=-1`` makes an environment without a
    limit.

    Parameters
    ----------
    env : Env
        Not a vector environment: wrap its copies.

    Examples
    --------
    >>> env = Restart(gym.make("FrozenLake-v1", is_slippery=False, max_episode_steps=-1))
    >>> env.reset(seed=0)[0]
    0
    >>> [env.step(action)[0] for action in (2, 1, 0)]  # beside a hole, into it, and out again
    [1, 5, 0]

    Notes
    -----
    `unichain_gym.TabularMDP.from_gymnasium` with ``on_termination="restart"`` and Gymnasium's
    vector environments restart in the same way.
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
            Ignored if the environment starts again.

        Returns
        -------
        observation, reward, terminated, truncated, info
            ``terminated`` is False; the step that starts again pays 0.
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
