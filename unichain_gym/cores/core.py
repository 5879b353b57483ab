"""`Core`: the builder and the description of one recurrent core."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from unichain_gym.mdp import TabularMDP


class Argument(NamedTuple):
    """An option of a core: its default and its meaning in words."""

    default: Any
    meaning: str


@dataclass(frozen=True)
class Core:
    """A recurrent core: the function that builds it, and its description.

    Calling a core builds it: ``CORES["r"](n_states=8)`` is a `TabularMDP`.

    Parameters
    ----------
    letter, name : str
        The first letter of its mnemonics, and the name of the problem.
    build : callable
        The function that returns the core; its parameters are the core's options.
    actions : type of IntEnum, optional
        The names of the actions; None for actions without names.
    description, observations, rewards : str
        The dynamics, the meaning of state numbers, and the rewards, in Markdown.
    references : tuple of str
        Sources of the problem and its numbers.
    mnemonics : tuple of str
        The mnemonics with a registered id.
    state_names : tuple of str
        Names of the states under default options; empty for states without names.
    """

    letter: str
    name: str
    build: Callable[..., TabularMDP]
    actions: type[IntEnum] | None
    description: str
    observations: str
    rewards: str
    references: tuple[str, ...]
    mnemonics: tuple[str, ...]
    state_names: tuple[str, ...] = ()

    def __call__(self, **options: Any) -> TabularMDP:
        """Build the core; the arguments are its options."""
        return self.build(**options)

    @property
    def ids(self) -> tuple[str, ...]:
        """The registered environment ids."""
        return tuple(f"Unichain-{mnemonic}-v0" for mnemonic in self.mnemonics)

    @property
    def arguments(self) -> Mapping[str, Argument]:
        """The core's options by name, read from the builder's signature and docstring."""
        doc = inspect.getdoc(self.build) or ""
        section = re.search(r"^Parameters\n-+\n(.*?)(?=^\w+\n-+$|\Z)", doc, re.M | re.S)
        entries = re.findall(
            r"^(\S.*?) :.*\n((?:[ \t]+.*\n?)+)", section[1] if section else "", re.M
        )
        meanings = {
            name: " ".join(text.split()) for names, text in entries for name in names.split(", ")
        }
        parameters = inspect.signature(self.build).parameters
        return {name: Argument(p.default, meanings.get(name, "")) for name, p in parameters.items()}

    def action_name(self, action: int) -> str:
        """Return an action's name in lower case, or its number if it has none."""
        return str(action) if self.actions is None else self.actions(action).name.lower()
