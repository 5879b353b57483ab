"""`FitOptions`: how a system is fitted, and what is decided by the data where no option says it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from numpy.typing import ArrayLike

from lstd_agent.arrays import IntArray
from lstd_agent.errors import InvalidInputError, check_choice
from lstd_agent.statistics.backups import Backup, WantedBackup, check_backup
from lstd_agent.statistics.coordinates import reduced
from lstd_agent.statistics.interface import SampledStatistics
from lstd_agent.system.approximators import System
from lstd_agent.system.distances import MMD, DistanceName, DistributionDistance, sampled_distance
from lstd_agent.system.fit_system import CALIBRATIONS, CalibrationName, fit_system, refit
from lstd_agent.system.gain import check_gain, estimate_gain
from lstd_agent.system.minimizer import check_rcond
from lstd_agent.system.model import check_model
from lstd_agent.system.neighborhoods import (
    SEARCHES,
    SearchName,
    check_anchors,
    check_n_anchors,
    find_anchors,
    only_anchors,
)
from lstd_agent.system.references import RULES, RuleName
from lstd_agent.system.selection import Choice, choose_backup, choose_number
from lstd_agent.system.solvers import SOLVERS, SolverName
from lstd_agent.trials.batches import Sums

AgentTailName = Literal["window", "settled"]

NUMBERS = (1, 2, 4, 8)
"""Numbers of neighbourhoods that ``n_anchors="auto"`` tries."""


@dataclass(frozen=True)
class FitOptions:
    """The options of a fit, checked; `SeminormLSTDAgent` describes them.

    Raises
    ------
    InvalidInputError
        If one is none, or two do not go together.
    """

    n_anchors: int | Literal["auto"] | None
    anchors: ArrayLike | None
    search: SearchName
    distance: DistanceName | MMD | DistributionDistance
    calibration: CalibrationName
    reference: RuleName
    tail: AgentTailName
    backup: WantedBackup
    gain: float | None
    rcond: float
    solver: SolverName

    def __post_init__(self) -> None:
        if self.n_anchors != "auto":
            vars(self)["n_anchors"] = check_n_anchors(self.n_anchors)
        check_choice("search", self.search, SEARCHES)
        check_choice("calibration", self.calibration, CALIBRATIONS)
        check_choice("reference", self.reference, RULES)
        check_choice("tail", self.tail, ("window", "settled"))
        check_backup(self.backup)
        vars(self).update(gain=check_gain(self.gain), rcond=check_rcond(self.rcond))
        check_choice("solver", self.solver, SOLVERS)
        is_linked = self.calibration == "linked"
        if self.tail == "settled" and is_linked:
            raise InvalidInputError(
                "tail='settled' leaves samples out, and a linked system uses them all: leave it "
                "out, or use calibration='references'"
            )
        check_model(self.backup, self.calibration)
        if self.n_anchors == "auto" and not (is_linked and self.backup == "auto"):
            raise InvalidInputError(
                "n_anchors='auto' chooses among linked systems together with their backups: give "
                "a number, or leave calibration and backup out"
            )

    def gain_of(self, statistics: SampledStatistics) -> float:
        """Return the gain that was given, or estimate it."""
        if self.gain is not None:
            return self.gain
        return estimate_gain(statistics, self.calibration, self.rcond)

    def fit(self, statistics: SampledStatistics, batches: Sequence[Sums]) -> tuple[System, Choice]:
        """Fit a system to trials, and to their batches where the data choose.

        Returns
        -------
        System
        Choice
            Of the backup: asked for, or by the data.
        """
        candidates = self._candidates(statistics)
        gain = self.gain_of(statistics)
        few = reduced(statistics)
        if self._is_by_data:
            anchors, choice = choose_number(few, batches, candidates, gain, self.rcond)
        else:
            [anchors] = candidates
            choice = self._choice(few, batches, anchors, gain)
        system = fit_system(
            statistics,
            anchors,
            gain,
            calibration=self.calibration,
            reference=self.reference,
            tail=self.tail,
            rcond=self.rcond,
            backup=choice.backup,
            solver=self.solver,
        )
        return system, choice

    def refit(self, system: System, statistics: SampledStatistics, backup: Backup) -> System:
        """Fit the same system to other trials."""
        return refit(
            system,
            statistics,
            self.gain_of(statistics),
            calibration=self.calibration,
            reference=self.reference,
            rcond=self.rcond,
            backup=backup,
            solver=self.solver,
        )

    @property
    def _is_by_data(self) -> bool:
        """Whether the data choose the number of neighbourhoods."""
        return self.n_anchors == "auto" and self.anchors is None

    def _candidates(self, statistics: SampledStatistics) -> list[IntArray]:
        """Return the anchors: given, or found; or those of several numbers, to choose from."""
        if self.anchors is not None:
            return [check_anchors(self.anchors, statistics.t_max)]
        if self.n_anchors != "auto":
            return [self._anchors(statistics, self.n_anchors)]
        found = [self._anchors(statistics, n) for n in NUMBERS]
        by_number = {len(anchors): anchors for anchors in found}
        return [by_number[n] for n in sorted(by_number)]

    def _anchors(self, statistics: SampledStatistics, n_anchors: int | None) -> IntArray:
        """Return the anchors of a number of neighbourhoods: the only ones there are, or found."""
        only = only_anchors(n_anchors, statistics.t_max)
        if only is not None:
            return only  # any distance would do, even one that a single trial does not have
        distance = sampled_distance(self.distance, statistics)
        return find_anchors(distance, statistics.t_max, n_anchors, self.search)

    def _choice(
        self,
        statistics: SampledStatistics,
        batches: Sequence[Sums],
        anchors: IntArray,
        gain: float,
    ) -> Choice:
        """Return the backup that was asked for, or choose it by the data."""
        if self.backup != "auto":
            return Choice(self.backup, "asked for")
        if self.calibration == "references":
            return Choice("one_step", "reference states are for single steps, as in the paper")
        return choose_backup(statistics, batches, anchors, gain, self.rcond)
