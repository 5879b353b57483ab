"""States do not overlap, streams stay together and arrows run from rim to rim."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unichain_gym import TabularMDP, make_mdp
from unichain_gym.layout import NODE_RADIUS, SPACING, edge_curves, lay_out


def random_mdp(seed, n_states, n_actions, n_outcomes):
    rng = np.random.default_rng(seed)
    shape = (n_states, n_actions, n_outcomes)
    # Next states of smaller number make transient states and several classes likely.
    next_state = np.minimum(rng.integers(0, n_states, shape), rng.integers(0, n_states, shape))
    probability = rng.dirichlet(np.ones(n_outcomes), shape[:2])
    return TabularMDP(next_state, probability, np.zeros(shape), np.eye(n_states)[0])


def layout_of(mdp):
    return lay_out(mdp.uniform_chain, mdp.n_actions)


def smallest_distance(position):
    apart = np.linalg.norm(position[:, None] - position[None], axis=-1)
    return apart[~np.eye(len(apart), dtype=bool)].min(initial=np.inf)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_states=st.integers(1, 40),
    n_actions=st.integers(1, 3),
    n_outcomes=st.integers(1, 2),
)
def test_states_of_any_mdp_do_not_overlap(seed, n_states, n_actions, n_outcomes):
    layout = layout_of(random_mdp(seed, n_states, n_actions, n_outcomes))
    assert np.isfinite(layout.position).all()
    assert np.isfinite(layout.loop_angle).all()
    assert smallest_distance(layout.position) > 2 * NODE_RADIUS


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32 - 1), n_states=st.integers(1, 30))
def test_recurrent_states_are_the_attracting_components(seed, n_states):
    mdp = random_mdp(seed, n_states, 2, 1)
    graph = nx.DiGraph()
    graph.add_nodes_from(range(n_states))
    graph.add_edges_from((s, int(t)) for s in range(n_states) for t in mdp.next_state[s].ravel())
    attracting = set().union(*nx.attracting_components(graph))
    for is_recurrent in (layout_of(mdp).is_recurrent, mdp.state_classes == "recurrent"):
        assert set(np.flatnonzero(is_recurrent)) == attracting


@pytest.mark.parametrize("mnemonic", ["h6", "x9d", "h36c", "h100"])
def test_states_of_a_stream_follow_each_other_equally_spaced(mnemonic):
    mdp = make_mdp(mnemonic)
    position = layout_of(mdp).position
    follower = mdp.next_state[:, 0, 1]
    transient = np.flatnonzero(~layout_of(mdp).is_recurrent)
    inside = transient[follower[transient] < transient.size]
    step = np.linalg.norm(position[follower[inside]] - position[inside], axis=1)
    assert (step <= SPACING * (1 + 1e-6)).all()  # a chord of the spiral is shorter than its arc
    assert (step > 0.93 * SPACING).all()


def crossings(mdp):
    """Pairs of arrows, of other states each, that cross; and arrows over a third state."""
    layout = layout_of(mdp)
    s, a, k = np.nonzero(mdp.probability)
    after = mdp.next_state[s, a, k]
    moves = s != after
    s, a, after = s[moves], a[moves], after[moves]
    curve = edge_curves(layout, s, a, after, mdp.n_actions)
    apart = np.linalg.norm(curve[:, :, None] - layout.position, axis=-1).min(axis=1)
    apart[np.arange(s.size), s] = apart[np.arange(s.size), after] = np.inf
    ends = [{int(one), int(other)} for one, other in zip(s, after, strict=True)]
    crossed = 0
    for i in range(s.size):
        others = [j for j in range(i) if not ends[i] & ends[j]]
        step = np.diff(curve[i], axis=0)
        for j in others:
            between, across = curve[j][:-1, None] - curve[i][:-1], np.diff(curve[j], axis=0)
            turn = across[:, None, 0] * step[:, 1] - across[:, None, 1] * step[:, 0]
            with np.errstate(divide="ignore", invalid="ignore"):
                t = (between[..., 1] * step[:, 0] - between[..., 0] * step[:, 1]) / turn
                u = (
                    between[..., 1] * across[:, None, 0] - between[..., 0] * across[:, None, 1]
                ) / turn
            crossed += bool(((t >= 0) & (t <= 1) & (u >= 0) & (u <= 1)).any())
    return crossed, int((apart < NODE_RADIUS).sum())


@pytest.mark.parametrize("mnemonic", ["h3", "h6", "h36", "h7b", "h36c", "h39d", "x9d", "c5", "c10"])
def test_no_arrow_crosses_another_or_a_third_state(mnemonic):
    assert crossings(make_mdp(mnemonic)) == (0, 0)


@pytest.mark.parametrize("mnemonic", ["x1", "h6", "x9d", "h36c", "c100"])
def test_every_arrow_connects_the_rims_of_two_states(mnemonic):
    mdp = make_mdp(mnemonic)
    layout = layout_of(mdp)
    s, a, k = np.nonzero(mdp.probability)
    after = mdp.next_state[s, a, k]
    curve = edge_curves(layout, s, a, after, mdp.n_actions)
    for end, state in ((0, s), (-1, after)):
        radius = np.linalg.norm(curve[:, end] - layout.position[state], axis=1)
        assert (np.abs(radius - NODE_RADIUS) < 0.1 * NODE_RADIUS).all()
