"""A figure of a fit: values, occupancy over time, and the neighborhoods over the trial.

Time is on a logarithmic axis, since the start is where a distribution moves.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.errors import InvalidInputError, NotFittedError
from lstd_agent.figure_style import COLORS, MARKERS, SEQUENTIAL, WIDTH, new_figure, styled
from lstd_agent.fit import Fit
from lstd_agent.system.distances import sampled_distance

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Largest numbers of error bars and of neighborhoods in the legend; rows of a heat map, and the
# trials that it counts.
_MOST_BARS, _MOST_NAMED, _N_BINS, _N_TRIALS = 200, 10, 40, 2000


@styled
def draw(fit: Fit) -> Figure:
    """Return a figure of a fit; see `SeminormLSTDAgent.plot`."""
    figure = new_figure(WIDTH, 11.0)
    draws = _draw_values, _draw_occupancies, _draw_distances
    for axes, draw_part in zip(figure.subplots(3, 1), draws, strict=True):
        draw_part(axes, fit)
    return figure


def mark_anchors(axes: Axes, anchors: ArrayLike) -> None:
    """Give axes a logarithmic axis of time, and a line where each neighborhood begins."""
    starts = np.asarray(anchors)
    for start in starts:
        axes.axvline(start, color=COLORS[1], linewidth=min(1.6, 12.0 / len(starts)), zorder=3)
    axes.set_xscale("symlog", linthresh=1)
    axes.set_xlabel("timestep (lines: where neighborhoods begin)")


def _candidate_places(fit: Fit) -> tuple[FloatArray, str]:
    """Return where candidates are on an axis: at their number, or at the first of several."""
    states = np.asarray(fit.source.candidates, dtype=np.float64)
    names = "state" if fit.source.are_places else "observation", "first number of an observation"
    return states.reshape(len(states), -1)[:, 0], names[states[0].size > 1]


def _draw_values(axes: Axes, fit: Fit) -> None:
    """Draw values of each neighborhood, with error bars, at the candidates in its support."""
    system = fit.system
    place, label = _candidate_places(fit)
    shown: list[FloatArray] = []
    for k, neighborhood in enumerate(system.neighborhoods):
        value = fit.candidate_values(k)
        seen = np.flatnonzero(neighborhood.occupancy > 0.0)
        color, marker = COLORS[k % len(COLORS)], MARKERS[k % len(MARKERS)]
        name = f"t = {neighborhood.anchor} to {neighborhood.stop - 1}: "
        name += f"{neighborhood.n_samples:,} samples, rank {neighborhood.rank}"
        axes.plot(place[seen], value[seen], marker, color=color, label=name, markersize=4)
        shown.append(value[seen])
        some = seen[:: -(-len(seen) // _MOST_BARS) or 1]
        errors = _standard_errors(fit, some, k)
        axes.errorbar(place[some], value[some], 2.0 * errors, fmt="none", color=color, linewidth=1)
    values = np.concatenate(shown)
    if values.size:  # a bar that is longer than the range of values leaves the picture
        margin = 0.2 * max(float(np.ptp(values)), 1e-9 * float(np.abs(values).max()), 1e-300)
        axes.set_ylim(values.min() - margin, values.max() + margin)
    axes.set_title("Relative values where they were seen, ± 2 standard errors")
    axes.set(xlabel=label, ylabel="value (in units of reward)")
    if len(system.anchors) <= _MOST_NAMED:
        axes.figure.legend(loc="outside upper center")


def _standard_errors(fit: Fit, candidates: IntArray, k: int) -> FloatArray:
    """Return standard errors by neighborhood k; NaN, which draws no bar, where there is none."""
    errors = np.full(len(candidates), np.nan)
    known = candidates != fit.source.terminal
    if known.any() and len(fit.system.anchors) <= _MOST_NAMED:
        states = fit.source.candidates[candidates[known]]
        with suppress(NotFittedError):  # a single batch of trials
            errors[known] = fit.errors_of_states(states, np.full(len(states), k))
    return np.where(np.isfinite(errors), errors, np.nan)


def _draw_occupancies(axes: Any, fit: Fit) -> None:
    """Draw occupancy over time, of vectors by their first number."""
    axes.set_title("Occupancy")
    source = fit.source
    place, label = _candidate_places(fit)
    if label == "state":
        edges = np.append(place, place[-1] + 1.0) - 0.5
        visits = source.visits.toarray()
        shares = visits / np.maximum(visits.sum(axis=1, keepdims=True), 1)
    else:
        trials = source.whole_trials.states(_N_TRIALS)[:, :, 0]
        edges = np.histogram_bin_edges(trials[np.isfinite(trials)], _N_BINS)
        counts = [np.histogram(at[np.isfinite(at)], edges)[0] for at in trials.T]
        shares = np.array(counts) / len(trials)
    # A heat map of the share of trials over time; shares of 0 are left white.
    from matplotlib.colors import LogNorm

    times = np.unique(np.geomspace(1, len(shares) + 1, 400).astype(int)) - 1
    shown = np.where(shares > 0, shares, np.nan)[times[:-1]]
    least = np.nanmin(shown) if np.isfinite(shown).any() else 1.0
    norm = LogNorm(min(least, 0.5), 1.0)
    mesh = axes.pcolormesh(times, edges, shown.T, norm=norm, cmap=SEQUENTIAL)
    mark_anchors(axes, fit.system.anchors)
    axes.set(ylabel=label, xlim=times[[0, -1]])
    axes.grid(visible=False)
    axes.figure.colorbar(mesh, ax=axes, label="share of trials", aspect=15, pad=0.01)


def _draw_distances(axes: Axes, fit: Fit) -> None:
    """Draw each timestep's squared distance from its anchor, and where neighborhoods begin."""
    axes.set(title="Neighborhoods: squared distance from the anchor", ylabel="distance²")
    try:
        squared = sampled_distance(fit.options.distance, fit.source)
    except InvalidInputError as missing:  # anchors may be given where there is no distance
        axes.text(0.5, 0.5, f"none: {missing}", ha="center", transform=axes.transAxes, wrap=True)
    else:
        for k, neighborhood in enumerate(fit.system.neighborhoods):
            start, stop = neighborhood.anchor, neighborhood.stop
            color = COLORS[k % len(COLORS)]
            axes.plot(np.arange(start, stop), squared(start, start, stop), color=color)
    mark_anchors(axes, fit.system.anchors)
    axes.set_xlim(0, fit.system.t_max + 1)
