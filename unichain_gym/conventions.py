"""What environments have in common: render modes, information, action masks, near names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import ArrayLike, NDArray

from unichain_gym.arrays import IntArray
from unichain_gym.errors import InvalidArgumentError
from unichain_gym.mdp import TabularMDP
from unichain_gym.outcomes import require_integers
from unichain_gym.summary import abbreviate

INFO_LEVELS = ("minimal", "full")
RENDER_MODES = ("rgb_array", "ansi")
RENDER_METADATA: dict[str, Any] = {"render_modes": list(RENDER_MODES), "render_fps": 4}


def action_masks(mdp: TabularMDP) -> NDArray[np.int8] | None:
    """Return Gymnasium's action mask of each state, shape (S, A); None if all are all ones."""
    allowed = mdp.allowed_actions
    return None if allowed.all() else allowed.astype(np.int8)


def check_allowed(mdp: TabularMDP, state: int, action: int, whose: str = "") -> None:
    """Raise `InvalidArgumentError` if a state lacks an action."""
    if not mdp.allowed_actions[state, action]:
        has = abbreviate(np.flatnonzero(mdp.allowed_actions[state]))
        raise InvalidArgumentError(
            f"{whose}state {state} lacks action {action}; it has: {has} (infos tell by "
            "'action_mask')"
        )


def read_actions(actions: ArrayLike, n: int) -> IntArray:
    """Return the actions of n environments as integers, or raise `InvalidArgumentError`."""
    array = np.asarray(actions)
    if array.shape != (n,) or array.dtype.kind not in "iu":
        raise InvalidArgumentError(
            f"actions must be integers of shape ({n},); got {array.dtype} of shape {array.shape}"
        )
    return array.astype(np.int64, copy=False)


def refuse_actions(
    mdp: TabularMDP, states: IntArray, actions: IntArray, given: NDArray[Any]
) -> None:
    """Raise `InvalidArgumentError` for the first action (n,) that there is not, or not there."""
    wrong = (actions < 0) | (actions >= mdp.n_actions)
    if wrong.any():
        i = int(np.argmax(wrong))
        raise InvalidArgumentError(
            f"an action is an integer from 0 to {mdp.n_actions - 1}; environment {i} got {given[i]}"
        )
    i = int(np.argmin(mdp.allowed_actions[states, actions]))
    check_allowed(mdp, int(states[i]), int(actions[i]), f"environment {i}: ")


def check_info_level(info_level: str) -> str:
    """Return ``info_level``, or raise `InvalidArgumentError` if there is no such level."""
    return _check_choice("info_level", info_level, INFO_LEVELS)


def check_render_mode(render_mode: str | None) -> str | None:
    """Return ``render_mode``, or raise `InvalidArgumentError` if there is no such mode."""
    return None if render_mode is None else _check_choice("render_mode", render_mode, RENDER_MODES)


def _check_choice(name: str, value: str, known: Sequence[str]) -> str:
    if value not in known:
        raise InvalidArgumentError(
            f"unknown {name} {value!r}{nearest_name(value, known)}; it is one of {', '.join(known)}"
        )
    return value


def check_positive(name: str, value: int) -> None:
    """Raise `InvalidArgumentError` unless a number is a positive integer."""
    require_integers(InvalidArgumentError, **{name: value})
    if value < 1:
        raise InvalidArgumentError(f"{name} must be at least 1; got {value}")


def read_autoreset_mode(mode: AutoresetMode | str) -> AutoresetMode:
    """Return Gymnasium's mode of this name, or raise `InvalidArgumentError`."""
    try:
        return AutoresetMode(mode)
    except ValueError:
        known = [m.value for m in AutoresetMode]
        raise InvalidArgumentError(
            f"unknown autoreset_mode {mode!r}{nearest_name(mode, known)}; it is one of "
            f"{', '.join(known)}"
        ) from None


def nearest_name(name: object, known: Iterable[str]) -> str:
    """Return the piece of a message that suggests the known name spelled most like ``name``."""
    folded = {k.lower().replace("_", ""): k for k in known}
    close = get_close_matches(str(name).lower().replace("_", ""), folded, n=1, cutoff=0.7)
    return f" (did you mean {folded[close[0]]!r}?)" if close else ""
