"""Reference figures and the settings shared by all tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

_HERE = Path(__file__).resolve().parent
_SHARED = _HERE.parent.parent / "shared" / "reference"
REFERENCE = _SHARED if _SHARED.is_dir() else _HERE / "reference"


@pytest.fixture(scope="session")
def reference() -> Any:
    """Load a reference file by name: the shared copy if there is one, else the project's."""
    return lambda name: json.loads((REFERENCE / f"{name}.json").read_text())
