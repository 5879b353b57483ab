"""All trials collected so far, kept in a few batches.

The sums of any batch estimate the same thing independently, which is what standard errors are
made of. Rounds of trials go whole into the batch that has the fewest trials so far.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from lstd_agent.errors import InvalidInputError
from lstd_agent.trials.encoding import States, Sums
from lstd_agent.trials.recording import Round


@dataclass
class Batches:
    """Sums of trials in at most ``n_batches`` batches, and a sample of whole trials.

    Parameters
    ----------
    n_batches : int
        More batches take more memory, each as much as all trials together at worst.
    n_stored_trials : int
        How many trials to keep whole. Trials are alike, so the first are as good as any.
    """

    n_batches: int
    n_stored_trials: int
    sums: list[Any] = field(default_factory=list)
    _stored: list[States] = field(default_factory=list)

    @property
    def n_trials(self) -> int:
        """Number of trials so far."""
        return sum(batch.n_trials for batch in self.sums)

    @property
    def t_max(self) -> int | None:
        """The last timestep of every trial; None before there is one."""
        return int(self.sums[0].t_max) if self.sums else None

    @property
    def n_stored_missing(self) -> int:
        """How many more trials there is room for."""
        return max(0, self.n_stored_trials - sum(len(states) for states in self._stored))

    @property
    def total(self) -> Sums:
        """The sums over all trials."""
        return reduce(add, self.sums)

    @property
    def trials(self) -> States | None:
        """The stored trials, shape (m, t_max + 1, ...)."""
        if len(self._stored) > 1:
            self._stored = [np.concatenate(self._stored)]
        return self._stored[0] if self._stored else None

    def add(self, finished: Round) -> None:
        """Add a finished round."""
        self.check_t_max(finished.counts.t_max)
        if len(self.sums) < self.n_batches:
            self.sums.append(finished.counts)
        else:
            smallest = int(np.argmin([batch.n_trials for batch in self.sums]))
            self.sums[smallest] = self.sums[smallest] + finished.counts
        self.keep(finished.states)

    def keep(self, trials: States) -> None:
        """Store whole trials (m, t_max + 1, ...), as many as there is room for."""
        if len(trials) and self.n_stored_missing:
            self._stored.append(trials[: self.n_stored_missing])

    def merge(self, other: Batches) -> None:
        """Add another agent's trials, batch by batch."""
        if other.t_max is None:
            return
        self.check_t_max(other.t_max)
        if self.sums:  # all or nothing: before the first batch is added
            self.sums[0].check_adds(other.sums[0])
        for sums in list(other.sums):  # a copy, since the other may be this one
            self.add(Round(sums, np.empty(0)))
        if other.trials is not None:
            self.keep(other.trials)

    def check_t_max(self, t_max: int) -> None:
        """Raise `InvalidInputError` if the trials so far have another last timestep."""
        if self.t_max not in (None, t_max):
            raise InvalidInputError(
                f"the trials collected so far have t_max = {self.t_max}; got {t_max}. "
                "Collect with the same t_max, or make a new agent"
            )
