"""The pictures of an environment's render modes: ``rgb_array`` and ``ansi``."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from unichain_gym.conventions import RenderMode
from unichain_gym.drawing import Diagram, check_member, draw_background, make_axes, mark_state
from unichain_gym.mdp import TabularMDP


def render_rgb(mdp: TabularMDP, state: int, action: int | None = None) -> NDArray[np.uint8]:
    """Return the picture of an MDP in a state after an action, shape (height, width, 3).

    All pictures of one MDP have one size. Its background is drawn once and kept, for the MDPs
    drawn last, so that a frame costs a few milliseconds. Errors are those of `draw_mdp`.
    """
    return _Animation.of(mdp).frame(state, action)


def render_ansi(mdp: TabularMDP, state: int, action: int | None, reward: float | None) -> str:
    """Return one line: state and its class, and what the last step did, if there was one."""
    check_member("state", state, mdp.n_states)
    line = f"{mdp.name}: state {state} of {mdp.n_states} ({mdp.state_classes[state]})"
    if action is not None:
        check_member("action", action, mdp.n_actions)
        line += f", after action {action}"
    if reward is not None:
        line += f" with reward {reward:g}"
    return line


def render_state(
    mdp: TabularMDP, mode: RenderMode, state: int, action: int | None, reward: float | None
) -> NDArray[np.uint8] | str:
    """Return what `render` of an environment returns in a mode of its ``render_modes``."""
    if mode == "ansi":
        return render_ansi(mdp, state, action, reward)
    return render_rgb(mdp, state, action)


class _Animation:
    """The picture of an MDP, drawn once, on which a marker moves."""

    def __init__(self, mdp: TabularMDP) -> None:
        self._diagram = Diagram.of_mdp(mdp).above(None)
        self._ax = make_axes(self._diagram)
        self._canvas: Any = cast(Any, self._ax.figure.canvas)  # matplotlib leaves Agg's untyped
        draw_background(self._diagram, self._ax)
        self._canvas.draw()
        self._background = self._canvas.copy_from_bbox(self._ax.figure.bbox)

    @staticmethod
    @lru_cache(maxsize=8)
    def of(mdp: TabularMDP) -> _Animation:
        """Return the animation of an MDP; an MDP is immutable, so one is enough."""
        return _Animation(mdp)

    def frame(self, state: int, action: int | None) -> NDArray[np.uint8]:
        self._canvas.restore_region(self._background)
        for artist in mark_state(self._diagram, self._ax, state, action):
            self._ax.draw_artist(artist)
            artist.remove()
        return np.asarray(self._canvas.buffer_rgba())[..., :3].copy()
