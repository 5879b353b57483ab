"""`SeminormLSTDAgent`: the model-free evaluator, from trials to calibrated values.

trials → statistics → neighbourhoods → references → weights → offsets → values: Algorithm
``training_nbwpval`` of the paper.
"""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from lstd_agent import persistence, plotting, summary
from lstd_agent.arrays import IntArray
from lstd_agent.errors import InvalidInputError, NotFittedError
from lstd_agent.features.kernels import Kernel
from lstd_agent.features.tables import Features
from lstd_agent.fit import Fit, Predictor
from lstd_agent.statistics.counts import SampledStatistics
from lstd_agent.statistics.making import make_statistics
from lstd_agent.statistics.moments import BoxStatistics
from lstd_agent.system.distances import MMD, DistributionDistance, sampled_distance
from lstd_agent.system.fit_system import System, fit_system, refit
from lstd_agent.system.minimizer import DEFAULT_RCOND, check_rcond
from lstd_agent.system.neighborhoods import (
    SEARCHES,
    check_anchors,
    check_n_anchors,
    find_anchors,
    only_anchors,
)
from lstd_agent.system.references import RULES
from lstd_agent.trials.collector import DEFAULT_MAX_BYTES, Termination
from lstd_agent.trials.encoding import ObservationKind
from lstd_agent.trials.recording import Sums

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class SeminormLSTDAgent(Predictor):
    """Estimates the relative value of a policy from transient and recurrent states alike.

    Parameters
    ----------
    features : array_like, builder, callable or transformer
        State features; see `lstd_agent.features.tables` and `lstd_agent.features.vectors`.
    n_anchors : int or None
        Wanted number of neighbourhoods (at most); None is one for each timestep.
    anchors : array_like of int, optional
        The anchors themselves, instead of a search.
    search : {"exact", "doubling"}
        How the anchors are searched for: as close to the wanted number as can be got, or as in
        the paper, which may jump past it to a single one. See
        `lstd_agent.system.neighborhoods.find_anchors`.
    distance : {"mmd", "tv", "ot"}, MMD or callable
        Between the state distributions of two timesteps, for the anchor search. A callable
        gets two distributions (S,). Vector observations have the linear MMD only, by default
        with a kernel of ``width="median"``.
    reference : {"occupancy", "most_common"}
        Rule for reference states; the second is the paper's.
    tail : {"settled", "window"}
        Whether the last neighbourhood is fitted to its second half only, by when the chain has
        settled, or to all of it.
    gain : float or None
        The gain; None estimates it as the mean reward of the second half of all timesteps.
    on_termination : {"raise", "absorb"}
        What a trial that terminates is: an error, since this method is for continuing tasks, or
        one that stays, without reward, in a terminal state whose features and value are 0.
        By then little else is left in a settled tail, and values fitted to it are 0: see
        `transient`, or give ``tail="window"``.
    rcond : float
        Relative cutoff of the pseudoinverses. With Discrete observations nothing hangs on it
        from 1e-12 to 1e-8, unless a neighbourhood's ``condition`` comes near its inverse: then
        its samples hardly determine the values, and fewer features or wider neighbourhoods
        help, not another cutoff. With vector observations see
        `lstd_agent.system.minimizer.minimize`.
    n_stored_trials : int
        How many trials' observations to keep for the distance that pairs trials and, with
        vector observations, for reference states and occupancies. They take
        n_stored_trials (t_max + 1) k numbers.
    n_batches : int
        In how many batches to keep the statistics, for `standard_errors`. With vector
        observations of d features they take n_batches (t_max + 1) (2 d² + 2 d + 1) numbers;
        with Discrete ones at most one for each visited (batch, timestep, transition).
    observations : {"auto", "counted", "vectors"}
        How observations are kept: ``"auto"`` counts those of finite spaces (Discrete ones, and
        others of at most 10,000 elements), and keeps all others as vectors.
    max_bytes : int
        How much memory trials of vectors may take before they are condensed into moments of
        the features, which cannot change any more then.

    Attributes
    ----------
    neighborhoods_ : list of Neighborhood
        After `fit`.
    gain_ : float
        After `fit`: the gain used.

    Notes
    -----
    Source: Algorithm ``training_nbwpval`` and section ``approxbias``.
    """

    def __init__(
        self,
        features: Features,
        n_anchors: int | None = 2,
        *,
        anchors: ArrayLike | None = None,
        search: str = "exact",
        distance: str | MMD | DistributionDistance = "mmd",
        reference: str = "occupancy",
        tail: str = "settled",
        gain: float | None = None,
        on_termination: Termination = "raise",
        rcond: float = DEFAULT_RCOND,
        n_stored_trials: int = 2000,
        n_batches: int = 20,
        observations: ObservationKind = "auto",
        max_bytes: int = DEFAULT_MAX_BYTES,
    ) -> None:
        for name, value, choices in (
            ("search", search, SEARCHES),
            ("reference", reference, RULES),
            ("tail", tail, ("settled", "window")),
        ):
            if value not in choices:
                raise InvalidInputError(f"{name} must be one of {choices}; got {value!r}")
        super().__init__(
            features, on_termination, n_stored_trials, n_batches, observations, max_bytes
        )
        self.n_anchors = check_n_anchors(n_anchors)
        self.anchors = anchors
        self.search = search
        self.distance = distance
        self.reference = reference
        self.tail = tail
        self.gain = _check_gain(gain)
        self.rcond = check_rcond(rcond)

    @classmethod
    def average_reward(cls, features: Features, **options: Any) -> SeminormLSTDAgent:
        """Average-reward LSTD on p*: one neighbourhood, fitted once the chain has settled.

        Parameters
        ----------
        features : array_like, builder, callable or transformer
        **options
            Of the agent.

        Notes
        -----
        Source: Yu & Bertsekas (2009), section II.A; section ``unify_existing``, first case. It
        says nothing about transient states.
        """
        return cls(features, 1, tail="settled", **options)

    @classmethod
    def transient(cls, features: Features, **options: Any) -> SeminormLSTDAgent:
        """LSTD of a task that terminates: one neighbourhood, weighted by visits until the end.

        Predictions are total rewards until termination. ``t_max`` must be long enough for
        (nearly) all trials to terminate.

        Parameters
        ----------
        features : array_like, builder, callable or transformer
        **options
            Of the agent.

        Notes
        -----
        Source: Bradtke & Barto (1996), theorem 1, undiscounted; section ``unify_existing``,
        second case. The terminal state's features are zero, so it weighs nothing in X, Z and y.
        """
        return cls(features, 1, tail="window", gain=0.0, on_termination="absorb", **options)

    @classmethod
    def stepwise(cls, features: Features, **options: Any) -> SeminormLSTDAgent:
        """One approximator for each timestep (section ``unify_morethantwo``).

        Parameters
        ----------
        features : array_like, builder, callable or transformer
        **options
            Of the agent.
        """
        return cls(features, None, **options)

    def reset(self) -> SeminormLSTDAgent:
        """Forget all trials, observations, policies and fits; the options stay."""
        self._fitted = self._batch_systems = None
        super().reset()
        return self

    def fit(self) -> SeminormLSTDAgent:
        """Fit the system of approximators to all trials collected so far.

        Returns
        -------
        SeminormLSTDAgent
            The agent itself.

        Raises
        ------
        NotFittedError
            If nothing has been collected.

        Warns
        -----
        UserWarning
            If the search found a single neighbourhood, and its settled tail misses states.
        """
        statistics = self.statistics
        system = fit_system(
            statistics,
            self._anchors_of(statistics),
            self._gain_of(statistics),
            reference=self.reference,
            tail=self.tail,
            rcond=self.rcond,
            main_reference=statistics.terminal,
        )
        self._fitted = Fit(system, list(self._batches.sums), statistics)
        self._batch_systems = None
        return self

    @property
    def statistics(self) -> SampledStatistics | BoxStatistics:
        """The sufficient statistics of all trials collected so far."""
        self._count_waiting()
        if self._encoding is None or not self._batches.sums:
            raise NotFittedError("there are no trials yet: call collect or observe first")
        return self._statistics_of(self._batches.total)

    def _anchors_of(self, statistics: SampledStatistics | BoxStatistics) -> IntArray:
        """Return the anchors: given, the only ones possible, or found by the search."""
        if self.anchors is not None:
            return check_anchors(self.anchors, statistics.t_max)
        only = only_anchors(self.n_anchors, statistics.t_max)
        if only is not None:
            return only  # any distance would do, even one that a single trial does not have
        distance = sampled_distance(self.distance, statistics)
        anchors = find_anchors(distance, statistics.t_max, self.n_anchors, self.search)
        if anchors.size == 1 and self.tail == "settled":
            self._warn_of_unfitted_start(statistics)
        return anchors

    def _warn_of_unfitted_start(self, statistics: SampledStatistics | BoxStatistics) -> None:
        """Warn if the second half of all timesteps, alone fitted, misses what the first has seen.

        The whole point may be lost without a word otherwise: the start's values would be those
        of features never seen.
        """
        T = statistics.t_max + 1
        if T == 1:
            return
        first, second = statistics.occupancy(np.array([[0, T // 2], [T // 2, T]]))
        threshold = statistics.support_threshold
        n_missed = int(np.count_nonzero((first > threshold) & (second <= threshold)))
        if n_missed:
            warnings.warn(
                f"the search for at most {self.n_anchors} anchors found one, and tail='settled' "
                f"fits its neighbourhood to timesteps {T // 2} to {T - 1} only, which misses "
                f"{n_missed} of the observations before. Use tail='window', or give anchors=",
                stacklevel=4,
            )

    def _refit(self, sums: Sums) -> System:
        statistics = self._statistics_of(sums)
        gain = self._gain_of(statistics)
        return refit(self.system_, statistics, gain, reference=self.reference, rcond=self.rcond)

    def _statistics_of(self, sums: Sums) -> SampledStatistics | BoxStatistics:
        assert self._encoding is not None
        kernel = self.distance.kernel if isinstance(self.distance, MMD) else Kernel(width="median")
        return make_statistics(self._encoding, sums, self._batches.trials, kernel)

    def _gain_of(self, statistics: SampledStatistics | BoxStatistics) -> float:
        if self.gain is not None:
            return self.gain
        return statistics.mean_reward((statistics.t_max + 1) // 2, statistics.t_max + 1)

    def __repr__(self) -> str:
        wanted = "stepwise" if self.n_anchors is None else f"n_anchors={self.n_anchors}"
        state = "not fitted" if self._fitted is None else f"{len(self.system_.anchors)} fitted"
        return f"<SeminormLSTDAgent {wanted}, {self.n_trials} trials, {state}>"

    def summary(self) -> str:
        """Return a readable account of the fit: a table of the neighbourhoods."""
        return summary.describe(self)

    def plot(self) -> Figure:
        """Return a figure of values, occupancies and distances over time.

        Returns
        -------
        matplotlib.figure.Figure
            Save it with ``figure.savefig(path)``; a notebook shows it.

        Raises
        ------
        MissingDependencyError
            Without matplotlib.
        """
        return plotting.draw(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the agent to a ``.npz`` file, trials' statistics and fit included.

        Features and distances that are functions are not written (a function of Discrete
        observations is, as its table), nor is the policy; `load` takes them again. So is a
        trial under way left out.

        Parameters
        ----------
        path : path
            Written as it is named, all or nothing.
        """
        self._count_waiting()
        persistence.save_agent(self, path)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        features: Features | None = None,
        distance: DistributionDistance | None = None,
    ) -> SeminormLSTDAgent:
        """Read an agent from a file that `save` wrote. Runs no code from it.

        Parameters
        ----------
        path : path
        features, distance : callable, optional
            Only where they are functions, which a file does not hold.

        Raises
        ------
        InvalidInputError
            If the file is not an agent's, of a newer format, or lacks a function.
        """
        return persistence.load_agent(cls, path, features, distance)


def _check_gain(gain: float | str | None) -> float | None:
    if gain == "per_neighborhood":
        raise InvalidInputError(
            "gain='per_neighborhood' is refused: in the Bellman equation b = r - g + P b the "
            "gain is one number for all states, the long-run average reward. A window before "
            "the chain has settled has another mean reward; with that for g each approximator "
            "would solve another equation, and what transient states earn above the gain, the "
            "very thing wanted, would be subtracted. Give a number, or None to estimate it from "
            "the settled tail"
        )
    if gain is None:
        return None
    if np.ndim(gain) or isinstance(gain, str) or not np.isfinite(gain):
        raise InvalidInputError(f"gain must be a finite number or None; got {gain!r}")
    return float(gain)
