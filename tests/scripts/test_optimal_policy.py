"""The command that finds an optimal policy: its figures, its picture, its errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from numpy.testing import assert_allclose

from lstd_agent.commands import optimal
from lstd_agent.environments import find_id
from unichain_gym import make_mdp


def test_json_holds_policy_and_values(capsys: pytest.CaptureFixture[str]) -> None:
    assert optimal.main(["Unichain-h9b-v0", "--criterion", "bias", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    best = make_mdp("h9b").optimal_policy("bias")
    assert shown["policy"] == best.policy.tolist() == [1] * 9
    assert shown["optimal_actions"] == [[1]] * 9
    assert_allclose(shown["bias"], best.bias)
    assert shown["value"] is None


def test_a_continuing_toy_text_task_is_solved_and_drawn(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    picture = tmp_path / "cliff.png"
    assert optimal.main(["CliffWalking-v1", "--restart", "--plot", str(picture)]) == 0
    assert "gain-optimal" in capsys.readouterr().out
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "is_told"),
    [
        (["FrozenLake-v1"], True),
        (["FrozenLake-v1", "--restart"], False),
        (["FrozenLake-v1", "--criterion", "blackwell"], False),
        (["h6"], False),
    ],
)
def test_a_gain_that_is_0_since_episodes_end_comes_with_a_hint(
    arguments: list[str], is_told: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert optimal.main(arguments) == 0
    assert ("see --restart" in capsys.readouterr().out) == is_told


def test_worst_is_the_worst(capsys: pytest.CaptureFixture[str]) -> None:
    assert optimal.main(["Unichain-h3-v0", "--worst", "--json"]) == 0
    assert_allclose(json.loads(capsys.readouterr().out)["gain"], 8.620689655172415)


BAD_ARGUMENTS = [
    (("FrozenPond-v1",), "Environment `FrozenPond` doesn't exist."),
    (("nowhere/Pond-v1",), "`unichain list` shows the suite's ids"),
    (("CartPole-v1",), "CartPole-v1 has no exact model"),
    (("Unichain-h6-v0", "--criterion", "discounted"), "needs discount="),
    (("Unichain-h6-v0", "--criterion", "best"), "invalid choice: 'best'"),
    (("Unichain-h6-v0", "--plot", "no/such/x.png"), "there is no such directory"),
    (("Unichain-h6-v0", "--plot", "x.foo"), "cannot draw x.foo: name a .png, .pdf or .svg file"),
]


@pytest.mark.parametrize(("argv", "message"), BAD_ARGUMENTS)
def test_bad_arguments_end_in_one_clear_error(
    error_of: Any, argv: tuple[str, ...], message: str
) -> None:
    assert message in error_of(optimal.main, *argv)


def test_a_name_without_a_version_is_the_latest_one() -> None:
    names = {"h6": "Unichain-h6-v0", "Unichain-h6": "Unichain-h6-v0", "CartPole": "CartPole-v1"}
    assert {name: find_id(name) for name in names} == names
