"""Trials from any Gymnasium environment, in rounds.

A vector environment runs one trial in each copy, in lockstep: a *round*. A plain `Env` runs trials
one after the other. Each trial covers timesteps 0 to t_max, with the transition out of t_max.
Rounds are handed over as they finish, and an interrupt loses only the trials under way.

`Exploration` replaces some actions in the first half of each trial: a policy's own trials may show
one action in each state. The gain and the tail stay the policy's, because they use the second half
of all timesteps. `Restart` makes an episodic environment continuing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray
from tqdm import tqdm

from lstd_agent.arrays import BoolArray, FloatArray, States
from lstd_agent.errors import InvalidInputError, TerminationError, check_integer
from lstd_agent.progress import progress_bar
from lstd_agent.trials import spaces
from lstd_agent.trials.counted import Portion
from lstd_agent.trials.policies import CallableActor, Policy, discrete_actions, make_actor
from lstd_agent.trials.recording import (
    LockstepTrials,
    Recording,
    SequentialTrials,
    Taken,
    as_rewards,
)

_ROUND_TIMESTEPS = 2**18  # most timesteps in a round of a plain environment

AnyEnv: TypeAlias = gym.Env[Any, Any] | VectorEnv[Any, Any, Any]

Keep = Callable[[Portion], None]

Explore: TypeAlias = int | float | Callable[[Any], Any]
"""What `SeminormLSTDAgent.collect` takes for exploration: a number of exploratory actions a trial,
a probability of one at each timestep of the first half, or another policy for all of them."""


def check_explore(explore: Any, t_max: int) -> Explore:
    """Return how to explore in trials up to t_max, checked."""
    half = (t_max + 1) // 2
    if isinstance(explore, int | np.integer) and not isinstance(explore, bool):
        if not 0 <= explore <= half:
            told = f"explore={explore} actions need as many timesteps: half a trial has {half}"
            raise InvalidInputError(told)
        return int(explore)
    if callable(explore) or (isinstance(explore, float | np.floating) and 0.0 <= explore <= 1.0):
        return explore  # type: ignore[no-any-return]
    told = f"explore is a number of actions (int), probability (float) or policy; got {explore!r}"
    raise InvalidInputError(told)


@dataclass(frozen=True)
class Request:
    """The arguments of `SeminormLSTDAgent.collect`, and where to explore a batch at any timestep.

    Of counted trials ``n_stored`` are kept whole; the number ``first`` gives the first one's batch.
    """

    n_trials: int
    t_max: int
    seed: int | None = None
    batched: bool | None = None
    progress: bool | None = False
    workers: int = 1
    executor: Executor | None = None
    shard_size: int | None = None
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

    def pieces(self, size: int) -> Iterator[Request]:
        """Yield requests for at most ``size`` trials, each with its share of stored ones."""
        before = 0
        for start in range(0, self.n_trials, size):
            n = min(size, self.n_trials - start)
            upto = -(-self.n_stored * (start + n) // self.n_trials)
            stored, before = min(n, upto - before), upto
            yield replace(self, n_trials=n, n_stored=stored, first=self.first + start)


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


def collect_rounds(
    env: AnyEnv, recording: Recording, policy: Policy, keep: Keep, request: Request
) -> None:
    """Run trials and hand over the portion of each finished round."""
    rounds = _Rounds(env, recording, policy, keep, request)
    size, run = max(1, _ROUND_TIMESTEPS // (request.t_max + 1)), rounds.one_by_one
    if isinstance(env, VectorEnv):
        size, run = env.num_envs, rounds.in_lockstep
    n_steps = request.n_trials * (request.t_max + 1)
    with progress_bar(n_steps, "step", request.progress, scale=True) as bar:
        for piece in request.pieces(size):
            run(piece, bar)


class _Rounds:
    """The rounds of one collection, run one after the other."""

    def __init__(
        self, env: Any, recording: Recording, policy: Policy, keep: Keep, request: Request
    ) -> None:
        self.env, self.recording, self.keep = env, recording, keep
        spaces_of_one = single_spaces(env)
        self.actor = make_actor(policy, *spaces_of_one, request.batched)
        seeds = (None, None) if request.seed is None else split_seed(request.seed)
        self.seed, self.rng = seeds[0], np.random.default_rng(seeds[1])
        is_explored = request.explore is not None
        self.exploration = Exploration(spaces_of_one[1], request) if is_explored else None

    def _encoded(self, observations: Any, t: int, n: int) -> States:
        """Return the states of the first n copies; an error names the timestep."""
        try:
            return self.recording.encoding.encode(observations)[:n]
        except InvalidInputError as error:
            raise InvalidInputError(f"{error} at timestep {t}") from None

    def in_lockstep(self, request: Request, bar: tqdm[Any]) -> None:
        """Run one trial in each copy of a vector environment; record the first ``n_trials``."""
        env, t_max, n = self.env, request.t_max, request.n_trials
        mode = env.metadata.get("autoreset_mode")
        observation, info = env.reset(seed=self.seed)
        self.seed = None  # for the first trials only
        states = self._encoded(observation, 0, n)
        trials = LockstepTrials(self.recording, states, request.first, request.n_stored)
        exploration, taken = self.exploration, None
        if exploration is not None:
            exploration.begin(env.num_envs)
        for t in range(t_max + 1):
            action = self.actor(observation, self.rng)
            if exploration is not None:
                action, taken = exploration.choose(t, observation, action, info)
                taken = taken[0][:n], taken[1][:n]
            observation, reward, terminated, truncated, info = env.step(action)
            ended, newly_ended = terminated | truncated, None
            states, times = self._encoded(observation, t + 1, n), _durations(info, ended)
            if ended.any():
                newly_ended = terminated[:n]
                _check_truncation(truncated[:n] & trials.living & ~newly_ended, t, t_max)
                if mode == AutoresetMode.SAME_STEP:
                    for i in np.flatnonzero(ended[:n]).tolist():
                        last = spaces.as_batch(spaces.take(info["final_obs"], i))
                        states[i] = self._encoded(last, t + 1, 1)[0]
                if mode == AutoresetMode.DISABLED and t < t_max:
                    # Copies whose trial has ended step on, unobserved, together with the others.
                    observation, info = env.reset(options={"reset_mask": ended})
            rewards = as_rewards(reward, (env.num_envs,), t)[:n]
            times = None if times is None else times[:n]
            trials.advance(rewards, states, newly_ended, taken, times)
            bar.update(n)
        self.keep(trials.finish())

    def one_by_one(self, request: Request, bar: tqdm[Any]) -> None:
        """Run trials one after the other; keep the finished ones even if it breaks off."""
        env, t_max, act, rng = self.env, request.t_max, self.actor.one, self.rng
        trials = SequentialTrials(self.recording, t_max)
        exploration, taken = self.exploration, None
        try:
            for _ in range(request.n_trials):
                observation, info = env.reset(seed=self.seed)
                self.seed = None  # for the first trial only
                trials.start(observation)
                if exploration is not None:
                    exploration.begin(1)
                for t in range(t_max + 1):
                    action = act(observation, rng)
                    if exploration is not None:
                        batch, one = spaces.as_batch(observation), np.array([action])
                        chosen, taken = exploration.choose(t, batch, one, info)
                        action = int(chosen[0])
                    observation, reward, terminated, truncated, info = env.step(action)
                    if truncated and not terminated:
                        _check_truncation(np.ones(1, dtype=bool), t, t_max)
                    trials.advance(reward, observation, terminated, taken, info.get("duration"))
                    if terminated:
                        break
                trials.end()
                bar.update(t_max + 1)
        finally:
            if trials.finished:
                self.keep(trials.portion(request.first, request.n_stored))


class Exploration:
    """Replaces some of a policy's actions, by uniform ones of those in ``info["action_mask"]``."""

    def __init__(self, action_space: gym.Space[Any], request: Request) -> None:
        self._explore: Any = request.explore
        self._n_actions, self._first_action = discrete_actions(action_space)
        self._half, self._wherever = (request.t_max + 1) // 2, request.wherever
        if callable(self._explore):
            self._behavior = CallableActor(self._explore, action_space, request.batched)
        # A stream of its own: the policy draws the same as without exploration.
        self._rng = np.random.default_rng(np.random.SeedSequence(request.seed, spawn_key=(2,)))

    def begin(self, n: int) -> None:
        """Draw the exploratory timesteps of n new trials."""
        if isinstance(self._explore, int):
            # The first entries of a random permutation are distinct timesteps.
            order = self._rng.random((n, self._half)) if self._explore else np.empty((n, 0))
            self._times = np.argsort(order, axis=1, kind="stable")[:, : self._explore]

    def choose(
        self, t: int, observations: Any, action: NDArray[Any], info: dict[str, Any]
    ) -> tuple[NDArray[Any], Taken]:
        """Return the actions of n trials, some exploratory, and their record."""
        n, explore = len(action), self._explore
        if isinstance(explore, int):
            explored: BoolArray = (self._times == t).any(axis=1)
        elif t >= self._half or callable(explore) or explore >= 1.0:
            explored = np.full(n, t < self._half)
        else:
            explored = self._rng.random(n) < explore
        if self._wherever is not None:
            explored = explored | self._wherever(observations)
        chosen = np.asarray(action)
        if explored.any():
            chosen = np.where(explored, self._exploratory(observations, n, info), chosen)
        return chosen, (chosen.astype(np.int64) - self._first_action, explored)

    def _exploratory(self, observations: Any, n: int, info: dict[str, Any]) -> NDArray[Any]:
        if callable(self._explore):
            return self._behavior(observations, self._rng)
        u = self._rng.random(n)
        mask = _action_mask(info, n, self._n_actions)
        if mask is None:
            return np.asarray(self._first_action + (u * self._n_actions).astype(np.int64))
        # The first action with a share of allowed actions up to it above u.
        upto = np.cumsum(mask, axis=1)
        index = np.argmax(upto > (u * upto[:, -1])[:, None], axis=1)
        return np.asarray(self._first_action + index)


def _action_mask(info: dict[str, Any], n: int, n_actions: int) -> BoolArray | None:
    """Return the available actions of n trials, shape (n, A); None if all are available."""
    mask = info.get("action_mask")
    if mask is None:
        return None
    allowed = np.asarray(mask).reshape(-1, n_actions).astype(bool)
    if len(allowed) != n:
        told = f"action masks of {n} trials have shape ({n}, {n_actions}); got {np.shape(mask)}"
        raise InvalidInputError(told)
    has_mask = info.get("_action_mask")  # which copies of a vector environment have one
    if has_mask is not None and np.shape(has_mask) == (n,):
        allowed = allowed | ~np.asarray(has_mask, dtype=bool)[:, None]
    if not allowed.any(axis=1).all():
        told = f"the action mask of trial {int(np.argmin(allowed.any(axis=1)))} allows no action"
        raise InvalidInputError(told)
    return allowed


def _durations(info: dict[str, Any], ended: BoolArray) -> FloatArray | None:
    """Return how long the step of each copy takes, NaN if the info has no number for it."""
    times: FloatArray | None = None
    # If a copy is reset within its last step, that step's info is in final_info.
    for each, where in ((info, True), (info.get("final_info", {}), ended)):
        if "duration" in each:
            has = np.broadcast_to(each.get("_duration", True), ended.shape) & where
            times = np.where(has, each["duration"], np.nan if times is None else times)
    return times


def _check_truncation(truncated: BoolArray, t: int, t_max: int) -> None:
    """Raise `TerminationError` if a trial is cut off before the last timestep."""
    if truncated.any() and t < t_max:
        raise TerminationError(
            f"trial {int(np.argmax(truncated))} of the round was truncated at timestep {t}, "
            f"before t_max = {t_max}: raise the environment's time limit (max_episode_steps) to "
            f"at least {t_max + 1}, or lower t_max"
        )


class Restart(gym.wrappers.Autoreset[Any, Any]):
    """Starts again after termination, as Gymnasium's vector environments do, instead of ending.

    The step after a terminal observation pays 0 for any action, takes no time if steps have an
    ``info["duration"]``, and leads to the environment's reset observation. Truncation is passed on:
    ``max_episode_steps=-1`` makes an environment without a limit.

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
    """

    _is_timed = False

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take a step, or start again if the last one reached an end."""
        starts_again = self.autoreset
        observation, reward, _, truncated, info = super().step(action)
        if not starts_again:
            self._is_timed = "duration" in info
        elif self._is_timed:
            info = {**info, "duration": 0.0}
        return observation, reward, False, truncated, info
