"""The docstrings of the two central classes list what they have, and their examples run."""

from __future__ import annotations

import doctest
import inspect
import re

import pytest

from unichain_gym import MarkovChain, TabularMDP, chain, mdp


@pytest.mark.parametrize("kind", [MarkovChain, TabularMDP])
def test_every_public_member_is_listed_once(kind: type) -> None:
    text = inspect.getdoc(kind) or ""
    after = text.split("Attributes\n----------\n")[1].split("Examples\n--------\n")[0]
    headings = [line.split(" : ")[0] for line in after.splitlines() if line[:1].isalpha()]
    listed = re.findall(r"\w+", re.sub(r"\(.*?\)", "", " ".join(headings)))
    listed.remove("Methods")
    parameters = set(inspect.signature(kind).parameters)
    members = {name for name in vars(kind) if not name.startswith("_")} | parameters
    members.remove("drop_below")  # which is used, and not kept
    assert sorted(listed) == sorted(members)


@pytest.mark.parametrize("module", [chain, mdp])
def test_examples_run_as_shown(module: object) -> None:
    result = doctest.testmod(module)  # type: ignore[arg-type]
    assert result.attempted > 0
    assert result.failed == 0
