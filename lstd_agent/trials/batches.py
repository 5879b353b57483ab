"""All trials of an agent: counted in batches with a sample of whole ones, or kept.

The sums of any batch estimate the same thing independently; standard errors compare them. Counted
trials are dealt into batches as they come. Kept ones are dealt at fit time, by their content
(`lstd_agent.trials.samples`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from lstd_agent.arrays import IntArray, States
from lstd_agent.errors import InvalidInputError
from lstd_agent.trials.action_counts import ActionCounts, together
from lstd_agent.trials.counted import CountedTrials
from lstd_agent.trials.counts import TransitionCounts
from lstd_agent.trials.kept import GrowingTrials, KeptTrials, check_both_timed, in_words
from lstd_agent.trials.recording import Portion
from lstd_agent.trials.samples import TrialSample, batch_of

Sums: TypeAlias = TransitionCounts | KeptTrials
"""What a batch of trials leaves behind: ``counts`` or ``kept`` trials, the other is None."""

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
    sums : list
        The counts, or the trials, of each batch that has any.
    sample : TrialSample or None
        Counted trials that are kept whole.
    """

    def __init__(self, n_batches: int, n_stored_trials: int, max_bytes: int) -> None:
        self.n_batches, self.n_stored_trials = n_batches, n_stored_trials
        self.max_bytes = max_bytes
        self._samples: list[TrialSample] = []
        # Portions of counted trials, each several times as large as the next: adding a small one
        # to all of them each time would take long.
        self._counted: list[CountedTrials] = []
        self._taken: list[ActionCounts | None] = [None] * n_batches
        self._kept = GrowingTrials(max_bytes)
        self._dealt: tuple[KeptTrials, IntArray] | None = None

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
        return (
            self._kept.trials.durations
            if self.are_kept
            else (self._counted[0].duration_sums if self._counted else None)
        )

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
        return sum(batches[1:], batches[0])  # type: ignore[return-value]

    @property
    def sums(self) -> list[Sums]:
        """The counts, or the trials, of each batch that has any."""
        if self.are_kept:
            trials, bounds = self._in_order()
            pairs = zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
            return [trials.take(slice(a, b)) for a, b in pairs]
        return [self._all.batch(b) for b in self._present] if self._counted else []

    @property
    def sample(self) -> TrialSample | None:
        """Up to ``n_stored_trials`` counted trials that are kept whole; None of none."""
        if len(self._samples) > 1:
            self._samples = [TrialSample.merged(self._samples, self.n_stored_trials)]
        return self._samples[0] if self._samples else None

    def _add_sample(self, sample: TrialSample | None) -> None:
        if sample is not None and self.n_stored_trials:
            self._samples.append(sample)
            # Now and then, so that little is held.
            if sum(len(each.hashes) for each in self._samples) > 4 * self.n_stored_trials:
                self._samples = [TrialSample.merged(self._samples, self.n_stored_trials)]

    @property
    def taken(self) -> list[ActionCounts | None]:
        """What actions led to in each batch that has trials."""
        if self.are_kept:
            return [None] * min(self.n_batches, self.n_trials)
        return [self._taken[b] for b in self._present] if self._counted else []

    @property
    def total(self) -> Sums:
        """The counts of all trials, or the trials, in an order that depends on them alone."""
        return self._in_order()[0] if self.are_kept else self.counts

    @property
    def trials(self) -> States | None:
        """The states (m, t_max + 1, ...) of up to ``n_stored_trials`` trials; None of none.

        Counted ones are -1, and vectors infinite, at timesteps that a trial does not have.
        """
        if self.are_kept:
            n = self.n_stored_trials
            return self._in_order()[0].states(n) if n else None
        sample = self.sample
        if sample is None:
            return None
        states, lengths = sample.states[:, :-1], sample.lengths
        if lengths is None:
            return states
        return np.where(np.arange(states.shape[1]) < lengths[:, None], states.astype(np.int64), -1)

    @property
    def portion(self) -> Portion | None:
        """All trials as one portion: adding it to none gives the same again."""
        if self.are_kept:
            return self.kept
        if not self._counted:
            return None
        taken = tuple(self._taken) if any(self._taken) else None
        return replace(self._all, sample=self.sample, taken=taken)

    @property
    def _all(self) -> CountedTrials:
        while len(self._counted) > 1:
            self._merge_last()
        return self._counted[0]

    @property
    def _present(self) -> list[int]:
        """The batches that have trials."""
        present: list[int] = np.flatnonzero(self._all.n_by_batch).tolist()
        return present

    def _in_order(self) -> tuple[KeptTrials, IntArray]:
        """Return kept trials in the order of their batches, and the bounds of these."""
        if self._dealt is None:
            order, batch = batch_of(self._kept.trials, self.n_batches)
            trials = self._kept.trials.take(order, in_file=self._kept.in_file)
            self._dealt = trials, np.append(0, np.cumsum(np.bincount(batch)))
        return self._dealt

    def add(self, portion: Portion) -> None:
        """Add trials, counted in as many batches, or kept."""
        self.check_t_max(portion.t_max)
        self._dealt = None
        if isinstance(portion, KeptTrials):
            self._kept.add(portion)
            return
        if self._counted:
            check_both_timed(self.durations, portion.duration_sums)
        self._add_sample(portion.sample)
        if portion.taken is not None:
            pairs = zip(self._taken, portion.taken, strict=True)
            self._taken = [together(mine, more) for mine, more in pairs]
        # Samples and actions are kept beside the counts.
        self._counted.append(replace(portion, sample=None, taken=None))
        while len(self._counted) > 1 and self._counted[-2].size < 2 * self._counted[-1].size:
            self._merge_last()

    def _merge_last(self) -> None:
        last = self._counted.pop()
        self._counted[-1] = self._counted[-1] + last

    def add_counts(self, counts: TransitionCounts, taken: ActionCounts | None = None) -> None:
        """Add counts, which cannot be told apart by trials, to the batch that has fewest."""
        n = sum((each.n_by_batch for each in self._counted), np.zeros(self.n_batches, np.int64))
        self._add_to(int(np.argmin(n)), counts, taken)

    def _add_to(self, b: int, counts: TransitionCounts, taken: ActionCounts | None) -> None:
        if self._counted:
            self._counted[0].batch(0).check_adds(counts)
        batches: list[TransitionCounts | None] = [None] * self.n_batches
        batches[b] = counts
        self.add(CountedTrials.of(batches))
        self._taken[b] = together(self._taken[b], taken)

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
            check_both_timed(self.durations, theirs.durations)
        ours, added = together(*self._taken), together(*theirs._taken)
        if ours is not None and added is not None:
            ours.check_adds(added)
        # Batch i of theirs goes on where trials so far were dealt.
        first, sample = self.n_trials, theirs.sample
        dealt = list(zip(theirs.sums, theirs.taken, strict=True))
        for i, (counts, taken) in enumerate(dealt):
            assert isinstance(counts, TransitionCounts)
            self._add_to((first + i) % self.n_batches, counts, taken)
        self._add_sample(sample)

    def some_observations(self) -> States:
        """Return kept observations (m, t_max + 2, k) that standardized features are measured on."""
        trials = self._in_order()[0].observations
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
