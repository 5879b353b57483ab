"""`FitOptions`: the options of a fit; the data choose what they leave open."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

import lstd_agent.system.neighborhoods as system
from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.backups import WantedBackup, check_backup, is_one_step
from lstd_agent.errors import InvalidInputError, check_choice, check_integer
from lstd_agent.features.rows import Rows, dense
from lstd_agent.rows.factors import Segments
from lstd_agent.system.approximators import System, Ties, in_features, system_of, with_offsets
from lstd_agent.system.distances import MMD, DistanceName, DistributionDistance, sampled_distance
from lstd_agent.system.linked import Targets, solve_window
from lstd_agent.system.minimizer import Gain, Solved, mean_reward
from lstd_agent.system.neighborhoods import RuleName, SearchName
from lstd_agent.system.selection import Choice, Held, choose, single_steps_hold
from lstd_agent.system.solve import Subsets
from lstd_agent.system.sparse import LeftOut
from lstd_agent.trials.spaces import MAX_REWARD

CalibrationName = Literal["linked", "references"]
AgentTailName = Literal["window", "settled"]

# Numbers of neighbourhoods that n_anchors="auto" tries; up to so many sparse features are made
# dense where an option needs dense ones.
NUMBERS, _MOST_DENSE = (1, 2, 4, 8), 5000


class Fitted(NamedTuple):
    """A fitted system; its windows in coordinates; and the trials, with their groups."""

    system: System
    solved: list[Solved]
    gain: Gain
    choice: Choice
    subsets: Subsets

    @property
    def segments(self) -> Segments:
        """The factors of all trials."""
        return self.subsets.segments[0]

    @property
    def evidence(self) -> Segments | list[Solved]:
        """The factors or the sparse windows, which count samples of observations."""
        return self.solved if self.subsets.source.is_sparse else self.segments

    def open_share(self, features: Rows, neighborhood: IntArray) -> FloatArray:
        """Return the share (m,) of each value that the samples leave open; not of the model."""
        source, share = self.subsets.source, np.zeros(features.shape[0])
        for k in np.unique(neighborhood):
            here, solved = neighborhood == k, self.solved[k]
            if source.is_sparse:
                share[here] = solved.window.are_open(sparse.csr_array(features[here]))
                continue
            x = np.insert(dense(features[here]), features.shape[1], source.constant, axis=1)
            along = np.linalg.norm(x @ in_features(source, solved.columns[:, 1:]), axis=1)
            size = np.linalg.norm(x / np.append(source.coordinates.sizes, 1.0), axis=1)
            share[here] = along / np.where(size > 0.0, size, 1.0)
        return share

    @property
    def left_out(self) -> LeftOut | None:
        """The samples left out of the sparse window with the largest share of them."""
        found = [each.window.left_out for each in self.solved if each.window is not None]
        return max(found, key=lambda each: each.number / each.of, default=None)


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
        if self.n_anchors is not None and not is_auto:
            object.__setattr__(self, "n_anchors", check_integer("n_anchors", self.n_anchors, 1))
        check_choice("search", self.search, ("exact", "doubling"))
        check_choice("calibration", self.calibration, ("linked", "references"))
        check_choice("reference", self.reference, ("occupancy", "most_common"))
        check_choice("tail", self.tail, ("window", "settled"))
        check_backup(self.backup)
        gain: Any = self.gain
        is_number = isinstance(gain, numbers.Real) and not isinstance(gain, bool)
        # Integers are compared as they are, since they may be too large for a float.
        if gain is not None and not (is_number and abs(gain) <= MAX_REWARD):
            raise InvalidInputError(
                f"gain must be a finite number or None, at most {MAX_REWARD:g}; got {gain!r}"
            )
        object.__setattr__(self, "gain", None if gain is None else float(gain))
        if not (isinstance(self.rcond, numbers.Real) and 0.0 < self.rcond < 1.0):
            raise InvalidInputError(f"rcond must be above 0 and below 1; got {self.rcond!r}")
        object.__setattr__(self, "rcond", float(self.rcond))
        is_linked = self.calibration == "linked"
        if self.tail == "settled" and is_linked:
            wrong = "tail='settled' leaves samples out, and a linked system uses them all: leave "
            wrong += "it out, or use calibration='references'"
        elif self.backup == "model" and not is_linked:
            wrong = "backup='model' needs no reference states, so it cannot have "
            wrong += "calibration='references': leave one of the two out"
        elif is_auto and not (is_linked and self.backup == "auto"):
            wrong = "n_anchors='auto' chooses among linked systems together with their backups: "
            wrong += "give a number, or leave calibration and backup out"
        else:
            return
        raise InvalidInputError(wrong)

    def fit(self, source: Any, n_batches: int) -> Fitted:
        """Fit a system to CountRows or TrialRows (Algorithm ``training_nbwpval``)."""
        backup: Any = self.backup
        if backup == "model" and not source.are_places:
            raise InvalidInputError(
                "backup='model' pools the transitions of states that can be counted: for vector "
                "observations use 'one_step', LambdaReturn(decay) or MultiStep(steps)"
            )
        by_references = self.calibration == "references"
        of_one_step = isinstance(backup, str) or is_one_step(backup)
        if source.is_sparse and (by_references or not of_one_step):
            d = source.candidate_features.shape[1]
            if d > _MOST_DENSE:
                raise InvalidInputError(
                    f"targets of several steps and reference states need dense features, and {d} "
                    f"are too many (at most {_MOST_DENSE}): leave backup and calibration out"
                )
            source.is_sparse = False
        candidates, T = self._candidates(source), source.t_max
        anchors, edges = candidates[0], np.unique(np.concatenate(candidates))
        if by_references:
            # Any neighbourhood may become the last, whose settled tail begins in its middle.
            edges = np.unique(np.append(anchors, anchors + (T + 1 - anchors) // 2))
        n_groups = n_batches if source.are_places else max(n_batches, min(2, source.n_trials))
        by_data = backup == "auto" and not (by_references or source.is_sparse or source.are_places)
        kind: Any = "halves" if by_data and n_groups > 1 else "whole"
        subsets = Subsets(source, edges, n_groups, kind)
        segments: Any = None if source.is_sparse else subsets.segments[0]
        gain = self._gain(subsets)
        if by_references:
            reason = "reference states are for single steps, as in the paper"
            choice = Choice("one_step", reason) if backup == "auto" else Choice(backup, "asked for")
            how: Any = segments, anchors, self.reference, self.tail
            anchors, windows, references = system.neighborhoods_with_references(source, *how)
            ties = windows, references, source.occupancy(windows, segments)
            solved = self.solve_windows(source, segments, ties, gain.value)
        else:
            held = Held(subsets, gain.value)
            is_asked = self.anchors is not None or self.n_anchors is None or self.gain is not None
            may_pool = by_data and not is_asked and any(len(each) > 1 for each in candidates)
            if may_pool and single_steps_hold(subsets):
                anchors = np.zeros(1, dtype=np.int64)
                choice = Choice("one_step", "fits that need less of the features agree with it")
            else:
                anchors, choice = choose(held, candidates, None if backup == "auto" else backup)
            solved = held.whole(anchors, choice.backup)
            main = -1 if source.terminal is None else int(source.terminal)
            if source.are_places:
                main = source.main_state(int(anchors[-1]))
            windows = system.neighborhood_windows(anchors, T, "window")
            # Only the last window has a state of value 0.
            states = np.append(np.full(len(windows) - 1, -1), main)
            occupancy = source.occupancy(windows, solved if source.is_sparse else segments)
            ties = windows, system.ReferenceStates(states, main), occupancy
        found = system_of(source, solved, anchors, ties, gain.value)
        return Fitted(found, solved, gain, choice, subsets)

    def _gain(self, subsets: Subsets) -> Gain:
        """Return the gain; with reference states the tail's mean reward, unless it is periodic."""
        if self.gain is not None:
            return Gain(self.gain, "given")
        classes = subsets.source.recurrent_classes
        if self.calibration == "linked" or (len(classes) > 0 and classes[0].period > 1):
            return subsets.gains()[0]
        return Gain(mean_reward(subsets.segments[0]), "given")

    def solve_windows(
        self, source: Any, segments: Segments, ties: Ties, gain: float
    ) -> list[Solved]:
        """Return the minimizers of windows by themselves, with offsets by reference states."""
        solved = []
        for start, stop in ties[0].tolist():
            if isinstance(self.backup, str) or is_one_step(self.backup):
                factor = segments.window(start, stop, gain)
            else:
                factor = Targets(source, [self.backup], np.array([gain])).alone(start, stop)
            found = solve_window(source, factor)
            columns = np.vstack((found.weights, np.zeros((1, 1))))
            solved.append(Solved(columns, found.rank, found.condition, round(factor.n)))
        return with_offsets(source, solved, ties, self.reference)

    def _candidates(self, source: Any) -> list[IntArray]:
        """Return the anchors, given or found, or the candidates for several numbers."""
        if self.anchors is not None:
            return [system.check_anchors(self.anchors, source.t_max)]

        # A last neighbourhood within the tail would have too few samples.
        latest = (source.t_max + 1) // 2 if self.search == "exact" else None
        numbers = NUMBERS if self.n_anchors == "auto" else (self.n_anchors,)
        squared: Any = None  # a single trial has no distance, and may need none
        if any(n is not None and 1 < n <= source.t_max for n in numbers):
            squared = sampled_distance(self.distance, source)
        search = system.AnchorSearch(squared, source.t_max, latest)
        found = [search.find(n, self.search) for n in numbers]
        by_number = {len(anchors): anchors for anchors in found}
        return [by_number[n] for n in sorted(by_number)]
