"""The colors, dashes and opacity of a drawn MDP, and the legend that says what they mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unichain_gym.arrays import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TRANSIENT_COLOR = "#8fd694"
RECURRENT_COLOR = "#d9d9d9"
ACTION_COLORS = (
    "#d62728", "#1f5fb4", "#e08a00", "#8041b0", "#12857a", "#a0522d", "#d6489b", "#5f6b2d",
)  # fmt: skip
LEGEND_COLUMNS = 3
SHOWN_PROBABILITIES = (1.0, 0.5, 0.1)


def opacity_of(probability: FloatArray, strength: float) -> FloatArray:
    """Return how strongly transitions are drawn."""
    return strength * (0.25 + 0.75 * np.clip(probability, 0.0, 1.0))


def action_colors(n_actions: int) -> FloatArray:
    """Return a color (RGBA) for each action."""
    from matplotlib.colors import to_rgba_array

    colors: FloatArray = to_rgba_array(ACTION_COLORS)[np.arange(n_actions) % len(ACTION_COLORS)]
    return colors


def draw_legend(
    action_names: Sequence[str], ax: Axes, strength: float, *, with_colors: bool
) -> None:
    """Say what colors, dashes and opacity mean; state colors only if they are the classes'."""
    from matplotlib.legend_handler import HandlerTuple
    from matplotlib.lines import Line2D

    labels = list(action_names[: len(ACTION_COLORS)])
    handles: list[Any] = [Line2D([], [], color=color) for color in ACTION_COLORS[: len(labels)]]
    if len(handles) < len(action_names):
        labels = [f"{label}, …" for label in labels]
    for label, color, dashes in (
        ("transient (solid)", TRANSIENT_COLOR, "-"),
        ("recurrent (dashed)", RECURRENT_COLOR, (0, (3, 2))),
    ):
        face = color if with_colors else "white"
        handles.append(Line2D([], [], color="black", lw=1, ls=dashes, marker="o", mfc=face, ms=9))
        labels.append(label)
    opacity = opacity_of(np.array(SHOWN_PROBABILITIES), strength)
    handles.append(tuple(Line2D([], [], color="black", alpha=alpha) for alpha in opacity))
    labels.append("probability " + ", ".join(f"{p:g}" for p in SHOWN_PROBABILITIES))
    ax.legend(
        handles,
        labels,
        loc="upper center",
        bbox_to_anchor=(0.5, 0.0),
        ncols=LEGEND_COLUMNS,
        fontsize=9,
        handlelength=3.5,
        columnspacing=1.2,
        handler_map={tuple: HandlerTuple(ndivide=None, pad=0.8)},
        frameon=False,
    )


def n_legend_rows(n_actions: int) -> int:
    """Return how many rows the legend has: actions, two kinds of states, probability."""
    return -(-(min(n_actions, len(ACTION_COLORS)) + 3) // LEGEND_COLUMNS)
