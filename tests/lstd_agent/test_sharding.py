"""Collection by workers: the same trials for any number of them, whatever dies on the way."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path
from threading import Event, Thread
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from numpy.testing import assert_allclose

from lstd_agent import OneHot, SeminormLSTDAgent
from lstd_agent.errors import InvalidInputError
from lstd_agent.trials.workers import _blocked_signals, open_executor
from unichain_gym import UnichainEnv, UnichainVectorEnv, make_mdp

ENV = "unichain_gym:Unichain-h6-v0"
POLICY = np.array([0, 1, 0, 1, 0, 1])

# Workers import what makes their environment by name, which they cannot from a file of tests.
ENVIRONMENTS = '''
import os
from pathlib import Path

from unichain_gym import UnichainVectorEnv

def make_or_die_once(folder, survivor):
    """Kill the first worker that asks for its second environment."""
    if os.getpid() != survivor:
        try:
            Path(folder, f"{os.getpid()}").touch(exist_ok=False)
        except FileExistsError:
            try:
                Path(folder, "died").touch(exist_ok=False)
            except FileExistsError:
                pass
            else:
                os._exit(1)
    return UnichainVectorEnv(200, "h6")
'''


@pytest.fixture
def mortal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """What makes environments and kills the first worker that makes its second one."""
    (tmp_path / "environments_of_workers.py").write_text(ENVIRONMENTS)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("environments_of_workers")
    yield partial(module.make_or_die_once, str(tmp_path), os.getpid())
    sys.modules.pop("environments_of_workers")


def collected(env: Any = ENV, n_trials: int = 2_001, **options: Any) -> SeminormLSTDAgent:
    agent = SeminormLSTDAgent(OneHot(), n_stored_trials=350)
    return agent.collect(env, POLICY, n_trials=n_trials, t_max=12, seed=4, **options)


def whole_trials(agent: SeminormLSTDAgent) -> Any:
    """States (n, T) of the trials that are kept as they came."""
    whole = agent._source[0].whole_trials
    assert whole is not None
    return whole.observations[:, :-1].reshape(whole.n_trials, -1)


def assert_same_trials(first: SeminormLSTDAgent, second: SeminormLSTDAgent) -> None:
    a, b = first.counts, second.counts
    assert a.n_trials == b.n_trials
    for x, y in ((a.transition_counts, b.transition_counts), (a.reward_sums, b.reward_sums)):
        np.testing.assert_array_equal(x.toarray(), y.toarray())
    np.testing.assert_array_equal(whole_trials(first), whole_trials(second))


def test_the_trials_do_not_depend_on_the_order_of_finished_shards() -> None:
    with ThreadPoolExecutor(7) as pool:
        assert_same_trials(collected(executor=pool, shard_size=30), collected(shard_size=30))


@pytest.mark.slow
def test_a_worker_that_dies_loses_nothing(mortal: Any, tmp_path: Path) -> None:
    agent = collected(mortal, workers=2, shard_size=200)
    assert (tmp_path / "died").exists()
    assert_same_trials(agent, collected(partial(UnichainVectorEnv, 200, "h6"), shard_size=200))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_dask_worker_that_dies_loses_nothing(mortal: Any, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        open_executor(cluster.scheduler_address) as executor,
    ):
        agent = collected(mortal, executor=executor, shard_size=200)
    assert (tmp_path / "died").exists()
    assert_same_trials(agent, collected(partial(UnichainVectorEnv, 200, "h6"), shard_size=200))


def test_shards_have_the_law_of_the_chain() -> None:
    agent = collected(n_trials=40_000)
    chain = make_mdp("h6").induce(POLICY)
    exact = chain.stepwise_distributions(12)
    # Four standard errors of a frequency, and one more count where it should be zero.
    tolerance = 4 * np.sqrt(exact * (1 - exact) / 40_000) + 1 / 40_000
    visits = agent.counts.transition_counts.toarray().reshape(13, 6, 6).sum(axis=2)
    assert (np.abs(visits / 40_000 - exact) < tolerance).all()


def test_shards_are_independent() -> None:
    agent = SeminormLSTDAgent(OneHot(), n_stored_trials=400, n_batches=20)
    agent.collect(ENV, POLICY, n_trials=400, t_max=40, seed=0, shard_size=20)
    shards = whole_trials(agent).reshape(20, 20, 41)
    assert len(np.unique(shards.reshape(20, -1), axis=0)) == 20


def test_a_plain_environment_is_sharded_too() -> None:
    agent = collected(partial(UnichainEnv, "h6"), n_trials=300, shard_size=70)
    assert agent.n_trials == 300
    assert whole_trials(agent).shape == (300, 13)


# Thirteen timesteps are too few, which does not matter here.
@pytest.mark.filterwarnings("ignore::lstd_agent.errors.FitWarning")
def test_shards_suffice_for_standard_errors() -> None:
    agent = collected(n_trials=500).fit()
    assert np.isfinite(agent.standard_errors([0, 1])).all()


def test_rounds_within_a_shard_add_up() -> None:
    make = partial(UnichainVectorEnv, 64, "h6")
    agent = collected(make, n_trials=500, shard_size=250)
    assert_allclose(agent.counts.transition_counts.sum(axis=1), 500)
    assert whole_trials(agent).shape == (350, 13)


def test_an_environment_itself_cannot_be_shared() -> None:
    with pytest.raises(InvalidInputError, match="workers make their own environments: pass an id"):
        collected(gym.make(ENV), workers=2)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (3, "VectorEnv, id or function that makes one; got 3"),
        (dict, "must return an Env or a VectorEnv; got {}"),
    ],
)
def test_a_source_that_makes_no_environment_is_refused(env: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        collected(env)


def test_a_shard_has_a_trial() -> None:
    with pytest.raises(InvalidInputError, match="shard_size must be at least 1; got 0"):
        collected(shard_size=0)


def test_workers_get_registered_environments_and_no_features() -> None:
    class Unpicklable:
        def table(self, n_states: int) -> Any:
            return np.eye(n_states)

        def __reduce__(self) -> Any:
            raise TypeError("features were sent to a worker")

    kwargs = {"mnemonic": "h6", "advance_probs": [0.5, 0.9]}
    gym.register("OnlyHere-v0", entry_point="unichain_gym:UnichainEnv", kwargs=kwargs)
    try:
        alone, shared = (
            SeminormLSTDAgent(Unpicklable()).collect(
                "OnlyHere-v0", POLICY, n_trials=200, t_max=20, seed=0, workers=workers
            )
            for workers in (1, 2)
        )
    finally:
        del gym.registry["OnlyHere-v0"]
    assert_same_trials(alone, shared)


def test_arguments_that_cannot_be_pickled_are_refused_with_a_remedy() -> None:
    agent = SeminormLSTDAgent(OneHot())
    with pytest.raises(
        InvalidInputError, match=r"by pickle, which fails: .* top level of a module"
    ):
        agent.collect(ENV, lambda states: 0 * states, n_trials=100, t_max=5, workers=2)


class BreaksOff(gym.Wrapper[Any, Any, Any, Any]):
    """Raises after so many steps, once what it waits for has happened."""

    def __init__(self, error: BaseException, n_steps: int, wait_for: Event | None = None) -> None:
        super().__init__(UnichainEnv("h6"))
        self.error, self.n_steps, self.wait_for = error, n_steps, wait_for

    def step(self, action: Any) -> Any:
        self.n_steps -= 1
        if self.n_steps < 0:
            if self.wait_for is not None:
                assert self.wait_for.wait(30.0)
            raise self.error
        return super().step(action)


BREAKS = [RuntimeError("out of battery"), KeyboardInterrupt(), SystemExit(3)]


@pytest.mark.parametrize("error", BREAKS)
def test_trials_that_a_shard_has_finished_before_it_breaks_off_are_kept(error: Any) -> None:
    """Rounds of a plain environment hold a twentieth of a shard's trials, 3 of 60 here."""
    agent = SeminormLSTDAgent(OneHot())
    with pytest.raises(type(error)):
        agent.collect(
            lambda: BreaksOff(error, 75), POLICY, n_trials=60, t_max=9, seed=0, shard_size=60
        )
    assert agent.n_trials == 7


@pytest.mark.parametrize("error", BREAKS)
def test_shards_that_finish_before_an_earlier_one_breaks_off_are_kept(error: Any) -> None:
    """One of four shards waits for the others, then breaks off in its sixth trial."""
    made = count()
    others_are_through = Event()
    closed: list[int] = []

    class Plain(UnichainEnv):
        def close(self) -> None:
            closed.append(1)
            if len(closed) == 3:
                others_are_through.set()
            super().close()

    def make() -> Any:
        number = next(made)
        if number < 2:  # looked at for its spaces, and for its first observations
            return UnichainEnv("h6")
        return BreaksOff(error, 55, others_are_through) if number == 2 else Plain("h6")

    agent = SeminormLSTDAgent(OneHot())
    with ThreadPoolExecutor(4) as pool, pytest.raises(type(error)):
        agent.collect(make, POLICY, n_trials=80, t_max=9, seed=0, shard_size=20, executor=pool)
    assert agent.n_trials == 3 * 20 + 5


@pytest.mark.skipif(sys.platform == "win32", reason="interrupts by POSIX signals")
def test_an_interrupt_waits_until_a_worker_has_all_that_it_needs() -> None:
    """Threads of libraries do not block signals. A worker without its facts prints a traceback."""
    through, has_all = Event(), []

    def start_a_worker() -> None:
        with _blocked_signals():
            os.kill(os.getpid(), signal.SIGINT)  # the other thread gets it
            time.sleep(0.05)
            has_all.append(True)

    other = Thread(target=through.wait)
    other.start()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            start_a_worker()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
        through.set()
        other.join()
    assert has_all
