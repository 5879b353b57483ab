r"""Backups: how far a sample's target runs before it bootstraps (the paper's future work).

With v the approximator of a timestep's own neighbourhood, the target of timestep t is

- of one step, :math:`T_t = r_t - g + v(s_{t+1})`;
- of m steps, :math:`T_t^{(m)} = r_t - g + T_{t+1}^{(m-1)}` with :math:`T_t^{(0)} = v(s_t)`;
- of the λ-return, :math:`T_t = r_t - g + (1-\lambda) v(s_{t+1}) + \lambda T_{t+1}`.

After t_max every target is v. ``"model"`` never bootstraps: see `lstd_agent.system.model`.
"""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from lstd_agent.errors import InvalidInputError, check_integer


@dataclass(frozen=True)
class MultiStep:
    """Targets of m steps, as an argument of the agent.

    Parameters
    ----------
    steps : int
        m, at least 1. Targets that reach the end of the trials bootstrap there.

    Examples
    --------
    >>> from lstd_agent import MultiStep, OneHot, SeminormLSTDAgent
    >>> SeminormLSTDAgent(OneHot(), backup=MultiStep(5)).backup
    MultiStep(steps=5)
    """

    steps: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", check_integer("steps", self.steps, 1))


@dataclass(frozen=True)
class LambdaReturn:
    """A weighted mean of the targets of 1, 2, 3 … steps, as an argument of the agent.

    Parameters
    ----------
    decay : float
        λ, from 0 (one step) to 1 (to the end of the trials).

    Examples
    --------
    >>> from lstd_agent import LambdaReturn, OneHot, SeminormLSTDAgent
    >>> SeminormLSTDAgent(OneHot(), backup=LambdaReturn(0.6)).backup
    LambdaReturn(decay=0.6)
    """

    decay: float

    def __post_init__(self) -> None:
        is_number = isinstance(self.decay, numbers.Real) and not isinstance(self.decay, bool)
        if not is_number or not 0.0 <= self.decay <= 1.0:
            raise InvalidInputError(f"decay (lambda) must be from 0 to 1; got {self.decay!r}")
        object.__setattr__(self, "decay", float(self.decay))


Backup: TypeAlias = Literal["one_step", "model"] | MultiStep | LambdaReturn
WantedBackup: TypeAlias = Backup | Literal["auto"]


def check_backup(backup: Any) -> None:
    """Raise `InvalidInputError` unless it is a backup, or ``"auto"``."""
    is_name = isinstance(backup, str) and backup in ("auto", "one_step", "model")
    if not is_name and not isinstance(backup, MultiStep | LambdaReturn):
        every = "'auto', 'one_step', 'model', MultiStep(steps) or LambdaReturn(decay)"
        raise InvalidInputError(f"backup must be {every}; got {backup!r}")


def is_one_step(backup: Backup) -> bool:
    """Whether targets have one step, whichever class says so."""
    return backup in ("one_step", MultiStep(1), LambdaReturn(0.0))


def backup_name(backup: Backup) -> str:
    """Return a short name."""
    if isinstance(backup, LambdaReturn):
        return f"lambda {backup.decay:g}"
    if isinstance(backup, MultiStep):
        return f"{backup.steps} steps"
    return backup.replace("_", " ")
