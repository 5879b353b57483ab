"""Reference states and merging (section ``sref_offset``, Algorithm ``identify_sref``).

Each approximator estimates the bias up to an offset. States that two neighborhoods share determine
the difference of their offsets. The *main* reference state is the most common one among all
neighborhood supports. Neighborhoods without it get *auxiliary* reference states: the most common
state among these neighborhoods that is also in the support of a neighborhood with a reference.
Neighborhoods without such a state are merged into the nearest one.

Among equally common states the paper takes one of the earliest neighborhood (rule
``"most_common"``; here the lowest state). It is often rarely visited, and its noise shifts all
other values. Rule ``"occupancy"`` maximizes the *smallest* visiting frequency over the
neighborhoods that use the state.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.errors import InvalidInputError, check_choice
from lstd_agent.rows.factors import Segments
from lstd_agent.system.neighborhoods import TailName, neighborhood_windows

RuleName = Literal["occupancy", "most_common"]
RULES: tuple[RuleName, ...] = ("occupancy", "most_common")


class ReferenceStates(NamedTuple):
    """The reference state (n,) of each neighborhood, -1 for none, and the main one."""

    state: IntArray
    main: int


def assign_references(
    occupancy: FloatArray,
    support_threshold: float = 0.0,
    rule: RuleName = "occupancy",
    main: int | None = None,
) -> ReferenceStates:
    """Choose the main and the auxiliary reference states (Algorithm ``identify_sref``).

    A state is in a neighborhood's support if its occupancy, one of (n, M), exceeds the threshold.
    ``main`` is a known main reference state, the terminal one. It is not used if it is in no
    support. Raises `InvalidInputError` if no candidate is in any support.
    """
    check_choice("reference", rule, RULES)
    support = occupancy > support_threshold
    state = np.full(len(occupancy), -1, dtype=np.int64)
    waiting = np.ones(len(occupancy), dtype=bool)
    eligible: BoolArray = np.ones(occupancy.shape[1], dtype=bool)
    if main is not None and support[:, main].any():
        eligible = np.arange(occupancy.shape[1]) == main
    known = np.full(occupancy.shape[1], np.inf)
    chosen_main = -1
    while waiting.any():
        chosen = _most_common(support[waiting], occupancy[waiting], eligible, known, rule)
        if chosen is None:
            break
        chosen_main = chosen if chosen_main < 0 else chosen_main
        served = waiting & support[:, chosen]
        state[served] = chosen
        waiting &= ~served
        eligible = np.asarray(support[~waiting].any(axis=0))
        known = occupancy[~waiting].max(axis=0)
    if chosen_main < 0:
        raise InvalidInputError(
            "no candidate state is in the support of any neighborhood (largest occupancy "
            f"{occupancy.max():.3g}, threshold {support_threshold}): collect more trials, or use "
            "calibration='linked', which needs no reference states"
        )
    return ReferenceStates(state, chosen_main)


def _most_common(
    support: BoolArray,
    occupancy: FloatArray,
    eligible: BoolArray,
    known: FloatArray,
    rule: RuleName,
) -> int | None:
    """Return the most common eligible state of the waiting neighborhoods, if there is one.

    ``known`` is each state's largest occupancy in the neighborhoods with a reference, which an
    auxiliary reference also uses.
    """
    count = np.where(eligible, support.sum(axis=0), 0)
    if count.max() == 0:
        return None
    tied = count == count.max()
    if rule == "most_common":
        earliest = np.argmax((support & tied).any(axis=1))
        return int(np.argmax(support[earliest] & tied))
    smallest = np.where(support, occupancy, np.inf).min(axis=0)
    return int(np.argmax(np.where(tied, np.minimum(smallest, known), -1.0)))


def merge_neighborhoods(
    anchors: IntArray, references: ReferenceStates
) -> tuple[IntArray, ReferenceStates]:
    """Merge neighborhoods without a reference state into the nearest one that has one.

    Nearest is by the distance between anchors; ties go to the preceding neighborhood. A merged
    neighborhood keeps its earliest anchor.
    """
    has = np.flatnonzero(references.state >= 0)
    if has.size == anchors.size:
        return anchors, references
    # Distances are compared left to right, so argmin gives a tie to the preceding one.
    nearest = np.argmin(np.abs(anchors[:, None] - anchors[has]), axis=1)
    first = np.searchsorted(nearest, np.arange(has.size))
    return anchors[first], ReferenceStates(references.state[has], references.main)


def calibrate_offsets(
    weights: FloatArray,
    features: FloatArray,
    references: ReferenceStates,
    occupancy: FloatArray,
    support_threshold: float = 0.0,
    rule: RuleName = "occupancy",
) -> FloatArray:
    """Return the offset of each approximator (n,), from features (M, d) of candidate states.

    If several calibrated neighborhoods contain an auxiliary reference state, the rule chooses the
    one to agree with: the one that visits the state most often, or the earliest.
    """
    own_value = np.einsum("nd,nd->n", weights, features[references.state])
    calibrated = references.state == references.main
    offsets = np.where(calibrated, -own_value, 0.0)
    waiting = list(np.flatnonzero(~calibrated))
    while waiting:
        for k in waiting:
            state = references.state[k]
            seen = np.where(calibrated, occupancy[:, state], 0.0)
            if seen.max() > support_threshold:
                j = np.argmax(seen if rule == "occupancy" else seen > support_threshold)
                offsets[k] = weights[j] @ features[state] + offsets[j] - own_value[k]
                calibrated[k] = True
        waiting = [k for k in waiting if not calibrated[k]]
    return offsets


def neighborhoods_with_references(
    source: Any, segments: Segments | None, anchors: IntArray, rule: RuleName, tail: TailName
) -> tuple[IntArray, IntArray, ReferenceStates]:
    """Return anchors and windows of neighborhoods that all have a reference state.

    The second half of Algorithm ``identify_anchor``: other neighborhoods are merged.
    """
    while True:
        windows = neighborhood_windows(anchors, source.t_max, tail)
        occupancy = source.occupancy(windows, segments)
        known = source.support_threshold, rule, source.terminal
        references = assign_references(occupancy, *known)
        last_is_merged = references.state[-1] < 0
        merged, references = merge_neighborhoods(anchors, references)
        if merged.size == anchors.size:
            return anchors, windows, references
        anchors = merged
        # Merging only adds to windows, so references stay in their supports, except in a
        # neighborhood that becomes the last and is fitted to its tail: choose again.
        if tail == "window" or not last_is_merged:
            return anchors, neighborhood_windows(anchors, source.t_max, tail), references
