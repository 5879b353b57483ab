"""How trials are recorded: counted, kept as they are, or summed up in moments.

Countable observations are counted. Trials of vectors are kept as they are as long as that takes
less memory than the moments of their features would, or little memory anyway, and less than a
limit. The choice follows from the sizes alone, which are known before the first step.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import partial

import numpy as np

from lstd_agent.errors import CondensedTrialsWarning, InvalidInputError
from lstd_agent.trials.batches import Batches
from lstd_agent.trials.counting import CountRecorder
from lstd_agent.trials.encoding import CountedEncoding, Encoding, States, VectorEncoding
from lstd_agent.trials.kept_trials import KeptTrials, TrialRecorder
from lstd_agent.trials.moment_sums import MomentRecorder, MomentSums, moment_bytes
from lstd_agent.trials.recording import RecorderMaker, Round

# Trials of so many bytes are always kept, within the limit: there is nothing to gain.
_LITTLE = 2**26

# A sample of whole trials is of use from two on.
_FEWEST_STORED = 2


@dataclass
class Storage:
    """Batches of trials, and the memory that they may take.

    Parameters
    ----------
    batches : Batches
    max_bytes : int
        For kept trials; for moments; and for the sample of trials kept beside moments.
    """

    batches: Batches
    max_bytes: int

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
        batches = self.batches
        are_moments = bool(batches.sums) and isinstance(batches.sums[0], MomentSums)
        if not are_moments and (n_trials is None or t_max is None):
            return TrialRecorder
        if n_trials is not None and t_max is not None:
            components = states[:1].nbytes * (t_max + 2)
            size = (components + 8 * (t_max + 1)) * n_trials
            if not are_moments and batches.nbytes + size <= self._limit(t_max, d):
                return TrialRecorder
            if not are_moments:
                self._condense(encoding, d, t_max, components, batches.nbytes + size)
        return partial(MomentRecorder, encoding.rows)

    def add(self, encoding: Encoding, finished: Round) -> None:
        """Add a round, and condense kept trials that have outgrown their room."""
        sums = finished.sums
        if isinstance(sums, KeptTrials) and isinstance(encoding, VectorEncoding):
            if self.batches.sums and isinstance(self.batches.sums[0], MomentSums):
                # A copy, so that the trials themselves are let go.
                stored = sums.states(self.batches.n_stored_missing).copy()
                self.batches.add(Round(sums.condense(encoding.rows), stored))
                return
            d = encoding.n_features(sums.observations[:1, 0])
            # Kept trials are whole: there is no need of a sample beside them.
            self.batches.add(Round(sums, np.empty(0)))
            if self.batches.nbytes > self._limit(sums.t_max, d):
                trial = sums.observations[0].nbytes
                self._condense(encoding, d, sums.t_max, trial, self.batches.nbytes)
            return
        self.batches.add(finished)

    def _limit(self, t_max: int, d: int) -> int:
        """Return how much memory kept trials may take."""
        return min(self.max_bytes, max(_LITTLE, self.batches.n_batches * moment_bytes(t_max, d)))

    def _condense(
        self, encoding: VectorEncoding, d: int, t_max: int, trial: int, size: int
    ) -> None:
        """Go over to moments, in as many batches as have room."""
        one = moment_bytes(t_max, d)
        n_batches = min(self.batches.n_batches, self.max_bytes // one)
        if not n_batches:
            raise InvalidInputError(
                f"the trials would take {_in_words(size)}, the moments of {d} features over "
                f"{t_max + 1} timesteps {_in_words(one)}, and max_bytes allows "
                f"{_in_words(self.max_bytes)}: collect fewer or shorter trials, give fewer "
                "features, or raise max_bytes"
            )
        if self.batches.are_kept:
            encoding.measure(KeptTrials.together(self.batches.sums).observations)
        if not encoding.is_measured:
            raise InvalidInputError(
                f"the trials would take {_in_words(size)}, so that only their moments can be "
                "kept, and mean and deviation of Standardized features are not known yet: give "
                "Standardized(features).measured(samples), or raise max_bytes"
            )
        n_stored = max(_FEWEST_STORED, self.max_bytes // trial)
        n_stored = min(self.batches.n_stored_trials, n_stored)
        fewer = f", in {n_batches} batches" if n_batches < self.batches.n_batches else ""
        warnings.warn(
            f"the trials would take {_in_words(size)}, and there is room for "
            f"{_in_words(self._limit(t_max, d))}: they are condensed into moments of {d} features "
            f"({_in_words(n_batches * one)}{fewer}), so that the features cannot change any more. "
            f"{n_stored} trials at most are stored whole. A larger max_bytes helps up to what "
            "the moments take",
            CondensedTrialsWarning,
            stacklevel=2,
        )
        self.batches.condense(encoding.rows, n_batches, n_stored)


def _in_words(n_bytes: int) -> str:
    """Return an amount of memory as text."""
    power = max(0, min(4, (len(str(n_bytes)) - 1) // 3))
    return f"{n_bytes / 1000**power:.3g} {('bytes', 'kB', 'MB', 'GB', 'TB')[power]}"
