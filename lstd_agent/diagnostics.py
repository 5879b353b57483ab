"""`Diagnostics`: the checks of a fit, and their warnings.

A warning says what is wrong, in numbers, what to do, and which number to use instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.features.sizes import FeatureSizes
from lstd_agent.html import as_html

# With fewer trials no check can alarm. Starts with fewer samples are named.
FEWEST_TRIALS, FEW_SAMPLES = 12, 10

# Warn if a smaller share of the trials has the tail, or a larger share of logs ends in states
# without successors.
_FEW_IN_TAIL, _ENDS = 0.1, 0.5

_N_NAMED, _N_MISFITS = 8, 3
_DISTINGUISH = "features, or observations, that distinguish more states"


def in_a_line(observation: Any) -> str:
    """Return an observation in a line, shortened if it is large."""
    if isinstance(observation, np.ndarray):
        return np.array2string(observation, max_line_width=10**4, threshold=8, edgeitems=2)
    return str(observation)


@dataclass(frozen=True)
class TailCheck:
    """Whether the rewards and the states of the last timesteps have settled.

    ``missing``: reward above the gain after the last timestep; ``unit``: E, by how much the start
    changes the total reward; ``known``: whether trials show if rewards have settled; ``moving``:
    further movement of states, in standard deviations.
    """

    missing: float
    missing_error: float
    unit: float
    rewards_settled: bool
    states_settled: bool
    known: bool
    moving: float

    @property
    def settled(self) -> bool:
        """Whether both rewards and states have settled."""
        return self.rewards_settled and self.states_settled


@dataclass(frozen=True)
class Misfit:
    """A group of starts (0: all trials) whose mean value contradicts the rewards of its trials.

    ``predicted``: mean value by the fit; ``direct``: by rewards above the gain of ``horizon``
    timesteps and, if ``closed``, by the fitted value after them; ``error``: the standard error of
    the difference; ``start``: one of ``n_starts`` different starts (None for all trials).
    """

    group: int
    predicted: float
    direct: float
    error: float
    horizon: int
    closed: bool
    start: Any = None
    n_starts: int = 0

    def __str__(self) -> str:
        who = f"the mean value of {self.n_starts} starts about {in_a_line(self.start)}"
        if self.start is None:
            who = "the mean value of the start"
        elif self.n_starts == 1:
            who = f"the value of start {in_a_line(self.start)}"
        return (
            f"{who} is {self.predicted:.6g} by the features, and {self.direct:.6g} by the rewards "
            f"of the next {self.horizon} timesteps{' and the value there' if self.closed else ''} "
            f"(difference {self.predicted - self.direct:.3g}, standard error {self.error:.2g})"
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Diagnostics:
    """The checks of a fit, and their warnings.

    Attributes
    ----------
    gain, gain_error, gain_share : float
        The gain, its standard error, and its effective number of samples as a share of the tail's.
    gain_rows : {"tail", "all", "mean", "given"}
        Which samples determine the gain; "mean": none do, and it is the tail's mean reward.
    mean_duration : float
        Mean time that a step of the tail takes; 1 where trials have no durations.
    starts, start_samples, start_determined, start_tolerable : list, ndarray
        Observations in which trials start (of vectors, some), the samples of each, whether they
        determine its value, and whether it needs no warning otherwise.
    start_value, start_error, start_rewards, start_noise : float, bool
        Mean value of the start, its standard error (NaN if not known), mean return above the gain,
        and whether the error is too large for the value to be of use.
    misfits, start_agrees, prefers_returns : list of Misfit, bool
        Groups of starts whose values contradict returns, most significant first; whether there are
        none; and whether returns give the better difference of starts.
    rare, error_unknown : float, bool
        By how much one trial changes the mean value of the start, if few trials make up the noise
        of rewards and this matters, else 0; and whether that is so: errors may be far too small.
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
    n_recurrent_classes : int or None
        In the tail; None where states cannot be counted.
    rank, condition : ndarray, shape (n,)
        Of each neighborhood.
    choice, features, others : Choice, FeatureSizes, tuple of str
        How the backup was chosen, how large features are, and further warnings.
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

    gain: float
    gain_error: float
    gain_share: float
    gain_rows: str
    mean_duration: float
    starts: list[Any]
    start_samples: FloatArray
    start_determined: BoolArray
    start_tolerable: BoolArray
    start_value: float
    start_rewards: float
    start_error: float
    start_noise: bool
    misfits: list[Misfit]
    rare: float
    tail: TailCheck
    tail_rewards: tuple[float, ...]
    n_checked: int
    stop: int
    own_means: float
    hidden: float
    ends: float
    drawn: bool
    n_trials: int
    trials_at: IntArray
    n_recurrent_classes: int | None
    rank: IntArray
    condition: FloatArray
    choice: object
    features: FeatureSizes
    others: tuple[str, ...]

    @property
    def settled(self) -> bool:
        """Whether rewards and states of the tail have settled, as far as the trials show."""
        return self.tail.settled and self.tail.known

    @property
    def start_agrees(self) -> bool:
        """Whether the values of the start agree with returns."""
        return not self.misfits and not self.start_noise

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
        if stop < 4:
            found.append(
                f"the tail, {span}, is too short to show whether it has settled: collect with a "
                "larger t_max"
            )
        elif not tail.rewards_settled:
            found.append(
                f"the tail has not settled: the mean reward of timesteps {half} to "
                f"{(half + stop) // 2 - 1} is {first:.6g}, of later timesteps {second:.6g}, and "
                f"the gain is {self.gain:.6g}; {missing}: collect with a larger t_max"
            )
        elif not tail.states_settled:
            found.append(
                f"the tail has not settled: observations still move in {span}, and have "
                f"{tail.moving:.2g} standard deviations or more to go: collect with a larger "
                "t_max; if time itself is among the observations, leave it out"
            )
        elif not tail.known:
            text = "" if self.n_checked >= FEWEST_TRIALS else f" of {self.n_checked} trials"
            found.append(
                f"it is not known whether the tail{text} has settled: {missing}: collect more "
                "trials, or with a larger t_max"
            )
        if self.own_means and tail.settled:
            found.append(
                f"trials keep mean rewards of their own, {self.own_means:.2g} (one standard "
                f"deviation) off {self.gain:.4g}, so there is no single gain: evaluate each kind "
                "of trials by itself or, if trials only mix slowly, collect with a larger t_max"
            )
        elif self.hidden and tail.settled and not self.misfits:
            found.append(
                "a lasting state is hidden: rewards beyond the values are correlated in adjacent "
                f"timesteps ({self.hidden:.2g}): use {_DISTINGUISH}"
            )
        n, last, t_max = self.n_trials, int(self.trials_at[-1]), len(self.trials_at) - 1
        middle = int(self.trials_at[(t_max + 1) // 2])
        if last < min(FEW_SAMPLES, n) or middle < _FEW_IN_TAIL * n:
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
            share = self.gain_share
            said = "" if np.isnan(share) else f" (effective share of the samples {share:.2g})"
            found.append(
                f"the tail does not determine the gain{said}: {self.gain:.6g} is its mean reward, "
                f"and an error of it changes a start's value by up to {self.stop} times as much: "
                "collect with a larger t_max, use fewer features, leave time out of the "
                "observations, or give gain="
            )
        found += [*self.others, *([self.features.warning] if self.features.warning else [])]
        unknown = ~self.start_determined & ~self.start_tolerable
        if unknown.any():
            found.append(
                f"the samples do not determine the values of starts {self._named(unknown)}: "
                "collect more trials, give anchors= a wider first neighborhood, or use features "
                "that distinguish these states"
            )
        few = self.start_determined & (self.start_samples < FEW_SAMPLES)
        if few.any():
            found.append(
                f"starts {self._named(few)} have fewer than {FEW_SAMPLES} samples "
                f"(at least {self.start_samples[few].min():.3g}): collect more trials"
            )
        if self.misfits:
            shown, more = map(str, self.misfits[:_N_MISFITS]), len(self.misfits) - _N_MISFITS
            instead = 'for a difference of starts use compare(a, b, by="returns"); for values '
            found.append(
                f"{'; '.join(shown)}{f'; and {more} more' if more > 0 else ''}: "
                f"{instead if self.prefers_returns else ''}use {_DISTINGUISH}, more neighborhoods "
                "(n_anchors) or, where the standard error is large, more trials"
            )
        if self.rare:
            found.append(
                f"few rare rewards decide gain and values: one of {self.n_checked} trials changes "
                f"the start's mean value by {self.rare:.2g} (in all, the start changes the total "
                f"reward by {tail.unit:.3g}), so standard errors may be far too small: collect "
                "more trials"
            )
        if self.start_noise:
            found.append(
                f"the mean value of the start, {self.start_value:.6g}, has a standard error of "
                f"{self.start_error:.2g}, and by rewards the start changes the total reward by "
                f"{self.tail.unit:.3g} only: collect more trials, or use fewer features"
            )
        return found

    def _named(self, chosen: BoolArray) -> str:
        places = np.flatnonzero(chosen)
        names = ", ".join(in_a_line(self.starts[i]) for i in places[:_N_NAMED])
        more = f" and {len(places) - _N_NAMED} more" if len(places) > _N_NAMED else ""
        return f"{names}{more}"

    def _repr_html_(self) -> str:
        """Return the account for notebooks."""
        return as_html("diagnostics", str(self))

    def __str__(self) -> str:
        tail, half, classes = self.tail, self.stop // 2, self.n_recurrent_classes
        condition = float(np.max(self.condition))
        state = "settled" if self.settled else "NOT KNOWN" if tail.settled else "NOT SETTLED"
        share = "" if np.isnan(self.gain_share) else f", effective share {self.gain_share:.2g}"
        if self.mean_duration != 1.0:
            share += f", per unit of time (a step takes {self.mean_duration:.4g})"
        known = not np.isnan(self.gain_error)
        error = f" ± {self.gain_error:.2g}" if known else " (gain_error_ computes its error)"
        alike = ", NOT CHECKED: few rare rewards decide it" if self.error_unknown else ""
        alike = alike if self.start_agrees else ": NOT ALIKE"
        lines = [
            f"tail        {state}: mean reward {self.tail_rewards[0]:.6g} at {half} to "
            f"{(half + self.stop) // 2 - 1}, {self.tail_rewards[1]:.6g} until {self.stop - 1}",
            f"may be missing: {tail.missing:.3g} ± {tail.missing_error:.2g} (in reward; so "
            f"far the start changes the total reward by {tail.unit:.3g})",
            f"gain        {self.gain:.6g}{error}, by {self.gain_rows}{share}",
            f"starts      {len(self.starts)}, {int(self.start_determined.sum())} determined, "
            f"samples {min(self.start_samples, default=0.0):.6g} or more",
            f"start       mean value {self.start_value:.6g} by the features, "
            f"{self.start_rewards:.6g} by rewards{alike}",
            f"trials      DIFFER IN MEAN REWARD FOR GOOD, by ± {self.own_means:.2g}"
            * bool(self.own_means),
            "trials      drawn from the counts, because only counts were given" * self.drawn,
            f"classes     {classes} recurrent in the tail" * (classes is not None),
            f"features    {self.features}",
            f"condition   {condition:.1e} or less" * bool(np.isfinite(condition)),
            f"backup      {self.choice}",
        ]
        return "\n".join(filter(None, [*lines, *(f"warning: {text}" for text in self.warnings)]))
