"""Accounts as text, Markdown and HTML."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from lstd_agent.checks import in_a_line
from lstd_agent.system.distances import falls_back

if TYPE_CHECKING:
    from lstd_agent.fit import Fit

_COLUMNS = ("anchor", "stop", "window", "reference", "occupancy", "samples", "rank", "condition")
_LABELED = re.compile(r"(\w[\w ]*?)(?:\s{2,}|: )(.+)")


def describe(fit: Fit, checks: str, kept: str) -> str:
    """Return a table of the neighbourhoods, under the checks of a fit and how trials are kept."""
    system, options = fit.system, fit.options
    d = system.weights.shape[1]
    rows = [
        (
            f"{n.anchor}",
            f"{n.stop}",
            f"{n.window[0]}-{n.window[1] - 1}",
            "-" if n.reference < 0 else in_a_line(fit.candidate(n.reference)),
            "-" if n.reference < 0 else f"{n.occupancy[n.reference]:.3g}",
            f"{n.n_samples}",
            f"{n.rank}/{d}",
            f"{n.condition:.1e}",
        )
        for n in system.neighborhoods
    ]
    main = system.references.main
    searched = options.anchors is None and options.distance == "mmd" and len(system.anchors) > 1
    replaced = searched and falls_back(fit.source)
    facts = {
        "trials": f"{fit.source.n_trials}, timesteps 0 to {system.t_max}",
        "kept": kept,
        "gain": f"{system.gain:.6g} ({'estimated' if options.gain is None else 'given'})",
        "value 0 at": "mean of the tail" if main < 0 else in_a_line(fit.candidate(main)),
        "distance": "total variation, since no trials are stored" if replaced else "",
    }
    lines = [f"{name:11s} {fact}" for name, fact in facts.items() if fact]
    return "\n".join([*lines, checks, "", aligned((_COLUMNS, *rows))])


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of cells as text, with columns aligned to the right."""
    width = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.rjust(w) for cell, w in zip(row, width, strict=True)) for row in rows
    )


def markdown(
    heads: Sequence[Any], rows: Sequence[Sequence[Any]], left: Sequence[int] = (0,)
) -> str:
    """Write a table in Markdown; all columns but those on the left are aligned to the right."""
    rule = ["---" if k in left else "---:" for k in range(len(heads))]
    return "\n".join("| " + " | ".join(map(str, cells)) + " |" for cells in (heads, rule, *rows))


def as_html(caption: str, text: str) -> str:
    """Return an account as HTML: a table of its labeled lines, and the text after an empty line."""
    facts, _, rest = text.partition("\n\n")
    lines = []
    for line in facts.splitlines():
        found = _LABELED.fullmatch(line)
        label, said = found.groups() if found else ("", line)
        said = f'<td style="text-align: left">{escape(said)}</td>'
        lines.append(f'<tr><th style="text-align: left">{escape(label)}</th>{said}</tr>')
    table = f"<table><caption>{escape(caption)}</caption>{''.join(lines)}</table>"
    return f"{table}<pre>{escape(rest)}</pre>" if rest else table
