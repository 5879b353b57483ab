r"""Choices by the data: ``backup="auto"``, and ``n_anchors="auto"``.

Each backup is fitted to one half of the trials and compared with excess returns of the other half,

.. math:: G_t = \sum_{u \ge t} (r_u - g\tau_u) + v(s_{t_{max} + 1}),

and vice versa. Returns are noisy but unbiased, for any observations and values. The mean square of
:math:`v(s_t) - G_t` is taken over the trials of each timestep, and over all timesteps with weights
of 1/(t + 1), since the bias of transient states is wanted. A later backup in the order of
preference must be clearly better:

- countable states: ``"model"``, if it determines the values of the starts and single steps are not
  better by three standard errors; else one step or λ-returns;
- others: one step or λ-returns, the smallest λ within one standard error of the best.

A λ is rejected if its mean start value would trigger the misfit warning, unless single steps miss
the returns as much. Numbers of neighborhoods, each with its backup, are compared in the same way.

Before any of this, vectors are fitted by single steps in one neighborhood, with the gain of all
rows. This fit is taken unless others, which need less of the features, contradict it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.backups import Backup, LambdaReturn, backup_name
from lstd_agent.features.rows import dense
from lstd_agent.specification import Others
from lstd_agent.system.minimizer import LEAST_SHARE, Solved
from lstd_agent.system.model import pooled_model
from lstd_agent.system.solve import Subsets

# The λ that "auto" tries; a value is not determined if a larger share of it is open; number of
# groups of counts, in two halves; fewest trials to hold some out; most dense features to try λ.
DECAYS, OPEN_TOLERANCE = (0.6, 0.9, 1.0), 0.05
_N_GROUPS, _FEWEST_HELD_OUT, _MOST_COMPARED = 8, 8, 1000

# Single steps of all timesteps are rejected if chance makes others differ as much this rarely, or
# if their condition is larger.
_LEAST_CHANCE, _WORST_CONDITION = 0.05, 1e3

# Single steps must be better than the model by this many standard errors. A λ-return misses the
# start if it does so by this many more than single steps, and by this share of the range of values.
_DEVIATIONS, _START_DEVIATIONS, _SHARE = 3.0, 2.0, 0.05


@dataclass(frozen=True)
class Tried:
    """A backup that was tried, with its number of neighborhoods if these are compared."""

    backup: Backup
    error: float  # root mean square of predicted against held-out excess returns, with their noise
    difference: float  # of the mean square from the first backup's
    standard_error: float  # of the difference, by groups of trials
    n_anchors: int | None = None

    def __str__(self) -> str:
        name = backup_name(self.backup)
        return name if self.n_anchors is None else f"{self.n_anchors} neighborhoods, {name}"


@dataclass(frozen=True)
class Choice:
    """A backup that was chosen by the data.

    Attributes
    ----------
    backup, reason : Backup, str
    tried, numbers : tuple of Tried
        Backups, and numbers of neighborhoods, that were compared; empty if there was no choice.

    Examples
    --------
    >>> print(Choice("one_step", "asked for"))
    one step: asked for
    """

    backup: Backup
    reason: str
    tried: tuple[Tried, ...] = ()
    numbers: tuple[Tried, ...] = ()

    def __str__(self) -> str:
        lines = [f"{backup_name(self.backup)}: {self.reason}"]
        for group in (self.tried, self.numbers):
            for each in group:
                than = f"{each.difference:+.2g} ± {each.standard_error:.1g} against {group[0]}"
                rest = "" if each is group[0] else f", mean square {than}"
                lines.append(f"  {each}: held-out error {each.error:.4g}{rest}")
        return "\n".join(lines)


class Held:
    """Systems fitted to halves of the trials, compared with the other half.

    Batches of counts depend on the order of trials, so transitions are dealt into groups instead.
    """

    def __init__(self, subsets: Subsets, gain: float) -> None:
        self.subsets, self.gain, self.source = subsets, gain, subsets.source
        self._solved: dict[tuple[bytes, Backup], list[list[Solved]]] = {}
        self._errors: dict[tuple[bytes, Backup], FloatArray] = {}

    @cached_property
    def held(self) -> Any:
        """The halves that are compared."""
        if not self.source.are_places:
            return self.subsets
        dealt: Any = {"source": self.source.dealt(_N_GROUPS), "n_groups": _N_GROUPS, "read": {}}
        return replace(self.subsets, kind="halves", **dealt)

    @property
    def is_possible(self) -> bool:
        """Whether each half has samples of each timestep, and features are dense."""
        if self.source.is_sparse or self.held.kind != "halves":
            return False
        source, half = self.held.source, self.held.half
        if source.are_places:
            return bool(source.batches.trials_at.all())
        halves = source.own[:half], source.own[half:]
        return source.n_trials >= _FEWEST_HELD_OUT and all(x.any(axis=0).all() for x in halves)

    def whole(self, anchors: IntArray, backup: Backup) -> list[Solved]:
        """Return the system of all trials; kept trials were solved together with their halves."""
        if found := self._solved.get((anchors.tobytes(), backup)):
            return found[0]
        return replace(self.subsets, kind="whole").solve(anchors, [self.gain], [backup])[0][0]

    def errors(self, anchors: IntArray, backups: Sequence[Backup]) -> list[FloatArray]:
        """Return mean square errors and errors of the start (m, 2), by groups, of each backup."""
        keys, gains = [(anchors.tobytes(), backup) for backup in backups], [self.gain] * 3
        missing, found = [key for key in keys if key not in self._errors], list[Any]()
        for _, some in groupby(missing, lambda key: isinstance(key[1], LambdaReturn) or key[1]):
            found += self.held.solve(anchors, gains, [backup for _, backup in some])
        if self.held is self.subsets:
            self._solved.update(zip(missing, found, strict=True))
        if missing:
            weights = [[[x.columns[:, 0] for x in half] for half in each[1:]] for each in found]
            errors = self._held_out(anchors, np.moveaxis(np.array(weights), 0, -1))
            self._errors.update(zip(missing, errors, strict=True))
        return [self._errors[key] for key in keys]

    def _held_out(self, anchors: IntArray, weights: FloatArray) -> list[FloatArray]:
        """Return errors (m, 2) by groups of trials, of weights (2, n, p, q) of halves, windows."""
        source, T = self.held.source, self.source.t_max
        edge, n_groups, groups = self.held.half, source.n_trials, None
        if source.are_places:
            n_groups, groups = _N_GROUPS, source.groups(_N_GROUPS)
            edge *= source.n_states

        def values(rows: Any, t: int) -> FloatArray:
            first, second = weights[:, int(np.searchsorted(anchors, t, side="right")) - 1]
            return np.concatenate((rows[:edge] @ second, rows[edge:] @ first))

        def by_group(terms: FloatArray) -> FloatArray:
            return np.asarray(terms.reshape(n_groups, -1, terms.shape[1]).sum(axis=1))

        returns, square = np.empty(0), np.zeros((1, 1))
        scale = (1.0 / np.arange(1, T + 2)).sum()
        for t, layer in zip(range(T, -1, -1), source.layers(0, T + 1, groups), strict=True):
            returns = returns if returns.size else values(layer.following, T + 1)
            here, paid = values(layer.features, t), layer.rewards - self.gain * layer.durations
            returns = np.where(layer.goes_on[:, None], layer.ahead(returns) + paid[:, None], here)
            share = layer.weights.reshape(n_groups, -1)
            n = share.sum(axis=1, keepdims=True) if source.are_places else share.mean()
            share = (share / np.where(n > 0.0, n, 1.0)).reshape(-1, 1)
            error = here - returns
            square = square + share * error**2 / ((t + 1) * scale)
        start = by_group(share * error)
        return list(np.stack((by_group(square), start), axis=2).swapaxes(0, 1))


def single_steps_hold(subsets: Subsets) -> bool:
    """Return whether others agree with a fit of single steps to all timesteps at the starts.

    Here the gain is that of all rows, too. If the fit is ill-conditioned, another gain changes it
    much: then the answer is no.
    """
    source = subsets.source
    if not source.constant or source.p > min(_MOST_COMPARED, source.n_trials / 2):
        return False
    gain, anchors = subsets.gains("all")[0], np.zeros(1, dtype=np.int64)
    [solved] = Held(subsets, gain.value).whole(anchors, "one_step")
    if gain.share < LEAST_SHARE or solved.condition > _WORST_CONDITION:
        return False
    weights, starts = solved.columns[:, 0], source.starts
    others = Others(source, source.values([weights], anchors), gain.value, "one_step")
    rows = source.coordinates.of(dense(source.features(starts)), source.constant)
    chance = _LEAST_CHANCE / len(starts)
    return not others.changes(rows, starts, rows @ weights, chance).any()


def choose_backup(held: Held, anchors: IntArray) -> Choice:
    """Choose the backup of a linked system."""
    source, is_known = held.source, False
    if source.are_places:
        model = pooled_model(source, held.gain, source.main_state(int(anchors[-1])))
        is_known = bool((model.open_share[source.starts] <= OPEN_TOLERANCE).all())
    reason = "" if held.is_possible else "there are too few trials to hold some out"
    if source.is_sparse:
        reason = "many sparse features are fitted by single steps"
        reason = "it determines the values of the starts" if is_known else reason
    elif not source.are_places and source.p > _MOST_COMPARED:
        reason = f"with so many features ({source.p - 1}) no lambda-returns are tried: give "
        reason += "backup=LambdaReturn(decay) for one"
    if reason:
        return Choice("model" if is_known else "one_step", reason)
    steps: list[Backup] = ["one_step", *map(LambdaReturn, DECAYS)]
    asked = steps
    if is_known:
        asked = ["one_step", "model"]
        found = held.errors(anchors, asked)
        more, error = _compared(found, 0)[1]
        if more <= _DEVIATIONS * error:
            return Choice("model", "single steps do not predict better", _tried(asked, found))
        asked = [*asked, *steps[1:]]
    found = held.errors(anchors, steps)
    missed, errors = np.transpose([_mean_and_error(each[:, 1]) for each in found])
    paid = source.mean_rewards - held.gain * source.mean_durations
    most = _SHARE * float(np.ptp(np.append(np.cumsum(paid[::-1]), 0.0)))
    least = np.abs(missed[0]) + _START_DEVIATIONS * errors
    able = np.flatnonzero(np.abs(missed) <= np.maximum(most, least))
    simplest = int(able[_simplest([found[i] for i in able])])
    tried = _tried(asked, held.errors(anchors, asked))
    return Choice(steps[simplest], "the simplest within a standard error of the best", tried)


def choose(
    held: Held, candidates: Sequence[IntArray], wanted: Backup | None
) -> tuple[IntArray, Choice]:
    """Choose among anchors of ever more neighborhoods of a linked system, and the backup."""
    if len(candidates) > 1 and not held.is_possible:
        candidates = candidates[1:2]
    if wanted is not None:
        return candidates[0], Choice(wanted, "asked for")
    choices = [choose_backup(held, anchors) for anchors in candidates]
    if len(candidates) == 1:
        return candidates[0], choices[0]
    backups = [choice.backup for choice in choices]
    found = [held.errors(a, [b])[0] for a, b in zip(candidates, backups, strict=True)]
    k, tried = _simplest(found), _tried(backups, found)
    numbers = (replace(x, n_anchors=len(a)) for x, a in zip(tried, candidates, strict=True))
    return candidates[k], replace(choices[k], numbers=tuple(numbers))


def _tried(backups: Sequence[Backup], found: Sequence[FloatArray]) -> tuple[Tried, ...]:
    """Return backups with their errors (m, 2), compared with the first."""
    each = zip(backups, found, _compared(found, 0), strict=True)
    return tuple(Tried(b, float(np.sqrt(x[:, 0].mean())), *more) for b, x, more in each)


def _simplest(found: Sequence[FloatArray]) -> int:
    """Return the first of errors (m, 2) that are within a standard error of the least."""
    best = int(np.argmin([errors[:, 0].mean() for errors in found]))
    return next(i for i, (more, error) in enumerate(_compared(found, best)) if more <= error)


def _compared(found: Sequence[FloatArray], other: int) -> list[tuple[float, float]]:
    """Return each mean square minus another one, and its standard error."""
    return [_mean_and_error(errors[:, 0] - found[other][:, 0]) for errors in found]


def _mean_and_error(values: FloatArray) -> tuple[float, float]:
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(values.size))
