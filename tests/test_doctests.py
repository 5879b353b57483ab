"""The examples in the docstrings of both packages do what they show."""

from __future__ import annotations

import doctest
import importlib.util
import pkgutil
from pathlib import Path

import pytest

import lstd_agent
import unichain_gym

PACKAGES = (unichain_gym, lstd_agent)
MODULES = [package.__name__ for package in PACKAGES] + [
    info.name
    for package in PACKAGES
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
]


def has_examples(name: str) -> bool:
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    return ">>> " in Path(spec.origin).read_text(encoding="utf-8")


def test_the_environments_have_examples() -> None:
    for name in ("env", "vector_env", "suite"):
        assert has_examples(f"unichain_gym.{name}")


@pytest.mark.parametrize("name", [name for name in MODULES if has_examples(name)])
def test_every_example_shows_its_result(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(name))
    assert any(example.examples for example in examples)
    monkeypatch.chdir(tmp_path)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    shown: list[str] = []
    for example in examples:
        runner.run(example, out=shown.append)
    assert not runner.summarize(verbose=False).failed, "".join(shown)
