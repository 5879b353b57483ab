"""Pictures show what they say: colors, marks, edges; and files, errors and imports."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from unichain_gym import MarkovChain, TabularMDP, make_mdp
from unichain_gym.drawing import (
    ACTION_COLORS,
    RECURRENT_COLOR,
    TRANSIENT_COLOR,
    Diagram,
    draw_mdp,
    render_state,
)
from unichain_gym.errors import InvalidArgumentError, MissingDependencyError
from unichain_gym.layout import NODE_RADIUS


def frame(mdp, state, action) -> Any:
    return render_state(mdp, "rgb_array", state, action)


def pixels(figure):
    """The picture (height, width, 3), and where the layout's places are in it (row, column)."""
    figure.canvas.draw()
    picture = np.asarray(figure.canvas.buffer_rgba())[..., :3]

    def place(position):
        column, up = figure.axes[0].transData.transform(position).T
        return picture.shape[0] - 1 - up, column

    return picture, place


def colors_of_states(figure, mdp):
    """Colors (S, 3) just under the upper rim of each state, clear of its number."""
    picture, place = pixels(figure)
    row, column = place(Diagram.of_mdp(mdp).layout.position + np.array([0.0, 0.75 * NODE_RADIUS]))
    return picture[row.round().astype(int), column.round().astype(int)] / 255


def n_edges(figure):
    lines = [c for c in figure.axes[0].collections if isinstance(c, LineCollection)]
    return sum(len(c.get_segments()) for c in lines)


@pytest.mark.parametrize("mnemonic", ["h6", "x9d", "h36c", "h100"])
def test_transient_states_are_green_and_recurrent_ones_gray(mnemonic):
    mdp = make_mdp(mnemonic)
    recurrent = mdp.induce(np.zeros(mdp.n_states, dtype=int)).recurrent_states
    expected = np.tile(to_rgb(TRANSIENT_COLOR), (mdp.n_states, 1))
    expected[recurrent] = to_rgb(RECURRENT_COLOR)
    assert np.abs(colors_of_states(draw_mdp(mdp), mdp) - expected).max() < 0.01


def test_values_color_the_states_by_their_place_between_the_extremes():
    mdp = make_mdp("h36c")
    bias = mdp.induce(np.ones(36, dtype=int)).bias
    figure = draw_mdp(mdp, values=bias)
    expected = matplotlib.colormaps["viridis"](Normalize(bias.min(), bias.max())(bias))[:, :3]
    assert np.abs(colors_of_states(figure, mdp) - expected).max() < 0.01
    colorbar = figure.axes[0].child_axes[0]
    assert colorbar.get_ylim() == pytest.approx((bias.min(), bias.max()))


def legend_of(figure):
    """What the legend says: label to the artists beside it."""
    legend = figure.axes[0].get_legend()
    labels = [text.get_text() for text in legend.get_texts()]
    return dict(zip(labels, legend.legend_handles, strict=True))


def test_the_legend_explains_colors_dashes_and_opacity():
    figure = draw_mdp(make_mdp("h36c"))
    legend = legend_of(figure)
    assert [to_rgb(legend[f"action {a}"].get_color()) for a in (0, 1)] == [
        to_rgb(color) for color in ACTION_COLORS[:2]
    ]
    transient, recurrent = legend["transient (solid)"], legend["recurrent (dashed)"]
    assert (transient.get_linestyle(), recurrent.get_linestyle()) == ("-", "--")
    assert transient.get_markerfacecolor() == TRANSIENT_COLOR
    assert recurrent.get_markerfacecolor() == RECURRENT_COLOR
    assert "probability 1, 0.5, 0.1" in legend


def test_the_legend_and_the_arrows_have_the_same_opacity():
    """A transition of each probability, in a thicket of ten states and in a ring of three."""
    for n in (3, 10):
        P = np.zeros((n, 3, n))
        P[:, 0] = np.eye(n)[(np.arange(n) + 1) % n]
        P[:, 1, :2] = 0.5
        P[:, 2] = np.full(n, 1 / n) if n == 10 else [0.1, 0.1, 0.8]
        figure = draw_mdp(TabularMDP.from_arrays(P, np.zeros((n, 3)), np.eye(n)[0]))
        drawn = {
            round(float(color[3]), 6)
            for lines in figure.axes[0].collections
            if isinstance(lines, LineCollection)
            for color in np.array(lines.get_colors())
        }
        legend = figure.axes[0].get_legend()
        assert legend is not None
        lines = [line for line in legend.findobj(Line2D) if isinstance(line, Line2D)]
        shown = {round(alpha, 6) for line in lines if (alpha := line.get_alpha()) is not None}
        assert len(shown) == 3
        assert shown <= drawn


@pytest.mark.parametrize("n_actions", [1, 8, 12])
@pytest.mark.parametrize("with_values", [False, True])
def test_the_legend_fits_on_the_picture(n_actions, with_values):
    P = np.full((4, n_actions, 4), 0.25)
    mdp = TabularMDP.from_arrays(P, np.zeros((4, n_actions)), np.full(4, 0.25))
    figure = draw_mdp(mdp, values=np.arange(4) if with_values else None)
    figure.canvas.draw()
    legend = figure.axes[0].get_legend()
    assert legend is not None
    extent = legend.get_window_extent()
    assert extent.x0 >= 0
    assert extent.y0 >= 0
    assert extent.x1 <= figure.bbox.x1


def test_there_is_an_edge_for_every_possible_transition():
    mdp = make_mdp("h6")
    # Two for each transient state and action; of the core's rows only (s1, a0) has a zero.
    assert n_edges(draw_mdp(mdp)) == 3 * 2 * 2 + 3 * 2 * 3 - 1
    # From the start to the third state by action 0, then the core by action 1.
    assert n_edges(draw_mdp(mdp, policy=[0, 0, 0, 1, 1, 1])) == 3 * 2 + 3 * 3


def test_only_the_likely_of_many_transitions_are_drawn_and_the_title_says_so():
    mdp = make_mdp("q44")
    figure = mdp.plot()
    n_rows = mdp.n_states * mdp.n_actions
    assert n_rows <= n_edges(figure) <= 5 * n_rows < n_edges(mdp.plot(above=0.0))
    assert title_of(figure) == "q44: probabilities ≥ 0.1, and the likeliest"
    assert title_of(mdp.plot(above=0.0)) == "q44"
    # Everywhere the likeliest transition of a state and action stays.
    assert n_edges(mdp.plot(above=1.0)) == n_rows
    assert title_of(make_mdp("h36c").plot()) == "h36c"


def title_of(figure):
    return figure.axes[0].get_title(loc="left")


def test_a_chain_is_drawn_by_its_own_transitions_and_its_bias(tmp_path):
    P = [[0.5, 0.5, 0.0], [0.2, 0.3, 0.5], [0.0, 0.0, 1.0]]
    chain = MarkovChain(P, [1.0, 2.0, 0.0], [1, 0, 0])
    figure = chain.plot(tmp_path / "chain.png")
    assert (tmp_path / "chain.png").exists()
    assert n_edges(figure) == 6
    assert figure.axes[0].child_axes[0].get_ylabel() == "bias"
    assert "transition" in legend_of(figure)
    mdp = make_mdp("h6")
    policy = [0, 0, 0, 1, 1, 1]
    assert n_edges(mdp.induce(policy).plot()) == n_edges(mdp.plot(policy=policy))
    # An action that is never taken does not make a state recurrent.
    both = np.array([[[1, 0], [0, 1]], [[0, 1], [1, 0]]])
    stays = TabularMDP.from_arrays(both, np.zeros(2), [1, 0], order="ass")
    by_chain = Diagram.of_chain(stays.induce([0, 1])).layout.is_recurrent
    assert by_chain.tolist() == [True, False]


def test_frames_differ_only_in_the_mark_and_come_back_exactly():
    mdp = make_mdp("h36c")
    first, second, again = (frame(mdp, state, 1) for state in (3, 17, 3))
    assert first.dtype == np.uint8
    assert first.shape == second.shape
    assert first.shape[0] % 2 == first.shape[1] % 2 == 0
    assert (first == again).all()
    assert not np.shares_memory(first, again)
    _, place = pixels(draw_mdp(mdp))
    row, column = place(Diagram.of_mdp(mdp).layout.position[[3, 17]])
    unit = np.diff(place([[0.0, 0.0], [1.0, 0.0]])[1])[0]
    changed = np.argwhere((first != second).any(axis=2))
    distance = np.hypot(changed[:, :1] - row, changed[:, 1:] - column)
    near = distance < 2 * NODE_RADIUS * unit
    assert near.any(axis=0).all()
    assert (changed[~near.any(axis=1), 0] < 40).all()  # the line of text above


def test_the_current_state_is_ringed_in_the_color_of_the_last_action():
    mdp = make_mdp("h36c")
    _, place = pixels(draw_mdp(mdp))
    angle = np.linspace(0, 2 * np.pi, 60, endpoint=False)
    ring = 1.3 * NODE_RADIUS * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    row, column = (
        x.round().astype(int) for x in place(Diagram.of_mdp(mdp).layout.position[5] + ring)
    )
    for action, color in ((0, ACTION_COLORS[0]), (1, ACTION_COLORS[1]), (None, "black")):
        for picture in (
            frame(mdp, 5, action),
            pixels(draw_mdp(mdp, state=5, action=action))[0],
        ):
            assert np.abs(picture[row, column] / 255 - to_rgb(color)).max() < 0.02
        assert np.abs(frame(mdp, 6, action)[row, column] / 255 - to_rgb(color)).max() > 0.2


def test_ansi_is_one_line_that_names_state_class_action_and_reward():
    mdp = make_mdp("h36c")
    assert render_state(mdp, "ansi", 12, 1, 1.0) == (
        "h36c: state 12 of 36 (transient), after action 1 with reward 1"
    )
    assert render_state(mdp, "ansi", 33, 0, 2.75) == (
        "h36c: state 33 of 36 (recurrent), after action 0 with reward 2.75"
    )
    assert render_state(mdp, "ansi", 0, None, None) == "h36c: state 0 of 36 (transient)"


@pytest.mark.parametrize(
    ("name", "signature"), [("a.png", b"\x89PNG"), ("a.pdf", b"%PDF"), ("a.svg", b"<?xml")]
)
def test_plot_writes_the_format_of_the_file_name(tmp_path, name, signature):
    make_mdp("x9d").plot(tmp_path / name, values=np.arange(9))
    assert (tmp_path / name).read_bytes().startswith(signature)


def test_axes_of_the_user_are_drawn_on():
    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert draw_mdp(make_mdp("h6"), ax=right) is figure
    assert not left.collections
    assert right.collections


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"values": [1.0, 2.0]}, r"values must be 6 finite numbers, one a state; got \[1.0, 2.0\]"),
        (
            {"values": [0, 0, np.nan, 0, 0, 0]},
            "values must be 6 finite numbers, one a state; got .*nan",
        ),
        ({"state": 6}, "state must be from 0 to 5; got 6"),
        ({"state": 0, "action": -1}, "action must be from 0 to 1; got -1"),
    ],
)
def test_arguments_that_do_not_fit_the_mdp_are_refused(arguments, message):
    mdp = make_mdp("h6")
    with pytest.raises(InvalidArgumentError, match=message):
        draw_mdp(mdp, **arguments)
    for mode, action in (("rgb_array", 2), ("ansi", -1)):
        with pytest.raises(InvalidArgumentError, match=f"from 0 to 1; got {action}"):
            render_state(mdp, mode, 0, action)


def test_without_matplotlib_the_error_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    mdp = make_mdp("h6")
    for draw in (
        lambda: render_state(mdp, "rgb_array", 0, 0),
        lambda: draw_mdp(mdp),
        lambda: mdp.plot(tmp_path / "a.png"),
    ):
        with pytest.raises(MissingDependencyError, match=r'pip install "unichain-gym\[plot\]"'):
            draw()
    assert render_state(mdp, "ansi", 0, None, None) == "h6: state 0 of 6 (transient)"


def test_an_id_with_its_module_imports_no_heavy_library_and_no_pyplot():
    code = """
import sys, warnings, gymnasium as gym
assert "unichain_gym" not in sys.modules
warnings.simplefilter("error")
env = gym.make("unichain_gym:Unichain-h6-v0", render_mode="rgb_array")
heavy = {"matplotlib", "ot", "scipy.stats", "scipy.optimize", "torch", "numba"}
assert not heavy & set(sys.modules)
warnings.simplefilter("default")  # the lowest Matplotlib warns of its own imports
env.reset(seed=0), env.render()
assert "matplotlib" in sys.modules
assert "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
