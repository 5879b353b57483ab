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

DEFAULT_MAX_BYTES = 2**30

# Trials of so many bytes are always kept, within the limit: there is nothing to gain.
_LITTLE = 2**26

# A sample of whole trials is of use from two on.
_FEWEST_STORED = 2


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
        d = encoding.n_features(states[:1])
        if not self.are_moments:
            if n_trials is None or t_max is None:
                return TrialRecorder
            size = self._size_with(n_trials, t_max, states)
            if size <= self._limit(t_max, d):
                return TrialRecorder
            self._go_over_to_moments(encoding, d, t_max, states[:1].nbytes * (t_max + 2), size)
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
        d, size = encoding.n_features(states[:1]), self._size_with(n_trials, t_max, states)
        if size > self._limit(t_max, d):
            self._n_batches_of_moments(d, t_max, size)

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
            d = encoding.n_features(sums.observations[:1, 0])
            # Kept trials are whole: there is no need of a sample beside them.
            self._append(Round(sums, np.empty(0)))
            if self.nbytes > self._limit(sums.t_max, d):
                trial = sums.observations[0].nbytes
                self._go_over_to_moments(encoding, d, sums.t_max, trial, self.nbytes)

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
        allowed = f"(max_bytes {_in_words(self.max_bytes)})"
        if self.are_kept:
            first = self.sums[0]
            room = self._limit(first.t_max, encoding.n_features(first.observations[:1, 0]))
            size = f"{_in_words(self.nbytes)}, and there is room for {_in_words(room)}"
            return f"as they came: {size} {allowed}"
        if self.are_moments:
            d = self.sums[0].feature_sums.shape[1]
            size = _in_words(len(self.sums) * moment_bytes(self.sums[0].t_max, d))
            return f"as moments of {d} features in {len(self.sums)} batches: {size} {allowed}"
        return ""

    def check_t_max(self, t_max: int) -> None:
        """Raise `InvalidInputError` if the trials so far have another last timestep."""
        if self.t_max not in (None, t_max):
            raise InvalidInputError(
                f"the trials collected so far have t_max = {self.t_max}; got {t_max}. "
                "Collect with the same t_max, or forget them with reset()"
            )

    def _size_with(self, n_trials: int, t_max: int, states: States) -> int:
        """Return how much memory kept trials and so many more would take."""
        return self.nbytes + (states[:1].nbytes * (t_max + 2) + 8 * (t_max + 1)) * n_trials

    def _limit(self, t_max: int, d: int) -> int:
        """Return how much memory kept trials may take."""
        return min(self.max_bytes, max(_LITTLE, self.n_batches * moment_bytes(t_max, d)))

    def _n_batches_of_moments(self, d: int, t_max: int, size: int) -> int:
        """Return how many batches of moments have room in place of trials of so many bytes."""
        one = moment_bytes(t_max, d)
        if one > self.max_bytes:
            raise InvalidInputError(
                f"the trials would take {_in_words(size)}, the moments of {d} features over "
                f"{t_max + 1} timesteps {_in_words(one)}, and max_bytes allows "
                f"{_in_words(self.max_bytes)}: collect fewer or shorter trials, give fewer "
                "features, or raise max_bytes"
            )
        return min(self.n_batches, self.max_bytes // one)

    def _go_over_to_moments(
        self, encoding: Encoding, d: int, t_max: int, trial: int, size: int
    ) -> None:
        """Condense what there is, into as many batches as have room, and say so.

        A trial takes ``trial`` bytes, and all of them would take ``size``.
        """
        n_batches = self._n_batches_of_moments(d, t_max, size)
        self.measure(encoding)
        if not encoding.is_measured:
            raise InvalidInputError(
                f"the trials would take {_in_words(size)}, so that only their moments can be "
                "kept, and mean and deviation of Standardized features are not known yet: give "
                "Standardized(features).measured(samples), or raise max_bytes"
            )
        n_stored = min(self.n_stored_trials, max(_FEWEST_STORED, self.max_bytes // trial))
        fewer = f", in {n_batches} batches" if n_batches < self.n_batches else ""
        warnings.warn(
            f"the trials would take {_in_words(size)}, and there is room for "
            f"{_in_words(self._limit(t_max, d))}: they are condensed into moments of {d} features "
            f"({_in_words(n_batches * moment_bytes(t_max, d))}{fewer}), so that the features "
            "cannot change any more, and backups are of one step. "
            f"{n_stored} trials at most are stored whole. A larger max_bytes helps up to what "
            "the moments take",
            CondensedTrialsWarning,
            stacklevel=2,
        )
        self.condense(encoding.rows, n_batches, n_stored)


def _in_words(n_bytes: int) -> str:
    """Return an amount of memory as text."""
    power = max(0, min(4, (len(str(n_bytes)) - 1) // 3))
    return f"{n_bytes / 1000**power:.3g} {('bytes', 'kB', 'MB', 'GB', 'TB')[power]}"
