"""`Diagnostics`: the checks of a fit, and their warnings.

A warning says what is wrong, in numbers, what to do, and which number to use instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import lstd_agent.checks as checks
import lstd_agent.fit_checks as shown
from lstd_agent.arrays import BoolArray
from lstd_agent.features.rows import FeatureSizes
from lstd_agent.fit import Fit, of_each
from lstd_agent.returns import trial_weights
from lstd_agent.specification import MOST_COLUMNS
from lstd_agent.summary import as_html

# Starts with fewer samples are named. Warn if a smaller share of the trials has the tail, a larger
# share of logs ends in states without successors, or of sparse samples is left out.
_FEW_SAMPLES, _FEW_IN_TAIL, _ENDS, _MOST_LEFT_OUT = 10, 0.1, 0.5, 0.1

# Largest numbers of trials, rewards and feature values that are checked; of starts and misfits that
# are named; share of E beyond which a change of values by their square matters.
_MOST_TRIALS, _MOST_REWARDS, _MOST_NUMBERS = 4000, 2_000_000, 15_000_000
_N_NAMED, _N_MISFITS, _BENT = 8, 3, 0.3
_DISTINGUISH = "features, or observations, that distinguish more states"


class Diagnostics:
    """The checks of a fit, and their warnings.

    Parameters
    ----------
    fit : Fit
        Of a fitted agent, whose ``diagnostics()`` are these.

    Attributes
    ----------
    gain, gain_error, gain_share, gain_rows : float, str
        The gain, its standard error and effective share of the samples, and what determines it:
        rows of the "tail" or "all", "given", the "mean" if no rows do, "end" if all trials ended.
    gain_off : float
        By how much the last timesteps, at least, earn more than the gain; 0 if they do not differ.
    mean_duration : float
        Mean time that a step of the tail takes; 1 where trials have no durations.
    starts, start_samples, start_determined, start_tolerable : list, ndarray
        Observations in which trials start (of vectors, some), the samples of each, whether they
        determine its value, and whether it needs no warning otherwise.
    start_value, start_error, start_rewards : float
        Mean value of the start, its standard error (NaN if not known), mean return above the gain.
    is_counted, bent : bool, float
        Whether states are counted; by how much values of starts change in other fits, which need
        less of the features, at most; 0 if it may be noise or does not matter.
    misfits, start_agrees, prefers_returns : list of Misfit, bool
        Groups of starts whose values contradict returns, most significant first; whether there are
        none; and whether returns give the better difference of starts.
    gain_conflict, start_conflict : float
        By how much trials contradict the gain, and the start's bias; 0 if this may be noise.
    rare, error_unknown : float, bool
        By how much one trial changes the mean value of the start, if few rare rewards decide it,
        else 0; and whether they do, so that errors may be far too small.
    tail, settled, tail_rewards : TailCheck, bool, tuple of float
        How much of the start's value may be missing, whether the tail has settled, and the mean
        rewards of its halves, per unit of time.
    n_checked, stop : int
        Numbers of checked trials and timesteps; the tail is the second half of these timesteps.
    own_means, hidden : float
        Standard deviation of trials' own mean rewards, and correlation of surprises (rewards beyond
        the values) in adjacent timesteps; 0 where they do not matter.
    ends : float
        Share of trials that end early in states that hardly any trial left.
    drawn, n_trials, trials_at : bool, int, ndarray of shape (t_max + 1,)
        Whether checked trials were drawn from counts; how many there are, and have each timestep.
    n_recurrent_classes, rank, condition : int or None, ndarray of shape (n,)
        Classes in the tail, None where states cannot be counted; numbers of neighborhoods.
    choice, features, left_out : Choice, FeatureSizes, LeftOut or None
        How the backup was chosen, how large features are, and samples left out, if many are.
    n_copies : int
        Number of checked trials that repeat others, and hardly by chance.
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

    def __init__(self, fit: Fit) -> None:
        source, system, encoding, starts = fit.source, fit.system, fit.encoding, fit.source.starts
        trials, self.drawn = shown.trials_of(fit)
        few = max(-(-trials.n_trials // _MOST_TRIALS), -(-trials.rewards.size // _MOST_REWARDS))
        trials, time = trials.take(slice(None, None, few)), shown.mean_duration(source)
        (N, T), lengths = trials.rewards.shape, trials.all_lengths
        T = max(1, int(np.sort(lengths)[-min(checks.MIN_TRIALS, N)]))  # later, trials are too few
        states, first = trials.observations[:, : T + 1], trials.observations[:, 0]
        here = np.arange(T + 1) <= lengths[:, None]
        living = np.isfinite(states).all(axis=2) if states.ndim == 3 else states != source.terminal
        R = np.where(here[:, 1:], trials.rewards[:, :T], np.nan)
        alive, v = here & living, np.zeros(here.shape)
        step = -(-N * T * 3 * MOST_COLUMNS // _MOST_NUMBERS)
        some, features = slice(None, None, step), np.zeros(0)
        if states.ndim == 3:
            columns = slice(None, None, -(-fit.system.weights.shape[1] // MOST_COLUMNS))
            features = source.some_features(slice(None, None, few * step), T + 1, columns)
            v[:] = fit.values_of_trials[: T + 1, ::few].T
        else:
            for t in np.array_split(np.arange(T + 1), 1 + here.size // shown.CHUNK):
                rows, windows = encoding.rows(states[:, t].T.ravel()), system.neighborhood_at(t)
                v[:, t] = system.values(rows, np.repeat(windows, N)).reshape(len(t), N).T
        v = np.where(here, v * alive, np.nan)
        skipped = ~living[:, :T] | trials.part("explored")[:, :T]
        blocks = shown.watched(states[some], alive[some], v[some], features)
        extreme = blocks[0] if states.ndim == 3 else blocks[1][..., :-1]
        self.ends = shown.ends_without_support(lengths[some], extreme[:, :T])
        groups, gain = shown.start_groups(first), fit.fitted.gain
        tail = checks.check_tail(R, [block[:, :T] for block in blocks], groups)
        delta = np.where(skipped, np.nan, R - gain.value * time + v[:, 1:] - v[:, :-1])
        # Trials that were drawn from counts do not show the noise of rewards.
        rounding = T * checks.rounding_of(R)  # of values, sums of rewards
        least = np.inf if self.drawn else rounding
        early, late = delta[:, : T // 2], checks.late_surprises(delta)
        early = np.nansum(early, axis=1) - np.isfinite(early).sum() / N * late
        every = [np.full(N, 1.0 / N)]
        later = checks.late_surprises(delta[:, T // 2 :]) if source.constant else late
        self.gain_conflict = max(shown.conflict(u, every, least) for u in (late, later)) / time
        at_start = np.zeros(N, dtype=np.int64)
        gap = fit.changes(encoding.rows(first), first, at_start, np.stack(every))[0]
        self.start_conflict = max(shown.conflict(early, every, least), float(gap))
        u, taken = np.nansum(delta, axis=1), np.isfinite(delta).sum(axis=1)
        whole = u - taken * u.sum() / max(int(taken.sum()), 1)
        self._whole = whole, first, least
        earned = np.nansum(R - checks.mean_of(R), axis=1)
        if checks.few_events(earned) and source.constant and fit.options.gain is None:
            # The tail may lack rare rewards that whole trials have.
            lacked = earned.std() / np.sqrt(source.n_trials) / T / time
            self.gain_conflict = max(self.gain_conflict, lacked)
        gain_noise, noise, self.gain_error, self.start_error = 0.0, 0.0, np.nan, np.nan
        if fit.n_batches > 1 and not source.is_sparse:
            gain_noise, noise = fit.jackknife.gain_error, fit.jackknife.start_bias_error
            self.gain_error, self.start_error = max(gain_noise, self.gain_conflict), noise
        found, self.rare = checks.check_starts(R, v, delta, groups, tail.unit, earned, late, noise)
        rows, n_in_row = R, 1.0
        if self.drawn and (batches := shown.means_of_batches(fit)) is not None:
            rows, n_in_row = batches[:, :T], source.n_trials / len(batches)
        self.own_means = checks.check_own_means(rows, tail.unit, n_in_row) / time
        self.hidden = checks.check_hidden(delta, v, tail.unit)
        halves = np.array_split(R[:, T // 2 :], 2, axis=1)
        self.tail_rewards = tuple(float(checks.mean_of(x, (0, 1))) / time for x in halves)
        self.tail, self.mean_duration, self.n_checked, self.stop = tail, time, N, T
        self.gain, self.gain_share = gain.value, gain.share
        self.gain_rows = gain.rows if gain.value or alive[:, T // 2 :].any() else "end"
        off = checks.check_gain(R, gain.value * time, gain_noise * time, tail.unit) / time
        known = self.settled and not skipped.any() and gain.rows != "mean"
        self.gain_off = off if known else 0.0
        self.start_value = float(np.nanmean(v[:, 0]))
        self.start_rewards = self.start_value + float(u.mean())
        self.misfits = shown.named_misfits(found, groups, first, encoding.decode)
        neighborhood = system.neighborhood_at(np.zeros(len(starts), dtype=np.int64))
        self.starts = [encoding.decode(state) for state in starts]
        self.start_samples = of_each(fit.samples_of(starts), neighborhood)
        self.start_determined = fit.states_determined(starts, neighborhood)
        end = v[np.arange(N), np.minimum(lengths, T)]  # may be as undetermined as the start's value
        self.is_counted, sure = source.are_places, checks.LEVEL / len(starts)
        bent = float(fit.changes(encoding.rows(starts), starts, neighborhood, None, sure).max())
        least = (checks.MISFIT if self.is_counted else _BENT) * tail.unit
        self.bent = bent * (bent > max(least, rounding))
        how = self.start_determined, first, u - end, tail.unit
        self.start_tolerable = shown.tolerable(starts, *how)
        self.n_trials, self.trials_at = source.n_trials, source.trials_at
        self.n_recurrent_classes = len(source.recurrent_classes) or None
        self.rank, self.condition, self.choice = system.rank, system.condition, fit.fitted.choice
        candidates, least = source.candidate_features, 2.0 * np.sqrt(fit.options.rcond)
        if source.are_places:  # some may not have been seen
            seen, least = (system.occupancy > 0.0).any(axis=0), fit.options.rcond
            candidates = candidates[np.flatnonzero(seen)]
        self.features, left_out = FeatureSizes.of(candidates, least), fit.fitted.left_out
        too_many = left_out is not None and left_out.number > _MOST_LEFT_OUT * left_out.of
        self.left_out = left_out if too_many else None
        self.n_copies = 0 if self.drawn else trials.n_copies

    def conflict(self, a: Any, b: Any) -> float:
        """By how much trials contradict the value of encoded starts ``a`` less that of ``b``."""
        u, first, least = self._whole
        return shown.conflict(u, [trial_weights(first, each) for each in (a, b)], least)

    @property
    def settled(self) -> bool:
        """Whether rewards and states of the tail have settled, as far as the trials show."""
        return self.tail.settled and self.tail.known

    @property
    def start_agrees(self) -> bool:
        """Whether the values of the start agree with returns."""
        return not self.misfits

    @property
    def error_unknown(self) -> bool:
        """Whether few rare rewards make up the noise."""
        return self.rare > 0.0

    @property
    def prefers_returns(self) -> bool:
        """Whether returns are better than values for a difference of starts."""
        return bool(self.misfits) and self.settled and not self.own_means and not self.ends

    @property
    def warnings(self) -> list[str]:
        """Problems, each with a remedy; empty if none is known."""
        found: list[str] = []
        tail, stop, half = self.tail, self.stop, self.stop // 2
        first, second = self.tail_rewards
        span = f"timesteps {half} to {stop - 1}"
        missing = (
            f"{tail.missing:.3g} ± {tail.missing_error:.2g} of the start's value may be missing "
            f"(so far the start changes the total reward by {tail.unit:.3g})"
        )
        more = "collect with a larger t_max"
        if stop < 4:
            found.append(f"the tail, {span}, is too short to show whether it has settled: {more}")
        elif not tail.rewards_settled:
            found.append(
                f"the tail has not settled: the mean reward of timesteps {half} to "
                f"{(half + stop) // 2 - 1} is {first:.6g}, of later timesteps {second:.6g}, and "
                f"the gain is {self.gain:.6g}; {missing}: {more}"
            )
        elif not tail.states_settled:
            found.append(
                f"the tail has not settled: observations still move in {span}, and have "
                f"{tail.moving:.2g} standard deviations or more to go: {more}; if time itself is "
                "among the observations, leave it out"
            )
        elif not tail.known:
            text = "" if self.n_checked >= checks.FEWEST_TRIALS else f" of {self.n_checked} trials"
            found.append(
                f"it is not known whether the tail{text} has settled: {missing}: collect more "
                "trials, or with a larger t_max"
            )
        if self.own_means and tail.settled:
            found.append(
                f"trials keep mean rewards of their own, {self.own_means:.2g} (one standard "
                f"deviation) off {self.gain:.4g}, so there is no single gain: evaluate each kind "
                f"of trials by itself or, if trials only mix slowly, {more}"
            )
        elif self.hidden and tail.settled and not self.misfits:
            found.append(
                "a lasting state is hidden: rewards beyond the values are correlated in adjacent "
                f"timesteps ({self.hidden:.2g}): use {_DISTINGUISH}"
            )
        n, last, t_max = self.n_trials, int(self.trials_at[-1]), len(self.trials_at) - 1
        middle = int(self.trials_at[(t_max + 1) // 2])
        if last < min(_FEW_SAMPLES, n) or middle < _FEW_IN_TAIL * n:
            enough = np.flatnonzero(self.trials_at >= n / 2)[-1]
            found.append(
                f"{last} of {n} trials have the last timestep, {t_max}, and {middle} have timestep "
                f"{(t_max + 1) // 2}, where the tail begins, so that few trials determine the gain "
                f"and later values: log longer trials, or choose t_max={enough}, which half reach"
            )
        if self.ends > _ENDS:
            found.append(
                f"{self.ends:.0%} of the trials that end early end in states from which hardly any "
                "trial goes on, so gain and values describe the other trials only: log trials "
                "beyond these states"
            )
        if self.gain_rows == "mean":
            found.append(
                "the tail does not determine the gain (effective share of the samples "
                f"{self.gain_share:.2g}): {self.gain:.6g} is its mean reward, and an error of it "
                f"changes a start's value by up to {self.stop} times as much: {more}, use fewer "
                "features, leave time out of the observations, or give gain= (0 if all trials end)"
            )
        if self.gain_off:
            found.append(
                f"the last timesteps earn at least {abs(self.gain_off):.3g} "
                f"{'more' if self.gain_off > 0.0 else 'less'} than the gain, {self.gain:.6g}, and "
                f"an error of it changes a start's value by up to {self.stop} times as much: use "
                f"{_DISTINGUISH}, or another backup, or give gain="
            )
        if self.left_out is not None:
            found.append(str(self.left_out))
        if self.n_copies:
            found.append(
                f"{self.n_copies} of {self.n_checked} trials are exact copies of others, so that "
                "standard errors are too small: leave copies out, and seed each differently"
            )
        found += filter(None, [self.features.warning])
        unknown = ~self.start_determined & ~self.start_tolerable
        if unknown.any():
            found.append(
                f"the samples do not determine the values of starts {self._named(unknown)}: "
                "collect more trials, give anchors= a wider first neighborhood, or use features "
                "that distinguish these states"
            )
        few = self.start_determined & (self.start_samples < _FEW_SAMPLES)
        if few.any():
            found.append(
                f"starts {self._named(few)} have fewer than {_FEW_SAMPLES} samples "
                f"(at least {self.start_samples[few].min():.3g}): collect more trials"
            )
        if self.misfits:
            shown, rest = map(str, self.misfits[:_N_MISFITS]), len(self.misfits) - _N_MISFITS
            instead = 'for a difference of starts use compare(a, b, by="returns"); for values '
            found.append(
                f"{'; '.join(shown)}{f'; and {rest} more' if rest > 0 else ''}: "
                f"{instead if self.prefers_returns else ''}use {_DISTINGUISH}, more neighborhoods "
                "(n_anchors) or, where the standard error is large, more trials"
            )
        if self.rare:
            found.append(
                f"few rare rewards decide gain and values: one of {self.n_checked} trials changes "
                f"the start's mean value by {self.rare:.2g} (the start changes the total reward by "
                f"{tail.unit:.3g}), so standard errors may be far too small: collect more trials"
            )
        if self.bent:
            by = "the model of counted states, which needs none"
            by = by if self.is_counted else "more features or longer targets (LambdaReturn)"
            found.append(
                f"the features do not suffice: values of starts change by up to {self.bent:.3g} "
                f"with {by} (the start changes the total reward by {tail.unit:.3g}): use "
                f"{_DISTINGUISH}"
            )
        return found

    def _named(self, chosen: BoolArray) -> str:
        places, more = np.flatnonzero(chosen), int(chosen.sum()) - _N_NAMED
        names = ", ".join(checks.in_a_line(self.starts[i]) for i in places[:_N_NAMED])
        return f"{names} and {more} more" if more > 0 else names

    def _repr_html_(self) -> str:
        return as_html("diagnostics", str(self))

    def __str__(self) -> str:
        tail, half, classes = self.tail, self.stop // 2, self.n_recurrent_classes
        condition = float(np.max(self.condition))
        state = "settled" if self.settled else "NOT KNOWN" if tail.settled else "NOT SETTLED"
        share = f", effective share {self.gain_share:.2g}"
        if self.mean_duration != 1.0:
            share += f", per unit of time (a step takes {self.mean_duration:.4g})"
        error = f" ± {self.gain_error:.2g}".replace(" ± nan", " (gain_error_ computes its error)")
        noise = f" ± {self.start_error:.2g}".replace(" ± nan", "")
        off = self.gain_conflict, self.start_conflict
        alike = ", NOT CHECKED: few rare rewards decide it" * self.error_unknown
        alike = alike if self.start_agrees else ": NOT ALIKE"
        lines = [
            f"tail        {state}: mean reward {self.tail_rewards[0]:.6g} at {half} to "
            f"{(half + self.stop) // 2 - 1}, {self.tail_rewards[1]:.6g} until {self.stop - 1}",
            f"may be missing: {tail.missing:.3g} ± {tail.missing_error:.2g} (in reward; so "
            f"far the start changes the total reward by {tail.unit:.3g})",
            f"gain        {self.gain:.6g}{error}, by {self.gain_rows}{share}",
            f"starts      {len(self.starts)}, {int(self.start_determined.sum())} determined, "
            f"samples {min(self.start_samples, default=0.0):.6g} or more",
            f"start       mean value {self.start_value:.6g}{noise} by the features, "
            f"{self.start_rewards:.6g} by rewards{alike}",
            f"errors      are at least what trials contradict: {off[0]:.2g} of the gain, "
            f"{off[1]:.2g} of the start's bias" * any(off),
            f"trials      DIFFER IN MEAN REWARD FOR GOOD, by ± {self.own_means:.2g}"
            * bool(self.own_means),
            "trials      drawn from the counts, because only counts were given" * self.drawn,
            f"classes     {classes} recurrent in the tail" * (classes is not None),
            f"features    {self.features}",
            f"condition   {condition:.1e} or less" * bool(np.isfinite(condition)),
            f"backup      {self.choice}",
        ]
        return "\n".join(filter(None, [*lines, *(f"warning: {text}" for text in self.warnings)]))
