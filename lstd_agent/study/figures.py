"""The study's pictures, drawn with matplotlib (extra ``plot``) without a display."""

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
from lstd_agent.study.reference_study import median_multiples
from lstd_agent.study.rows import Row
from lstd_agent.study.sampling_study import PANELS
from lstd_agent.study.sampling_study import SCHEMES as SAMPLED_SCHEMES
from lstd_agent.study.schemes import ENVIRONMENTS, RHOS, SCHEMES
from lstd_agent.study.tables import METRICS, Cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METRIC_NAMES = {
    "total_repb": "total repb (in units of reward)",
    "total_rems": "total rems (in units of reward)",
}


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
    grey = "; grey: no figure" if np.isnan(grid).any() else ""
    figure.colorbar(
        image,
        ax=halves,
        location="top",
        aspect=40,
        extend="both",
        label=f"log10 of ours over the paper's{grey}",
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
        for axes, metric in zip(column, METRIC_NAMES, strict=True):
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
    for axes, name in zip(grid[:, 0], METRIC_NAMES.values(), strict=True):
        axes.set_ylabel(name)
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
    combinations = sorted({c for by_combination in medians.values() for c in by_combination})
    schemes = sorted({scheme for scheme, _, _ in medians})
    environments = [e for e in ENVIRONMENTS if any(env == e for _, env, _ in medians)]
    figure = new_figure(WIDTH, 1.0 + 3.6 * len(schemes))
    panels: Any = figure.subplots(len(schemes), 1, squeeze=False)[:, 0]
    for scheme, axes in zip(schemes, panels, strict=True):
        for k, combination in enumerate(combinations):
            x, y = [], []
            for i, env in enumerate(environments):
                rhos = sorted((r for s, e, r in medians if (s, e) == (scheme, env)), reverse=True)
                for j, rho in enumerate(rhos):
                    x.append(i + 0.27 * (k - 1) - 0.08 + 0.035 * j)
                    y.append(medians[scheme, env, rho][combination])
            label = f"{combination[0]} ({combination[1]})" if combination[1] != "none" else "linked"
            axes.plot(x, y, MARKERS[k], markersize=5, color=COLORS[k], alpha=0.85, label=label)
        axes.axhline(1.0, color="black", linewidth=0.8)
        log_scale(axes)
        axes.set_xticks(range(len(environments)), environments)
        axes.set_xlim(-0.5, len(environments) - 0.5)
        axes.grid(visible=False, axis="x")
        axes.set_ylabel("total rems / limit")
        axes.set_title(f"{scheme}: one mark for each ρ, the largest to the left")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(combinations))
    return figure
