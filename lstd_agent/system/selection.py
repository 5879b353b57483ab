r"""Choice of the backup by the data: ``backup="auto"``.

Which backup is best hangs on what nobody knows beforehand: whether the features can represent the
values (then one step has the least noise) or not (then values that were bootstrapped on the
features pass their errors on), and whether observations are Markov states (then the model of
`lstd_agent.statistics.pooled` has least of both).

So each is fitted to one half of the trials and held against the excess returns of the other
(`lstd_agent.statistics.holdouts`). Of those that can be had, in order of preference, a later one
is chosen only if it is better than the preferred one by more than the standard error of their
difference:

- countable states: ``"model"``, if it determines the values of the starts; else, or if single
  steps predict better, one step or λ-returns;
- vectors whose trials are kept: one step or λ-returns;
- condensed moments, systems with reference states, few trials: one step.

The same samples always make the same choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.statistics.backups import Backup
from lstd_agent.statistics.holdouts import Approximators, Holdout
from lstd_agent.statistics.interface import SampledStatistics
from lstd_agent.system.fit_system import fit_system

OPEN_TOLERANCE = 0.05
"""Values that hang on open directions by a larger share than this are not determined."""

# Another backup than the model must be better by so many standard errors.
_DEVIATIONS = 2.0


@dataclass(frozen=True)
class Tried:
    """A backup that was tried.

    Attributes
    ----------
    backup : Backup
    error : float
        Root mean square error of predicted against observed excess returns of held-out trials,
        their noise included.
    difference : float
        Its mean square error less that of the first one tried.
    standard_error : float
        Of the difference, by groups of trials.
    """

    backup: Backup
    error: float
    difference: float
    standard_error: float


@dataclass(frozen=True)
class Choice:
    """A backup that was chosen by the data.

    Attributes
    ----------
    backup : Backup
    reason : str
    tried : tuple of Tried
        Empty where there was nothing to choose.
    """

    backup: Backup
    reason: str
    tried: tuple[Tried, ...] = ()


def choose_backup(
    statistics: SampledStatistics,
    batches: Sequence[object],
    anchors: IntArray,
    gain: float,
    rcond: float,
) -> Choice:
    """Choose the backup of a linked system.

    Parameters
    ----------
    statistics : SampledStatistics
        Of all trials.
    batches : sequence of sums
        The same trials in batches.
    anchors : ndarray of int, shape (n,)
    gain : float
    rcond : float

    Returns
    -------
    Choice
    """
    if statistics.backups == ("one_step",):
        return Choice("one_step", "the trials are not kept, and sums hold single steps only")
    preferred, others = statistics.backups[0], statistics.backups[1:]
    if preferred == "model" and not model_determines_starts(statistics, anchors, gain):
        preferred, others = others[0], others[1:]
    scores = _Scores(statistics.holdouts(batches), anchors, gain, rcond)
    if not scores.holdouts:
        return Choice(preferred, "there are too few trials to hold some out")
    if preferred == "model":
        difference, error = scores.difference(others[0], "model")
        if difference >= -_DEVIATIONS * error:
            return Choice("model", "single steps do not predict better", scores.tried())
        preferred, others = others[0], others[1:]
    best = min((preferred, *others), key=scores.error)
    for backup in (preferred, *others):
        difference, error = scores.difference(backup, best)
        if difference <= error:
            reason = "the simplest within a standard error of the best"
            return Choice(backup, reason, scores.tried())
    raise AssertionError("the best is within a standard error of itself")


def model_determines_starts(statistics: SampledStatistics, anchors: IntArray, gain: float) -> bool:
    """Whether the transitions of all timesteps determine the values of the starts."""
    main, _ = statistics.zero(np.array([anchors[-1], statistics.t_max + 1]))
    model = statistics.pooled(gain, main)
    return bool((model.open_share[statistics.starts] <= OPEN_TOLERANCE).all())


class _Scores:
    """Errors of backups on held-out trials, computed as they are asked for."""

    def __init__(
        self,
        holdouts: Sequence[Holdout[SampledStatistics]],
        anchors: IntArray,
        gain: float,
        rcond: float,
    ) -> None:
        self.holdouts = holdouts
        self._anchors, self._gain, self._rcond = anchors, gain, rcond
        self._errors: dict[Backup, FloatArray] = {}

    def _of(self, backup: Backup) -> FloatArray:
        """Return mean square errors (m,) by groups of trials."""
        if backup not in self._errors:
            self._errors[backup] = np.concatenate(
                [
                    holdout.errors(self._fit(holdout, backup), self._gain)
                    for holdout in self.holdouts
                ]
            )
        return self._errors[backup]

    def _fit(self, holdout: Holdout[SampledStatistics], backup: Backup) -> Approximators:
        system = fit_system(
            holdout.fitted, self._anchors, self._gain, rcond=self._rcond, backup=backup
        )
        return Approximators(system.weights, system.offsets, system.windows)

    def error(self, backup: Backup) -> float:
        """Return the mean square error."""
        return float(self._of(backup).mean())

    def difference(self, backup: Backup, other: Backup) -> tuple[float, float]:
        """Return by how much the first has a larger mean square error, and the standard error."""
        difference = self._of(backup) - self._of(other)
        return float(difference.mean()), float(difference.std(ddof=1) / np.sqrt(difference.size))

    def tried(self) -> tuple[Tried, ...]:
        """Return all that were asked for."""
        first = next(iter(self._errors))
        return tuple(
            Tried(backup, float(np.sqrt(self.error(backup))), *self.difference(backup, first))
            for backup in self._errors
        )
