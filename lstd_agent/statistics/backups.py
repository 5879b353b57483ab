r"""Backups: how far a sample's target runs before it bootstraps (the paper's future work).

With v the approximator of a timestep's own neighbourhood, the target of timestep t is

- of one step, :math:`T_t = r_t - g + v(s_{t+1})`;
- of m steps, :math:`T_t^{(m)} = r_t - g + T_{t+1}^{(m-1)}` with :math:`T_t^{(0)} = v(s_t)`;
- of the λ-return, :math:`T_t = r_t - g + (1-\lambda) v(s_{t+1}) + \lambda T_{t+1}`,

and at the end of the trials, after t_max, every target is v. From transition counts targets
follow backwards in time by the empirical transition matrices of each timestep: they need no
trials, any m and λ can be had when fitting, and averages over all trials that meet in a state
take the place of single trials. Vector observations have none, and targets run along each trial,
which must have been kept. Windows of exact statistics by themselves have targets that go on
after t_max, with the operators :math:`P^m` and :math:`(1-\lambda) P (I - \lambda P)^{-1}`; those of
a linked system end like samples.

``"model"`` bootstraps never: see `lstd_agent.statistics.pooled`.
"""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy import sparse

from lstd_agent.arrays import FloatArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.statistics.blocks import Block


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
        is_integer = isinstance(self.steps, numbers.Integral) and not isinstance(self.steps, bool)
        if not is_integer or self.steps < 1:
            raise InvalidInputError(f"steps must be an integer from 1; got {self.steps!r}")
        object.__setattr__(self, "steps", int(self.steps))


@dataclass(frozen=True)
class LambdaReturn:
    """Targets that mix those of 1, 2, 3 … steps, as an argument of the agent.

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


DECAYS = (0.6, 0.9)
"""The λ that ``"auto"`` tries."""

_MOST_COMPARED = 1000
"""Of more dense features λ-returns are not among what ``"auto"`` tries."""

Backup: TypeAlias = Literal["one_step", "model"] | MultiStep | LambdaReturn
WantedBackup: TypeAlias = Backup | Literal["auto"]
"""What may be asked for: ``"auto"`` is one of the others, by the data."""


def check_backup(backup: Any) -> WantedBackup:
    """Validate a backup."""
    if isinstance(backup, MultiStep | LambdaReturn):
        return backup
    names: tuple[Literal["auto", "one_step", "model"], ...] = ("auto", "one_step", "model")
    for name in names:
        if isinstance(backup, str) and backup == name:
            return name
    raise InvalidInputError(
        "backup must be 'auto', 'one_step', 'model', MultiStep(steps) or LambdaReturn(decay); got "
        f"{backup!r}"
    )


def several_steps(backup: Backup) -> MultiStep | LambdaReturn | None:
    """Return a backup whose targets take several steps, or None."""
    if isinstance(backup, str) or backup in (MultiStep(1), LambdaReturn(0.0)):
        return None
    return backup


def why_single_steps(has_dense_trials: bool, d: int) -> str:
    """Return why ``"auto"`` tries single steps alone of d features of vectors, or nothing."""
    if not has_dense_trials:
        return "sums and sparse features of trials hold single steps only"
    if d > _MOST_COMPARED:
        return (
            f"of so many features ({d}) no lambda-returns are tried: give "
            "backup=LambdaReturn(decay) for one"
        )
    return ""


class Targets:
    """Targets of all states, backwards in time, as several columns of numbers.

    What is unknown of a value has a column for each of its coefficients, and what is a number one
    more, to which excess rewards are added.

    Parameters
    ----------
    backup : MultiStep or LambdaReturn
    gain : float
    values : ndarray, shape (S, q)
        Of the states after the last timestep, where all targets bootstrap.
    column : int
        Of the excess rewards.
    n_timesteps : int
        No target takes more steps than that.
    """

    def __init__(
        self,
        backup: MultiStep | LambdaReturn,
        gain: float,
        values: FloatArray,
        column: int,
        n_timesteps: int,
    ) -> None:
        self._backup = backup
        self._gain = gain
        self._column = column
        depth = min(backup.steps, n_timesteps) if isinstance(backup, MultiStep) else 1
        self.worth: FloatArray = np.repeat(values[None], depth, axis=0)
        """Targets of 1, 2 … m steps, or of the λ-return alone, shape (m or 1, S, q)."""

    def restart(self, worth: FloatArray, column: int) -> None:
        """Go on from targets in other columns."""
        self.worth, self._column = worth, column

    def go_on_forever(self, block: Block, values: FloatArray) -> None:
        """Take the targets of trials that go on by the same timestep without end."""
        if isinstance(self._backup, MultiStep):
            self.worth = np.repeat(values[None], self._backup.steps, axis=0)
            for _ in range(self._backup.steps):
                self.go_back(block, values, values)
            return
        decay = self._backup.decay
        if decay == 1.0:
            raise InvalidInputError(
                "LambdaReturn(1.0) of exact statistics never bootstraps, and its targets are not "
                "bounded: use a decay below 1"
            )
        from scipy.sparse.linalg import splu  # takes long to import

        right = (1.0 - decay) * (block.outer @ values)
        right[:, self._column] += block.rewards - self._gain
        P = block.outer[:, block.state]
        solved = splu(sparse.csc_array(sparse.eye_array(len(right)) - decay * P)).solve(right)
        self.worth[0, block.state] = solved

    def go_back(self, block: Block, values: FloatArray, unknown: FloatArray) -> FloatArray:
        """Return the targets (k, q) of a block's rows.

        States that are no rows bootstrap: trials may be cut short, or leave the policy for a
        timestep. A terminal state is worth 0 either way.

        Parameters
        ----------
        block : Block
        values : ndarray, shape (S, q)
            At the timestep after the block.
        unknown : ndarray, shape (S, q)
            At the timesteps of the block.
        """
        own = unknown if block.is_single else unknown[block.state]

        def right(inside: FloatArray, beyond: FloatArray) -> FloatArray:
            c = block.following(inside, beyond, unknown)
            c[:, self._column] += block.rewards - self._gain
            return c

        if isinstance(self._backup, MultiStep):
            targets = [right(own, values)]
            for worth in self.worth[:-1]:
                targets.append(right(targets[-1], worth))
        else:
            decay = self._backup.decay
            mixed = (1.0 - decay) * values + decay * self.worth[0]
            targets = [block.solver(decay)(right((1.0 - decay) * own, mixed))]
        # Whoever comes from the timestep before is at a state of the first one.
        first = block.state[: block.n_first]
        if len(first) < len(unknown):
            missing = np.ones(len(unknown), dtype=bool)
            missing[first] = False
            self.worth[:, missing] = unknown[missing]
        for worth, each in zip(self.worth, targets, strict=True):
            worth[first] = each[: len(first)]
        return targets[-1]
