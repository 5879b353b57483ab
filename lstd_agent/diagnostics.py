"""What may be wrong with a fit: an unsettled tail, a start that samples or features do not tell.

The mean rewards of parts of the tail, which should be alike, are compared (`lstd_agent.tail`). What
the samples say of the start, for which the bias is wanted, is told as well: whether they determine
its value, and whether the values of starts are what the rewards of trials from there on add up to
(`lstd_agent.misfit`), which they are not where features are too coarse.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.features.sizes import FeatureSizes
from lstd_agent.fit import Fit
from lstd_agent.misfit import Misfit, check_start, in_a_line
from lstd_agent.statistics.closing import LeftOut
from lstd_agent.statistics.interface import SampledStatistics
from lstd_agent.system.selection import Choice
from lstd_agent.tail import check_tail
from lstd_agent.trials.encoding import Encoding
from lstd_agent.trials.kept import has_gaps

FEW_SAMPLES = 10
"""Starts with fewer samples than this are named."""

# Fewer transitions do not show that a class of states is never left.
_ENOUGH_TRANSITIONS = 100

# Leaving out more of a window's samples may change what the others tell: it is by where they led.
_MOST_LEFT_OUT = 0.1

# More starts, and more groups of them, than a warning has room for.
_N_NAMED, _N_MISFITS = 8, 3


@dataclass(frozen=True, eq=False)
class Diagnostics:
    """An account of how far a fit may be relied on.

    Attributes
    ----------
    settled : bool
        Whether the two halves of the settled tail look alike.
    tail : tuple of int
        Their timesteps: start, middle and stop.
    tail_rewards : tuple of float
        Their mean rewards.
    tail_error : float
        Standard error of the difference, by batches; with one batch, by timesteps, roughly.
    tail_correlation : float
        Between parts of the tail, over batches of trials, where trials keep mean rewards of their
        own, so that there is no one gain; else 0.
    gain : float
        The gain of the fit.
    starts : list
        Observations in which trials start (of vectors, those of stored trials).
    start_samples : ndarray
        How many samples each amounts to in its neighbourhood (the inverse of its leverage).
    start_determined : ndarray of bool
        Whether the samples determine its value.
    start_tolerable : ndarray of bool
        Which of those undetermined are none to warn of: none of states; of vectors, of which no
        two need be alike, a few at the edge of where the others are.
    start_value, start_rewards : float
        The mean value of the start: predicted, and what the rewards above the gain and the value
        of the end add up to; NaN where trials were explored.
    start_error : float
        Standard error of their difference, the fit taken as given; NaN where the difference is too
        small to matter.
    start_noise : float
        Standard error of the predicted one, where it is so large that it may be anything; else 0.
    misfits : list of Misfit
        Groups of starts whose values are not what trials from there on earned, the worst first.
    start_agrees : bool
        Whether there are none, and no noise.
    n_trials, n_last : int
        How many trials there are, and how many of them have the last timestep: all, unless some
        were cut short.
    n_recurrent_classes : int or None
        That the transitions of the settled tail show; None where states cannot be counted.
    rank, condition : ndarray, shape (n,)
        Of each neighbourhood.
    choice : Choice
        Of the backup: asked for, or by the data, with what was tried.
    features : FeatureSizes
        How large features are, and which of them vary too little.
    left_out : LeftOut or None
        Of many sparse features: the samples that tell nothing, since they lead to what no others
        determine, in the window of which they are the largest part; as the last fit found them.

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

    settled: bool
    tail: tuple[int, int, int]
    tail_rewards: tuple[float, float]
    tail_error: float
    tail_correlation: float
    gain: float
    starts: list[Any]
    start_samples: FloatArray
    start_determined: BoolArray
    start_tolerable: BoolArray
    start_value: float
    start_rewards: float
    start_error: float
    start_noise: float
    misfits: list[Misfit]
    n_trials: int
    n_last: int
    n_recurrent_classes: int | None
    rank: IntArray
    condition: FloatArray
    choice: Choice
    features: FeatureSizes
    left_out: LeftOut | None

    @property
    def start_agrees(self) -> bool:
        """Whether the values of the start are what trials from there on show."""
        return not self.misfits and self.start_noise == 0.0

    @property
    def warnings(self) -> list[str]:
        """What is wrong, with what to do; empty where nothing is known to be."""
        return [*self._of_tail(), *self._of_start()]

    def _of_tail(self) -> Iterator[str]:
        start, middle, stop = self.tail
        if not self.settled and middle == stop:
            yield (
                f"the tail, timesteps {start} to {stop - 1}, is too short to tell whether it has "
                "settled: collect with a larger t_max"
            )
        elif not self.settled:
            first, second = self.tail_rewards
            yield (
                f"the tail has not settled: the mean reward of timesteps {start} to {middle - 1} "
                f"is {first:.6g}, that of {middle} to {stop - 1} is {second:.6g} (difference "
                f"{second - first:.3g}, standard error {self.tail_error:.2g}), and the gain is "
                f"{self.gain:.6g}. Collect with a larger t_max"
            )
        if self.tail_correlation > 0.0:
            yield (
                f"trials keep mean rewards of their own: over batches of trials, those of parts of "
                f"timesteps {start} to {stop - 1} correlate by {self.tail_correlation:.2f}. If "
                "trials differ for good there is no one gain: evaluate their kinds apart; if they "
                "only take long to mix, collect with a larger t_max"
            )
        if self.n_last < min(FEW_SAMPLES, self.n_trials):
            yield (
                f"{self.n_last} of {self.n_trials} trials have the last timestep, and the gain is "
                "that of the second half of all timesteps: give add_trials() a t_max that more "
                "trials reach"
            )

        if self.left_out is not None and self.left_out.share > _MOST_LEFT_OUT:
            yield str(self.left_out)

    def _of_start(self) -> Iterator[str]:
        if self.features.warning:
            yield self.features.warning
        unknown = ~self.start_determined & ~self.start_tolerable
        if unknown.any():
            yield (
                "the samples do not determine the values of starts "
                f"{self._named(unknown)}: collect more trials, give anchors= a "
                "wider first neighborhood, or use features that tell these states"
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
            yield (
                f"{shown}{f'; and {more} more' if more > 0 else ''}: use features, or "
                "observations, that tell more states apart, more neighborhoods (n_anchors) or, "
                "where the standard error is large, more trials"
            )
        if self.start_noise > 0.0:
            yield (
                f"the mean value of the start, {self.start_value:.6g}, has a standard error of "
                f"{self.start_noise:.2g}, and the rewards seen do not tell it either: collect more "
                "trials, or use fewer features"
            )

    def _named(self, chosen: BoolArray) -> str:
        places = np.flatnonzero(chosen)
        names = ", ".join(in_a_line(self.starts[i]) for i in places[:_N_NAMED])
        more = f" and {len(places) - _N_NAMED} more" if len(places) > _N_NAMED else ""
        return f"{names}{more}"

    def __str__(self) -> str:
        start, middle, stop = self.tail
        first, second = self.tail_rewards
        lines = [
            f"tail        {'settled' if self.settled else 'NOT SETTLED'}: mean reward {first:.6g} "
            f"at {start} to {middle - 1}, {second:.6g} at {middle} to {stop - 1}, standard error "
            f"of the difference {self.tail_error:.2g}"
            f"{'; TRIALS HAVE MEANS OF THEIR OWN' if self.tail_correlation > 0.0 else ''}",
            f"starts      {len(self.starts)}, {int(self.start_determined.sum())} determined, "
            f"samples {self.start_samples.min():.6g} or more",
            f"start       mean value {self.start_value:.6g} by the features, "
            f"{self.start_rewards:.6g} by rewards{'' if self.start_agrees else ': NOT ALIKE'}",
        ]
        if self.n_recurrent_classes is not None:
            lines.append(f"classes     {self.n_recurrent_classes} recurrent in the tail")
        lines.append(f"features    {self.features}")
        if np.isfinite(self.condition).all():
            lines.append(f"condition   {self.condition.max():.1e} or less")
        lines.append(f"backup      {self.choice}")
        return "\n".join(lines + [f"warning: {text}" for text in self.warnings])


def check_single_class(statistics: SampledStatistics, encoding: Encoding) -> None:
    """Raise if trials end up in more than one recurrent class: one gain is none of theirs."""
    classes = [
        found
        for found in statistics.recurrent_classes
        if found.n_transitions >= _ENOUGH_TRANSITIONS
    ]
    if len(classes) < 2:
        return
    names = []
    for found in classes[:5]:
        states = [str(encoding.decode(state)) for state in found.states[:5]]
        names.append("{" + ", ".join(states) + (", ..." if found.states.size > 5 else "") + "}")
    raise InvalidInputError(
        f"from timestep {(statistics.t_max + 1) // 2} on the trials stay in {len(classes)} "
        f"separate classes of states: {', '.join(names)}{', ...' if len(classes) > 5 else ''}. "
        "Gain and relative values need a single recurrent class: evaluate the classes one by "
        "one, or, if trials only take long to get from one to another, use a larger t_max"
    )


def check_own_trials(statistics: SampledStatistics) -> None:
    """Raise if exploration leaves a timestep without a transition that is the policy's."""
    n_at = statistics.trials_at
    missing = np.flatnonzero(n_at == 0)
    if missing.size and has_gaps(n_at):
        raise InvalidInputError(
            f"all actions at timestep {missing[0]} were exploratory, so that nothing there is the "
            "policy's own: explore less, or collect trials without exploration too. Action values "
            "of counted observations do without a fit"
        )


def diagnose(fit: Fit) -> Diagnostics:
    """Return how far the fit may be relied on; ``print`` it.

    Returns
    -------
    Diagnostics
    """
    statistics, system = fit.statistics, fit.system
    states, sparse = statistics.starts, statistics.sparse_trials
    neighborhood = system.neighborhood_at(np.zeros(len(states), dtype=np.int64))
    observations = [fit.encoding.decode(state) for state in states]
    share = fit.occupancy_of(states)[neighborhood, np.arange(len(states))]
    classes = statistics.recurrent_classes
    determined = fit.states_determined(states, neighborhood)
    return Diagnostics(
        **check_tail(fit)._asdict(),
        **check_start(fit)._asdict(),
        gain=system.gain,
        starts=observations,
        start_samples=share * system.n_samples[neighborhood],
        start_determined=determined,
        start_tolerable=statistics.tolerable(~determined),
        n_trials=statistics.n_trials,
        n_last=int(statistics.trials_at[-1]),
        n_recurrent_classes=len(classes) if classes else None,
        rank=system.rank,
        condition=system.condition,
        choice=fit.choice,
        features=_feature_sizes(fit),
        left_out=None if sparse is None else sparse.most_left_out,
    )


def _feature_sizes(fit: Fit) -> FeatureSizes:
    """Return those of the candidates that were seen."""
    statistics, rcond = fit.statistics, fit.options.rcond
    features = statistics.candidate_features
    if statistics.candidates_are != "state":  # all were stored; moments hold squares
        return FeatureSizes.of(features, 2.0 * np.sqrt(rcond))
    seen = np.flatnonzero((fit.system.occupancy > 0.0).any(axis=0))
    return FeatureSizes.of(features[seen], rcond)
