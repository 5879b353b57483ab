"""One way from a source of rows to solved windows, for any backup and any subset of the trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from lstd_agent.arrays import IntArray
from lstd_agent.backups import Backup, is_one_step
from lstd_agent.rows.factors import Factor, Segments, total, without_each
from lstd_agent.system.gain import Gain, GainRows, estimate_gain
from lstd_agent.system.linked import SingleSteps, Solved, solve_linked, zero_of
from lstd_agent.system.model import pooled_model, solve_model
from lstd_agent.system.neighborhoods import neighborhood_windows
from lstd_agent.system.targets import Targets

Kind = Literal["whole", "halves", "others"]


@dataclass(frozen=True, eq=False)
class Subsets:
    """Subsets of the trials of a source: all, all and each half, or all but each group.

    ``edges`` are the anchors of all systems to solve. ``factors`` of ``n_groups`` groups of trials
    are computed if they are not given.
    """

    source: Any
    edges: IntArray
    n_groups: int = 1
    kind: Kind = "whole"
    factors: Segments | None = None

    @cached_property
    def _by_group(self) -> Segments:
        return self.factors or Segments.of(self.source, self.edges, self.n_groups)

    def those(self, kind: Kind) -> Subsets:
        """Return other subsets of the same groups, by the same factors."""
        return replace(self, kind=kind, factors=self._by_group)

    @cached_property
    def segments(self) -> list[Segments]:
        """The factors of each subset: data are read once."""
        edges, runs = self._by_group.edges, map(self.totals, self._by_group.factors)
        return [Segments(edges, [[each] for each in subset]) for subset in zip(*runs, strict=True)]

    @cached_property
    def groups(self) -> list[Any]:
        """The batches of counts of each subset; None for all trials, and for kept trials."""
        if self.kind == "whole":
            return [None]
        if not self.source.are_places:
            return [None] * len(self.segments)
        groups, half = self.source.groups(self.n_groups), self.n_groups // 2
        if self.kind == "others":
            return [np.concatenate(groups[:b] + groups[b + 1 :]) for b in range(len(groups))]
        return [None, np.concatenate(groups[:half]), np.concatenate(groups[half:])]

    @property
    def half(self) -> int:
        """How many kept trials are in the first half."""
        if self.source.are_places:
            return 0
        return int(self.source.groups(self.n_groups)[self.n_groups // 2].start)

    def totals(self, parts: Sequence[Factor]) -> list[Factor]:
        """Return the factors of subsets from the factors of groups."""
        if self.kind == "others":
            return list(without_each(parts))
        if self.kind == "whole":
            return [total(parts)]
        half = len(parts) // 2
        return [total(parts), total(parts[:half]), total(parts[half:])]

    def gains(self, rows: GainRows | None = None) -> list[Gain]:
        """Return the gain of each subset, by given rows or by the rows that determine it."""
        return [estimate_gain(self.source, each, rows) for each in self.segments]

    def part(self, i: int) -> Any:
        """Return the counts of a subset."""
        return self.source if self.groups[i] is None else self.source.subset(self.groups[i])

    def solve(
        self,
        anchors: IntArray,
        gains: Sequence[float],
        backup: Backup,
        *,
        directions: bool = True,
    ) -> list[list[Solved]]:
        """Solve the linked system of each subset, which has its own gain.

        With ``directions``, the first subset's open directions are computed.
        """
        source, last = self.source, int(anchors[-1])
        if backup == "model":
            main = source.main_state(last)
            windows = neighborhood_windows(anchors, source.t_max, "window")
            parts = [(self.part(i), gain) for i, gain in enumerate(gains)]
            return [
                solve_model(part, windows, pooled_model(part, gain, main)) for part, gain in parts
            ]
        zeros = np.stack([zero_of(source, each, last) for each in self.segments])
        several: Any = backup
        if not (source.are_places or is_one_step(backup)):
            halves = [slice(0, self.half), slice(self.half, source.n_trials)]
            whole, others = [slice(None)], source.groups(self.n_groups)
            runs = {"whole": whole, "halves": halves, "others": others}[self.kind]
            targets = Targets(source, several, np.array(gains), runs=runs, subsets=self.totals)
            return solve_linked(source, targets, anchors, zeros, directions=directions)
        found = []
        for i, gain in enumerate(gains):
            if is_one_step(backup):
                equations: Any = SingleSteps(source, self.segments[i], gain)
            else:
                equations = Targets(source, several, np.array([gain]), group=self.groups[i])
            track = directions and i == 0
            found += solve_linked(source, equations, anchors, zeros[i : i + 1], directions=track)
        return found
