"""Collection in shards: pieces of work that any number of workers can share.

A shard is a number of trials of an environment that its worker makes for itself, with a seed
spawned from the collection's seed. What a shard holds depends on nothing else, and shards are
added up in their order: the result is the same for any number of workers, whichever of them
died on the way.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass
from importlib import import_module
from typing import TypeAlias

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorEnv

from lstd_agent.errors import InvalidInputError, check_integer
from lstd_agent.trials.encoding import Domain
from lstd_agent.trials.parallel import run_tasks
from lstd_agent.trials.policies import Policy
from lstd_agent.trials.recording import Round
from lstd_agent.trials.rollouts import (
    AnyEnv,
    Keep,
    check_amounts,
    collect_rounds,
    pieces,
    step_bar,
)

EnvSource: TypeAlias = str | Callable[[], AnyEnv]
"""An environment's id, ``"module:id"`` where a module registers it, or what makes one."""

# Copies of an environment that step together, at most, and so trials of a shard; fewer if that
# makes this many shards, which are also the batches of standard errors.
_MAX_COPIES = 50_000
_SHARDS = 20


@dataclass(frozen=True, eq=False)
class Shard:
    """What a worker needs to know; all of it has to be picklable."""

    number: int
    env: EnvSource | EnvSpec
    domain: Domain
    policy: Policy
    n_trials: int
    t_max: int
    seed: int
    n_stored: int
    batched: bool | None


def collect_shards(
    env: EnvSource,
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
    shard_size: int | None = None,
    workers: int = 1,
    executor: Executor | None = None,
) -> None:
    """Run trials on workers and hand over one `Round` a shard, in the order of the shards.

    Parameters
    ----------
    env : str or callable
        Makes an environment in each worker: an id, or a picklable function of no arguments.
    domain, policy, keep, n_trials, t_max, seed, n_stored, batched, progress
        See `lstd_agent.trials.rollouts.collect_rounds`.
    shard_size : int, optional
        Trials of a shard, by default at most 50,000. What a seed gives depends on it.
    workers, executor
        See `lstd_agent.trials.parallel.run_tasks`.

    Raises
    ------
    InvalidInputError
        If an argument does not fit.
    WorkerError
        If workers keep dying.
    """
    n_trials, t_max = check_amounts(n_trials, t_max, seed)
    if shard_size is None:
        shard_size = min(_MAX_COPIES, -(-n_trials // _SHARDS))
    shard_size = check_integer("shard_size", shard_size, 1)
    source = portable(env)
    if executor is None and check_integer("workers", workers, 1) > 1:
        _check_picklable(source, domain, policy)
    entropy = np.random.SeedSequence(seed).entropy

    def shards() -> Iterator[Shard]:
        for number, (n, stored) in enumerate(pieces(n_trials, shard_size, n_stored)):
            # The sequence that spawn() would give, without spawning those before it.
            spawned = np.random.SeedSequence(entropy, spawn_key=(number,))
            own_seed = int(spawned.generate_state(1, np.uint64)[0])
            yield Shard(number, source, domain, policy, n, t_max, own_seed, stored, batched)

    early: dict[int, Round] = {}
    following = 0
    results = run_tasks(collect_shard, shards(), workers=workers, executor=executor)
    with step_bar(n_trials * (t_max + 1), progress) as bar:
        for number, finished in results:
            bar.update(finished.counts.n_trials * (t_max + 1))
            # Sums of rewards depend on the order of addition in their last digit.
            early[number] = finished
            while following in early:
                keep(early.pop(following))
                following += 1


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


def collect_shard(shard: Shard) -> tuple[int, Round]:
    """Run a shard's trials and return its number and their sum."""
    rounds: list[Round] = []

    def keep(finished: Round) -> None:
        if rounds:
            finished = Round(
                rounds[0].counts + finished.counts,
                np.concatenate((rounds[0].states, finished.states)),
            )
        rounds[:] = [finished]

    with closing(make_env(shard.env, shard.n_trials)) as env:
        collect_rounds(
            env,
            shard.domain,
            shard.policy,
            keep,
            n_trials=shard.n_trials,
            t_max=shard.t_max,
            seed=shard.seed,
            n_stored=shard.n_stored,
            batched=shard.batched,
        )
    return shard.number, rounds[0]


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
    if not isinstance(source, EnvSpec):
        raise InvalidInputError(
            f"env must be an Env, a VectorEnv, an id or a function that makes one; got {source!r}"
        )
    if source.vector_entry_point is None:
        return gym.make(source)
    return gym.make_vec(source, num_envs=min(n_trials, _MAX_COPIES))
