"""How commands refuse what they are given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def error_of(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command with bad arguments; return the one line of its error."""

    def run(main: Callable[[Any], Any], *argv: str) -> str:
        try:
            status = main(argv)
        except SystemExit as stop:  # by argparse, which shows its usage before
            status = stop.code
        captured = capsys.readouterr()
        assert status == 2
        assert len(captured.out.splitlines()) <= 1  # the head of a table, at most
        message = captured.err.splitlines()[-1].partition("error: ")[2]
        assert message
        return message

    return run
