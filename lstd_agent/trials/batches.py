"""All trials collected so far, in a few batches, within a limit of memory.

The sums of any batch estimate the same thing independently, which is what standard errors are
made of. Rounds of trials go whole into the batch that has the fewest trials so far.

Countable observations are counted. Trials of vectors are kept as they are as long as that takes
less memory than the moments of their features would, or little memory anyway, and less than a
limit. The choice follows from the sizes alone, which are known before the first step.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from operator import add
from typing import Any

import numpy as np

from lstd_agent.arrays import States
from lstd_agent.errors import CondensedTrialsWarning, InvalidInputError
from lstd_agent.features.rows import RowsOf
from lstd_agent.trials.action_counts import ActionCounts, together
from lstd_agent.trials.encoding import CountedEncoding, Encoding
from lstd_agent.trials.kept_trials import KeptTrials
from lstd_agent.trials.moment_sums import moment_bytes
from lstd_agent.trials.recorders import (
    CountRecorder,
    MomentRecorder,
    RecorderMaker,
    Round,
    Sums,
    TrialRecorder,
)
from lstd_agent.trials.room import DEFAULT_MAX_BYTES, Room, in_words


@dataclass
class Batches:
    """Sums of trials in at most ``n_batches`` batches, and a sample of whole trials.

    Parameters
    ----------
    n_batches : int
        More batches take more memory, each as much as all trials together at worst.
    n_stored_trials : int
        How many trials to keep whole. Trials are alike, so the first are as good as any.
    max_bytes : int
        For kept trials; for moments; and for the sample of trials kept beside moments.

    Attributes
    ----------
    sums : list of sums
    taken : list of ActionCounts or None
        What actions led to, in the trials of each batch of which that was recorded.
    """

    n_batches: int
    n_stored_trials: int
    max_bytes: int = DEFAULT_MAX_BYTES
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
        return bool(self.sums) and self.sums[0].kept is not None

    @property
    def are_moments(self) -> bool:
        """Whether there are trials, and they are summed up in moments."""
        return bool(self.sums) and not self.are_kept and self.sums[0].counts is None

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
        return self.stored

    @property
    def stored(self) -> States | None:
        """Whole trials beside sums that do not tell them, as of `trials`; None without any."""
        if len(self._stored) > 1:
            self._stored = [np.concatenate(self._stored)]
        return self._stored[0] if self._stored else None

    def plan(
        self, encoding: Encoding, n_trials: int | None, t_max: int | None, states: States
    ) -> RecorderMaker:
        """Return what makes recorders of trials to come; moments take the place of kept ones.

        Parameters
        ----------
        encoding : Encoding
        n_trials, t_max : int, optional
            How many trials are to come, and how long; not known in a user's own loop.
        states : ndarray
            In which some of them start.

        Raises
        ------
        InvalidInputError
            If not even the moments of one batch have room.
        """
        if isinstance(encoding, CountedEncoding):
            return partial(CountRecorder, encoding.n_states)
        if not self.are_moments:
            if n_trials is None or t_max is None:
                encoding.n_features(states[:1])  # checked before the first step
                return TrialRecorder
            room = self._room(encoding, t_max, states)
            size = self.nbytes + room.of_trials(n_trials)
            if size <= room.limit:
                return TrialRecorder
            self._go_over_to_moments(encoding, room, size)
        return partial(MomentRecorder, encoding.rows)

    def check_room(self, encoding: Encoding, n_trials: int, t_max: int, states: States) -> None:
        """Raise `InvalidInputError` if whole trials to come have no room, not even as moments.

        Parameters
        ----------
        encoding, n_trials, t_max, states
            As of `plan`.
        """
        if isinstance(encoding, CountedEncoding) or self.are_moments:
            return
        room = self._room(encoding, t_max, states)
        size = self.nbytes + room.of_trials(n_trials)
        if size > room.limit:
            room.n_batches_of_moments(size)

    def add(self, finished: Round, encoding: Encoding) -> None:
        """Add a finished round; kept trials are condensed once they have outgrown their room."""
        sums = finished.sums.kept
        if sums is None:
            self._append(finished)
        elif self.are_moments:
            # A copy, so that the trials themselves are let go.
            stored = sums.states(self.n_stored_missing).copy()
            self._append(Round(sums.condense(encoding.rows), stored))
        else:
            room = self._room(encoding, sums.t_max, sums.observations[:1, 0])
            # Kept trials are whole: there is no need of a sample beside them.
            self._append(Round(sums, np.empty(0)))
            if self.nbytes > room.limit:
                self._go_over_to_moments(encoding, room, self.nbytes)

    def _append(self, finished: Round) -> None:
        """Put a round into a batch."""
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

    def measure(self, encoding: Encoding) -> None:
        """Measure standardized features on kept trials, once."""
        if not encoding.is_measured and self.are_kept:
            encoding.measure(KeptTrials.together(self.sums).observations)

    def restore(
        self, sums: list[Sums], taken: Sequence[ActionCounts | None], trials: States | None
    ) -> None:
        """Take the parts of other batches, such as a file holds, checked; there are none so far."""
        for each in sums:
            if self.sums:
                self.check_t_max(each.t_max)
                self.sums[0].check_adds(each)
            self.sums.append(each)
        if len(taken) != len(sums):
            raise InvalidInputError(
                f"there are {len(sums)} batches of trials, and {len(taken)} of actions"
            )
        self.taken.extend(taken)
        if trials is not None:
            self.keep(trials)

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

    def account(self, encoding: Encoding) -> str:
        """Return how trials of vectors are kept, as text; empty where they are counted."""
        allowed = f"(max_bytes {in_words(self.max_bytes)})"
        if self.are_kept:
            limit = self._room(encoding, self.sums[0].t_max, self.sums[0].observations[:1, 0]).limit
            size = f"{in_words(self.nbytes)}, and there is room for {in_words(limit)}"
            return f"as they came: {size} {allowed}"
        if self.are_moments:
            d, n = self.sums[0].feature_sums.shape[1], len(self.sums)
            size = in_words(n * moment_bytes(self.sums[0].t_max, d))
            return f"as moments of {d} features in {n} batches: {size} {allowed}"
        return ""

    def check_t_max(self, t_max: int) -> None:
        """Raise `InvalidInputError` if the trials so far have another last timestep."""
        if self.t_max not in (None, t_max):
            raise InvalidInputError(
                f"the trials collected so far have t_max = {self.t_max}; got {t_max}. "
                "Collect with the same t_max, or forget them with reset()"
            )

    def _room(self, encoding: Encoding, t_max: int, states: States) -> Room:
        """Return the room for trials that start in states (n, k), at least one."""
        trial_bytes = states[:1].nbytes * (t_max + 2)
        wanted = self.max_bytes, self.n_batches, self.n_stored_trials
        return Room(*wanted, t_max, encoding.n_features(states[:1]), trial_bytes)

    def _go_over_to_moments(self, encoding: Encoding, room: Room, size: int) -> None:
        """Condense what there is, into as many batches as have room, and say so.

        All trials would take ``size`` bytes.
        """
        n_batches = room.n_batches_of_moments(size)
        self.measure(encoding)
        if not encoding.is_measured:
            raise InvalidInputError(
                f"the trials would take {in_words(size)}, so that only their moments can be "
                "kept, and mean and deviation of Standardized features are not known yet: give "
                "Standardized(features).measured(samples), or raise max_bytes"
            )
        fewer = f", in {n_batches} batches" if n_batches < self.n_batches else ""
        warnings.warn(
            f"the trials would take {in_words(size)}, and there is room for "
            f"{in_words(room.limit)}: they are condensed into moments of {room.d} features "
            f"({in_words(room.moments(n_batches))}{fewer}), so that the features cannot change "
            f"any more, and backups are of one step. {room.n_stored} trials at most are stored "
            "whole. They are kept while they take less than max_bytes and less than moments would: "
            "a larger n_batches keeps more of them",
            CondensedTrialsWarning,
            stacklevel=2,
        )
        self.condense(encoding.rows, n_batches, room.n_stored)
