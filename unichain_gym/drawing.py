"""Pictures of an MDP, in the manner of the paper's figure ``unichain_generic``.

Transient states are green circles, recurrent ones gray; dashes mark the recurrent states and what
leaves them. Each action has a color, and an edge is the stronger the more probable it is; the
legend says all this. matplotlib, the extra ``plot``, is imported only
when something is drawn, and drawn on without a display or pyplot's global state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from unichain_gym.arrays import FloatArray
from unichain_gym.errors import InvalidArgumentError, MissingDependencyError
from unichain_gym.layout import NODE_RADIUS, Layout, edge_curves, lay_out
from unichain_gym.legend import (
    RECURRENT_COLOR,
    TRANSIENT_COLOR,
    action_colors,
    draw_legend,
    n_legend_rows,
    opacity_of,
)
from unichain_gym.mdp import TabularMDP
from unichain_gym.outcomes import read_reals

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 100
MARGIN = 2.4 * NODE_RADIUS  # a state and its loop
TITLE_INCHES = 0.4
COLOR_BAR_INCHES = 1.25
LEGEND_INCHES = 0.22  # a line


def draw_mdp(
    mdp: TabularMDP,
    *,
    values: ArrayLike | None = None,
    value_label: str = "value",
    policy: ArrayLike | None = None,
    state: int | None = None,
    action: int | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draw an MDP.

    Parameters
    ----------
    mdp : TabularMDP
        What to draw.
    values : array_like of float, shape (S,), optional
        Colors the states, with a color bar: a bias, estimates, errors, a distribution.
    value_label : str
        What the color bar says that the values are.
    policy : array_like, shape (S,) of int or (S, A) of float, optional
        Draw only the transitions of this policy; by default those of all actions.
    state, action : int, optional
        Mark this state as the current one, in the color of the last action.
    ax : matplotlib Axes, optional
        Where to draw; by default on a figure made for the purpose.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    InvalidArgumentError
        If ``values``, ``state`` or ``action`` do not fit the MDP.
    MissingDependencyError
        If matplotlib is not installed.
    """
    layout = lay_out(mdp)
    if ax is None:
        ax = make_axes(mdp, layout, with_colorbar=values is not None)
    draw_background(mdp, layout, ax, values, value_label, policy)
    if state is not None:
        mark_state(mdp, layout, ax, state, action)
    return ax.figure.figure


def make_axes(mdp: TabularMDP, layout: Layout, *, with_colorbar: bool = False) -> Axes:
    """Return axes, as large as the layout needs, on a figure with space for a legend."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependencyError(
            'drawing needs matplotlib: pip install "unichain-gym[plot]"'
        ) from error
    # The longer side gets nine inches, or less if the states would become huge.
    extent = np.ptp(layout.position, axis=0) + 2 * MARGIN
    inches = extent * min(9.0 / extent.max(), 0.75)
    color_bar = COLOR_BAR_INCHES * with_colorbar
    width = max(inches[0], 5.8) + color_bar
    legend = LEGEND_INCHES * (1 + n_legend_rows(mdp.n_actions))
    height = max(inches[1], 1.5) + TITLE_INCHES + legend
    # Video encoders want an even number of pixels.
    width, height = 2.0 * np.ceil(np.array([width, height]) * DPI / 2.0) / DPI
    figure = Figure(figsize=(width, height), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    bottom = legend / height
    share = 1.0 - color_bar / width
    axes: Axes = figure.add_axes((0.0, bottom, share, 1.0 - bottom - TITLE_INCHES / height))
    return axes


def draw_background(
    mdp: TabularMDP,
    layout: Layout,
    ax: Axes,
    values: ArrayLike | None = None,
    value_label: str = "value",
    policy: ArrayLike | None = None,
) -> None:
    """Draw everything but the marker of the current state."""
    low, high = layout.position.min(axis=0) - MARGIN, layout.position.max(axis=0) + MARGIN
    ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")
    ax.set_axis_off()
    ax.set_title(mdp.name, loc="left", x=0.02, y=1.0, fontsize=12, fontweight="bold")
    strength = _draw_edges(mdp, layout, ax, policy)
    color = _draw_states(mdp, layout, ax, values, value_label)
    _draw_labels(layout, ax, color)
    draw_legend(mdp, ax, strength, with_colors=values is None)


def _draw_edges(mdp: TabularMDP, layout: Layout, ax: Axes, policy: ArrayLike | None) -> float:
    """Draw an arrow for each state, action and next state of positive probability.

    Returns the opacity of a sure transition, 1 unless edges are many.
    """
    from matplotlib.collections import LineCollection, PolyCollection

    S, A = mdp.n_states, mdp.n_actions
    taken = np.ones((S, A)) if policy is None else mdp.check_policy(policy)
    weight = taken[:, :, None] * mdp.probability
    s, a, k = np.nonzero(weight)
    edge, number = np.unique((s * A + a) * S + mdp.next_state[s, a, k], return_inverse=True)
    probability = np.bincount(number, weights=weight[s, a, k]).astype(np.float64)
    rest, after = np.divmod(edge, S)
    before, action = np.divmod(rest, A)

    curve = edge_curves(layout, before, action, after, A)
    rgba = action_colors(A)[action]
    # Many edges at one state make a thicket, in which only the probable ones should stand out.
    crowd = np.sqrt(min(1.0, 12.0 * S / edge.size))
    rgba[:, 3] = opacity_of(probability, crowd)
    dashed = layout.is_recurrent[before]
    width = 0.036 * _points_per_unit(ax)
    for chosen, style in ((~dashed, "-"), (dashed, (0, (4, 2)))):
        ax.add_collection(
            LineCollection(
                list(curve[chosen]),
                colors=rgba[chosen],
                linewidths=width,
                linestyles=style,
                zorder=1,
            )
        )
    tip, back = curve[:, -1], curve[:, -1] - curve[:, -5]
    back *= 0.18 / np.linalg.norm(back, axis=1, keepdims=True)
    across = 0.4 * back[:, ::-1] * (-1.0, 1.0)
    head = np.stack([tip, tip - back + across, tip - back - across], axis=1)
    ax.add_collection(PolyCollection(list(head), facecolors=rgba, edgecolors="none", zorder=1))
    return float(crowd)


def _draw_states(
    mdp: TabularMDP, layout: Layout, ax: Axes, values: ArrayLike | None, value_label: str
) -> FloatArray:
    """Draw the states and return their colors (S, 4)."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.collections import EllipseCollection
    from matplotlib.colors import to_rgba

    recurrent = layout.is_recurrent
    if values is None:
        color = np.where(recurrent[:, None], to_rgba(RECURRENT_COLOR), to_rgba(TRANSIENT_COLOR))
    else:
        array = read_reals(values, "values", InvalidArgumentError)
        if array.shape != (mdp.n_states,):
            raise InvalidArgumentError(
                f"values must have shape ({mdp.n_states},), a number a state; got {array.shape}"
            )
        if not np.isfinite(array).all():
            wrong = int(np.argmin(np.isfinite(array)))
            raise InvalidArgumentError(
                f"values must be finite to be colored; state {wrong} has {array[wrong]}"
            )
        scale = ScalarMappable(cmap="viridis")
        color = scale.to_rgba(array)
        scale.set_array(array)
        place = ax.inset_axes((1.01, 0.1, 0.025, 0.8))
        ax.figure.colorbar(scale, cax=place, label=value_label)
    for chosen, style in ((~recurrent, "-"), (recurrent, (0, (3, 2)))):
        size = np.full(int(chosen.sum()), 2 * NODE_RADIUS)
        ax.add_collection(
            EllipseCollection(
                size,
                size,
                np.zeros_like(size),
                units="xy",
                offsets=layout.position[chosen],
                offset_transform=ax.transData,
                facecolors=color[chosen],
                edgecolors="black",
                linewidths=min(1.0, 0.03 * _points_per_unit(ax)),
                linestyles=[style],
                zorder=2,
            )
        )
    return color


def _draw_labels(layout: Layout, ax: Axes, color: FloatArray) -> None:
    """Write the states' numbers, or every tenth or hundredth where all are too many to read."""
    size = 0.75 * NODE_RADIUS * _points_per_unit(ax)
    step = 1 if size > 4.5 else 10 if size > 2.0 else 100
    luminance = color[:, :3] @ (0.299, 0.587, 0.114)
    for s in range(0, luminance.size, step):
        ax.text(
            layout.position[s, 0],
            layout.position[s, 1],
            str(s),
            color="black" if luminance[s] > 0.5 else "white",
            fontsize=np.clip(size, 5.0 if step == 1 else 8.0, 13.0),
            ha="center",
            va="center",
            zorder=3,
        )


def mark_state(
    mdp: TabularMDP, layout: Layout, ax: Axes, state: int, action: int | None
) -> list[Any]:
    """Ring the current state in the color of the last action, say both, and return the artists."""
    from matplotlib.patches import Circle

    check_member("state", state, mdp.n_states)
    color: Any = "black"
    text = f"state {state}"
    if action is not None:
        check_member("action", action, mdp.n_actions)
        color = action_colors(mdp.n_actions)[action]
        text += f", after action {action}"
    width = min(5.0, 0.15 * _points_per_unit(ax))
    ring = Circle(
        layout.position[state], 1.3 * NODE_RADIUS, fill=False, ec=color, lw=width, zorder=4
    )
    label = ax.text(0.98, 1.01, text, transform=ax.transAxes, ha="right", va="bottom", color=color)
    return [ax.add_artist(ring), label]


def check_member(what: str, value: int, n: int) -> None:
    """Raise `InvalidArgumentError` unless a state or action is one of ``n``."""
    if not 0 <= value < n:
        raise InvalidArgumentError(f"{what} must be from 0 to {n - 1}; got {value}")


def _points_per_unit(ax: Axes) -> float:
    """Return how many points long a unit of the layout is."""
    left, right = ax.get_xlim()
    bottom, top = ax.get_ylim()
    pixels = min(ax.bbox.width / (right - left), ax.bbox.height / (top - bottom))
    return float(72.0 * pixels / ax.figure.dpi)
