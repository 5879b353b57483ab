"""Reference states, merging and calibration: each rule of the paper's section ``sref_offset``.

Supports are written as the states that each neighbourhood visits, with their occupancies.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from lstd_agent.errors import InvalidInputError
from lstd_agent.system.neighborhoods import (
    ReferenceStates,
    assign_references,
    calibrate_offsets,
    merge_neighborhoods,
    neighborhood_windows,
    neighborhoods_with_references,
)


def occupancies(*neighborhoods: dict[int, float], n_states: int = 6) -> Any:
    table = np.zeros((len(neighborhoods), n_states))
    for row, visited in zip(table, neighborhoods, strict=True):
        for state, share in visited.items():
            row[state] = share
    return table


@pytest.mark.parametrize("rule", ["most_common", "occupancy"])
def test_the_main_reference_is_the_state_in_the_most_supports(rule: Any) -> None:
    # State 1 is in three supports, every other in one, however often it is visited.
    found = assign_references(occupancies({0: 0.9, 1: 0.1}, {1: 0.1, 2: 0.9}, {1: 1.0}), rule=rule)
    assert found.main == 1
    assert_array_equal(found.state, [1, 1, 1])


def test_a_tie_goes_to_the_earliest_neighborhood_and_its_lowest_state() -> None:
    # 2 and 4 are in two supports each. The first neighbourhood has only 4 of them: 4, though
    # the others start with 2. Then {2, 3} and {2} are left: 2 is in both, but in no settled
    # support, so neither gets a reference.
    found = assign_references(
        occupancies({4: 1.0}, {4: 0.5, 5: 0.5}, {2: 0.5, 3: 0.5}, {2: 1.0}), rule="most_common"
    )
    assert found.main == 4
    assert_array_equal(found.state, [4, 4, -1, -1])
    # All counts are one: the lowest of the earliest.
    found = assign_references(occupancies({3: 0.1, 2: 0.9}, {0: 1.0}), rule="most_common")
    assert found.main == 2


def test_occupancy_breaks_ties_by_the_largest_smallest_occupancy() -> None:
    # 0, 1 and 2 are in both supports; their smaller occupancies are 0.1, 0.3 and 0.2.
    found = assign_references(
        occupancies({0: 0.1, 1: 0.4, 2: 0.5}, {0: 0.5, 1: 0.3, 2: 0.2}), rule="occupancy"
    )
    assert found.main == 1


def test_auxiliary_references_link_neighborhoods_step_by_step() -> None:
    # Counts: 0, 2 and 3 in two supports each; the earliest neighbourhood has 0: main, for the
    # first two. Of the others' states 3 is the most common (two), but no settled support
    # has it: banned. 2 is in {0, 2}: it serves {2, 3}. That makes 3 known, for the last.
    found = assign_references(
        occupancies({0: 0.5, 1: 0.5}, {0: 0.5, 2: 0.5}, {2: 0.5, 3: 0.5}, {3: 0.5, 4: 0.5}),
        rule="most_common",
    )
    assert found.main == 0
    assert_array_equal(found.state, [0, 0, 2, 3])


def test_an_auxiliary_reference_relies_on_the_settled_neighborhood_too() -> None:
    # 0 is main by count (three supports). For the last neighbourhood, 1 and 2 are eligible:
    # it sees them 0.6 and 0.4, but 1 was seen 0.01 at most where 0 is reference and 2 was
    # seen 0.3. The smaller of the pair is 0.01 against 0.3: 2.
    table = occupancies({0: 0.99, 1: 0.01}, {0: 0.7, 2: 0.3}, {0: 1.0}, {1: 0.6, 2: 0.4})
    assert_array_equal(assign_references(table, rule="occupancy").state, [0, 0, 0, 2])
    # The paper's rule takes the lowest.
    assert_array_equal(assign_references(table, rule="most_common").state, [0, 0, 0, 1])


def test_states_at_the_threshold_are_outside_the_support() -> None:
    table = occupancies({0: 1e-8, 1: 1.0}, {0: 1.0})
    found = assign_references(table, 1e-8, rule="most_common")
    assert found.main == 1
    assert_array_equal(found.state, [1, -1])


def test_a_known_main_reference_comes_before_more_common_states() -> None:
    table = occupancies({0: 1.0}, {0: 0.5, 5: 0.5}, {0: 0.5, 4: 0.5})
    assert_array_equal(assign_references(table, main=5).state, [0, 5, 0])
    assert assign_references(table, main=5).main == 5
    # Unless no trial got there.
    assert assign_references(table, main=3).main == 0


def test_no_candidate_in_any_support_is_an_error() -> None:
    with pytest.raises(InvalidInputError, match=r"largest occupancy 0\.005, threshold 0\.01"):
        assign_references(np.full((2, 3), 0.005), 0.01)


@pytest.mark.parametrize(
    ("anchors", "states", "merged", "left"),
    [
        # 4 is 4 from 0 and 5 from 9: into the first.
        ([0, 4, 9], [1, -1, 1], [0, 9], [1, 1]),
        # 6 is 6 from 0 and 2 from 8: into the last, whose anchor becomes 6.
        ([0, 6, 8], [1, -1, 1], [0, 6], [1, 1]),
        # 4 is 4 from both: into the preceding.
        ([0, 4, 8], [1, -1, 1], [0, 8], [1, 1]),
        # Nothing precedes 0, so it goes on to 3.
        ([0, 3, 9], [-1, 2, 1], [0, 9], [2, 1]),
        # 2 is nearer to 0 and 7 nearer to 8: one each way.
        ([0, 2, 7, 8], [1, -1, -1, 1], [0, 7], [1, 1]),
        # Only one has a reference: it takes all.
        ([0, 2, 7, 8], [-1, -1, 3, -1], [0], [3]),
        ([0, 5], [1, 1], [0, 5], [1, 1]),
    ],
)
def test_neighborhoods_without_reference_merge_into_the_nearest(
    anchors: list[int], states: list[int], merged: list[int], left: list[int]
) -> None:
    references = ReferenceStates(np.array(states), max(states))
    found, kept = merge_neighborhoods(np.array(anchors), references)
    assert_array_equal(found, merged)
    assert_array_equal(kept.state, left)


def test_windows_only_grow_by_merging_unless_another_becomes_the_last() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        t_max = int(rng.integers(5, 40))
        anchors = np.unique(np.append(0, rng.integers(0, t_max + 1, size=6)))
        has = rng.random(anchors.size) < 0.5
        has[-1] = True
        references = ReferenceStates(np.where(has, 0, -1), 0)
        merged, _ = merge_neighborhoods(anchors, references)
        for tail in ("window", "settled"):
            before = neighborhood_windows(anchors, t_max, tail)[has]
            after = neighborhood_windows(merged, t_max, tail)
            assert (after[:, 0] <= before[:, 0]).all()
            assert (after[:, 1] >= before[:, 1]).all()


class VisitsByTimestep:
    """A source of given states, one at each timestep."""

    terminal, support_threshold = None, 0.0

    def __init__(self, states: list[int]) -> None:
        self.distributions = np.eye(max(states) + 1)[states]
        self.t_max = len(states) - 1

    def occupancy(self, windows: Any, segments: Any) -> Any:
        return np.stack([self.distributions[start:stop].mean(axis=0) for start, stop in windows])


def test_a_neighborhood_that_becomes_the_last_gets_a_reference_in_its_settled_tail() -> None:
    # Timesteps 0-2 are in state 0, 3-5 in 1, 6-9 in 2. All counts are one, so 0 is main and the
    # other two merge into the first. Its settled tail, 5-9, does not have 0: state 2, which is
    # there 4 times of 5, is chosen instead.
    source: Any = VisitsByTimestep([0, 0, 0, 1, 1, 1, 2, 2, 2, 2])
    given: tuple[Any, ...] = (source, None, np.array([0, 3, 6]))
    rules: tuple[tuple[Any, int], ...] = (("occupancy", 2), ("most_common", 1))
    for rule, main in rules:
        found: Any = neighborhoods_with_references
        anchors, windows, references = found(*given, rule, "settled")
        assert_array_equal(anchors, [0])
        assert_array_equal(windows, [[5, 10]])
        assert references.main == main
    assert found(*given, "most_common", "window")[2].main == 0


ONE_HOT = np.eye(3)
V0, V1, V2 = [1.0, 2.0, 3.0], [10.0, 20.0, 30.0], [5.0, 7.0, 9.0]


def test_calibration_follows_links_in_any_order() -> None:
    # Main 0 in the last neighbourhood; the middle one agrees with it at 1, the first with the
    # middle at 2. o2 = -v2(0) = -5; at 1, v2 + o2 = 2, so o1 = 2 - 20 = -18; at 2,
    # v1 + o1 = 12, so o0 = 12 - 3 = 9.
    references = ReferenceStates(np.array([2, 1, 0]), 0)
    table = occupancies({2: 1.0}, {1: 0.5, 2: 0.5}, {0: 0.5, 1: 0.5}, n_states=3)
    offsets = calibrate_offsets(np.array([V0, V1, V2]), ONE_HOT, references, table)
    assert_array_equal(offsets, [9.0, -18.0, -5.0])


@pytest.mark.parametrize(("rule", "expected"), [("occupancy", 11.0), ("most_common", -7.0)])
def test_an_auxiliary_reference_agrees_with_the_most_visiting_or_the_earliest(
    rule: Any, expected: float
) -> None:
    # o0 = -1 and o1 = -10. At 2: v0 + o0 = 2 (occupancy 0.1), v1 + o1 = 20 (0.4).
    # v2(2) = 9: agreeing with the first gives 2 - 9 = -7; with the second 20 - 9 = 11.
    references = ReferenceStates(np.array([0, 0, 2]), 0)
    table = occupancies({0: 0.9, 2: 0.1}, {0: 0.6, 2: 0.4}, {2: 1.0}, n_states=3)
    offsets = calibrate_offsets(np.array([V0, V1, V2]), ONE_HOT, references, table, rule=rule)
    assert_array_equal(offsets, [-1.0, -10.0, expected])
