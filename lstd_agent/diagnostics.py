"""An account of how far a fit may be relied on, and warnings in plain words.

`diagnose` puts the trials of a fit and its values before the checks of `lstd_agent.checks`, and
says what they find: what is wrong, in numbers, what to do, and which number to use instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.checks import (
    FEWEST_TRIALS,
    MIN_TRIALS,
    Misfit,
    TailCheck,
    check_own_means,
    check_starts,
    check_tail,
    ends_without_support,
    in_a_line,
    mean_of,
    start_groups,
)
from lstd_agent.features.rows import dense
from lstd_agent.features.sizes import FeatureSizes
from lstd_agent.html import as_html
from lstd_agent.trials.kept import KeptTrials

FEW_SAMPLES = 10
"""Starts with fewer samples than this are named."""

# A tail of a smaller share of the trials, and logs of which a larger share end in states that
# nothing follows, are named.
_FEW_IN_TAIL, _ENDS = 0.1, 0.5

# An error of the start's value is too large if it is a larger share of what trials earn.
_LARGEST_ERROR = 0.25

# A value that the samples leave open is taken as right where trials from there earned it, with a
# smaller error than this share of E; or where few starts are at the edge of the others.
_VOUCHED, _AT_EDGE, _REACH = 0.05, 0.1, 0.5

# Checks look at so many trials, rewards, numbers of features, and columns of these, at most.
_MOST_TRIALS, _MOST_REWARDS = 4000, 2_000_000
_MOST_NUMBERS, _MOST_COLUMNS = 15_000_000, 20

# Values and features of so many observations are computed at a time.
_CHUNK = 16384

_N_NAMED, _N_MISFITS = 8, 3


@dataclass(frozen=True, eq=False, kw_only=True)
class FitFacts:
    """What a fit says of itself; `Diagnostics` describes the attributes."""

    gain: float
    gain_error: float
    gain_share: float
    gain_rows: str
    starts: list[Any]
    start_samples: FloatArray
    start_determined: BoolArray
    start_error: float
    n_trials: int
    trials_at: IntArray
    rank: IntArray
    condition: FloatArray
    choice: object
    features: FeatureSizes
    n_recurrent_classes: int | None = None
    others: tuple[str, ...] = ()
    drawn: bool = False
    mean_duration: float = 1.0


@dataclass(frozen=True, eq=False, kw_only=True)
class Diagnostics(FitFacts):
    """How far a fit may be relied on: what the fit says of itself, and what the checks find.

    Attributes
    ----------
    gain, gain_error, gain_share : float
        The gain, its standard error, and its effective number of samples as a share of the tail's.
    gain_rows : str
        Which samples determine the gain: "tail", "all", "mean" (none: the tail's mean) or "given".
    mean_duration : float
        Mean time that a step of the tail takes; 1 where trials have no durations.
    starts : list
        Observations in which trials start (of vectors, some of them).
    start_samples : ndarray
        How many samples each amounts to.
    start_determined, start_tolerable : ndarray of bool
        Whether the samples determine its value; and whether, if not, there is nothing to warn of:
        trials from there earned what the value says, or few starts lie at the edge of the others.
    start_value, start_rewards : float
        The mean value of the start: predicted, and by what trials earned above the gain.
    start_error : float
        Standard error of the predicted one; NaN where it is not known.
    start_noise : bool
        Whether that is so large that the value says nothing.
    start_agrees : bool
        Whether the values of the start are what trials from there on earned.
    misfits : list of Misfit
        Groups of starts whose values are not what trials earned, the surest first.
    error_unknown : bool
        Whether few rare rewards make up the noise, so that no check can see a misfit.
    prefers_returns : bool
        Whether what trials earned is the better number for a difference of starts.
    settled : bool
        Whether rewards and states of the tail have settled, as far as the trials tell.
    tail : TailCheck
        How that was judged, and how much of the start's value may be missing, in reward.
    tail_rewards : tuple of float
        Mean rewards of the two halves of the tail, per unit of time.
    n_checked, stop : int
        How many trials and timesteps the checks look at; the tail is the second half of these.
    own_means : float
        Standard deviation of trials' own mean rewards, so that there is no one gain; else 0.
    ends : float
        The share of trials that end early in states from which hardly any trial went on.
    drawn : bool
        Whether the trials that were checked were drawn from counts.
    n_trials : int
    trials_at : ndarray of int, shape (t_max + 1,)
        How many trials have each timestep.
    n_recurrent_classes : int or None
        That the transitions of the tail show; None where states cannot be counted.
    rank, condition : ndarray, shape (n,)
        Of each neighborhood.
    choice : Choice
        Of the backup: asked for, or by the data, with what was tried.
    features : FeatureSizes
        How large features are, and which of them vary too little.
    others : tuple of str
        Further warnings.
    warnings : list of str
        What is wrong, with what to do; empty where nothing is known to be.

    Examples
    --------
    >>> import unichain_gym
    >>> from lstd_agent import OneHot, SeminormLSTDAgent
    >>> chain = unichain_gym.make_mdp("h6").induce([1, 1, 1, 0, 0, 0])
    >>> agent = SeminormLSTDAgent(OneHot(), anchors=[0, 5])
    >>> agent.add(unichain_gym.simulate_counts(chain, 10_000, 60, 0)).fit()
    <SeminormLSTDAgent n_anchors=2, 10000 trials, 2 fitted>
    >>> found = agent.diagnostics()
    >>> found.settled, found.start_agrees, found.warnings
    (True, True, [])
    """

    tail: TailCheck
    tail_rewards: tuple[float, float]
    n_checked: int
    stop: int
    own_means: float
    start_tolerable: BoolArray
    start_value: float
    start_rewards: float
    start_noise: bool
    misfits: list[Misfit]
    error_unknown: bool
    ends: float

    @property
    def settled(self) -> bool:
        """Whether rewards and states of the tail have settled, as far as the trials tell."""
        return self.tail.settled and self.tail.known

    @property
    def start_agrees(self) -> bool:
        """Whether the values of the start are what trials from there on earned."""
        return not self.misfits and not self.start_noise

    @property
    def prefers_returns(self) -> bool:
        """Whether what trials earned is the better number for a difference of starts."""
        return bool(self.misfits) and self.settled and not self.own_means and not self.ends

    @property
    def warnings(self) -> list[str]:
        """What is wrong, with what to do; empty where nothing is known to be."""
        return [*self._of_tail(), *self._of_gain(), *self.others, *self._of_start()]

    def _of_tail(self) -> Iterator[str]:
        tail, stop, half = self.tail, self.stop, self.stop // 2
        first, second = self.tail_rewards
        missing = (
            f"so {tail.missing:.3g} ± {tail.missing_error:.2g} of the start's value may be missing "
            f"(trials earned {tail.unit:.3g} above their last mean reward)"
        )
        if stop < 4:
            yield (
                f"the tail, timesteps {half} to {stop - 1}, is too short to tell whether it has "
                "settled: collect with a larger t_max"
            )
        elif not tail.rewards_settled:
            yield (
                f"the tail has not settled: the mean reward of timesteps {half} to "
                f"{(half + stop) // 2 - 1} is {first:.6g}, of later timesteps {second:.6g}, and "
                f"the gain is {self.gain:.6g}; {missing}. The trials are too short for these "
                "values and this gain: collect with a larger t_max"
            )
        elif not tail.states_settled:
            yield (
                f"the tail has not settled: observations still move in timesteps {half} to "
                f"{stop - 1}, with {tail.moving:.2g} standard deviations or more to go, so that "
                "later rewards may differ from those seen. Collect with a larger t_max; if time "
                "itself is among the observations, leave it out"
            )
        elif not tail.known:
            text = "" if self.n_checked >= FEWEST_TRIALS else f" of {self.n_checked} trials"
            yield (
                f"it is not known whether the tail{text} has settled: {missing}. Collect more "
                "trials, or with a larger t_max"
            )
        if self.own_means and self.tail.settled:
            yield (
                f"trials keep mean rewards of their own, {self.own_means:.2g} (one "
                f"standard deviation) off {self.gain:.4g}. If trials differ for good there is no "
                "one gain: evaluate their kinds apart; if they take longer than a quarter of the "
                "trial to mix, collect with a larger t_max"
            )
        n, last = self.n_trials, int(self.trials_at[-1])
        middle = int(self.trials_at[len(self.trials_at) // 2])
        if last < min(FEW_SAMPLES, n) or middle < _FEW_IN_TAIL * n:
            enough = np.flatnonzero(self.trials_at >= n / 2)[-1]
            yield (
                f"{last} of {n} trials have the last timestep, {len(self.trials_at) - 1}, and "
                f"{middle} have the timestep {len(self.trials_at) // 2}, where the tail begins, so "
                "that gain and later values are those of few trials: log trials that run on, or "
                f"choose a t_max that more trials reach (half of them reach {enough})"
            )
        if self.ends > _ENDS:
            yield (
                f"{self.ends:.0%} of the trials that end early end in states from which hardly any "
                "trial goes on, so that nothing shows what follows such states, and gain and "
                "values are those of the trials that went on: log trials beyond these states"
            )

    def _of_gain(self) -> Iterator[str]:
        if self.gain_rows == "mean":
            share = self.gain_share
            said = "" if np.isnan(share) else f" (effective share of the samples {share:.2g})"
            yield (
                f"the tail does not determine the gain{said}: {self.gain:.6g} is its mean reward, "
                "which is right only if trials have settled before it; an error of the gain "
                f"changes a start's value by up to {self.stop} times as much. Collect with a "
                "larger t_max, use fewer features, leave time out of the observations, or give "
                "gain="
            )

    def _of_start(self) -> Iterator[str]:
        if self.features.warning:
            yield self.features.warning
        unknown = ~self.start_determined & ~self.start_tolerable
        if unknown.any():
            yield (
                "the samples do not determine the values of starts "
                f"{self._named(unknown)}: collect more trials, give anchors= a wider first "
                "neighborhood, or use features that tell these states"
            )
        few = self.start_determined & (self.start_samples < FEW_SAMPLES)
        if few.any():
            yield (
                f"starts {self._named(few)} have fewer than {FEW_SAMPLES} samples "
                f"(at least {self.start_samples[few].min():.3g}): collect more trials"
            )
        if self.misfits:
            shown = "; ".join(map(str, self.misfits[:_N_MISFITS]))
            more = len(self.misfits) - _N_MISFITS
            instead = ""
            if self.prefers_returns:
                instead = (
                    '. For a difference of starts use compare(a, b, by="returns"), what trials '
                    "from there earned; for values"
                )
            yield (
                f"{shown}{f'; and {more} more' if more > 0 else ''}{instead or ':'} use features, "
                "or observations, that tell more states apart, more neighborhoods (n_anchors) or, "
                "where the standard error is large, more trials"
            )
        if self.start_noise:
            yield (
                f"the mean value of the start, {self.start_value:.6g}, has a standard error of "
                f"{self.start_error:.2g}, and trials earned {self.tail.unit:.3g} in all: collect "
                "more trials, or use fewer features"
            )

    def _named(self, chosen: BoolArray) -> str:
        places = np.flatnonzero(chosen)
        names = ", ".join(in_a_line(self.starts[i]) for i in places[:_N_NAMED])
        more = f" and {len(places) - _N_NAMED} more" if len(places) > _N_NAMED else ""
        return f"{names}{more}"

    def _repr_html_(self) -> str:
        """Return the account for notebooks."""
        return as_html("diagnostics", str(self))

    def __str__(self) -> str:
        tail, half = self.tail, self.stop // 2
        state = "settled" if self.settled else "NOT KNOWN" if tail.settled else "NOT SETTLED"
        share = "" if np.isnan(self.gain_share) else f", effective share {self.gain_share:.2g}"
        is_timed = self.mean_duration != 1.0
        share += f", per unit of time (a step takes {self.mean_duration:.4g})" if is_timed else ""
        lines = [
            f"tail        {state}: mean reward {self.tail_rewards[0]:.6g} at {half} to "
            f"{(half + self.stop) // 2 - 1}, {self.tail_rewards[1]:.6g} until {self.stop - 1}",
            f"may be missing: {tail.missing:.3g} ± {tail.missing_error:.2g} (in reward; trials "
            f"earned {tail.unit:.3g} above the last mean reward)",
            f"gain        {self.gain:.6g} ± {self.gain_error:.2g}, by {self.gain_rows}{share}",
            f"starts      {len(self.starts)}, {int(self.start_determined.sum())} determined, "
            f"samples {min(self.start_samples, default=0.0):.6g} or more",
            f"start       mean value {self.start_value:.6g} by the features, "
            f"{self.start_rewards:.6g} by rewards{'' if self.start_agrees else ': NOT ALIKE'}"
            f"{', ERROR NOT KNOWN: few rare rewards' if self.error_unknown else ''}",
        ]
        if self.own_means:
            lines.append(f"trials      HAVE MEANS OF THEIR OWN, ± {self.own_means:.2g}")
        if self.drawn:
            lines.append("trials      drawn from the counts, because only counts were given")
        if self.n_recurrent_classes is not None:
            lines.append(f"classes     {self.n_recurrent_classes} recurrent in the tail")
        lines.append(f"features    {self.features}")
        if np.isfinite(self.condition).all():
            lines.append(f"condition   {self.condition.max():.1e} or less")
        lines.append(f"backup      {self.choice}")
        return "\n".join(lines + [f"warning: {text}" for text in self.warnings])


def diagnose(
    trials: KeptTrials,
    facts: FitFacts,
    starts: Any,
    values: Callable[[Any, IntArray], FloatArray],
    features: Callable[[Any], Any],
    decode: Callable[[Any], Any],
    own_batches: FloatArray | None = None,
    terminal: int | None = None,
) -> Diagnostics:
    """Return how far a fit may be relied on, by its trials.

    Parameters
    ----------
    trials : KeptTrials
        All trials of vectors; of counted states as many as were stored, or drawn from counts.
    facts : FitFacts
    starts : ndarray, shape (n[, k])
        ``facts.starts`` as they are encoded.
    values : callable
        Encoded states (m[, k]) at timesteps (m,) to values (m,).
    features : callable
        Encoded states to features (m, d), dense or sparse.
    decode : callable
        An encoded state to an observation.
    own_batches : ndarray, shape (n, t_max + 1), optional
        Mean rewards of batches of trials, where the trials were drawn from counts: what trials
        have of their own then shows in batches only.
    terminal : int, optional
        The terminal one of counted states.
    """
    few = max(-(-trials.n_trials // _MOST_TRIALS), -(-trials.rewards.size // _MOST_REWARDS))
    trials = trials.take(slice(None, None, few))
    (N, T), lengths = trials.rewards.shape, trials.all_lengths
    T = max(1, int(np.sort(lengths)[-min(MIN_TRIALS, N)]))  # what fewer trials reach is left out
    states, first = trials.observations[:, : T + 1], trials.observations[:, 0]
    here = np.arange(T + 1) <= lengths[:, None]
    living = _living(states, terminal)
    R = np.where(here[:, 1:], trials.rewards[:, :T], np.nan)
    v = np.where(here, 0.0, np.nan)
    trial, t = np.nonzero(here & living)
    chunks = np.array_split(np.arange(len(t)), 1 + len(t) // _CHUNK)
    v[trial, t] = np.concatenate([values(states[trial[k], t[k]], t[k]) for k in chunks])
    skipped = ~living[:, :T]
    if trials.explored is not None:
        skipped |= trials.explored[:, :T]
    every = slice(None, None, -(-N * T * 3 * _MOST_COLUMNS // _MOST_NUMBERS))
    blocks = watched(states[every], here[every] & living[every], features)
    moving = [blocks[0], np.concatenate([blocks[1], np.nan_to_num(v[every, :, None])], axis=2)]
    for block in moving:
        block[~here[every]] = np.nan
    groups = start_groups(first)
    tail = check_tail(R, [block[:, :T] for block in moving], groups)
    time = facts.mean_duration
    found, unknown, u = check_starts(
        *(R, v, facts.gain * time, groups),
        unit=tail.unit,
        settled=tail.settled,
        skipped=skipped if skipped.any() else None,
        gain_error=facts.gain_error * time,
        gain_is_given=facts.gain_rows == "given",
    )
    rows, n_in_row = R, 1.0
    if own_batches is not None:
        rows, n_in_row = own_batches[:, :T], facts.n_trials / len(own_batches)
    middle, value = (T // 2 + T + 1) // 2, float(np.nanmean(v[:, 0]))
    end = v[np.arange(N), np.minimum(lengths, T)]  # may be as undetermined as the start's value
    earned = np.nansum(R, axis=1)
    noise = max(_LARGEST_ERROR * max(tail.unit, earned.std()), 1e-9 * np.abs(earned).max())
    return Diagnostics(
        **vars(facts),
        tail=replace(tail, limit=tail.limit / time, limit_error=tail.limit_error / time),
        tail_rewards=(
            float(mean_of(R[:, T // 2 : middle], (0, 1))) / time,
            float(mean_of(R[:, middle:], (0, 1))) / time,
        ),
        n_checked=N,
        stop=T,
        own_means=check_own_means(rows, tail.unit, n_in_row) / time,
        start_tolerable=_tolerable(starts, facts.start_determined, first, u - end, tail.unit),
        start_value=value,
        start_rewards=value + float(u.mean()),
        start_noise=bool(facts.start_error > noise),
        misfits=_misfits(found, groups, first, decode),
        error_unknown=bool(unknown),
        ends=ends_without_support(lengths[every], blocks[states.ndim == 2][:, :T]),
    )


def _living(states: Any, terminal: int | None) -> BoolArray:
    """Return where trials have not terminated."""
    if states.ndim == 3:
        return np.asarray(np.isfinite(states).all(axis=2))
    return np.asarray(states != (-1 if terminal is None else terminal))


def watched(states: Any, here: BoolArray, features: Callable[[Any], Any]) -> list[FloatArray]:
    """Return what may show that states still move, blocks (M, T + 1, d); the first are raw.

    Counted states: their numbers; and a column each, or, where they are many, for classes by when
    states are seen in the first half of the trial, which says nothing of the second. Vectors: their
    components; and their squares and features. Of many, some are taken, evenly spaced. All are 0
    where a trial is over or was cut short.
    """
    x = states[here].reshape(int(here.sum()), -1)
    raw = x[:, :: -(-x.shape[1] // _MOST_COLUMNS)].astype(np.float64)
    if states.ndim == 2:
        more = _columns_of_states(x[:, 0], np.nonzero(here)[1], here.shape[1] // 2)
    else:
        chunks = [features(part) for part in np.array_split(x * 1.0, 1 + len(x) // _CHUNK)]
        chosen = slice(None, None, -(-chunks[0].shape[1] // _MOST_COLUMNS))
        parts = [np.asarray(dense(f[:, chosen])) for f in chunks]
        more = np.concatenate([raw**2, np.concatenate(parts)], axis=1)
    blocks = []
    for columns in (raw, more):
        block = np.zeros((*here.shape, columns.shape[1]))
        block[here] = columns
        blocks.append(block)
    return blocks


def _columns_of_states(state: IntArray, t: IntArray, middle: int) -> FloatArray:
    """Return 1 in the column of each state, or of its class, of states (n,) at timesteps (n,)."""
    kinds, kind = np.unique(state, return_inverse=True)
    if len(kinds) > 2 * _MOST_COLUMNS:
        early = t < middle
        seen = np.bincount(kind[early], minlength=len(kinds))
        when = np.bincount(kind[early], t[early], len(kinds)) / np.maximum(seen, 1)
        order = np.argsort(np.where(seen > 0, when, np.inf), kind="stable")
        before = np.cumsum(seen[order]) - seen[order]
        place = np.empty(len(kinds), dtype=np.int64)
        place[order] = before * _MOST_COLUMNS // max(1, int(seen.sum()))
        kind = place[kind]
    return np.asarray(np.eye(int(kind.max()) + 1)[kind])


def _tolerable(
    starts: Any, determined: BoolArray, first: Any, u: FloatArray, unit: float
) -> BoolArray:
    """Return which undetermined starts trials vouch for, or are few at the edge of the others."""
    tolerable = np.zeros(len(determined), dtype=bool)
    some = np.flatnonzero(~determined)
    u, spread = u - u.mean(), float(u.std())
    for i in some:
        mine = u[(first == starts[i]).reshape(len(first), -1).all(axis=1)]
        error = spread / np.sqrt(max(len(mine), 1))
        tolerable[i] = len(mine) and abs(mine.mean()) <= 3 * error and error < _VOUCHED * unit
    if starts.ndim == 2 and some.size <= _AT_EDGE * len(starts):
        scaled = starts / np.maximum(starts.std(axis=0), 1e-300)
        for i in some:
            distance = np.abs(scaled[determined] - scaled[i]).max(axis=1)
            tolerable[i] |= bool(distance.min(initial=np.inf) <= _REACH)
    return tolerable


def _misfits(
    found: list[Misfit], groups: list[IntArray], first: Any, decode: Callable[[Any], Any]
) -> list[Misfit]:
    """Return misfits of groups without those that have a smaller one within."""
    misfits = []
    for each in found:
        group = groups[each.group]
        if any(
            len(groups[e.group]) < len(group) and np.isin(groups[e.group], group).all()
            for e in found
        ):
            continue
        here = first[group]
        x = here.reshape(len(here), -1).astype(np.float64)
        start = here[np.argmin(((x - np.median(x, axis=0)) ** 2).sum(axis=1))]
        name = None if each.group == 0 else decode(start)
        misfits.append(replace(each, start=name, n_starts=len(np.unique(here, axis=0))))
    return misfits
