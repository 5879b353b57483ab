"""Files that are damaged or changed: the same answers, or an error of ours, and nothing else."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from numpy.typing import NDArray

from lstd_agent import OneHot, Polynomial, SeminormLSTDAgent
from lstd_agent.errors import InvalidInputError

# And half as many changed files. 500 where there is time.
N_DAMAGED = int(os.environ.get("N_DAMAGED", "40"))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of a fitted agent with all kinds of parts."""
    path = tmp_path_factory.mktemp("saved") / "agent.npz"
    env, policy = gym.make_vec("unichain_gym:Unichain-h6-v0", num_envs=10), [0, 1, 0, 1, 0, 1]
    agent = SeminormLSTDAgent(OneHot(), n_batches=5, n_stored_trials=20)
    agent.collect(env, policy, n_trials=60, t_max=8, seed=0, explore=1)._fit()
    agent.save(path)
    return path.read_bytes()


def answers(path: Path, data: bytes) -> Any:
    """Return the answers of a file, None where it is refused."""
    path.write_bytes(data)
    try:
        agent = SeminormLSTDAgent.load(path)
    except InvalidInputError:
        return None
    parts = agent.predict(np.arange(6)), agent.standard_errors(np.arange(6)), agent.gain_
    return repr([np.asarray(part).tolist() for part in parts])


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
        arrays: dict[str, NDArray[Any]] = dict(file)
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


def test_damaged_and_changed_files_are_refused_or_the_same(saved: bytes, tmp_path: Path) -> None:
    path, rng = tmp_path / "agent.npz", np.random.default_rng(0)
    right = answers(path, saved)
    found = {answers(path, damaged(saved, rng)) for _ in range(N_DAMAGED)}
    assert right is not None
    assert {None} <= found <= {None, right}
    assert {answers(path, changed(saved, rng)) for _ in range(N_DAMAGED // 2)} == {None}


def test_a_file_that_claims_to_be_huge_is_not_read(
    saved: bytes, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr("lstd_agent.packing._ALWAYS_ALLOWED", 2**22)
    path = tmp_path / "file.npz"
    header = io.BytesIO()
    shape = {"descr": "<f8", "fortran_order": False, "shape": (10**6, 10**6)}
    np.lib.format.write_array_header_1_0(header, shape)
    for size, chunk in ((1, header.getvalue()), (16, b"\0" * 2**20)):
        path.write_bytes(saved)
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
    agent.add_trials(*trials).save(path)
    assert SeminormLSTDAgent.load(path).n_trials == 1000
