r"""Anchors and timestep neighborhoods (Def ``neighborhood``).

Algorithm ``approx_anchor`` is `AnchorSearch`. `find_anchors` is the first half of Algorithm
``identify_anchor``; the second half, reference states and merging, is in
`lstd_agent.system.references`.

A neighborhood is a run of consecutive timesteps that share one approximator; its first timestep is
its anchor. For a tolerance Δ, timestep t becomes the next anchor if the running average of the
*squared* distances between the state distributions of the last anchor and of the timesteps after
it, up to t, exceeds Δ². The tolerance starts small and doubles until there are no more anchors than
wanted.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from lstd_agent.arrays import FloatArray, IntArray
from lstd_agent.errors import InvalidInputError, check_choice, check_integer
from lstd_agent.system.distances import SquaredDistance

FIRST_TOLERANCE = 1e-3

SearchName = Literal["exact", "doubling"]
SEARCHES: tuple[SearchName, ...] = ("exact", "doubling")

TailName = Literal["window", "settled", "stationary"]

# Bisection stops when the two tolerances agree to this relative difference.
_TOLERANCE_PRECISION = 1e-6


class AnchorSearch:
    """Algorithm ``approx_anchor``, for any tolerance, computing each distance at most once.

    No timestep after ``latest`` becomes an anchor.
    """

    def __init__(
        self, squared_distance: SquaredDistance, t_max: int, latest: int | None = None
    ) -> None:
        self._squared_distance = squared_distance
        self._t_max = t_max if latest is None else min(t_max, latest)
        # Distances from an anchor to the timesteps after it, as far as computed.
        self._rows: dict[int, FloatArray] = {}

    def anchors(self, tolerance: float, at_most: int) -> IntArray:
        """Return the anchors for one tolerance Δ (the algorithm's inner loop).

        Stops at the first anchor beyond ``at_most``, since a tiny tolerance would give too many.
        """
        found = [0]
        while (following := self._next_anchor(found[-1], tolerance**2)) is not None:
            found.append(following)
            if len(found) > at_most:
                break
        return np.array(found, dtype=np.int64)

    def doubling(self, n_anchors: int) -> IntArray:
        """Double the tolerance until there are no more than ``n_anchors`` anchors."""
        tolerance = FIRST_TOLERANCE
        while (anchors := self.anchors(tolerance, n_anchors)).size > n_anchors:
            tolerance *= 2.0
        return anchors

    def exact(self, n_anchors: int) -> IntArray:
        """Bisect for the tolerance that comes closest to ``n_anchors`` without exceeding it."""
        too_small, enough = 0.0, FIRST_TOLERANCE
        while (anchors := self.anchors(enough, n_anchors)).size > n_anchors:
            too_small, enough = enough, 2.0 * enough
        while anchors.size < n_anchors and enough - too_small > _TOLERANCE_PRECISION * enough:
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
        n_following = self._t_max - anchor
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


def find_anchors(
    squared_distance: SquaredDistance,
    t_max: int,
    n_anchors: int | None,
    search: SearchName = "doubling",
    latest: int | None = None,
) -> IntArray:
    """Return the anchors of at most ``n_anchors`` neighborhoods (Algorithm ``identify_anchor``).

    The paper doubles the tolerance, which may jump past the wanted number. ``"exact"`` then bisects
    between the last two tolerances, and takes the anchors that come closest to that number without
    exceeding it. (More tolerance does not always give fewer anchors; bisection finds one place
    where it does.) Distances are computed only for ``2 <= n_anchors <= t_max``.
    """
    check_choice("search", search, SEARCHES)
    n_anchors = check_n_anchors(n_anchors)
    only = only_anchors(n_anchors, t_max)
    if only is not None:
        return only
    assert n_anchors is not None
    found = AnchorSearch(squared_distance, t_max, latest)
    return found.exact(n_anchors) if search == "exact" else found.doubling(n_anchors)


def only_anchors(n_anchors: int | None, t_max: int) -> IntArray | None:
    """Return the anchors if the wanted number alone determines them, else None.

    None, or the number of timesteps, gives an anchor at each timestep (stepwise).
    """
    if n_anchors is None or n_anchors > t_max:
        return np.arange(t_max + 1)
    return np.zeros(1, dtype=np.int64) if n_anchors == 1 else None


def check_n_anchors(n_anchors: int | None) -> int | None:
    """Validate a wanted number of anchors: an integer from 1, or None."""
    return None if n_anchors is None else check_integer("n_anchors", n_anchors, 1)


def check_anchors(anchors: object, t_max: int) -> IntArray:
    """Validate given anchors: integers from 0, ascending, at most ``t_max``."""
    array = np.asarray(anchors)
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
