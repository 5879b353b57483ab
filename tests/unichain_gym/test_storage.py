"""Saved MDPs: unchanged when loaded, written whole or not at all, refused when damaged."""

from __future__ import annotations

import json
import os
import pickle
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unichain_gym import TabularMDP, make_mdp
from unichain_gym.errors import InvalidModelError
from unichain_gym.storage import replacing


def test_saved_mdp_is_loaded_unchanged(tmp_path: Path):
    mdp = make_mdp("c35c")
    path = tmp_path / "model"
    mdp.save(path)
    loaded = TabularMDP.load(path)
    assert loaded.name == "c35c"
    assert loaded.state_names is None
    for field in ("next_state", "probability", "reward", "initial_distribution"):
        np.testing.assert_array_equal(getattr(loaded, field), getattr(mdp, field))


@pytest.mark.parametrize("name", ["plain", '"quoted"', "null", "with\0zeros\0", "δ", ""])
def test_any_name_survives(tmp_path: Path, name: str):
    one = np.ones((1, 1, 1))
    mdp = TabularMDP(np.zeros((1, 1, 1), int), one, one, np.ones(1), name, (name,))
    mdp.save(tmp_path / "mdp.npz")
    loaded = TabularMDP.load(tmp_path / "mdp.npz")
    assert (loaded.name, loaded.state_names) == (name, (name,))


def test_an_archive_without_names_of_states_is_read(tmp_path: Path):
    """As releases without them wrote it, with the name as plain text."""
    one = np.ones((1, 1, 1))
    np.savez(
        tmp_path / "mdp.npz",
        next_state=one - 1,
        probability=one,
        reward=one,
        initial_distribution=[1.0],
        name=np.array("h1"),
    )
    assert TabularMDP.load(tmp_path / "mdp.npz").name == "h1"


def test_files_without_an_mdp_are_refused(tmp_path: Path):
    path = tmp_path / "other"
    with path.open("wb") as file:
        np.savez(file, next_state=np.zeros((1, 1, 1)))
    with pytest.raises(InvalidModelError, match="holds no saved MDP: it lacks probability, reward"):
        TabularMDP.load(path)
    for content in (b"", b"not an archive", pickle.dumps(1), json.dumps({"version": 1}).encode()):
        path.write_bytes(content)
        with pytest.raises(InvalidModelError, match=r"no saved MDP: it is no \.npz file"):
            TabularMDP.load(path)
    with pytest.raises(FileNotFoundError):
        TabularMDP.load(tmp_path / "nothing")


def test_pickled_arrays_are_refused_and_not_executed(tmp_path: Path):
    names = ("probability", "reward", "initial_distribution", "name")
    fields: dict[str, Any] = dict.fromkeys(names, 1)
    np.savez(tmp_path / "mdp.npz", next_state=np.array([None]), **fields)
    with pytest.raises(InvalidModelError, match=r"or it is damaged: .*allow_pickle=False"):
        TabularMDP.load(tmp_path / "mdp.npz")


def test_a_file_damaged_anywhere_is_refused_or_read_as_it_was(tmp_path: Path):
    mdp = make_mdp("c10")
    path = tmp_path / "mdp.npz"
    mdp.save(path)
    content = path.read_bytes()
    for end in range(0, len(content), 97):
        path.write_bytes(content[:end])
        with pytest.raises(InvalidModelError):
            TabularMDP.load(path)
    rng = np.random.default_rng(0)
    for place in rng.integers(len(content), size=300).tolist():
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(damaged))
        try:
            loaded = TabularMDP.load(path)
        except InvalidModelError:
            continue
        np.testing.assert_array_equal(loaded.probability, mdp.probability)
        np.testing.assert_array_equal(loaded.reward, mdp.reward)


def test_a_failed_save_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "mdp.npz"
    make_mdp("h3").save(path)

    def interrupted(file, **arrays):
        file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez_compressed", interrupted)
    with pytest.raises(KeyboardInterrupt):
        make_mdp("h6").save(path)
    assert TabularMDP.load(path).name == "h3"
    assert os.listdir(tmp_path) == ["mdp.npz"]


@pytest.mark.skipif(sys.platform == "win32", reason="whether a process runs is not told there")
def test_the_draft_of_a_killed_process_is_removed_at_the_next_save(tmp_path: Path):
    """And nothing else is: not what a running process writes, nor what is of another file."""
    path, other = tmp_path / "mdp.npz", tmp_path / "other.npz"
    code = """
import os, sys
from pathlib import Path
from unichain_gym.storage import replacing
for target in sys.argv[1:]:
    process = os.fork()
    if not process:
        with replacing(Path(target)) as file:
            file.write(b"half")
            file.flush()
            os.kill(os.getpid(), 9)
    os.waitpid(process, 0)
"""
    subprocess.run([sys.executable, "-c", code, path, path, other], check=True)
    left_of_other = max(tmp_path.iterdir(), key=lambda draft: draft.stat().st_mtime_ns)
    assert len(list(tmp_path.iterdir())) == 2  # the second to write `path` removed the first's
    with replacing(path) as running:
        make_mdp("h3").save(path)
        assert len(set(tmp_path.iterdir()) - {path, left_of_other}) == 1
        running.write(b"whole")
    assert set(tmp_path.iterdir()) == {path, left_of_other}
    assert path.read_bytes() == b"whole"


def test_permissions_are_the_default_ones_and_kept(tmp_path: Path):
    previous = os.umask(0o027)
    try:
        make_mdp("h3").save(tmp_path / "mdp.npz")
    finally:
        os.umask(previous)
    assert stat.S_IMODE((tmp_path / "mdp.npz").stat().st_mode) == 0o640
    (tmp_path / "mdp.npz").chmod(0o604)
    make_mdp("h6").save(tmp_path / "mdp.npz")
    assert stat.S_IMODE((tmp_path / "mdp.npz").stat().st_mode) == 0o604


def test_a_symbolic_link_keeps_pointing_to_the_file(tmp_path: Path):
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "mdp.npz"
    link.symlink_to(Path("elsewhere") / "model.npz")
    make_mdp("h3").save(link)
    assert link.is_symlink()
    assert TabularMDP.load(tmp_path / "elsewhere" / "model.npz").name == "h3"
