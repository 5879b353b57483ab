"""Progress of long work: a bar on a terminal, plain lines at intervals elsewhere, on stderr."""

from __future__ import annotations

import sys
from io import StringIO
from typing import Any

from tqdm import tqdm

# Seconds between lines where there is no terminal; work that takes less shows nothing there.
LINE_INTERVAL = 10.0


class _Lines(StringIO):
    """A stream that turns a bar's redrawn text into lines of stderr."""

    def write(self, text: str) -> int:
        """Write the text, without carriage returns, as a line."""
        if text.strip():
            print(text.strip(), file=sys.stderr, flush=True)
        return len(text)


def progress_bar(total: int, unit: str, show: bool | None, *, scale: bool = False) -> tqdm[Any]:
    """Return a bar with rate and time left, for use as a context.

    True shows a bar on a terminal and lines elsewhere, None a bar on a terminal only, and False
    nothing. With ``scale``, large numbers are written with k, M or G.
    """
    how: dict[str, Any] = {"disable": show is False}
    if sys.stderr is None or not sys.stderr.isatty():
        how = {"disable": not show, "file": _Lines(), "ascii": True, "ncols": 79}
        how |= {"delay": LINE_INTERVAL, "mininterval": LINE_INTERVAL}
        how["maxinterval"] = float("inf")  # no second line by tqdm's monitor for want of news
        how["bar_format"] = "{percentage:3.0f}% {n_fmt} of {total_fmt} {unit}s, {elapsed} gone, "
        how["bar_format"] += "{remaining} left, {rate_fmt}"
    return tqdm(total=total, unit=unit, unit_scale=scale, **how)
