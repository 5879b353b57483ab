"""Collection in shards: pieces of work that any number of workers can share.

A shard is a number of trials of an environment that its worker makes for itself, with a seed
spawned from the collection's seed. What a shard holds depends on nothing else, and shards are
added up in their order: the result is the same for any number of workers, whichever of them
died on the way.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import closing
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
from lstd_agent.trials.encoding import Encoding
from lstd_agent.trials.observations import as_batch
from lstd_agent.trials.parallel import WorkerError, run_tasks
from lstd_agent.trials.policies import Policy, make_actor
from lstd_agent.trials.recorders import RecorderMaker, Round
from lstd_agent.trials.request import Request
from lstd_agent.trials.rollouts import (
    AnyEnv,
    Keep,
    Plan,
    collect_rounds,
    pieces,
    single_spaces,
)

EnvSource: TypeAlias = str | Callable[[], AnyEnv]
"""An environment's id, ``"module:id"`` where a module registers it, or what makes one."""

# Copies of an environment that step together, at most, and so trials of a shard; fewer if that
# makes this many shards, which are also the batches of standard errors.
_MAX_COPIES = 50_000
_SHARDS = 20


@dataclass(frozen=True, eq=False)
class Shard:
    """What a worker needs to know; all of it has to be picklable.

    Features are not among it unless they are what is summed up.
    """

    number: int
    env: EnvSource | EnvSpec
    encoding: Encoding
    policy: Policy
    make_recorder: RecorderMaker
    request: Request


@dataclass(frozen=True, eq=False)
class Outcome:
    """What has become of a shard: its finished trials, if any, and what ended it early."""

    number: int
    finished: Round | None
    error: BaseException | None = None


def collect_shards(
    env: EnvSource, encoding: Encoding, policy: Policy, plan: Plan, keep: Keep, request: Request
) -> None:
    """Run trials on workers and hand over one `Round` a shard, in the order of the shards.

    Whatever ends the collection early, trials that have been finished by then are handed over,
    in whichever order their shards have come.

    Parameters
    ----------
    env : str or callable
        Makes an environment in each worker: an id, or a picklable function of no arguments.
    encoding, policy, plan, keep, request
        See `lstd_agent.trials.rollouts.collect_rounds`. The plan is made here, once. A shard has
        at most 50,000 trials by default, and what a seed gives depends on its size. Workers and
        executor are those of `lstd_agent.trials.parallel.run_tasks`.

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
        observation, _ = sample.reset(seed=0 if request.seed is None else request.seed)
        single = not isinstance(sample, VectorEnv)
        make_recorder = plan(encoding.encode(as_batch(observation) if single else observation))
    slim = encoding.without_features()
    if request.executor is None and request.workers > 1:
        _check_picklable(source, slim, policy, make_recorder)
    shards = (
        Shard(number, source, slim, policy, make_recorder, own)
        for number, own in enumerate(_requests(request))
    )
    early: dict[int, Round] = {}
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
                    bar.update(outcome.finished.sums.n_trials * (request.t_max + 1))
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
    size = request.shard_size or min(_MAX_COPIES, -(-request.n_trials // _SHARDS))
    entropy = np.random.SeedSequence(request.seed).entropy
    quiet = replace(request, progress=False, executor=None)
    for number, (n, stored) in enumerate(pieces(request.n_trials, size, request.n_stored)):
        # The sequence that spawn() would give, without spawning those before it.
        spawned = np.random.SeedSequence(entropy, spawn_key=(number,))
        seed = int(spawned.generate_state(1, np.uint64)[0])
        yield replace(quiet, n_trials=n, seed=seed, n_stored=stored)


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
    """Run a shard's trials and return their sum, or that of those before an error."""
    rounds: list[Round] = []

    def keep(finished: Round) -> None:
        rounds[:] = [rounds[0] + finished if rounds else finished]

    error: BaseException | None = None
    try:
        with closing(make_env(shard.env, shard.request.n_trials)) as env:
            how = shard.encoding, shard.policy, lambda _: shard.make_recorder
            collect_rounds(env, *how, keep, shard.request)
    except (Exception, KeyboardInterrupt) as raised:
        error = _sendable(raised)
    return Outcome(shard.number, rounds[0] if rounds else None, error)


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
