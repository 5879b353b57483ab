"""A figure of a fit: values, occupancies, distances over time.

Matplotlib is imported when a figure is asked for, and its state machine (pyplot) never: the
caller owns the figure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lstd_agent.errors import InvalidInputError, MissingDependencyError
from lstd_agent.fit import Fit
from lstd_agent.system.distances import (
    MMD,
    DistanceName,
    DistributionDistance,
    sampled_distance,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(fit: Fit, distance: DistanceName | MMD | DistributionDistance) -> Figure:
    """Return the figure; see `SeminormLSTDAgent.plot`."""
    try:
        from matplotlib.figure import Figure
    except ImportError as missing:
        raise MissingDependencyError(
            'plot() needs matplotlib: pip install "unichain-gym[plot]"'
        ) from missing
    figure = Figure(figsize=(8.0, 9.0), layout="constrained")
    values, occupancies, distances = figure.subplots(3, 1)
    _draw_values(values, fit)
    _draw_occupancies(occupancies, fit)
    _draw_distances(distances, fit, distance)
    return figure


def _draw_values(axes: Any, fit: Fit) -> None:
    """Values of each neighbourhood at the candidate states in its support."""
    system, statistics = fit.system, fit.statistics
    features = statistics.candidate_features
    state = np.arange(len(features))
    for k, neighborhood in enumerate(system.neighborhoods):
        value = system.values(features, np.full(len(features), k))
        seen = neighborhood.occupancy > statistics.support_threshold
        label = f"t = {neighborhood.anchor} to {neighborhood.stop - 1}"
        axes.plot(state[seen], value[seen], ".", label=label)
    axes.set(title="Relative values where they were seen", ylabel="value")
    axes.set_xlabel(_candidates(fit))
    if len(system.anchors) <= 10:
        axes.legend()


def _draw_occupancies(axes: Any, fit: Fit) -> None:
    occupancy = fit.system.occupancy
    image = axes.imshow(occupancy, aspect="auto", interpolation="nearest", vmin=0.0)
    axes.yaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    axes.set(title="Occupancies", xlabel=_candidates(fit), ylabel="neighborhood")
    axes.figure.colorbar(image, ax=axes)


def _candidates(fit: Fit) -> str:
    """Return what the candidates are: states, or a sample of vector observations."""
    return fit.statistics.candidates_are


def _draw_distances(
    axes: Any, fit: Fit, distance: DistanceName | MMD | DistributionDistance
) -> None:
    """Squared distance of each timestep's state distribution from its anchor's."""
    axes.set(title="Squared distance from the anchor", xlabel="timestep", ylabel="distance²")
    try:
        squared = sampled_distance(distance, fit.statistics)
    except InvalidInputError as missing:  # anchors may be given where there is no distance
        axes.text(0.5, 0.5, f"none: {missing}", ha="center", transform=axes.transAxes, wrap=True)
        return
    for neighborhood in fit.system.neighborhoods:
        start, stop = neighborhood.anchor, neighborhood.stop
        axes.plot(np.arange(start, stop), squared(start, start, stop))
        axes.axvline(start, color="0.8", linewidth=0.8, zorder=0)
