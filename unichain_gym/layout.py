"""The layout of a picture: recurrent classes in the middle, transient states around them.

Transient states form a forest: the parent of a state is the next state on its shortest path into a
recurrent class. Short trees are drawn radially, with a ring for each distance, so streams are rays
into the core. Longer streams are arms of one spiral around the core. Lengths are in units of
`SPACING`, the distance between a state and its successor.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from unichain_gym.interface import BoolArray, FloatArray, IntArray, RewardProcess
from unichain_gym.structure import edges, search_breadth_first

SPACING = 1.6
NODE_RADIUS = 0.42
ARM_GAP = 1.2 * SPACING
CORE_SPACING = 1.75 * SPACING  # in a small class with edges between all states
MOST_IN_SMALL_CLASS = 12
MOST_ACROSS = 9  # stream states on a straight line through the core; more go on a spiral
EDGE_POINTS = 24


@dataclass(frozen=True, eq=False)
class Layout:
    """Places of states (S, 2), and the directions of the loops of actions (S, A).

    For an MDP, ``is_recurrent`` (S,) refers to a policy that takes all actions.
    """

    position: FloatArray
    is_recurrent: BoolArray
    loop_angle: FloatArray


def lay_out(chain: RewardProcess, n_actions: int) -> Layout:
    """Place the states of a chain in the plane, with room for ``n_actions`` loops."""
    # In a backward search from the classes, the predecessor is the next state on the path.
    backwards = sparse.csr_array(chain.transition_matrix.T)
    distance, successor = search_breadth_first(backwards, chain.recurrent_states)
    is_recurrent = distance == 0
    successor[is_recurrent] = chain.recurrent_states
    position = np.zeros((chain.n_states, 2))
    entries = successor[distance == 1]
    hub = int(entries[0]) if entries.size > 1 and (entries == entries[0]).all() else None
    core_radius = _place_classes(chain.recurrent_classes, hub, entries.size, position)
    _place_transient(successor, distance, core_radius, position)
    loop_angle = _free_angles(chain.transition_matrix, successor, position, n_actions)
    return Layout(position, is_recurrent, loop_angle)


def edge_curves(
    layout: Layout, before: IntArray, action: IntArray, after: IntArray, n_actions: int
) -> FloatArray:
    """Return the curve of each edge from rim to rim of the states, (edges, EDGE_POINTS, 2)."""
    S = layout.is_recurrent.size
    start, end = layout.position[before], layout.position[after]
    # Edges in both directions bend to their left; otherwise actions bend to both sides.
    both_ways = np.isin(before * S + after, after * S + before)
    spread = min(0.16, 0.8 / n_actions)
    bend = spread * np.where(both_ways, 0.75 * (1 + action), action - (n_actions - 1) / 2)
    step = end - start
    middle = (start + end) / 2 + bend[:, None] * step[:, ::-1] * (-1.0, 1.0)
    length = np.maximum(np.linalg.norm(step, axis=1), 1e-9)
    cut = np.minimum(NODE_RADIUS / length, 0.5)[:, None]
    t = (cut + (1.0 - 2.0 * cut) * np.linspace(0.0, 1.0, EDGE_POINTS))[..., None]
    curve: FloatArray = (
        (1 - t) ** 2 * start[:, None] + 2 * t * (1 - t) * middle[:, None] + t**2 * end[:, None]
    )
    stays = before == after
    angle = layout.loop_angle[before[stays], action[stays]]
    around = np.linspace(0.75 * np.pi, -0.75 * np.pi, EDGE_POINTS) + angle[:, None]
    center = start[stays] + 1.35 * NODE_RADIUS * _unit(angle)
    curve[stays] = center[:, None] + 0.55 * NODE_RADIUS * _unit(around)
    return curve


def _place_classes(
    classes: list[IntArray], hub: int | None, n_streams: int, position: FloatArray
) -> float:
    """Put each recurrent class on a circle, and the circles on a circle; return the radius of all.

    The ``hub``, a state that all of several streams enter, goes to the middle of its circle.
    """
    rims = [states[states != hub] for states in classes]
    radii = []
    for states, rim in zip(classes, rims, strict=True):
        spacing = CORE_SPACING if states.size <= MOST_IN_SMALL_CLASS else SPACING
        radius = _ring(rim.size) * spacing / SPACING
        has_hub = rim.size not in (0, states.size)
        radii.append(max(spacing, radius) if has_hub else radius)
    between = _ring(len(classes)) * (2 * max(radii) / SPACING + 2)
    for number, (states, rim, radius) in enumerate(zip(classes, rims, radii, strict=True)):
        center = between * _unit(np.pi - 2 * np.pi * number / len(classes))
        if rim.size == states.size:  # the first faces left, where a single stream comes from
            angle = np.pi - 2 * np.pi * np.arange(rim.size) / rim.size
        else:
            angle = _angles_between_streams(rim.size, n_streams)
        position[states] = center
        position[rim] += radius * _unit(angle)
    return between + max(radii)


def _angles_between_streams(n: int, n_streams: int) -> FloatArray:
    """Return directions of n states around a hub, in the gaps between its streams."""
    width = 2 * np.pi / n_streams
    if n == 2 and n_streams <= 4:  # in one gap, so that no stream crosses between the two
        return _first_angle(n_streams) - width * np.array([0.25, 0.75])
    gap = np.arange(n) * n_streams // n
    place = np.arange(n) - np.searchsorted(gap, gap)
    share: FloatArray = (place + 1) / (np.bincount(gap)[gap] + 1)
    return _first_angle(n_streams) - width * (gap + share)


def _free_angles(
    P: sparse.csr_array, successor: IntArray, position: FloatArray, n_actions: int
) -> FloatArray:
    """Return, for each state and action, a direction (S, A) away from edges and other loops."""
    S = successor.size
    ahead = position[successor] - position
    heading = np.arctan2(ahead[:, 1], ahead[:, 0])
    # First the sides of a stream. Of equals, the best is far from earlier loops, then the first.
    candidates = heading[:, None] + np.pi / 2 + np.linspace(0.0, 2 * np.pi, 24, endpoint=False)
    row, column = edges(P)
    moves = row != column
    near = np.concatenate([row[moves], column[moves]])
    far = np.concatenate([column[moves], row[moves]])
    step = position[far] - position[near]
    in_stream = np.flatnonzero(successor != np.arange(S))
    state = np.concatenate([near, in_stream])
    taken = np.concatenate([np.arctan2(step[:, 1], step[:, 0]), heading[in_stream] + np.pi])
    room = np.full(candidates.shape, np.pi)
    np.minimum.at(room, state, _between_angles(candidates[state], taken[:, None]))
    room -= 1e-6 * np.arange(24)
    chosen = np.empty((S, n_actions))
    for action in range(n_actions):
        chosen[:, action] = candidates[np.arange(S), room.argmax(axis=1)]
        apart = _between_angles(candidates, chosen[:, action, None])
        room = np.minimum(room, apart) + 1e-3 * apart
    return chosen


def _between_angles(a: FloatArray, b: FloatArray) -> FloatArray:
    return np.abs((a - b + np.pi) % (2 * np.pi) - np.pi)


def _place_transient(
    successor: IntArray, distance: IntArray, core_radius: float, position: FloatArray
) -> None:
    """Put the transient states on rings, or on a spiral if they are long streams."""
    S = successor.size
    transient = np.flatnonzero(distance > 0)
    if transient.size == 0:
        return
    inner = transient[distance[transient] > 1]
    is_branched = np.bincount(successor[inner], minlength=1).max() > 1
    n_entering = np.count_nonzero(distance == 1)
    if is_branched or distance.max() * min(2, n_entering) <= MOST_ACROSS:
        position[transient] = _radial(successor, distance, core_radius)[transient]
    else:
        streams = sparse.csr_array((np.ones(inner.size), (inner, successor[inner])), shape=(S, S))
        _, label = connected_components(streams, directed=False)
        _, stream = np.unique(label[transient], return_inverse=True)
        position[transient] = _spiral(stream, distance[transient], core_radius)


def _radial(successor: IntArray, distance: IntArray, core_radius: float) -> FloatArray:
    """Return places (S, 2) on rings, a ring for each distance.

    A state's share of its ring is proportional to the leaves of its tree, within the share of its
    successor.
    """
    S = successor.size
    rings = [np.flatnonzero(distance == d) for d in range(distance.max() + 1)]
    leaves = (np.bincount(successor, minlength=S) == 0).astype(np.float64)
    for ring in rings[:0:-1]:
        np.add.at(leaves, successor[ring], leaves[ring])
    start = np.zeros(S)
    for d, ring in enumerate(rings):
        parent = successor[ring] if d else np.zeros_like(ring)
        order = np.argsort(parent, kind="stable")
        ring, parent = ring[order], parent[order]
        before = np.cumsum(leaves[ring]) - leaves[ring]
        first = np.searchsorted(parent, parent)  # the first state with the same parent
        start[ring] = start[parent] * (d > 0) + before - before[first]
    n_leaves = int(leaves[rings[0]].sum())
    angle = _first_angle(n_leaves) - 2 * np.pi * (start + leaves / 2 - 0.5) / n_leaves
    inner_radius = max(core_radius, _ring(n_leaves) - SPACING)
    return (inner_radius + SPACING * distance[:, None]) * _unit(angle)


def _spiral(stream: IntArray, distance: IntArray, core_radius: float) -> FloatArray:
    """Return the places (n, 2) of stream states, equally spaced along the arms of a spiral."""
    n_streams = int(stream.max()) + 1
    start = max(core_radius + SPACING, _ring(n_streams))
    pitch = ARM_GAP * n_streams / (2 * np.pi)  # growth of the radius in one radian
    length = SPACING * distance.max()
    # The radius r(θ) = start + pitch θ; its arc length is tabulated and inverted.
    theta = np.linspace(0.0, length / start, 10_000)
    radius = start + pitch * theta
    speed = np.hypot(radius, pitch)
    arc = np.concatenate(([0.0], np.cumsum((speed[1:] + speed[:-1]) / 2 * np.diff(theta))))
    turn: FloatArray = np.interp(SPACING * (distance - 1), arc, theta)
    angle = _first_angle(n_streams) - 2 * np.pi * stream / n_streams - turn
    return (start + pitch * turn)[:, None] * _unit(angle)


def _first_angle(n: int) -> float:
    """Return the first of n directions: left, with no direction straight up or down."""
    return np.pi - np.pi / n if n % 4 == 0 else np.pi


def _ring(n: int) -> float:
    """Return the radius of a circle on which n states are at least `SPACING` apart."""
    return 0.0 if n <= 1 else float(SPACING / (2 * np.sin(np.pi / n)))


def _unit(angle: ArrayLike) -> FloatArray:
    return np.asarray(np.stack([np.cos(angle), np.sin(angle)], axis=-1))
