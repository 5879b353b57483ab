"""How much memory trials of vectors may take: as they come, or condensed into moments.

All of it is known before the first step, but for the number of trials in a user's own loop.
"""

from __future__ import annotations

from dataclasses import dataclass

from lstd_agent.errors import InvalidInputError
from lstd_agent.trials.moment_sums import moment_bytes

DEFAULT_MAX_BYTES = 2**30

# Trials of so many bytes are always kept, within the limit: there is nothing to gain.
_LITTLE = 2**26

# A sample of whole trials is of use from two on.
_FEWEST_STORED = 2


@dataclass(frozen=True)
class Room:
    """What trials take, and what they may take.

    Attributes
    ----------
    max_bytes : int
        For kept trials; for moments; and for the sample of trials kept beside moments.
    n_batches, n_stored_trials : int
        Wanted batches of moments, and trials in the sample.
    t_max, d : int
        Last timestep, and number of features.
    trial_bytes : int
        What the observations of one trial take.
    n_stored : int
        How many trials the sample has at most.
    limit : int
        How much kept trials may take: no more than moments would, unless that is little.
    """

    max_bytes: int
    n_batches: int
    n_stored_trials: int
    t_max: int
    d: int
    trial_bytes: int

    @property
    def n_stored(self) -> int:
        """How many trials the sample has at most."""
        return min(self.n_stored_trials, max(_FEWEST_STORED, self.max_bytes // self.trial_bytes))

    @property
    def limit(self) -> int:
        """How much kept trials may take."""
        return min(self.max_bytes, max(_LITTLE, self.moments(self.n_batches)))

    def of_trials(self, n: int) -> int:
        """Return what n kept trials take."""
        return n * (self.trial_bytes + 8 * (self.t_max + 1))

    def moments(self, n: int) -> int:
        """Return what n batches of moments take."""
        return n * moment_bytes(self.t_max, self.d)

    def n_batches_of_moments(self, size: int) -> int:
        """Return how many batches of moments have room in place of trials of so many bytes.

        Raises
        ------
        InvalidInputError
            If not one has.
        """
        if self.moments(1) > self.max_bytes:
            raise InvalidInputError(
                f"the trials would take {in_words(size)}, the moments of {self.d} features over "
                f"{self.t_max + 1} timesteps {in_words(self.moments(1))}, and max_bytes allows "
                f"{in_words(self.max_bytes)}: collect fewer or shorter trials, give fewer "
                "features, or raise max_bytes"
            )
        return min(self.n_batches, self.max_bytes // self.moments(1))


def in_words(n_bytes: int) -> str:
    """Return an amount of memory as text."""
    power = max(0, min(4, (len(str(n_bytes)) - 1) // 3))
    return f"{n_bytes / 1000**power:.3g} {('bytes', 'kB', 'MB', 'GB', 'TB')[power]}"
