"""Descriptions of cores and environments agree with their models."""

from __future__ import annotations

import inspect
import re

import gymnasium as gym
import pytest

from unichain_gym import TabularMDP
from unichain_gym.cores import CORES, MachineAction
from unichain_gym.cores.core import Core
from unichain_gym.descriptions import describe_core, describe_suite, outcome_table

HEADINGS = [
    "Description",
    "Action Space",
    "Observation Space",
    "Starting State",
    "Rewards",
    "Episode End",
    "Information",
    "Arguments",
    "References",
    "Version History",
]


@pytest.fixture(params=list(CORES.values()), ids=list(CORES))
def core(request) -> Core:
    return request.param


def read_table(text):
    """The MDP's transitions as a table of outcomes in Markdown says."""
    for s, a, outcomes, shared in re.findall(
        r"^\| (\d+) \| (\d+) \| (.*) \| (.*?) ?\|$", text, re.M
    ):
        for n, p, r in re.findall(r"(\d+): ([\d.]+)(?: \((.*?)\))?", outcomes):
            yield int(s), int(a), int(n), float(p), float(r or shared)


@pytest.mark.parametrize("letter", list("hcxrm"))
def test_the_table_of_a_core_is_complete(letter):
    core = CORES[letter]()
    listed = list(read_table(outcome_table(core)))
    said = TabularMDP.from_transitions(listed, core.initial_distribution)
    for ours, theirs in zip(said.to_arrays(), core.to_arrays(), strict=True):
        assert abs(ours - theirs).max() < 1e-12
    assert outcome_table(core) in describe_core(CORES[letter])
    assert outcome_table(core) in describe_suite(CORES.values())


def test_a_page_has_gymnasiums_headings_in_order_and_something_under_each(core):
    for page in (describe_core(core), describe_suite(CORES.values())):
        parts = re.split(r"^## (.*)$", page, flags=re.M)
        assert parts[1::2] == HEADINGS
        assert all(part.strip() for part in parts[2::2])


def test_actions_are_named_in_words_or_by_number():
    assert [CORES["m"].action_name(a) for a in MachineAction] == ["keep", "overhaul", "replace"]
    assert CORES["g"].action_name(1) == "1"


def test_every_option_of_a_core_has_its_default_and_a_meaning(core):
    parameters = inspect.signature(core.build).parameters
    assert {name: a.default for name, a in core.arguments.items()} == {
        name: p.default for name, p in parameters.items()
    }
    for name, argument in core.arguments.items():
        assert argument.meaning.endswith(".")
        assert name in describe_core(core)


def test_the_ids_of_the_cores_are_registered(core):
    assert all(env_id in gym.registry for env_id in core.ids)
    assert all(mnemonic.startswith(core.letter) for mnemonic in core.mnemonics)


def test_the_example_of_a_page_makes_the_environment(core):
    (code,) = re.findall(r"```python\n(.*?)\n```", describe_core(core), re.S)
    env = eval(code, {"gymnasium": gym})
    assert env.unwrapped.mdp.name == core.mnemonics[-1]
