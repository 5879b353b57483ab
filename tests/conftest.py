"""Reference figures and the settings shared by all tests."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# How long an example takes depends on who else uses the machine. The examples are the same in every
# run; `pytest --hypothesis-profile fresh` tries new ones.
settings.register_profile("fresh", deadline=None, max_examples=25)
settings.register_profile("suite", settings.get_profile("fresh"), derandomize=True)
settings.load_profile("suite")

if "PYTEST_XDIST_WORKER" in os.environ:  # the workers share the cores
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")

_HERE = Path(__file__).resolve().parent
_SHARED = _HERE.parent.parent / "shared" / "reference"
REFERENCE = _SHARED if _SHARED.is_dir() else _HERE / "reference"


@pytest.fixture(scope="session")
def reference() -> Any:
    """Load a reference file by name: the shared copy if there is one, else the project's."""
    return lambda name: json.loads((REFERENCE / f"{name}.json").read_text())


@pytest.hookimpl(tryfirst=True)  # before cases are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """Mark the cases of a test as slow that come after its first(n) ones."""
    n_cases: Counter[tuple[Path, str]] = Counter()
    for item in items:
        if mark := item.get_closest_marker("first"):
            n_cases[item.path, item.originalname] += 1
            if n_cases[item.path, item.originalname] > mark.args[0]:
                item.add_marker("slow")
