"""Whether the values of starts are what trials from there on show them to be.

Where features are too coarse, a fit is as sure of wrong values as of right ones: standard errors
tell of noise only. What trials from like starts earned (`lstd_agent.statistics.start_groups`)
shows it. A group's value is judged wrong if it is off by a share of the range of values that
matters, and by more standard errors than chance allows for: among all groups and horizons of a
fit it is wrongly judged so about once in a thousand fits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from lstd_agent.arrays import BoolArray, FloatArray
from lstd_agent.fit import Fit
from lstd_agent.standard_errors import most_by_chance
from lstd_agent.statistics.start_groups import StartGroups
from lstd_agent.system.start_value import deviations, direct_values
from lstd_agent.trials.kept import has_gaps

LEVEL = 1e-3
"""Chance of judging any value of a right fit wrong."""

# Shares of the range of values that matter: of the mean over all starts, and of some of them.
_SHARE_OF_MEAN = 0.05
_SHARE_OF_SOME = 0.1

# A value is right if it is within what is tolerated by so many standard errors.
_CERTAINTY = 2.0

# A mean value of the start whose own standard error is a larger share is noise, unless the rewards
# seen tell it to be right: with a smaller one.
_LARGEST_ERROR = 0.25

# Most values are in a range of so many standard deviations.
_RANGE = 4.0

# What is smaller beside the sum of all rewards is rounding.
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Misfit:
    """A group of starts whose mean value is not what trials from there on show.

    Attributes
    ----------
    start : Any or None
        One of them; None where they are all.
    n_starts : int
        How many different ones trials began in.
    predicted, direct : float
        Their mean value: by features, and by what the rewards above the gain of the next
        timesteps and the value there add up to.
    error : float
        Standard error of the difference.
    horizon : int
        How many timesteps.
    """

    start: Any
    n_starts: int
    predicted: float
    direct: float
    error: float
    horizon: int

    def __str__(self) -> str:
        if self.start is None:
            who = "the mean value of the start"
        elif self.n_starts == 1:
            who = f"the value of start {in_a_line(self.start)}"
        else:
            who = f"the mean value of {self.n_starts} starts about {in_a_line(self.start)}"
        return (
            f"{who} is {self.predicted:.6g} by the features, and {self.direct:.6g} by the rewards "
            f"of the next {self.horizon} timesteps and the value there (difference "
            f"{self.predicted - self.direct:.3g}, standard error {self.error:.2g})"
        )


def in_a_line(observation: Any) -> str:
    """Return an observation in a line, of a picture the ends only."""
    if isinstance(observation, np.ndarray):
        return np.array2string(observation, max_line_width=10**4, threshold=8, edgeitems=2)
    return str(observation)


class StartCheck(NamedTuple):
    """What `lstd_agent.Diagnostics` tells of the values of the start."""

    start_value: float
    start_rewards: float
    start_error: float
    start_noise: float
    misfits: list[Misfit]


def check_start(fit: Fit) -> StartCheck:
    """Compare the values of starts with what trials from there on earned."""
    system, statistics = fit.system, fit.statistics
    if has_gaps(statistics.trials_at):
        # What explored trials earned is none of the policy's.
        features = statistics.mean_features(0)[None]
        predicted = float(system.values(features, np.zeros(1, dtype=np.int64))[0])
        return StartCheck(predicted, np.nan, np.nan, 0.0, [])
    by_rewards = direct_values(system, statistics)
    scale = max(float(np.ptp(by_rewards)), _range_of_values(fit))
    rounding = _ROUNDING * float(np.abs(statistics.mean_rewards).sum())

    def tolerance(groups: StartGroups) -> FloatArray:
        share = np.full((len(groups.predicted), 1), _SHARE_OF_SOME)
        share[0] = _SHARE_OF_MEAN
        return np.maximum(share * scale, rounding)

    groups = fit.start_groups(lambda found: bool((_difference(found) > tolerance(found)).any()))
    difference, tolerated = _difference(groups), tolerance(groups)
    matter = difference > tolerated
    error = groups.error.copy()
    if np.isnan(error[0, -1]) and matter[0, -1]:
        # Of independent noise; what varies slowly is none, and differences leave it out.
        error[0, -1] = np.linalg.norm(np.diff(deviations(system, statistics))) / np.sqrt(2.0)
    explained = most_by_chance(groups.degrees, LEVEL / error.size)[:, None] * error
    wrong = matter & (difference > explained)
    # What is wrong at a shorter horizon are the values there, if two longer ones say that these are
    # right: at one alone the values there may be as wrong as these, after a period as ever.
    right = difference + _CERTAINTY * error <= tolerated
    right[:, 1:] &= right[:, :-1]
    wrong &= ~np.logical_or.accumulate(right[:, ::-1], axis=1)[:, ::-1]
    noise = 0.0
    if matter[0, -1] and not wrong.any() and error[0, -1] > _LARGEST_ERROR * scale:
        noise = fit.start_error() if len(fit.batches) > 1 else np.inf
    return StartCheck(
        start_value=float(groups.predicted[0]),
        start_rewards=float(by_rewards[0]),
        start_error=float(error[0, -1]) if matter[0, -1] else np.nan,
        start_noise=noise if noise > _LARGEST_ERROR * scale else 0.0,
        misfits=_misfits(fit, groups, error, wrong),
    )


def _difference(groups: StartGroups) -> FloatArray:
    return np.asarray(np.abs(groups.direct - groups.predicted[:, None]))


def _misfits(fit: Fit, groups: StartGroups, error: FloatArray, wrong: BoolArray) -> list[Misfit]:
    """Return the groups that are wrong, without those of which a part is."""
    any_wrong = wrong.any(axis=1)
    has_wrong_part = np.isin(np.arange(len(wrong)), groups.parent[any_wrong])
    found = []
    for i in np.flatnonzero(any_wrong & ~has_wrong_part):
        # The longest horizon sees most of what is wrong, and least of other values.
        k = int(np.flatnonzero(wrong[i])[-1])
        found.append(
            Misfit(
                start=None if i == 0 else fit.encoding.decode(groups.example[i - 1]),
                n_starts=int(groups.n_starts[i]),
                predicted=float(groups.predicted[i]),
                direct=float(groups.direct[i, k]),
                error=float(error[i, k]),
                horizon=int(groups.horizons[k]),
            )
        )
    return sorted(found, key=lambda misfit: -abs(misfit.predicted - misfit.direct))


def _range_of_values(fit: Fit) -> float:
    """Return the range of values at the starts, or of most values in a neighbourhood if larger."""
    system = fit.system
    starts = fit.encoding.rows(fit.statistics.starts)
    widest = float(np.ptp(system.values(starts, np.zeros(starts.shape[0], dtype=np.int64))))
    for k, occupancy in enumerate(system.occupancy):
        weight = occupancy / max(occupancy.sum(), 1e-300)
        values = fit.candidate_values(k)
        deviation = float(np.sqrt(weight @ (values - weight @ values) ** 2))
        widest = max(widest, _RANGE * deviation)
    return widest
