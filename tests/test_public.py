"""Docstrings of public classes list their attributes and have an example."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
import re
from functools import cached_property
from types import ModuleType
from typing import Any

import pytest

import lstd_agent
import unichain_gym

PACKAGES = (unichain_gym, lstd_agent)

CLASSES = {
    f"{package.__name__}.{name}": kind
    for package in PACKAGES
    for name in package.__all__
    if inspect.isclass(kind := getattr(package, name)) and not issubclass(kind, Exception)
}

# Their members are those of the class they are derived from, and their docstrings are laid out as
# Gymnasium's are.
SUITE = (unichain_gym.UnichainEnv, unichain_gym.UnichainVectorEnv)

# Attributes that are set when an object is made, which the class alone does not show.
SET_WHEN_MADE = {
    unichain_gym.TabularEnv: ["action_space", "observation_space"],
    unichain_gym.TabularVectorEnv: [
        *("action_space", "observation_space", "single_action_space", "single_observation_space"),
    ],
    lstd_agent.SeminormLSTDAgent: ["actions", "encoding"],
    lstd_agent.PolicyIteration: ["converged", "iterations"],
    lstd_agent.Diagnostics: re.findall(
        r"self\.([a-z]\w*)(?=[^()\n]* = )", inspect.getsource(lstd_agent.Diagnostics.__init__)
    ),
}

# Gymnasium's own, given a value.
INHERITED = {"metadata"}

# What is asked of all kinds of statistics; how it is answered is no part of what is offered.
INTERFACES = {"SampledStatistics"}


def members(kind: type) -> set[str]:
    """Public names of a class and of its parents in the package."""
    package = kind.__module__.split(".")[0]
    found = {
        name
        for each in kind.__mro__
        if each.__module__.split(".")[0] == package
        for name in vars(each)
        if not name.startswith("_")
    }
    if dataclasses.is_dataclass(kind):
        found |= {field.name for field in dataclasses.fields(kind)}
    return found - INHERITED


def listed(kind: type) -> list[str]:
    """Names that the sections of a docstring list."""
    sections = re.split(r"\n(?=\w[\w ]*\n-+\n)", inspect.getdoc(kind) or "")
    found = []
    for section in sections:
        title, *lines = section.splitlines()
        if title in ("Parameters", "Attributes", "Methods"):
            headings = [line.split(" : ")[0] for line in lines if re.match(r"\w|\*", line)]
            found += re.findall(r"\w+", re.sub(r"\(.*?\)", "", " ".join(headings)))
    return [name for name in found if name not in INHERITED]


def says_itself(kind: type, name: str) -> bool:
    """Whether a method or a property has a docstring of its own."""
    found = inspect.getattr_static(kind, name, None)
    is_code = isinstance(found, property | staticmethod | classmethod | cached_property)
    return bool((is_code or inspect.isfunction(found)) and getattr(kind, name).__doc__)


@pytest.mark.parametrize("kind", [k for k in CLASSES.values() if k not in SUITE])
def test_the_docstring_of_a_class_lists_attributes_without_docstrings(kind: Any) -> None:
    known = members(kind) | set(inspect.signature(kind).parameters)
    known |= set(SET_WHEN_MADE.get(kind, []))
    needed = {name for name in known if not says_itself(kind, name)}
    assert needed <= set(listed(kind)) <= known


@pytest.mark.parametrize("kind", CLASSES.values())
def test_the_docstring_of_a_class_has_an_example(kind: type) -> None:
    assert ">>> " in (kind.__doc__ or "")


def test_environments_of_the_suite_have_the_members_of_any_other() -> None:
    for kind in SUITE:
        assert {name for name in vars(kind) if not name.startswith("_")} == set()


# Modules that compare methods, and one that needs an extra.
ELSEWHERE = ("results", "problems", "scoring", "commands", "sb3")


def classes_of(package: ModuleType) -> set[str]:
    """Names of all public classes that a package defines."""
    found = set()
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if info.name.split(".")[1] not in ELSEWHERE:
            contents = vars(importlib.import_module(info.name))
            found |= {
                name
                for name, kind in contents.items()
                if inspect.isclass(kind) and kind.__module__ == info.name and name[0] != "_"
            }
    return found


def functions_of(kind: type) -> list[Any]:
    """The public functions of a class, those of its properties included."""
    found = [value for name, value in vars(kind).items() if not name.startswith("_")]
    return [
        getattr(value, "fget", None)
        or getattr(value, "func", None)
        or getattr(value, "__func__", value)
        for value in found
    ]


@pytest.mark.parametrize("package", PACKAGES)
def test_results_of_the_central_classes_can_be_imported_from_the_package(
    package: ModuleType,
) -> None:
    central = {
        unichain_gym: (unichain_gym.MarkovChain, unichain_gym.TabularMDP),
        lstd_agent: (lstd_agent.SeminormLSTDAgent,),
    }[package]
    known = classes_of(package)
    returned = set()
    for function in (each for kind in central for each in functions_of(kind) if callable(each)):
        text = str(inspect.signature(function).return_annotation)
        returned |= {word for word in re.findall(r"\w+", text) if word in known}
    assert len(returned) >= 5
    assert returned - set(package.__all__) == {n for n in INTERFACES if n in returned}
