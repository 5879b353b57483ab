"""Files that are damaged or changed: the same answers, or an error of ours, and nothing else."""

from __future__ import annotations

import io
import json
import os
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from numpy.typing import NDArray

from lstd_agent import (
    GaussianFeatures,
    OneHot,
    PolicyIteration,
    Polynomial,
    SeminormLSTDAgent,
    Standardized,
)
from lstd_agent.errors import InvalidInputError

# Of each kind; and three times as many changed ones. 500 where there is time.
N_DAMAGED = int(os.environ.get("N_DAMAGED", "20"))

Arrays = dict[str, NDArray[Any]]


class Walk(gym.Env[NDArray[np.float64], int]):
    """A noisy walk of one number, which the action pushes left or right."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space: Any = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._x = self.np_random.normal(size=1)
        return self._x, {}

    def step(self, action: int) -> Any:
        self._x = 0.7 * self._x + 0.3 * (2 * action - 1) + 0.1 * self.np_random.normal(size=1)
        return self._x, -float(abs(self._x[0])), False, False, {}


def push(observation: Any) -> int:
    return int(observation[0] < 0.0)


def of_counts(**options: Any) -> SeminormLSTDAgent:
    options = {"features": OneHot(), "n_batches": 5, "n_stored_trials": 20, **options}
    env, policy = gym.make_vec("unichain_gym:Unichain-h6-v0", num_envs=10), [0, 1, 0, 1, 0, 1]
    agent = SeminormLSTDAgent(**options).collect(
        env, policy, n_trials=60, t_max=8, seed=0, explore=1
    )
    return agent.fit()


def of_vectors(**options: Any) -> SeminormLSTDAgent:
    options = {"features": Standardized(Polynomial(2)), "n_batches": 5, **options}
    agent = SeminormLSTDAgent(**options)
    return agent.collect(Walk(), push, n_trials=20, t_max=10, seed=0, batched=False).fit()


def answers_of_agent(agent: SeminormLSTDAgent) -> Any:
    at: Any = np.array([[0.0], [1.0]]) if agent.batches.are_kept else np.arange(6)
    return [
        agent.predict(at).tolist(),
        agent.predict(at, 0).tolist(),
        agent.standard_errors(at).tolist(),
        agent.coverage(at).tolist(),
        [agent.gain_, agent.start_bias_],
    ]


def answers_of_search(search: PolicyIteration) -> Any:
    policy: Any = search.policy_
    at = np.array([[-1.0], [0.5]]) if callable(policy) else np.arange(6)
    acts = policy(at) if callable(policy) else policy
    return [acts.tolist(), search.action_values(at).tolist(), search.iterations, search.converged]


def counted_search() -> PolicyIteration:
    return PolicyIteration("unichain_gym:Unichain-h6-v0", t_max=20, n_trials=60, seed=0).run(3)


def vector_search() -> PolicyIteration:
    return PolicyIteration(Walk(), t_max=10, n_trials=20, features=Polynomial(2), seed=0).run(2)


def load_counted_search(path: Path) -> PolicyIteration:
    return PolicyIteration.load(path, "unichain_gym:Unichain-h6-v0")


def load_vector_search(path: Path) -> PolicyIteration:
    return PolicyIteration.load(path, Walk(), features=Polynomial(2))


def of_reference_states() -> SeminormLSTDAgent:
    return of_counts(features=GaussianFeatures(3), calibration="references", anchors=[0, 3])


# Of each kind of file what makes, loads and asks its object.
KINDS: dict[str, tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]] = {
    "counts": (of_counts, SeminormLSTDAgent.load, answers_of_agent),
    "reference states": (of_reference_states, SeminormLSTDAgent.load, answers_of_agent),
    "vectors": (of_vectors, SeminormLSTDAgent.load, answers_of_agent),
    "counted search": (counted_search, load_counted_search, answers_of_search),
    "search of vectors": (vector_search, load_vector_search, answers_of_search),
}


@cache
def saved(kind: str) -> tuple[bytes, str]:
    """Return a file of a kind, and its answers."""
    make, _, ask = KINDS[kind]
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few trials
        path = Path(folder) / "saved.npz"
        found = make()
        found.save(path)
        return path.read_bytes(), repr(ask(found))


def answers(kind: str, path: Path, data: bytes) -> str | None:
    """Return the answers of a file, None where it is refused."""
    _, load, ask = KINDS[kind]
    path.write_bytes(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = load(path)
        except InvalidInputError:
            return None
        return repr(ask(found))


def damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """Return a file in which a few bytes are others, missing, or too many."""
    some, at = bytearray(data), int(rng.integers(len(data)))
    size = int(rng.integers(1, 50))
    match rng.integers(5):
        case 0:
            some[at] ^= 1 << int(rng.integers(8))
        case 1:
            some[at : at + size] = rng.bytes(size)
        case 2:
            del some[at : at + size]
        case 3:
            some[at:at] = rng.bytes(size)
        case _:
            del some[at:]
    return bytes(some)


CHANGES: list[Callable[[NDArray[Any]], NDArray[Any]]] = [
    lambda a: a[:-1],
    lambda a: np.concatenate((a, a)),
    lambda a: a[None],
    lambda a: a.astype(complex),
    lambda a: a.astype(str),
    lambda a: a.astype(object),
]


def changed(data: bytes, rng: np.random.Generator) -> bytes:
    """Return a file with one part changed on purpose, and the digest as it was."""
    with np.load(io.BytesIO(data)) as file:
        arrays: Arrays = dict(file)
    facts = json.loads(str(arrays.pop("facts")))
    name = sorted(arrays)[rng.integers(len(arrays))]
    if rng.integers(2):
        change = CHANGES[rng.integers(len(CHANGES))]
        arrays[name] = np.asarray(change(np.atleast_1d(arrays[name])))
    else:
        holders = list(places(facts["saved"]))
        holder, key = holders[rng.integers(len(holders))]
        holder[key] = {"array": "no"}
    file = io.BytesIO()
    np.savez_compressed(file, facts=np.array(json.dumps(facts)), **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def places(facts: Any) -> Any:
    """Yield each place of a JSON text: what holds it, and by which key."""
    for key in range(len(facts)) if isinstance(facts, list) else list(facts):
        yield facts, key
        if isinstance(facts[key], list | dict):
            yield from places(facts[key])


def check(kind: str, path: Path, n_changed: int, n_damaged: int, seed: int) -> None:
    data, right = saved(kind)
    rng = np.random.default_rng(seed)
    assert answers(kind, path, data) == right
    found = [answers(kind, path, damaged(data, rng)) for _ in range(n_damaged)]
    assert {None} <= {*found} <= {None, right}
    assert {answers(kind, path, changed(data, rng)) for _ in range(n_changed)} == {None}


@pytest.mark.parametrize("kind", KINDS)
def test_some_damaged_and_changed_files_are_refused_or_the_same(kind: str, tmp_path: Path) -> None:
    check(kind, tmp_path / "file.npz", 9, 3, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many_damaged_and_changed_files_are_refused_or_the_same(kind: str, tmp_path: Path) -> None:
    check(kind, tmp_path / "file.npz", 3 * N_DAMAGED, N_DAMAGED, seed=1)


def test_a_file_that_claims_to_be_huge_is_not_read(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("lstd_agent.packing._ALWAYS_ALLOWED", 2**22)
    path = tmp_path / "file.npz"
    data, _ = saved("counts")
    header = io.BytesIO()
    shape = {"descr": "<f8", "fortran_order": False, "shape": (10**6, 10**6)}
    np.lib.format.write_array_header_1_0(header, shape)
    for size, chunk in ((1, header.getvalue()), (16, b"\0" * 2**20)):
        path.write_bytes(data)
        with (
            zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as file,
            file.open("more.npy", "w") as member,
        ):
            for _ in range(size):
                member.write(chunk)
        with pytest.raises(InvalidInputError, match="is not a saved agent"):
            SeminormLSTDAgent.load(path)


def test_trials_that_are_all_alike_are_saved_however_small_they_are_packed(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr("lstd_agent.packing._ALWAYS_ALLOWED", 2**22)
    path = tmp_path / "file.npz"
    agent = SeminormLSTDAgent(Polynomial(0))
    trials = np.zeros((1000, 402, 1)), np.zeros((1000, 401))
    agent.add_trials(*trials, observation_space=Walk.observation_space)
    agent.save(path)
    assert SeminormLSTDAgent.load(path).n_trials == 1000
