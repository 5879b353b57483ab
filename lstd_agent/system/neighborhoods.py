"""Anchors and timestep neighborhoods (Def ``neighborhood``), and their reference states.

A neighborhood is a run of consecutive timesteps that share one approximator; its first timestep is
its anchor. For a tolerance Δ, timestep t becomes the next anchor if the running average of the
*squared* distances between the state distributions of the last anchor and of the timesteps after
it, up to t, exceeds Δ². The tolerance starts small and doubles until there are no more anchors than
wanted (Algorithms ``identify_anchor`` and ``approx_anchor``).

**Reference states** (section ``sref_offset``, Algorithm ``identify_sref``). Each approximator
estimates the bias up to an offset, and states that two neighborhoods share determine the difference
of their offsets. The *main* reference state is the most common one among all neighborhood supports.
Neighborhoods without it get *auxiliary* ones: the most common state among them that is also in the
support of a neighborhood with a reference. Without such a state they are merged into the nearest.

Among equally common states the paper takes one of the earliest neighborhood (rule
``"most_common"``; here the lowest state), which is often rarely visited, so that its noise shifts
all other values. Rule ``"occupancy"`` maximizes the *smallest* visiting frequency over the
neighborhoods that use the state.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

from lstd_agent.arrays import BoolArray, FloatArray, IntArray
from lstd_agent.errors import InvalidInputError
from lstd_agent.rows.factors import Segments
from lstd_agent.system.distances import SquaredDistance
from lstd_agent.trials.spaces import plain_array

SearchName = Literal["exact", "doubling"]
RuleName = Literal["occupancy", "most_common"]
TailName = Literal["window", "settled", "stationary"]

# The first tolerance; bisection stops when two agree to this relative difference.
_FIRST_TOLERANCE, _PRECISION = 1e-3, 1e-6


class AnchorSearch:
    """Algorithm ``approx_anchor``; it computes each distance once, up to timestep ``latest``."""

    def __init__(
        self, squared_distance: SquaredDistance, t_max: int, latest: int | None = None
    ) -> None:
        self._squared_distance, self._t_max = squared_distance, t_max
        self._latest = t_max if latest is None else min(t_max, latest)
        self._rows: dict[int, FloatArray] = {}  # distances from an anchor, as far as computed

    def anchors(self, tolerance: float, at_most: int) -> IntArray:
        """Return the anchors for one tolerance Δ, but no more than one beyond ``at_most``."""
        found, t = [0], self._next_anchor(0, tolerance**2)
        while t is not None and len(found) <= at_most:
            found.append(t)
            t = self._next_anchor(t, tolerance**2)
        return np.array(found, dtype=np.int64)

    def find(self, n_anchors: int | None, search: SearchName = "doubling") -> IntArray:
        """Return at most ``n_anchors`` anchors (Algorithm ``identify_anchor``); None: stepwise.

        ``"exact"`` bisects for the tolerance that comes closest to that number. (More tolerance
        does not always give fewer anchors; bisection finds one place where it does.)
        """
        if n_anchors is None or n_anchors > self._t_max:
            return np.arange(self._t_max + 1)
        if n_anchors == 1:
            return np.zeros(1, dtype=np.int64)
        too_small, enough = 0.0, _FIRST_TOLERANCE
        while (anchors := self.anchors(enough, n_anchors)).size > n_anchors:
            too_small, enough = enough, 2.0 * enough
        if search == "doubling":
            return anchors
        while anchors.size < n_anchors and enough - too_small > _PRECISION * enough:
            middle = (too_small + enough) / 2.0
            found = self.anchors(middle, n_anchors)
            if found.size > n_anchors:
                too_small = middle
            else:
                enough = middle
                anchors = found if found.size > anchors.size else anchors
        return anchors

    def _next_anchor(self, anchor: int, squared_tolerance: float) -> int | None:
        """Return the first timestep at which the running average exceeds the tolerance."""
        n_following = self._latest - anchor
        row = self._rows.get(anchor, np.empty(0))
        while True:
            average = np.cumsum(row) / np.arange(1, row.size + 1)
            exceeds = average > squared_tolerance
            if exceeds.any():
                return anchor + 1 + int(np.argmax(exceeds))
            if row.size == n_following:
                return None
            # Most anchors have few neighbors: look ahead in blocks that double.
            size = min(max(1, 2 * row.size), n_following)
            more = self._squared_distance(anchor, anchor + 1 + row.size, anchor + 1 + size)
            if not np.isfinite(more).all():
                t = anchor + 1 + row.size + int(np.argmin(np.isfinite(more)))
                raise InvalidInputError(
                    f"distances must be finite numbers; that of timesteps {anchor} and {t} is not"
                )
            row = self._rows[anchor] = np.concatenate((row, more))


def check_anchors(anchors: object, t_max: int) -> IntArray:
    """Validate given anchors: integers from 0, ascending, at most ``t_max``."""
    array = plain_array(anchors, "anchors, ascending integers that start at 0,")
    is_run = array.ndim == 1 and array.size > 0 and np.issubdtype(array.dtype, np.integer)
    if not is_run or array[0] != 0 or (np.diff(array) <= 0).any() or array[-1] > t_max:
        raise InvalidInputError(
            f"anchors must be ascending integers that start at 0 and end at t_max = {t_max} or "
            f"before; got {anchors!r}"
        )
    return array.astype(np.int64)


def neighborhood_windows(anchors: IntArray, t_max: int, tail: TailName) -> IntArray:
    """Return the timesteps each neighborhood averages over, shape (n, 2), stop exclusive.

    The last averages all its timesteps up to t_max (``"window"``), or their second half
    (``"settled"``), or for exact chains p*, stored as timestep t_max + 1 (``"stationary"``).
    """
    windows = np.stack((anchors, np.append(anchors[1:], t_max + 1)), axis=1)
    if tail == "settled":
        windows[-1, 0] += (windows[-1, 1] - windows[-1, 0]) // 2
    elif tail == "stationary":
        windows[-1] = (t_max + 1, t_max + 2)
    return windows


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
    ``main`` is a known main reference state, the terminal one, unless it is in no support.
    """
    support = occupancy > support_threshold
    n, n_states = occupancy.shape
    state, chosen_main = np.full(n, -1, dtype=np.int64), -1
    eligible: BoolArray = np.ones(n_states, dtype=bool)
    if main is not None and support[:, main].any():
        eligible = np.arange(n_states) == main
    known = np.full(n_states, np.inf)  # largest occupancy where a reference is already
    while (waiting := state < 0).any():
        count = np.where(eligible, support[waiting].sum(axis=0), 0)
        if count.max() == 0:
            break
        tied = count == count.max()
        if rule == "most_common":
            earliest = np.argmax((support & tied).any(axis=1) & waiting)
            chosen = int(np.argmax(support[earliest] & tied))
        else:
            least = np.where(support[waiting], occupancy[waiting], np.inf).min(axis=0)
            chosen = int(np.argmax(np.where(tied, np.minimum(least, known), -1.0)))
        chosen_main = chosen if chosen_main < 0 else chosen_main
        state[waiting & support[:, chosen]] = chosen
        eligible = np.asarray(support[state >= 0].any(axis=0))
        known = occupancy[state >= 0].max(axis=0)
    if chosen_main < 0:
        raise InvalidInputError(
            "no candidate state is in the support of any neighborhood (largest occupancy "
            f"{occupancy.max():.3g}, threshold {support_threshold}): collect more trials, or use "
            "calibration='linked', which needs no reference states"
        )
    return ReferenceStates(state, chosen_main)


def merge_neighborhoods(
    anchors: IntArray, references: ReferenceStates
) -> tuple[IntArray, ReferenceStates]:
    """Merge neighborhoods without a reference state into the nearest, by anchors, with one.

    A merged neighborhood keeps its earliest anchor.
    """
    has = np.flatnonzero(references.state >= 0)
    # argmin gives a tie to the preceding one.
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

    Of several calibrated neighborhoods that contain an auxiliary reference state, the rule takes
    the one that visits it most often, or the earliest.
    """
    own_value = np.einsum("nd,nd->n", weights, features[references.state])
    done = references.state == references.main
    offsets = np.where(done, -own_value, 0.0)
    while not done.all():
        for k in np.flatnonzero(~done):
            state = references.state[k]
            seen = np.where(done, occupancy[:, state], 0.0)
            if seen.max() > support_threshold:
                j = np.argmax(seen if rule == "occupancy" else seen > support_threshold)
                offsets[k] = weights[j] @ features[state] + offsets[j] - own_value[k]
                done[k] = True
    return offsets


def neighborhoods_with_references(
    source: Any, segments: Segments | None, anchors: IntArray, rule: RuleName, tail: TailName
) -> tuple[IntArray, IntArray, ReferenceStates]:
    """Merge neighborhoods until all have a reference state (Algorithm ``identify_anchor``)."""
    last_is_merged = True
    # Merging only adds to windows, so references stay in their supports, except in a neighborhood
    # that becomes the last and is fitted to its tail: choose again.
    while last_is_merged:
        windows = neighborhood_windows(anchors, source.t_max, tail)
        how = source.support_threshold, rule, source.terminal
        references = assign_references(source.occupancy(windows, segments), *how)
        last_is_merged = references.state[-1] < 0 and tail != "window"
        anchors, references = merge_neighborhoods(anchors, references)
    return anchors, neighborhood_windows(anchors, source.t_max, tail), references
