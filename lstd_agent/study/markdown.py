"""Tables in Markdown, as all pages and files of results have them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np


def table(heads: Sequence[str], rows: Iterable[Sequence[object]], alignment: str) -> str:
    """Write a table, without a line break at its end.

    Parameters
    ----------
    heads : sequence of str
    rows : iterable of sequence
        Cells, shown by ``str``.
    alignment : str
        ``l`` or ``r`` for each column; the last letter holds for all further ones.
    """
    rules = {"l": "---", "r": "---:"}
    letters = alignment.ljust(len(heads), alignment[-1])
    lines = [_line(heads), "|" + "|".join(rules[letter] for letter in letters) + "|"]
    return "\n".join([*lines, *map(_line, rows)])


def _line(cells: Sequence[object]) -> str:
    return "".join(f"| {cell} " if cell != "" else "| " for cell in cells) + "|"


def quartiles(values: Sequence[float]) -> str:
    """Write a median, and the lower and upper quartile."""
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75))
    return f"{middle:.3g} ({low:.3g} to {high:.3g})"
