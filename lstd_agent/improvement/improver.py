"""What policy iteration asks of samples and policy, whichever way observations are kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from lstd_agent.arrays import BoolArray, FloatArray
from lstd_agent.packing import Arrays
from lstd_agent.trials.encoding import Encoding, States
from lstd_agent.trials.policies import Policy
from lstd_agent.trials.recorders import RecorderMaker
from lstd_agent.trials.recording import Round


class Earned(NamedTuple):
    """Mean rewards of trials: over the second half of all timesteps, and over all, (n,)."""

    tail: FloatArray
    whole: FloatArray


class Improver(Protocol):
    """A policy, and samples of this and other policies by which it is improved."""

    @property
    def encoding(self) -> Encoding:
        """How observations become states, or vectors."""

    @property
    def few_changes(self) -> int:
        """So many changes are none to go on for."""

    def recorder(self, t_max: int) -> RecorderMaker:
        """Return what makes recorders of trials."""

    def add(self, rounds: Sequence[Round]) -> Earned:
        """Add trials of the policy; return what they earned."""

    def evaluate_start(self) -> tuple[float, float]:
        """Return the policy's gain, and its mean bias of the start."""

    def improve(self) -> int:
        """Improve the policy; return in how many states it changed."""

    def action_values(self, states: States) -> FloatArray:
        """Return the policy's action values of encoded observations, shape (m, A)."""

    def policy(self, snapshot: Any = None) -> Policy:
        """Return the policy, or that of a snapshot."""

    def unknown(self) -> Callable[[Any], BoolArray] | None:
        """Return what tells of a batch of observations for which the policy has no action."""

    def snapshot(self) -> Any:
        """Return what tells this policy from earlier and later ones, as an array."""

    def arrays(self) -> Arrays:
        """Return samples and policy as arrays for a file."""

    def restore(self, arrays: Arrays) -> None:
        """Take samples and policy from the arrays of a saved search."""
