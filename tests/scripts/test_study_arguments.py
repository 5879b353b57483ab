"""The study's scripts refuse impossible arguments before they begin."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("compare_references.py", "--trials", "1"), "--trials: must be at least 2, got 1"),
        (("exact_tables.py", "--seeds", "0"), "--seeds: must be at least 1, got 0"),
        (("sampling_curves.py", "--workers", "-1"), "--workers: must be at least 1, got -1"),
    ],
)
def test_impossible_numbers_are_refused(argv: tuple[str, ...], message: str) -> None:
    command = [sys.executable, str(SCRIPTS / argv[0]), *argv[1:]]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert message in result.stderr
