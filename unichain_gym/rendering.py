"""The pictures of an environment's render modes: ``rgb_array`` and ``ansi``."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from unichain_gym.conventions import RenderMode
from unichain_gym.drawing import Diagram, check_member, draw_background, make_axes, mark_state
from unichain_gym.mdp import TabularMDP


def render_state(
    mdp: TabularMDP, mode: RenderMode, state: int, action: int | None, reward: float | None
) -> NDArray[np.uint8] | str:
    """Return what `render` of an environment returns in a mode of its ``render_modes``."""
    if mode == "ansi":
        return render_ansi(mdp, state, action, reward)
    return render_rgb(mdp, state, action)


def render_ansi(mdp: TabularMDP, state: int, action: int | None, reward: float | None) -> str:
    """Return one line: state and its class, and what the last step did, if there was one."""
    check_member("state", state, mdp.n_states)
    line = f"{mdp.name}: state {state} of {mdp.n_states} ({mdp.state_classes[state]})"
    if action is not None:
        check_member("action", action, mdp.n_actions)
        line += f", after action {action}"
    return line if reward is None else f"{line} with reward {reward:g}"


def render_rgb(mdp: TabularMDP, state: int, action: int | None = None) -> NDArray[np.uint8]:
    """Return the picture of an MDP in a state after an action, shape (height, width, 3).

    All pictures of one MDP have one size, and take a few milliseconds after the first.
    """
    diagram, ax, canvas, background = _draw_once(mdp)
    canvas.restore_region(background)
    for artist in mark_state(diagram, ax, state, action):
        ax.draw_artist(artist)
        artist.remove()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


@lru_cache(maxsize=8)
def _draw_once(mdp: TabularMDP) -> tuple[Diagram, Any, Any, Any]:
    """Return diagram, axes, canvas and background, on which a marker moves, of an MDP."""
    diagram = Diagram.of_mdp(mdp).above(None)
    ax = make_axes(diagram)
    canvas = cast(Any, ax.figure.canvas)  # matplotlib leaves Agg's untyped
    draw_background(diagram, ax)
    canvas.draw()
    return diagram, ax, canvas, canvas.copy_from_bbox(ax.figure.bbox)
