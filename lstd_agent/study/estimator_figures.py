"""Pictures of the comparison of estimators and of sample complexity; see `figure_style`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lstd_agent.figure_style import COLORS, DASHES, WIDTH, label_ends, log_scale, new_figure, styled
from lstd_agent.study.complexity_study import BACKUPS, WANTED
from lstd_agent.study.complexity_tables import curves, multiples_of_lowest_limit
from lstd_agent.study.estimator_study import BASELINES, OURS
from lstd_agent.study.estimator_tables import ORACLE, medians, oracle
from lstd_agent.study.rows import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@styled
def estimator_multiples(rows: Sequence[Row]) -> Figure:
    """Draw ε_MS as a multiple of the projection limit: a line an estimator, a dot a row."""
    by_line = medians(rows)
    shown = {name: [row[name] for row in by_line.values()] for name in OURS}
    shown[ORACLE] = oracle(by_line)
    shown |= {name: [row[name] for row in by_line.values()] for name in BASELINES}
    figure = new_figure(WIDTH, 1.2 + 0.34 * len(shown))
    axes = figure.subplots()
    spread = np.linspace(-0.22, 0.22, len(by_line))
    for k, (name, values) in enumerate(shown.items()):
        color = "0.4" if name in BASELINES else COLORS[0]
        axes.plot(values, k + spread, "o", color=color, markersize=3, alpha=0.5)
        middle = float(np.median(values))
        axes.plot([middle, middle], [k - 0.36, k + 0.36], color="black")
        beside: Any = ("axes fraction", "data")
        axes.annotate(f"{middle:.2g}", (1.01, k), xycoords=beside, va="center")
    axes.axvline(1.0, color="black", linewidth=0.8, linestyle=":")
    axes.set_xscale("log")
    axes.set_yticks(range(len(shown)), list(shown))
    axes.grid(visible=False, axis="y")
    axes.invert_yaxis()
    axes.set_xlabel("total rems / projection limit; a dot for each scheme, environment and ρ")
    axes.set_title("Medians over seeds; bars and numbers: their medians")
    return figure


@styled
def sample_complexity(rows: Sequence[Row]) -> Figure:
    """Draw errors against trials: a panel a backup, a line a number of neighbourhoods."""
    found = curves(rows)
    figure = new_figure(WIDTH, 4.6)
    panels: Any = figure.subplots(1, len(BACKUPS), sharey=True)
    by_backup = {backup: multiples_of_lowest_limit(found, backup) for backup in BACKUPS}
    for (backup, by_wanted), axes in zip(by_backup.items(), panels, strict=True):
        for wanted, by_trials in by_wanted.items():
            k = WANTED.index(wanted)
            axes.plot(
                list(by_trials), list(by_trials.values()), color=COLORS[k], linestyle=DASHES[k]
            )
        axes.set_xscale("log")
        axes.set_xlabel("trials")
        axes.set_title(f"backup: {backup}")
    log_scale(panels[0])
    panels[0].set_ylabel("total rems / limit of one\nneighbourhood a timestep")
    for by_wanted, axes in zip(by_backup.values(), panels, strict=True):
        last = max(n for by_trials in by_wanted.values() for n in by_trials)
        ends = [by_trials[last] for by_trials in by_wanted.values()]
        colors = [COLORS[WANTED.index(wanted)] for wanted in by_wanted]
        label_ends(axes, last, ends, list(by_wanted), colors, line_height=0.045)
    figure.suptitle("By the number of neighbourhoods; medians over environments and ρ")
    return figure
