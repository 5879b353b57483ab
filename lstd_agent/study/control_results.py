"""What the comparison of learners of control comes to: tables, and a figure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lstd_agent.arrays import FloatArray
from lstd_agent.figure_style import COLORS, DASHES, MARKERS, WIDTH, new_figure, styled
from lstd_agent.study.control_study import CONTROL_ENVIRONMENTS, EQUAL, METHODS
from lstd_agent.study.markdown import table
from lstd_agent.study.rows import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Of a cell without a figure.
_NONE = "\N{EN DASH}"


def markdown_control(rows: Sequence[Row]) -> str:
    """Write how the methods do with most samples, environment by environment, and on average."""
    most = max(row["n_samples"] for row in rows)
    summaries = summarize(rows)
    environments = [env for env in CONTROL_ENVIRONMENTS if any(row["env"] == env for row in rows)]
    marks = sorted({row["n_samples"] for row in rows})

    def shown(heads: Sequence[str], keys: Sequence[tuple[str, int]]) -> str:
        cells = [[m, *(_cell(summaries.get((m, *key))) for key in keys)] for m in METHODS]
        return table(["method", *heads], cells, "l")

    parts = (
        f"Greedy policies after {most:,} transitions: share of runs with the optimal gain, within "
        f"{100 * EQUAL:g} %; of those, median shortfall of the start's value against the bias "
        "optimum, in % of the span; share of transient states with a bias-optimal action.",
        shown(environments, [(env, most) for env in environments]),
        "Over all environments and runs, by number of transitions:",
        shown([f"{n:,}" for n in marks], [("all", n) for n in marks]),
    )
    return "\n\n".join(parts) + "\n"


@dataclass(frozen=True)
class Summary:
    """What runs of a method came to.

    Attributes
    ----------
    gain_optimal : float
        Share of runs with the optimal gain.
    shortfall : float
        Of those, median shortfall of the start as a share of the span; NaN without any.
    right : float
        Mean share of transient states with a bias-optimal action; NaN where there are none.
    """

    gain_optimal: float
    shortfall: float
    right: float


def summarize(rows: Sequence[Row]) -> dict[tuple[str, str, int], Summary]:
    """Return summaries by method, environment (``"all"`` for all) and number of transitions."""
    groups: dict[tuple[str, str, int], list[Row]] = defaultdict(list)
    for row in rows:
        for env in (row["env"], "all"):
            groups[row["method"], env, row["n_samples"]].append(row)
    return {
        key: Summary(
            float(np.mean([row["is_gain_optimal"] for row in group])),
            float(np.median(_known(group, "start_shortfall"))),
            float(np.mean(_known(group, "transient_right"))),
        )
        for key, group in groups.items()
    }


def _known(rows: Sequence[Row], name: str) -> FloatArray:
    """Return the values of a field, those that there are; one NaN without any."""
    values = [row[name] for row in rows if row[name] is not None]
    return np.array(values or [np.nan], dtype=np.float64)


def _cell(found: Summary | None) -> str:
    if found is None:
        return _NONE
    shortfall = _NONE if np.isnan(found.shortfall) else f"{100 * found.shortfall:.2g} %"
    right = _NONE if np.isnan(found.right) else f"{found.right:.2f}"
    return f"{found.gain_optimal:.2f}; {shortfall}; {right}"


@styled
def control_curves(rows: Sequence[Row]) -> Figure:
    """Draw, over all environments, what methods get right against the number of transitions."""
    summaries = summarize(rows)
    marks = sorted({row["n_samples"] for row in rows})
    figure = new_figure(WIDTH, 4.2)
    panels: Any = figure.subplots(1, 3)
    shown = (
        ("gain_optimal", 1.0, "optimal gain", "share of runs"),
        ("shortfall", 100.0, "shortfall of the start", "median, in % of the span"),
        ("right", 1.0, "bias-optimal actions", "share of transient states"),
    )
    for axes, (name, unit, title, label) in zip(panels, shown, strict=True):
        for k, method in enumerate(METHODS):
            known = [n for n in marks if (method, "all", n) in summaries]
            values = [unit * getattr(summaries[method, "all", n], name) for n in known]
            style = {"color": COLORS[k], "linestyle": DASHES[k], "marker": MARKERS[k]}
            axes.plot(known, values, markersize=4, label=method, **style)
        axes.set_xscale("log")
        axes.set_xlabel("transitions")
        axes.set_title(title)
        axes.set_ylabel(label)
    panels[1].set_yscale("symlog", linthresh=0.1)
    panels[1].yaxis.set_major_formatter("{x:g}")
    panels[1].set_ylim(bottom=0.0)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure
