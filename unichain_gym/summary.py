"""Readable summaries: the classes of a chain, states and tables as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from unichain_gym.interface import FloatArray, IntArray, RewardProcess
from unichain_gym.structure import group_sums

_SHOWN = 20


@dataclass(frozen=True, eq=False)
class Classification:
    """The classes of a chain; `print` shows a table.

    Parameters
    ----------
    classes : list of ndarray of int
        The states of each recurrent class.
    transient : ndarray of int
        The transient states.
    period, gain, probability : ndarray, shape (n_classes,)
        Of each class: its period, its gain, and the probability of ending in it from the
        initial distribution.
    state_names : sequence, optional
        For the table.

    Examples
    --------
    >>> from unichain_gym import make_mdp
    >>> print(make_mdp("h6").induce([1, 1, 1, 0, 0, 0]).classify())
    class      states  period  gain  reached with  which
    0          3       1       9.2   1             3, 4, 5
    transient  3                                   0, 1, 2
    """

    classes: list[IntArray]
    transient: IntArray
    period: IntArray
    gain: FloatArray
    probability: FloatArray
    state_names: Sequence[str | int] | None = None

    def __str__(self) -> str:
        return format_table(self._rows())

    def _repr_html_(self) -> str:
        return html_table("classes", self._rows())

    def _rows(self) -> list[Sequence[str]]:
        rows: list[Sequence[str]]
        rows = [("class", "states", "period", "gain", "reached with", "which")]
        for k, states in enumerate(self.classes[:_SHOWN]):
            figures = (f"{self.period[k]}", f"{self.gain[k]:.6g}", f"{self.probability[k]:.4g}")
            rows.append((f"{k}", f"{states.size}", *figures, abbreviate(states, self.state_names)))
        if len(self.classes) > _SHOWN:
            rows.append(("…", "", "", "", "", f"{len(self.classes) - _SHOWN} more classes"))
        if self.transient.size:
            n, which = f"{self.transient.size}", abbreviate(self.transient, self.state_names)
            rows.append(("transient", n, "", "", "", which))
        return rows


def classify(chain: RewardProcess) -> Classification:
    """Return a summary of classes, periods and gains that prints as a table."""
    recurrent, p = chain.recurrent_states, chain.stationary_distribution
    label, n_classes = chain._structure.class_label[recurrent], chain._structure.n_classes
    gain = chain._limits.class_rate(chain.reward, chain.durations)
    probability = group_sums(label, p[recurrent], n_classes)
    states = chain.recurrent_classes, chain.transient_states
    return Classification(*states, chain.class_periods, gain, probability, chain.state_names)


def abbreviate(states: IntArray, names: Sequence[str | int] | None = None) -> str:
    """Write a list of states, by names if there are any, its middle left out if it is long."""
    shown = states if states.size <= 8 else np.append(states[:5], states[-1])
    written = [str(s if names is None else names[s]) for s in shown.tolist()]
    return ", ".join(written if states.size <= 8 else [*written[:5], "…", written[5]])


def format_table(rows: Sequence[Sequence[str]]) -> str:
    """Align the columns of a table."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = ("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def html_table(caption: str, rows: Sequence[Sequence[str]]) -> str:
    """Return a table as HTML, for notebooks; the first row names the columns."""
    tags = ["th"] + ["td"] * (len(rows) - 1)
    lines = (
        "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row) + "</tr>"
        for tag, row in zip(tags, rows, strict=True)
    )
    return f"<table><caption>{escape(caption)}</caption>{''.join(lines)}</table>"
