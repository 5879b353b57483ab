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
from lstd_agent.trials.action_counts import ActionCounts, together
from lstd_agent.trials.encoding import States
from lstd_agent.trials.kept_trials import KeptTrials, RowsOf
from lstd_agent.trials.recording import Round, Sums


@dataclass
class Batches:
    """Sums of trials in at most ``n_batches`` batches, and a sample of whole trials.

    Parameters
    ----------
    n_batches : int
        More batches take more memory, each as much as all trials together at worst.
    n_stored_trials : int
        How many trials to keep whole. Trials are alike, so the first are as good as any.

    Attributes
    ----------
    sums : list of sums
    taken : list of ActionCounts or None
        What actions led to, in the trials of each batch of which that was recorded.
    """

    n_batches: int
    n_stored_trials: int
    sums: list[Any] = field(default_factory=list)
    taken: list[ActionCounts | None] = field(default_factory=list)
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
    def are_kept(self) -> bool:
        """Whether there are trials, and they are kept as they are."""
        return bool(self.sums) and isinstance(self.sums[0], KeptTrials)

    @property
    def nbytes(self) -> int:
        """Memory that kept trials take."""
        return sum(batch.nbytes for batch in self.sums) if self.are_kept else 0

    @property
    def n_stored_missing(self) -> int:
        """How many more trials there is room for."""
        return max(0, self.n_stored_trials - sum(len(states) for states in self._stored))

    @property
    def total(self) -> Sums:
        """The sums over all trials."""
        if self.are_kept:
            return KeptTrials.together(self.sums)
        total: Sums = reduce(add, self.sums)
        return total

    @property
    def trials(self) -> States | None:
        """Up to ``n_stored_trials`` whole trials, shape (m, t_max + 1, ...); None without any."""
        if self.are_kept:
            states: list[States] = []
            n_missing = self.n_stored_trials
            for batch in self.sums:
                if n_missing > 0:
                    states.append(batch.states(n_missing))
                    n_missing -= len(states[-1])
            return np.concatenate(states) if states else None
        if len(self._stored) > 1:
            self._stored = [np.concatenate(self._stored)]
        return self._stored[0] if self._stored else None

    def add(self, finished: Round) -> None:
        """Add a finished round."""
        self.check_t_max(finished.sums.t_max)
        if len(self.sums) < self.n_batches:
            if self.sums:
                self.sums[0].check_adds(finished.sums)
            self.sums.append(finished.sums)
            self.taken.append(finished.taken)
        else:
            smallest = int(np.argmin([batch.n_trials for batch in self.sums]))
            self.sums[smallest] = self.sums[smallest] + finished.sums
            self.taken[smallest] = together(self.taken[smallest], finished.taken)
        self.keep(finished.stored)

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
        mine, theirs = together(*self.taken), together(*other.taken)
        if mine is not None and theirs is not None:
            mine.check_adds(theirs)
        # Read before anything is added, since the other may be this one.
        rounds = [
            Round(sums, np.empty(0), taken)
            for sums, taken in zip(other.sums, other.taken, strict=True)
        ]
        stored = None if other.are_kept else other.trials
        for each in rounds:
            self.add(each)
        if stored is not None:
            self.keep(stored)

    def condense(self, features: RowsOf, n_batches: int, n_stored_trials: int) -> None:
        """Put moments in place of kept trials, and keep a sample of them whole."""
        self.n_stored_trials = n_stored_trials
        stored = self.trials
        portions = [self.sums[i::n_batches] for i in range(min(n_batches, len(self.sums)))]
        self.sums = [KeptTrials.together(portion).condense(features) for portion in portions]
        self.taken = [None] * len(self.sums)
        self.n_batches = n_batches
        if stored is not None:
            self.keep(stored)

    def check_t_max(self, t_max: int) -> None:
        """Raise `InvalidInputError` if the trials so far have another last timestep."""
        if self.t_max not in (None, t_max):
            raise InvalidInputError(
                f"the trials collected so far have t_max = {self.t_max}; got {t_max}. "
                "Collect with the same t_max, or forget them with reset()"
            )
