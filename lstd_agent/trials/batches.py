"""`Batches`: the finished trials of an agent, in a few portions that are added up when needed.

Batches are independent, and standard errors compare them. Counted trials are dealt into batches
when they are added, kept trials when they are fitted, by their content.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from lstd_agent.errors import InvalidInputError
from lstd_agent.trials.counted import CountedTrials, Portion, TrialSample, ordered
from lstd_agent.trials.counts import ActionCounts, TransitionCounts
from lstd_agent.trials.kept import KeptTrials, check_timed, in_words, taken_to_file, together


class Batches:
    """All finished trials, in at most ``n_batches`` batches: counted, or kept.

    ``n_stored_trials`` counted trials are kept whole. Kept trials beyond ``max_bytes`` are held in
    temporary files.
    """

    def __init__(self, n_batches: int, n_stored_trials: int, max_bytes: int) -> None:
        self.n_batches, self.n_stored_trials = n_batches, n_stored_trials
        self.max_bytes, self.in_file = max_bytes, False
        # Each portion is several times as large as the next, since adding each small one to all
        # trials would be slow.
        self._portions: list[Portion] = []
        self._dealt: KeptTrials | None = None

    @property
    def n_trials(self) -> int:
        """Number of trials so far."""
        return sum(portion.n_trials for portion in self._portions)

    @property
    def t_max(self) -> int | None:
        """The last timestep of every trial; None before there is one."""
        return self._portions[0].t_max if self._portions else None

    @property
    def is_timed(self) -> bool | None:
        """Whether steps have durations; None before there are trials."""
        return _times(self._portions[0]) is not None if self._portions else None

    @property
    def are_kept(self) -> bool:
        """Whether there are trials, and they are kept."""
        return bool(self._portions) and isinstance(self._portions[0], KeptTrials)

    def add(self, portion: Portion) -> None:
        """Add trials, counted in as many batches, or kept."""
        self.check_t_max(portion.t_max)
        portions, in_file = list(self._portions), self.in_file
        check_timed(self.is_timed, _times(portion))
        if isinstance(portion, KeptTrials):
            in_file |= portion.nbytes + sum(_size(each) for each in portions) > self.max_bytes
        portions.append(self._joined([portion], in_file))
        while len(portions) > 1 and _size(portions[-2]) < 2 * _size(portions[-1]):
            portions[-2:] = [self._joined(portions[-2:], in_file)]
        self._portions, self.in_file, self._dealt = portions, in_file, None

    def _joined(self, portions: list[Any], in_file: bool) -> Portion:
        """Return portions as one; of counted trials at most ``n_stored_trials`` are whole."""
        if isinstance(portions[0], KeptTrials):
            return together(portions, in_file=in_file)
        joined: CountedTrials = reduce(add, portions)
        sample, most = joined.sample, self.n_stored_trials
        if sample is None or len(sample.hashes) <= most:
            return joined
        return replace(joined, sample=sample.least(most) if most else None)

    @property
    def portion(self) -> Portion | None:
        """All trials as one portion."""
        while len(self._portions) > 1:
            self._portions[-2:] = [self._joined(self._portions[-2:], self.in_file)]
        return self._portions[0] if self._portions else None

    @property
    def kept(self) -> KeptTrials:
        """All kept trials, in the order in which they came."""
        portion = self.portion
        assert isinstance(portion, KeptTrials)
        return portion

    @property
    def total(self) -> KeptTrials:
        """All kept trials, sorted by batch and content."""
        if self._dealt is None:
            kept = self.kept
            by_batch = np.argsort(np.arange(kept.n_trials) % self.n_batches, kind="stable")
            order = ordered(kept)[by_batch]
            self._dealt = taken_to_file(kept, order) if self.in_file else kept.take(order)
        return self._dealt

    @property
    def _counted(self) -> tuple[CountedTrials | None, list[int]]:
        """All counted trials, if there are any, and the batches that have some."""
        portion = self.portion
        if isinstance(portion, CountedTrials):
            return portion, np.flatnonzero(portion.n_by_batch).tolist()
        return None, []

    @property
    def sums(self) -> list[TransitionCounts]:
        """The counts of each batch that has any; none of kept trials."""
        portion, batches = self._counted
        return [portion.batch(b) for b in batches] if portion else []

    @property
    def taken(self) -> list[ActionCounts | None]:
        """The action counts of each batch that has counted trials."""
        portion, batches = self._counted
        taken = portion.taken if portion else None
        return [None if taken is None else taken.batch(b) for b in batches]

    @property
    def sample(self) -> TrialSample | None:
        """Up to ``n_stored_trials`` counted trials that are kept whole."""
        portion, _ = self._counted
        return portion.sample if portion else None

    def add_counts(
        self,
        counts: TransitionCounts,
        taken: ActionCounts | None = None,
        sample: TrialSample | None = None,
    ) -> None:
        """Add counts, which do not separate trials, to the batch with fewest trials."""
        sizes = [each.n_by_batch for each in self._portions if isinstance(each, CountedTrials)]
        smallest = int(np.argmin(sum(sizes, np.zeros(self.n_batches))))
        self.add(CountedTrials.of(counts, smallest, self.n_batches, taken, sample))

    def merge(self, theirs: Batches) -> None:
        """Add the trials of another agent, all or nothing; it may be the same."""
        ours, portion = self.portion, theirs.portion
        if portion is None:
            return
        if isinstance(portion, KeptTrials):
            self.add(portion)
            return
        self.check_t_max(portion.t_max)
        check_timed(self.is_timed, _times(portion))
        if isinstance(ours, CountedTrials) and ours.taken is not None and portion.taken is not None:
            ours.taken.check_adds(portion.taken)
        sample = theirs.sample
        for counts, taken in zip(theirs.sums, theirs.taken, strict=True):
            self.add_counts(counts, taken, sample)
            sample = None  # once: it is of all batches

    def account(self) -> str:
        """Return how trials of vectors are kept, as text; empty for counted ones."""
        if not self.are_kept:
            return ""
        place = "in temporary files" if self.in_file else "as they came"
        allowed = f"max_bytes {in_words(self.max_bytes)}"
        return f"{place}: {in_words(self.kept.nbytes)} ({allowed})"

    def check_t_max(self, t_max: int) -> None:
        """Raise `InvalidInputError` if the trials so far have another last timestep."""
        if self.t_max not in (None, t_max):
            raise InvalidInputError(
                f"the trials collected so far have t_max = {self.t_max}; got {t_max}. "
                "Collect with the same t_max, or forget them with reset()"
            )


def _times(portion: Portion) -> Any:
    return portion.durations if isinstance(portion, KeptTrials) else portion.duration_sums


def _size(portion: Portion) -> int:
    return portion.nbytes if isinstance(portion, KeptTrials) else portion.size
