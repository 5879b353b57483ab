"""Accounts as HTML, which notebooks show instead of text."""

from __future__ import annotations

import re
from html import escape

_LABELED = re.compile(r"(\w[\w ]*?)(?:\s{2,}|: )(.+)")


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
