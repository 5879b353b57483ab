"""The study's pictures, drawn with matplotlib (extra ``plot``) without a display."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from lstd_agent.arrays import FloatArray
from lstd_agent.errors import MissingDependencyError
from lstd_agent.study.complexity_study import BACKUPS, WANTED
from lstd_agent.study.complexity_tables import curves, multiples_of_lowest_limit
from lstd_agent.study.estimator_study import ESTIMATORS
from lstd_agent.study.estimator_tables import medians
from lstd_agent.study.reference_study import median_multiples
from lstd_agent.study.rows import Row
from lstd_agent.study.sampling_study import PANELS
from lstd_agent.study.sampling_study import SCHEMES as SAMPLED_SCHEMES
from lstd_agent.study.schemes import ENVIRONMENTS, RHOS, SCHEMES
from lstd_agent.study.tables import METRICS, Cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLES = {"p01": "-", "p02md": "--", "paxmd": "-.", "pinf": ":"}


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of a size in inches.

    Raises
    ------
    MissingDependencyError
        Without matplotlib.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingDependencyError(
            'pictures need matplotlib: pip install "unichain-gym[plot]"'
        ) from None
    return Figure(figsize=(width, height), layout="constrained")


def picture(figure: Figure, suffix: str, description: str = "") -> bytes:
    """Return a figure as the content of a file.

    Parameters
    ----------
    figure : Figure
    suffix : str
        Such as ``".png"`` or ``".pdf"``.
    description : str
        Kept in the file's metadata.
    """
    field = {".pdf": "Subject"}.get(suffix, "Description")
    content = BytesIO()
    figure.savefig(content, format=suffix[1:], dpi=150, metadata={field: description})
    return content.getvalue()


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
    figure = new_figure(9, 1.5 + 0.19 * len(lines))
    axes = figure.subplots()
    image = axes.imshow(grid, cmap="RdBu_r", vmin=-2, vmax=2, aspect="auto")
    axes.set_xticks(range(len(columns)), [scheme for _, scheme in columns], rotation=90)
    axes.set_yticks(range(len(lines)), [f"{env}  ρ={rho}" for env, rho in lines], fontsize=7)
    axes.axvline(len(SCHEMES) - 0.5, color="black", linewidth=1)
    grey = " (grey: no figure)" if np.isnan(grid).any() else ""
    axes.set_title(f"total repb  |  total rems: ours over the paper's{grey}", fontsize=10)
    figure.colorbar(image, label="log10 ratio", extend="both")
    axes.set_facecolor("lightgrey")
    return figure


def sampling_curves(rows: Sequence[Row]) -> Figure:
    """Draw the four panels: ε_PB (left, red) and ε_MS (right, blue) against trials.

    Lines are means over seeds; bands are the middle half of the seeds.
    """
    figure = new_figure(12, 8)
    for panel, left in zip(PANELS, figure.subplots(2, 2).flat, strict=True):
        right = left.twinx()
        for axes, metric, color in (
            (left, "total_repb", "tab:red"),
            (right, "total_rems", "tab:blue"),
        ):
            curves = _curves(rows, panel.env, panel.n_features, metric)
            for scheme, (n_trials, values) in curves.items():
                axes.plot(n_trials, values.mean(axis=1), _STYLES[scheme], color=color, label=scheme)
                low, high = np.quantile(values, (0.25, 0.75), axis=1)
                axes.fill_between(n_trials, low, high, color=color, alpha=0.08, linewidth=0)
            axes.set_yscale("log")
            axes.set_ylabel("total " + metric[-4:], color=color)
            axes.tick_params(axis="y", which="both", colors=color)
        left.set_xlabel("trials")
        left.set_title(
            f"{panel.env}, {panel.n_features} feature{'s' * (panel.n_features > 1)} "
            f"(ρ = {panel.rho}, at most {panel.n_anchors_max} anchors)"
        )
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    figure.suptitle("Means over seeds; bands hold the middle half of the seeds")
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


def reference_multiples(rows: Sequence[Row]) -> Figure:
    """Draw ε_MS as a multiple of the projection limit: a dot a row, medians over seeds."""
    medians = median_multiples(rows)
    combinations = sorted({c for by_combination in medians.values() for c in by_combination})
    schemes = sorted({scheme for scheme, _, _ in medians})
    environments = [e for e in ENVIRONMENTS if any(env == e for _, env, _ in medians)]
    figure = new_figure(11, 4.2 * len(schemes))
    panels: Any = figure.subplots(len(schemes), 1, squeeze=False)[:, 0]
    for scheme, axes in zip(schemes, panels, strict=True):
        for k, combination in enumerate(combinations):
            x, y = [], []
            for i, env in enumerate(environments):
                rhos = sorted((r for s, e, r in medians if (s, e) == (scheme, env)), reverse=True)
                for j, rho in enumerate(rhos):
                    x.append(i + 0.18 * k - 0.27 + 0.02 * j)
                    y.append(medians[scheme, env, rho][combination])
            axes.plot(x, y, "o", markersize=4, label=", ".join(combination), alpha=0.8)
        axes.axhline(1.0, color="black", linewidth=0.8)
        axes.set_yscale("log")
        axes.set_xticks(range(len(environments)), environments)
        axes.set_ylabel("total rems / projection limit")
        axes.set_title(f"{scheme}: one dot for each ρ, largest first")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(combinations))
    return figure


def estimator_multiples(rows: Sequence[Row]) -> Figure:
    """Draw ε_MS as a multiple of the projection limit: a line an estimator, a dot a row."""
    by_line = medians(rows)
    values = [np.array([row[name] for row in by_line.values()]) for name in ESTIMATORS]
    figure = new_figure(9, 0.8 + 0.36 * len(values))
    axes = figure.subplots()
    place = np.arange(len(values))
    spread = np.linspace(-0.22, 0.22, len(by_line))
    for k, each in enumerate(values):
        ours = ESTIMATORS[k].startswith("ours")
        color = "tab:blue" if ours else "tab:gray"
        axes.plot(each, k + spread, "o", color=color, markersize=3, alpha=0.5, markeredgewidth=0)
        middle = np.median(each)
        axes.plot([middle, middle], [k - 0.36, k + 0.36], color="black", linewidth=1.5)
        axes.annotate(
            f"{middle:.2g}",
            (1.01, k),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=9,
        )
    axes.axvline(1.0, color="black", linewidth=0.8, linestyle=":")
    axes.set_xscale("log")
    axes.set_yticks(place, ESTIMATORS)
    axes.invert_yaxis()
    axes.set_xlabel("total rems / projection limit (dotted: 1)")
    figure.suptitle(
        "Dots: medians over seeds in a scheme, an environment and a ρ. Bars, numbers: theirs",
        fontsize=10,
    )
    return figure


def sample_complexity(rows: Sequence[Row]) -> Figure:
    """Draw errors against trials: a panel a backup, a line a number of neighbourhoods."""
    found = curves(rows)
    figure = new_figure(11, 4.6)
    panels: Any = figure.subplots(1, len(BACKUPS), sharey=True)
    for backup, axes in zip(BACKUPS, panels, strict=True):
        by_wanted = multiples_of_lowest_limit(found, backup)
        ends = []
        for wanted, by_trials in by_wanted.items():
            color = f"C{WANTED.index(wanted)}"
            n_trials, errors = list(by_trials), list(by_trials.values())
            axes.plot(n_trials, errors, "o-", color=color, markersize=3)
            ends.append((errors[-1], wanted, color))
        _label_ends(axes, ends, n_trials[-1])
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(right=n_trials[-1] * 14)
        axes.set_xlabel("trials")
        axes.set_title(f"backup: {backup}", fontsize=10)
        axes.set_yticks([1, 1.5, 2, 3, 5, 8], ["1", "1.5", "2", "3", "5", "8"], minor=False)
        axes.minorticks_off()
    panels[0].set_ylabel("total rems / limit of one neighbourhood a timestep")
    figure.suptitle("Medians over environments and ρ, by the number of neighbourhoods", fontsize=10)
    return figure


def _label_ends(axes: Any, ends: list[tuple[float, str, str]], last: float) -> None:
    """Write names beside the ends (value, name, color) of lines, not one upon the other."""
    ends = sorted(ends)
    wanted = np.log10([value for value, _, _ in ends])
    place = wanted.copy()
    for k in range(1, len(place)):
        place[k] = max(place[k], place[k - 1] + 0.035)
    place -= (place - wanted).mean()
    for y, (_, name, color) in zip(place, ends, strict=True):
        axes.annotate(name, (last * 1.4, 10**y), color=color, fontsize=9, va="center")
