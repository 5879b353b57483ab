"""Public docstrings describe parameters and results."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest

PACKAGES = ("unichain_gym", "lstd_agent", "lstd_agent.scoring", "lstd_agent.baselines")
MARKDOWN = ("UnichainEnv", "UnichainVectorEnv")  # under Gymnasium's headings, or refer to them


def public_functions() -> Iterator[tuple[str, Any]]:
    """Yield functions, and methods of classes, that the packages export."""
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in module.__all__:
            found = getattr(module, name)
            if inspect.isfunction(found):
                yield f"{package}.{name}", found
            members: dict[str, Any] = {}
            for base in reversed(getattr(found, "__mro__", ())):
                if base.__module__.split(".")[0] in PACKAGES:
                    members |= vars(base)
            for member, value in members.items():
                function = getattr(value, "__func__", value)
                if _is_of_another_library(found, member):
                    continue
                if inspect.isfunction(function) and not member.startswith("_"):
                    yield f"{package}.{name}.{member}", function


def _is_of_another_library(kind: type, member: str) -> bool:
    """Whether another library documents a method, such as Gymnasium's `step`."""
    return any(
        member in vars(base) and base.__module__.split(".")[0] not in PACKAGES
        for base in kind.__mro__[1:]
    )


def public_classes() -> Iterator[tuple[str, Any]]:
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in module.__all__:
            if inspect.isclass(getattr(module, name)) and name not in MARKDOWN:
                yield f"{package}.{name}", getattr(module, name)


def section(docstring: str, title: str) -> str:
    """Return the text of a section of a docstring; nothing if there is none."""
    parts = re.split(r"^(\w+)\n-+$", docstring, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True)).get(title, "")


def named_in(docstring: str) -> str:
    """Return the names in a docstring's text."""
    return " ".join(re.findall("``(.*?)``", docstring))


def names_of(function: Any, *, is_bound: bool) -> list[str]:
    """Return the parameters that a call gives: of a method, all but the first."""
    return list(inspect.signature(function).parameters)[is_bound:]


FUNCTIONS, CLASSES = dict(public_functions()), dict(public_classes())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_describes_its_parameters_and_result(name: str) -> None:
    function = FUNCTIONS[name]
    docstring = inspect.getdoc(function) or ""
    # Said once, where most users call it.
    if re.search(r"[Ss]ee `(SeminormLSTDAgent|TabularEnv|TabularMDP)\.\w+`", docstring):
        return
    # A few parameters may be named in the text itself; options may be those of the class.
    described = section(docstring, "Parameters") or named_in(docstring)
    own = names_of(function, is_bound=name.rpartition(".")[0] not in PACKAGES)
    own = [p for p in own if "options" not in own or section(docstring, "Parameters")]
    assert [p for p in own if not re.search(rf"\b{p}\b", described)] == []
    returned = str(inspect.signature(function).return_annotation)
    # A name alone, of a class or of a plain type, leaves nothing to say.
    plain = r"(None|Self|str|bool|int|float|dict\[.*\]|[A-Z]\w+)"
    if not re.fullmatch(rf"{plain}( \| {plain})*", returned) or "Array" in returned:
        # An array alone may have its shape in the first sentence.
        is_said = re.search(r"^Return .*shape \(", docstring.split("\n\n")[0], re.S)
        assert is_said or section(docstring, "Returns") or section(docstring, "Yields")
    # A class says once what its inherited methods raise.
    is_own = function.__qualname__ in name
    if is_own and re.search(r"^\s+raise [A-Z]", inspect.getsource(function), re.MULTILINE):
        assert section(docstring, "Raises")


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_describes_its_parameters(name: str) -> None:
    cls = CLASSES[name]
    if issubclass(cls, Exception | Warning):
        assert inspect.getdoc(cls)
        return
    docstring = inspect.getdoc(cls) or ""
    described = section(docstring, "Parameters") + section(docstring, "Attributes")
    described = described or named_in(docstring)
    own = names_of(cls.__init__, is_bound=True) if "__init__" in vars(cls) else []
    assert [p for p in own if not re.search(rf"\b{p.lstrip('_')}\b", described)] == []
