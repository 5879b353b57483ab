"""Collection in shards, and independent tasks on any `concurrent.futures.Executor`.

A *shard* is a number of trials of an environment that a worker makes for itself, with a seed
spawned from the collection's seed. Shards are added up in their order, so the result is the same
for any number of workers, even if some die: a task whose worker died is run again.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import replace
from importlib import import_module
from itertools import chain, islice
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorEnv

from lstd_agent.errors import (
    EvaluationError,
    InvalidInputError,
    MissingDependencyError,
    check_integer,
)
from lstd_agent.progress import progress_bar
from lstd_agent.trials.collect import (
    AnyEnv,
    Keep,
    Request,
    collect_rounds,
    single_spaces,
    split_seed,
)
from lstd_agent.trials.counted import Portion
from lstd_agent.trials.policies import Policy, make_actor
from lstd_agent.trials.recording import Recording
from lstd_agent.trials.spaces import as_batch

EnvSource: TypeAlias = str | Callable[[], AnyEnv]
"""An environment's id, ``"module:id"`` if a module registers it, or a function that makes one."""

MAX_RETRIES = 3

# Most trials of a shard, and the wanted number of shards; most copies of an environment that step
# together; tasks handed to an executor of unknown size, running or waiting.
_MAX_TRIALS, _SHARDS, _MAX_COPIES, _MIN_SUBMITTED = 50_000, 20, 25_000, 64

_INTERRUPTS = (signal.SIGINT, signal.SIGTERM)


class WorkerError(EvaluationError, RuntimeError):
    """Workers died more often than they are replaced."""


def collect(
    env: AnyEnv | EnvSource, recording: Recording, policy: Policy, keep: Keep, request: Request
) -> None:
    """Run trials in an environment, or in shards on workers, and hand over finished portions.

    Finished shards are handed over in their order, also if an error or an interrupt ends it early.
    """
    encoding = recording.encoding
    if isinstance(env, gym.Env | VectorEnv):
        if request.workers != 1 or request.executor is not None or request.shard_size is not None:
            told = "workers make their own environments: pass an id, or a function that makes "
            told += f"an environment, instead of {env}"
            raise InvalidInputError(told)
        collect_rounds(env, recording, policy, keep, request)
        return
    with closing(make_env(env, 1)) as sample:
        make_actor(policy, *single_spaces(sample), request.batched)
        observation, _ = sample.reset(seed=split_seed(request.seed or 0)[0])
        single = not isinstance(sample, VectorEnv)
        encoding.check_features(encoding.encode(as_batch(observation) if single else observation))
    source: EnvSource | EnvSpec = env
    if isinstance(env, str):
        # A worker need not have registered the id: send the spec, unless its entry point is a
        # function.
        spec = _find_spec(env)
        source = env if callable(spec.entry_point) else spec
    what = source, replace(recording, encoding=encoding.without_features()), policy
    if request.executor is None and request.workers > 1:
        try:
            pickle.dumps(what)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            told = "workers are sent the environment, the policy and the features by pickle, which "
            told += f"fails: {error}. Define functions at the top level of a module, not as lambdas"
            raise InvalidInputError(told) from error
    size = request.shard_size or min(_MAX_TRIALS, -(-request.n_trials // _SHARDS))
    entropy = np.random.SeedSequence(request.seed).entropy
    quiet = replace(request, progress=False, executor=None)

    def shards() -> Iterator[Any]:
        for number, piece in enumerate(quiet.pieces(size)):
            # The same sequence as from spawn(), without its predecessors.
            spawned = np.random.SeedSequence(entropy, spawn_key=(number,))
            seed = int(spawned.generate_state(1, np.uint64)[0])
            yield number, *what, replace(piece, seed=seed)

    early: dict[int, Portion] = {}  # finished before an earlier shard
    following = 0

    def finish(outcome: Any) -> None:
        nonlocal following
        number, finished, broken_by = outcome
        if finished is not None:
            bar.update(finished.n_trials * (request.t_max + 1))
            early[number] = finished
        if broken_by is not None:
            raise broken_by
        # Sums of rewards depend on the order of addition in their last digit.
        while following in early:
            keep(early.pop(following))
            following += 1

    how: Any = {"workers": request.workers, "executor": request.executor}
    n_steps = request.n_trials * (request.t_max + 1)
    with progress_bar(n_steps, "step", request.progress, scale=True) as bar:
        try:
            run_tasks(_collect_shard, shards(), finish, **how)
        finally:
            for number in sorted(early):
                keep(early[number])


def _find_spec(env_id: str) -> EnvSpec:
    module, _, name = env_id.rpartition(":")
    if module:
        import_module(module)
    return gym.spec(name)


def _collect_shard(shard: tuple[int, EnvSource | EnvSpec, Recording, Policy, Request]) -> Any:
    """Run a shard's trials; return its number, those that finished, and what ended it early."""
    number, source, recording, policy, request = shard
    rounds: list[Any] = []

    def keep(finished: Portion) -> None:
        rounds[:] = [rounds[0] + finished if rounds else finished]

    if "MALLOC_TRIM_THRESHOLD_" in os.environ:
        # Dask's workers start with a small threshold: the C library then asks the system anew for
        # each large array, which takes longer than a step of the environment.
        with suppress(OSError, AttributeError):  # another C library
            mallopt = ctypes.CDLL(None).mallopt
            mallopt(-1, 2**28)  # M_TRIM_THRESHOLD
            mallopt(-3, 2**25)  # M_MMAP_THRESHOLD
    error: BaseException | None = None
    try:
        with closing(make_env(source, request.n_trials)) as env:
            collect_rounds(env, recording, policy, keep, request)
    except BaseException as raised:  # such as an interrupt, or sys.exit() of an environment
        error = raised
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:  # pickling a user's error may raise anything
            error = WorkerError(f"{type(raised).__name__} in a shard: {raised}")
    return number, rounds[0] if rounds else None, error


def spaces_of(env: AnyEnv | EnvSource) -> tuple[gym.Space[Any], gym.Space[Any]]:
    """Return the observation and action spaces of an environment, or of its source."""
    if isinstance(env, gym.Env | VectorEnv):
        return single_spaces(env)
    with closing(make_env(env, 1)) as sample:
        return single_spaces(sample)


def make_env(source: EnvSource | EnvSpec, n_trials: int) -> AnyEnv:
    """Make an environment for so many trials: a vector environment, if its id has one."""
    if callable(source):
        env = source()
        if not isinstance(env, gym.Env | VectorEnv):
            told = f"a function given as env must return an Env or a VectorEnv; got {env!r}"
            raise InvalidInputError(told)
        return env
    if isinstance(source, str):
        source = _find_spec(source)
    if hasattr(source, "num_envs") and hasattr(source, "step_async"):
        raise InvalidInputError(
            f"{type(source).__name__} is of Stable-Baselines3 and hides what copies observe last: "
            "make a gymnasium.vector.SyncVectorEnv of the same functions"
        )
    if not isinstance(source, EnvSpec):
        told = f"env must be an Env, VectorEnv, id or function that makes one; got {source!r}"
        raise InvalidInputError(told)
    if source.vector_entry_point is None:
        return gym.make(source)
    return gym.make_vec(source, num_envs=min(n_trials, _MAX_COPIES))


@contextmanager
def open_executor(dask_address: str | None) -> Iterator[Executor | None]:
    """Yield an executor of a scheduler of Dask, such as ``"tcp://host:8786"``; or None."""
    if dask_address is None:
        yield None
        return
    try:
        from distributed import Client
    except ImportError as error:
        told = 'a dask cluster needs distributed: pip install "unichain-gym[dask]"'
        raise MissingDependencyError(told) from error
    with Client(dask_address) as client:
        yield client.get_executor()


def run_tasks(
    function: Callable[[Any], Any],
    tasks: Iterable[Any],
    keep: Callable[[Any], object],
    *,
    workers: int = 1,
    executor: Executor | None = None,
) -> None:
    """Run the function on every task, and hand each result to ``keep`` as it finishes.

    Tasks are drawn as workers become free. Several workers are processes of their own, or those of
    an executor, such as ``Client.get_executor()`` of Dask (give ``workers`` if it has over 32).
    """
    workers, waiting = check_integer("workers", workers, 1), iter(tasks)
    if executor is not None:  # dask replaces dead workers itself
        if _run(executor, function, waiting, keep, max(_MIN_SUBMITTED, 2 * workers), False):
            told = "a worker of the executor died, which broke it. Pass workers= instead of "
            told += "executor=: then dead workers are replaced"
            raise WorkerError(told)
        return
    if workers == 1:
        for task in waiting:
            keep(function(task))
        return
    for _ in range(1 + MAX_RETRIES):
        with _pool(workers) as pool:
            lost = _run(pool, function, waiting, keep, 2 * workers, True)
        if not lost:
            return
        waiting = chain(lost, waiting)
    raise WorkerError(
        f"workers died {MAX_RETRIES + 1} times: for want of memory (use fewer workers), or because "
        'each imports the script, which must start its work under if __name__ == "__main__"'
    )


def _run(
    executor: Executor,
    function: Callable[[Any], Any],
    tasks: Iterator[Any],
    keep: Callable[[Any], object],
    n_submitted: int,
    is_own: bool,
) -> list[Any]:
    """Run tasks until they are through, or the executor breaks; return those that were lost.

    An early end cancels tasks, except in our own pool: a broken one logs errors about these.
    """
    running: dict[Future[Any], Any] = {}
    lost: list[Any] = []
    try:
        while True:
            for task in islice(tasks, 0 if lost else n_submitted - len(running)):
                try:
                    with _blocked_signals() if is_own else nullcontext():  # it may start a worker
                        running[executor.submit(function, task)] = task
                except BrokenExecutor:
                    lost.append(task)
                    break
            if not running:
                return lost
            for future in futures.wait(running, return_when="FIRST_COMPLETED").done:
                task = running.pop(future)
                try:
                    result = future.result()
                except BrokenExecutor:
                    lost.append(task)
                else:
                    keep(result)
    except BaseException:
        for future in running:
            if future.done():
                with suppress(BaseException):  # another error is raised
                    keep(future.result())
            elif not is_own:
                future.cancel()
        raise


@contextmanager
def _pool(workers: int) -> Iterator[Executor]:
    """Start processes that end with the context, at once if it is left by an exception."""
    # A fresh interpreter for each worker: forking would copy threads' locks.
    context = multiprocessing.get_context("spawn")
    watched, alive = context.Pipe(duplex=False)
    with (
        watched,
        futures.ProcessPoolExecutor(workers, context, _end_with_parent, (watched,)) as pool,
    ):
        try:
            yield pool
        except BaseException:
            alive.close()  # their results are not needed
            raise
    alive.close()


def _end_with_parent(watched: Connection) -> None:
    """End this worker as soon as the other end of the pipe is closed, or its process gone.

    A killed parent does not stop its workers. Only the parent handles Ctrl-C of a terminal.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPTS)  # see _blocked_signals

    def watch() -> None:
        with suppress(EOFError, OSError):
            watched.recv()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _blocked_signals() -> Iterator[None]:
    """Hold signals back: a worker before `_end_with_parent` shall print no traceback."""
    if not hasattr(signal, "pthread_sigmask"):  # on Windows
        yield
        return
    held: list[int] = []
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPTS)
    # Other threads, such as those of BLAS, may still get a signal, whose handler runs in this one.
    mine = _INTERRUPTS if threading.current_thread() is threading.main_thread() else ()
    handlers = [signal.signal(each, lambda number, _: held.append(number)) for each in mine]
    try:
        yield
    finally:
        for each, handler in zip(mine, handlers, strict=True):
            signal.signal(each, handler or signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for number in held[:1]:
            signal.raise_signal(number)
