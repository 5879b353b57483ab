"""The studies' pictures, drawn with matplotlib (extra ``plot``) without a display."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lstd_agent.arrays import FloatArray
from lstd_agent.figure_style import (
    COLORS,
    DASHES,
    DIVERGING,
    MARKERS,
    WIDTH,
    label_ends,
    log_scale,
    new_figure,
    styled,
)
from lstd_agent.study import estimator_tables
from lstd_agent.study.complexity_study import BACKUPS, WANTED
from lstd_agent.study.complexity_tables import curves, multiples_of_lowest_limit
from lstd_agent.study.estimator_study import BASELINES, OURS
from lstd_agent.study.reference_study import COMBINATIONS, combination_name, median_multiples
from lstd_agent.study.rows import Row
from lstd_agent.study.sampling_study import PANELS
from lstd_agent.study.sampling_study import SCHEMES as SAMPLED_SCHEMES
from lstd_agent.study.schemes import ENVIRONMENTS, RHOS, SCHEMES
from lstd_agent.study.tables import METRICS, Cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@styled
def ratio_heat_map(ratios: Mapping[Cell, float]) -> Figure:
    """Draw log10(ours / paper) of every cell, a row for each environment and ρ."""
    columns = [(metric, scheme) for metric in METRICS for scheme in SCHEMES]
    lines = [
        (env, rho)
        for rho in RHOS
        for env in ENVIRONMENTS
        if any((env, rho, m, s) in ratios for m, s in columns)
    ]
    grid = np.array(
        [[ratios.get((env, rho, m, s), np.nan) for m, s in columns] for env, rho in lines]
    ).reshape(len(lines), len(columns))
    figure = new_figure(WIDTH, 1.9 + 0.2 * len(lines))
    n = len(SCHEMES)
    halves: Any = figure.subplots(1, 2, sharey=True)
    for k, (axes, metric) in enumerate(zip(halves, METRICS, strict=True)):
        half = grid[:, k * n : (k + 1) * n]
        image = axes.imshow(half, cmap=DIVERGING, vmin=-2, vmax=2, aspect="auto")
        axes.set_xticks(range(n), SCHEMES, rotation=90)
        axes.set_yticks(range(len(lines)), [f"{env}  ρ = {rho}" for env, rho in lines])
        axes.tick_params(labelsize=10, length=0)
        axes.set_title(f"total {metric[-4:]}")
        axes.set_facecolor("0.6")
        axes.grid(visible=False)
    gray = "; gray: no figure" if np.isnan(grid).any() else ""
    figure.colorbar(
        image,
        ax=halves,
        location="top",
        aspect=40,
        extend="both",
        label=f"log10 of ours over the paper's{gray}",
    )
    return figure


@styled
def sampling_curves(rows: Sequence[Row]) -> Figure:
    """Draw ε_PB (above) and ε_MS (below) against trials, a column for each panel of the paper.

    Lines are means over seeds; bands hold the middle half of the seeds.
    """
    figure = new_figure(1.25 * WIDTH, 8.0)
    grid: Any = figure.subplots(2, len(PANELS), sharex="col")
    for column, panel in zip(grid.T, PANELS, strict=True):
        for axes, metric in zip(column, METRICS, strict=True):
            curves = _curves(rows, panel.env, panel.n_features, metric)
            for k, (n_trials, values) in enumerate(curves.values()):
                thousands, color = np.array(n_trials) / 1000, COLORS[k]
                low, high = np.quantile(values, (0.25, 0.75), axis=1)
                axes.fill_between(thousands, low, high, color=color, alpha=0.13, linewidth=0)
                for edge in (low, high):
                    axes.plot(thousands, edge, DASHES[k], color=color, linewidth=0.9)
                axes.plot(thousands, values.mean(axis=1), DASHES[k], color=color, linewidth=2.4)
            log_scale(axes)
            ends = [values[-1].mean() for _, values in curves.values()]
            label_ends(axes, thousands[-1], ends, list(curves), COLORS[: len(curves)])
        column[0].set_title(
            f"{panel.env}, {panel.n_features} feature{'s' * (panel.n_features > 1)}"
        )
        column[1].set_xlabel("thousands of trials")
    for axes, metric in zip(grid[:, 0], METRICS, strict=True):
        axes.set_ylabel(f"total {metric[-4:]} (in units of reward)")
    figure.suptitle("Means over seeds; bands, edged by thin lines, hold the middle half")
    return figure


def _curves(
    rows: Sequence[Row], env: str, n_features: int, metric: str
) -> dict[str, tuple[list[int], FloatArray]]:
    """Return each scheme's checkpoints and its values there, shape (checkpoints, seeds)."""
    values: dict[str, dict[int, list[float]]] = {s: defaultdict(list) for s in SAMPLED_SCHEMES}
    for row in rows:
        if row["env"] == env and row["n_features"] == n_features:
            values[row["scheme"]][row["n_trials"]].append(row[metric])
    return {
        scheme: (sorted(points), np.array([points[n] for n in sorted(points)]))
        for scheme, points in values.items()
        if points
    }


@styled
def reference_multiples(rows: Sequence[Row]) -> Figure:
    """Draw ε_MS as a multiple of the projection limit: a mark a row, medians over seeds."""
    medians = median_multiples(rows)
    schemes = sorted({scheme for scheme, _, _ in medians})
    environments = [e for e in ENVIRONMENTS if any(env == e for _, env, _ in medians)]
    figure = new_figure(WIDTH, 1.0 + 3.6 * len(schemes))
    panels: Any = figure.subplots(len(schemes), 1, squeeze=False)[:, 0]
    for scheme, axes in zip(schemes, panels, strict=True):
        for k, combination in enumerate(COMBINATIONS):
            x, y = [], []
            for i, env in enumerate(environments):
                rhos = sorted((r for s, e, r in medians if (s, e) == (scheme, env)), reverse=True)
                for j, rho in enumerate(rhos):
                    x.append(i + 0.22 * (k - 1.5) - 0.08 + 0.03 * j)
                    y.append(medians[scheme, env, rho][combination])
            label = combination_name(combination)
            axes.plot(x, y, MARKERS[k], markersize=5, color=COLORS[k], alpha=0.85, label=label)
        axes.axhline(1.0, color="black", linewidth=0.8)
        log_scale(axes)
        axes.set_xticks(range(len(environments)), environments)
        axes.set_xlim(-0.5, len(environments) - 0.5)
        axes.grid(visible=False, axis="x")
        axes.set_ylabel("total rems / limit")
        axes.set_title(f"{scheme}: one mark for each ρ, the largest to the left")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=2)
    return figure


@styled
def estimator_multiples(rows: Sequence[Row]) -> Figure:
    """Draw ε_MS as a multiple of the projection limit: a line an estimator, a dot a row."""
    by_line = estimator_tables.median_multiples(rows)
    shown = {name: [row[name] for row in by_line.values()] for name in OURS}
    shown[estimator_tables.ORACLE] = estimator_tables.oracle(by_line)
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
        axes.annotate(f"{middle:.3g}", (1.01, k), xycoords=beside, va="center")
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
    panels[0].set_ylabel("total rems / limit of one\nneighborhood a timestep")
    for by_wanted, axes in zip(by_backup.values(), panels, strict=True):
        last = max(n for by_trials in by_wanted.values() for n in by_trials)
        ends = [by_trials[last] for by_trials in by_wanted.values()]
        colors = [COLORS[WANTED.index(wanted)] for wanted in by_wanted]
        label_ends(axes, last, ends, list(by_wanted), colors, line_height=0.045)
    figure.suptitle("By the number of neighborhoods; medians over environments and ρ")
    return figure
