"""`FitOptions`: the options of a fit; the data choose what they leave open."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.backups import WantedBackup, check_backup, is_one_step
from lstd_agent.errors import InvalidInputError, check_choice
from lstd_agent.features.rows import dense
from lstd_agent.rows.factors import Segments, total
from lstd_agent.system.approximators import System
from lstd_agent.system.distances import MMD, DistanceName, DistributionDistance, sampled_distance
from lstd_agent.system.gain import Gain, check_gain, mean_reward
from lstd_agent.system.linked import Solved, solve_alone
from lstd_agent.system.minimizer import check_rcond
from lstd_agent.system.model import NOT_COUNTED, check_model, pooled_model, solve_model
from lstd_agent.system.neighborhoods import (
    SEARCHES,
    SearchName,
    check_anchors,
    check_n_anchors,
    find_anchors,
    neighborhood_windows,
    only_anchors,
)
from lstd_agent.system.references import (
    RULES,
    ReferenceStates,
    RuleName,
    calibrate_offsets,
    neighborhoods_with_references,
)
from lstd_agent.system.selection import (
    OPEN_TOLERANCE,
    Choice,
    Held,
    choose_backup,
    choose_number,
)
from lstd_agent.system.solve import Subsets
from lstd_agent.system.sparse import SparseRows, SparseSystem, solve_sparse, sparse_gain
from lstd_agent.system.targets import window_by_targets

CalibrationName = Literal["linked", "references"]
CALIBRATIONS: tuple[CalibrationName, ...] = ("linked", "references")
AgentTailName = Literal["window", "settled"]

NUMBERS = (1, 2, 4, 8)
"""Numbers of neighbourhoods that ``n_anchors="auto"`` tries."""

# Up to this many sparse features are made dense where an option needs dense ones.
_MOST_DENSE = 5000


class Fitted(NamedTuple):
    """A fitted system; its windows in coordinates; the factors of all trials and of groups of them.

    Many sparse features are solved by ``sparse`` instead, and have no factors.
    """

    system: System
    solved: list[Solved]
    segments: Segments | None
    gain: Gain
    choice: Choice
    subsets: Subsets | None = None
    sparse: tuple[SparseRows, SparseSystem] | None = None

    @property
    def evidence(self) -> Segments | SparseSystem | None:
        """The factors or the sparse system, which count samples of observations."""
        return self.segments if self.sparse is None else self.sparse[1]


@dataclass(frozen=True)
class FitOptions:
    """The options of a fit, checked; `SeminormLSTDAgent` describes them."""

    n_anchors: int | Literal["auto"] | None = 2
    anchors: ArrayLike | None = None
    search: SearchName = "exact"
    distance: DistanceName | MMD | DistributionDistance = "mmd"
    calibration: CalibrationName = "linked"
    reference: RuleName = "occupancy"
    tail: AgentTailName = "window"
    backup: WantedBackup = "auto"
    gain: float | None = None
    rcond: float = 1e-10

    def __post_init__(self) -> None:
        is_auto = isinstance(self.n_anchors, str) and self.n_anchors == "auto"
        checked = "auto" if is_auto else check_n_anchors(self.n_anchors)  # type: ignore[arg-type]
        object.__setattr__(self, "n_anchors", checked)
        check_choice("search", self.search, SEARCHES)
        check_choice("calibration", self.calibration, CALIBRATIONS)
        check_choice("reference", self.reference, RULES)
        check_choice("tail", self.tail, ("window", "settled"))
        check_backup(self.backup)
        object.__setattr__(self, "gain", check_gain(self.gain))
        object.__setattr__(self, "rcond", check_rcond(self.rcond))
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

    @property
    def needs_dense(self) -> bool:
        """Whether features must be dense: for reference states and targets of several steps."""
        several = self.backup not in ("auto", "model") and not is_one_step(self.backup)  # type: ignore[arg-type]
        return several or self.calibration == "references"

    def fit(self, source: Any, n_batches: int) -> Fitted:
        """Fit a system to CountRows or TrialRows (Algorithm ``training_nbwpval``)."""
        if self.backup == "model" and not source.are_places:
            raise InvalidInputError(NOT_COUNTED)
        if source.is_sparse and self.needs_dense:
            _make_dense(source)
        candidates = self._candidates(source)
        if self.calibration == "references":
            return self._fit_with_references(source, candidates[0], n_batches)
        if source.is_sparse:
            return self._fit_sparse(source, candidates[min(1, len(candidates) - 1)], n_batches)
        by_data = self.backup == "auto"
        edges = np.unique(np.concatenate(candidates))
        n_groups = n_batches if source.are_places else max(n_batches, min(2, source.n_trials))
        subsets = Subsets(source, edges, n_groups)
        subsets = subsets.those("halves") if by_data and n_groups > 1 else subsets
        gain = Gain(self.gain, "given") if self.gain is not None else subsets.gains()[0]
        held = Held(subsets, gain.value)
        if self.n_anchors == "auto" and self.anchors is None and len(candidates) > 1:
            anchors, choice = choose_number(held, candidates)
        else:
            anchors = candidates[0]
            wanted = None if self.backup == "auto" else self.backup
            choice = choose_backup(held, anchors, wanted)
        solved = held.whole(anchors, choice.backup)
        segments = subsets.segments[0]
        system = _linked(source, solved, anchors, gain.value, segments)
        return Fitted(system, solved, segments, gain, choice, subsets)

    def _fit_sparse(self, source: Any, anchors: IntArray, n_batches: int) -> Fitted:
        """Fit many sparse features, by single steps or the pooled model."""
        rows = SparseRows(source, anchors.tolist(), n_batches)
        gain = Gain(self.gain, "given") if self.gain is not None else sparse_gain(rows)
        choice, model = Choice("one_step", "many sparse features are fitted by single steps"), None
        if self.backup != "auto":
            choice = Choice(self.backup, "asked for")
        if source.are_places and self.backup in ("auto", "model"):
            model = pooled_model(source, gain.value, source.main_state(int(anchors[-1])))
            if self.backup == "auto" and (model.open_share[source.starts] <= OPEN_TOLERANCE).all():
                choice = Choice("model", "it determines the values of the starts")
        if choice.backup == "model" and model is not None:
            windows = neighborhood_windows(anchors, source.t_max, "window")
            solved = solve_model(source, windows, model)
            system = _linked(source, solved, anchors, gain.value, None)
            return Fitted(system, solved, None, gain, choice)
        found = solve_sparse(rows, gain.value)
        system = _linked(source, found.solved, anchors, gain.value, found)
        return Fitted(system, found.solved, None, gain, choice, sparse=(rows, found))

    def _fit_with_references(self, source: Any, anchors: IntArray, n_batches: int) -> Fitted:
        """Fit each window by itself, and tie their values together at reference states."""
        choice = Choice(self.backup, "asked for")  # type: ignore[arg-type]
        if self.backup == "auto":
            choice = Choice("one_step", "reference states are for single steps, as in the paper")
        # Any neighbourhood may become the last, whose settled tail begins in its middle.
        edges = np.unique(np.append(anchors, anchors + (source.t_max + 1 - anchors) // 2))
        subsets = Subsets(source, edges, n_batches)
        segments = subsets.segments[0]
        gain = Gain(self.gain, "given") if self.gain is not None else self._mean_gain(subsets)
        anchors, windows, references = neighborhoods_with_references(
            source, segments, anchors, self.reference, self.tail
        )
        solved = self.solve_windows(source, segments, windows, gain.value)
        system = system_of(source, solved, anchors, windows, references, gain.value, segments)
        system = calibrated(system, source, self.reference)
        solved = with_offsets(solved, system.offsets)
        return Fitted(system, solved, segments, gain, choice, subsets)

    def solve_windows(
        self, source: Any, segments: Segments, windows: IntArray, gain: float
    ) -> list[Solved]:
        """Return the minimizers of windows by themselves, without offsets."""
        solved = []
        for start, stop in windows.tolist():
            window = total(segments.between(start, stop))
            if self.backup == "auto" or is_one_step(self.backup):
                found = solve_alone(source, window, gain)
            else:
                found, _ = window_by_targets(source, start, stop, gain, self.backup)  # type: ignore[arg-type]
            columns = np.vstack((found.weights[:, :1], np.zeros((1, 1))))
            solved.append(Solved(columns, found.rank, found.condition, round(window.n)))
        return solved

    def _mean_gain(self, subsets: Subsets) -> Gain:
        """Return the mean reward of the tail; for a periodic tail, the gain by the equations."""
        classes = subsets.source.recurrent_classes
        if len(classes) > 0 and classes[0].period > 1:
            return subsets.gains()[0]
        return Gain(mean_reward(subsets.segments[0]), "given")

    def _candidates(self, source: Any) -> list[IntArray]:
        """Return the anchors, given or found, or the candidates for several numbers."""
        if self.anchors is not None:
            return [check_anchors(self.anchors, source.t_max)]
        if self.n_anchors != "auto":
            return [self._anchors(source, self.n_anchors)]
        by_number = {len(found): found for found in (self._anchors(source, n) for n in NUMBERS)}
        return [by_number[n] for n in sorted(by_number)]

    def _anchors(self, source: Any, n_anchors: int | None) -> IntArray:
        """Return the anchors of a number of neighbourhoods."""
        only = only_anchors(n_anchors, source.t_max)
        if only is not None:
            return only  # needs no distance: a single trial has none
        distance = sampled_distance(self.distance, source)
        # A last neighbourhood within the tail would have too few samples.
        latest = (source.t_max + 1) // 2 if self.search == "exact" else None
        return find_anchors(distance, source.t_max, n_anchors, self.search, latest)


def system_of(
    source: Any,
    solved: list[Solved],
    anchors: IntArray,
    windows: IntArray,
    references: ReferenceStates,
    gain: float,
    evidence: Segments | SparseSystem | None,
) -> System:
    """Return the system of solved windows, in features."""
    columns = [in_features(source, each.columns) for each in solved]
    opened: tuple[FloatArray, ...] = ()
    if not source.is_sparse:
        scale = np.append(source.coordinates.sizes, 1.0)[:, None]
        opened = tuple(each[:, 1:] * scale for each in columns)
    return System(
        weights=np.stack([each[:-1, 0] for each in columns]),
        offsets=np.array([each[-1, 0] for each in columns]),
        anchors=anchors,
        windows=windows,
        references=references,
        occupancy=source.occupancy(windows, evidence),
        n_samples=np.array([each.n_samples for each in solved], dtype=np.int64),
        rank=np.array([each.rank for each in solved]),
        condition=np.array([each.condition for each in solved]),
        t_max=source.t_max,
        gain=gain,
        sizes=np.ones(len(columns[0]) - 1) if source.is_sparse else source.coordinates.sizes,
        open_directions=opened,
    )


def with_offsets(solved: list[Solved], offsets: FloatArray) -> list[Solved]:
    """Return solved windows with other offsets."""
    return [
        each._replace(columns=np.vstack((each.columns[:-1], np.full((1, 1), offset))))
        for each, offset in zip(solved, offsets.tolist(), strict=True)
    ]


def in_features(source: Any, columns: FloatArray) -> FloatArray:
    """Return weights of features and offset (d + 1, q) from weights of coordinates."""
    return columns if source.is_sparse else source.coordinates.of_features(columns)


def _linked(
    source: Any,
    solved: list[Solved],
    anchors: IntArray,
    gain: float,
    evidence: Segments | SparseSystem | None,
) -> System:
    """Return a linked system; only its last window has a state of value 0."""
    last, main = int(anchors[-1]), -1
    if source.are_places:
        main = source.main_state(last)
    elif source.zero(last) is not None:
        main = 0  # the terminal candidate
    windows = neighborhood_windows(anchors, source.t_max, "window")
    references = ReferenceStates(np.append(np.full(len(windows) - 1, -1), main), main)
    return system_of(source, solved, anchors, windows, references, gain, evidence)


def _make_dense(source: Any) -> None:
    d = source.table.shape[1] if source.are_places else source.p
    if d > _MOST_DENSE:
        raise InvalidInputError(
            f"targets of several steps and reference states need dense features, and {d} are too "
            f"many (at most {_MOST_DENSE}): leave backup and calibration out"
        )
    source.is_sparse = False


def calibrated(system: System, source: Any, rule: RuleName) -> System:
    """Return a system with the offsets that make values agree at reference states."""
    offsets = calibrate_offsets(
        system.weights,
        dense(source.candidate_features),
        system.references,
        system.occupancy,
        getattr(source, "support_threshold", 0.0),
        rule,
    )
    return replace(system, offsets=offsets)
