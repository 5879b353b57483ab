"""A system of seminorm LSTD approximators (Def ``general_lstd``), fitted to statistics.

anchors → neighbourhoods → references → weights → offsets → values: `fit_system` reads like the
list, and each arrow is a module of its own. It does not know whether its statistics are sampled
or exact. Linked systems, the default, have weights and offsets in one step backwards in time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.features.rows import Rows, dense, is_sparse
from lstd_agent.statistics.backups import Backup, LambdaReturn, MultiStep, is_one_step
from lstd_agent.statistics.equations import window_chunks
from lstd_agent.statistics.interface import Statistics
from lstd_agent.system.calibration import calibrate_offsets
from lstd_agent.system.krylov import solve_backwards_by_iteration
from lstd_agent.system.linked import solve_backwards
from lstd_agent.system.minimizer import DEFAULT_RCOND, Minimizer, minimize
from lstd_agent.system.model import check_model, solve_model
from lstd_agent.system.multistep import solve_backwards_multistep, solve_windows_multistep
from lstd_agent.system.neighborhoods import TailName, neighborhood_windows
from lstd_agent.system.references import (
    ReferenceStates,
    RuleName,
    assign_references,
    merge_neighborhoods,
)
from lstd_agent.system.solvers import SolverName
from lstd_agent.system.sparse import solve_backwards_sparse

# Of more numbers no copy is made for each pair of features and weights.
_MOST_AT_ONCE = 2**22

CalibrationName = Literal["linked", "references"]
CALIBRATIONS: tuple[CalibrationName, ...] = ("linked", "references")


@dataclass(frozen=True, eq=False)
class Neighborhood:
    """One timestep neighbourhood and its approximator v(s) = f(s)·weights + offset.

    Attributes
    ----------
    anchor, stop : int
        It predicts for timesteps anchor up to, not including, stop.
    window : tuple of int
        Timesteps (start, stop) whose samples it is fitted to; narrower than the above only
        where the last one is fitted to a settled tail.
    reference : int
        Its reference state, an index into the candidate states; -1 where it has none, as have
        all of a linked system but the last.
    weights : ndarray, shape (d,)
    offset : float
    occupancy : ndarray, shape (M,)
        Mean probability of each candidate state over the window.
    n_samples : int
        Transitions in the window; 0 for exact statistics.
    rank : int
        Numerical rank of Z^{†/2} X, of linked ones with the intercept.
    condition : float
        Ratio of its largest to its smallest singular value kept.

    Examples
    --------
    >>> import unichain_gym
    >>> from lstd_agent import OneHot, SeminormLSTDAgent
    >>> chain = unichain_gym.make_mdp("h6").induce([0, 0, 0, 1, 1, 1])
    >>> agent = SeminormLSTDAgent(OneHot(), anchors=[0, 5])
    >>> agent.add(unichain_gym.simulate_counts(chain, 10_000, 40, 0)).fit()
    <SeminormLSTDAgent n_anchors=2, 10000 trials, 2 fitted>
    >>> [(each.anchor, each.stop, each.n_samples) for each in agent.neighborhoods_]
    [(0, 5, 50000), (5, 41, 360000)]
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
    open_directions : ndarray, shape (n, d + 1, q)
        Of (weights, offset), for scaled features: what the samples leave open, where that was
        kept track of; see `lstd_agent.system.linked`.

    neighborhoods : list of Neighborhood
        Its parts, in order of time.

    Methods
    -------
    neighborhood_at(t)
        Which neighbourhood predicts at a timestep.
    values(features, neighborhood)
        Values of features, each by its neighbourhood.
    open_share(features, neighborhood)
        How much of a value hangs on what the samples leave open.

    Examples
    --------
    >>> import unichain_gym
    >>> from lstd_agent import OneHot, SeminormLSTDAgent
    >>> chain = unichain_gym.make_mdp("h6").induce([0, 0, 0, 1, 1, 1])
    >>> agent = SeminormLSTDAgent(OneHot(), anchors=[0, 5])
    >>> system = agent.add(unichain_gym.simulate_counts(chain, 10_000, 40, 0)).fit().system_
    >>> system.neighborhood_at(np.array([4, 5])).tolist()
    [0, 1]
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
    open_directions: FloatArray = field(default_factory=lambda: np.zeros((0, 0, 0)))

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
        """Index of the neighbourhood that predicts for timestep t (the last, beyond t_max).

        Parameters
        ----------
        t : int or ndarray of int

        Returns
        -------
        ndarray of int
            From 0; of the shape of ``t``.

        Raises
        ------
        InvalidInputError
            If a timestep is no integer from 0 on.
        """
        timestep = np.asarray(t)
        if not np.issubdtype(timestep.dtype, np.integer) or (timestep < 0).any():
            raise InvalidInputError(f"a timestep is an integer from 0; got {t!r}")
        return np.asarray(np.searchsorted(self.anchors, timestep, side="right") - 1)

    def values(self, features: Rows, neighborhood: IntArray) -> FloatArray:
        """Calibrated relative values f(s)·w + o of features (m, d) by neighbourhood (m,).

        Parameters
        ----------
        features : ndarray, shape (m, d)
        neighborhood : ndarray of int, shape (m,)

        Returns
        -------
        ndarray, shape (m,)
            In units of the reward.
        """
        if is_sparse(features) or features.size > _MOST_AT_ONCE:
            linear = np.empty(features.shape[0])
            for k in np.unique(neighborhood):
                here = neighborhood == k
                linear[here] = features[here] @ self.weights[k]
        else:
            linear = np.einsum("md,md->m", features, self.weights[neighborhood])
        return np.asarray(linear + self.offsets[neighborhood])

    def open_share(self, scaled: FloatArray, neighborhood: IntArray) -> FloatArray:
        """How far values hang on what the samples leave open, from 0 to 1, shape (m,).

        Parameters
        ----------
        scaled : ndarray, shape (m, d + 1)
            Features (f, 1) divided by `Statistics.feature_scale`.
        neighborhood : ndarray of int, shape (m,)

        Returns
        -------
        ndarray, shape (m,)
        """
        if self.open_directions.size == 0:
            return np.zeros(len(scaled))
        along = np.empty(len(scaled))
        for k in np.unique(neighborhood):
            here = neighborhood == k
            along[here] = np.linalg.norm(scaled[here] @ self.open_directions[k], axis=1)
        size = np.linalg.norm(scaled, axis=1)
        return np.asarray(along / np.where(size > 0.0, size, 1.0))


def fit_system(
    statistics: Statistics,
    anchors: IntArray,
    gain: float,
    *,
    calibration: CalibrationName = "linked",
    reference: RuleName = "occupancy",
    tail: TailName = "window",
    rcond: float = DEFAULT_RCOND,
    backup: Backup = "one_step",
    solver: SolverName = "svd",
) -> System:
    """Fit one approximator to each neighbourhood, and tie their values together.

    Parameters
    ----------
    statistics : Statistics
    anchors : ndarray of int, shape (n,)
        First timesteps of the neighbourhoods.
    gain : float
    calibration : {"linked", "references"}
        Backwards in time, or as in the paper by reference states and offsets.
    reference : {"occupancy", "most_common"}
        Rule for reference states, where there are any.
    tail : {"window", "settled", "stationary"}
        What the last neighbourhood averages; linked systems have the first only.
    rcond : float
        Relative cutoff of the pseudoinverses; see `lstd_agent.system.minimizer.minimize`.
    backup : Backup
        What targets are; see `lstd_agent.statistics.backups`.
    solver : {"svd", "qr", "lsmr"}
        Of least squares; see `lstd_agent.system.solvers`. Many sparse features have their own.

    Returns
    -------
    System
    """
    check_model(backup, calibration)
    if calibration == "linked":
        windows = neighborhood_windows(anchors, statistics.t_max, "window")
        occupancy = statistics.occupancy(windows)
        return _linked_system(statistics, windows, occupancy, gain, rcond, backup, solver)
    neighborhoods = _neighborhoods_with_references(statistics, anchors, reference, tail)
    return _referenced_system(statistics, *neighborhoods, gain, reference, rcond, backup, solver)


def refit(
    system: System,
    statistics: Statistics,
    gain: float,
    *,
    calibration: CalibrationName,
    reference: RuleName,
    rcond: float,
    backup: Backup = "one_step",
    solver: SolverName = "svd",
) -> System:
    """Fit weights and offsets to other statistics, with the same windows and references.

    Parameters
    ----------
    system : System
        Its neighbourhoods, reference states and occupancies are kept.
    statistics : Statistics
        Of other trials, with the same candidate states.
    gain : float
    calibration : {"linked", "references"}
    reference : {"occupancy", "most_common"}
    rcond : float
    backup : Backup
    solver : {"svd", "qr", "lsmr"}
    """
    if calibration == "linked":
        windows, occupancy = system.windows, system.occupancy
        return _linked_system(
            statistics,
            windows,
            occupancy,
            gain,
            rcond,
            backup,
            solver,
            directions=False,
            main=system.references.main,
        )
    neighborhoods = (system.anchors, system.windows, system.references, system.occupancy)
    return _referenced_system(statistics, *neighborhoods, gain, reference, rcond, backup, solver)


def _linked_system(
    statistics: Statistics,
    windows: IntArray,
    occupancy: FloatArray,
    gain: float,
    rcond: float,
    backup: Backup,
    solver: SolverName,
    directions: bool = True,
    main: int | None = None,
) -> System:
    """Solve backwards in time, or by the pooled model."""
    if backup == "model":
        solution = solve_model(statistics, windows, gain, rcond, main, solver)
    elif isinstance(backup, MultiStep | LambdaReturn) and not is_one_step(backup):
        solution = solve_backwards_multistep(
            statistics, windows, gain, rcond, backup, directions=directions, solver=solver
        )
    elif statistics.sparse_trials is not None:
        zero = statistics.zero(windows[-1])
        solution = solve_backwards_by_iteration(statistics.sparse_trials, windows, gain, zero)
    elif statistics.sparse_view is not None:
        solution = solve_backwards_sparse(statistics.sparse_view, windows, gain)
    else:
        solution = solve_backwards(
            statistics, windows, gain, rcond, directions=directions, solver=solver
        )
    return System(
        weights=solution.weights,
        offsets=solution.offsets,
        anchors=windows[:, 0],
        windows=windows,
        references=ReferenceStates(
            np.append(np.full(len(windows) - 1, -1), solution.main), solution.main
        ),
        occupancy=occupancy,
        n_samples=solution.n_samples,
        rank=solution.rank,
        condition=solution.condition,
        t_max=statistics.t_max,
        gain=gain,
        open_directions=solution.open_directions,
    )


def _neighborhoods_with_references(
    statistics: Statistics, anchors: IntArray, rule: RuleName, tail: TailName
) -> tuple[IntArray, IntArray, ReferenceStates, FloatArray]:
    """Give every neighbourhood a reference state, merging those that cannot have one.

    Algorithm ``identify_anchor``, from its anchors on.
    """
    while True:
        windows = neighborhood_windows(anchors, statistics.t_max, tail)
        occupancy = statistics.occupancy(windows)
        references = assign_references(
            occupancy, statistics.support_threshold, rule, statistics.terminal
        )
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


def _referenced_system(
    statistics: Statistics,
    anchors: IntArray,
    windows: IntArray,
    references: ReferenceStates,
    occupancy: FloatArray,
    gain: float,
    rule: RuleName,
    rcond: float,
    backup: Backup,
    solver: SolverName,
) -> System:
    """Solve each window by itself (Thm ``epb_minimizer``), then calibrate."""
    if isinstance(backup, MultiStep | LambdaReturn) and not is_one_step(backup):
        solution, n_samples = solve_windows_multistep(
            statistics, windows, gain, rcond, backup, solver=solver
        )
    else:
        solution, n_samples = solve_windows(statistics, windows, gain, rcond, solver)
    offsets = calibrate_offsets(
        solution.weights,
        dense(statistics.candidate_features),
        references,
        occupancy,
        statistics.support_threshold,
        rule,
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


def solve_windows(
    statistics: Statistics,
    windows: IntArray,
    gain: float,
    rcond: float,
    solver: SolverName = "svd",
) -> tuple[Minimizer, IntArray]:
    """Return the minimizers of windows, and their numbers of samples."""
    distinct, place = statistics.distinct(windows)
    parts, n_samples = [], []
    for chunk in window_chunks(len(distinct), statistics.numbers_per_window(rcond)):
        equations = statistics.equations(distinct[chunk], gain, rcond)
        parts.append(minimize(equations, rcond, solver=solver))
        n_samples.append(equations.n_samples)
    return Minimizer.concatenate(parts).take(place), np.concatenate(n_samples)[place]
