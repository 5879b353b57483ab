"""A system of seminorm LSTD approximators (Def ``general_lstd``), fitted to statistics.

anchors → neighbourhoods → references → weights → offsets → values: `fit_system` reads like the
list, and each arrow is a module of its own. It does not know whether its statistics are sampled
or exact. Linked systems, the default, have weights and offsets in one step backwards in time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.features.rows import dense
from lstd_agent.statistics.backups import Backup, LambdaReturn, MultiStep, several_steps
from lstd_agent.statistics.coordinates import Coordinates, reduced
from lstd_agent.statistics.equations import window_chunks
from lstd_agent.statistics.interface import Statistics
from lstd_agent.system.approximators import Solution, System
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

CalibrationName = Literal["linked", "references"]
CALIBRATIONS: tuple[CalibrationName, ...] = ("linked", "references")


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
        neighborhoods = linked_neighborhoods(statistics, anchors)
    else:
        neighborhoods = neighborhoods_with_references(statistics, anchors, reference, tail)
    return _solve(
        statistics, neighborhoods, gain, calibration, reference, rcond, backup, solver, True
    )


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

    What these leave open is not asked for. Parameters are those of `fit_system`.
    """
    neighborhoods = Neighborhoods(
        system.anchors, system.windows, system.references, system.occupancy
    )
    return _solve(
        statistics, neighborhoods, gain, calibration, reference, rcond, backup, solver, False
    )


class Neighborhoods(NamedTuple):
    """Anchors (n,), windows (n, 2), references and occupancy (n, M) of neighbourhoods."""

    anchors: IntArray
    windows: IntArray
    references: ReferenceStates
    occupancy: FloatArray


def linked_neighborhoods(statistics: Statistics, anchors: IntArray) -> Neighborhoods:
    """Return neighbourhoods of which the last alone has a reference state."""
    windows = neighborhood_windows(anchors, statistics.t_max, "window")
    main, _ = statistics.zero(windows[-1])
    references = ReferenceStates(np.append(np.full(len(windows) - 1, -1), main), main)
    return Neighborhoods(anchors, windows, references, statistics.occupancy(windows))


def neighborhoods_with_references(
    statistics: Statistics, anchors: IntArray, rule: RuleName, tail: TailName
) -> Neighborhoods:
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
            return Neighborhoods(anchors, windows, references, occupancy)
        anchors = merged
        # Merging only adds to windows, so references stay in their supports. The exception is a
        # neighbourhood that becomes the last, where that is fitted to its tail: choose again.
        if tail == "window" or not last_is_merged:
            windows = neighborhood_windows(anchors, statistics.t_max, tail)
            occupancy = statistics.occupancy(windows)
            return Neighborhoods(anchors, windows, references, occupancy)


def _solve(
    statistics: Statistics,
    neighborhoods: Neighborhoods,
    gain: float,
    calibration: CalibrationName,
    rule: RuleName,
    rcond: float,
    backup: Backup,
    solver: SolverName,
    directions: bool,
) -> System:
    """Solve for weights and offsets, and for what is open of them if ``directions`` is true."""
    anchors, windows, references, occupancy = neighborhoods
    reduction = statistics.reduction
    statistics = reduced(statistics)
    steps = several_steps(backup)
    if backup == "model":
        found = solve_model(statistics, windows, gain, rcond, references.main, solver)
    elif calibration == "linked":
        found = _solve_linked(statistics, windows, gain, rcond, steps, solver, directions)
    else:
        fitted, n_samples = (
            solve_windows(statistics, windows, gain, rcond, solver)
            if steps is None
            else solve_windows_multistep(statistics, windows, gain, rcond, steps, solver=solver)
        )
        features, threshold = dense(statistics.candidate_features), statistics.support_threshold
        offsets = calibrate_offsets(
            fitted.weights, features, references, occupancy, threshold, rule
        )
        found = Solution(fitted.weights, offsets, fitted.rank, n_samples, fitted.condition)
    if reduction is not None:
        found = _of_features(found, reduction.coordinates)
    return System(
        **vars(found),
        anchors=anchors,
        windows=windows,
        references=references,
        occupancy=occupancy,
        t_max=statistics.t_max,
        gain=gain,
    )


def _of_features(found: Solution, coordinates: Coordinates) -> Solution:
    """Return the solution of features from that of their coordinates."""
    opened = found.open_directions
    if opened.size:  # they are kept track of
        opened = coordinates.directions(opened)
    return replace(found, weights=coordinates.weights(found.weights), open_directions=opened)


def _solve_linked(
    statistics: Statistics,
    windows: IntArray,
    gain: float,
    rcond: float,
    steps: MultiStep | LambdaReturn | None,
    solver: SolverName,
    directions: bool,
) -> Solution:
    """Solve backwards in time, in the way that features and targets ask for."""
    if steps is not None:
        return solve_backwards_multistep(
            statistics, windows, gain, rcond, steps, directions=directions, solver=solver
        )
    trials, counts = statistics.sparse_trials, statistics.sparse_counts
    if trials is not None:
        return solve_backwards_by_iteration(trials, windows, gain, statistics.zero(windows[-1])[1])
    if counts is not None:
        return solve_backwards_sparse(counts, windows, gain, statistics.zero(windows[-1])[1])
    return solve_backwards(statistics, windows, gain, rcond, directions=directions, solver=solver)


def solve_windows(
    statistics: Statistics,
    windows: IntArray,
    gain: float,
    rcond: float,
    solver: SolverName = "svd",
) -> tuple[Minimizer, IntArray]:
    """Return the minimizers of windows, and their numbers of samples."""
    # Windows of settled timesteps have the same equations.
    first = statistics.settled
    is_settled = (windows[:, 0] >= first) & (windows[:, 0] <= statistics.t_max)
    windows = np.where(is_settled[:, None], (first, first + 1), windows)
    distinct, place = np.unique(windows, axis=0, return_inverse=True)
    place = place.reshape(-1)
    parts, n_samples = [], []
    for chunk in window_chunks(len(distinct), statistics.numbers_per_window(rcond)):
        equations = statistics.equations(distinct[chunk], gain, rcond)
        parts.append(minimize(equations, rcond, solver=solver))
        n_samples.append(equations.n_samples)
    return Minimizer.concatenate(parts).take(place), np.concatenate(n_samples)[place]
