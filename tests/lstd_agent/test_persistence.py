"""Files: what is loaded is what was saved, and nothing else is loaded."""

from __future__ import annotations

import copy
import errno
import io
import json
import os
import pickle
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import joblib
import numpy as np
import pytest
import scipy.sparse
from gymnasium.vector import SyncVectorEnv
from numpy.testing import assert_array_equal
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from lstd_agent import (
    MMD,
    FourierBasis,
    GaussianFeatures,
    Kernel,
    OneHot,
    PolicyIteration,
    Polynomial,
    RadialBasis,
    RandomFourier,
    SeminormLSTDAgent,
    Standardized,
    TileCoding,
)
from lstd_agent.errors import FitWarning, InvalidInputError, NotFittedError
from lstd_agent.packing import (
    FORMAT_VERSION,
    OLD,
    Arrays,
    _digest,
    _write_draft,
    pack,
    unpack,
    write_files,
)


def through_a_file(value: Any) -> Any:
    arrays: Arrays = {}
    facts = json.loads(json.dumps(pack(value, "value", arrays, {})))
    return unpack(facts, arrays, {})


class Named(gym.spaces.Discrete):
    """A space of another library."""


POLICY = np.array([0, 1, 0, 1, 0, 1])
STATES = np.arange(6)


def discrete(**options: Any) -> SeminormLSTDAgent:
    options = {"features": OneHot(), "backup": "one_step", "n_batches": 5, **options}
    env = gym.make_vec("unichain_gym:Unichain-h6-v0", num_envs=50)
    return SeminormLSTDAgent(**options).collect(env, POLICY, n_trials=200, t_max=30, seed=0).fit()


def collect_more(agent: SeminormLSTDAgent) -> None:
    env = gym.make_vec("unichain_gym:Unichain-h6-v0", num_envs=5)
    agent.collect(env, POLICY, n_trials=5, t_max=30, seed=2)


@pytest.mark.first(4)
@pytest.mark.filterwarnings("ignore::lstd_agent.errors.FitWarning")
# Two random features tell little, and a gain of 3 is not right.
@pytest.mark.filterwarnings("ignore:.*mean value of the start:lstd_agent.errors.FitWarning")
@pytest.mark.parametrize(
    "options",
    [
        pytest.param(
            {"features": GaussianFeatures(3, seed=4), "n_anchors": None}, marks=pytest.mark.slow
        ),
        {"features": np.eye(6)[:, :2] + 0.5, "anchors": [0, 9], "on_termination": "absorb"},
        {"features": Polynomial(2, scale=5.0), "gain": 3.0, "calibration": "references"},
        {"features": RadialBasis([[0.0], [4.0]], 2.0), "reference": "most_common"},
        {"distance": MMD("quadratic", Kernel(width="median")), "search": "exact"},
        {"backup": "auto", "distance": "tv", "rcond": 1e-9, "n_batches": 3, "n_stored_trials": 7},
        {"features": FourierBasis(-8.0, 8.0, 2)},
        {"features": RandomFourier(3, width=2.0)},
        {"features": Standardized(Polynomial(2))},
        {"features": scipy.sparse.eye_array(6, format="csr")},
    ],
    ids=str,
)
def test_a_loaded_agent_continues_like_the_saved_one(
    options: dict[str, Any], tmp_path: Path
) -> None:
    agent = discrete(**options)
    agent.save(tmp_path / "agent.npz")
    loaded = SeminormLSTDAgent.load(tmp_path / "agent.npz")
    for t in (None, 30):
        assert_array_equal(loaded.predict(STATES, t), agent.predict(STATES, t))
        assert_array_equal(loaded.coverage(STATES, t), agent.coverage(STATES, t))
        assert_array_equal(loaded.standard_errors(STATES, t), agent.standard_errors(STATES, t))
    assert loaded.summary() == agent.summary()
    env = gym.make_vec("unichain_gym:Unichain-h6-v0", num_envs=50)
    for each in (agent, loaded):
        each.collect(env, POLICY, n_trials=100, t_max=30, seed=1).fit()
    assert_array_equal(loaded.predict(STATES), agent.predict(STATES))


@pytest.mark.filterwarnings("ignore::lstd_agent.errors.FitWarning")
# Twenty trials are few for some of these features.
@pytest.mark.filterwarnings("ignore:.*starts:lstd_agent.errors.FitWarning")
@pytest.mark.parametrize("features", [RadialBasis.grid(-8, 8, 4), TileCoding(-8, 8), "function"])
def test_vector_agents_are_saved_too(features: Any, tmp_path: Path) -> None:
    class Speed(gym.ObservationWrapper[Any, Any, Any]):
        observation_space: Any = gym.spaces.Box(-8.0, 8.0, (1,))

        def observation(self, observation: Any) -> Any:
            return observation[2:]

    function = (lambda x: np.hstack((x, x**2))) if features == "function" else None
    env = SyncVectorEnv([lambda: Speed(gym.make("Pendulum-v1"))] * 5)
    agent = SeminormLSTDAgent(function or features, on_termination="absorb")
    agent.collect(env, lambda x: np.zeros((len(x), 1)), n_trials=20, t_max=15, seed=0).fit()
    path = tmp_path / "agent.npz"
    agent.save(path)
    loaded = SeminormLSTDAgent.load(path, features=function)
    x = np.array([[0.0], [1.5]])
    assert_array_equal(loaded.predict(x), agent.predict(x))
    assert_array_equal(loaded.standard_errors(x, 3), agent.standard_errors(x, 3))
    assert_array_equal(loaded.coverage(x), agent.coverage(x))


def test_numpy_numbers_among_the_options_are_saved(tmp_path: Path) -> None:
    two = np.int64(2)
    agent = discrete(
        n_anchors=two,
        n_batches=two,
        n_stored_trials=two,
        rcond=np.float32(1e-9),
        distance=MMD(kernel=Kernel(width=np.float32(2.0))),  # type: ignore[arg-type]
    )
    agent.save(tmp_path / "agent.npz")
    assert SeminormLSTDAgent.load(tmp_path / "agent.npz").summary() == agent.summary()


def test_a_pipeline_of_transformers_is_no_table(tmp_path: Path) -> None:
    """Although it has a length. It would have been pickled, and never loaded again."""
    pipeline = make_pipeline(StandardScaler(), PolynomialFeatures(1))
    pipeline.fit(np.random.default_rng(0).normal(size=(50, 3)))
    path = tmp_path / "agent.npz"
    with pytest.raises(NotFittedError, match=r"call attach\(env\)"):
        SeminormLSTDAgent(pipeline).observe(0, 0, 0.0, 1)
    agent = SeminormLSTDAgent(pipeline)
    agent.collect(
        gym.make("Pendulum-v1"), lambda x: np.zeros((len(x), 1)), n_trials=4, t_max=5, seed=0
    )
    with pytest.warns(FitWarning, match="do not determine the values of starts"):
        agent.fit()  # four trials are few
    agent.save(path)
    with pytest.raises(InvalidInputError, match="a function for its features"):
        SeminormLSTDAgent.load(path)
    x = np.array([[1.0, 0.0, 0.5]])
    loaded = SeminormLSTDAgent.load(path, features=pipeline)
    assert_array_equal(loaded.predict(x), agent.predict(x))


@pytest.mark.filterwarnings("ignore:.*mean value of the start:lstd_agent.errors.FitWarning")
def test_functions_must_be_given_again_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "agent.npz"
    discrete(distance=lambda p, q: np.abs(p - q).sum()).save(path)
    with pytest.raises(InvalidInputError, match=r"a function for its distance.*load"):
        SeminormLSTDAgent.load(path)
    SeminormLSTDAgent.load(path, distance=lambda p, q: 0.0)
    with pytest.raises(InvalidInputError, match="holds the agent's features"):
        SeminormLSTDAgent.load(path, features=OneHot(), distance=lambda p, q: 0.0)
    # A function of Discrete observations is saved as its table.
    discrete(features=lambda s: np.stack((s, s**2), axis=1)).save(path)
    loaded = SeminormLSTDAgent.load(path)
    assert_array_equal(loaded.features, np.stack((STATES, STATES**2), axis=1))


def test_an_agent_without_trials_is_saved(tmp_path: Path) -> None:
    SeminormLSTDAgent(GaussianFeatures(2), 5).save(tmp_path / "agent.npz")
    loaded = SeminormLSTDAgent.load(tmp_path / "agent.npz")
    assert loaded.features == GaussianFeatures(2)
    assert repr(loaded) == "<SeminormLSTDAgent n_anchors=5, 0 trials, not fitted>"


@pytest.mark.parametrize(
    ("version", "remedy"), [(FORMAT_VERSION + 1, "install"), (3, "load it with the version that")]
)
def test_other_formats_are_refused_with_a_remedy(version: int, remedy: str, tmp_path: Path) -> None:
    path = tmp_path / "agent.npz"
    np.savez(path, facts=np.array(json.dumps({"format_version": version})))
    with pytest.raises(InvalidInputError, match=rf"has format {version}, .* reads .*: {remedy}"):
        SeminormLSTDAgent.load(path)


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "agent.npz"
    pickled = np.array([{"any": "object"}], dtype=object)
    for write in (
        lambda: path.write_text("not a zip"),
        lambda: path.write_bytes(b""),
        lambda: np.savez(path, x=np.zeros(3)),
        lambda: np.savez(path, facts=np.array("not JSON")),
        lambda: np.savez(path, facts=pickled),
    ):
        write()
        with pytest.raises(InvalidInputError, match="is not a saved agent"):
            SeminormLSTDAgent.load(path)
    with pytest.raises(FileNotFoundError):
        SeminormLSTDAgent.load(tmp_path / "missing.npz")


def test_a_write_that_fails_leaves_the_old_file_and_no_rest(
    tmp_path: Path, monkeypatch: Any
) -> None:
    path = tmp_path / "agent.npz"
    agent = discrete()
    agent.save(path)
    before = path.read_bytes()

    def full_disk(file: Any, **arrays: Any) -> None:
        file.write(b"half")
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(np, "savez_compressed", full_disk)
    with pytest.raises(OSError, match="no space left"):
        agent.save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["agent.npz"]


@pytest.mark.skipif(sys.platform == "win32", reason="whether a process runs is not told there")
@pytest.mark.parametrize(
    "write", [lambda path: discrete().save(path), lambda path: write_files({path: b""})]
)
def test_an_old_draft_is_removed_by_the_next_writer_of_the_file(write: Any, tmp_path: Path) -> None:
    path = tmp_path / "agent.npz"
    write(path)
    drafts = []
    for target in (path, path, tmp_path / "other.npz"):
        drafts.append(_write_draft(target, lambda file: file.write(b"half")))
    for draft in drafts[1:]:
        os.utime(draft, (0, time.time() - OLD - 1.0))
    write(path)
    assert set(tmp_path.iterdir()) == {path, drafts[0], drafts[2]}


@pytest.mark.parametrize(
    "space",
    [
        gym.spaces.Discrete(4, start=-1),
        gym.spaces.Box(np.array([-np.inf, 0.0]), np.array([1.0, np.inf]), dtype=np.float64),
        gym.spaces.Box(0, 255, (2, 2), dtype=np.uint8),
        gym.spaces.MultiDiscrete(np.array([[3, 2], [2, 2]]), start=np.array([[1, 0], [0, 0]])),
        gym.spaces.MultiBinary([2, 3]),
        gym.spaces.Dict({"b": gym.spaces.Discrete(2), "a": gym.spaces.MultiBinary(2)}),
        gym.spaces.Tuple([gym.spaces.Discrete(2), gym.spaces.Box(0.0, 1.0)]),
        Named(4, start=1),
    ],
    ids=str,
)
def test_spaces_survive_and_subclasses_become_the_spaces_that_they_are(space: Any) -> None:
    found = through_a_file(space)
    assert found == space
    assert type(found).__module__.startswith("gymnasium.spaces")


def test_saved_files_have_the_permissions_of_any_file_and_follow_links(tmp_path: Path) -> None:
    agent, path = discrete(), tmp_path / "agent.npz"
    plain = tmp_path / "plain"
    plain.write_bytes(b"")
    agent.save(path)
    assert path.stat().st_mode == plain.stat().st_mode
    path.chmod(0o640)
    link = tmp_path / "link.npz"
    link.symlink_to(path)
    before = path.read_bytes()
    collect_more(agent)
    agent.save(link)
    assert link.is_symlink()
    assert path.read_bytes() != before
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_loaded_agent_has_its_policy_and_its_options(tmp_path: Path) -> None:
    agent = discrete(observations="counted", max_bytes=12345)
    agent.save(tmp_path / "agent.npz")
    loaded = SeminormLSTDAgent.load(tmp_path / "agent.npz")
    assert (loaded.observations, loaded.max_bytes) == ("counted", 12345)
    env = gym.make("unichain_gym:Unichain-h6-v0")
    with pytest.raises(InvalidInputError, match="of another policy"):
        loaded.collect(env, 1 - np.asarray(POLICY), n_trials=5, t_max=30)


@pytest.mark.filterwarnings("ignore::lstd_agent.errors.FitWarning")  # coarse features, few trials
def test_standardized_functions_are_given_as_they_were_or_by_themselves(tmp_path: Path) -> None:
    def function(x: Any) -> Any:
        return np.hstack((x, x**2))

    agent = SeminormLSTDAgent(Standardized(function), 1)
    agent.collect(
        gym.make("Pendulum-v1"), lambda x: [0.0], n_trials=30, t_max=30, seed=0, batched=False
    )
    agent.fit()
    agent.save(tmp_path / "agent.npz")
    measured: Any = agent.features
    for given in (function, Standardized(function), measured):
        loaded: Any = SeminormLSTDAgent.load(tmp_path / "agent.npz", features=given)
        assert_array_equal(loaded.features.mean, measured.mean)
        assert_array_equal(loaded.predict([0.0, 1.0, 2.0]), agent.predict([0.0, 1.0, 2.0]))


def test_an_outdated_fit_is_not_saved(tmp_path: Path) -> None:
    agent, path = discrete(), tmp_path / "agent.npz"
    collect_more(agent)
    agent.save(path)
    with pytest.raises(NotFittedError, match="call fit first"):
        SeminormLSTDAgent.load(path).predict(STATES)
    agent.fit().save(path)
    assert_array_equal(SeminormLSTDAgent.load(path).predict(STATES), agent.predict(STATES))


def test_loading_does_not_repeat_the_warnings_of_the_fit(tmp_path: Path) -> None:
    path = tmp_path / "agent.npz"
    env = gym.make_vec("unichain_gym:Unichain-h6-v0", num_envs=5)
    agent = SeminormLSTDAgent(OneHot()).collect(env, POLICY, n_trials=5, t_max=3, seed=0)
    with pytest.warns(FitWarning):
        agent.fit()
    agent.save(path)
    loaded = SeminormLSTDAgent.load(path)
    assert loaded.diagnostics().warnings == agent.diagnostics().warnings


def resealed(path: Path, change: Callable[[Any, Arrays], None]) -> None:
    """Craft a file, its digest included."""
    with np.load(path) as file:
        arrays = dict(file)
    facts = json.loads(str(arrays.pop("facts")))
    held = dict(facts["saved"]["SavedAgent"])
    change(held, arrays)
    facts["saved"] = {"SavedAgent": [list(pair) for pair in held.items()]}
    facts["digest"] = _digest(facts["saved"], arrays)
    np.savez(path, facts=np.array(json.dumps(facts)), **arrays)


def changed(name: str, change: Callable[[Any], Any]) -> Callable[[Any, Arrays], None]:
    def apply(held: Any, arrays: Arrays) -> None:
        arrays[f"saved.{name}"] = change(arrays[f"saved.{name}"])

    return apply


def option(name: str, value: Any) -> Callable[[Any, Arrays], None]:
    def apply(held: Any, arrays: Arrays) -> None:
        held["options"] = {"dict": [[k, value if k == name else v] for k, v in options_of(held)]}

    return apply


def options_of(held: Any) -> Any:
    return held["options"]["dict"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (changed("trials.0.0.transition_counts.indices", lambda a: a + 10**6), "indices must be"),
        (changed("trials.0.0.transition_counts.indptr", lambda a: a[::-1].copy()), "damaged"),
        (changed("trials.0.0.transition_counts.data", lambda a: a + 1), "sum to"),
        (changed("trials.0.0.reward_sums.data", lambda a: a * np.nan), "reward_sums must be fin"),
        (option("anchors", {"list": [9, 0]}), "anchors"),
        (option("n_batches", 10**12), "n_batches is at most"),
        (option("gain", float("nan")), "gain"),
        (lambda held, arrays: arrays.pop("saved.trials.0.0.reward_sums.data"), "damaged"),
    ],
)
def test_a_crafted_file_is_checked_like_arguments_of_users(
    change: Callable[[Any, Arrays], None], message: str, saved: bytes, tmp_path: Path
) -> None:
    """An index out of range would be a segmentation fault in `fit`."""
    path = tmp_path / "agent.npz"
    path.write_bytes(saved)
    resealed(path, change)
    with pytest.raises(InvalidInputError, match=message):
        SeminormLSTDAgent.load(path)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file that is crafted without a change, and loaded all the same."""
    path = tmp_path_factory.mktemp("saved") / "agent.npz"
    discrete().save(path)
    resealed(path, lambda held, arrays: None)
    SeminormLSTDAgent.load(path)
    return path.read_bytes()


def through_joblib(value: Any) -> Any:
    file = io.BytesIO()
    joblib.dump(value, file)
    file.seek(0)
    return joblib.load(file)


def through_pickle(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


COPIES: Any = (through_pickle, through_joblib, copy.deepcopy)


def no_torque(observations: Any) -> Any:
    return np.zeros((len(observations), 1))


@pytest.mark.filterwarnings("ignore::lstd_agent.errors.FitWarning")  # few trials, coarse tiles
@pytest.mark.parametrize(
    "features",
    [
        OneHot(),
        Standardized(Polynomial(2)),
        TileCoding([-1, -1, -8], [1, 1, 8], n_tiles=1, n_tilings=2),
    ],
    ids=lambda features: type(features).__name__,
)
def test_a_copy_of_a_fitted_agent_gives_the_same_answers(features: Any) -> None:
    at: Any = STATES
    copies = COPIES
    if isinstance(features, OneHot):
        agent = discrete(features=features)
    else:
        at = np.array([[1.0, 0.0, 0.5], [0.0, 1.0, -2.0]])
        env = gym.make_vec("Pendulum-v1", num_envs=5)
        agent = SeminormLSTDAgent(features, n_batches=4)
        agent.collect(env, no_torque, n_trials=40, t_max=20, seed=0).fit()
        copies = COPIES[:1]
    difference = agent.compare(at[:1], at[1:])
    errors = agent.standard_errors(at)
    for copied in copies:
        other = copied(agent)  # of which much is cached
        assert_array_equal(other.predict(at), agent.predict(at))
        assert_array_equal(other.standard_errors(at), errors)
        assert_array_equal(other.determined(at), agent.determined(at))
        assert other.compare(at[:1], at[1:]) == difference
        assert copied(difference) == difference
        assert str(copied(agent.diagnostics())) == str(agent.diagnostics())
        assert_array_equal(copied(agent.system_).weights, agent.system_.weights)


def test_options_that_do_not_fit_are_not_saved(tmp_path: Path) -> None:
    """A file with them could not be loaded."""
    agent = discrete()
    agent.n_anchors = 0
    with pytest.raises(InvalidInputError, match="n_anchors must be at least 1; got 0"):
        agent.save(tmp_path / "agent.npz")
    assert not [*tmp_path.iterdir()]


def test_a_copy_of_a_policy_iteration_continues_like_the_original() -> None:
    search = PolicyIteration("unichain_gym:Unichain-c10-v0", t_max=30, n_trials=60, seed=0).run(1)
    others = [copied(search).run(3) for copied in COPIES]
    search.run(3)
    for other in others:
        assert other.iterations == search.iterations
        assert_array_equal(other.policy_, search.policy_)


@pytest.mark.filterwarnings("ignore::lstd_agent.errors.FitWarning")  # of random walks
def test_trials_that_were_added_in_several_logs_are_read_as_they_were(tmp_path: Any) -> None:
    rng, agent = np.random.default_rng(0), SeminormLSTDAgent(OneHot(), n_stored_trials=60)
    for _ in range(3):
        states, rewards = rng.integers(0, 6, (50, 10)), rng.normal(size=(50, 9))
        agent.add_trials(list(states), list(rewards), observation_space=gym.spaces.Discrete(6))
    agent.fit().save(tmp_path / "agent.npz")
    loaded = SeminormLSTDAgent.load(tmp_path / "agent.npz")
    assert_array_equal(loaded.predict(np.arange(6)), agent.predict(np.arange(6)))
    assert str(loaded.diagnostics()) == str(agent.diagnostics())
