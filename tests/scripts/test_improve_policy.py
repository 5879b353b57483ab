"""The command that improves a policy: its table, its files, its errors."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lstd_agent import PolicyIteration
from lstd_agent.actions.policy_iteration import PolicyIteration as Search
from lstd_agent.commands import improve
from unichain_gym import make_mdp

QUICK = ("--trials", "200", "--quiet")


def test_iterations_are_shown_beside_the_optimum(capsys: pytest.CaptureFixture[str]) -> None:
    assert improve.main(["Unichain-h9b-v0", *QUICK]) == 0
    out = capsys.readouterr().out
    best = make_mdp("h9b").optimal_policy("bias")
    start = make_mdp("h9b").initial_distribution @ best.bias
    assert out.startswith("iteration    timesteps         gain   start value  changes\n        0 ")
    assert "nothing changes after" in out
    assert f"gain {best.gain[0]:.8g} of {best.gain[0]:.8g}, start value {start:.6g} of" in out
    assert "bias-optimal actions in 9 of 9 states" in out


def test_json_picture_and_search_agree(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    picture, saved = tmp_path / "learning.png", tmp_path / "search.npz"
    argv = ["Unichain-c10-v0", *QUICK, "--json", "--plot", str(picture), "--save", str(saved)]
    assert improve.main(argv) == 0
    shown = json.loads(capsys.readouterr().out)
    assert picture.read_bytes().startswith(b"\x89PNG")
    search = PolicyIteration.load(saved, "Unichain-c10-v0")
    assert shown["policy"] == np.asarray(search.policy_).tolist()
    assert [each["gain"] for each in shown["iterations"]] == [i.gain for i in search.iterations]
    assert shown["converged"] is True
    chain = make_mdp("c10").induce(shown["policy"])
    assert shown["exact"]["exact_gain"] == pytest.approx(chain.gain)
    assert shown["provenance"]["seed"] == 0


def test_a_search_is_resumed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    saved = str(tmp_path / "search.npz")
    argv = ["Unichain-c10-v0", *QUICK, "--json", "--save", saved]
    shown = []
    for more in (["--iterations", "1"], ["--resume"], []):
        assert improve.main([*argv, *more]) == 0
        shown.append(json.loads(capsys.readouterr().out))
    assert len(shown[0]["iterations"]) == 1
    assert shown[1]["iterations"] == shown[2]["iterations"]
    assert improve.main([*argv, "--resume", "--trials", "300"]) == 2
    assert "go on with these" in capsys.readouterr().err


def test_vectors_need_features_and_no_model(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["CartPole-v1", "--trials", "16", "--t-max", "10", "--iterations", "2", "--quiet"]
    assert improve.main([*argv, "--restart", "--features", "polynomial:2", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["exact"] is None
    assert shown["policy"] is None
    assert shown["iterations"][0]["gain"] == pytest.approx(1.0, abs=0.2)


def test_an_interrupt_reports_the_finished_iterations(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Search.iterate

    def once(search: Any, **options: Any) -> Any:
        if search.iterations:
            raise KeyboardInterrupt
        return whole(search, **options)

    monkeypatch.setattr(Search, "iterate", once)
    assert improve.main(["Unichain-h9b-v0", *QUICK]) == 130
    captured = capsys.readouterr()
    assert "interrupted: 1 iterations finished" in captured.err
    assert "stopped after 1 iterations" in captured.out


def test_a_search_that_cannot_be_saved_is_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(search: Any, path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(Search, "save", fail)
    path = tmp_path / "search.npz"
    assert improve.main(["Unichain-h9b-v0", *QUICK, "--json", "--save", str(path)]) == 1
    captured = capsys.readouterr()
    told = f"error: [Errno 28] No space left on device: '{path}'; the search is not saved"
    assert set(captured.err.splitlines()) == {told}
    assert json.loads(captured.out)["policy"] == [1] * 9


BAD_ARGUMENTS = [
    (("FrozenPond-v1",), "Environment `FrozenPond` doesn't exist."),
    (("CartPole-v1",), "say with --t-max how long a trial is"),
    (("CartPole-v1", "--t-max", "20"), "give features= of them"),
    (("CartPole-v1", "--t-max", "20", "--features", "grid:5"), "needs a bounded Box"),
    (("CartPole-v1", "--t-max", "20", "--features", "bumps:5"), "--features is grid:N, fourier:N"),
    (("CartPole-v1", "--t-max", "20", "--features", "grid"), "--features NAME:N needs an integer"),
    (("FrozenLake-v1", "--t-max", "60"), "Here, --restart has it start again"),
    (("Unichain-h6-v0", "--explore", "0.5.5"), "needs a number; got '0.5.5'"),
    (("Unichain-h6-v0", "--explore", "1.5"), "explore is a number of actions"),
    (("Unichain-h6-v0", "--n-errors", "-1"), "n_errors must be a number of at least 0"),
    (("Unichain-h6-v0", "--resume"), "--resume needs the file of a search"),
    (("Unichain-h6-v0", "--plot", "x.foo"), "cannot draw x.foo: name a .png, .pdf or .svg file"),
    (("Unichain-h6-v0", "--save", "no/such/x.npz"), "there is no such directory"),
    (("Unichain-h6-v0", "--t-max", "99999999"), "allow more than"),
]


@pytest.mark.parametrize(("argv", "message"), BAD_ARGUMENTS)
def test_bad_arguments_end_in_one_clear_error(
    error_of: Any, argv: tuple[str, ...], message: str
) -> None:
    assert message in error_of(improve.main, *argv, "--trials", "50", "--quiet")
