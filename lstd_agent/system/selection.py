r"""Choices by the data: ``backup="auto"``, and ``n_anchors="auto"``.

Which backup is best hangs on what nobody knows beforehand: whether the features can represent the
values (then one step has the least noise) or not (then values that were bootstrapped on the
features pass their errors on), and whether observations are Markov states (then the model of
`lstd_agent.statistics.pooled` has least of both).

So each is fitted to one half of the trials and held against the excess returns of the other
(`lstd_agent.statistics.holdouts`). Of those that can be had, in order of preference, a later one
is chosen only if it is clearly better:

- countable states: ``"model"``, if it determines the values of the starts and single steps do not
  predict better by three standard errors of the difference; else one step or λ-returns;
- vectors whose trials are kept: one step or λ-returns, the smallest λ within one standard error of
  the best;
- more than a thousand dense features, sparse ones, condensed moments, systems with reference
  states: one step.

No λ is chosen by which the mean value of the start misses the rewards by more than would be warned
of (`lstd_agent.diagnostics`), unless single steps miss it as much: with coarse features long
returns are nearer to the values of most timesteps, and that may be at the cost of the first. The
same samples always make the same choice.

Numbers of neighbourhoods are compared likewise, each with its own backup: the smallest is chosen
that is within one standard error of the best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.statistics.backups import Backup, LambdaReturn, MultiStep
from lstd_agent.statistics.holdouts import Approximators, Holdout
from lstd_agent.statistics.interface import SampledStatistics
from lstd_agent.system.approximators import System
from lstd_agent.system.fit_system import fit_system, refit

OPEN_TOLERANCE = 0.05
"""Values that hang on open directions by a larger share than this are not determined."""

# Single steps must be better than the model by so many standard errors, of a few groups each.
_DEVIATIONS = 3.0

# A λ-return misses the start if by so many standard errors more than single steps do.
_START_DEVIATIONS = 2.0

# The start is missed if by more than this share of the range of mean values over time.
_SHARE = 0.05


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
    n_anchors : int or None
        Number of neighbourhoods, where those are compared.
    """

    backup: Backup
    error: float
    difference: float
    standard_error: float
    n_anchors: int | None = None

    def __str__(self) -> str:
        name = backup_name(self.backup)
        return name if self.n_anchors is None else f"{self.n_anchors} neighborhoods, {name}"


@dataclass(frozen=True)
class Choice:
    """A backup that was chosen by the data.

    Attributes
    ----------
    backup : Backup
    reason : str
    tried : tuple of Tried
        Empty where there was nothing to choose.
    numbers : tuple of Tried
        Of neighbourhoods, where those are chosen, too.

    Examples
    --------
    >>> import unichain_gym
    >>> from lstd_agent import OneHot, SeminormLSTDAgent
    >>> chain = unichain_gym.make_mdp("h6").induce([0, 0, 0, 0, 0, 0])
    >>> counts = unichain_gym.simulate_counts(chain, 500, 100, 0)
    >>> agent = SeminormLSTDAgent(OneHot(), n_anchors=1).add(counts)
    >>> agent.fit().diagnostics().choice.backup
    'model'
    """

    backup: Backup
    reason: str
    tried: tuple[Tried, ...] = ()
    numbers: tuple[Tried, ...] = ()

    def __str__(self) -> str:
        lines = [f"{backup_name(self.backup)}: {self.reason}"]
        for group in (self.tried, self.numbers):
            for number, each in enumerate(group):
                line = f"  {each}: held-out error {each.error:.4g}"
                if number:
                    line += (
                        f", mean square {each.difference:+.2g} ± {each.standard_error:.1g} against "
                        f"{group[0]}"
                    )
                lines.append(line)
        return "\n".join(lines)


def backup_name(backup: Backup) -> str:
    """Return a backup in a word or two."""
    if isinstance(backup, LambdaReturn):
        return f"lambda {backup.decay:g}"
    if isinstance(backup, MultiStep):
        return f"{backup.steps} steps"
    return backup.replace("_", " ")


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
        return Choice("one_step", statistics.single_steps)
    scores = _Scores(statistics, statistics.holdouts(batches), anchors, gain, rcond)
    return _chosen(statistics, scores, anchors, gain)


def _chosen(
    statistics: SampledStatistics, scores: _Scores, anchors: IntArray, gain: float
) -> Choice:
    steps = tuple(backup for backup in statistics.backups if backup != "model")
    is_known = steps != statistics.backups and model_determines_starts(statistics, anchors, gain)
    preferred = "model" if is_known else steps[0]
    if not scores.holdouts:
        return Choice(preferred, "there are too few trials to hold some out")
    if preferred == "model":
        difference, error = _difference(scores.of(steps[0]), scores.of("model"))
        if difference >= -_DEVIATIONS * error:
            return Choice("model", "single steps do not predict better", scores.tried())
    scores.find(steps)
    able = [b for b in steps if not scores.misses_start(b, steps[0])]
    simplest = able[_simplest([scores.of(b) for b in able])]
    reason = statistics.single_steps or "the simplest within a standard error of the best"
    return Choice(simplest, reason, scores.tried())


def choose_number(
    statistics: SampledStatistics,
    batches: Sequence[object],
    candidates: Sequence[IntArray],
    gain: float,
    rcond: float,
) -> tuple[IntArray, Choice]:
    """Choose the number of neighbourhoods of a linked system, and the backup.

    Parameters
    ----------
    statistics, batches, gain, rcond
        As of `choose_backup`.
    candidates : sequence of ndarray of int
        Anchors, of ever more neighbourhoods.

    Returns
    -------
    anchors : ndarray of int
    Choice
    """
    holdouts = statistics.holdouts(batches)
    scores = [_Scores(statistics, holdouts, each, gain, rcond) for each in candidates]
    choices = [
        _chosen(statistics, each, anchors, gain)
        for each, anchors in zip(scores, candidates, strict=True)
    ]
    if not holdouts:
        k = min(1, len(candidates) - 1)
        return candidates[k], choices[k]
    found = [each.of(choice.backup) for each, choice in zip(scores, choices, strict=True)]
    k = _simplest(found)
    numbers = _tried([choice.backup for choice in choices], found)
    counted = map(len, candidates)
    numbers = tuple(replace(each, n_anchors=n) for each, n in zip(numbers, counted, strict=True))
    return candidates[k], replace(choices[k], numbers=numbers)


def model_determines_starts(statistics: SampledStatistics, anchors: IntArray, gain: float) -> bool:
    """Whether the transitions of all timesteps determine the values of the starts."""
    main, _ = statistics.zero(np.array([anchors[-1], statistics.t_max + 1]))
    model = statistics.counted().pooled(gain, main)
    return bool((model.open_share[statistics.starts] <= OPEN_TOLERANCE).all())


class _Scores:
    """Errors of backups on held-out trials, computed as they are asked for."""

    def __init__(
        self,
        statistics: SampledStatistics,
        holdouts: Sequence[Holdout],
        anchors: IntArray,
        gain: float,
        rcond: float,
    ) -> None:
        self.holdouts = holdouts
        self._anchors, self._gain, self._rcond = anchors, gain, rcond
        earned = np.cumsum(statistics.mean_rewards[::-1] - gain)
        self._range = float(np.ptp(np.append(earned, 0.0)))
        self._errors: dict[Backup, FloatArray] = {}
        self._first: dict[int, System] = {}
        """Of each half, for the neighbourhoods of all others."""

    def of(self, backup: Backup) -> FloatArray:
        """Return mean square errors and mean errors of the start (m, 2), by groups of trials."""
        self.find([backup])
        return self._errors[backup]

    def find(self, backups: Sequence[Backup]) -> None:
        """Compute the errors of backups that are not known yet."""
        missing = [backup for backup in backups if backup not in self._errors]
        if not missing:
            return
        by_half = []
        for i, holdout in enumerate(self.holdouts):
            systems = [self._fit(i, backup) for backup in missing]
            found = [Approximators(s.weights, s.offsets, s.windows) for s in systems]
            by_half.append(holdout.errors(found, self._gain))
        for backup, errors in zip(missing, zip(*by_half, strict=True), strict=True):
            self._errors[backup] = np.concatenate(errors)

    def _fit(self, i: int, backup: Backup) -> System:
        statistics, first = self.holdouts[i].fitted, self._first.get(i)
        if first is None:
            self._first[i] = fit_system(
                statistics, self._anchors, self._gain, rcond=self._rcond, backup=backup
            )
            return self._first[i]
        return refit(
            first,
            statistics,
            self._gain,
            calibration="linked",
            reference="occupancy",
            rcond=self._rcond,
            backup=backup,
        )

    def misses_start(self, backup: Backup, other: Backup) -> bool:
        """Whether the first misses the start by more than may be, and the other by less."""
        missed, error = _mean_and_error(self.of(backup)[:, 1])
        least = abs(float(self.of(other)[:, 1].mean())) + _START_DEVIATIONS * error
        return abs(missed) > max(_SHARE * self._range, least)

    def tried(self) -> tuple[Tried, ...]:
        """Return all that were asked for."""
        return _tried(list(self._errors), list(self._errors.values()))


def _tried(backups: Sequence[Backup], found: Sequence[FloatArray]) -> tuple[Tried, ...]:
    """Return backups with their errors (m, 2), compared with the first."""
    return tuple(
        Tried(backup, float(np.sqrt(_mean_square(errors))), *_difference(errors, found[0]))
        for backup, errors in zip(backups, found, strict=True)
    )


def _simplest(found: Sequence[FloatArray]) -> int:
    """Return the first of errors (m, 2) that are within a standard error of the least."""
    best = min(found, key=_mean_square)
    differences = [_difference(errors, best) for errors in found]
    return next(i for i, (difference, error) in enumerate(differences) if difference <= error)


def _mean_square(errors: FloatArray) -> float:
    return float(errors[:, 0].mean())


def _difference(errors: FloatArray, others: FloatArray) -> tuple[float, float]:
    """Return by how much the first mean square is larger, and the standard error."""
    return _mean_and_error(errors[:, 0] - others[:, 0])


def _mean_and_error(values: FloatArray) -> tuple[float, float]:
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(values.size))
