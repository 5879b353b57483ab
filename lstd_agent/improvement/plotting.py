"""A figure of policy iteration: gain, start value and changes over samples.

Matplotlib is imported when a figure is asked for, and its state machine (pyplot) never.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lstd_agent.errors import MissingDependencyError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from lstd_agent.improvement.policy_iteration import Iteration


def draw_learning(iterations: Sequence[Iteration], optimum: tuple[float, float] | None) -> Figure:
    """Return the figure.

    Parameters
    ----------
    iterations : sequence of Iteration
    optimum : (float, float), optional
        The largest gain and, with that, the largest mean bias of the start, drawn as lines.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as missing:
        raise MissingDependencyError(
            'plot() needs matplotlib: pip install "unichain-gym[plot]"'
        ) from missing
    figure = Figure(figsize=(7.0, 7.5), layout="constrained")
    axes: Any = figure.subplots(3, 1, sharex=True)
    n_steps = [each.n_steps for each in iterations]
    columns = ("gain", "start_value", "n_changes")
    labels = ("gain", "start value", "changed actions")
    for i, (name, label) in enumerate(zip(columns, labels, strict=True)):
        axes[i].plot(n_steps, [getattr(each, name) for each in iterations], "o-", label="samples")
        axes[i].set_ylabel(label)
        if optimum is not None and i < len(optimum):
            axes[i].axhline(optimum[i], color="0.5", linestyle="--", label="optimum")
            axes[i].legend()
    axes[-1].set_xlabel("timesteps")
    axes[-1].yaxis.get_major_locator().set_params(integer=True)
    return figure
