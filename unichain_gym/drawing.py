"""Pictures of MDPs and chains, in the manner of the paper's figure ``unichain_generic``.

Transient states are green circles, recurrent ones gray; dashes mark recurrent states and
transitions from them. Each action has a color, and more probable edges are more opaque. A model
with many next states shows only the probable transitions, and the title gives the limit. An edge
shows the duration of its step, unless it is 1 or the edges are many. matplotlib, the extra
``plot``, is imported at the first picture; neither a display nor pyplot's global state is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from io import BytesIO
from os import PathLike
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unichain_gym.errors import InvalidArgumentError, MissingDependencyError, brief
from unichain_gym.interface import FloatArray, IntArray, OutcomeModel, RewardProcess
from unichain_gym.labels import read_state_values
from unichain_gym.layout import EDGE_POINTS, NODE_RADIUS, Layout, edge_curves, lay_out
from unichain_gym.outcomes import read_number, require_integers
from unichain_gym.structure import edges

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 100
MARGIN = 2.4 * NODE_RADIUS  # a state and its loop
TITLE_INCHES = 0.4
COLOR_BAR_INCHES = 1.25
LEGEND_INCHES = 0.22  # per line
# With more next states per state and action on average, only probable transitions are drawn.
MOST_SUCCESSORS = 8
MOST_TIMED = 40  # edges whose durations can be read
SHARES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
TRANSIENT_COLOR = "#8fd694"
RECURRENT_COLOR = "#d9d9d9"
ACTION_COLORS = (
    "#d62728", "#1f5fb4", "#e08a00", "#8041b0", "#12857a", "#a0522d", "#d6489b", "#5f6b2d",
)  # fmt: skip
DASHES = (0, (3, 2))  # around recurrent states
LEGEND_COLUMNS = 3
SHOWN_PROBABILITIES = (1.0, 0.5, 0.1)


@dataclass(frozen=True, eq=False)
class Diagram:
    """The contents of a picture: places of states, transitions as arrays (n,), and a title."""

    name: str
    layout: Layout
    action_names: Sequence[str]
    before: IntArray
    action: IntArray
    after: IntArray
    probability: FloatArray
    state_names: Sequence[str | int] | None = None
    duration: FloatArray | None = None

    @staticmethod
    def of_mdp(mdp: OutcomeModel, policy: ArrayLike | None = None) -> Diagram:
        """Return the diagram of an MDP, with all its actions or with the actions of a policy."""
        taken = mdp.allowed_actions if policy is None else mdp.check_policy(policy)
        return Diagram._of_outcomes(mdp, taken, mdp.uniform_chain)

    @staticmethod
    def of_chain(chain: RewardProcess) -> Diagram:
        """Return the diagram of a chain, by action if it comes from an MDP."""
        if chain.mdp is not None and chain.policy is not None:
            return Diagram._of_outcomes(chain.mdp, chain.policy, chain)
        before, after = edges(chain.transition_matrix)
        layout, p = lay_out(chain, 1), chain.transition_matrix.data
        names, action = ("transition",), np.zeros_like(before)
        return Diagram("chain", layout, names, before, action, after, p, chain.state_names)

    @staticmethod
    def _of_outcomes(mdp: OutcomeModel, taken: Any, chain: RewardProcess) -> Diagram:
        """Return the diagram of the actions ``taken``, (S, A); equal next states share an edge."""
        S, A = taken.shape
        weight = taken[:, :, None] * mdp.probability
        s, a, k = np.nonzero(weight)
        edge, number = np.unique((s * A + a) * S + mdp.next_state[s, a, k], return_inverse=True)
        probability = np.bincount(number, weights=weight[s, a, k]).astype(np.float64)
        duration = None
        if mdp.durations is not None:
            times = weight[s, a, k] * mdp.durations[s, a, k]
            duration = np.bincount(number, weights=times) / probability
        rest, after = np.divmod(edge, S)
        before, action = np.divmod(rest, A)
        names = list(map(str, mdp.action_names or [f"action {a}" for a in range(A)]))
        columns = before, action, after, probability
        return Diagram(mdp.name, lay_out(chain, A), names, *columns, mdp.state_names, duration)

    def above(self, share: float | None) -> Diagram:
        """Return the diagram of the transitions of at least this probability.

        By default all, or in a dense model only few. The likeliest transition of each state and
        action always stays.
        """
        row = self.before * len(self.action_names) + self.action
        n_rows = np.unique(row).size
        if share is None and row.size <= MOST_SUCCESSORS * n_rows:
            return self
        if share is None:
            counts = [np.count_nonzero(self.probability >= each) for each in SHARES]
            fits = (n <= MOST_SUCCESSORS / 2 * n_rows for n in counts)
            share = next((s for s, fit in zip(SHARES, fits, strict=True) if fit), 1.0)
        limit = read_number("above", share)
        if not 0.0 <= limit <= 1.0:
            raise InvalidArgumentError(f"above is a probability, from 0 to 1; got {brief(share)}")
        order = np.lexsort((-self.probability, row))
        keep = self.probability >= limit
        keep[order[np.unique(row[order], return_index=True)[1]]] = True
        if keep.all():
            return self
        columns = ("before", "action", "after", "probability", "duration")
        kept = {name: each[keep] for name in columns if (each := getattr(self, name)) is not None}
        name = f"{self.name}: probabilities ≥ {limit:g}, and the likeliest"
        return replace(self, name=name, **kept)


def draw_mdp(
    mdp: OutcomeModel,
    path: str | PathLike[str] | None = None,
    values: ArrayLike | None = None,
    policy: ArrayLike | None = None,
    *,
    value_label: str = "value",
    above: float | None = None,
    state: int | None = None,
    action: int | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draw an MDP, by matplotlib; a notebook shows the figure.

    Parameters
    ----------
    path : path-like, optional
        The file to write; its ending (``.png``, ``.pdf``, ``.svg``) is the format.
    values : array_like of float, shape (S,), optional
        Colors the states, with a color bar: a bias, estimates, errors, a distribution.
    policy : array_like, shape (S,) of int or (S, A) of float, optional
        Draw the transitions of this policy alone; by default of all actions.
    value_label : str
        The label of the color bar.
    above : float, optional
        The smallest probability of a transition that is drawn, besides the likeliest of each state
        and action. By default 0, or in a dense model a limit that leaves few.
    state, action : int, optional
        Mark this state as the current one, in the color of the last action.
    ax : matplotlib Axes, optional
        Where to draw; by default on a new figure.

    Raises
    ------
    InvalidArgumentError, MissingDependencyError
        If an argument does not fit the MDP, or matplotlib is not installed.
    """
    diagram = Diagram.of_mdp(mdp, policy).above(above)
    return _draw(diagram, path, values, value_label, ax, state, action)


def draw_chain(
    chain: RewardProcess,
    path: str | PathLike[str] | None = None,
    values: ArrayLike | None = None,
    *,
    value_label: str | None = None,
    above: float | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draw a chain, its states colored by their bias or by ``values``; see `TabularMDP.plot`."""
    label = value_label or ("bias" if values is None else "value")
    values = chain.bias if values is None else values
    return _draw(Diagram.of_chain(chain).above(above), path, values, label, ax)


def _draw(
    diagram: Diagram, path: str | PathLike[str] | None, values: ArrayLike | None,
    value_label: str, ax: Axes | None, state: int | None = None, action: int | None = None,
) -> Figure:  # fmt: skip
    ax = ax or _make_axes(diagram, with_colorbar=values is not None)
    _draw_background(diagram, ax, values, value_label)
    if state is not None:
        _mark_state(diagram, ax, state, action)
    figure = ax.figure.figure
    if path is not None:
        figure.savefig(path)
    return figure


def _make_axes(diagram: Diagram, *, with_colorbar: bool = False) -> Axes:
    """Return axes, as large as the layout needs, on a figure with space for a legend."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        install = 'pip install "unichain-gym[plot]"'
        raise MissingDependencyError(f"drawing needs matplotlib: {install}") from error
    # The longer side gets nine inches, or less if the states would become huge.
    extent = np.ptp(diagram.layout.position, axis=0) + 2 * MARGIN
    inches = extent * min(9.0 / extent.max(), 0.75)
    color_bar = COLOR_BAR_INCHES * with_colorbar
    width = max(inches[0], 5.8) + color_bar
    n_entries = min(len(diagram.action_names), len(ACTION_COLORS)) + 3  # states, probability
    legend = LEGEND_INCHES * (1 - -n_entries // LEGEND_COLUMNS)
    height = max(inches[1], 1.5) + TITLE_INCHES + legend
    # Video encoders want an even number of pixels.
    width, height = 2.0 * np.ceil(np.array([width, height]) * DPI / 2.0) / DPI
    figure = Figure(figsize=(width, height), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)

    def shown() -> tuple[bytes, dict[str, float]]:
        content = BytesIO()
        figure.savefig(content, format="png")
        return content.getvalue(), {"width": 72.0 * figure.get_figwidth()}

    figure.__dict__["_repr_png_"] = shown  # by which a notebook shows it without pyplot
    bottom = legend / height
    share = 1.0 - color_bar / width
    axes: Axes = figure.add_axes((0.0, bottom, share, 1.0 - bottom - TITLE_INCHES / height))
    return axes


def _draw_background(
    diagram: Diagram, ax: Axes, values: ArrayLike | None = None, value_label: str = "value"
) -> None:
    position = diagram.layout.position
    low, high = position.min(axis=0) - MARGIN, position.max(axis=0) + MARGIN
    ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")
    ax.set_axis_off()
    ax.set_title(diagram.name, loc="left", x=0.02, y=1.0, fontsize=12, fontweight="bold")
    strength = _draw_edges(diagram, ax)
    _draw_states(diagram, ax, values, value_label)
    _draw_legend(diagram.action_names, ax, strength, with_colors=values is None)


def _draw_edges(diagram: Diagram, ax: Axes) -> float:
    """Draw an arrow for each transition; return the opacity of a sure one, below 1 if many."""
    from matplotlib.collections import LineCollection, PolyCollection
    from matplotlib.colors import to_rgba_array

    layout, before, n_actions = diagram.layout, diagram.before, len(diagram.action_names)
    curve = edge_curves(layout, before, diagram.action, diagram.after, n_actions)
    rgba = np.asarray(to_rgba_array(ACTION_COLORS)[diagram.action % len(ACTION_COLORS)])
    # Many edges at one state make a thicket, in which only the probable ones should stand out.
    crowd = np.sqrt(min(1.0, 12.0 * layout.is_recurrent.size / before.size))
    rgba[:, 3] = _opacity(diagram.probability, crowd)
    dashed = layout.is_recurrent[before]
    width = 0.036 * _points_per_unit(ax)
    for kind, style in ((~dashed, "-"), (dashed, (0, (4, 2)))):
        lines = list(curve[kind])
        look: dict[str, Any] = {"colors": rgba[kind], "linewidths": width, "linestyles": style}
        ax.add_collection(LineCollection(lines, zorder=1, **look))
    if diagram.duration is not None and before.size <= MOST_TIMED:
        for i in np.flatnonzero(diagram.duration != 1.0):
            x, y = curve[i, EDGE_POINTS // 2]
            ax.text(x, y, f"{diagram.duration[i]:.3g}", fontsize=7, ha="center", va="center")
    tip, back = curve[:, -1], curve[:, -1] - curve[:, -5]
    back *= 0.18 / np.linalg.norm(back, axis=1, keepdims=True)
    across = 0.4 * back[:, ::-1] * (-1.0, 1.0)
    head = np.stack([tip, tip - back + across, tip - back - across], axis=1)
    ax.add_collection(PolyCollection(list(head), facecolors=rgba, edgecolors="none", zorder=1))
    return float(crowd)


def _draw_states(diagram: Diagram, ax: Axes, values: ArrayLike | None, value_label: str) -> None:
    """Draw the states and their numbers, or every tenth or hundredth where they are too many."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.collections import EllipseCollection
    from matplotlib.colors import to_rgba

    layout = diagram.layout
    recurrent = layout.is_recurrent
    if values is None:
        color = np.where(recurrent[:, None], to_rgba(RECURRENT_COLOR), to_rgba(TRANSIENT_COLOR))
    else:
        array = read_state_values("values", values, recurrent.size, diagram.state_names)
        scale = ScalarMappable(cmap="viridis")
        color = scale.to_rgba(array)
        scale.set_array(array)
        place = ax.inset_axes((1.01, 0.1, 0.025, 0.8))
        ax.figure.colorbar(scale, cax=place, label=value_label)
    rim = min(1.0, 0.03 * _points_per_unit(ax))
    for kind, style in ((~recurrent, "-"), (recurrent, DASHES)):
        size = np.full(np.count_nonzero(kind), 2 * NODE_RADIUS)
        where: dict[str, Any] = {"offsets": layout.position[kind], "offset_transform": ax.transData}
        look: dict[str, Any] = {"facecolors": color[kind], "edgecolors": "black", "zorder": 2}
        look |= {"linewidths": rim, "linestyles": [style]}
        ax.add_collection(EllipseCollection(size, size, 0.0 * size, units="xy", **where, **look))
    points = 0.75 * NODE_RADIUS * _points_per_unit(ax)
    step = 1 if points > 4.5 else 10 if points > 2.0 else 100
    points = min(max(points, 5.0 if step == 1 else 8.0), 13.0)
    font: dict[str, Any] = {"fontsize": points, "ha": "center", "va": "center", "zorder": 3}
    luminance = color[:, :3] @ (0.299, 0.587, 0.114)
    for s in range(0, recurrent.size, step):
        ink = "black" if luminance[s] > 0.5 else "white"
        ax.text(layout.position[s, 0], layout.position[s, 1], str(s), color=ink, **font)


def _mark_state(diagram: Diagram, ax: Axes, state: int, action: int | None) -> list[Any]:
    """Ring the current state in the color of the last action; return the artists."""
    from matplotlib.patches import Circle

    require_integers(InvalidArgumentError, 0, diagram.layout.is_recurrent.size - 1, state=state)
    color: Any = "black"
    text = f"state {state}"
    if action is not None:
        require_integers(InvalidArgumentError, 0, len(diagram.action_names) - 1, action=action)
        color = ACTION_COLORS[action % len(ACTION_COLORS)]
        text += f", after action {action}"
    width = min(5.0, 0.15 * _points_per_unit(ax))
    place = diagram.layout.position[state]
    ring = Circle(place, 1.3 * NODE_RADIUS, fill=False, ec=color, lw=width, zorder=4)
    label = ax.text(0.98, 1.01, text, transform=ax.transAxes, ha="right", va="bottom", color=color)
    return [ax.add_artist(ring), label]


def _points_per_unit(ax: Axes) -> float:
    left, right = ax.get_xlim()
    bottom, top = ax.get_ylim()
    pixels = min(ax.bbox.width / (right - left), ax.bbox.height / (top - bottom))
    return float(72.0 * pixels / ax.figure.dpi)


def _opacity(probability: FloatArray, strength: float) -> FloatArray:
    return strength * (0.25 + 0.75 * np.clip(probability, 0.0, 1.0))


def _draw_legend(names: Sequence[str], ax: Axes, strength: float, *, with_colors: bool) -> None:
    """Explain colors, dashes and opacity; ``with_colors`` explains the class colors of states."""
    from matplotlib.legend_handler import HandlerTuple
    from matplotlib.lines import Line2D

    labels = [f"{name}, …" if len(names) > len(ACTION_COLORS) else name for name in names]
    labels = labels[: len(ACTION_COLORS)]
    handles: list[Any] = [Line2D([], [], color=color) for color in ACTION_COLORS[: len(labels)]]
    kinds = (
        ("transient (solid)", TRANSIENT_COLOR, "-"),
        ("recurrent (dashed)", RECURRENT_COLOR, DASHES),
    )
    for label, color, dashes in kinds:
        face = color if with_colors else "white"
        handles.append(Line2D([], [], color="black", lw=1, ls=dashes, marker="o", mfc=face, ms=9))
        labels.append(label)
    opacity = _opacity(np.array(SHOWN_PROBABILITIES), strength)
    handles.append(tuple(Line2D([], [], color="black", alpha=alpha) for alpha in opacity))
    labels.append("probability " + ", ".join(f"{p:g}" for p in SHOWN_PROBABILITIES))
    look: dict[str, Any] = {"bbox_to_anchor": (0.5, 0.0), "ncols": LEGEND_COLUMNS}
    look |= {"fontsize": 9, "handlelength": 3.5, "columnspacing": 1.2, "frameon": False}
    side_by_side = {tuple: HandlerTuple(ndivide=None, pad=0.8)}
    ax.legend(handles, labels, loc="upper center", handler_map=side_by_side, **look)


def render_state(
    mdp: OutcomeModel, mode: str, state: int, action: int | None = None, reward: float | None = None
) -> NDArray[np.uint8] | str:
    """Return the result of an environment's `render`, in a state after an action.

    Mode "ansi" is a line, "rgb_array" a picture (height, width, 3). All pictures of one MDP have
    one size; after the first they take a few milliseconds.
    """
    if mode == "ansi":
        require_integers(InvalidArgumentError, 0, mdp.n_states - 1, state=state)
        line = f"{mdp.name}: state {state} of {mdp.n_states} ({mdp.state_classes[state]})"
        if action is not None:
            require_integers(InvalidArgumentError, 0, mdp.n_actions - 1, action=action)
            line += f", after action {action}"
        return line if reward is None else f"{line} with reward {reward:g}"
    diagram, ax, canvas, background = _draw_once(mdp)
    canvas.restore_region(background)
    for artist in _mark_state(diagram, ax, state, action):
        ax.draw_artist(artist)
        artist.remove()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


@lru_cache(maxsize=8)
def _draw_once(mdp: OutcomeModel) -> tuple[Diagram, Any, Any, Any]:
    """Return an MDP's diagram, axes, canvas and background without the marker."""
    diagram = Diagram.of_mdp(mdp).above(None)
    ax = _make_axes(diagram)
    canvas = cast(Any, ax.figure.canvas)  # matplotlib leaves Agg's untyped
    _draw_background(diagram, ax)
    canvas.draw()
    return diagram, ax, canvas, canvas.copy_from_bbox(ax.figure.bbox)
