"""A figure of policy iteration: gain, start value and changes over samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lstd_agent.figure_style import COLORS, DASHES, WIDTH, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from lstd_agent.improvement.record import Iteration

_COLUMNS = {
    "gain": "gain",
    "start_value": "start value (in units of reward)",
    "n_changes": "changed actions",
}


@styled
def draw_learning(
    iterations: Sequence[Iteration], optimum: tuple[float, float] | None = None
) -> Figure:
    """Return the figure.

    Parameters
    ----------
    iterations : sequence of Iteration
    optimum : (float, float), optional
        The largest gain and, with that, the largest mean bias of the start, drawn as lines.
    """
    figure = new_figure(WIDTH, 7.5)
    axes: Any = figure.subplots(3, 1, sharex=True)
    n_steps = [each.n_steps for each in iterations]
    for axis, (name, label) in zip(axes, _COLUMNS.items(), strict=True):
        shown = [getattr(each, name) for each in iterations]
        axis.plot(n_steps, shown, "o-", color=COLORS[0], label="by samples")
        axis.set_ylabel(label)
    for axis, value in zip(axes, optimum or (), strict=False):
        axis.axhline(value, color=COLORS[-1], linestyle=DASHES[1], label="optimum")
        axis.legend()
    axes[-1].set_xlabel("timesteps")
    axes[-1].yaxis.get_major_locator().set_params(integer=True)
    return figure
