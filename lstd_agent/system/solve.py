"""One way from a source of rows to solved windows, for any backup and any subset of the trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from lstd_agent.arrays import IntArray
from lstd_agent.backups import Backup, LambdaReturn, MultiStep, is_one_step
from lstd_agent.rows.factors import Factor, Segments, total, without_each
from lstd_agent.system.gain import Gain, GainRows, estimate_gain
from lstd_agent.system.linked import solve_linked, zero_of
from lstd_agent.system.model import PooledModel, pooled_model, solve_model
from lstd_agent.system.neighborhoods import neighborhood_windows
from lstd_agent.system.solution import Solved
from lstd_agent.system.targets import linked_by_targets


@dataclass(frozen=True, eq=False)
class Subsets:
    """Subsets of the trials of a source: all, all and each half, or all but each group.

    Attributes
    ----------
    source : CountRows, TrialRows or ChainRows
    edges : ndarray of int
        Anchors of all systems to be solved.
    n_groups : int
        Of trials, for standard errors.
    kind : {"whole", "halves", "others"}
    """

    source: Any
    edges: IntArray
    n_groups: int = 1
    kind: Literal["whole", "halves", "others"] = "whole"

    @cached_property
    def _by_group(self) -> Segments:
        return Segments.of(self.source, self.edges, self.n_groups)

    def those(self, kind: Literal["whole", "halves", "others"]) -> Subsets:
        """Return other subsets of the same groups, by the same factors."""
        return Subsets.by(self.source, self._by_group, self.n_groups, kind)

    @classmethod
    def by(
        cls,
        source: Any,
        factors: Segments,
        n_groups: int,
        kind: Literal["whole", "halves", "others"],
    ) -> Subsets:
        """Return subsets by the factors of groups."""
        found = cls(source, factors.edges, n_groups, kind)
        vars(found)["_by_group"] = factors
        return found

    @cached_property
    def segments(self) -> list[Segments]:
        """The factors of each subset: data are read once."""
        edges, runs = self._by_group.edges, map(self.totals, self._by_group.factors)
        return [Segments(edges, [[each] for each in subset]) for subset in zip(*runs, strict=True)]

    @cached_property
    def groups(self) -> list[Any]:
        """The batches of counts of each subset; None are all trials.

        Of kept trials, factors tell subsets apart.
        """
        if not self.source.are_places:
            return [None] * len(self.segments)
        groups, half = self.source.groups(self.n_groups), self.n_groups // 2
        if self.kind == "others":
            return [np.concatenate(groups[:b] + groups[b + 1 :]) for b in range(len(groups))]
        if self.kind == "whole":
            return [None]
        return [None, np.concatenate(groups[:half]), np.concatenate(groups[half:])]

    @property
    def _runs(self) -> list[slice]:
        """The runs of kept trials that targets are gathered of."""
        groups = self.source.groups(self.n_groups)
        if self.kind != "halves":
            return groups if self.kind == "others" else [slice(None)]
        return [slice(0, self.half), slice(self.half, self.source.n_trials)]

    @property
    def half(self) -> int:
        """How many kept trials are in the first half."""
        if self.source.are_places:
            return 0
        return int(self.source.groups(self.n_groups)[self.n_groups // 2].start)

    def totals(self, parts: Sequence[Factor]) -> list[Factor]:
        """Return the factors of subsets from those of groups, the first half of these first."""
        if self.kind == "others":
            return list(without_each(parts))
        if self.kind == "whole":
            return [total(parts)]
        half = len(parts) // 2
        return [total(parts), total(parts[:half]), total(parts[half:])]

    def gains(self, rows: GainRows | None = None) -> list[Gain]:
        """Return the gain of each subset, by given rows or by those that determine it."""
        return [estimate_gain(self.source, each, rows) for each in self.segments]

    def part(self, i: int) -> Any:
        """Return the counts of a subset."""
        return self.source if self.groups[i] is None else self.source.subset(self.groups[i])

    def model(self, i: int, gain: float, main: int) -> PooledModel:
        """Return the pooled model of a subset, with value 0 at a state."""
        return pooled_model(self.part(i), gain, main)

    def solve(
        self,
        anchors: IntArray,
        gains: Sequence[float],
        backup: Backup,
        *,
        directions: bool = True,
    ) -> list[list[Solved]]:
        """Solve the linked system of each subset (the weights of ``training_nbwpval``).

        Parameters
        ----------
        anchors : ndarray of int, shape (K,)
        gains : sequence of float
            Of each subset.
        backup : Backup
        directions : bool
            Whether to keep track of what the samples of the first subset leave open.
        """
        source, last = self.source, int(anchors[-1])
        if backup == "model":
            return self._by_model(anchors, gains)
        zeros = [zero_of(source, each, last) for each in self.segments]
        if is_one_step(backup):
            return [
                solve_linked(source, each, anchors, gain, zero, directions=directions and i == 0)
                for i, (each, gain, zero) in enumerate(
                    zip(self.segments, gains, zeros, strict=True)
                )
            ]
        assert isinstance(backup, MultiStep | LambdaReturn)
        if not source.are_places:
            return linked_by_targets(
                source,
                anchors,
                backup,
                np.array(gains),
                np.stack(zeros),
                groups=self._runs,
                subsets=self.totals,
                directions=directions,
            )
        return [
            linked_by_targets(
                source,
                anchors,
                backup,
                np.array([gain]),
                zero[None],
                group=group,
                directions=directions and i == 0,
            )[0]
            for i, (group, gain, zero) in enumerate(zip(self.groups, gains, zeros, strict=True))
        ]

    def _by_model(self, anchors: IntArray, gains: Sequence[float]) -> list[list[Solved]]:
        source, found = self.source, []
        main = source.main_state(int(anchors[-1]))
        windows = neighborhood_windows(anchors, source.t_max, "window")
        for i, gain in enumerate(gains):
            found.append(solve_model(self.part(i), windows, self.model(i, gain, main)))
        return found
