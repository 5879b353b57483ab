"""Runs the code of a page, and compares its output with the page."""

from __future__ import annotations

import re
from contextlib import redirect_stdout
from io import StringIO

import numpy as np

_BLOCK = re.compile(r"^```python\n(.*?)^```(?:\n\n```text\n(.*?)^```)?", re.DOTALL | re.MULTILINE)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def assert_printed(line: str, shown: str) -> None:
    """Compare texts: words exactly, numbers up to what may differ between machines."""
    assert _NUMBER.sub("#", line).split() == _NUMBER.sub("#", shown).split()
    ours, theirs = (np.array(_NUMBER.findall(text), float) for text in (line, shown))
    places = [len(number.partition(".")[2]) for number in _NUMBER.findall(shown)]
    last_digit = np.power(10.0, -np.array(places, float))  # it may be rounded the other way
    near = np.abs(ours - theirs) <= 1.01 * last_digit + 1e-3 * np.abs(theirs)
    assert near.all(), f"{line!r} is not {shown!r}"


def run_page(text: str) -> int:
    """Run the blocks of a page in order; a text block after one is its output. Count these."""
    names: dict[str, object] = {"__name__": "page"}
    n_shown = 0
    for code, shown in _BLOCK.findall(text):
        with redirect_stdout(StringIO()) as printed:
            exec(compile(code, "page", "exec"), names)
        if shown:
            n_shown += 1
            for line, promised in zip(
                printed.getvalue().splitlines(), shown.splitlines(), strict=True
            ):
                assert_printed(line, promised)
    return n_shown
