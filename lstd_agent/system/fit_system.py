"""A system of seminorm LSTD approximators (Def ``general_lstd``), fitted to statistics.

anchors → neighbourhoods → references → weights → offsets → values: `fit_system` reads like the
list, and each arrow is a module of its own. It does not know whether its statistics are sampled
or exact.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.statistics.counts import Statistics
from lstd_agent.system.calibration import calibrate_offsets
from lstd_agent.system.minimizer import DEFAULT_RCOND, Minimizer
from lstd_agent.system.neighborhoods import neighborhood_windows
from lstd_agent.system.references import ReferenceStates, assign_references, merge_neighborhoods


@dataclass(frozen=True, eq=False)
class Neighborhood:
    """One timestep neighbourhood and its approximator v(s) = f(s)·weights + offset.

    Attributes
    ----------
    anchor, stop : int
        It predicts for timesteps anchor up to, not including, stop.
    window : tuple of int
        Timesteps (start, stop) whose samples it is fitted to; narrower than the above only for
        a settled tail.
    reference : int
        Its reference state, an index into the candidate states.
    weights : ndarray, shape (d,)
    offset : float
    occupancy : ndarray, shape (M,)
        Mean probability of each candidate state over the window.
    n_samples : int
        Transitions in the window; 0 for exact statistics.
    rank : int
        Numerical rank of Z^{†/2} X.
    condition : float
        Ratio of its largest to its smallest singular value kept.
    """

    anchor: int
    stop: int
    window: tuple[int, int]
    reference: int
    weights: FloatArray
    offset: float
    occupancy: FloatArray
    n_samples: int
    rank: int
    condition: float


@dataclass(frozen=True, eq=False)
class System:
    """Fitted approximators, one a neighbourhood, with a common offset.

    Attributes
    ----------
    weights : ndarray, shape (n, d)
    offsets : ndarray, shape (n,)
    anchors : ndarray of int, shape (n,)
    windows : ndarray of int, shape (n, 2)
    references : ReferenceStates
    occupancy : ndarray, shape (n, M)
    n_samples, rank : ndarray of int, shape (n,)
    condition : ndarray, shape (n,)
    t_max : int
    gain : float
    """

    weights: FloatArray
    offsets: FloatArray
    anchors: IntArray
    windows: IntArray
    references: ReferenceStates
    occupancy: FloatArray
    n_samples: IntArray
    rank: IntArray
    condition: FloatArray
    t_max: int
    gain: float

    @property
    def neighborhoods(self) -> list[Neighborhood]:
        """The neighbourhoods, in order of time."""
        stops = np.append(self.anchors[1:], self.t_max + 1)
        return [
            Neighborhood(
                anchor=int(self.anchors[k]),
                stop=int(stops[k]),
                window=(int(self.windows[k, 0]), int(self.windows[k, 1])),
                reference=int(self.references.state[k]),
                weights=self.weights[k],
                offset=float(self.offsets[k]),
                occupancy=self.occupancy[k],
                n_samples=int(self.n_samples[k]),
                rank=int(self.rank[k]),
                condition=float(self.condition[k]),
            )
            for k in range(len(self.anchors))
        ]

    def neighborhood_at(self, t: IntArray | int) -> IntArray:
        """Index of the neighbourhood that predicts for timestep t (the last, beyond t_max)."""
        timestep = np.asarray(t)
        if not np.issubdtype(timestep.dtype, np.integer) or (timestep < 0).any():
            raise InvalidInputError(f"a timestep is an integer from 0; got {t!r}")
        return np.asarray(np.searchsorted(self.anchors, timestep, side="right") - 1)

    def values(self, features: FloatArray, neighborhood: IntArray) -> FloatArray:
        """Calibrated relative values f(s)·w + o of features (m, d) by neighbourhood (m,)."""
        linear = np.einsum("md,md->m", features, self.weights[neighborhood])
        return np.asarray(linear + self.offsets[neighborhood])


def fit_system(
    statistics: Statistics,
    anchors: IntArray,
    gain: float,
    *,
    reference: str = "occupancy",
    tail: str = "settled",
    rcond: float = DEFAULT_RCOND,
    main_reference: int | None = None,
) -> System:
    """Fit one approximator to each neighbourhood and calibrate their offsets.

    Parameters
    ----------
    statistics : Statistics
    anchors : ndarray of int, shape (n,)
        First timesteps of the neighbourhoods.
    gain : float
    reference : {"occupancy", "most_common"}
        Rule for reference states.
    tail : {"settled", "window", "stationary"}
        What the last neighbourhood averages.
    rcond : float
        Relative cutoff of the pseudoinverses; see `lstd_agent.system.minimizer.minimize`.
    main_reference : int, optional
        The candidate state whose value is known to be 0, if there is one.

    Returns
    -------
    System
    """
    anchors, windows, references, occupancy = _neighborhoods_with_references(
        statistics, anchors, reference, tail, main_reference
    )
    solution, offsets, n_samples = _weights_and_offsets(
        statistics, windows, references, occupancy, gain, reference, rcond
    )
    return System(
        weights=solution.weights,
        offsets=offsets,
        anchors=anchors,
        windows=windows,
        references=references,
        occupancy=occupancy,
        n_samples=n_samples,
        rank=solution.rank,
        condition=solution.condition,
        t_max=statistics.t_max,
        gain=gain,
    )


def _neighborhoods_with_references(
    statistics: Statistics, anchors: IntArray, rule: str, tail: str, main: int | None
) -> tuple[IntArray, IntArray, ReferenceStates, FloatArray]:
    """Give every neighbourhood a reference state, merging those that cannot have one.

    Algorithm ``identify_anchor``, from its anchors on.
    """
    while True:
        windows = neighborhood_windows(anchors, statistics.t_max, tail)
        occupancy = statistics.occupancy(windows)
        references = assign_references(occupancy, statistics.support_threshold, rule, main)
        last_is_merged = references.state[-1] < 0
        merged, references = merge_neighborhoods(anchors, references)
        if merged.size == anchors.size:
            return anchors, windows, references, occupancy
        anchors = merged
        # Merging only adds to windows, so references stay in their supports. The exception is a
        # neighbourhood that becomes the last, where that is fitted to its tail: choose again.
        if tail == "window" or not last_is_merged:
            windows = neighborhood_windows(anchors, statistics.t_max, tail)
            return anchors, windows, references, statistics.occupancy(windows)


def _weights_and_offsets(
    statistics: Statistics,
    windows: IntArray,
    references: ReferenceStates,
    occupancy: FloatArray,
    gain: float,
    rule: str,
    rcond: float,
) -> tuple[Minimizer, FloatArray, IntArray]:
    """Solve each window (Thm ``epb_minimizer``), then calibrate; and count its samples."""
    solution, n_samples = statistics.minimize(windows, gain, rcond)
    offsets = calibrate_offsets(
        solution.weights,
        statistics.candidate_features,
        references,
        occupancy,
        statistics.support_threshold,
        rule,
    )
    return solution, offsets, n_samples


def refit(
    system: System, statistics: Statistics, gain: float, *, reference: str, rcond: float
) -> System:
    """Fit weights and offsets to other statistics, with the same windows and references.

    Parameters
    ----------
    system : System
        Its neighbourhoods, reference states and occupancies are kept.
    statistics : Statistics
        Of other trials, with the same candidate states.
    gain : float
    reference : {"occupancy", "most_common"}
    rcond : float
    """
    solution, offsets, n_samples = _weights_and_offsets(
        statistics, system.windows, system.references, system.occupancy, gain, reference, rcond
    )
    return replace(
        system,
        weights=solution.weights,
        offsets=offsets,
        n_samples=n_samples,
        rank=solution.rank,
        condition=solution.condition,
        gain=gain,
    )
