"""One way from a source of rows to solved windows, for any backup and any subset of the trials."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.backups import is_one_step
from lstd_agent.rows.factors import Segments
from lstd_agent.system.linked import SingleSteps, Targets, solve_linked, zero_of
from lstd_agent.system.minimizer import Gain, Solved, estimate_gains
from lstd_agent.system.model import pooled_model, solve_model
from lstd_agent.system.neighborhoods import neighborhood_windows
from lstd_agent.system.sparse import SparseRows, gains_without_each, solve_sparse, sparse_gain


@dataclass(frozen=True, eq=False)
class Subsets:
    """Subsets of the trials of a source: all, all and each half, or all but each group."""

    source: Any
    edges: IntArray  # the anchors of all systems to solve
    n_groups: int = 1
    kind: Literal["whole", "halves", "others"] = "whole"
    read: dict[Any, Any] = field(default_factory=dict)  # shared by subsets of the same groups

    def _once(self, of: Callable[..., Any]) -> Any:
        """Return the factors, or the sparse rows, of all groups."""
        groups = self.source.groups(self.n_groups)
        self.read[of] = self.read.get(of) or of(self.source, self.edges, groups)
        return self.read[of]

    @cached_property
    def segments(self) -> Segments:
        """The factors of each subset: trials are read once, counts are added before any algebra."""
        if self.source.are_places:
            return Segments.of(self.source, self.edges, self.groups)
        read, members = self._once(Segments.of), self.members(self.n_groups)
        return Segments(read.edges, [each.combined(members) for each in read.factors])

    @cached_property
    def groups(self) -> list[Any]:
        """The batches of counts of each subset; None for all trials, and for kept trials."""
        if self.kind == "whole" or not self.source.are_places:
            return [None] * {"whole": 1, "halves": 3, "others": self.n_groups}[self.kind]
        groups, half = self.source.groups(self.n_groups), self.half
        if self.kind == "others":
            return [np.concatenate(groups[:b] + groups[b + 1 :]) for b in range(len(groups))]
        return [None, np.concatenate(groups[:half]), np.concatenate(groups[half:])]

    @cached_property
    def parts(self) -> list[Any]:
        """The counts of each subset."""
        return [self.source if g is None else self.source.subset(g) for g in self.groups]

    @property
    def half(self) -> int:
        """How many groups of counts, or kept trials, are in the first half."""
        half, source = self.n_groups // 2, self.source
        return half if source.are_places else int(source.groups(self.n_groups)[half].start)

    def members(self, n: int) -> FloatArray:
        """Return which of n runs of kept trials each subset has, (R, n)."""
        if self.kind == "others":
            return 1.0 - np.eye(n)
        late = np.arange(n) >= n // 2
        subsets = [np.ones(n), ~late, late] if self.kind == "halves" else [np.ones(n)]
        return np.array(subsets, dtype=np.float64)

    def gains(self, rows: str | None = None) -> list[Gain]:
        """Return the gain of each subset, by given rows; by default of all trials alone."""
        wanted = rows
        if self.source.is_sparse:  # factors, of sums, are not read without need
            if rows in ("tail", "all"):
                return gains_without_each(self._once(SparseRows), rows)
            if rows is None and (found := sparse_gain(self._once(SparseRows))):
                return [found]
            wanted = "mean"
        return estimate_gains(self.source, self.segments if rows else self.segments[:1], wanted)

    def solve(
        self, anchors: IntArray, gains: Sequence[float], backups: Sequence[Any], whole: Any = None
    ) -> list[list[list[Solved]]]:
        """Solve each subset's system by its gain, for one backup, or for several λ-returns at once.

        Sparse systems use those of the whole.
        """
        source, last = self.source, int(anchors[-1])
        if backups[0] == "model":
            main = source.main_state(last)
            windows = neighborhood_windows(anchors, source.t_max, "window")
            each = zip(self.parts, gains, strict=True)
            return [[solve_model(part, windows, pooled_model(part, g, main)) for part, g in each]]
        if source.is_sparse:
            rows, first = self._once(SparseRows), -1 if whole is None else 0
            return [[solve_sparse(rows, anchors, g, whole, b) for b, g in enumerate(gains, first)]]
        zeros, with_open = zero_of(source, self.segments, last), self.kind != "others"
        how = anchors, zeros, with_open
        if is_one_step(backups[0]) and len(backups) == 1:
            single = SingleSteps(source, self.segments, np.array(gains))
            return solve_linked(source, single, *how)
        if not source.are_places:
            half, n = self.half, source.n_trials
            runs = source.groups(self.n_groups) if not with_open else [slice(half), slice(half, n)]
            some: Any = {"runs": runs, "members": self.members(len(runs))}
            return solve_linked(source, Targets(source, backups, np.array(gains), **some), *how)
        found = []
        for i, gain in enumerate(gains):
            targets = Targets(source, backups, np.array([gain]), group=self.groups[i])
            how = anchors, zeros[[i]], with_open and i == 0
            found.append(solve_linked(source, targets, *how))
        return [[own for [own] in each] for each in zip(*found, strict=True)]
