"""Collection in shards: pieces of work that any number of workers can share.

A *shard* is a number of trials of an environment that its worker makes for itself, with a seed
spawned from the collection's seed. What a shard holds depends on nothing else, and shards are
added up in their order: the result is the same for any number of workers, whichever of them
died on the way.
"""

from __future__ import annotations

import ctypes
import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorEnv

from lstd_agent.errors import InvalidInputError
from lstd_agent.progress import progress_bar
from lstd_agent.trials.collect import (
    AnyEnv,
    Keep,
    Request,
    collect_rounds,
    single_spaces,
    split_seed,
)
from lstd_agent.trials.policies import Policy, make_actor
from lstd_agent.trials.recording import Portion, Recording
from lstd_agent.trials.spaces import as_batch
from lstd_agent.trials.workers import WorkerError, run_tasks

EnvSource: TypeAlias = str | Callable[[], AnyEnv]
"""An environment's id, ``"module:id"`` where a module registers it, or what makes one."""

# Trials of a shard, at most; fewer if that makes this many shards.
_MAX_TRIALS = 50_000
_SHARDS = 20

# Copies of an environment that step together, at most.
_MAX_COPIES = 25_000

# Parameters of glibc's mallopt.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3


@dataclass(frozen=True, eq=False)
class Shard:
    """What a worker needs to know; all of it has to be picklable."""

    number: int
    env: EnvSource | EnvSpec
    recording: Recording
    policy: Policy
    request: Request


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a shard leaves behind: its finished trials, if any, and what ended it early."""

    number: int
    finished: Portion | None
    error: BaseException | None = None


def collect_shards(
    env: EnvSource, recording: Recording, policy: Policy, keep: Keep, request: Request
) -> None:
    """Run trials on workers and hand over what each shard leaves behind, in their order.

    Whatever ends the collection early, trials that have been finished by then are handed over,
    in whichever order their shards have come.

    Parameters
    ----------
    env : str or callable
        Makes an environment in each worker: an id, or a picklable function of no arguments.
    recording, policy, keep, request
        See `lstd_agent.trials.collect.collect_rounds`. A shard has at most 50,000 trials by
        default, and what a seed gives depends on its size. Workers and executor are those of
        `lstd_agent.trials.workers.run_tasks`.

    Raises
    ------
    InvalidInputError
        If an argument does not fit.
    WorkerError
        If workers keep dying.
    """
    source = portable(env)
    with closing(make_env(env, 1)) as sample:
        make_actor(policy, *single_spaces(sample), request.batched)
        observation, _ = sample.reset(seed=split_seed(request.seed or 0)[0])
        single = not isinstance(sample, VectorEnv)
        encoding = recording.encoding
        encoding.check_features(encoding.encode(as_batch(observation) if single else observation))
    slim = recording.without_features()
    if request.executor is None and request.workers > 1:
        _check_picklable(source, slim, policy)
    shards = (
        Shard(number, source, slim, policy, own) for number, own in enumerate(_requests(request))
    )
    early: dict[int, Portion] = {}
    unclaimed: list[Outcome] = []
    following = 0
    workers, executor = request.workers, request.executor
    results = run_tasks(
        collect_shard, shards, workers=workers, executor=executor, unclaimed=unclaimed
    )
    try:
        with progress_bar(request.n_steps, "step", request.progress, scale=True) as bar:
            for outcome in results:
                if outcome.finished is not None:
                    bar.update(outcome.finished.n_trials * (request.t_max + 1))
                    early[outcome.number] = outcome.finished
                if outcome.error is not None:
                    raise outcome.error
                # Sums of rewards depend on the order of addition in their last digit.
                while following in early:
                    keep(early.pop(following))
                    following += 1
    finally:
        results.close()
        early.update({o.number: o.finished for o in unclaimed if o.finished is not None})
        for number in sorted(early):
            keep(early[number])


def _requests(request: Request) -> Iterator[Request]:
    """Yield what is asked of each shard, with a seed of its own."""
    size = request.shard_size or min(_MAX_TRIALS, -(-request.n_trials // _SHARDS))
    entropy = np.random.SeedSequence(request.seed).entropy
    quiet = replace(request, progress=False, executor=None)
    for number, piece in enumerate(quiet.pieces(size)):
        # The sequence that spawn() would give, without spawning those before it.
        spawned = np.random.SeedSequence(entropy, spawn_key=(number,))
        yield replace(piece, seed=int(spawned.generate_state(1, np.uint64)[0]))


def portable(source: EnvSource) -> EnvSource | EnvSpec:
    """Return an id's registration in its place: a worker need not have registered it."""
    if not isinstance(source, str):
        return source
    spec = _find_spec(source)
    # What only this process knows how to make stays an id.
    return source if callable(spec.entry_point) else spec


def _find_spec(env_id: str) -> EnvSpec:
    module, _, name = env_id.rpartition(":")
    if module:
        import_module(module)
    return gym.spec(name)


def _check_picklable(*sent: object) -> None:
    try:
        pickle.dumps(sent)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InvalidInputError(
            "workers are sent the environment, the policy and the features by pickle, which "
            f"fails: {error}. Define functions at the top level of a module, not as lambdas or "
            "inside of functions"
        ) from error


def collect_shard(shard: Shard) -> Outcome:
    """Run a shard's trials and return what they, or those before an error, leave behind."""
    rounds: list[Any] = []

    def keep(finished: Portion) -> None:
        rounds[:] = [rounds[0] + finished if rounds else finished]

    _keep_memory()
    error: BaseException | None = None
    try:
        with closing(make_env(shard.env, shard.request.n_trials)) as env:
            collect_rounds(env, shard.recording, shard.policy, keep, shard.request)
    except (Exception, KeyboardInterrupt) as raised:
        error = _sendable(raised)
    return Outcome(shard.number, rounds[0] if rounds else None, error)


def _keep_memory() -> None:
    """Have arrays of a step take the memory that those of the last step left.

    Workers of dask start with a small MALLOC_TRIM_THRESHOLD_, with which the C library asks the
    system anew for each large array: at every step, which takes longer than the step.
    """
    if "MALLOC_TRIM_THRESHOLD_" in os.environ:
        with suppress(OSError, AttributeError):  # another C library
            mallopt = ctypes.CDLL(None).mallopt
            mallopt(_TRIM_THRESHOLD, 2**28)
            mallopt(_MMAP_THRESHOLD, 2**25)


def _sendable(error: BaseException) -> BaseException:
    """Return an error that survives the way from a worker, saying the same."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # whatever somebody's own class of errors does when it is pickled
        return WorkerError(f"{type(error).__name__} in a shard: {error}")
    return error


def spaces_of(env: AnyEnv | EnvSource) -> tuple[gym.Space[Any], gym.Space[Any]]:
    """Return the spaces of observations and actions of an environment, or of one to be made."""
    if isinstance(env, gym.Env | VectorEnv):
        return single_spaces(env)
    with closing(make_env(env, 1)) as sample:
        return single_spaces(sample)


def runner_of(env: AnyEnv | EnvSource, request: Request) -> Callable[..., None]:
    """Return what runs trials: in an environment, or in those that workers make.

    Raises
    ------
    InvalidInputError
        If workers are asked for, and given an environment.
    """
    if isinstance(env, gym.Env | VectorEnv):
        request.check_not_shared(env)
        return partial(collect_rounds, env)
    return partial(collect_shards, env)


def make_env(source: EnvSource | EnvSpec, n_trials: int) -> AnyEnv:
    """Make an environment: by its id a vector environment, if it has one of its own.

    Parameters
    ----------
    source : str, EnvSpec or callable
    n_trials : int
        How many copies are of use.
    """
    if callable(source):
        env = source()
        if not isinstance(env, gym.Env | VectorEnv):
            raise InvalidInputError(
                f"a function given as env must return an Env or a VectorEnv; got {env!r}"
            )
        return env
    if isinstance(source, str):
        source = _find_spec(source)
    if hasattr(source, "num_envs") and hasattr(source, "step_async"):
        raise InvalidInputError(
            f"{type(source).__name__} is a vector environment of Stable-Baselines3, which resets "
            "its copies by itself and hides what they observed last: make a "
            "gymnasium.vector.SyncVectorEnv of the same functions"
        )
    if not isinstance(source, EnvSpec):
        raise InvalidInputError(
            f"env must be an Env, a VectorEnv, an id or a function that makes one; got {source!r}"
        )
    if source.vector_entry_point is None:
        return gym.make(source)
    return gym.make_vec(source, num_envs=min(n_trials, _MAX_COPIES))
