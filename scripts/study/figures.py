"""The studies' pictures, drawn with matplotlib (extra ``plot``) without a display."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from lstd_agent.figure_style import COLORS, DASHES, MARKERS, WIDTH, new_figure, styled
from lstd_agent.problems import ENVIRONMENTS, RHOS
from lstd_agent.results import Row
from study import tables
from study.complexity import BACKUPS, WANTED, Curves
from study.control import METHODS
from study.exact import SCHEMES
from study.sampled import BASELINES, COMBINATIONS, OURS
from study.sampling import PANELS
from study.sampling import SCHEMES as SAMPLED_SCHEMES
from study.tables import METRICS

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@styled
def ratio_heat_map(ratios: pd.DataFrame) -> Figure:
    """Draw log10(ours / paper) of every cell, a row for each environment and ρ."""
    present = set(ratios.index.droplevel("metric"))
    lines = [(env, rho) for rho in RHOS for env in ENVIRONMENTS if (env, rho) in present]
    figure = new_figure(WIDTH, 1.9 + 0.2 * len(lines))
    halves: Any = figure.subplots(1, 2, sharey=True)
    grids = [
        ratios.reindex(index=[(*line, metric) for line in lines], columns=list(SCHEMES)).to_numpy()
        for metric in METRICS
    ]
    for axes, metric, grid in zip(halves, METRICS, grids, strict=True):
        image = axes.imshow(grid, cmap="RdBu_r", vmin=-2, vmax=2, aspect="auto")
        axes.set_xticks(range(len(SCHEMES)), SCHEMES, rotation=90)
        axes.set_yticks(range(len(lines)), [f"{env}  ρ = {rho}" for env, rho in lines])
        axes.tick_params(labelsize=10, length=0)
        axes.set_title(f"total {metric[-4:]}")
        axes.set_facecolor("0.6")
        axes.grid(visible=False)
    gray = "; gray: no figure" if np.isnan(grids).any() else ""
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
    """Draw ε_PB (above) and ε_MS (below) against trials, a column for each panel of the paper."""
    frame = pd.DataFrame(rows)
    figure = new_figure(1.25 * WIDTH, 8.0)
    grid: Any = figure.subplots(2, len(PANELS), sharex="col")
    for column, panel in zip(grid.T, PANELS, strict=True):
        own = frame[(frame["env"] == panel.env) & (frame["n_features"] == panel.n_features)]
        for axes, metric in zip(column, METRICS, strict=True):
            for k, scheme in enumerate(SAMPLED_SCHEMES):
                values = own[own["scheme"] == scheme].groupby("n_trials")[metric]
                if not len(values):
                    continue
                mean, (low, high) = values.mean(), (values.quantile(q) for q in (0.25, 0.75))
                thousands, color = mean.index.to_numpy() / 1000, COLORS[k]
                axes.fill_between(thousands, low, high, color=color, alpha=0.13, linewidth=0)
                for edge in (low, high):
                    axes.plot(thousands, edge, DASHES[k], color=color, linewidth=0.9)
                axes.plot(thousands, mean, DASHES[k], color=color, linewidth=2.4, label=scheme)
            axes.set_yscale("log")
        column[0].set_title(
            f"{panel.env}, {panel.n_features} feature{'s' * (panel.n_features > 1)}"
        )
        column[1].set_xlabel("thousands of trials")
    for axes, metric in zip(grid[:, 0], METRICS, strict=True):
        axes.set_ylabel(f"total {metric[-4:]} (in units of reward)")
    grid[0, 0].legend()
    figure.suptitle("Means over seeds; bands, edged by thin lines, hold the middle half")
    return figure


@styled
def reference_multiples(rows: Sequence[Row]) -> Figure:
    """Draw ε_MS as a multiple of the projection limit: a mark a row, medians over seeds."""
    medians = tables.medians(tables.multiples(rows))
    lines = [*medians.index]
    schemes = sorted({scheme for scheme, _, _ in lines})
    environments = [e for e in ENVIRONMENTS if any(env == e for _, env, _ in lines)]
    figure = new_figure(WIDTH, 1.0 + 3.6 * len(schemes))
    panels: Any = figure.subplots(len(schemes), 1, squeeze=False)[:, 0]
    for scheme, axes in zip(schemes, panels, strict=True):
        for k, name in enumerate(COMBINATIONS.values()):
            x, y = [], []
            for i, env in enumerate(environments):
                rhos = sorted((r for s, e, r in lines if (s, e) == (scheme, env)), reverse=True)
                for j, rho in enumerate(rhos):
                    x.append(i + 0.22 * (k - 1.5) - 0.08 + 0.03 * j)
                    y.append(medians.loc[(scheme, env, rho), name])
            axes.plot(x, y, MARKERS[k], markersize=5, color=COLORS[k], alpha=0.85, label=name)
        axes.axhline(1.0, color="black", linewidth=0.8)
        axes.set_yscale("log")
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
    by_line = tables.medians(tables.multiples(rows))
    shown = {name: by_line[name] for name in OURS}
    shown[tables.ORACLE] = tables.oracle(by_line)
    shown |= {name: by_line[name] for name in BASELINES}
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
    curves = Curves.of(rows)
    figure = new_figure(WIDTH, 4.6)
    panels: Any = figure.subplots(1, len(BACKUPS), sharey=True)
    by_backup = {backup: curves.multiples(backup) for backup in BACKUPS}
    for (backup, middle), axes in zip(by_backup.items(), panels, strict=True):
        for wanted, errors in middle.iterrows():
            k = WANTED.index(wanted)
            axes.plot(errors.index, errors, color=COLORS[k], linestyle=DASHES[k], label=wanted)
        axes.set(xscale="log", yscale="log", xlabel="trials", title=f"backup: {backup}")
    panels[0].set_ylabel("total rems / limit of one\nneighborhood a timestep")
    panels[0].legend(ncols=2)
    figure.suptitle("By the number of neighborhoods; medians over environments and ρ")
    return figure


@styled
def control_curves(rows: Sequence[Row]) -> Figure:
    """Draw the three figures of `tables.control_summary` against the number of transitions."""
    summary = tables.control_summary(rows).xs("all", level="env")
    figure = new_figure(WIDTH, 4.2)
    panels: Any = figure.subplots(1, 3)
    shown = (
        ("gain_optimal", 1.0, "optimal gain", "share of runs"),
        ("shortfall", 100.0, "shortfall of the start", "median, in % of the span"),
        ("right", 1.0, "bias-optimal actions", "share of transient states"),
    )
    for axes, (name, unit, title, label) in zip(panels, shown, strict=True):
        for k, method in enumerate(METHODS):
            if method in summary.index:
                values = unit * summary.loc[method][name]
                style = {"color": COLORS[k], "linestyle": DASHES[k], "marker": MARKERS[k]}
                axes.plot(values.index, values, markersize=4, label=method, **style)
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
