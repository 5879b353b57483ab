"""Reference figures and the settings shared by all tests."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# How long an example takes depends on who else uses the machine.
settings.register_profile("suite", deadline=None, max_examples=50)
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
