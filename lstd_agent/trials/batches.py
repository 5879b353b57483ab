"""All trials of an agent: counted in batches with a sample of whole ones, or kept.

The sums of any batch estimate the same thing independently; standard errors compare them. Counted
trials are dealt into batches as they come. Kept ones are dealt at fit time, by their content
(`lstd_agent.trials.samples`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from lstd_agent.arrays import States
from lstd_agent.errors import InvalidInputError
from lstd_agent.trials.action_counts import ActionCounts, together
from lstd_agent.trials.counted import CountedTrials
from lstd_agent.trials.counts import TransitionCounts
from lstd_agent.trials.kept import GrowingTrials, KeptTrials, check_both_timed, in_words
from lstd_agent.trials.recording import Portion
from lstd_agent.trials.samples import TrialSample, batch_of

DEFAULT_MAX_BYTES = 2**30

# Standardized features are measured on at most so many numbers.
_MOST_MEASURED = 2**26


class Batches:
    """Trials in at most ``n_batches`` batches.

    Parameters
    ----------
    n_batches : int
    n_stored_trials : int
        How many counted trials to keep whole.
    max_bytes : int
        Kept trials beyond are held in temporary files.

    Attributes
    ----------
    sums : list of TransitionCounts
        Of each batch that has any; empty where trials are kept.
    sample : TrialSample or None
        Counted trials that are kept whole.
    """

    def __init__(self, n_batches: int, n_stored_trials: int, max_bytes: int) -> None:
        self.n_batches, self.n_stored_trials = n_batches, n_stored_trials
        self.max_bytes = max_bytes
        # Portions of counted trials, each several times as large as the next: adding a small one
        # to all of them each time would take long.
        self._counted: list[CountedTrials] = []
        self._kept = GrowingTrials(max_bytes)
        self._dealt: KeptTrials | None = None

    @property
    def n_trials(self) -> int:
        """Number of trials so far."""
        return self._kept.n_trials + sum(portion.n_trials for portion in self._counted)

    @property
    def t_max(self) -> int | None:
        """The last timestep of every trial; None before there is one."""
        if self._kept.n_trials:
            return self._kept.trials.t_max
        return self._counted[0].t_max if self._counted else None

    @property
    def durations(self) -> Any:
        """The durations of steps, as any portion has them; None without them or any trials."""
        if self.are_kept:
            return self._kept.trials.durations
        return self._counted[0].duration_sums if self._counted else None

    @property
    def are_kept(self) -> bool:
        """Whether there are trials, and they are kept as they are."""
        return self._kept.n_trials > 0

    @property
    def kept(self) -> KeptTrials:
        """All kept trials, in the order in which they came."""
        return self._kept.trials

    @property
    def counts(self) -> TransitionCounts:
        """The counts of all trials."""
        batches = self.sums
        return sum(batches[1:], batches[0])

    @property
    def sums(self) -> list[TransitionCounts]:
        """The counts of each batch that has any; none where trials are kept."""
        return [self._all.batch(b) for b in self._present] if self._counted else []

    @property
    def sample(self) -> TrialSample | None:
        """Up to ``n_stored_trials`` counted trials that are kept whole; None of none."""
        return self._all.sample if self._counted else None

    @property
    def taken(self) -> list[ActionCounts | None]:
        """What actions led to in each batch that has trials."""
        if self.are_kept:
            return [None] * min(self.n_batches, self.n_trials)
        each = self._all.taken if self._counted else None
        return [None if each is None else each[b] for b in self._present]

    @property
    def total(self) -> KeptTrials:
        """All kept trials, in an order that depends on them alone, batch after batch."""
        if self._dealt is None:
            order, _ = batch_of(self._kept.trials, self.n_batches)
            self._dealt = self._kept.trials.take(order, in_file=self._kept.in_file)
        return self._dealt

    @property
    def portion(self) -> Portion | None:
        """All trials as one portion: adding it to none gives the same again."""
        if self.are_kept:
            return self.kept
        return self._all if self._counted else None

    @property
    def _all(self) -> CountedTrials:
        while len(self._counted) > 1:
            self._merge_last()
        return self._counted[0]

    @property
    def _present(self) -> list[int]:
        """The batches that have counted trials."""
        present = np.flatnonzero(self._all.n_by_batch) if self._counted else np.zeros(0, np.int64)
        return [int(b) for b in present]

    def add(self, portion: Portion) -> None:
        """Add trials, counted in as many batches, or kept."""
        self.check_t_max(portion.t_max)
        self._dealt = None
        if isinstance(portion, KeptTrials):
            self._kept.add(portion)
            return
        if self._counted:
            check_both_timed(self.durations, portion.duration_sums)
        self._counted.append(self._trimmed(portion))
        while len(self._counted) > 1 and self._counted[-2].size < 2 * self._counted[-1].size:
            self._merge_last()

    def _merge_last(self) -> None:
        last = self._counted.pop()
        self._counted[-1] = self._trimmed(self._counted[-1] + last)

    def _trimmed(self, portion: CountedTrials) -> CountedTrials:
        """Return a portion with no more whole trials than are to be kept."""
        sample, most = portion.sample, self.n_stored_trials
        if sample is None or len(sample.hashes) <= most:
            return portion
        return replace(portion, sample=sample.least(most) if most else None)

    def add_counts(self, counts: TransitionCounts) -> None:
        """Add counts, which cannot be told apart by trials, to the batch that has fewest."""
        if self._counted:
            self._counted[0].batch(0).check_adds(counts)
        self.add(CountedTrials.of(counts, self._smallest, self.n_batches))

    @property
    def _smallest(self) -> int:
        """The first of the batches with the fewest counted trials."""
        n = sum((each.n_by_batch for each in self._counted), np.zeros(self.n_batches, np.int64))
        return int(np.argmin(n))

    def merge(self, theirs: Batches) -> None:
        """Add the trials of another agent, all or nothing; it may be the same."""
        if theirs.t_max is None:
            return
        self.check_t_max(theirs.t_max)
        if theirs.are_kept:
            if self.are_kept:
                self.kept.check_adds(theirs.kept)
            self.add(theirs.kept)
            return
        if self._counted:
            self._counted[0].batch(0).check_adds(theirs._all.batch(0))
        ours, added = together(*self.taken), together(*theirs.taken)
        if ours is not None and added is not None:
            ours.check_adds(added)
        samples = [theirs.sample]
        for counts, taken in list(zip(theirs.sums, theirs.taken, strict=True)):
            sample = samples.pop() if samples else None
            self.add(CountedTrials.of(counts, self._smallest, self.n_batches, taken, sample))

    def some_observations(self) -> States:
        """Return kept observations (m, t_max + 2, k) that standardized features are measured on."""
        trials = self.total.observations
        return trials[: max(1, _MOST_MEASURED // trials[0].size)]

    def account(self) -> str:
        """Return how trials of vectors are kept, as text; empty where they are counted."""
        if not self.are_kept:
            return ""
        place = "in temporary files" if self._kept.in_file else "as they came"
        allowed = f"max_bytes {in_words(self.max_bytes)}"
        return f"{place}: {in_words(self.kept.nbytes)} ({allowed})"

    def check_t_max(self, t_max: int) -> None:
        """Raise `InvalidInputError` if the trials so far have another last timestep."""
        if self.t_max not in (None, t_max):
            raise InvalidInputError(
                f"the trials collected so far have t_max = {self.t_max}; got {t_max}. "
                "Collect with the same t_max, or forget them with reset()"
            )
